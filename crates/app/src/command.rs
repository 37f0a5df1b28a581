//! The command line: parses, then calls the library functions that do the work.
//!
//! Exit codes: 0 done, 1 it failed (the reason is on standard error), 2 the command line or the
//! configuration is wrong.

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand, builder::Styles};
use outport_store::{Store, Tx, deliveries};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, ConfigError},
    demo,
    process::{self, Roles, StartError},
};

mod access;
mod check;
mod conformance;
mod epoch;
mod events;
mod keys;
mod resource;
mod server;
mod terminal;
pub(crate) mod token;
mod verify;
mod watch;

/// Which executable was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `outport`
    Outport,
    /// `outport-api`
    Api,
    /// `outport-worker`
    Worker,
}

/// Outport: exports rows of your database to files, and tells who must know.
#[derive(Parser)]
#[command(name = "outport", version, propagate_version = true)]
struct CommandLine {
    #[command(flatten)]
    shared: Shared,
    #[command(subcommand)]
    command: Command,
}

/// The command line of `outport-api` and `outport-worker`.
#[derive(Parser)]
#[command(version)]
struct RoleLine {
    #[command(flatten)]
    shared: Shared,
}

#[derive(clap::Args)]
struct Shared {
    /// Configuration file [default: outport.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// The main job on sample data, with nothing else installed
    Demo(demo::Options),
    /// All roles in one process, on your own configuration
    Up,
    /// The HTTP API alone
    Api,
    /// The background worker alone
    Worker,
    /// Brings the state database's schema up to date
    Migrate,
    /// Checks configuration, resources and reachability, in words
    Check,
    /// Resource files: writes them, and compares them with their databases
    #[command(subcommand)]
    Resource(resource::ResourceCommand),
    /// API tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Takes access from users and organizations, links in mails included, and gives it back
    #[command(subcommand)]
    Access(access::AccessCommand),
    /// Generations of the live stream
    #[command(subcommand)]
    Epoch(epoch::EpochCommand),
    /// Keys
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Verifies what a consumer got: exit code 0 valid, 1 not valid, 2 cannot be told
    #[command(subcommand)]
    Verify(verify::VerifyCommand),
    /// Handlers of events
    #[command(subcommand)]
    Handler(HandlerCommand),
    /// Follows an export to its end: exit code 0 when it succeeded, else 1
    Watch(watch::WatchArguments),
    /// The live stream's events
    #[command(subcommand)]
    Events(events::EventsCommand),
    /// Checks a server against the rules of a protocol: exit code 1 when it breaks one
    #[command(subcommand)]
    Conformance(conformance::ConformanceCommand),
}

#[derive(Subcommand)]
enum HandlerCommand {
    /// Lists every handler that was ever registered
    List,
    /// Stops new deliveries to a handler; what is pending stays visible
    Retire {
        /// Its name
        name: String,
    },
    /// Takes a retirement back, for events from now on
    Restore {
        /// Its name
        name: String,
    },
}

/// Why a command ends badly.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
    #[error("nobody reads what is printed")]
    Unread,
}

/// How a shell sees a program that ends because nobody reads on: 128 and the number of SIGPIPE.
const UNREAD: u8 = 141;

impl Failure {
    /// What a server said is one line, whatever is in it.
    fn of_server(said: &impl std::fmt::Display) -> Self {
        Self::Failed(terminal::text(&said.to_string()))
    }

    /// Whether the command line or the configuration is wrong.
    const fn is_of_the_caller(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Start(StartError::Config(_)) | Self::Usage(_))
    }
}

impl From<outport_store::StoreError> for Failure {
    fn from(error: outport_store::StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::Unread;
        }
        Self::Failed(error.to_string())
    }
}

/// Parses the command line and does what it says.
pub fn main(program: Program) -> ExitCode {
    let (command, shared) = match parse(program) {
        Ok(line) => line,
        Err(error) => return refuse(&error),
    };
    // Several libraries speak TLS; they must agree on who does the cryptography.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        tracing::debug!("a crypto provider was installed already");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::from(error)),
    };
    match runtime.block_on(carry_out(command, shared)) {
        Ok(code) => code,
        Err(failure) => report(&failure),
    }
}

fn parse(program: Program) -> Result<(Command, Shared), clap::Error> {
    Ok(match program {
        Program::Outport => {
            let line: CommandLine = parsed()?;
            (line.command, line.shared)
        }
        Program::Api => (Command::Api, parsed::<RoleLine>()?.shared),
        Program::Worker => (Command::Worker, parsed::<RoleLine>()?.shared),
    })
}

/// The command line; an error that has no colours of its own, so that those of an argument that it
/// quotes are told from them. Help and version, which quote nothing, are given at once.
fn parsed<T: Parser>() -> Result<T, clap::Error> {
    let plain = T::command().styles(Styles::plain());
    match plain.try_get_matches().and_then(|matches| T::from_arg_matches(&matches)) {
        Err(error) if !error.use_stderr() => Ok(T::parse()),
        parsed => parsed,
    }
}

/// Says what is wrong with the command line, whatever stands in it.
fn refuse(error: &clap::Error) -> ExitCode {
    let told = terminal::lines(&error.render().ansi().to_string());
    // Nothing is left to do when even standard error is closed.
    drop(write!(std::io::stderr(), "{told}"));
    ExitCode::from(2)
}

