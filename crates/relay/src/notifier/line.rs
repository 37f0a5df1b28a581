//! One channel that somebody subscribes to: what was read of it, what is gathered, what was sent.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use outport_contract::stream::{
    Channel, DeliveryClass, Message, PointerReason, StreamEvent, find, messages,
};
use outport_store::channels::Page;
use tokio::{sync::broadcast, time::Instant};

use super::{NotifierConfig, figures::Figures, sent::Sent};

/// Messages' worth of events that are gathered at most, whatever the interval.
const GATHERED: usize = 4;

/// A channel with subscribers.
pub(super) struct Line {
    pub name: Arc<str>,
    pub channel: Channel,
    pub epoch: String,
    config: Arc<NotifierConfig>,
    figures: Arc<Figures>,
    state: Mutex<State>,
}

/// Why a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its numbers mean nothing any more.
    Resync,
    /// The notifier did.
    Stopped,
}

/// Whether its channel is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Idle,
    /// It waits for its turn.
    Queued,
    UnderWay,
    /// It is being read, and something was appended since that began.
    Again,
}

struct State {
    /// None once it has ended.
    sender: Option<broadcast::Sender<Arc<Sent>>>,
    end: Option<End>,
    /// The sequence up to which everything was broadcast.
    sent: u64,
    /// The sequence up to which everything was read; what is between is `gathered` or `stale`.
    read: u64,
    gathered: Vec<StreamEvent>,
    gathered_bytes: usize,
    /// When that is sent.
    due: Option<Instant>,
    /// Too old to travel up to here, and more may follow. Nothing is gathered meanwhile.
    stale: Option<u64>,
    reading: Reading,
    is_faulty: bool,
    /// The database's clock, and when that was read.
    clock: (DateTime<Utc>, Instant),
}

