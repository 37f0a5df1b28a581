//! `outport events tail`: the events of a channel as they happen.

use std::{
    io::{Stdout, Write as _},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use futures::StreamExt as _;
use outport_client::{FollowConfig, Follower, Item, Start};
use outport_contract::stream::Channel;

use super::{
    Failure,
    server::{Server, again, line},
    terminal,
};

#[derive(Subcommand)]
pub(super) enum EventsCommand {
    /// Prints a channel's events as they happen, each once and in order
    Tail(TailArguments),
}

#[derive(Args)]
pub(super) struct TailArguments {
    /// `job:<id>`, `application:<organization id>.<name>` or `organization:<id>`
    channel: Channel,
    /// Begin after this sequence; 0 for all that is kept [default: begin now]
    #[arg(long, value_name = "SEQUENCE")]
    after: Option<u64>,
    /// The epoch that the sequence is of
    #[arg(long, value_name = "EPOCH", requires = "after")]
    epoch: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn run(command: EventsCommand) -> Result<ExitCode, Failure> {
    let EventsCommand::Tail(arguments) = command;
    let TailArguments { channel, after, epoch, json, server } = arguments;
    let start = after.map_or(Start::Now, |sequence| Start::After { sequence, epoch });
    let mut items = Follower::start(server.client()?, [(channel, start)], FollowConfig::default());
    let mut out = std::io::stdout();
    while let Some(item) = items.next().await {
        if json {
            writeln!(out, "{}", line(&item))?;
        } else {
            tell(&mut out, &item)?;
        }
        out.flush()?;
        if let Item::Ended { channel, end } = item {
            return Err(Failure::of_server(&format!("{channel}: {end}")));
        }
    }
    Ok(ExitCode::FAILURE)
}

fn tell(out: &mut Stdout, item: &Item) -> std::io::Result<()> {
    match item {
        Item::Event(told) => {
            let event = &told.event;
            let sequence = event.sequence.unwrap_or_default();
            let (time, name) = (event.time.text(), terminal::text(&event.event_type));
            writeln!(out, "{sequence}  {time}  {name}  {}", terminal::json(event.data.get()))
        }
        Item::Snapshot(taken) => {
            let why = taken.reason.map(|reason| reason.to_string()).unwrap_or_default();
            let sequence = taken.snapshot.sequence;
            writeln!(out, "events before {sequence} may be missing: {why}")
        }
        Item::Reconnecting { delay, why } | Item::Retrying { delay, why, .. } => again(*delay, why),
        // The caller ends with it.
        Item::Ended { .. } => Ok(()),
    }
}
