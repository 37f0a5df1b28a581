//! `outport demo`: the main job on sample data with nothing else installed, told as it happens.

mod stage;
mod story;

use std::{io::Write as _, net::SocketAddr, path::PathBuf, process::ExitCode};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    command::{start_log, stop_on_signal},
    process::{Process, Roles},
};
use stage::Stage;
use story::Story;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Stop after the story; exit code 1 when a step failed
    #[arg(long)]
    once: bool,
    /// Print one JSON object {job, file, event, mail} instead of the story; implies --once
    #[arg(long)]
    json: bool,
    /// Folder for everything that the demo makes; an earlier demo's folder is made anew
    #[arg(long, default_value = "outport-demo", value_name = "FOLDER")]
    dir: PathBuf,
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Language of headers, file name and mail: en, pt-BR or es
    #[arg(long, default_value = "en", value_parser = ["en", "pt-BR", "es"])]
    locale: String,
}

/// Why the demo ends badly: what it was doing, and what went wrong.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {reason}")]
pub(crate) struct Failed {
    step: &'static str,
    reason: String,
}

/// Notes the step that a failure belongs to.
trait During<T> {
    fn during(self, step: &'static str) -> Result<T, Failed>;
}

impl<T, E: std::fmt::Display> During<T> for Result<T, E> {
    fn during(self, step: &'static str) -> Result<T, Failed> {
        self.map_err(|error| Failed { step, reason: error.to_string() })
    }
}

/// Sets the stage, tells the story, and unless told otherwise stays up for more.
pub(crate) async fn run(options: Options) -> ExitCode {
    start_log("warn", false);
    match play(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            // Nothing is left to do when even standard error is closed.
            drop(writeln!(std::io::stderr(), "outport demo failed while {failed}"));
            ExitCode::FAILURE
        }
    }
}

async fn play(options: &Options) -> Result<(), Failed> {
    let address = SocketAddr::from(([127, 0, 0, 1], options.port));
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| format!("{address}: {error}"))
        .during("opening the port")?;
    let address = listener.local_addr().during("opening the port")?;
    let stage = Stage::set(&options.dir, address)?;
    let process = Process::build(stage.config()?).await.during("starting")?;
    let store = process.store.clone();
    let token = stage.token(&store, &options.locale).await?;

    let stop = CancellationToken::new();
    let running = tokio::spawn(process.run(Roles::ALL, listener, stop.clone()));
    let tale = Story { stage: &stage, store: &store, token: &token, human: !options.json };
    let told = tale.tell().await;
    if told.is_ok() && !options.once && !options.json {
        tale.what_next()?;
        stop_on_signal(stop.clone()).await;
    }
    stop.cancel();
    running.await.during("stopping")?.during("stopping")?;
    let told = told?;
    if options.json {
        writeln!(std::io::stdout(), "{told}").during("printing")?;
    }
    Ok(())
}
