//! Contract §8 and §10 in the database: signing secrets while they are rotated, and KEKs while traffic runs.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use euterpe::crypto::{Binding, Keyring, Secret, open, rewrap, seal};
use euterpe::domain::{JobId, NewJob, Purpose};
use euterpe::store::{KekUsage, NewlyWrapped, Store, StoreError, StoredSigningSecret, WrappedKey};
use jiff::SignedDuration;
use serde_json::json;

use crate::crypto::ring;
use crate::support::api::{Api, PEPPER};
use crate::support::cli::Cli;
use crate::support::{QUEUE, TestDb, requester, worker};

const DAY: SignedDuration = SignedDuration::from_secs(86_400);

async fn add(store: &Store, keys: &Keyring, version: i32, text: &str) -> Result<(), StoreError> {
    let acme = requester("acme");
    let sealed = seal(keys, &Binding::signing(&acme, version), &text.into());
    store.add_signing_secret(&acme, version, &sealed, None).await
}

/// Version and text of each secret that signs, the active one first; `true`: it is active.
async fn signing(store: &Store, keys: &Keyring) -> Vec<(i32, bool, String)> {
    let stored = store.read_signing_secrets(&[requester("acme")]).await.unwrap();
    stored.iter().map(|secret| (secret.version, secret.is_active, text_of(keys, secret))).collect()
}

fn text_of(keys: &Keyring, secret: &StoredSigningSecret) -> String {
    let binding = Binding::signing(&secret.requester_id, secret.version);
    open(keys, &binding, secret.parts()).ok().unwrap().expose_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_signing_secret_is_rotated_with_an_overlap() {
    let db = TestDb::fresh().await;
    let (store, keys, acme) = (db.store(), ring(&[("one", 1)]), requester("acme"));
    assert!(store.read_signing_secrets(std::slice::from_ref(&acme)).await.unwrap().is_empty());
    assert_eq!(store.next_signing_version(&acme).await.unwrap(), 1);
    add(&store, &keys, 1, "first").await.unwrap();
    assert_eq!(signing(&store, &keys).await, [(1, true, "first".into())], "active at once");

    // The new one signs beside the old until it is activated.
    add(&store, &keys, 2, "second").await.unwrap();
    assert_eq!(signing(&store, &keys).await, [(1, true, "first".into()), (2, false, "second".into())]);
    let refused = add(&store, &keys, 3, "third").await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::IllegalState(says) if says.starts_with("version 2 waits")),
        "{refused}"
    );

    store.activate_signing_secret(&acme, 2, DAY, None).await.unwrap();
    assert_eq!(signing(&store, &keys).await, [(2, true, "second".into()), (1, false, "first".into())]);

    // Receivers were not ready: back, and there again.
    store.activate_signing_secret(&acme, 1, DAY, None).await.unwrap();
    assert_eq!(signing(&store, &keys).await[0].0, 1);
    store.activate_signing_secret(&acme, 2, DAY, None).await.unwrap();

    db.jump(Duration::from_secs(86_399)).await;
    assert_eq!(signing(&store, &keys).await.len(), 2, "the old one still signs");
    db.jump(Duration::from_secs(2)).await;
    assert_eq!(signing(&store, &keys).await, [(2, true, "second".into())], "its overlap is over");
    let refused = store.activate_signing_secret(&acme, 1, DAY, None).await.unwrap_err();
    assert!(matches!(refused, StoreError::IllegalState(_)), "{refused}");
}

