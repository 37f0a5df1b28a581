//! What is counted, for the metrics page.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use outport_contract::stream::PointerReason;

/// What the notifier of this process has done since it started, and whom it serves.
#[derive(Debug, Default)]
pub struct Figures {
    batches: AtomicU64,
    events: AtomicU64,
    oversize: AtomicU64,
    stale: AtomicU64,
    lagged: AtomicU64,
    resyncs: AtomicU64,
    channels: AtomicUsize,
    subscribers: AtomicUsize,
}

/// The figures at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches that were broadcast, each once however many got it.
    pub batches: u64,
    /// Events in them.
    pub events: u64,
    /// Pointers to events that fit into no message.
    pub oversize: u64,
    /// Pointers to events that were too old, those of slow subscribers apart.
    pub stale: u64,
    /// Pointers to slow subscribers, each for one of them.
    pub lagged: u64,
    /// Channels whose subscribers were told to load a snapshot.
    pub resyncs: u64,
    /// Channels that have subscribers now.
    pub channels: usize,
    /// Subscriptions now.
    pub subscribers: usize,
}

impl Figures {
    /// The figures now.
    pub fn counts(&self) -> Counts {
        Counts {
            batches: self.batches.load(Relaxed),
            events: self.events.load(Relaxed),
            oversize: self.oversize.load(Relaxed),
            stale: self.stale.load(Relaxed),
            lagged: self.lagged.load(Relaxed),
            resyncs: self.resyncs.load(Relaxed),
            channels: self.channels.load(Relaxed),
            subscribers: self.subscribers.load(Relaxed),
        }
    }

    pub(super) fn batch(&self, events: u64) {
        self.batches.fetch_add(1, Relaxed);
        self.events.fetch_add(events, Relaxed);
    }

    pub(super) fn pointer(&self, reason: PointerReason) {
        let pointers = match reason {
            PointerReason::Oversize => &self.oversize,
            PointerReason::Stale | PointerReason::Head => &self.stale,
        };
        pointers.fetch_add(1, Relaxed);
    }

    pub(super) fn lagged(&self) {
        self.lagged.fetch_add(1, Relaxed);
    }

    pub(super) fn resync(&self) {
        self.resyncs.fetch_add(1, Relaxed);
    }

    /// How many there are now.
    pub(super) fn serves(&self, channels: usize, subscribers: usize) {
        self.channels.store(channels, Relaxed);
        self.subscribers.store(subscribers, Relaxed);
    }
}
