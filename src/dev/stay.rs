//! `euterpe dev`: everything, until Ctrl-C.

use std::pin::pin;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::sleep;

use super::house::{House, Plot, REQUESTER, free_ports};
use super::{Cluster, tell};

/// Starts everything in `.euterpe/` and stays up. What is in the database stays for the next start.
pub async fn dev() -> anyhow::Result<()> {
    let dir = std::env::current_dir()?.join(".euterpe");
    let database = Cluster::place(&dir.join("pg"))?;
    if Cluster::running(&database).is_some() {
        anyhow::bail!(
            "`euterpe dev` runs here already, or `make psql` does: its Postgres is in {}",
            database.display()
        );
    }
    let plot = Plot { dir, database, ports: free_ports([8080, 8090])? };
    let mut stop = pin!(super::interrupted()?);
    let mut house = tokio::select! {
        opened = House::open(plot) => opened?,
        () = &mut stop => return Ok(()),
    };
    let stayed = tokio::select! {
        ended = stay(&mut house) => ended,
        () = &mut stop => Ok(()),
    };
    // Listened for before it is said: whoever reads it may press Ctrl-C at once.
    let again = super::interrupted()?;
    let told = tell("stopping");
    house.close(again).await;
    stayed?;
    Ok(told?)
}

async fn stay(house: &mut House) -> anyhow::Result<()> {
    let (storage, url) = (house.storage(), house.api.url().to_owned());
    let env = house.write_env()?;
    tell(format_args!(
        "\nRequester {REQUESTER} may use {url}; its media may lie below {}.\n\n  \
         . {}     # in another terminal: EUTERPE_API, EUTERPE_API_KEY, MEDIA, WEBHOOK_URL; README.md goes on\n  \
         make psql\n\nWebhooks are shown here as they arrive; Ctrl-C stops everything.\n",
        storage.display(),
        env.display(),
    ))?;
    let output = house.receiver_output();
    let print = async {
        if let Some(output) = output {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                tell(shown(&line))?;
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        ended = print => ended,
        ended = watch(house) => ended,
    }
}

/// What the receiver says, in short.
pub(super) fn shown(line: &str) -> String {
    let said: Value = serde_json::from_str(line).unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let event = &said["event"];
    let (what, job) = (word(&event["type"]), word(&event["data"]["job_id"]));
    format!("webhook {} {what:<22} {} {job}", event["sequence"], word(&said["verdict"])).trim_end().to_owned()
}

/// Until one of them ends by itself.
async fn watch(house: &mut House) -> anyhow::Result<()> {
    loop {
        house.check()?;
        sleep(Duration::from_millis(500)).await;
    }
}
