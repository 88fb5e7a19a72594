//! Design §3: services may execute what they need and read no table; readers see views that show no secret.

use std::collections::BTreeSet;

use crate::support::TestDb;

const ROLES: [&str; 5] =
    ["euterpe_api", "euterpe_transcode", "euterpe_webhook", "euterpe_operator", "euterpe_readonly"];

/// Who may execute what: the written list. Whoever is not named here may execute nothing.
const MAY_EXECUTE: &[(&str, &[&str])] = &[
    // Used in views, which run functions with the reader's rights.
    ("_ago", &["euterpe_operator", "euterpe_readonly"]),
    ("_now", &["euterpe_operator", "euterpe_readonly"]),
    ("activate_signing_secret_v1", &["euterpe_operator"]),
    ("add_api_key_v1", &["euterpe_operator"]),
    ("add_requester_v1", &["euterpe_operator"]),
    ("add_signing_secret_v1", &["euterpe_operator"]),
    ("advance_jobs_v1", &["euterpe_transcode"]),
    ("after_restore_v1", &["euterpe_operator"]),
    ("begin_refreshes_v1", &["euterpe_transcode"]),
    ("cancel_job_v1", &["euterpe_api", "euterpe_operator"]),
    ("claim_events_v1", &["euterpe_webhook"]),
    ("claim_jobs_v1", &["euterpe_transcode"]),
    ("complete_jobs_v1", &["euterpe_transcode"]),
    ("create_queue_v1", &["euterpe_operator"]),
    ("disable_requester_v1", &["euterpe_operator"]),
    ("enable_requester_v1", &["euterpe_operator"]),
    ("enqueue_job_v1", &["euterpe_api", "euterpe_operator"]),
    ("enqueue_jobs_v1", &["euterpe_api", "euterpe_operator"]),
    ("explain_job_v1", &["euterpe_operator", "euterpe_readonly"]),
    ("fail_jobs_v1", &["euterpe_transcode"]),
    ("find_api_key_v1", &["euterpe_api"]),
    ("health_v1", &["euterpe_operator", "euterpe_readonly"]),
    ("heartbeat_events_v1", &["euterpe_webhook"]),
    ("heartbeat_jobs_v1", &["euterpe_transcode"]),
    ("kek_usage_v1", &["euterpe_operator"]),
    ("list_api_keys_v1", &["euterpe_operator"]),
    ("list_requesters_v1", &["euterpe_operator"]),
    ("list_wrapped_v1", &["euterpe_operator"]),
    ("next_signing_version_v1", &["euterpe_operator"]),
    ("orphan_check_v1", &["euterpe_operator", "euterpe_readonly"]),
    ("pause_queue_v1", &["euterpe_operator"]),
    ("prioritise_job_v1", &["euterpe_operator"]),
    ("prunable_weeks_v1", &["euterpe_operator", "euterpe_readonly"]),
    ("read_event_secrets_v1", &["euterpe_webhook"]),
    ("read_job_secrets_v1", &["euterpe_transcode"]),
    ("read_signing_secrets_v1", &["euterpe_webhook", "euterpe_transcode", "euterpe_operator"]),
    ("redeliver_events_v1", &["euterpe_api", "euterpe_operator"]),
    ("redrive_job_v1", &["euterpe_api", "euterpe_operator"]),
    ("release_events_v1", &["euterpe_webhook"]),
    ("release_jobs_v1", &["euterpe_transcode"]),
    ("replace_credentials_v1", &["euterpe_api"]),
    ("resume_queue_v1", &["euterpe_operator"]),
    ("retire_signing_secret_v1", &["euterpe_operator"]),
    ("retry_job_v1", &["euterpe_api", "euterpe_operator"]),
    ("revoke_api_key_v1", &["euterpe_operator"]),
    ("rewrap_v1", &["euterpe_operator"]),
    ("settle_events_v1", &["euterpe_webhook"]),
    ("steer_jobs_v1", &["euterpe_operator"]),
    ("store_refreshed_v1", &["euterpe_transcode"]),
    ("queue_depths_v1", &["euterpe_api", "euterpe_transcode", "euterpe_webhook"]),
    ("tick_v1", &["euterpe_api", "euterpe_transcode", "euterpe_webhook", "euterpe_operator"]),
    ("upkeep_v1", &["euterpe_api", "euterpe_transcode", "euterpe_webhook", "euterpe_operator"]),
    ("worker_seen_v1", &["euterpe_api", "euterpe_transcode", "euterpe_webhook"]),
    ("worker_stopped_v1", &["euterpe_api", "euterpe_transcode", "euterpe_webhook"]),
    ("read_job_v1", &["euterpe_api"]),
    ("list_jobs_v1", &["euterpe_api"]),
    ("read_events_v1", &["euterpe_api"]),
    ("last_sequences_v1", &["euterpe_api"]),
    ("count_open_jobs_v1", &["euterpe_api"]),
    ("find_idempotency_key_v1", &["euterpe_api"]),
];

