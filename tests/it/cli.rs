//! Design §8: the real `euterpe`, told what an operator tells it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use euterpe::crypto::{ApiKey, Binding, Keyring, Peppers, SigningSecret, seal};
use euterpe::domain::{JobFailure, JobId, JobStatus, NewJob};
use serde_json::{Value, json};

use crate::crypto::{key_of, ring};
use crate::support::cli::Cli;
use crate::support::{QUEUE, TestDb, requester, until, worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requester_is_added_with_a_secret_and_given_a_key_that_is_shown_once() {
    let db = TestDb::fresh().await;
    let (cli, store) = (Cli::new(&db), db.store());
    let said = cli.say("requester add zenith --weight 3 --name Zenith");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("whsec_") && said.out.contains("euterpe key add zenith"), "{}", said.out);

    let secrets = cli.json("secret show zenith");
    assert!(said.out.contains(secrets["secrets"][0]["secret"].as_str().unwrap()), "the same secret");
    assert_eq!(secrets["secrets"][0]["is_active"], true);
    let listed = cli.json("requester list");
    assert_eq!(listed[1]["requester_id"], "zenith");
    assert_eq!(listed[1]["weight"], 3);
    let shown = cli.say("requester list").out;
    assert!(shown.contains("Zenith") && shown.contains("max open"), "{shown}");

    let added = cli.json("key add zenith --scope transcode:read --days 30");
    let key = ApiKey::parse(added["key"].as_str().unwrap()).ok().unwrap();
    let kept = store.find_api_key(key.id()).await.unwrap().unwrap();
    let peppers = Peppers::from_env(|name| (name == "EUTERPE_KEY_PEPPER").then(|| key_of(9))).unwrap();
    assert_eq!(peppers.check(&key, Some((&kept.key_hash, kept.pepper_version))), Ok(true));
    assert_eq!((kept.scopes.as_slice(), kept.is_valid), (["transcode:read".to_owned()].as_slice(), true));

    // The whole key will do, too: whoever found it in a log has that.
    let said = cli.say(&format!("key revoke {} --why leaked", added["key"].as_str().unwrap()));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(!store.find_api_key(key.id()).await.unwrap().unwrap().is_valid);

    assert_eq!(cli.json("requester disable zenith --why unpaid")["disabled"], true);
    assert!(cli.say("requester list").out.contains("disabled since"));
    assert_eq!(cli.json("requester enable zenith")["disabled"], false);
}

/// `euterpe key add acme | head -n 1` is a key and no complaint; an answer that is lost is not passed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_has_heard_enough_is_no_failure_and_a_full_disk_is() {
    let db = TestDb::fresh().await;
    let cli = Cli::new(&db);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let enough = cli.command("requester list").stdout(writer).output().unwrap();
    assert_eq!((enough.status.code(), enough.stderr.as_slice()), (Some(0), &b""[..]));
    let full = std::fs::File::create("/dev/full").unwrap();
    let lost = cli.command("requester list").stdout(full).output().unwrap();
    assert_eq!(lost.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&lost.stderr).contains("could not be written"), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_rotated_and_activated() {
    let db = TestDb::fresh().await;
    let cli = Cli::new(&db);
    let said = cli.say("secret show acme");
    assert_eq!(said.code, 3);
    assert!(said.err.contains("`euterpe secret rotate acme` makes one"), "{}", said.err);
    let first = cli.json("secret rotate acme");
    let second = cli.json("secret rotate acme");
    for made in [&first, &second] {
        SigningSecret::parse(made["secret"]["secret"].as_str().unwrap()).ok().unwrap();
    }
    let states = |shown: &Value| -> Vec<(i64, bool)> {
        let secrets = shown["secrets"].as_array().unwrap();
        secrets.iter().map(|s| (s["version"].as_i64().unwrap(), s["is_active"].as_bool().unwrap())).collect()
    };
    assert_eq!(states(&cli.json("secret show acme")), [(1, true), (2, false)]);
    assert!(cli.say("secret show acme").out.contains("waits: euterpe secret activate acme 2"));
    let said = cli.say("secret rotate acme");
    assert_eq!((said.code, said.out.as_str()), (4, ""), "one waits already");
    assert!(said.err.contains("activate or retire it first"), "{}", said.err);

    assert_eq!(cli.say("secret activate acme 2 --overlap-hours 1").code, 0);
    assert_eq!(states(&cli.json("secret show acme")), [(2, true), (1, false)]);
    assert_eq!(cli.say("secret retire acme 1 --why leaked").code, 0);
    assert_eq!(states(&cli.json("secret show acme")), [(2, true)]);
    assert_eq!(cli.say("secret retire acme 2").code, 4, "the active one");
    assert_eq!(cli.say("secret activate acme 7").code, 3);
}