impl Line {
    /// One that begins after `head`.
    pub fn new(
        channel: Channel,
        epoch: String,
        head: u64,
        config: Arc<NotifierConfig>,
        figures: Arc<Figures>,
    ) -> Self {
        let state = State {
            sender: Some(broadcast::Sender::new(config.queue.max(1))),
            end: None,
            sent: head,
            read: head,
            gathered: Vec::new(),
            gathered_bytes: 0,
            due: None,
            stale: None,
            reading: Reading::Idle,
            is_faulty: false,
            clock: (DateTime::UNIX_EPOCH, Instant::now()),
        };
        let name = channel.to_string().into();
        Self { name, channel, epoch, config, figures, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A subscriber's end, and the position that it begins after.
    pub fn join(&self) -> (broadcast::Receiver<Arc<Sent>>, u64) {
        let state = self.state();
        let receiver = match &state.sender {
            Some(sender) => sender.subscribe(),
            // One that has ended already.
            None => broadcast::Sender::new(1).subscribe(),
        };
        (receiver, state.sent)
    }

    /// The same for a subscriber that has fallen behind after `reached`, with the pointer that it
    /// is owed. None when the line has ended.
    pub fn join_again(&self, reached: u64) -> Option<(broadcast::Receiver<Arc<Sent>>, Sent)> {
        let state = self.state();
        let receiver = state.sender.as_ref()?.subscribe();
        let pointer = self.pointer(reached, state.sent, PointerReason::Stale);
        Some((receiver, pointer))
    }

    /// Whether it has ended, and why.
    pub fn ended(&self) -> Option<End> {
        self.state().end
    }

    /// Nothing is sent any more. Who is behind still gets what was.
    pub fn end(&self, end: End) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        state.sender = None;
        state.gathered = Vec::new();
    }

    /// Whether it is to be queued for reading: something was appended, and it is neither queued
    /// nor read at the moment.
    pub fn want(&self) -> bool {
        let mut state = self.state();
        let before = state.reading;
        state.reading = match before {
            Reading::Idle | Reading::Queued => Reading::Queued,
            Reading::UnderWay | Reading::Again => Reading::Again,
        };
        before == Reading::Idle
    }

    /// Begins to read. Returns the cursor.
    pub fn begin(&self) -> u64 {
        let mut state = self.state();
        state.reading = Reading::UnderWay;
        state.read
    }

    /// Has been read. Returns whether something was appended meanwhile.
    fn finished(state: &mut State) -> bool {
        std::mem::replace(&mut state.reading, Reading::Idle) == Reading::Again
    }

    /// Could not be read. Returns whether it could before.
    pub fn failed(&self) -> bool {
        let mut state = self.state();
        Self::finished(&mut state);
        !std::mem::replace(&mut state.is_faulty, true)
    }

    /// Goes back to what was broadcast.
    pub fn rewind(&self) {
        let mut state = self.state();
        state.read = state.sent;
        (state.gathered, state.gathered_bytes) = (Vec::new(), 0);
        (state.due, state.stale) = (None, None);
        state.reading = Reading::Idle;
    }

    /// Whether its channel is elsewhere than where it was read up to.
    pub fn is_elsewhere(&self, floor: u64, head: u64) -> bool {
        let read = self.state().read;
        read != head || read < floor
    }

    /// Takes the page after its cursor. Returns when to [`Line::flush_due`] what has begun to be
    /// gathered, and whether to read again.
    pub fn take(&self, page: Page) -> (Option<Instant>, bool) {
        let now = Instant::now();
        let last = page.events.last().and_then(|event| event.sequence);
        let more_follow = last.is_some_and(|last| last < page.head);
        let mut state = self.state();
        let state = &mut *state;
        (state.is_faulty, state.clock) = (false, (page.now, now));
        let due = state.due;
        for event in page.events {
            state.read = event.sequence.unwrap_or(state.read);
            if self.is_stale(state, &event, now) {
                self.send_gathered(state, now);
                state.stale = Some(state.read);
                continue;
            }
            self.point(state);
            if is_immediate(&event) {
                self.send_gathered(state, now);
                self.send(state, &[event]);
            } else {
                self.gather(state, event, now);
            }
        }
        if !more_follow {
            self.point(state);
        }
        let again = Self::finished(state) || more_follow;
        (state.due.filter(|new| due != Some(*new)), again)
    }

    fn gather(&self, state: &mut State, event: StreamEvent, now: Instant) {
        state.due.get_or_insert(now + self.config.interval);
        state.gathered_bytes += event.data.get().len();
        state.gathered.push(event);
        if state.gathered_bytes >= GATHERED * self.config.most_bytes {
            self.send_gathered(state, now);
        }
    }

    /// Sends what was to be sent at this time, unless something else had it sent before.
    pub fn flush_due(&self, due: Instant) {
        let mut state = self.state();
        if state.due == Some(due) {
            self.send_gathered(&mut state, Instant::now());
            self.point(&mut state);
        }
    }

    /// Sends what is gathered.
    pub fn flush(&self) {
        let mut state = self.state();
        self.send_gathered(&mut state, Instant::now());
        self.point(&mut state);
    }

    /// What has become too old while it was gathered, as when the process was halted, is left for
    /// the pointer.
    fn send_gathered(&self, state: &mut State, now: Instant) {
        let events = std::mem::take(&mut state.gathered);
        (state.gathered_bytes, state.due) = (0, None);
        let old = events.iter().take_while(|event| self.is_stale(state, event, now)).count();
        let (old, fresh) = events.split_at(old);
        if let Some(last) = old.last() {
            state.stale = last.sequence;
        }
        if !fresh.is_empty() {
            self.point(state);
            self.send(state, fresh);
        }
    }

    /// Sends the pointer to what was too old.
    fn point(&self, state: &mut State) {
        if let Some(sequence) = state.stale.take() {
            let pointer = self.pointer(state.sent, sequence, PointerReason::Stale);
            self.figures.pointer(PointerReason::Stale);
            Self::broadcast(state, pointer);
        }
    }

    fn send(&self, state: &mut State, events: &[StreamEvent]) {
        for message in messages(&self.channel, &self.epoch, events, self.config.most_bytes) {
            let (after, sequence) = (state.sent, message.sequence());
            let sent = if let Message::Batch(text, _) = &message {
                self.figures.batch(sequence - after);
                Sent::batch(&self.channel, text, after, sequence)
            } else {
                self.figures.pointer(PointerReason::Oversize);
                Sent::pointer(&self.channel, message.text(), after, sequence)
            };
            Self::broadcast(state, sent);
        }
    }

    fn pointer(&self, after: u64, sequence: u64, reason: PointerReason) -> Sent {
        let message = Message::pointer(&self.channel, &self.epoch, sequence, reason);
        Sent::pointer(&self.channel, message.text(), after, sequence)
    }

    fn broadcast(state: &mut State, sent: Sent) {
        state.sent = sent.sequence;
        if let Some(sender) = &state.sender {
            // The last subscriber may have left: nobody need be told.
            let _ = sender.send(Arc::new(sent));
        }
    }

    /// By the database's clock, which gave the event its time.
    fn is_stale(&self, state: &State, event: &StreamEvent, now: Instant) -> bool {
        let (clock, read) = state.clock;
        let age = (clock - event.time.0).to_std().unwrap_or(Duration::ZERO);
        age + now.saturating_duration_since(read) > self.config.max_age
    }
}

/// What the catalogue does not know is of a later version, and does not wait.
fn is_immediate(event: &StreamEvent) -> bool {
    find(&event.event_type).is_none_or(|known| known.class == DeliveryClass::Immediate)
}

#[cfg(test)]
mod tests {
    use outport_contract::{
        stream::{ChannelKind, Scope},
        time,
    };
    use serde_json::value::RawValue;
    use uuid::Uuid;

