//! The relay: `tick` looks once, `run` is the dumb loop around it.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use outport_contract::redaction::Chain;
use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    limits::Limits,
};
use outport_store::{
    Store, StoreError, Tx,
    deliveries::{self, DeliveryClaim},
    hints::Topic,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    attempt::{self, Surroundings},
    batch::BatchHandler,
    handler::Handler,
    pause::full_jitter,
    registry::{Registered, Registry},
    window,
};

/// The longest sleep: hints may be lost.
const POLL: Duration = Duration::from_secs(1);
/// The shortest sleep before a due time: what is due but locked by another relay, or by a clock
/// that differs from the database's, must not become a spin.
const SHORTEST: Duration = Duration::from_millis(50);
/// Every handler can do two things at once, so that one hanging event delays no other.
const FEWEST_SLOTS: usize = 2;
/// Windows of a batch handler at once: one is claimed or recorded while another is told.
const WINDOWS: usize = 3;
/// Time that handing back may take at a stop.
const HAND_BACK: Duration = Duration::from_secs(5);

/// What one look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many deliveries were claimed and are running: look again at once.
    Worked(usize),
    /// Nothing waits.
    Idle,
    /// Nothing is due before this instant.
    RetryAt(DateTime<Utc>),
}

/// Claims due deliveries of the handlers that this process has, and runs them. Dropped, it stops
/// as if killed: leases run out and the deliveries are claimed again.
pub struct Relay {
    around: Arc<Surroundings>,
    desks: Vec<Desk>,
    running: JoinSet<()>,
}

/// A handler and its own share of the process, so that no handler waits for another.
struct Desk {
    handler: Registered,
    slots: Arc<Semaphore>,
}

impl Desk {
    fn new(handler: Registered, share: usize) -> Self {
        let slots = match handler {
            Registered::One(_) => share,
            Registered::Batch(_) => WINDOWS,
        };
        Self { handler, slots: Arc::new(Semaphore::new(slots)) }
    }

    /// Whether a claim is of use now.
    fn is_open(&self) -> bool {
        let is_ready = match &self.handler {
            Registered::One(_) => true,
            Registered::Batch(handler) => handler.is_ready(),
        };
        is_ready && self.slots.available_permits() > 0
    }

    fn take_slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Claims as far as slots are free: a delivery a slot, or one window.
    async fn claim(&self, tx: &mut Tx, lease: Duration) -> Result<Vec<Task>, StoreError> {
        let name = self.handler.name();
        match &self.handler {
            Registered::One(handler) => {
                let slots: Vec<_> = std::iter::from_fn(|| self.take_slot()).collect();
                let claims = deliveries::claim(tx, name, lease, slots.len() as u32).await?;
                let task = |(claim, slot)| Task::One(Arc::clone(handler), Box::new(claim), slot);
                Ok(claims.into_iter().zip(slots).map(task).collect())
            }
            Registered::Batch(handler) => {
                let Some(slot) = self.take_slot() else { return Ok(Vec::new()) };
                let claims = deliveries::claim(tx, name, lease, handler.window() as u32).await?;
                let task = |claims| Task::Window(Arc::clone(handler), claims, slot);
                Ok(Some(claims).filter(|claims| !claims.is_empty()).map(task).into_iter().collect())
            }
        }
    }
}

/// What was claimed, with the slot that it runs in.
enum Task {
    One(Arc<dyn Handler>, Box<DeliveryClaim>, OwnedSemaphorePermit),
    Window(Arc<dyn BatchHandler>, Vec<DeliveryClaim>, OwnedSemaphorePermit),
}

impl Task {
    fn deliveries(&self) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Window(_, claims, _) => claims.len(),
        }
    }

    async fn carry_out(self, around: Arc<Surroundings>) {
        let _slot = match self {
            Self::One(handler, claim, slot) => {
                attempt::carry_out(around, handler, *claim).await;
                slot
            }
            Self::Window(handler, claims, slot) => {
                window::carry_out(around, handler, claims).await;
                slot
            }
        };
    }
}

