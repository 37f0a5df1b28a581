//! Wake-ups: a signal is a hint, the table is the truth. Hints may be lost (a broken LISTEN);
//! who waits also polls.

mod listener;
mod teller;

use std::sync::Arc;

use tokio::sync::{broadcast, watch};

pub(crate) use listener::{CHANNEL, STREAM, listen};
pub(crate) use teller::Teller;

use crate::Store;

/// What may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// A job became due.
    Jobs,
    /// A delivery became due.
    Deliveries,
    /// Somebody asked for a running job to stop.
    Cancels,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Jobs, Self::Deliveries, Self::Cancels];

    /// What other processes are told.
    pub(crate) const fn payload(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Deliveries => "deliveries",
            Self::Cancels => "cancels",
        }
    }

    fn from_payload(payload: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.payload() == payload)
    }
}

impl Store {
    /// A receiver that changes whenever a committed transaction (of any process, on `PostgreSQL`)
    /// touched the topic. Subscribe first, then look, then wait for `changed`.
    pub fn subscribe(&self, topic: Topic) -> watch::Receiver<u64> {
        self.hints().sender(topic).subscribe()
    }

    /// A receiver of the channels to which committed transactions appended events. Who lags has
    /// missed some, and must look at all.
    pub fn subscribe_to_channels(&self) -> broadcast::Receiver<Appended> {
        self.hints().appended.subscribe()
    }
}

/// Channels of the live stream that may wait to be heard of; who is further behind looks at all.
const APPENDED: usize = 1024;

/// The senders of one store. The numbers mean nothing; that they change does.
#[derive(Debug)]
pub(crate) struct Hints {
    jobs: watch::Sender<u64>,
    deliveries: watch::Sender<u64>,
    cancels: watch::Sender<u64>,
    appended: broadcast::Sender<Appended>,
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            jobs: watch::Sender::default(),
            deliveries: watch::Sender::default(),
            cancels: watch::Sender::default(),
            appended: broadcast::Sender::new(APPENDED),
        }
    }
}

/// Something was appended to this channel of the live stream; `None`: to any of them.
pub type Appended = Option<Arc<str>>;

impl Hints {
    fn sender(&self, topic: Topic) -> &watch::Sender<u64> {
        match topic {
            Topic::Jobs => &self.jobs,
            Topic::Deliveries => &self.deliveries,
            Topic::Cancels => &self.cancels,
        }
    }

    /// Wakes who waits for this topic.
    pub(crate) fn bump(&self, topic: Topic) {
        self.sender(topic).send_modify(|times| *times = times.wrapping_add(1));
    }

    /// Wakes everybody: something may have been missed.
    fn bump_all(&self) {
        for topic in Topic::ALL {
            self.bump(topic);
        }
        self.tell(None);
    }

    /// Something was appended to this channel.
    pub(crate) fn appended(&self, channel: &str) {
        self.tell(Some(channel.into()));
    }

    fn tell(&self, appended: Appended) {
        // Nobody listens: nobody need be told.
        let _ = self.appended.send(appended);
    }
}