async fn sealed_job(db: &TestDb, keys: &Keyring) -> JobId {
    let acme = requester("acme");
    let id = JobId::new(&acme);
    let job = NewJob {
        request: json!({}),
        job_id: Some(id),
        sealed: [
            ("storage".to_owned(), seal(keys, &Binding::storage(id, &acme, 1), &"x".into())),
            ("callback".to_owned(), seal(keys, &Binding::callback(id, &acme), &"y".into())),
        ]
        .into(),
        ..NewJob::default()
    };
    db.store().enqueue_job(&acme, QUEUE, &job).await.unwrap().job_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kek_is_made_listed_and_replaced() {
    let db = TestDb::fresh().await;
    let old = Cli::new(&db);
    let made = old.json("kek new --id two --pepper");
    assert_eq!(made["kek_id"], "two");
    let line = old.say("kek new --id three").out;
    assert!(line.starts_with("kek three ") && line.lines().count() == 1, "{line}");
    assert_eq!(old.say("kek new --id a/b").code, 2);
    let pepper = old.say("kek new --pepper-only").out;
    assert!(pepper.starts_with("pepper 1 ") && pepper.lines().count() == 1, "{pepper}");
    assert!(old.json("kek new --pepper-only").get("kek").is_none(), "for a file that has keys");
    old.json("secret rotate acme");
    for _ in 0..5 {
        sealed_job(&db, &ring(&[("one", 1)])).await;
    }

    let keks = format!("one:{},two:{}", key_of(1), made["kek"].as_str().unwrap());
    let both = Cli::new(&db).with("EUTERPE_KEKS", &keks).with("EUTERPE_ACTIVE_KEK", "two");
    let listed = both.say("kek list").out;
    assert!(listed.contains("old: euterpe kek rewrap"), "{listed}");
    // Just added, and not active yet: it looks like one that is not needed any more.
    let added = Cli::new(&db).with("EUTERPE_KEKS", &keks).with("EUTERPE_ACTIVE_KEK", "one");
    let line = added.say("kek list").out.lines().last().unwrap().to_owned();
    assert!(line.ends_with("unused: may be taken away, unless it is to become active"), "{line}");
    let said = both.say("kek rewrap --batch 3 --why yearly");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.starts_with("11 rewrapped; every secret"), "{}", said.out);
    assert!(said.err.contains("3 of 11 rewrapped") || said.err.contains("1 of 11 rewrapped"), "{}", said.err);
    assert!(said.err.contains("11 of 11 rewrapped"), "{}", said.err);
    assert_eq!(both.json("kek rewrap")["rewrapped"], 0, "once more does nothing");
    let listed = both.json("kek list");
    assert_eq!(
        (&listed[0]["wraps"], &listed[0]["seals"]),
        (&json!({}), &json!([])),
        "one is not needed any more"
    );
    assert_eq!(listed[1]["wraps"], json!({"storage": 5, "callback": 5, "signing": 1}));

    // Whoever has the old key alone sees what is missing.
    let said = old.say("secret show acme");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("key \"two\" is not in the ring: add it to EUTERPE_KEK_FILE"), "{}", said.err);
    assert!(old.say("kek list").out.contains("MISSING HERE"));
    assert_eq!(old.say("kek rewrap").code, 1);
}

