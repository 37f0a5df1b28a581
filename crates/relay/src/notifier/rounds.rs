//! The loop: lines are read in turn, a page each, as hints, polls and subscribers ask for it.

use std::{collections::VecDeque, sync::Arc};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use outport_contract::redaction::Chain;
use outport_store::{
    Store, StoreError,
    channels::{self, Positions, Replayed},
    hints::Appended,
};
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, MissedTickBehavior, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{NotifierConfig, line::Line, lines::Lines};

/// Events of one read. Small, so that a flooded channel gives way to others often.
const PAGE: u64 = 64;
/// Channels that are read at once.
const READS: usize = 4;

/// What came back from the database.
enum Answer {
    Read(Arc<Line>, Result<Replayed, StoreError>),
    Polled(Vec<Arc<Line>>, Result<Positions, StoreError>),
}

/// The state of the loop; what must outlive it is in the lines.
pub(super) struct Rounds {
    store: Store,
    config: Arc<NotifierConfig>,
    lines: Arc<Lines>,
    asked: FuturesUnordered<BoxFuture<'static, Answer>>,
    reads: usize,
    is_polling: bool,
    /// The database does not answer: nothing is read until a poll is answered.
    is_down: bool,
    /// When which line sends what it has gathered. In order, for the interval is always the same.
    due: VecDeque<(Instant, Arc<Line>)>,
}

impl Rounds {
    pub fn new(store: Store, config: Arc<NotifierConfig>, lines: Arc<Lines>) -> Self {
        let (asked, due) = (FuturesUnordered::new(), VecDeque::new());
        let (reads, is_polling, is_down) = (0, false, false);
        Self { store, config, lines, asked, reads, is_polling, is_down, due }
    }

    pub async fn run(mut self, stop: CancellationToken) {
        // First listen, then look.
        let mut hints = self.store.subscribe_to_channels();
        self.lines.rewind();
        let mut polls = tokio::time::interval(self.config.poll);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let lines = Arc::clone(&self.lines);
        loop {
            self.read();
            let next_due = self.due.front().map(|(due, _)| *due);
            tokio::select! {
                () = stop.cancelled() => break,
                hint = hints.recv() => self.hear(hint),
                Some(answer) = self.asked.next() => self.hear_out(answer),
                () = sleep_until(next_due.unwrap_or_else(Instant::now)), if next_due.is_some() => {
                    self.flush();
                }
                () = lines.opened() => {}
                _ = polls.tick() => self.poll(),
            }
        }
        self.lines.stop();
    }

    /// Asks for the next pages, as long as there is somebody to serve.
    fn read(&mut self) {
        while !self.is_down && self.reads < READS {
            let Some(line) = self.lines.next_ready() else { return };
            let after = line.begin();
            let store = self.store.clone();
            self.reads += 1;
            let read = async move {
                let page =
                    channels::replay(&store, &line.channel, after, Some(&line.epoch), PAGE).await;
                Answer::Read(line, page)
            };
            self.asked.push(read.boxed());
        }
    }

    fn hear(&mut self, hint: Result<Appended, RecvError>) {
        match hint {
            Ok(Some(channel)) => self.lines.mark_named(&channel),
            // Some were missed.
            Ok(None) | Err(RecvError::Lagged(_)) => self.poll(),
            Err(RecvError::Closed) => unreachable!("the store that sends them is held"),
        }
    }

    /// One query over all lines, unless one is under way.
    fn poll(&mut self) {
        if self.is_polling {
            return;
        }
        let lines = self.lines.all();
        if lines.is_empty() && !self.is_down {
            return;
        }
        self.is_polling = true;
        let store = self.store.clone();
        let poll = async move {
            let names: Vec<&str> = lines.iter().map(|line| &*line.name).collect();
            let positions = channels::positions(&store, &names).await;
            Answer::Polled(lines, positions)
        };
        self.asked.push(poll.boxed());
    }

    fn hear_out(&mut self, answer: Answer) {
        match answer {
            Answer::Read(line, read) => {
                self.reads -= 1;
                match read {
                    // All have gone while it was read: nothing is made of it.
                    _ if !self.lines.has(&line) => {}
                    Ok(Replayed::Page(page)) => self.take(&line, page),
                    Ok(Replayed::Resync(_)) => self.lines.resync(&line),
                    Err(error) => self.could_not_read(&line, &error),
                }
            }
            Answer::Polled(lines, polled) => {
                self.is_polling = false;
                match polled {
                    Ok(positions) => self.compare(&lines, &positions),
                    Err(error) => self.goes_down(&error),
                }
            }
        }
    }

    fn take(&mut self, line: &Arc<Line>, page: channels::Page) {
        let (due, again) = line.take(page);
        if let Some(due) = due {
            self.due.push_back((due, Arc::clone(line)));
        }
        if again {
            self.lines.mark(line);
        }
    }

    /// Reads the lines whose channel has moved.
    fn compare(&mut self, lines: &[Arc<Line>], positions: &Positions) {
        if std::mem::take(&mut self.is_down) {
            tracing::info!("the live stream's notifier goes on");
        }
        for (line, position) in lines.iter().zip(&positions.channels) {
            if line.epoch != positions.epoch {
                self.lines.resync(line);
            } else if line.is_elsewhere(position.floor, position.head) {
                self.lines.mark(line);
            }
        }
    }

    /// Told once, and tried again by the next poll: what one channel has must not hold up others.
    fn could_not_read(&mut self, line: &Arc<Line>, error: &StoreError) {
        let is_first = line.failed();
        if matches!(error, StoreError::Unreachable(_)) {
            self.goes_down(error);
        } else if is_first {
            let (channel, error) = (&*line.name, Chain(error));
            tracing::warn!(channel, %error, "a channel of the live stream cannot be read");
        }
    }

    fn goes_down(&mut self, error: &StoreError) {
        let error = Chain(error);
        if std::mem::replace(&mut self.is_down, true) {
            tracing::debug!(%error, "the live stream's notifier still waits for the state");
        } else {
            tracing::warn!(%error, "the live stream's notifier waits for the state");
        }
    }

    fn flush(&mut self) {
        let now = Instant::now();
        while let Some((due, line)) = self.due.pop_front_if(|(due, _)| *due <= now) {
            line.flush_due(due);
        }
    }
}
