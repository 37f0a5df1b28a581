//! Commands that ask a running server, as any client does: over its API, with a token.

use std::{io::Write as _, time::Duration};

use clap::Args;
use outport_client::{Client, Item};
use outport_contract::stream::{Channel, StreamEvent};
use serde::Serialize;
use serde_json::json;

use super::{Failure, terminal};

/// Which server, and who asks.
#[derive(Args)]
pub(super) struct Server {
    /// The server's address
    #[arg(long, env = "OUTPORT_URL", hide_env_values = true, value_name = "URL")]
    url: String,
    #[command(flatten)]
    token: Token,
}

/// Who asks.
#[derive(Args)]
pub(super) struct Token {
    /// An API token; the variable keeps it out of lists of processes
    #[arg(long, env = "OUTPORT_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: String,
}

impl Server {
    pub(super) fn client(&self) -> Result<Client, Failure> {
        self.token.client(&self.url)
    }
}

impl Token {
    /// A client of a server.
    pub(super) fn client(&self, url: &str) -> Result<Client, Failure> {
        Client::new(url, &self.token).map_err(|error| Failure::Usage(error.to_string()))
    }
}

/// What happened as one line of JSON.
pub(super) fn line(item: &Item) -> String {
    let said = match item {
        // Its data is told as it came: what is no text or number to us is still the producer's.
        Item::Event(told) => {
            let told = EventLine {
                channel: &told.channel,
                epoch: told.epoch.as_deref(),
                event: &told.event,
                first_time: told.first_time,
            };
            return terminal::json(&serde_json::to_string(&told).expect("it came as JSON"));
        }
        Item::Snapshot(taken) => {
            let snapshot = &taken.snapshot;
            json!({"channel": snapshot.channel, "epoch": snapshot.epoch,
                "snapshot": {"sequence": snapshot.sequence, "jobs": snapshot.jobs},
                "resync": taken.reason.map(|reason| reason.to_string())})
        }
        Item::Reconnecting { delay, why } => {
            json!({"reconnecting": {"delayMs": delay.as_millis() as u64, "why": why}})
        }
        Item::Retrying { channel, delay, why } => {
            json!({"channel": channel,
                "retrying": {"delayMs": delay.as_millis() as u64, "why": why}})
        }
        Item::Ended { channel, end } => json!({"channel": channel, "ended": end.to_string()}),
    };
    terminal::json(&said.to_string())
}

/// Says that the server is asked again, and why.
pub(super) fn again(delay: Duration, why: &str) -> std::io::Result<()> {
    let (delay, why) = (delay.as_millis(), terminal::text(why));
    writeln!(std::io::stderr(), "again in {delay} ms: {why}")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventLine<'a> {
    channel: &'a Channel,
    epoch: Option<&'a str>,
    event: &'a StreamEvent,
    first_time: bool,
}