#[tokio::test]
async fn a_leaked_signing_secret_is_retired_at_once_but_never_the_active_one() {
    let db = TestDb::fresh().await;
    let (store, keys, acme) = (db.store(), ring(&[("one", 1)]), requester("acme"));
    add(&store, &keys, 1, "first").await.unwrap();
    let refused = store.retire_signing_secret(&acme, 1, None).await.unwrap_err();
    assert!(matches!(refused, StoreError::IllegalState(_)), "{refused}");

    add(&store, &keys, 2, "leaked before it was used").await.unwrap();
    store.retire_signing_secret(&acme, 2, Some("it leaked")).await.unwrap();
    assert_eq!(signing(&store, &keys).await, [(1, true, "first".into())]);
    let refused = add(&store, &keys, 2, "a version twice").await.unwrap_err();
    assert!(matches!(refused, StoreError::CredentialVersionMoved(_)), "{refused}");
    assert_eq!(store.next_signing_version(&acme).await.unwrap(), 3);

    let nobody = requester("nobody");
    assert!(matches!(store.next_signing_version(&nobody).await, Err(StoreError::NotFound(_))));
    assert!(matches!(store.retire_signing_secret(&nobody, 1, None).await, Err(StoreError::NotFound(_))));
    let refused = store.activate_signing_secret(&nobody, 1, DAY, None).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))));
}

/// Each signature is in every webhook's header: their number has a limit.
#[tokio::test]
async fn at_most_four_signing_secrets_are_in_use() {
    let db = TestDb::fresh().await;
    let (store, keys, acme) = (db.store(), ring(&[("one", 1)]), requester("acme"));
    for version in 1..=4 {
        add(&store, &keys, version, "x").await.unwrap();
        store.activate_signing_secret(&acme, version, DAY, None).await.unwrap();
    }
    assert!(matches!(add(&store, &keys, 5, "x").await, Err(StoreError::IllegalState(_))));
    store.retire_signing_secret(&acme, 1, None).await.unwrap();
    add(&store, &keys, 5, "x").await.unwrap();
}

/// Two operators rotate at once: each sealed to a version of its own, or is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_rotations_at_once_one_is_told_to_seal_again() {
    let db = TestDb::fresh().await;
    let (store, keys) = (db.store(), ring(&[("one", 1)]));
    let (one, two) = tokio::join!(add(&store, &keys, 1, "one"), add(&store, &keys, 1, "two"));
    let lost = [one, two].into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert!(matches!(lost.as_slice(), [StoreError::CredentialVersionMoved(_)]), "{lost:?}");
    assert_eq!(signing(&store, &keys).await.len(), 1);
}

/// A job with both secrets, sealed with `keys`.
async fn sealed_job(store: &Store, keys: &Keyring) -> JobId {
    let acme = requester("acme");
    let id = JobId::new(&acme);
    let job = NewJob {
        request: json!({}),
        job_id: Some(id),
        sealed: [
            (
                "storage".to_owned(),
                seal(keys, &Binding::storage(id, &acme, 1), &format!("storage {id}").into()),
            ),
            (
                "callback".to_owned(),
                seal(keys, &Binding::callback(id, &acme), &format!("callback {id}").into()),
            ),
        ]
        .into(),
        ..NewJob::default()
    };
    store.enqueue_job(&acme, QUEUE, &job).await.unwrap().job_id
}

/// What opens this key.
pub fn binding(key: &WrappedKey) -> Binding<'_> {
    match (key.purpose, key.bound_to) {
        (Purpose::Storage, Some(job)) => Binding::storage(job, &key.requester_id, key.version),
        (Purpose::Callback, Some(job)) => Binding::callback(job, &key.requester_id),
        _ => Binding::signing(&key.requester_id, key.version),
    }
}

/// One batch of a rewrap: where it got to, and how many were done of those listed. `None`: that was all.
async fn batch(store: &Store, keys: &Keyring, after: Option<&str>) -> Option<(String, usize, usize)> {
    let listed = store.list_wrapped(Some("old"), after, 7).await.unwrap();
    let place = listed.last()?.place.clone();
    let new: Vec<_> = listed
        .iter()
        .filter_map(|step| Some((&step.place, step.key.as_ref()?)))
        .map(|(place, key)| {
            let rewrapped = rewrap(keys, &binding(key), &key.kek_id, &key.dek_wrapped).unwrap();
            NewlyWrapped {
                place: place.clone(),
                old_wrapped: key.dek_wrapped.clone(),
                new_wrapped: rewrapped.dek_wrapped,
                new_kek_id: rewrapped.kek_id,
            }
        })
        .collect();
    let done = if new.is_empty() { 0 } else { store.rewrap(&new, Some("a test")).await.unwrap() };
    Some((place, done, new.len()))
}

