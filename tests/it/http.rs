//! Contract §6, §9: over HTTP, one request is one job, whatever happens in between, and everybody sees only their own.

use std::time::Duration;

use euterpe::domain::{Claim, JobFailure, JobId, JobStatus};
use futures_util::future::join_all;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::api::{Api, add_key, code, request};
use crate::support::{Proxy, QUEUE, TestDb, requester, until, worker};

fn id_of(answer: &Value) -> JobId {
    JobId(answer["job_id"].as_str().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_identical_posts_at_once_make_one_job_and_fifty_identical_answers() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let posts =
        (0..50).map(|_| api.post("/transcode", &request()).header("idempotency-key", "clip-42").send());
    let mut bodies = Vec::new();
    let mut replayed = 0;
    for answer in join_all(posts).await {
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 202);
        replayed += usize::from(answer.headers().contains_key("idempotency-replayed"));
        bodies.push(answer.bytes().await.unwrap());
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]), "byte for byte");
    assert_eq!(replayed, 49);
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 1);
}

/// Key order, white space and rotated credentials do not make another request; a changed output does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_another_request_and_what_does_not() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let send = |body: String| {
        let request = api.request(Method::POST, "/transcode").header("content-type", "application/json");
        request.header("idempotency-key", "k").body(body).send()
    };
    let first: Value = send(request().to_string()).await.unwrap().json().await.unwrap();
    let same = r#"  { "outputs" : [ {"preset":"h264_720p", "path":"720p.mp4","name":"720p"} ],
        "storage": {"credentials": {"secret_access_key": "rotated", "access_key_id": "AKIB"},
                    "output_prefix": "s3://media-out/42/", "region": "eu-west-1", "path_style": false},
        "priority": 100, "source": {"uri": "s3://media-in/42/clip.mov"} }"#;
    let second: Value = send(same.to_owned()).await.unwrap().json().await.unwrap();
    assert_eq!(first["job_id"], second["job_id"]);
    let mut other = request();
    other["outputs"][0]["path"] = "1080p.mp4".into();
    let refused = send(other.to_string()).await.unwrap();
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["error"]["code"], "idempotency_conflict");
    let says = body["error"]["message"].as_str().unwrap();
    assert!(says.contains("whose hash begins with "), "{body}");
    assert!(says.contains(&format!("that of job {}", first["job_id"].as_str().unwrap())), "{body}");
}

/// The job is committed, the answer is lost with the process; the client asks again, of another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_commit_and_answer_is_harmless() {
    let db = TestDb::fresh().await;
    let proxy = Proxy::before(&db.config());
    let key = add_key(&db, "acme", &["transcode:write", "transcode:read"]).await;
    let through =
        crate::support::url_of(&proxy.config(&db.config())).replace("user=euterpe_test", "user=euterpe_api");
    let mut api = Api::over(&through, key.clone(), &[("EUTERPE_API_CONNECTIONS", "1")]).await;
    api.post("/transcode", &request()).send().await.unwrap();
    let post = |api: &Api| api.post("/transcode", &request()).header("idempotency-key", "k").send();

    // The commit has happened when this lock is waited for no more; the answer never comes back.
    let holder = db.client().await;
    holder.batch_execute("begin; lock table euterpe.idempotency_keys in share mode").await.unwrap();
    let lost = tokio::spawn(post(&api));
    until(
        &db.client().await,
        "select exists (select from pg_stat_activity where datname = current_database()
                                              and wait_event_type = 'Lock' and usename = 'euterpe_api')",
    )
    .await;
    proxy.lose_next_answer();
    holder.batch_execute("rollback").await.unwrap();
    until(&db.client().await, "select count(*) = 2 from euterpe.inbox_jobs").await;
    api.signal(Signal::KILL);
    api.wait();
    assert!(lost.await.unwrap().is_err() || proxy.has_lost_it());

    let database = crate::support::url_of(&db.config()).replace("user=euterpe_test", "user=euterpe_api");
    let again = Api::over(&database, key, &[]).await;
    let answer = post(&again).await.unwrap();
    assert_eq!(answer.headers()["idempotency-replayed"], "true");
    let job: Value = answer.json().await.unwrap();
    assert_eq!(again.status(&job["job_id"]).await["status"], "queued");
    assert_eq!(db.one::<i64>("select count(*) from euterpe.inbox_jobs").await, 2);
}

