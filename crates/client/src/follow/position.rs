//! Where one channel is: its cursor, what is held beyond it, and what is asked to close the gap.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    sync::Arc,
};

use outport_contract::stream::{Channel, StreamEvent};

use super::{
    machine::{End, Fault, Limits, Reason, Start, Step},
    seen::Seen,
};
use crate::page::{Page, Snapshot};

/// Answers in a row that did not move the cursor, before something is not true of the server.
const PATIENCE: u32 = 6;

/// What is under way, with the number by which its answer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fetch {
    Replay { ticket: u64, after: u64 },
    Snapshot { ticket: u64 },
}

/// One channel.
#[derive(Debug)]
pub(super) struct Position {
    channel: Channel,
    limits: Limits,
    pub(super) epoch: Option<Arc<str>>,
    /// None until the server has said where "now" is.
    pub(super) cursor: Option<u64>,
    /// The highest sequence that the channel is known to have reached.
    known: u64,
    held: BTreeMap<u64, StreamEvent>,
    held_bytes: usize,
    /// The ids of the last events that were given, the last of them at the cursor.
    given: VecDeque<Arc<str>>,
    fetch: Option<Fetch>,
    tickets: u64,
    /// Answers in a row that brought nothing.
    fruitless: u32,
    /// Requests in a row that failed.
    failures: u32,
    /// Snapshots in a row without anything that confirmed one.
    resyncs: u32,
    /// Why the snapshot under way is loaded.
    reason: Option<Reason>,
}

impl Position {
    pub(super) fn new(channel: Channel, start: Start, limits: Limits, out: &mut Vec<Step>) -> Self {
        let begins_with_snapshot = start == Start::Snapshot;
        let (cursor, epoch) = match start {
            Start::After { sequence, epoch } => (Some(sequence), epoch.map(Arc::from)),
            Start::Now | Start::Snapshot => (None, None),
        };
        let mut position = Self {
            channel,
            limits,
            epoch,
            cursor,
            known: cursor.unwrap_or_default(),
            held: BTreeMap::new(),
            held_bytes: 0,
            given: VecDeque::new(),
            fetch: None,
            tickets: 0,
            fruitless: 0,
            failures: 0,
            resyncs: 0,
            reason: None,
        };
        if begins_with_snapshot {
            position.load_snapshot(None, out);
        }
        position
    }