/// kill -9 after the first batches; the second run does the rest and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewrap_that_was_killed_is_started_again() {
    let db = TestDb::fresh().await;
    for _ in 0..100 {
        sealed_job(&db, &ring(&[("one", 1)])).await;
    }
    let keks = format!("one:{},two:{}", key_of(1), key_of(2));
    let both = Cli::new(&db).with("EUTERPE_KEKS", &keks).with("EUTERPE_ACTIVE_KEK", "two");
    let mut first = both.command("kek rewrap --batch 1").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(first.stderr.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "1 of 200 rewrapped");
    first.kill().unwrap();
    first.wait().unwrap();
    let gone = "select not exists (select from pg_stat_activity
                  where datname = current_database() and application_name like 'euterpe/%')";
    until(&db.client().await, gone).await;

    let new = "select count(*) from euterpe.job_secrets where storage_creds_kek_id = 'two'";
    let done: i64 = db.one(new).await;
    assert!((1..200).contains(&done), "{done}: it was killed in the middle");
    assert_eq!(both.json("kek rewrap")["rewrapped"], 200 - done);
    assert_eq!(db.one::<i64>(new).await, 200);
}

/// Somebody wrote into one row. The others are rewrapped all the same, and the row is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_does_not_open_stops_no_rewrap() {
    let db = TestDb::fresh().await;
    for _ in 0..3 {
        sealed_job(&db, &ring(&[("one", 1)])).await;
    }
    let bad = sealed_job(&db, &ring(&[("one", 1)])).await;
    db.run(&format!(
        "update euterpe.job_secrets set storage_creds_dek_wrapped =
                set_byte(storage_creds_dek_wrapped, 20, 255 - get_byte(storage_creds_dek_wrapped, 20))
          where job_id = '{bad}' and purpose = 'storage'"
    ))
    .await;
    let keks = format!("one:{},two:{}", key_of(1), key_of(2));
    let both = Cli::new(&db).with("EUTERPE_KEKS", &keks).with("EUTERPE_ACTIVE_KEK", "two");
    let said = both.say("kek rewrap");
    assert_eq!(said.code, 1);
    let expected =
        format!("7 rewrapped; 1 do not open and were left as they are, the first is job/{bad}/storage");
    assert!(said.err.contains(&expected), "{}", said.err);
}

/// Of two that do not open one is replaced by its requester while the others are rewrapped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewrap_ends_when_a_secret_that_did_not_open_is_replaced_meanwhile() {
    let db = TestDb::fresh().await;
    let bad = sealed_job(&db, &ring(&[("one", 1)])).await;
    sealed_job(&db, &ring(&[("one", 1)])).await;
    db.run(&format!(
        "update euterpe.job_secrets set storage_creds_dek_wrapped =
                set_byte(storage_creds_dek_wrapped, 20, 255 - get_byte(storage_creds_dek_wrapped, 20))
          where job_id = '{bad}' and purpose = 'storage';
         create function public.replaced() returns trigger language plpgsql as $$
           begin
             update euterpe.job_secrets set storage_creds_kek_id = 'two'
              where job_id = '{bad}' and purpose = 'storage';
             return null;
           end $$;
         create trigger replaced after update on euterpe.job_secrets for each row
           when (new.job_id <> '{bad}') execute function public.replaced()"
    ))
    .await;
    let keks = format!("one:{},two:{}", key_of(1), key_of(2));
    let both = Cli::new(&db).with("EUTERPE_KEKS", &keks).with("EUTERPE_ACTIVE_KEK", "two");
    let said = both.say("kek rewrap --batch 1");
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "3 rewrapped; every secret is wrapped by an active key\n"),
        "{}",
        said.err
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_explained_cancelled_and_retried() {
    let db = TestDb::fresh().await;
    let (cli, store, pod) = (Cli::new(&db), db.store(), worker("pod"));
    let failed = db.enqueue().await;
    let claim = db.claim(&pod).await.claim;
    db.advance_to(&pod, claim, JobStatus::Fetching).await;
    let met = JobFailure { code: "media_unreadable".into(), ..JobFailure::default() };
    store.fail_jobs(&pod, &[(claim, met)]).await.unwrap();

    let status = cli.json(&format!("status {failed}"));
    assert_eq!(status["situation"], "failed");
    let steps: Vec<_> = status["timeline"].as_array().unwrap().iter().map(|step| &step["step"]).collect();
    assert_eq!(steps.last().unwrap(), &"fetching -> failed");
    let said = cli.say(&format!("status {failed}"));
    assert!(
        said.out.starts_with("failed: failed ") && said.out.contains("queued -> claimed"),
        "{}",
        said.out
    );
    // psql has functions, a shell has commands.
    let next = format!("; `euterpe retry {failed}` tries it again");
    assert!(said.out.contains(&next) && !said.out.contains("_v1"), "{}", said.out);
    assert!(status["says"].as_str().unwrap().ends_with(&next), "{status}");

    assert_eq!(cli.json(&format!("retry {failed} --why again"))["status"], "queued");
    assert_eq!(cli.say(&format!("retry {failed}")).code, 4, "it does not rest any more");
    assert_eq!(cli.json(&format!("cancel {failed} --why enough"))["was"], "queued");
    let said = cli.say(&format!("cancel {failed} --json"));
    assert_eq!((said.code, said.out.as_str()), (4, ""));
    let error: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(error["error"]["code"], "refused");
    assert!(
        cli.say(&format!("status {failed}")).out.contains("enough"),
        "what people did is in its timeline"
    );

    let nothing = JobId::new(&requester("acme"));
    for command in ["status", "cancel", "retry"] {
        let said = cli.say(&format!("{command} {nothing}"));
        assert_eq!(said.code, 3, "{command}: {}", said.err);
    }
}

