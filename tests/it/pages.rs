//! The blocks of our pages that no other test runs: each is read from its page and held against what it speaks of.

use std::fs;
use std::process::Command;

use crate::support::plant::{Plant, tiny_clip};
use crate::support::receiver::Receiver;
use crate::support::webhooks::{deliver_as_usual, hooked};
use crate::support::{TestDb, bare_database, connect};

/// What stands between `begins` (the fence and what follows it) and the next fence.
fn block(page: &str, begins: &str) -> String {
    let text = fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once(begins).unwrap_or_else(|| panic!("{page}: no block {begins:?}"));
    let body = begins.split_once('\n').map_or("", |(_, body)| body);
    format!("{body}{}", rest.split("```").next().unwrap())
}

/// docs/deployment.md: the logins can be made as they are written, each in its group.
#[tokio::test]
async fn the_logins_of_the_page_can_be_made() {
    let database = bare_database().await;
    let sql = block("docs/deployment.md", "```sql\ncreate role api_1").replace('…', "a password");
    let client = connect(&database.config()).await;
    // Roles belong to the whole server: what the page makes is taken back.
    client.batch_execute(&format!("begin; create role migrator login; {sql}")).await.unwrap();
    let members = "select string_agg(m.rolname || ' ' || g.rolname, ', ' order by m.rolname)
                     from pg_auth_members a join pg_roles m on m.oid = a.member join pg_roles g on g.oid = a.roleid
                    where m.rolname in ('api_1', 'transcode_1', 'webhook_1', 'ada', 'migrator')";
    let members: String = client.query_one(members, &[]).await.unwrap().get(0);
    client.batch_execute("rollback").await.unwrap();
    assert_eq!(
        members,
        "ada euterpe_operator, api_1 euterpe_api, migrator euterpe_owner, transcode_1 euterpe_transcode, \
         webhook_1 euterpe_webhook"
    );
}

/// docs/rolling-upgrades.md: what to look at before something is dropped can be looked at.
#[tokio::test]
async fn the_questions_before_a_drop_can_be_asked() {
    let db = TestDb::fresh().await;
    let looker = db.client().await;
    for begins in ["```sql\nselect application_name", "```sql\nselect funcname"] {
        looker.simple_query(&block("docs/rolling-upgrades.md", begins)).await.unwrap();
    }
}

/// docs/security.md: a key file looks like that; `euterpe kek new` writes its lines.
#[test]
fn a_key_file_looks_like_the_one_on_the_page() {
    let shape = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    let made = Command::new(env!("CARGO_BIN_EXE_euterpe")).args(["kek", "new", "--pepper"]).output().unwrap();
    let mut shown = shape(&block("docs/security.md", "```\n# kek ID"));
    shown.dedup();
    assert_eq!(shown, shape(&String::from_utf8(made.stdout).unwrap()));
    // And one of that form is read, with what stands behind a #.
    let key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let page = block("docs/security.md", "```\n# kek ID").replace('…', key);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), page).unwrap();
    let path = file.path().display().to_string();
    let env = |name: &str| match name {
        "EUTERPE_KEK_FILE" => Some(path.clone()),
        "EUTERPE_ACTIVE_KEK" => Some("2026-11-18-3f9a".into()),
        _ => None,
    };
    assert_eq!(euterpe::crypto::Keyring::from_env(env).unwrap().ids().count(), 2);
}

/// docs/webhooks.md: what arrives has exactly the headers that the page shows, besides those of any request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_is_what_the_page_shows() {
    let (db, receiver) = (TestDb::fresh().await, Receiver::kind().await);
    db.add_signing_secret("acme").await;
    db.ended(hooked("acme", &receiver.url())).await;
    let working = deliver_as_usual(&db);
    let got = receiver.until_got(1).await.remove(0);
    working.stop().await;
    let page = block("docs/webhooks.md", "```\nPOST /your/path\n");
    let head = page.split("\n\n").next().unwrap();
    let mut shown: Vec<_> =
        head.split_whitespace().filter_map(|word| word.strip_suffix(':')).map(str::to_owned).collect();
    let usual = ["host", "connection", "content-length", "user-agent"];
    let mut sent: Vec<_> = got
        .headers
        .iter()
        .map(|(name, _)| name.clone())
        .filter(|name| !usual.contains(&name.as_str()))
        .collect();
    shown.sort();
    sent.sort();
    assert_eq!(sent, shown);
    for field in ["type", "timestamp", "event_id", "sequence", "data"] {
        assert!(page.contains(&format!("\"{field}\"")) && !got.json()[field].is_null(), "{field}");
    }
}

/// docs/faces/transcode.md: the command for S3 on one's own machine is one that `euterpe` takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_for_local_s3_is_taken() {
    let (plant, s3) = (Plant::new().await, crate::support::s3s::S3::start().await);
    tiny_clip(&plant.files().join("clip.mp4"));
    s3.put("clip.mov", &fs::read(plant.files().join("clip.mp4")).unwrap());
    let bucket = crate::support::s3s::BUCKET;
    let command = block("docs/faces/transcode.md", "```text\nexport AWS_ACCESS_KEY_ID")
        .replacen('…', crate::support::s3s::ID, 1)
        .replacen('…', crate::support::s3s::SECRET, 1)
        .replace("http://127.0.0.1:8333", &s3.endpoint)
        .replace("s3://in/", &format!("s3://{bucket}/"))
        .replace("s3://out/", &format!("s3://{bucket}/out/"));
    let _pod = plant.pod("pod-1", &[]).await;
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_euterpe")).parent().unwrap().display();
    let run = tokio::process::Command::new("bash")
        .args(["-euo", "pipefail", "-c", &command])
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
        .env("EUTERPE_API", &plant.api.url)
        .env("EUTERPE_API_KEY", &plant.api.key)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    assert!(said.contains("succeeded"), "{said}");
}