impl Relay {
    /// A relay that has not looked yet.
    pub fn new(store: Store, registry: Registry, limits: Limits, crash: CrashPlan) -> Self {
        let handlers = registry.into_handlers();
        let share = (limits.handlers_at_once / handlers.len().max(1)).max(FEWEST_SLOTS);
        let desks = handlers.into_iter().map(|handler| Desk::new(handler, share)).collect();
        let hand_back = CancellationToken::new();
        let around = Arc::new(Surroundings { store, limits, crash, hand_back });
        Self { around, desks, running: JoinSet::new() }
    }

    /// Looks once: claims what is due as far as slots are free, commits, and starts it. The
    /// handlers run on; [`Self::settle`] waits for them.
    pub async fn tick(&mut self) -> Result<Outcome, StoreError> {
        while self.running.try_join_next().is_some() {}
        let claimed = self.claim().await?;
        if claimed.is_empty() {
            return self.when_next().await;
        }
        self.around.crash.reach(CrashPoint::AfterDeliveryClaim).await;
        let count = claimed.iter().map(Task::deliveries).sum();
        for task in claimed {
            self.running.spawn(task.carry_out(Arc::clone(&self.around)));
        }
        Ok(Outcome::Worked(count))
    }

    /// Waits until no handler runs.
    pub async fn settle(&mut self) {
        while self.running.join_next().await.is_some() {}
    }

    /// Looks, and looks again whenever something may be due, until `stop`. Then it claims no
    /// more, gives running handlers the drain time, and hands the rest back.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut hint = self.around.store.subscribe(Topic::Deliveries);
        let mut failures = 0;
        while !stop.is_cancelled() {
            hint.borrow_and_update();
            let outcome = self.tick().await;
            failures = if outcome.is_ok() { 0 } else { failures + 1 };
            let pause = match outcome {
                Ok(Outcome::Worked(_)) => continue,
                Ok(Outcome::Idle) => POLL,
                Ok(Outcome::RetryAt(due)) => {
                    (due - Utc::now()).to_std().unwrap_or_default().clamp(SHORTEST, POLL)
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "looking for deliveries failed");
                    let most = Duration::from_secs(10);
                    SHORTEST + full_jitter(Duration::from_millis(250), most, failures)
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                // Hints of a store that just failed would make the pause void.
                Ok(()) = hint.changed(), if failures == 0 => {}
                // A free slot may be waited for.
                Some(_) = self.running.join_next(), if failures == 0 => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.drain().await;
    }

    async fn drain(&mut self) {
        if tokio::time::timeout(self.around.limits.drain, self.settle()).await.is_ok() {
            return;
        }
        tracing::info!(running = self.running.len(), "handing deliveries back");
        self.around.hand_back.cancel();
        if tokio::time::timeout(HAND_BACK, self.settle()).await.is_err() {
            tracing::warn!(running = self.running.len(), "deliveries are left to their leases");
        }
    }

    /// One short transaction over all handlers with free slots. Slots are taken first and move
    /// with the claim, so no claimed delivery ever waits for one.
    async fn claim(&self) -> Result<Vec<Task>, StoreError> {
        let open: Vec<_> = self.desks.iter().filter(|desk| desk.is_open()).collect();
        if open.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = self.around.store.begin().await?;
        let mut claimed = Vec::new();
        for desk in open {
            claimed.extend(desk.claim(&mut tx, self.around.limits.lease).await?);
        }
        if !claimed.is_empty() {
            self.around.crash.reach(CrashPoint::BeforeDeliveryClaim).await;
        }
        tx.commit().await?;
        Ok(claimed)
    }

    /// When the next delivery is due that there is a free slot for.
    async fn when_next(&self) -> Result<Outcome, StoreError> {
        let free: Vec<_> = self
            .desks
            .iter()
            .filter(|desk| desk.is_open())
            .map(|desk| desk.handler.name())
            .collect();
        if free.is_empty() {
            return Ok(Outcome::Idle);
        }
        let due = deliveries::next_due(&self.around.store, &free).await?;
        Ok(due.map_or(Outcome::Idle, Outcome::RetryAt))
    }
}
