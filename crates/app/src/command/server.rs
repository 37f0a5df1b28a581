//! Commands that ask a running server, as any client does: over its API, with a token.

use std::{io::Write as _, time::Duration};

use clap::Args;
use outport_client::{Client, Item, Snapshot};
use outport_contract::stream::{Channel, StreamEvent};
use serde::Serialize;
use serde_json::{json, value::RawValue};

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
        // Data and jobs are told as they came: what is no text or number to us is still theirs.
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
            let Snapshot { channel, epoch, sequence, jobs } = &taken.snapshot;
            let told = SnapshotLine {
                channel,
                epoch: epoch.as_deref(),
                snapshot: Jobs { sequence: *sequence, jobs },
                resync: taken.reason.map(|reason| reason.to_string()),
            };
            return terminal::json(&serde_json::to_string(&told).expect("it came as JSON"));
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
struct SnapshotLine<'a> {
    channel: &'a Channel,
    epoch: Option<&'a str>,
    snapshot: Jobs<'a>,
    resync: Option<String>,
}

#[derive(Serialize)]
struct Jobs<'a> {
    sequence: u64,
    jobs: &'a [Box<RawValue>],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventLine<'a> {
    channel: &'a Channel,
    epoch: Option<&'a str>,
    event: &'a StreamEvent,
    first_time: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_hold_what_nobody_can_count_are_told_as_they_came() {
        let jobs = r#"[{"metadata":{"n":1e999,"t":"\ud800"}}]"#;
        let snapshot = format!(
            r#"{{"channel":"organization:0197a801-1690-7590-b3cf-19599b9be3e4","sequence":3,"jobs":{jobs}}}"#
        );
        let snapshot = serde_json::from_str(&snapshot).expect("a snapshot");
        let taken = outport_client::Snapshotted { snapshot, reason: None };
        let line = line(&Item::Snapshot(Box::new(taken)));
        assert!(line.contains(&format!(r#""snapshot":{{"sequence":3,"jobs":{jobs}}}"#)), "{line}");
    }
}
