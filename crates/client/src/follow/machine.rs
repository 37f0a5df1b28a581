//! The rules of following, without input and output: what came goes in, what is to be done comes
//! out. The same inputs give the same steps.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
};

use outport_contract::stream::{Batch, Channel, Pointer, StreamEvent};

use super::{position::Position, seen::Seen};
use crate::page::{Page, Snapshot};

/// Where following a channel begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With what happens from now on.
    Now,
    /// With what is so now, then with what happens.
    Snapshot,
    /// After a sequence. Without its epoch, a server that was restored from an older copy could
    /// not be noticed.
    After {
        /// The last sequence that was dealt with; 0 for all that there is.
        sequence: u64,
        /// The epoch that it belongs to.
        epoch: Option<String>,
    },
}

/// How much is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events of a channel that wait for a gap to close.
    pub held_events: usize,
    /// Their bytes, of a channel.
    pub held_bytes: usize,
    /// Ids of a channel's last events, to notice another event with the same sequence.
    pub given: usize,
    /// Ids of the last events of all channels, to tell what was given by another one.
    pub seen: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { held_events: 1_000, held_bytes: 1024 * 1024, given: 1_000, seen: 10_000 }
    }
}

/// Why a position could no longer be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The server said so to this subscriber, with `resync.required`.
    Told,
    /// The cursor is below what is kept, or above what there is.
    Gone,
    /// The store has begun another generation.
    Epoch,
    /// A sequence belongs to two events.
    Identity,
    /// A replay had a hole.
    Partial,
    /// What was announced could not be got by any replay.
    Unreachable,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Told => "the server asked for it",
            Self::Gone => "the position is not kept, or was never reached",
            Self::Epoch => "the server began another epoch",
            Self::Identity => "one sequence was given to two events",
            Self::Partial => "a replay had a hole",
            Self::Unreachable => "what was announced could not be replayed",
        })
    }
}