async fn rewrap_all(store: &Store, keys: &Keyring) -> usize {
    let (mut after, mut done) = (None, 0);
    while let Some((place, count, _)) = batch(store, keys, after.as_deref()).await {
        (after, done) = (Some(place), done + count);
    }
    done
}

async fn keks_in_use(store: &Store) -> Vec<(String, Purpose, i64)> {
    let usage = store.kek_usage().await.unwrap();
    usage
        .into_iter()
        .map(|KekUsage { kek_id, purpose, secret_count }| (kek_id, purpose, secret_count))
        .collect()
}

/// The next job is claimed and both its secrets are opened, as a worker would.
async fn work_one(db: &TestDb, keys: &Keyring) -> Option<JobId> {
    let (store, pod, acme) = (db.store(), worker("pod"), requester("acme"));
    let job = store.claim_jobs(QUEUE, &pod, 1, None).await.unwrap().pop()?;
    let id = job.claim.job_id;
    let secrets = store.read_job_secrets(&pod, &[job.claim]).await.unwrap();
    assert_eq!(secrets.len(), 2);
    for (purpose, stored) in secrets.iter().filter_map(|secret| secret.secret.as_ref()) {
        let binding = match Purpose::parse(purpose).unwrap() {
            Purpose::Storage => Binding::storage(id, &acme, stored.credential_version),
            _ => Binding::callback(id, &acme),
        };
        let opened = open(keys, &binding, stored.parts()).ok().unwrap();
        assert_eq!(opened.expose_str().unwrap(), format!("{purpose} {id}"));
    }
    db.succeed(&pod, job.claim).await;
    Some(id)
}

/// Jobs come and go, credentials are refreshed, and meanwhile every key gets another wrapping. Everything opens
/// before, during and after; in the end the old KEK is named nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kek_is_rotated_while_traffic_runs() {
    let db = TestDb::fresh().await;
    let (store, acme) = (db.store(), requester("acme"));
    let (old, both) = (ring(&[("old", 1)]), ring(&[("new", 2), ("old", 1)]));
    add(&store, &old, 1, "a signing secret").await.unwrap();
    let mut refreshed = Vec::new();
    for _ in 0..40 {
        refreshed.push(sealed_job(&store, &old).await);
    }
    work_one(&db, &old).await.unwrap();

    // Pods have both keys and seal with the new one; the rewrap goes on beside them, seven at a time.
    let traffic = async {
        for n in 0..15 {
            sealed_job(&store, &both).await;
            work_one(&db, &both).await.unwrap();
            let id = refreshed[39 - n];
            let text: Secret = format!("storage {id}").into();
            let sealed = seal(&both, &Binding::storage(id, &acme, 2), &text);
            store.replace_credentials(id, &acme, 1, &sealed).await.unwrap();
        }
    };
    let ((), done) = tokio::join!(traffic, rewrap_all(&store, &both));
    assert!(done > 20, "{done} of 80 or so");

    // What was held or replaced in mid-flight is met by the next walk.
    rewrap_all(&store, &both).await;
    assert!(
        keks_in_use(&store).await.iter().all(|(kek_id, ..)| kek_id == "new"),
        "the old one is named nowhere"
    );
    let new = ring(&[("new", 2)]);
    assert_eq!(signing(&store, &new).await, [(1, true, "a signing secret".into())]);
    while work_one(&db, &new).await.is_some() {}
}

