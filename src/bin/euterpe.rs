//! `euterpe`: the command line for people.

use std::io::Write;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::{Shell, generate};
use euterpe::cli;
use euterpe::dev::{self, Cluster, Durability};
use euterpe::store::migrate;
use tokio::signal::unix::{SignalKind, signal};

/// A Postgres-native queue service for transcoding.
#[derive(Parser)]
#[command(name = "euterpe", version, after_help = cli::EXIT_CODES)]
struct Arguments {
    /// Answer with JSON, also when it fails; for the commands that ask a database or a service.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// A clip is made and posted: progress, signed webhooks, timeline and outputs, on a private Postgres.
    ///
    /// Example: euterpe demo
    Demo,
    /// A private Postgres, the API, both workers and a receiver, until Ctrl-C. Kept in .euterpe/.
    ///
    /// Example: euterpe dev, then in another terminal: . .euterpe/env
    Dev,
    /// psql on a private database with everything loaded and the short cuts of docs/psqlrc; it is kept in .euterpe/ and
    /// stops when you leave.
    ///
    /// Example: euterpe psql -- -c 'select * from health'
    Psql {
        /// Handed to psql, e.g. `-- -c '\df+ euterpe.*'`.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    #[command(flatten)]
    Cli(cli::Command),
    /// Print what makes a shell complete these commands.
    ///
    /// Example: euterpe completions bash > ~/.local/share/bash-completion/completions/euterpe
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("euterpe: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        What::Demo => dev::demo().await.map(|()| ExitCode::SUCCESS),
        What::Dev => dev::dev().await.map(|()| ExitCode::SUCCESS),
        What::Psql { arguments } => psql(&arguments).await,
        What::Completions { shell } => {
            let mut script = Vec::new();
            generate(shell, &mut Arguments::command(), "euterpe", &mut script);
            std::io::stdout().write_all(&script).context("cannot write it")?;
            Ok(ExitCode::SUCCESS)
        }
        What::Cli(command) => Ok(cli::run(command, arguments.json, |name| std::env::var(name).ok()).await),
    }
}

async fn psql(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let here = std::env::current_dir().context("cannot tell the current directory")?;
    let dir = Cluster::place(&here.join(".euterpe/pg")).context("cannot make .euterpe")?;
    // While `euterpe dev` runs here, its Postgres is the one to look at.
    let cluster = match Cluster::running(&dir) {
        Some(url) => Err(url),
        None => Ok(Cluster::start(&dir, Durability::Durable, &[])?),
    };
    let url = match &cluster {
        Ok(cluster) => {
            let url = cluster.url("postgres");
            migrate::migrate(&url.parse()?).await?;
            dev::make_logins(&url).await?;
            url
        }
        Err(url) => url.clone(),
    };
    let url = url.replace("user=postgres", &format!("user={}", dev::OPERATOR));

    let short_cuts = dir.join("psqlrc");
    std::fs::write(&short_cuts, include_str!("../../docs/psqlrc")).context("cannot write psqlrc")?;
    // At the prompt Ctrl-C takes a line back: the terminal tells us, too, and we and our Postgres must not end with it. psql
    // itself begins with the usual manners, since handlers do not outlive an exec.
    let _interrupts = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let left = Command::new("psql")
        .arg(&url)
        .args(arguments)
        .env("PSQLRC", &short_cuts)
        .status()
        .context("cannot run psql; `make setup` installs it")?;
    Ok(if left.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