/// Who may read what.
const MAY_SELECT: &[(&str, &[&str])] = &[
    ("dead_letters", &["euterpe_operator", "euterpe_readonly"]),
    ("delivery_classes", &["euterpe_operator", "euterpe_readonly"]),
    ("error_codes", &["euterpe_operator", "euterpe_readonly"]),
    ("help", &["euterpe_operator", "euterpe_readonly"]),
    ("health", &["euterpe_operator", "euterpe_readonly"]),
    ("job_timeline", &["euterpe_operator", "euterpe_readonly"]),
    ("job_transitions", &["euterpe_operator", "euterpe_readonly"]),
    ("live_workers", &["euterpe_operator", "euterpe_readonly"]),
    ("operator_log", &["euterpe_operator", "euterpe_readonly"]),
    ("outbox_backlog", &["euterpe_operator", "euterpe_readonly"]),
    ("queue_overview", &["euterpe_operator", "euterpe_readonly"]),
    ("running_jobs", &["euterpe_operator", "euterpe_readonly"]),
    ("stuck_jobs", &["euterpe_operator", "euterpe_readonly"]),
    ("tenants", &["euterpe_operator", "euterpe_readonly"]),
];

type Grants = BTreeSet<(String, String, String)>;

fn written(list: &[(&str, &[&str])], verb: &str) -> Grants {
    list.iter()
        .flat_map(|(what, roles)| {
            roles.iter().map(move |role| (role.to_string(), verb.to_owned(), what.to_string()))
        })
        .collect()
}

async fn granted(db: &TestDb, sql: &str) -> Grants {
    let client = db.client().await;
    let rows = client.query(sql, &[&ROLES.map(str::to_owned).to_vec()]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test]
async fn every_role_may_execute_exactly_what_is_written_here() {
    let db = TestDb::fresh().await;
    let sql = "select r::text, 'execute', p.proname::text
                 from unnest($1::text[]) r, pg_proc p
                where p.pronamespace = 'euterpe'::regnamespace and has_function_privilege(r, p.oid, 'execute')";
    assert_eq!(granted(&db, sql).await, written(MAY_EXECUTE, "execute"));
}

#[tokio::test]
async fn every_role_may_do_with_tables_exactly_what_is_written_here() {
    let db = TestDb::fresh().await;
    let sql = "select r::text, v::text, c.relname::text
                 from unnest($1::text[]) r, pg_class c,
                      unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) v
                where c.relnamespace = 'euterpe'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
                  and has_table_privilege(r, c.oid, v)";
    assert_eq!(granted(&db, sql).await, written(MAY_SELECT, "select"));

    let columns = "select r::text, v::text, c.relname::text
                 from unnest($1::text[]) r, pg_class c, unnest(array['select', 'insert', 'update', 'references']) v
                where c.relnamespace = 'euterpe'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
                  and has_any_column_privilege(r, c.oid, v)";
    assert_eq!(granted(&db, columns).await, written(MAY_SELECT, "select"));
}