/// docs/security.md, step by step, with the programs. After each roll-out the service starts, and takes what is sealed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kek_is_rotated_by_the_steps_of_the_page() {
    let (db, dir) = (TestDb::fresh().await, tempfile::tempdir().unwrap());
    let file = dir.path().join("keys");
    let path = file.to_str().unwrap();
    let write = |lines: &[&str]| {
        std::fs::write(&file, lines.join("\n") + "\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let unnamed = || Cli::new(&db).without("EUTERPE_KEKS").with("EUTERPE_KEK_FILE", path);
    let cli = |active: &str| unnamed().with("EUTERPE_ACTIVE_KEK", active);
    let roll_out = async |active: &str| {
        let api = Api::start_with(&db, &[("EUTERPE_KEK_FILE", path), ("EUTERPE_ACTIVE_KEK", active)]).await;
        api.enqueue().await;
    };
    let state = |active: &str, id: &str| {
        let listed = cli(active).say("kek list").out;
        listed.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{listed}")).to_owned()
    };
    let line = |id: &str| Cli::new(&db).say(&format!("kek new --id {id}")).out.trim().to_owned();
    let (old, new, pepper) = (line("old"), line("new"), format!("pepper 1 {PEPPER}"));

    write(&[&old, &pepper]);
    assert_eq!(cli("old").say("secret rotate acme").code, 0);
    roll_out("old").await; // 1: named, before there are two

    write(&[&old, &new, &pepper]);
    let refused = unnamed().say("kek list");
    assert!(refused.err.contains("EUTERPE_ACTIVE_KEK: is not set"), "why there is a first step");
    roll_out("old").await; // 2
    assert!(state("old", "new").contains("unless it is to become active"));

    roll_out("new").await; // 3
    assert!(
        state("new", "old").contains("old: euterpe kek rewrap") && state("new", "new").contains("in use")
    );

    assert_eq!(cli("new").say("kek rewrap").code, 0); // 4
    assert!(state("new", "old").contains("may be taken away"));

    write(&[&new, &pepper]); // 5
    roll_out("new").await;
    assert_eq!(cli("new").json("kek list").as_array().unwrap().len(), 1, "the old one is named nowhere");
    assert_eq!(cli("new").say("secret show acme").code, 0);
}

/// The process dies between two batches, and between listing and writing. Whoever comes next begins anew.
#[tokio::test]
async fn a_rewrap_that_was_cut_off_is_taken_up() {
    let db = TestDb::fresh().await;
    let store = db.store();
    let (old, both) = (ring(&[("old", 1)]), ring(&[("new", 2), ("old", 1)]));
    for _ in 0..10 {
        sealed_job(&store, &old).await;
    }
    let (place, done, _) = batch(&store, &both, None).await.unwrap();
    assert_eq!(done, 7);
    store.list_wrapped(Some("old"), Some(&place), 7).await.unwrap(); // …and nothing written

    assert_eq!(rewrap_all(&store, &both).await, 13, "what is done is not done again");
    let usage = keks_in_use(&store).await;
    assert_eq!(usage, [("new".into(), Purpose::Callback, 10), ("new".into(), Purpose::Storage, 10)]);
    let log: i64 =
        db.one("select count(*) from euterpe.operator_log where act = 'rewrap' and why = 'a test'").await;
    assert_eq!(log, 3, "each batch is written down");
}

/// Between listing and writing the requester replaced the credentials: their new key must stay.
#[tokio::test]
async fn a_secret_that_changed_or_is_held_meanwhile_is_left_alone() {
    let db = TestDb::fresh().await;
    let (store, acme) = (db.store(), requester("acme"));
    let (old, both) = (ring(&[("old", 1)]), ring(&[("new", 2), ("old", 1)]));
    let id = sealed_job(&store, &old).await;
    let listed = store.list_wrapped(Some("old"), None, 10).await.unwrap();
    let stale: Vec<_> = listed
        .iter()
        .map(|step| {
            let key = step.key.clone().unwrap();
            let new = rewrap(&both, &binding(&key), &key.kek_id, &key.dek_wrapped).unwrap();
            NewlyWrapped {
                place: step.place.clone(),
                old_wrapped: key.dek_wrapped,
                new_wrapped: new.dek_wrapped,
                new_kek_id: new.kek_id,
            }
        })
        .collect();
    let text: Secret = format!("storage {id}").into();
    let sealed = seal(&old, &Binding::storage(id, &acme, 2), &text);
    store.replace_credentials(id, &acme, 1, &sealed).await.unwrap();

    let holder = db.client().await;
    holder
        .batch_execute("begin; select from euterpe.job_secrets where purpose = 'callback' for update")
        .await
        .unwrap();
    assert_eq!(store.rewrap(&stale, None).await.unwrap(), 0, "one has changed, one is held");
    holder.batch_execute("commit").await.unwrap();
    assert_eq!(store.rewrap(&stale, None).await.unwrap(), 1, "one has changed");
    assert_eq!(work_one(&db, &both).await, Some(id));
}

/// A redriven job keeps the callback of the job it came from, and that job is what its key is bound to.
#[tokio::test]
async fn a_redriven_jobs_callback_is_rewrapped_for_the_job_it_is_bound_to() {
    let db = TestDb::fresh().await;
    let (store, acme, pod) = (db.store(), requester("acme"), worker("pod"));
    let (old, both, new) = (ring(&[("old", 1)]), ring(&[("new", 2), ("old", 1)]), ring(&[("new", 2)]));
    let first = sealed_job(&store, &old).await;
    store.cancel_job(first, None, None).await.unwrap();
    let second = JobId::new(&acme);
    let credentials = seal(&old, &Binding::storage(second, &acme, 1), &"x".into());
    store.redrive_job(first, None, Some((second, &credentials)), None).await.unwrap();
    rewrap_all(&store, &both).await;
    assert!(keks_in_use(&store).await.iter().all(|(kek_id, ..)| kek_id == "new"));

    let job = db.claim(&pod).await;
    assert_eq!(job.claim.job_id, second);
    let secrets = store.read_job_secrets(&pod, &[job.claim]).await.unwrap();
    let callback =
        secrets.iter().filter_map(|s| s.secret.as_ref()).find(|(purpose, _)| purpose == "callback");
    let (_, stored) = callback.unwrap();
    assert_eq!(JobId(stored.bound_to), first);
    let opened = open(&new, &Binding::callback(first, &acme), stored.parts()).ok().unwrap();
    assert_eq!(opened.expose_str().unwrap(), format!("callback {first}"));
    assert!(open(&new, &Binding::callback(second, &acme), stored.parts()).is_err());
}

/// However few there are to find, a call looks at a bounded number of rows and says where to go on.
#[tokio::test]
async fn a_walk_that_finds_nothing_goes_on_and_ends() {
    let db = TestDb::fresh().await;
    let store = db.store();
    sealed_job(&store, &ring(&[("old", 1)])).await;
    db.run(
        "insert into euterpe.job_secrets
         select overlay(s.job_id::text placing lpad(to_hex(n), 12, '0') from 25)::uuid, s.purpose,
                s.storage_creds_encrypted, s.storage_creds_dek_wrapped, s.storage_creds_kek_id,
                s.storage_creds_encryption_version, s.credential_version, s.sealed_at, s.bound_to
           from euterpe.job_secrets s, generate_series(1, 6000) n",
    )
    .await;
    let (mut after, mut calls) = (None, 0);
    loop {
        let listed = store.list_wrapped(Some("nobodys"), after.as_deref(), 500).await.unwrap();
        let [step] = listed.as_slice() else { break };
        assert!(step.key.is_none());
        (after, calls) = (Some(step.place.clone()), calls + 1);
    }
    assert_eq!(calls, 2, "12,002 secrets, 10,000 a call");
    // Retention drops a week table by table: for a moment there are secrets without a job.
    let listed = store.list_wrapped(Some("old"), None, 1000).await.unwrap();
    assert!(listed.len() == 1000 && listed.iter().any(|step| step.key.is_none()));
    db.run("delete from euterpe.job_secrets s where not exists (select from euterpe.inbox_jobs j where j.job_id = s.job_id)")
        .await;
    for bad in ["", "job/x", "elsewhere/a/1", "job/x/y"] {
        let refused = store.list_wrapped(None, Some(bad), 10).await.err().unwrap();
        assert!(matches!(refused, StoreError::BadArgument(_)), "{bad}: {refused}");
    }
}
