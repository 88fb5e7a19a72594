//! `euterpe dev`: everything, until Ctrl-C.

use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::sleep;

use super::Cluster;
use super::house::{House, Plot, REQUESTER, free_ports};

/// Starts everything in `.euterpe/` and stays up. What is in the database stays for the next start.
pub async fn dev() -> anyhow::Result<()> {
    let dir = std::env::current_dir()?.join(".euterpe");
    let database = Cluster::place(&dir.join("pg"));
    let plot = Plot { dir, database, ports: free_ports([8080, 8090])? };
    let mut stop = pin!(super::interrupted());
    let mut house = tokio::select! {
        opened = House::open(plot, &|line| println!("{line}")) => opened?,
        () = &mut stop => return Ok(()),
    };
    let stayed = tokio::select! {
        ended = stay(&mut house) => ended,
        () = &mut stop => Ok(()),
    };
    println!("stopping");
    house.close().await;
    stayed
}

async fn stay(house: &mut House) -> anyhow::Result<()> {
    let (storage, url) = (house.storage(), house.user.url().to_owned());
    let dir = house.logs().parent().map(std::path::Path::to_owned).unwrap_or_default();
    println!(
        "\nRequester {REQUESTER}; its key is in {key}. Media may lie below {storage}; webhooks go to {webhooks}.\n\n  \
         export EUTERPE_API={url} EUTERPE_API_KEY=$(cat {key})\n  \
         euterpe submit {storage}/clip.mp4 --to {storage}/outputs --webhook-url {webhooks} --watch\n  \
         euterpe psql\n\nWebhooks are shown here as they arrive; Ctrl-C stops everything.\n",
        key = dir.join("api-key").display(),
        storage = storage.display(),
        webhooks = house.webhook_url,
    );
    let output = house.receiver_output();
    let print = async {
        if let Some(output) = output {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                println!("webhook {line}");
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = print => Ok(()),
        ended = watch(house) => ended,
    }
}

/// Until one of them ends by itself.
async fn watch(house: &mut House) -> anyhow::Result<()> {
    loop {
        house.check()?;
        sleep(Duration::from_millis(500)).await;
    }
}
