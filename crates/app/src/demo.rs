//! `outport demo`: the main job on sample data with nothing else installed, told as it happens.

mod broker;
mod stage;
mod story;

use std::{io::Write as _, net::SocketAddr, path::PathBuf, process::ExitCode};

use outport_relay::broker::SampleQueues;
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
    /// Print one JSON object {job, file, event, mail}, with a broker also {broker}, instead of
    /// the story; implies --once
    #[arg(long)]
    json: bool,
    /// Folder for everything that the demo makes; an earlier demo's folder is made anew
    #[arg(long, default_value = "outport-demo", value_name = "FOLDER")]
    dir: PathBuf,
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// RabbitMQ, such as <amqp://guest:guest@127.0.0.1>: the exchange and two sample queues are
    /// declared there, and the story goes on with an export that fails and what the queues got
    #[arg(long, value_name = "URL", env = "OUTPORT_BROKER_URL", hide_env_values = true)]
    broker_url: Option<String>,
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
    let config = stage.config(options.broker_url.as_deref().filter(|url| !url.is_empty()))?;
    let queues = match &config.broker {
        Some(broker) => {
            Some(SampleQueues::declare(broker).await.during("declaring the sample queues")?)
        }
        None => None,
    };
    let process = Process::build(config).await.during("starting")?;
    let store = process.store.clone();
    let token = stage.token(&store, &options.locale).await?;

    let stop = CancellationToken::new();
    let running = tokio::spawn(process.run(Roles::ALL, listener, stop.clone()));
    let tale = Story { stage: &stage, store: &store, token: &token, human: !options.json };
    let told = whole_story(&tale, queues.as_ref()).await;
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

async fn whole_story(
    tale: &Story<'_>,
    queues: Option<&SampleQueues>,
) -> Result<serde_json::Value, Failed> {
    let mut told = tale.tell().await?;
    if let Some(queues) = queues {
        told["broker"] = tale.tell_of_broker(queues, &told["job"]).await?;
    }
    Ok(told)
}
