//! The live stream: channels followed over server-sent events and `WebSocket`s.
//!
//! **Words.** A *visitor* is who follows, as long as its access lasts. A *feed* is one channel for
//! one visitor: what is stored after its cursor first, then what is broadcast. To *leave* is to
//! end a connection because the process stops.
//!
//! **Invariants.** A feed's messages name every sequence after its cursor, in order, each in a
//! batch or below a pointer. Whoever does not read holds up itself alone: its queue is bounded,
//! the broadcast does not wait for it. When access ends, the visitor is told so, and of nothing
//! that happened before and had not been sent.
//!
//! **Absent on purpose.** What others subscribe to, and anything that only this process knows: a
//! client goes on at any other process from its cursor.

pub mod feed;
pub mod frames;
pub mod notice;
mod outbox;
pub mod socket;
pub mod sse;
pub mod tickets;
pub mod visitor;

use std::{sync::Arc, time::Duration};

use outport_contract::redaction::told;
use outport_relay::notifier::{Notifier, NotifierConfig};
use outport_store::{Store, access};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use self::visitor::Standing;
use super::problem::{Problem, ProblemCode};

/// What was revoked longer ago is refused at the door.
const LATELY: Duration = Duration::from_mins(5);
/// Between the ends of two connections when the process stops, unless there are too many.
const APART: Duration = Duration::from_millis(5);

/// How the live stream works.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// How the notifier works.
    pub notifier: NotifierConfig,
    /// How often a quiet channel is told where it is.
    pub heartbeat: Duration,
    /// Bytes of messages that wait for one connection.
    pub queue_bytes: usize,
    /// Channels of one connection.
    pub channels: usize,
    /// Connections of this process.
    pub connections: usize,
    /// How often it is looked at whose access ended.
    pub access_every: Duration,
    /// How long streams go on while that cannot be looked at.
    pub access_blind: Duration,
    /// Time that a WebSocket has to say who it is.
    pub auth_time: Duration,
    /// Time that a message may wait for its client to take it.
    pub stall: Duration,
    /// Life of a ticket.
    pub ticket: Duration,
    /// Time in which connections end when the process stops.
    pub drain: Duration,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            notifier: NotifierConfig::default(),
            heartbeat: Duration::from_secs(15),
            queue_bytes: 1024 * 1024,
            channels: 128,
            connections: 20_000,
            access_every: Duration::from_secs(2),
            access_blind: Duration::from_secs(5),
            auth_time: Duration::from_secs(5),
            stall: Duration::from_secs(30),
            ticket: Duration::from_mins(1),
            drain: Duration::from_secs(30),
        }
    }
}

/// The live streams of this process.
pub struct Streams {
    store: Store,
    config: StreamConfig,
    notifier: Notifier,
    room: Arc<Semaphore>,
    standing: watch::Sender<Standing>,
    leaving: CancellationToken,
    open: TaskTracker,
}

/// A connection's place, given back when it is dropped.
pub struct Admitted {
    _room: OwnedSemaphorePermit,
    _open: TaskTrackerToken,
}

impl Streams {
    /// Nobody is told anything before [`Streams::run`].
    pub fn new(store: Store, config: StreamConfig) -> Self {
        Self {
            notifier: Notifier::new(store.clone(), config.notifier.clone()),
            room: Arc::new(Semaphore::new(config.connections)),
            standing: watch::Sender::default(),
            leaving: CancellationToken::new(),
            open: TaskTracker::new(),
            store,
            config,
        }
    }

    /// How it works.
    pub fn config(&self) -> &StreamConfig {
        &self.config
    }

    /// What broadcasts.
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// A place for one more connection.
    pub fn admit(&self) -> Result<Admitted, Problem> {
        let full = |detail: &str| {
            let pause = Duration::from_secs(rand::random_range(2..=10));
            Problem::new(ProblemCode::AtCapacity, detail).retry_after(pause)
        };
        if self.leaving.is_cancelled() {
            return Err(full("This process is stopping."));
        }
        let room = Arc::clone(&self.room).try_acquire_owned();
        let room = room.map_err(|_| full("This process serves as many streams as it may."))?;
        Ok(Admitted { _room: room, _open: self.open.token() })
    }

    /// Broadcasts, and looks at whose access ended, until `stop` and until everybody has left.
    pub async fn run(&self, stop: CancellationToken) {
        let silence = CancellationToken::new();
        let notifier = self.notifier.clone();
        let broadcast = tokio::spawn({
            let silence = silence.clone();
            async move { notifier.run(silence).await }
        });
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.watch_access() => {}
        }
        self.leaving.cancel();
        self.open.close();
        tokio::select! {
            () = self.open.wait() => {}
            () = self.watch_access() => {}
            () = tokio::time::sleep(self.config.drain) => {}
        }
        silence.cancel();
        if let Err(error) = broadcast.await {
            tracing::error!(%error, "the notifier ended badly");
        }
    }

    /// Ends when it is this connection's turn to leave: all of them do so one after the other,
    /// within most of the drain time.
    pub async fn departure(&self) {
        self.leaving.cancelled().await;
        let most = self.config.drain.mul_f64(0.8);
        let window = APART.saturating_mul(self.open.len() as u32).min(most);
        tokio::time::sleep(window.mul_f64(rand::random())).await;
    }

    /// Never ends.
    async fn watch_access(&self) {
        let mut read_at = Instant::now();
        loop {
            let blind_at = read_at + self.config.access_blind;
            let asked_at = Instant::now();
            let deadline = blind_at.max(asked_at + self.config.access_every);
            let look = access::revoked_lately(&self.store, LATELY);
            match tokio::time::timeout_at(deadline, look).await {
                Ok(Ok(revoked)) => {
                    read_at = asked_at;
                    self.publish(Standing { revoked, is_blind: false });
                }
                failed => {
                    if let Ok(Err(error)) = failed {
                        let error = told(&error);
                        tracing::warn!(error, "it cannot be read whose access ended");
                    }
                    if Instant::now() >= blind_at {
                        let revoked = self.standing.borrow().revoked.clone();
                        self.publish(Standing { revoked, is_blind: true });
                    }
                }
            }
            let next = Instant::now() + self.config.access_every;
            let blind_at = read_at + self.config.access_blind;
            let soon = if blind_at > Instant::now() { next.min(blind_at) } else { next };
            tokio::time::sleep_until(soon).await;
        }
    }

    fn publish(&self, standing: Standing) {
        self.standing.send_if_modified(|known| {
            let is_new = *known != standing;
            *known = standing;
            is_new
        });
    }
}
