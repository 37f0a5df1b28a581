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

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

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
/// Of so many places, one may be held by a connection that has not said who it is.
const NEWCOMERS_OF: usize = 4;
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
    newcomers: Arc<Semaphore>,
    standing: watch::Sender<Standing>,
    leaving: CancellationToken,
    open: TaskTracker,
}

/// A connection's place, given back when it is dropped.
pub struct Admitted {
    /// Until it has said who it is.
    newcomer: Option<OwnedSemaphorePermit>,
    _room: OwnedSemaphorePermit,
    _open: TaskTrackerToken,
}

impl Admitted {
    /// It has said who it is.
    pub fn is_known(&mut self) {
        self.newcomer = None;
    }
}

impl Streams {
    /// Nobody is told anything before [`Streams::run`].
    pub fn new(store: Store, config: StreamConfig) -> Self {
        Self {
            notifier: Notifier::new(store.clone(), config.notifier.clone()),
            room: Arc::new(Semaphore::new(config.connections)),
            newcomers: Arc::new(Semaphore::new(config.connections.div_ceil(NEWCOMERS_OF))),
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

    /// A place for one more connection. Those that have not said who they are cannot take all.
    pub fn admit(&self, is_known: bool) -> Result<Admitted, Problem> {
        let full = |detail: &str| {
            let pause = Duration::from_secs(rand::random_range(2..=10));
            Problem::new(ProblemCode::AtCapacity, detail).retry_after(pause)
        };
        if self.leaving.is_cancelled() {
            return Err(full("This process is stopping."));
        }
        let place = |of: &Arc<Semaphore>| {
            let place = Arc::clone(of).try_acquire_owned();
            place.map_err(|_| full("This process serves as many streams as it may."))
        };
        let newcomer = if is_known { None } else { Some(place(&self.newcomers)?) };
        Ok(Admitted { newcomer, _room: place(&self.room)?, _open: self.open.token() })
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
        let mut read = Moment::now();
        loop {
            // The process may have stood still, or the machine: what was revoked meanwhile may be
            // longer ago than what is looked at, so nobody is told anything before that is known.
            if read.is_over(self.config.access_blind) {
                self.lapse();
            }
            let blind_at = read.at + self.config.access_blind;
            let asked = Moment::now();
            let deadline = blind_at.max(asked.at + self.config.access_every);
            let look = access::revoked_lately(&self.store, LATELY);
            match tokio::time::timeout_at(deadline, look).await {
                Ok(Ok(revoked)) => {
                    read = asked;
                    self.publish(|standing| Standing { revoked, is_blind: false, ..standing });
                }
                failed => {
                    if let Ok(Err(error)) = failed {
                        let error = told(&error);
                        tracing::warn!(error, "it cannot be read whose access ended");
                    }
                    if Instant::now() >= blind_at {
                        self.lapse();
                    }
                }
            }
            let next = Instant::now() + self.config.access_every;
            let blind_at = read.at + self.config.access_blind;
            let soon = if blind_at > Instant::now() { next.min(blind_at) } else { next };
            tokio::time::sleep_until(soon).await;
        }
    }

    /// It is not known whose access ended, from now until it is read again.
    fn lapse(&self) {
        self.publish(|standing| {
            let lapses = standing.lapses + u64::from(!standing.is_blind);
            Standing { is_blind: true, lapses, ..standing }
        });
    }

    fn publish(&self, change: impl FnOnce(Standing) -> Standing) {
        self.standing.send_if_modified(|known| {
            let standing = change(known.clone());
            let is_new = *known != standing;
            *known = standing;
            is_new
        });
    }
}

/// A moment by both clocks: one may be set, and the other stands still while the machine does.
#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self { at: Instant::now(), wall: SystemTime::now() }
    }

    /// Whether it is longer ago than this, by one of the clocks.
    fn is_over(&self, time: Duration) -> bool {
        self.at.elapsed() > time || self.wall.elapsed().is_ok_and(|elapsed| elapsed > time)
    }
}

#[cfg(test)]
mod tests {
    use outport_domain::{
        caller::Caller,
        id::{OrganizationId, UserId},
    };
    use outport_store::StoreConfig;

    use super::{visitor::Over, *};
    use crate::auth::Identity;

    async fn streams(folder: &tempfile::TempDir) -> Streams {
        let config = StoreConfig {
            url: format!("sqlite://{}", folder.path().join("state.db").display()),
            max_connections: 1,
            acquire_timeout: Duration::from_secs(10),
        };
        let store = Store::connect(&config).await.expect("a store");
        Streams::new(store, StreamConfig::default())
    }

    /// What was revoked during it may not be among what is looked at afterwards.
    #[tokio::test]
    async fn whoever_was_here_during_a_lapse_is_not_believed_after_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let streams = streams(&folder).await;
        let visitor = || {
            let owner = UserId::new();
            let caller = Caller {
                organization: OrganizationId::new(),
                companies: None,
                cooperatives: None,
                user: owner,
                email: None,
                name: None,
                locale: None,
                scopes: std::collections::BTreeSet::new(),
                token: None,
            };
            streams.visitor(Identity { caller, owner, expires_at: None })
        };
        let early = visitor();
        assert_eq!(early.over(), None);
        streams.lapse();
        streams.lapse();
        assert_eq!(visitor().over(), Some(Over::Unknown));
        streams.publish(|standing| Standing { is_blind: false, ..standing });
        assert_eq!(early.over(), Some(Over::Unknown));
        assert_eq!(visitor().over(), None);
    }

    #[test]
    fn a_moment_is_over_by_either_clock() {
        let now = Moment::now();
        assert!(!now.is_over(Duration::from_mins(1)));
        // The machine slept: its own clock stood still.
        let wall = now.wall - Duration::from_mins(2);
        assert!(Moment { wall, ..now }.is_over(Duration::from_mins(1)));
        // Somebody set the wall clock back.
        let wall = now.wall + Duration::from_mins(2);
        assert!(!Moment { wall, ..now }.is_over(Duration::from_mins(1)));
    }
}
