//! `euterpe-migrate`: brings a database up to this release. Only this program changes the schema.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use euterpe::config;
use euterpe::store::migrate::{migrate, status};
use euterpe::store::online::{self, OnlineIndex};
use euterpe::store::retain::{Week, retain};
use euterpe::store::surface;

/// Brings a database up to this release: roles, tables, functions. Safe to run twice, and twice at once.
///
/// The database is taken from EUTERPE_DATABASE_URL.
#[derive(Parser)]
#[command(name = "euterpe-migrate", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Migrate (the default).
    Up,
    /// Build indexes that need no pause: those of migrations/online/ that are missing or were cut off.
    Online,
    /// Drop whole weeks of history that ended long ago and hold nothing unfinished.
    Retain {
        /// Keep this many days.
        #[arg(long, env = "EUTERPE_RETENTION_DAYS", default_value_t = 90,
              value_parser = clap::value_parser!(i32).range(14..=36500))]
        days: i32,
    },
    /// Print the functions that this release calls, as this database answers them.
    Surface,
    /// Say what is there and what is missing; change nothing. Exit code 3 when something is missing.
    Status,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("euterpe-migrate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let config = config::database(|name| std::env::var(name).ok(), "euterpe-migrate")?;
    match arguments.command.unwrap_or(What::Up) {
        What::Up => {
            let report = migrate(&config).await?;
            for migration in &report.migrations {
                println!("applied {migration}");
            }
            // Of a new database nobody wants the list.
            if report.migrations.iter().any(|migration| migration.starts_with("V1__")) {
                println!("loaded  all of sql/, {} files", report.functions.len());
            } else {
                for function in &report.functions {
                    println!("loaded  sql/{function}");
                }
            }
            if report.migrations.is_empty() && report.functions.is_empty() {
                println!("nothing to do");
            }
            Ok(ExitCode::SUCCESS)
        }
        What::Online => {
            let did = online::build(&config, &OnlineIndex::of_this_release()).await?;
            for statement in &did {
                println!("{statement}");
            }
            if did.is_empty() {
                println!("nothing to do");
            }
            Ok(ExitCode::SUCCESS)
        }
        What::Retain { days } => {
            let Some(weeks) = retain(&config, days).await? else {
                println!(
                    "nothing was done: another euterpe-migrate is at work here, and does it or will not take long"
                );
                return Ok(ExitCode::SUCCESS);
            };
            for week in &weeks {
                match week {
                    Week::Dropped(week) => println!("dropped {week}"),
                    Week::Kept(week, why) => println!("kept    {week}: {why}"),
                }
            }
            if weeks.is_empty() {
                println!("nothing is older than {days} days");
            }
            Ok(ExitCode::SUCCESS)
        }
        What::Surface => {
            print!("{}", surface::of_this_release(&config).await?);
            Ok(ExitCode::SUCCESS)
        }
        What::Status => {
            let status = status(&config).await?;
            match status.database_version {
                Some(version) => println!("database    V{version}"),
                None => println!("database    Euterpe is not here"),
            }
            println!("this binary V{}", status.binary_version);
            for path in &status.functions_to_load {
                println!("to load     sql/{path}");
            }
            for index in &status.indexes_to_build {
                println!("to build    {index} (euterpe-migrate online)");
            }
            for path in &status.functions_unknown {
                println!("unknown     sql/{path} (of another release)");
            }
            for trouble in &status.half_restored {
                println!("not ours    {trouble}");
            }
            if !status.half_restored.is_empty() {
                println!("            Drop it and restore it again, roles first: docs/backup.md.");
            }
            Ok(if status.is_current() { ExitCode::SUCCESS } else { ExitCode::from(3) })
        }
    }
}