fn report(failure: &Failure) -> ExitCode {
    if matches!(failure, Failure::Unread) {
        return ExitCode::from(UNREAD);
    }
    // Nothing is left to do when even standard error is closed.
    drop(writeln!(std::io::stderr(), "outport: {}", terminal::lines(&failure.to_string())));
    if failure.is_of_the_caller() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

async fn carry_out(command: Command, shared: Shared) -> Result<ExitCode, Failure> {
    let load = || Config::load(shared.config.as_deref());
    match command {
        Command::Demo(options) => Ok(demo::run(options).await),
        Command::Up => serve(load()?, Roles::ALL).await,
        Command::Api => serve(load()?, Roles::API).await,
        Command::Worker => serve(load()?, Roles::WORKER).await,
        Command::Migrate => {
            let config = load()?;
            start_log(&config.log_filter, config.log_json);
            open_state(&config).await?;
            say("the state database is up to date")
        }
        Command::Check => check::run(load()?).await,
        Command::Resource(command) => resource::run(command, load()?).await,
        Command::Token(command) => token::run(command, &open_state(&load()?).await?).await,
        Command::Access(command) => access::run(&command, &open_state(&load()?).await?).await,
        Command::Epoch(command) => epoch::run(&command, &open_state(&load()?).await?).await,
        Command::Keys(command) => keys::run(command, load).await,
        Command::Verify(command) => verify::run(command),
        Command::Handler(command) => handler(command, &open_state(&load()?).await?).await,
        Command::Watch(arguments) => watch::run(arguments).await,
        Command::Events(command) => events::run(command).await,
        Command::Conformance(command) => conformance::run(command).await,
    }
}

/// Runs roles until SIGTERM or SIGINT.
async fn serve(config: Config, roles: Roles) -> Result<ExitCode, Failure> {
    start_log(&config.log_filter, config.log_json);
    let listener = TcpListener::bind(config.listen).await;
    let listener =
        listener.map_err(|error| Failure::Failed(format!("listen: {}: {error}", config.listen)))?;
    tracing::info!(address = %config.listen, public_url = %config.public_url, ?roles, "starting");
    if !roles.api && config.public_url.port() == Some(config.listen.port()) {
        tracing::warn!(
            "links in mails lead to this worker, which has no pages: set publicUrl to the API's address"
        );
    }
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    process::run(config, roles, listener, stop).await?;
    Ok(ExitCode::SUCCESS)
}

/// Cancels on the first SIGTERM or SIGINT.
pub(crate) async fn stop_on_signal(stop: CancellationToken) {
    #[cfg(unix)]
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM cannot be waited for");
                std::future::pending::<()>().await;
            }
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        () = terminated => {}
        result = tokio::signal::ctrl_c() => if let Err(error) = result {
            tracing::warn!(%error, "SIGINT cannot be waited for");
        }
    }
    tracing::info!("stopping");
    stop.cancel();
}

/// Starts the log on standard error.
pub(crate) fn start_log(filter: &str, json: bool) {
    // PostgreSQL notes at every start that what migrations need is there already. What the
    // configuration says of the same target comes later and wins. The broker's client would print
    // whole messages, and what else it has to say is told once by the publisher. The driver quotes
    // what a URL gives to a parameter that it does not know, such as a misspelt password.
    let filter =
        format!("sqlx::postgres::notice=warn,sqlx_postgres::options::parse=off,lapin=off,{filter}");
    let filter = tracing_subscriber::EnvFilter::new(filter);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = if json { builder.json().try_init() } else { builder.try_init() };
    if started.is_err() {
        tracing::debug!("the log was started already");
    }
}

async fn open_state(config: &Config) -> Result<Store, Failure> {
    process::make_private(&config.data_dir)?;
    let store = Store::connect(&config.state).await?;
    store.migrate().await?;
    Ok(store)
}

async fn handler(command: HandlerCommand, store: &Store) -> Result<ExitCode, Failure> {
    match command {
        HandlerCommand::List => {
            for row in deliveries::handlers(store).await? {
                let retired = row.retired_at.map(|at| format!("retired since {at}"));
                let state = retired.unwrap_or_else(|| "active".to_owned());
                writeln!(std::io::stdout(), "{}  {state}", terminal::text(&row.name))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        HandlerCommand::Retire { name } => {
            let mut tx = store.begin().await?;
            let done = deliveries::retire(&mut tx, &name).await?;
            let said = format!(
                "'{name}' gets no new deliveries from now on, until `outport handler restore {name}`"
            );
            commit_if(tx, done, &said, format!("there is no handler '{name}'")).await
        }
        HandlerCommand::Restore { name } => {
            let mut tx = store.begin().await?;
            let done = deliveries::restore(&mut tx, &name).await?;
            let said = format!("'{name}' gets the events from now on");
            commit_if(tx, done, &said, format!("there is no retired handler '{name}'")).await
        }
    }
}

/// Commits what was done and says so, or says why nothing was.
async fn commit_if(tx: Tx, done: bool, said: &str, otherwise: String) -> Result<ExitCode, Failure> {
    if !done {
        return Err(Failure::Failed(otherwise));
    }
    tx.commit().await?;
    say(said)
}

/// Own lines on standard output, whatever they quote.
fn say(text: &str) -> Result<ExitCode, Failure> {
    writeln!(std::io::stdout(), "{}", terminal::lines(text))?;
    Ok(ExitCode::SUCCESS)
}