    use super::*;

    fn line() -> Line {
        let channel = scope().channel(ChannelKind::Job).expect("it is of a job");
        let config = NotifierConfig { interval: Duration::from_hours(1), ..Default::default() };
        Line::new(channel, "e".to_owned(), 0, Arc::new(config), Arc::default())
    }

    fn scope() -> Scope {
        Scope::of_job(Uuid::nil(), "shop", Uuid::nil())
    }

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).expect("an instant")
    }

    /// A page that is read at a time, of events with the times at which they were committed.
    fn page(now: i64, events: &[(u64, &str, i64)]) -> Page {
        let event = |(sequence, name, time): &(u64, &str, i64)| StreamEvent {
            id: format!("evt_{sequence}"),
            stream: scope(),
            sequence: Some(*sequence),
            event_type: (*name).to_owned(),
            time: time::Instant(at(*time)),
            data: RawValue::from_string("{}".to_owned()).expect("JSON"),
        };
        let events: Vec<_> = events.iter().map(event).collect();
        let head = events.last().and_then(|event| event.sequence).unwrap_or_default();
        Page { epoch: "e".to_owned(), floor: 0, head, now: at(now), events }
    }

    fn sent(receiver: &mut broadcast::Receiver<Arc<Sent>>) -> Vec<(bool, u64)> {
        std::iter::from_fn(|| receiver.try_recv().ok())
            .map(|sent| (sent.is_pointer(), sent.sequence))
            .collect()
    }

    #[test]
    fn what_grows_too_old_while_it_is_gathered_is_pointed_at() {
        let line = line();
        let (mut receiver, from) = line.join();
        assert_eq!(from, 0);
        let (due, again) =
            line.take(page(100, &[(1, "stage.progress", 99), (2, "stage.progress", 100)]));
        assert!(due.is_some() && !again);
        // The process was halted for a minute.
        let halted = [(3, "stage.progress", 129), (4, "stage.progress", 160), (5, "x", 160)];
        let (due, _) = line.take(page(160, &halted));
        assert!(due.is_none(), "nothing is gathered any more");
        assert_eq!(sent(&mut receiver), [(true, 3), (false, 4), (false, 5)]);
    }

    #[test]
    fn what_is_too_old_is_pointed_at_once_however_many_pages_it_fills() {
        let line = line();
        let (mut receiver, _) = line.join();
        let mut first = page(100, &[(1, "turn.started", 1), (2, "stage.progress", 2)]);
        first.head = 4;
        assert_eq!(line.take(first), (None, true));
        assert_eq!(sent(&mut receiver), []);
        line.take(page(100, &[(3, "turn.started", 3), (4, "turn.started", 4)]));
        assert_eq!(sent(&mut receiver), [(true, 4)]);
        assert_eq!(line.join().1, 4);
    }

    #[test]
    fn hints_of_a_channel_that_waits_or_is_read_are_one() {
        let line = line();
        assert!(line.want(), "it is queued");
        assert!(!line.want(), "it is queued already");
        assert_eq!(line.begin(), 0);
        assert!(!line.want() && !line.want(), "it is being read");
        assert_eq!(line.take(page(0, &[])), (None, true), "and is to be read once more");
        assert!(line.want());
        line.begin();
        assert_eq!(line.take(page(0, &[])), (None, false));
    }

    #[test]
    fn a_flood_is_not_gathered_without_end() {
        let line = line();
        let (mut receiver, _) = line.join();
        let large = RawValue::from_string(format!("\"{}\"", "x".repeat(60_000))).expect("JSON");
        for sequence in 1..=5 {
            let mut page = page(0, &[(sequence, "log.batch", 0)]);
            page.events[0].data = large.clone();
            line.take(page);
        }
        assert_eq!(sent(&mut receiver).len(), 5, "more than four messages' worth");
    }
}
