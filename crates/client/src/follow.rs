//! Following channels over one connection, whatever happens to it.

mod driver;
pub mod machine;
mod position;
mod seen;
pub(crate) mod socket;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use outport_contract::stream::{Channel, StreamEvent};
use tokio::sync::mpsc;

pub use machine::{End, Fault, Limits, Machine, Reason, Start, Step};

use crate::{
    Client,
    page::{Page, Snapshot},
};

/// How to follow.
#[derive(Clone, Debug)]
pub struct FollowConfig {
    /// How often the server says at least something. After twice this time of silence the
    /// connection is given up.
    pub heartbeat: Duration,
    /// The first wait before a new try is up to this.
    pub backoff: Duration,
    /// No wait is longer, unless the server asks for it.
    pub most_backoff: Duration,
    /// For tests: the same seed gives the same waits.
    pub seed: Option<u64>,
    /// Items that wait for the caller. While there is no room nothing is read, so the server may
    /// find this consumer too slow; nothing is lost by that.
    pub queue: usize,
    /// What is kept in memory.
    pub limits: Limits,
}

impl Default for FollowConfig {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(15),
            backoff: Duration::from_millis(250),
            most_backoff: Duration::from_secs(30),
            seed: None,
            queue: 256,
            limits: Limits::default(),
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Item {
    /// The next event of a channel.
    Event(Box<Told>),
    /// What is so: at the start when it was asked for, else in place of events that cannot be
    /// given any more.
    Snapshot(Box<Snapshotted>),
    /// The connection was lost; another is made after the delay. Nothing is lost by that.
    Reconnecting {
        /// How long until then.
        delay: Duration,
        /// What happened.
        why: String,
    },
    /// A request for what is missing of the channel, or for what is so, had no answer to use; it is
    /// made again after the delay. Nothing is lost by that.
    Retrying {
        /// The channel.
        channel: Channel,
        /// How long until then.
        delay: Duration,
        /// What the server answered.
        why: String,
    },
    /// The channel is followed no further. After the last channel's end there are no more items.
    Ended {
        /// The channel.
        channel: Channel,
        /// Why.
        end: End,
    },
}

/// An event in its channel.
#[derive(Clone, Debug)]
pub struct Told {
    /// The channel that numbered it.
    pub channel: Channel,
    /// With [`StreamEvent::sequence`], what [`Start::After`] goes on from.
    pub epoch: Option<Arc<str>>,
    /// The event.
    pub event: StreamEvent,
    /// False when the same event was given by another channel, or before a resync: its effect is
    /// there already, and only the position is new.
    pub first_time: bool,
}

/// What was so when it was loaded.
#[derive(Clone, Debug)]
pub struct Snapshotted {
    /// What is so.
    pub snapshot: Snapshot,
    /// Why it was loaded; none when following began with it.
    pub reason: Option<Reason>,
}

/// An answer of the server, with the channel and the ticket that it belongs to.
enum Fetched {
    Page(Channel, u64, Result<Page, Fault>),
    Snapshot(Channel, u64, Result<Snapshot, Fault>),
}

/// An answer, and why it is of no use.
struct Answered {
    fetched: Fetched,
    trouble: Option<Trouble>,
}

/// What a server answered that could not be used, and how long it asked to be left alone.
struct Trouble {
    why: String,
    retry_after: Option<Duration>,
}

/// A stream of [`Item`]s. Following goes on in a task of its own until this is dropped or every
/// channel has ended; it waits when items are not taken.
#[derive(Debug)]
pub struct Follower {
    items: mpsc::Receiver<Item>,
}

impl Follower {
    /// Begins to follow. Must be called within a Tokio runtime.
    pub fn start(
        client: Client,
        channels: impl IntoIterator<Item = (Channel, Start)>,
        config: FollowConfig,
    ) -> Self {
        let (sender, items) = mpsc::channel(config.queue.max(1));
        let (machine, steps) = Machine::start(channels, config.limits);
        tokio::spawn(driver::drive(client, config, machine, steps, sender));
        Self { items }
    }
}

impl Stream for Follower {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        self.items.poll_recv(context)
    }
}