/// What a job that was given up needs next depends on why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_a_dead_letter_says_what_to_do_about_it() {
    let db = TestDb::fresh().await;
    let (cli, store, pod) = (Cli::new(&db), db.store(), worker("pod"));
    for (code, next) in [
        ("egress_blocked", "`euterpe dead redrive JOB` makes a new one of it"),
        ("credential_refresh_exhausted", "new `credentials` with POST /transcode/retry"),
    ] {
        let job = db.running(&pod, JobStatus::Fetching).await;
        let met = JobFailure { code: code.into(), ..JobFailure::default() };
        store.fail_jobs(&pod, &[(job.claim, met)]).await.unwrap();
        let job_id = job.claim.job_id.to_string();
        let said = cli.say(&format!("status {job_id}")).out;
        assert!(said.contains(&next.replace("JOB", &job_id)) && !said.contains("_v1"), "{said}");
    }
    // Its credentials are sealed to it: no operator can make a new job of it.
    let job_id = sealed_job(&db, &ring(&[("one", 1)])).await;
    store.cancel_job(job_id, None, None).await.unwrap();
    let said = cli.say(&format!("dead redrive {job_id}"));
    assert_eq!((said.code, said.out.contains("POST /transcode/retry")), (4, true), "{}", said.out);
}

/// Which keys there are: whose, for what, used or not, and what has become of them; never more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_listed_without_what_is_secret() {
    let db = TestDb::fresh().await;
    let (cli, store) = (Cli::new(&db), db.store());
    assert_eq!(cli.say("key list").out, "no keys\n");
    assert_eq!(cli.say("requester add zenith").code, 0);
    let made: Vec<_> = ["acme", "acme --scope transcode:read --days 30", "zenith"]
        .iter()
        .map(|of| cli.json(&format!("key add {of}")))
        .collect();
    let id = |n: usize| made[n]["key_id"].as_str().unwrap();
    store.find_api_key(id(0)).await.unwrap();
    assert_eq!(cli.say(&format!("key revoke {}", id(2))).code, 0);

    let listed = cli.json("key list");
    let valid: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|key| (key["key_id"].as_str().unwrap(), key["is_valid"].as_bool().unwrap()))
        .collect();
    assert_eq!(valid, [(id(0), true), (id(1), true), (id(2), false)], "{listed}");
    let of_acme = cli.json("key list acme");
    let ids: Vec<_> = of_acme.as_array().unwrap().iter().map(|key| key["key_id"].as_str().unwrap()).collect();
    assert_eq!(ids, [id(0), id(1)], "oldest first, and nobody else's");
    assert_eq!(of_acme[1]["scopes"], json!(["transcode:read"]));
    assert!(of_acme[0]["last_used_at"].is_string() && of_acme[1]["last_used_at"].is_null(), "{of_acme}");

    let shown = cli.say("key list").out;
    let line = |n: usize| shown.lines().find(|line| line.contains(id(n))).unwrap();
    assert!(line(0).ends_with("  valid") && !line(0).contains("never"), "{shown}");
    assert!(
        line(1).contains("transcode:read  ") && line(1).contains("  never ") && line(1).contains("  ends "),
        "{shown}"
    );
    assert!(line(2).contains("zenith") && line(2).contains("  revoked "), "{shown}");
    for key in &made {
        let secret = key["key"].as_str().unwrap();
        assert!(
            !format!("{listed}{shown}").contains(secret) && !listed.to_string().contains("hash"),
            "{shown}"
        );
    }
}