    /// Whether there is a place from which to subscribe; a snapshot under way will give one.
    pub(super) const fn can_subscribe(&self) -> bool {
        !matches!(self.fetch, Some(Fetch::Snapshot { .. }))
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether a message can be placed, which it cannot be before the position is known. Another
    /// epoch is the end of this position.
    fn places(&mut self, epoch: Option<&str>, out: &mut Vec<Step>) -> bool {
        if !self.can_subscribe() || self.cursor.is_none() {
            return false;
        }
        match (self.epoch.as_deref(), epoch) {
            (Some(mine), Some(theirs)) if mine != theirs => {
                self.load_snapshot(Some(Reason::Epoch), out);
                return false;
            }
            (None, Some(theirs)) => self.epoch = Some(theirs.into()),
            _ => {}
        }
        true
    }

    /// The server took the subscription and says where the channel is. What is missing up to
    /// there it sends itself, if it was asked to.
    pub(super) fn subscribed(
        &mut self,
        head: Option<u64>,
        epoch: Option<&str>,
        is_replayed: bool,
        out: &mut Vec<Step>,
    ) {
        if self.cursor.is_none() && self.can_subscribe() {
            match head {
                Some(head) => {
                    self.cursor = Some(head);
                    self.known = head;
                }
                None => self.load_snapshot(None, out),
            }
        }
        if self.places(epoch, out) && !is_replayed {
            self.known = self.known.max(head.unwrap_or_default());
            self.close_gap(out);
        }
    }

    /// Events came, in whatever order.
    pub(super) fn events(
        &mut self,
        epoch: Option<&str>,
        events: Vec<StreamEvent>,
        seen: &mut Seen,
        out: &mut Vec<Step>,
    ) {
        if !self.places(epoch, out) {
            return;
        }
        for event in events {
            if !self.take(event, seen, out) {
                return self.load_snapshot(Some(Reason::Identity), out);
            }
        }
        self.close_gap(out);
    }

    /// The channel reached at least this.
    pub(super) fn reached(&mut self, epoch: Option<&str>, sequence: u64, out: &mut Vec<Step>) {
        if !self.places(epoch, out) {
            return;
        }
        if Some(sequence) == self.cursor {
            self.resyncs = 0;
        }
        self.known = self.known.max(sequence);
        self.close_gap(out);
    }

    /// An answer to a replay.
    pub(super) fn replayed(
        &mut self,
        ticket: u64,
        answer: Result<Page, Fault>,
        seen: &mut Seen,
        out: &mut Vec<Step>,
    ) {
        let Some(Fetch::Replay { ticket: mine, after }) = self.fetch else { return };
        if ticket != mine {
            return;
        }
        self.fetch = None;
        let page = match answer {
            Ok(page) => page,
            Err(Fault::Resync) => return self.load_snapshot(Some(Reason::Gone), out),
            Err(Fault::End(end)) => return out.push(self.end(end)),
            Err(Fault::Failed) => {
                self.failures += 1;
                return self.close_gap(out);
            }
        };
        self.failures = 0;
        if !self.places(page.epoch.as_deref(), out) {
            return;
        }
        let (head, mut last) = (page.head, after);
        for event in page.events {
            // A list with holes would be a silent loss.
            if event.sequence.is_none_or(|sequence| Some(sequence) != last.checked_add(1)) {
                return self.load_snapshot(Some(Reason::Partial), out);
            }
            last += 1;
            if !self.take(event, seen, out) {
                return self.load_snapshot(Some(Reason::Identity), out);
            }
        }
        self.known = self.known.max(head);
        self.fruitless = if last == after { self.fruitless + 1 } else { 0 };
        if self.fruitless >= PATIENCE && self.cursor < Some(self.known) {
            if !self.held.is_empty() || Some(head) > self.cursor {
                return self.load_snapshot(Some(Reason::Unreachable), out);
            }
            // A pointer said so, and the channel itself does not know of it.
            self.known = self.cursor.unwrap_or_default();
        }
        self.close_gap(out);
    }

    /// An answer to a snapshot.
    pub(super) fn snapshotted(
        &mut self,
        ticket: u64,
        answer: Result<Snapshot, Fault>,
        out: &mut Vec<Step>,
    ) {
        if self.fetch != Some(Fetch::Snapshot { ticket }) {
            return;
        }
        self.fetch = None;
        match answer {
            Ok(snapshot) => {
                self.failures = 0;
                self.resyncs += 1;
                self.cursor = Some(snapshot.sequence);
                self.known = snapshot.sequence;
                self.epoch = snapshot.epoch.as_deref().map(Arc::from);
                self.given.clear();
                let channel = self.channel.clone();
                out.push(Step::Snapshot { snapshot, reason: self.reason.take() });
                out.push(Step::Subscribe { channel });
            }
            Err(Fault::End(end)) => out.push(self.end(end)),
            Err(Fault::Resync | Fault::Failed) => {
                self.failures += 1;
                self.load_snapshot(self.reason, out);
            }
        }
    }

    /// The position can no longer be trusted.
    pub(super) fn load_snapshot(&mut self, reason: Option<Reason>, out: &mut Vec<Step>) {
        if !self.can_subscribe() {
            return;
        }
        self.held.clear();
        self.held_bytes = 0;
        self.fruitless = 0;
        self.reason = reason;
        let ticket = self.ticket();
        self.fetch = Some(Fetch::Snapshot { ticket });
        let tries = self.resyncs + self.failures;
        out.push(Step::LoadSnapshot { channel: self.channel.clone(), ticket, tries });
    }

    fn end(&self, end: End) -> Step {
        Step::End { channel: self.channel.clone(), end }
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Places an event: given when it is next, held when it is further on, dropped when it was
    /// given. False when its sequence belongs to another event.
    fn take(&mut self, event: StreamEvent, seen: &mut Seen, out: &mut Vec<Step>) -> bool {
        let (Some(cursor), Some(sequence)) = (self.cursor, event.sequence) else { return true };
        if sequence <= cursor {
            let back = usize::try_from(cursor - sequence).unwrap_or(usize::MAX);
            let known = self.given.len().checked_sub(back.saturating_add(1));
            return known.is_none_or(|at| *self.given[at] == *event.id);
        }
        self.known = self.known.max(sequence);
        if self.held.get(&sequence).is_some_and(|held| held.id != event.id) {
            return false;
        }
        if sequence - cursor > 1 {
            self.hold(sequence, event);
            return true;
        }
        self.give(sequence, event, seen, out);
        let next = |position: &Self| position.cursor.and_then(|cursor| cursor.checked_add(1));
        while let Some(held) = next(self).and_then(|next| self.held.remove(&next)) {
            self.held_bytes -= size(&held);
            let sequence = held.sequence.unwrap_or_default();
            self.give(sequence, held, seen, out);
        }
        true
    }

    /// Keeps it until the gap is closed. There is room for so much; the replay brings the rest.
    fn hold(&mut self, sequence: u64, event: StreamEvent) {
        let bytes = self.held_bytes + size(&event);
        let room = self.held.len() < self.limits.held_events && bytes <= self.limits.held_bytes;
        if let Entry::Vacant(place) = self.held.entry(sequence)
            && room
        {
            place.insert(event);
            self.held_bytes = bytes;
        }
    }

    fn give(&mut self, sequence: u64, event: StreamEvent, seen: &mut Seen, out: &mut Vec<Step>) {
        // What was held may since have come by a replay, as the same event.
        if let Some(held) = self.held.remove(&sequence) {
            self.held_bytes -= size(&held);
        }
        self.cursor = Some(sequence);
        self.resyncs = 0;
        let (id, first_time) = seen.note(&event.id);
        if self.given.len() == self.limits.given {
            self.given.pop_front();
        }
        self.given.push_back(id);
        let (channel, epoch) = (self.channel.clone(), self.epoch.clone());
        out.push(Step::Give { channel, epoch, event, first_time });
    }

    /// Asks for what is missing, unless that was asked already.
    fn close_gap(&mut self, out: &mut Vec<Step>) {
        let Some(after) = self.cursor.filter(|cursor| *cursor < self.known) else {
            self.fruitless = 0;
            return;
        };
        if self.fetch.is_some() {
            return;
        }
        let ticket = self.ticket();
        self.fetch = Some(Fetch::Replay { ticket, after });
        let (channel, epoch) = (self.channel.clone(), self.epoch.clone());
        let tries = self.fruitless + self.failures;
        out.push(Step::Replay { channel, after, epoch, ticket, tries });
    }
}

/// Bytes of memory that an event takes, about.
fn size(event: &StreamEvent) -> usize {
    size_of::<StreamEvent>() + event.id.len() + event.event_type.len() + event.data.get().len()
}