/// Why a channel is followed no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The access was taken away, or the credential ran out.
    AccessRevoked,
    /// There is no such channel for this caller.
    NotFound,
    /// The credential is none.
    Unauthenticated,
    /// The server does not take what it is asked, and would not another time.
    Refused(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AccessRevoked => f.write_str("access ended"),
            Self::NotFound => f.write_str("there is no such channel, or it is somebody else's"),
            Self::Unauthenticated => f.write_str("the credential was refused"),
            Self::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

/// Why a request had no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Another try may have one.
    Failed,
    /// The position is not kept: 410.
    Resync,
    /// No further try will have one.
    End(End),
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Step {
    /// Give this event to the caller.
    Give {
        /// The channel that numbered it.
        channel: Channel,
        /// The epoch of the number.
        epoch: Option<Arc<str>>,
        /// The event.
        event: StreamEvent,
        /// Whether it was not given by another channel, or before a resync, already.
        first_time: bool,
    },
    /// Give this snapshot to the caller.
    Snapshot {
        /// What is so.
        snapshot: Snapshot,
        /// Why it was loaded; none when following begins with it.
        reason: Option<Reason>,
    },
    /// Ask for the events after a sequence, and tell [`Machine::replayed`].
    Replay {
        /// Of this channel.
        channel: Channel,
        /// Exclusive.
        after: u64,
        /// Of this epoch.
        epoch: Option<Arc<str>>,
        /// For the answer.
        ticket: u64,
        /// Tries that brought nothing before; none: ask at once.
        tries: u32,
    },
    /// Ask for a snapshot, and tell [`Machine::snapshotted`].
    LoadSnapshot {
        /// Of this channel.
        channel: Channel,
        /// For the answer.
        ticket: u64,
        /// Tries that brought nothing before; none: ask at once.
        tries: u32,
    },
    /// Subscribe to the channel from where it is now, in place of any subscription to it.
    Subscribe {
        /// The channel.
        channel: Channel,
    },
    /// The channel is followed no further.
    End {
        /// The channel.
        channel: Channel,
        /// Why.
        end: End,
    },
}

/// From where to subscribe: a channel, and the sequence and the epoch that were reached.
pub type From = (Channel, Option<u64>, Option<Arc<str>>);

/// All channels that are followed.
#[derive(Debug)]
pub struct Machine {
    positions: BTreeMap<Channel, Position>,
    seen: Seen,
}

impl Machine {
    /// Begins to follow, with what is to be done first. A channel that is named twice is followed
    /// once, as it was named first.
    pub fn start(
        channels: impl IntoIterator<Item = (Channel, Start)>,
        limits: Limits,
    ) -> (Self, Vec<Step>) {
        let mut steps = Vec::new();
        let mut positions = BTreeMap::new();
        for (channel, start) in channels {
            if let Entry::Vacant(place) = positions.entry(channel) {
                let channel = place.key().clone();
                place.insert(Position::new(channel, start, limits, &mut steps));
            }
        }
        (Self { positions, seen: Seen::new(limits.seen) }, steps)
    }

    /// Whether no channel is followed any more.
    pub fn is_done(&self) -> bool {
        self.positions.is_empty()
    }

    /// What a new connection must subscribe to. Channels whose snapshot is under way come later,
    /// by [`Step::Subscribe`].
    pub fn subscriptions(&self) -> Vec<From> {
        self.positions.keys().filter_map(|channel| self.subscription(channel)).collect()
    }

    /// From where to subscribe to one channel.
    pub fn subscription(&self, channel: &Channel) -> Option<From> {
        let position = self.positions.get(channel).filter(|position| position.can_subscribe())?;
        Some((channel.clone(), position.cursor, position.epoch.clone()))
    }

    /// The sequence up to which a channel's events were given.
    pub fn cursor(&self, channel: &Channel) -> Option<u64> {
        self.positions.get(channel)?.cursor
    }

    /// Events of all channels that wait for a gap to close.
    pub fn held(&self) -> usize {
        self.positions.values().map(Position::held).sum()
    }

    /// The server took a subscription; `is_replayed` when it was asked for what is missing.
    pub fn subscribed(
        &mut self,
        channel: &Channel,
        head: Option<u64>,
        epoch: Option<&str>,
        is_replayed: bool,
    ) -> Vec<Step> {
        self.with(channel, |position, _, out| position.subscribed(head, epoch, is_replayed, out))
    }

    /// Events came. What has no sequence is about this subscriber alone.
    pub fn batch(&mut self, batch: Batch) -> Vec<Step> {
        let (told, numbered): (Vec<_>, Vec<_>) =
            batch.events.into_iter().partition(|event| event.sequence.is_none());
        for event in told {
            match event.event_type.as_str() {
                "access.revoked" => return self.end(&batch.channel, End::AccessRevoked),
                "resync.required" => return self.resync(&batch.channel, Reason::Told),
                _ => {}
            }
        }
        let epoch = batch.epoch.as_deref();
        self.with(&batch.channel, |position, seen, out| position.events(epoch, numbered, seen, out))
    }

    /// The channel reached a sequence. Whatever the reason, what is above the cursor is a gap.
    pub fn pointer(&mut self, pointer: &Pointer) -> Vec<Step> {
        self.with(&pointer.channel, |position, _, out| {
            position.reached(pointer.epoch.as_deref(), pointer.sequence, out);
        })
    }

    /// The position of a channel can no longer be trusted.
    pub fn resync(&mut self, channel: &Channel, reason: Reason) -> Vec<Step> {
        self.with(channel, |position, _, out| position.load_snapshot(Some(reason), out))
    }

    /// The server refuses a channel.
    pub fn end(&mut self, channel: &Channel, end: End) -> Vec<Step> {
        let ended = self.positions.remove(channel);
        let step = ended.map(|_| Step::End { channel: channel.clone(), end });
        step.into_iter().collect()
    }

    /// The server refuses all of them.
    pub fn end_all(&mut self, end: &End) -> Vec<Step> {
        let positions = std::mem::take(&mut self.positions);
        let ended = positions.into_keys();
        ended.map(|channel| Step::End { channel, end: end.clone() }).collect()
    }

    /// The answer to [`Step::Replay`].
    pub fn replayed(
        &mut self,
        channel: &Channel,
        ticket: u64,
        answer: Result<Page, Fault>,
    ) -> Vec<Step> {
        self.with(channel, |position, seen, out| position.replayed(ticket, answer, seen, out))
    }

    /// The answer to [`Step::LoadSnapshot`].
    pub fn snapshotted(
        &mut self,
        channel: &Channel,
        ticket: u64,
        answer: Result<Snapshot, Fault>,
    ) -> Vec<Step> {
        self.with(channel, |position, _, out| position.snapshotted(ticket, answer, out))
    }

    fn with(
        &mut self,
        channel: &Channel,
        change: impl FnOnce(&mut Position, &mut Seen, &mut Vec<Step>),
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        if let Some(position) = self.positions.get_mut(channel) {
            change(position, &mut self.seen, &mut steps);
        }
        if steps.iter().any(|step| matches!(step, Step::End { .. })) {
            self.positions.remove(channel);
        }
        steps
    }
}
