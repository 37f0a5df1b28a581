//! What the server answers about a channel.

use outport_contract::stream::{Channel, StreamEvent};
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

/// A page of a channel's events after a cursor.
#[derive(Clone, Debug, Deserialize)]
pub struct Page {
    /// The channel.
    pub channel: Channel,
    /// The generation of the store.
    #[serde(default)]
    pub epoch: Option<String>,
    /// The highest sequence that was purged; 0 at first.
    #[serde(default)]
    pub floor: u64,
    /// The highest sequence that was given when the page was read.
    pub head: u64,
    /// Ascending and contiguous, the first of them right after the cursor.
    pub events: Vec<StreamEvent>,
}

/// What is so now, and the sequence from which following goes on.
#[derive(Clone, Debug, Deserialize)]
pub struct Snapshot {
    /// The channel.
    pub channel: Channel,
    /// The generation of the store.
    #[serde(default)]
    pub epoch: Option<String>,
    /// The sequence at which it was so, at least: a repeated event is possible, a lost one is not.
    pub sequence: u64,
    /// The jobs that the channel is about, as `GET /v1/exports/{id}` answers them.
    #[serde(default)]
    pub jobs: Vec<Box<RawValue>>,
}

/// A job, as far as it says which one it is.
#[derive(Deserialize)]
struct Named {
    #[serde(rename = "exportJobId")]
    id: Option<Uuid>,
}

impl Snapshot {
    /// Whether it is of this channel, and its job of none but the channel's.
    pub(crate) fn is_of(&self, channel: &Channel) -> bool {
        let is_own = |job: &RawValue| match channel {
            Channel::Job(own) => serde_json::from_str::<Named>(job.get())
                .is_ok_and(|job| job.id.is_none_or(|id| id == *own)),
            _ => true,
        };
        self.channel == *channel && self.jobs.iter().all(|job| is_own(job))
    }
}
