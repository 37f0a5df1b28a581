//! The words of these tests: events, messages, and a follower that is looked at.

use std::time::Duration;

use futures::StreamExt as _;
use outport_client::{Client, FollowConfig, Follower, Item, Reason, Start, follow::Limits};
use outport_contract::stream::Channel;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::server::Server;

/// How long something that must happen may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn channel(n: u128) -> Channel {
    Channel::Job(Uuid::from_u128(n))
}

/// The event that the channel's epoch `e1` has at a sequence.
pub fn event(sequence: u64) -> Value {
    named(sequence, &format!("evt_{sequence}"))
}

pub fn named(sequence: u64, id: &str) -> Value {
    json!({
        "id": id,
        "stream": {"organization": Uuid::nil()},
        "sequence": sequence,
        "type": "turn.started",
        "time": "2026-07-04T12:20:00.000Z",
        "data": {},
    })
}

pub fn events(sequences: impl IntoIterator<Item = u64>) -> Vec<Value> {
    sequences.into_iter().map(event).collect()
}

/// Said to one subscriber alone.
pub fn told(event_type: &str) -> Value {
    let mut event = event(0);
    event["type"] = event_type.into();
    event.as_object_mut().expect("an object").remove("sequence");
    event
}

pub fn batch(channel: &Channel, events: Vec<Value>) -> Value {
    batch_of("e1", channel, events)
}

pub fn batch_of(epoch: &str, channel: &Channel, events: Vec<Value>) -> Value {
    let data = json!({"protocol": "beyond-cdn-events/1", "channel": channel, "epoch": epoch,
        "events": Value::Array(events)});
    json!({"event": "beyond-cdn-events/1", "data": data})
}

pub fn pointer(channel: &Channel, sequence: u64, reason: &str) -> Value {
    let data = json!({"protocol": "beyond-cdn-events/1", "channel": channel, "epoch": "e1",
        "sequence": sequence, "reason": reason});
    json!({"event": "beyond-cdn-pointer/1", "data": data})
}

pub fn subscribed(channel: &Channel, head: u64) -> Value {
    let data = json!({"kind": "subscribed", "channel": channel, "head": head, "epoch": "e1"});
    json!({"event": "outport-control/1", "data": data})
}

pub fn page(channel: &Channel, head: u64, events: Vec<Value>) -> Value {
    json!({"protocol": "beyond-cdn-events/1", "channel": channel, "epoch": "e1", "floor": 0,
        "head": head, "events": Value::Array(events)})
}

pub fn snapshot(channel: &Channel, epoch: &str, sequence: u64) -> Value {
    json!({"protocol": "beyond-cdn-events/1", "channel": channel, "epoch": epoch, "floor": 0,
        "head": sequence, "sequence": sequence, "jobs": [{"status": "PROCESSING"}]})
}

/// Waits that are short, and the same in every run.
pub fn config() -> FollowConfig {
    FollowConfig {
        backoff: Duration::from_millis(2),
        most_backoff: Duration::from_millis(20),
        seed: Some(7),
        limits: Limits { held_events: 4, ..Limits::default() },
        ..FollowConfig::default()
    }
}

pub fn after(sequence: u64) -> Start {
    Start::After { sequence, epoch: Some("e1".to_owned()) }
}

/// A follower that is looked at.
pub struct Watched(Follower);

impl Watched {
    pub fn of(server: &Server, starts: impl IntoIterator<Item = (Channel, Start)>) -> Self {
        Self::with(server, starts, config())
    }

    pub fn with(
        server: &Server,
        starts: impl IntoIterator<Item = (Channel, Start)>,
        config: FollowConfig,
    ) -> Self {
        let client = Client::new(&server.url(), "opt_token").expect("a client");
        Self(Follower::start(client, starts, config))
    }

    pub async fn next(&mut self) -> Option<Item> {
        tokio::time::timeout(PATIENCE, self.0.next()).await.expect("an item in time")
    }

    /// The next so many events, by sequence; nothing else comes between them.
    pub async fn sequences(&mut self, count: usize) -> Vec<u64> {
        let mut sequences = Vec::new();
        while sequences.len() < count {
            match self.next().await {
                Some(Item::Event(told)) => sequences.extend(told.event.sequence),
                other => panic!("after {sequences:?}: {other:?}"),
            }
        }
        sequences
    }

    /// The connection is lost; why.
    pub async fn reconnecting(&mut self) -> (Duration, String) {
        match self.next().await {
            Some(Item::Reconnecting { delay, why }) => (delay, why),
            other => panic!("{other:?}"),
        }
    }

    /// A request had no answer to use; what is said of it.
    pub async fn retrying(&mut self) -> (Duration, String) {
        match self.next().await {
            Some(Item::Retrying { delay, why, .. }) => (delay, why),
            other => panic!("{other:?}"),
        }
    }

    /// A snapshot: its sequence, and why it was loaded.
    pub async fn snapshot(&mut self) -> (u64, Option<Reason>) {
        match self.next().await {
            Some(Item::Snapshot(taken)) => (taken.snapshot.sequence, taken.reason),
            other => panic!("{other:?}"),
        }
    }
}
