//! One subscriber's end of a line.

use std::sync::Arc;

use outport_contract::stream::Channel;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{
    Sent,
    line::{End, Line},
    lines::Lines,
};

/// What a subscriber is told.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message for it.
    Sent(Arc<Sent>),
    /// Its position means nothing any more: it must load a snapshot (`resync.required`) and
    /// subscribe anew. Nothing comes after it.
    Resync,
}

/// A subscription to one channel; dropped, it ends.
pub struct Subscription {
    line: Arc<Line>,
    lines: Arc<Lines>,
    receiver: Option<Receiver<Arc<Sent>>>,
    from: u64,
    reached: u64,
}

impl Subscription {
    /// The line counts it already.
    pub(super) fn new(line: Arc<Line>, lines: Arc<Lines>) -> Self {
        let (receiver, from) = line.join();
        Self { line, lines, receiver: Some(receiver), from, reached: from }
    }

    /// The channel.
    pub fn channel(&self) -> &Channel {
        &self.line.channel
    }

    /// The generation of the store that all its numbers are of.
    pub fn epoch(&self) -> &str {
        &self.line.epoch
    }

    /// The sequence up to which the channel had been broadcast when this began: everything after
    /// it comes, what is up to it must be replayed.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// The next message; `None` when the notifier has stopped. Safe to drop while it waits.
    ///
    /// Who has fallen behind the channel's queue gets one `stale` pointer at the position of the
    /// broadcast instead of what it has not taken.
    pub async fn next(&mut self) -> Option<Event> {
        let next = self.receiver.as_mut()?.recv().await;
        let sent = match next {
            Ok(sent) => sent,
            Err(RecvError::Lagged(_)) => match self.line.join_again(self.reached) {
                Some((receiver, pointer)) => {
                    self.receiver = Some(receiver);
                    self.lines.figures().lagged();
                    Arc::new(pointer)
                }
                None => return self.end(),
            },
            Err(RecvError::Closed) => return self.end(),
        };
        self.reached = sent.sequence;
        Some(Event::Sent(sent))
    }

    fn end(&mut self) -> Option<Event> {
        self.receiver = None;
        match self.line.ended() {
            Some(End::Resync) => Some(Event::Resync),
            Some(End::Stopped) | None => None,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.lines.leave(&self.line);
    }
}
