//! docs/faces/transcode.md: a newcomer who copies the commands of the page has a job.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tokio::process::Command;

use crate::support::api::{Api, KEK, PEPPER};
use crate::support::{TestDb, until, url_of, worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_run_as_they_are_written() {
    let page = fs::read_to_string("docs/faces/transcode.md").unwrap();
    let blocks: Vec<_> =
        page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 4, "{} blocks", blocks.len());
    let db = TestDb::fresh().await;
    let api = Api::start(&db).await;
    let programs = Path::new(env!("CARGO_BIN_EXE_euterpe")).parent().unwrap().display();
    let mut shell = Command::new("bash");
    // An answer has no end of line of its own.
    shell
        .args(["-euo", "pipefail", "-c", &blocks.join("\necho\n")])
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
        .env("EUTERPE_DATABASE_URL", url_of(&db.config()))
        .env("EUTERPE_KEKS", KEK)
        .env("EUTERPE_KEY_PEPPER", PEPPER)
        .env("EUTERPE_API", &api.url)
        .kill_on_drop(true);
    let mut run = tokio::spawn(async move { shell.output().await.unwrap() });

    // Somebody waits for the job to move: then it does.
    let waits = "select exists (select from pg_stat_activity where datname = current_database()
                                  and usename = 'euterpe_api' and query like '%last_sequences_v1%')";
    let looker = db.client().await;
    tokio::select! {
        () = until(&looker, waits) => {}
        ended = &mut run => panic!("it ended before it waited: {:?}", ended.unwrap()),
    }
    let pod = worker("pod");
    db.claim_soon(&pod).await;
    let run = run.await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    let answers: Vec<Value> = out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let statuses: Vec<_> =
        answers.iter().map(|answer| answer["status"].as_str().unwrap_or_default()).collect();
    assert_eq!(statuses, ["queued", "claimed", "failed"], "{out}\n{err}");
    assert_eq!(answers[2]["error"]["code"], "cancelled");
    assert!(out.contains("whsec_"), "{out}");
}
