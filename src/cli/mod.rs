//! The commands of `euterpe` that speak to a running system (design §8): what an operator does for a requester by way of
//! the database, and what anybody does by way of the API.
//!
//! Each reads what it needs, calls the store, and answers with a [`Report`]: lines for people, JSON for programs.

pub(crate) mod api;
mod dead;
mod doctor;
mod health;
mod job;
mod kek;
mod key;
mod listen;
pub(crate) mod progress;
mod report;
mod requester;
mod secret;
mod submit;
mod watch;
mod webhook;

use std::process::ExitCode;

use clap::Subcommand;

pub use report::{Failure, Report};

use crate::config;
use crate::crypto::{Keyring, Peppers};
use crate::store::Store;
use crate::store::surface::Role;

/// How a command ends, for scripts. `euterpe --help` prints it.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed: the database or the API is away, a secret does not open, doctor found something, anything unexpected
  2  usage: a wrong argument, a setting that is missing or bad
  3  there is nothing of that name
  4  refused: its state does not allow it
  5  the job that was watched has failed; it rests, and may be retried
  6  the job that was watched was given up (dead_letter)

Most commands speak to the database, submit and watch to the API. The database is EUTERPE_DATABASE_URL (a login with
the role euterpe_operator); keys come from EUTERPE_KEK_FILE or EUTERPE_KEKS. The API is EUTERPE_API, its key
EUTERPE_API_KEY. All commands with examples: docs/cli.md.";

/// What `euterpe` can be told about a running system.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look whether everything is there that a system needs, and say what mends it.
    ///
    /// A ? (with --json: "ok" is null) stands before what could not be looked at, because of another thing that is wrong.
    ///
    /// Example: euterpe doctor
    Doctor,
    /// Ask for a job over HTTP.
    ///
    /// Example: euterpe submit /srv/media/acme/in/clip.mov --preset h264_720p --preset thumbnail_jpg --watch
    ///
    /// Example: euterpe submit s3://media-in/42/clip.mov --output-prefix s3://media-out/42/ --idempotency-key clip-42
    ///
    /// With s3:// the credentials are those of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
    // Else clap takes what EUTERPE_API says for something that was asked for.
    #[command(override_usage = "euterpe submit [OPTIONS] [FILE|URL]")]
    Submit(Box<submit::Arguments>),
    /// Follow a job until it has ended; how it ended is the exit code.
    ///
    /// Example: euterpe watch 01a1eef4-4fa4-798f-9750-0e08ece63182
    #[command(override_usage = "euterpe watch [OPTIONS] <JOB_ID>")]
    Watch(watch::Arguments),
    /// Who may ask for work.
    #[command(subcommand)]
    Requester(requester::Command),
    /// API keys of requesters.
    #[command(subcommand)]
    Key(key::Command),
    /// Signing secrets of requesters: what their webhooks are signed with.
    #[command(subcommand)]
    Secret(secret::Command),
    /// Keys that wrap the keys of sealed secrets.
    #[command(subcommand)]
    Kek(kek::Command),
    /// What a job is doing, or why not, and what happened to it.
    ///
    /// Example: euterpe status 01a1eef4-4fa4-798f-9750-0e08ece63182
    Status(job::Which),
    /// End a job that nobody needs any more.
    ///
    /// Example: euterpe cancel 01a1eef4-4fa4-798f-9750-0e08ece63182 --why 'uploaded by mistake'
    Cancel(job::Act),
    /// Put a job that rests as failed back in the line.
    ///
    /// Example: euterpe retry 01a1eef4-4fa4-798f-9750-0e08ece63182 --why 'the bucket is there now'
    Retry(job::Act),
    /// Jobs that were given up.
    #[command(subcommand)]
    Dead(dead::Command),
    /// Try the way of a webhook.
    #[command(subcommand)]
    Webhook(webhook::Command),
    /// A receiver of webhooks to try with: verifies each and prints it.
    ///
    /// Example: EUTERPE_WEBHOOK_SECRET=whsec_… euterpe listen --listen 127.0.0.1:8090
    Listen(listen::Arguments),
    /// Ask a service whether it is ready; for containers, which have no curl.
    ///
    /// Example: euterpe health http://127.0.0.1:9465/readyz
    Health(health::Arguments),
}

/// Runs one command and prints how it went; with `json`, as JSON, errors too.
pub async fn run(command: Command, json: bool, env: impl Fn(&str) -> Option<String>) -> ExitCode {
    let context = Context { env: &env, json };
    let outcome = match command {
        Command::Doctor => doctor::run(&context).await,
        Command::Submit(arguments) => submit::run(&context, *arguments).await,
        Command::Watch(arguments) => watch::run(&context, arguments).await,
        Command::Dead(command) => dead::run(&context, command).await,
        Command::Health(arguments) => health::run(&context, arguments).await,
        Command::Requester(command) => requester::run(&context, command).await,
        Command::Key(command) => key::run(&context, command).await,
        Command::Secret(command) => secret::run(&context, command).await,
        Command::Kek(command) => kek::run(&context, command).await,
        Command::Status(which) => job::status(&context, which).await,
        Command::Cancel(act) => job::cancel(&context, act).await,
        Command::Retry(act) => job::retry(&context, act).await,
        Command::Webhook(command) => webhook::run(&context, command).await,
        Command::Listen(arguments) => listen::run(&context, arguments).await,
    };
    match outcome.and_then(|report| report.print(json).map(|()| report.code)) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print(json);
            ExitCode::from(failure.code())
        }
    }
}

/// Where a command gets what it works with; asked only for what it needs.
struct Context<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    json: bool,
}

impl Context<'_> {
    /// The store, once it has all that this release calls.
    async fn store(&self) -> Result<Store, Failure> {
        let store = Store::connect(config::database(self.env, "euterpe")?, 2);
        store.check_surface(Role::Operator).await?;
        Ok(store)
    }

    fn keyring(&self) -> Result<Keyring, Failure> {
        Ok(Keyring::from_env(self.env)?)
    }

    fn peppers(&self) -> Result<Peppers, Failure> {
        Ok(Peppers::from_env(self.env)?)
    }
}
