//! What is counted, for the metrics page.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What the publisher of this process has seen since it started.
#[derive(Debug, Default)]
pub struct Figures {
    published: AtomicU64,
    returned: AtomicU64,
    accepted_unroutable: AtomicU64,
    nacked: AtomicU64,
    refused: AtomicU64,
    connections: AtomicU64,
    connected: AtomicBool,
    blocked: AtomicBool,
}

/// The figures at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages confirmed and not returned.
    pub published: u64,
    /// Messages that no queue took, each to be sent again.
    pub returned: u64,
    /// Messages that no queue took, where nobody has to.
    pub accepted_unroutable: u64,
    /// Messages that the broker said no to.
    pub nacked: u64,
    /// Messages for which the broker closed the channel.
    pub refused: u64,
    /// Connections after the first one.
    pub reconnects: u64,
    /// Whether there is a connection.
    pub connected: bool,
    /// Whether the broker blocks publishers, for an alarm of its own.
    pub blocked: bool,
}

impl Figures {
    /// The figures now.
    pub fn counts(&self) -> Counts {
        Counts {
            published: self.published.load(Relaxed),
            returned: self.returned.load(Relaxed),
            accepted_unroutable: self.accepted_unroutable.load(Relaxed),
            nacked: self.nacked.load(Relaxed),
            refused: self.refused.load(Relaxed),
            reconnects: self.connections.load(Relaxed).saturating_sub(1),
            connected: self.connected.load(Relaxed),
            blocked: self.blocked.load(Relaxed),
        }
    }

    pub(super) fn published(&self) {
        self.published.fetch_add(1, Relaxed);
    }

    pub(super) fn returned(&self) {
        self.returned.fetch_add(1, Relaxed);
    }

    pub(super) fn accepted_unroutable(&self) {
        self.accepted_unroutable.fetch_add(1, Relaxed);
    }

    pub(super) fn nacked(&self) {
        self.nacked.fetch_add(1, Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.connected.store(true, Relaxed);
    }

    pub(super) fn disconnected(&self) {
        self.connected.store(false, Relaxed);
        self.blocked.store(false, Relaxed);
    }

    pub(super) fn blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Relaxed);
    }
}