/// 401, 403, 404, 410; and another requester's job answers exactly like an unknown one, on every call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_refuses_strangers_in_the_same_words() {
    let db = TestDb::fresh().await;
    db.add_requester("zenith", 1).await;
    let mut api = Api::start(&db).await;
    let mine = api.enqueue().await["job_id"].clone();
    let (owner, stranger) =
        (api.key.clone(), add_key(&db, "zenith", &["transcode:write", "transcode:read"]).await);
    let reader = add_key(&db, "acme", &["transcode:read"]).await;
    let unknown = JobId::new(&requester("zenith")).to_string();
    let calls = |job: &str| {
        vec![
            (Method::GET, format!("/transcode/status?job_id={job}"), Value::Null),
            (Method::GET, format!("/transcode/events?job_id={job}"), Value::Null),
            (Method::POST, "/transcode/cancel".into(), json!({"job_id": job})),
            (Method::POST, "/transcode/retry".into(), json!({"job_id": job})),
            (Method::POST, "/transcode/events/redeliver".into(), json!({"job_id": job})),
            (
                Method::PUT,
                "/transcode/credentials".into(),
                json!({"job_id": job, "expected_credential_version": 1,
                       "credentials": {"access_key_id": "A", "secret_access_key": "S"}}),
            ),
        ]
    };
    let ask = |api: &Api, (method, path, body): (Method, String, Value)| {
        let request = api.request(method.clone(), &path);
        if method == Method::GET { request.send() } else { request.json(&body).send() }
    };
    api.key = stranger;
    for (theirs, none) in calls(mine.as_str().unwrap()).into_iter().zip(calls(&unknown)) {
        let path = theirs.1.clone();
        let (theirs, none) = (ask(&api, theirs).await.unwrap(), ask(&api, none).await.unwrap());
        assert_eq!((theirs.status(), none.status()), (none.status(), 404.try_into().unwrap()), "{path}");
        assert_eq!(theirs.text().await.unwrap(), none.text().await.unwrap(), "{path}");
    }
    api.key = reader;
    for call in calls(mine.as_str().unwrap()).into_iter().filter(|(method, ..)| *method != Method::GET) {
        let path = call.1.clone();
        assert_eq!(code(ask(&api, call).await.unwrap()).await, (403, "forbidden".into()), "{path}");
    }
    let last = if owner.ends_with('0') { "1" } else { "0" };
    let mistyped = format!("{}{last}", &owner[..owner.len() - 1]);
    for key in ["", "eut_nonsense", &owner.replace("eut_", "eut_x"), &mistyped] {
        api.key = key.to_owned();
        for call in calls(mine.as_str().unwrap()) {
            let path = call.1.clone();
            assert_eq!(code(ask(&api, call).await.unwrap()).await, (401, "unauthorized".into()), "{path}");
        }
    }
    api.key = owner;
    let ancient = format!("0161c1b0-0000-7000-8000-0000000000{:02x}", requester("acme").bucket());
    let gone = api.get(&format!("/transcode/status?job_id={ancient}")).send().await.unwrap();
    assert_eq!(code(gone).await, (410, "gone".into()));
    db.store().disable_requester(&requester("acme"), None).await.unwrap();
    for _ in 0..400 {
        let answer = api.get("/transcode").send().await.unwrap();
        if answer.status() == 403 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a disabled requester is still served after two seconds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_is_refused_within_a_second() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    assert_eq!(api.get("/transcode").send().await.unwrap().status(), 200);
    let id = api.key.split('_').nth(1).unwrap();
    db.store().revoke_api_key(id, None).await.unwrap();
    let revoked = std::time::Instant::now();
    while api.get("/transcode").send().await.unwrap().status() == 200 {
        assert!(revoked.elapsed() < Duration::from_secs(1), "still served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(code(api.get("/transcode").send().await.unwrap()).await, (401, "unauthorized".into()));
}

/// The status document from the first moment to the last, and the list and timeline beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_seen_as_it_is_all_its_life() {
    let db = TestDb::fresh().await;
    let (api, store, pod) = (Api::start(&db).await, db.store(), worker("pod"));
    let mut body = request();
    body["external_id"] = "video-42".into();
    body["metadata"] = json!({"tenant": "acme"});
    body["status_webhook_url"] = "https://hooks.example.com/euterpe?token=t".into();
    let accepted: Value = api.post("/transcode", &body).send().await.unwrap().json().await.unwrap();
    let job_id = accepted["job_id"].clone();
    assert_eq!(accepted["status"], "queued");
    assert_eq!(accepted["status_url"], format!("/transcode/status?job_id={}", job_id.as_str().unwrap()));

    let seen = api.status(&job_id).await;
    assert_eq!((&seen["status"], &seen["credential_version"]), (&"queued".into(), &1.into()));
    assert_eq!((&seen["external_id"], &seen["metadata"]["tenant"]), (&"video-42".into(), &"acme".into()));
    let listed: Value = api.get("/transcode").send().await.unwrap().json().await.unwrap();
    assert_eq!([&seen["created_at"], &listed["jobs"][0]["created_at"]], [&accepted["created_at"]; 2]);
    serde_json::from_value::<euterpe::domain::transcode::StatusDocument>(seen).expect("as it is promised");

    let job = store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap().remove(0);
    db.advance_to(&pod, job.claim, JobStatus::Processing).await;
    let progress =
        json!({"percent": 42.5, "phase": "processing", "output": "720p", "speed": 1.5, "eta_seconds": 9});
    store.heartbeat_jobs(&pod, &[(job.claim, Some(progress))], None).await.unwrap();
    let seen = api.status(&job_id).await;
    assert_eq!((&seen["status"], &seen["progress"]["percent"]), (&"processing".into(), &42.5.into()));
    assert_eq!(seen["worker_id"], pod.as_str());
    serde_json::from_value::<euterpe::domain::transcode::StatusDocument>(seen).expect("as it is promised");

    let failure =
        JobFailure { code: "media_unreadable".into(), message: "no".into(), ..JobFailure::default() };
    store.fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap();
    let seen = api.status(&job_id).await;
    assert_eq!((&seen["status"], &seen["error"]["code"]), (&"failed".into(), &"media_unreadable".into()));
    serde_json::from_value::<euterpe::domain::transcode::StatusDocument>(seen).expect("as it is promised");

    let retried = api.post("/transcode/retry", &json!({"job_id": job_id})).send().await.unwrap();
    assert_eq!(retried.status(), 200);
    assert_eq!(retried.json::<Value>().await.unwrap()["status"], "queued");
    let job = store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap().remove(0);
    let failure = JobFailure { code: "decrypt_failed".into(), ..JobFailure::default() };
    store.fail_jobs(&pod, &[(job.claim, failure)]).await.unwrap();
    let no = api.post("/transcode/retry", &json!({"job_id": job_id})).send().await.unwrap();
    assert_eq!(code(no).await, (409, "credentials_required".into()));
    let keys = json!({"access_key_id": "A", "secret_access_key": "S"});
    let again =
        api.post("/transcode/retry", &json!({"job_id": job_id, "credentials": keys})).send().await.unwrap();
    assert_eq!(again.status(), 202);
    let new: Value = again.json().await.unwrap();
    assert_eq!(api.status(&job_id).await["redriven_as"], new["job_id"]);
    assert_eq!(api.status(&new["job_id"]).await["redrive_of"], job_id);

    let cancelled = api.post("/transcode/cancel", &json!({"job_id": new["job_id"]})).send().await.unwrap();
    assert_eq!(cancelled.json::<Value>().await.unwrap()["error"]["code"], "cancelled");
    let twice = api.post("/transcode/cancel", &json!({"job_id": new["job_id"]})).send().await.unwrap();
    assert_eq!(code(twice).await, (409, "state_conflict".into()));

    let path = format!("/transcode/events?job_id={}", job_id.as_str().unwrap());
    let timeline: Value = api.get(&path).send().await.unwrap().json().await.unwrap();
    let steps: Vec<_> =
        timeline["events"].as_array().unwrap().iter().map(|e| e["status"].as_str().unwrap()).collect();
    assert_eq!(steps[..4], ["queued", "claimed", "fetching", "processing"]);
    assert_eq!(steps.last(), Some(&"dead_letter"));
    serde_json::from_value::<euterpe::domain::transcode::Timeline>(timeline).expect("as it is promised");
    let again = json!({"job_id": job_id});
    let none = api.post("/transcode/events/redeliver", &again).send().await.unwrap();
    assert_eq!((none.status().as_u16(), none.json::<Value>().await.unwrap()), (202, json!({"count": 0})));

    let mut found = Vec::new();
    let mut path = "/transcode?limit=1&external_id=video-42".to_owned();
    loop {
        let page: Value = api.get(&path).send().await.unwrap().json().await.unwrap();
        found.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["job_id"].clone()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/transcode?limit=1&external_id=video-42&cursor={cursor}");
    }
    assert_eq!(found, [new["job_id"].clone(), job_id], "newest first");
    let dead: Value = api.get("/transcode?status=dead_letter").send().await.unwrap().json().await.unwrap();
    assert_eq!(dead["jobs"].as_array().unwrap().len(), 1);

    // In each of the eight states it is there to be seen. The first stays in the line, and so each claim has a job.
    let fail = async |claim: Claim, code: &str| {
        let failure = JobFailure { code: code.into(), ..JobFailure::default() };
        store.fail_jobs(&pod, &[(claim, failure)]).await.unwrap();
    };
    for status in JobStatus::ALL {
        let mut id = id_of(&api.enqueue().await);
        if status != JobStatus::Queued {
            let claim = db.claim(&pod).await.claim;
            id = claim.job_id;
            match status {
                JobStatus::Succeeded => db.succeed(&pod, claim).await,
                JobStatus::Failed => fail(claim, "media_unreadable").await,
                JobStatus::DeadLetter => fail(claim, "decrypt_failed").await,
                running => db.advance_to(&pod, claim, running).await,
            }
        }
        let answer = api.get(&format!("/transcode/status?job_id={id}")).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{status}");
        assert_eq!(answer.json::<Value>().await.unwrap()["status"], status.as_str());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_compared_and_set_and_the_old_ones_are_gone() {
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let job_id = api.enqueue().await["job_id"].clone();
    let sealed =
        "select encode(storage_creds_encrypted, 'hex') from euterpe.job_secrets where purpose = 'storage'";
    let before: String = db.one(sealed).await;
    let put = |expected: i32| {
        let keys = json!({"access_key_id": "NEW", "secret_access_key": "S"});
        let body = json!({"job_id": job_id, "expected_credential_version": expected, "credentials": keys});
        api.request(Method::PUT, "/transcode/credentials").json(&body).send()
    };
    let answer = put(1).await.unwrap();
    assert_eq!(answer.json::<Value>().await.unwrap(), json!({"credential_version": 2}));
    assert_eq!(code(put(1).await.unwrap()).await, (409, "credential_version_conflict".into()));
    assert_ne!(db.one::<String>(sealed).await, before);
    assert_eq!(api.status(&job_id).await["credential_version"], 2);
}

/// What was sealed over HTTP opens for its worker, and for nothing else: not swapped, not put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sealed_opens_for_its_own_job_and_version_only() {
    use euterpe::crypto::{Binding, open};
    let db = TestDb::fresh().await;
    let (api, keys, acme) = (Api::start(&db).await, crate::support::api::keyring(), requester("acme"));
    let (one, two) = (id_of(&api.enqueue().await), id_of(&api.enqueue().await));
    let swap = "update euterpe.job_secrets s set storage_creds_encrypted = o.storage_creds_encrypted,
                       storage_creds_dek_wrapped = o.storage_creds_dek_wrapped
                  from euterpe.job_secrets o where o.job_id <> s.job_id";
    let pod = worker("pod");
    let jobs = db.store().claim_jobs(QUEUE, &pod, 2, None).await.unwrap();
    let claims: Vec<_> = jobs.iter().map(|job| job.claim).collect();
    let read = async || db.store().read_job_secrets(&pod, &claims).await.unwrap();
    let opened = |secrets: &[euterpe::store::JobSecret], version: i32| -> Vec<bool> {
        let parts = secrets.iter().filter_map(|job| Some((job.job_id, job.secret.as_ref()?)));
        parts
            .map(|(id, (_, sealed))| {
                open(&keys, &Binding::storage(id, &acme, version), sealed.parts()).is_ok()
            })
            .collect()
    };
    let fresh = read().await;
    assert_eq!(opened(&fresh, 1), [true, true]);
    let (_, sealed) = fresh[0].secret.as_ref().unwrap();
    let text = open(&keys, &Binding::storage(fresh[0].job_id, &acme, 1), sealed.parts()).unwrap();
    assert!(text.expose_str().unwrap().contains("AKIA"));
    assert_eq!(opened(&fresh, 2), [false, false], "an older version put in a newer one's place");
    db.run(swap).await;
    assert_eq!(opened(&read().await, 1), [false, false], "swapped between {one} and {two}");
}

/// A caller that waits hears of the first change, at once when nothing can follow, and at the end in any case.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_answers_when_the_job_moves() {
    let db = TestDb::fresh().await;
    let (api, pod) = (Api::start(&db).await, worker("pod"));
    let job_id = api.enqueue().await["job_id"].clone();
    let path = format!("/transcode/status?job_id={}&wait=60", job_id.as_str().unwrap());
    let waiters: Vec<_> = (0..20).map(|_| tokio::spawn(api.get(&path).send())).collect();
    until(
        &db.client().await,
        "select exists (select from pg_stat_activity where datname = current_database()
                                              and usename = 'euterpe_api' and query like '%last_sequences_v1%')",
    )
    .await;
    let job = db.claim(&pod).await;
    let briefly = path.replace("wait=60", "wait=1");
    assert_eq!(api.get(&briefly).send().await.unwrap().json::<Value>().await.unwrap()["status"], "claimed");
    // Whoever asked only after the claim waits for what comes next.
    db.succeed(&pod, job.claim).await;
    for waiter in waiters {
        let seen: Value = waiter.await.unwrap().unwrap().json().await.unwrap();
        assert_ne!(seen["status"], "queued");
    }
    assert_eq!(api.get(&path).send().await.unwrap().json::<Value>().await.unwrap()["status"], "succeeded");
}