#[tokio::test]
async fn nobody_but_the_owner_touches_cursors_schemas_or_the_owners_role() {
    let db = TestDb::fresh().await;
    let sequences = "select r::text, v::text, c.relname::text
                 from unnest($1::text[]) r, pg_class c, unnest(array['usage', 'select', 'update']) v
                where c.relkind = 'S' and c.relnamespace in ('euterpe'::regnamespace, 'euterpe_line'::regnamespace)
                  and has_sequence_privilege(r, c.oid, v)";
    assert_eq!(granted(&db, sequences).await, Grants::new());

    let schemas = "select r::text, v::text, s::text
                 from unnest($1::text[]) r, unnest(array['usage', 'create']) v,
                      unnest(array['euterpe', 'euterpe_line']) s
                where has_schema_privilege(r, s, v)";
    assert_eq!(granted(&db, schemas).await, written(&[("euterpe", &ROLES)], "usage"));

    let owner = "select r::text, 'member', 'euterpe_owner' from unnest($1::text[]) r
                  where pg_has_role(r, 'euterpe_owner', 'member')";
    assert_eq!(granted(&db, owner).await, Grants::new());
}

/// The catalog is one thing; being refused is another.
#[tokio::test]
async fn a_service_that_tries_is_refused() {
    let db = TestDb::fresh().await;
    db.enqueue().await;
    for (login, statement) in [
        ("euterpe_api", "select * from euterpe.inbox_jobs"),
        ("euterpe_api", "select * from euterpe.claim_jobs_v1('transcode', 'x', 1)"),
        ("euterpe_transcode", "update euterpe.inbox_jobs set status = 'succeeded'"),
        ("euterpe_transcode", "select * from euterpe.enqueue_job_v1('acme', '{}')"),
        ("euterpe_transcode", "select euterpe._now()"),
        ("euterpe_webhook", "select * from euterpe.job_secrets"),
        ("euterpe_operator", "delete from euterpe.operator_log"),
        ("euterpe_readonly", "select euterpe.pause_queue_v1('transcode')"),
        ("euterpe_readonly", "select * from euterpe.job_requests"),
        ("euterpe_readonly", "create table euterpe.mine (x int)"),
    ] {
        let mut config = db.config();
        config.user(login);
        let client = crate::support::connect(&config).await;
        let refused = client.batch_execute(statement).await.expect_err(statement);
        assert_eq!(
            refused.code(),
            Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE),
            "{login}: {statement}"
        );
    }
}

/// A service's login cannot wait or idle for ever.
/// Null means any requester, for an operator. The HTTP tier that forgot to name its caller is not one.
#[tokio::test]
async fn only_operators_speak_for_any_requester() {
    let db = TestDb::fresh().await;
    let id = db.enqueue().await;
    for (role, may) in [("euterpe_api", false), ("euterpe_operator", true)] {
        let store = db.store_as(role, 1);
        assert_eq!(store.cancel_job(id, None, None).await.is_ok(), may, "{role}");
    }
}

#[tokio::test]
async fn timeouts_are_set_on_the_roles() {
    let db = TestDb::fresh().await;
    for role in ROLES {
        let mut config = db.config();
        config.user(role);
        let client = crate::support::connect(&config).await;
        for setting in ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"] {
            let value: String = client.query_one(&format!("show {setting}"), &[]).await.unwrap().get(0);
            assert_ne!(value, "0", "{role}: {setting}");
        }
    }
}

/// A caller's own temp table must not stand in for one of ours.
#[tokio::test]
async fn a_temp_table_of_the_callers_is_not_taken_for_ours() {
    let db = TestDb::fresh().await;
    let mut config = db.config();
    config.user("euterpe_api");
    let client = crate::support::connect(&config).await;
    client
        .batch_execute(
            "create temp table requesters (requester_id text); insert into requesters values ('forged')",
        )
        .await
        .unwrap();
    let refused =
        client.query("select * from euterpe.enqueue_job_v1('forged', '{}')", &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "UT005");
}

/// What is granted works: a view runs with its owner's rights, the functions in it with the reader's.
#[tokio::test]
async fn readers_and_operators_can_read_what_they_are_granted() {
    let db = TestDb::fresh().await;
    for login in ["euterpe_readonly", "euterpe_operator"] {
        let mut config = db.config();
        config.user(login);
        let client = crate::support::connect(&config).await;
        for (view, _) in MAY_SELECT {
            client
                .query(&format!("select * from euterpe.{view}"), &[])
                .await
                .unwrap_or_else(|e| panic!("{login}: {view}: {e:?}"));
        }
        client.query("select * from euterpe.orphan_check_v1()", &[]).await.unwrap();
        client.query("select * from euterpe.prunable_weeks_v1(90)", &[]).await.unwrap();
    }
}
