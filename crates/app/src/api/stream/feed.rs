//! One channel for one visitor. The broadcast is subscribed to first; then what is stored up to
//! where it stood is replayed, page by page; then what it has sent since follows. Between the two
//! nothing can be missing, and nothing can come twice.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::extract::ws::Utf8Bytes;
use outport_contract::stream::{Channel, Message, POINTER, PROTOCOL, PointerReason, messages};
use outport_relay::notifier::{Event, Sent, Subscription};
use outport_store::{
    Store, StoreError,
    channels::{self, Page, Replayed},
};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::{Streams, frames};
use crate::api::{channels::position, metrics::Held, problem::Position};

/// Events of a page that is replayed into a stream.
const PAGE: u64 = 500;

/// Where a visitor wants to begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last sequence that it has; none to begin now.
    pub after: Option<u64>,
    /// The epoch that it is of.
    pub epoch: Option<String>,
}

/// A message for the visitor.
#[derive(Clone, Debug)]
pub enum Told {
    /// Broadcast to all.
    Live(Arc<Sent>),
    /// For this one.
    Own(Message),
}

impl Told {
    /// Its broadcast name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Live(sent) => sent.name,
            Self::Own(Message::Batch(..)) => PROTOCOL,
            Self::Own(Message::Pointer(..)) => POINTER,
        }
    }

    /// The message, JSON.
    pub fn text(&self) -> &str {
        match self {
            Self::Live(sent) => sent.text(),
            Self::Own(message) => message.text(),
        }
    }

    /// The highest sequence that it names.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Live(sent) => sent.sequence,
            Self::Own(message) => message.sequence(),
        }
    }

    /// As a WebSocket carries it.
    pub fn frame(&self) -> Utf8Bytes {
        match self {
            Self::Live(sent) => Utf8Bytes::try_from(sent.frame().clone()).expect("it is UTF-8"),
            Self::Own(_) => frames::broadcast(self.name(), self.text()),
        }
    }
}

/// Why a feed has ended, or does not begin.
#[derive(Debug)]
pub enum End {
    /// The visitor's position cannot be trusted.
    Resync(Position),
    /// More came live than may wait until the replay is taken.
    Overflow,
    /// The broadcast has stopped.
    Stopped,
    /// The state database failed.
    Failed(StoreError),
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// One channel for one visitor.
pub struct Feed {
    store: Store,
    channel: Channel,
    subscription: Subscription,
    message_bytes: usize,
    /// What was told so far.
    told: u64,
    /// Up to where the replay goes.
    until: u64,
    page: VecDeque<Message>,
    /// What came live before the replay was over.
    held: VecDeque<Arc<Sent>>,
    held_bytes: usize,
    most_held: usize,
    heartbeat: Interval,
    _counted: Held,
}

impl Feed {
    /// Begins to follow a channel from a cursor.
    pub async fn open(
        streams: &Streams,
        store: &Store,
        channel: &Channel,
        cursor: &Cursor,
        counted: Held,
    ) -> Result<Self, End> {
        let config = streams.config();
        let subscription = streams.notifier().subscribe(channel).await?;
        let until = subscription.from();
        let mut feed = Self {
            store: store.clone(),
            channel: channel.clone(),
            message_bytes: config.notifier.most_bytes,
            told: cursor.after.unwrap_or(until),
            until,
            page: VecDeque::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            most_held: config.queue_bytes,
            heartbeat: heartbeat(config.heartbeat),
            subscription,
            _counted: counted,
        };
        if let Some(after) = cursor.after {
            let epoch = cursor.epoch.as_deref();
            let replayed = channels::replay(&feed.store, channel, after, epoch, PAGE).await?;
            feed.take(replayed)?;
        } else if cursor.epoch.as_deref().is_some_and(|epoch| epoch != feed.epoch()) {
            return Err(feed.resync().await);
        }
        Ok(feed)
    }

    /// The generation of the store.
    pub fn epoch(&self) -> &str {
        self.subscription.epoch()
    }

    /// How far the channel is at least: who begins now has all up to it.
    pub fn head(&self) -> u64 {
        self.until.max(self.told)
    }

    /// Where it is: a pointer to what was told last.
    pub fn here(&self) -> Told {
        let pointer = Message::pointer(&self.channel, self.epoch(), self.told, PointerReason::Head);
        Told::Own(pointer)
    }

    /// The next message. Safe to drop while it waits.
    pub async fn next(&mut self) -> Result<Told, End> {
        loop {
            if let Some(message) = self.page.pop_front() {
                self.told = message.sequence();
                return Ok(Told::Own(message));
            }
            if self.told < self.until {
                self.turn_page().await?;
                continue;
            }
            let sent = if let Some(sent) = self.held.pop_front() {
                self.held_bytes -= sent.text().len();
                sent
            } else {
                tokio::select! {
                    biased;
                    _ = self.heartbeat.tick() => return Ok(self.here()),
                    event = self.subscription.next() => match event {
                        Some(Event::Sent(sent)) => sent,
                        Some(Event::Resync) => return Err(self.resync().await),
                        None => return Err(End::Stopped),
                    },
                }
            };
            // Below a cursor that was ahead of the broadcast.
            if sent.sequence > self.told {
                self.told = sent.sequence;
                return Ok(Told::Live(sent));
            }
        }
    }

    /// Takes in what comes live while the replay is not over. Ends when it is too much; while
    /// nothing is replayed, never. Safe to drop.
    pub async fn hold(&mut self) -> End {
        if self.told >= self.until && self.page.is_empty() && self.held.is_empty() {
            std::future::pending::<()>().await;
        }
        loop {
            match self.subscription.next().await {
                Some(Event::Sent(sent)) => {
                    self.held_bytes += sent.text().len();
                    self.held.push_back(sent);
                    if self.held_bytes > self.most_held {
                        return End::Overflow;
                    }
                }
                Some(Event::Resync) => return self.resync().await,
                None => return End::Stopped,
            }
        }
    }

    async fn turn_page(&mut self) -> Result<(), End> {
        let (store, channel, epoch) =
            (self.store.clone(), self.channel.clone(), self.epoch().to_owned());
        let replay = channels::replay(&store, &channel, self.told, Some(&epoch), PAGE);
        let replayed = tokio::select! {
            replayed = replay => replayed?,
            end = self.hold() => return Err(end),
        };
        self.take(replayed)
    }

    /// Makes messages of what is replayed, up to where the broadcast goes on.
    fn take(&mut self, replayed: Replayed) -> Result<(), End> {
        let page = match replayed {
            Replayed::Page(page) if page.epoch == self.epoch() => page,
            Replayed::Page(page) | Replayed::Resync(page) => {
                return Err(End::Resync(position(page)));
            }
        };
        let Page { mut events, .. } = page;
        events.retain(|event| event.sequence.is_some_and(|sequence| sequence <= self.until));
        if events.is_empty() && self.told < self.until {
            let gap = format!("{} has nothing after {}", self.channel, self.told);
            return Err(End::Failed(StoreError::Corrupt(gap)));
        }
        self.page = messages(&self.channel, self.epoch(), &events, self.message_bytes).into();
        Ok(())
    }

    async fn resync(&self) -> End {
        match channels::replay(&self.store, &self.channel, 0, None, 0).await {
            Ok(Replayed::Page(page) | Replayed::Resync(page)) => End::Resync(position(page)),
            Err(error) => End::Failed(error),
        }
    }
}

fn heartbeat(period: Duration) -> Interval {
    let mut heartbeat = interval_at(Instant::now() + period, period);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat
}
