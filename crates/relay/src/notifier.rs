//! The notifier of the live stream: broadcasts what was committed to the channels that somebody
//! in this process subscribes to.
//!
//! **Words.** A *line* is a channel with subscribers: its cursor, what is gathered for it, and its
//! bounded queue of messages. A *hint* says that something was appended to a channel; it may be
//! lost, so all lines are *polled* too, by one query.
//!
//! **Invariants.** Of one channel, messages leave in the order of its sequence, and together they
//! name every number from [`Subscription::from`] on: in a batch, or by a pointer. A fresh
//! immediate event goes alone and waits for nothing but the events before it. Nothing that a
//! subscriber does or leaves undone costs another one anything. The table is the truth: a line
//! that is lost with its process, or a loop that is started again, loses no event, for a
//! subscription says where it begins and what is before is replayed. That is why no pointer is
//! owed after a restart: whoever comes back replays from its cursor up to
//! [`Subscription::from`], and whoever stayed is served from where the broadcast stood.

mod figures;
mod line;
mod lines;
mod rounds;
mod sent;
mod subscription;

use std::{sync::Arc, time::Duration};

use outport_contract::stream::Channel;
use outport_store::{Store, StoreError, channels};
use tokio_util::sync::CancellationToken;

pub use self::{
    figures::{Counts, Figures},
    sent::Sent,
    subscription::{Event, Subscription},
};
use self::{lines::Lines, rounds::Rounds};

/// How a notifier works.
#[derive(Clone, Debug)]
pub struct NotifierConfig {
    /// How long events that may wait are gathered before they travel together.
    pub interval: Duration,
    /// Bytes of a message's UTF-8 text, its envelope included, at most.
    pub most_bytes: usize,
    /// Events older than this, by the database's clock, are pointed at and do not travel.
    pub max_age: Duration,
    /// How often all channels are looked at, for hints may be lost.
    pub poll: Duration,
    /// Messages that a channel keeps for its slowest subscriber; who is further behind gets a
    /// pointer instead of them. Rounded up to a power of two.
    pub queue: usize,
}

impl Default for NotifierConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(250),
            most_bytes: 64 * 1024,
            max_age: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            queue: 128,
        }
    }
}

/// The notifier of this process. Clones are the same one.
#[derive(Clone)]
pub struct Notifier {
    store: Store,
    config: Arc<NotifierConfig>,
    lines: Arc<Lines>,
}

impl Notifier {
    /// One over this store. It sends nothing before [`Notifier::run`].
    pub fn new(store: Store, config: NotifierConfig) -> Self {
        let config = Arc::new(config);
        Self { store, lines: Arc::new(Lines::new(Arc::clone(&config))), config }
    }

    /// What it has done and what it serves, for the metrics page.
    pub fn figures(&self) -> Arc<Figures> {
        Arc::clone(self.lines.figures())
    }

    /// Subscribes to what is appended to a channel from now on. A channel that nobody is
    /// subscribed to costs a query, any other none.
    pub async fn subscribe(&self, channel: &Channel) -> Result<Subscription, StoreError> {
        let name = channel.to_string();
        let line = if let Some(line) = self.lines.enter(&name) {
            line
        } else {
            let now = channels::positions(&self.store, &[&name]).await?;
            self.lines.open(channel, &now)
        };
        Ok(Subscription::new(line, Arc::clone(&self.lines)))
    }

    /// Broadcasts until `stop`: then what is gathered is sent, and all subscriptions end. When it
    /// is dropped before, another run goes on where it stood.
    pub async fn run(&self, stop: CancellationToken) {
        Rounds::new(self.store.clone(), Arc::clone(&self.config), Arc::clone(&self.lines))
            .run(stop)
            .await;
    }
}
