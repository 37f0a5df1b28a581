//! Wake-ups: a signal is a hint, the table is the truth. Hints may be lost (a broken LISTEN);
//! who waits also polls.

use tokio::sync::watch;

use crate::Store;

/// What may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// A job became due.
    Jobs,
    /// A delivery became due.
    Deliveries,
    /// Somebody asked for a running job to stop.
    Cancels,
}

impl Store {
    /// A receiver that changes whenever a committed transaction (of any process, on PostgreSQL)
    /// touched the topic. Subscribe first, then look, then wait for `changed`.
    pub fn subscribe(&self, topic: Topic) -> watch::Receiver<u64> {
        todo!()
    }
}