/// More calls than the bucket holds are refused with when to come back; a replay never is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_calls_are_refused_and_a_replay_is_not() {
    let db = TestDb::fresh().await;
    db.run("update euterpe.requesters set requests_per_second = 1, request_burst = 3, max_open_jobs = 2")
        .await;
    let api = Api::start(&db).await;
    let post = |key: &str| api.post("/transcode", &request()).header("idempotency-key", key).send();
    let first = post("a").await.unwrap();
    assert_eq!(first.headers()["ratelimit-limit"], "3");
    let first = first.bytes().await.unwrap();
    let mut limited = 0;
    for n in 0..10 {
        let answer = post(&format!("n{n}")).await.unwrap();
        if answer.status() == 429 {
            assert!(answer.headers()["retry-after"].to_str().unwrap().parse::<u32>().unwrap() >= 1);
            limited += 1;
        }
    }
    assert!(limited >= 6, "{limited}");
    let replay = post("a").await.unwrap();
    assert_eq!((replay.status().as_u16(), replay.bytes().await.unwrap()), (202, first));
    assert!(
        db.one::<i64>("select count(*) from euterpe.inbox_jobs").await <= 2,
        "as many as it may have open"
    );
}

/// A body that is still on its way when we refuse does not cost the client our answer, nor its next request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_before_the_body_was_read_still_gets_the_answer() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let db = TestDb::fresh().await;
    let mut api = Api::start(&db).await;
    let (key, big) = (api.key.clone(), "x".repeat(900_000));
    for _ in 0..5 {
        for (key, kind, expected) in [
            (key.as_str(), "application/json", (413, "body_too_large")),
            (key.as_str(), "text/plain", (415, "unsupported_media_type")),
            ("eut_nobody", "application/json", (401, "unauthorized")),
        ] {
            key.clone_into(&mut api.key);
            let post = api.request(Method::POST, "/transcode").header("content-type", kind);
            let (status, said) = code(post.body(big.clone()).send().await.unwrap()).await;
            assert_eq!((status, said.as_str()), expected);

            // Many a client says everything before it listens.
            let mut line = TcpStream::connect(api.url.strip_prefix("http://").unwrap()).await.unwrap();
            let head = format!(
                "POST /transcode HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\ncontent-type: {kind}\r\n\
                 content-length: {}\r\n\r\n",
                big.len()
            );
            line.write_all(head.as_bytes()).await.unwrap();
            line.write_all(big.as_bytes()).await.unwrap();
            let mut answer = String::new();
            line.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(&said), "{answer}");
            assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        }
    }
    // Whoever was read to the end stays connected.
    api.key = key;
    let kept = api.post("/transcode", &json!({})).send().await.unwrap();
    assert_eq!((kept.status().as_u16(), kept.headers().get("connection")), (422, None));
}