/// Each way to fail has its exit code, says what to do next, and repeats no secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_has_its_exit_code_and_says_what_to_do_next() {
    let db = TestDb::fresh().await;
    let cli = || Cli::new(&db);
    let nowhere = "postgres://euterpe:hunter2@127.0.0.1:1/none";
    for (cli, words, code, says) in [
        (cli(), "requester add Acme", 2, "must be 1 to 64 of a-z 0-9 _ -"),
        (cli(), "requester add acme", 4, "acme is there already"),
        (cli(), "requester add other --weight 0", 2, "requesters_weight_bounded"),
        (cli(), "requester disable nobody", 3, "there is no requester nobody"),
        (cli(), "key add nobody", 3, "`euterpe requester add nobody` makes it"),
        (cli(), "key add acme --scope everything", 2, "possible values: transcode:write, transcode:read"),
        (cli(), "key revoke nokey", 3, "there is no key nokey"),
        (cli(), "key revoke eut_k3v9x0q2m7ta_hunter2", 2, "that is no key id"),
        (cli(), "status no-uuid", 2, "is not a job id, such as 01a1"),
        (cli(), "key list nobody", 3, "there is no requester nobody"),
        (cli(), "secret rotate nobody", 3, "there is no requester nobody"),
        (cli().without("EUTERPE_DATABASE_URL"), "requester list", 2, "EUTERPE_DATABASE_URL is not set"),
        (cli().with("EUTERPE_DATABASE_URL", nowhere), "requester list", 1, "check EUTERPE_DATABASE_URL"),
        (cli().without("EUTERPE_KEKS"), "requester add other", 2, "make a key with `euterpe kek new`"),
        (cli().with("EUTERPE_KEKS", "one:hunter2"), "kek list", 2, "base64 of 32 bytes"),
        (cli().without("EUTERPE_KEY_PEPPER"), "key add acme", 2, "`euterpe kek new --pepper-only` makes one"),
    ] {
        let said = cli.say(words);
        assert_eq!(said.code, code, "{words}: {}", said.err);
        assert!(said.err.contains(says), "{words}: {}", said.err);
        assert!(said.out.is_empty() && !said.err.contains("hunter2"), "{words}: {}", said.err);
    }
    assert_eq!(db.store().list_requesters().await.unwrap().len(), 1, "nothing was half done");
}

#[tokio::test]
async fn help_shows_exit_codes_and_examples() {
    let db = TestDb::fresh().await;
    let cli = Cli::new(&db);
    let said = cli.say("--help");
    assert_eq!(said.code, 0);
    assert!(said.out.contains("Exit codes:") && said.out.contains("4  refused"), "{}", said.out);
    for words in [
        "requester add",
        "key add",
        "key list",
        "key revoke",
        "secret rotate",
        "secret activate",
        "kek new",
        "status",
        "cancel",
    ] {
        let said = cli.say(&format!("{words} --help"));
        assert!(said.out.contains("Example: ") && said.out.contains("--json"), "{words}: {}", said.out);
    }
}
