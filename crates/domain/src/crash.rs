//! The named places where a process may die, always compiled, a no-op in production.
//!
//! A test arms one point of a real process through its configuration (the process aborts
//! there), or of an in-process worker through a [`Gate`] (the task stops there until it is
//! released or dropped).

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::{Notify, Semaphore};

/// A place in the one natural way where the process may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say where, in the order of a job's life")]
pub enum CrashPoint {
    BeforeClaimCommit,
    AfterClaim,
    MidRows,
    MidUpload,
    AfterUpload,
    AfterVerify,
    BeforeCommit,
    AfterCommit,
    BeforeDeliveryClaim,
    AfterDeliveryClaim,
    AfterSend,
    BeforeReceipt,
    AfterConfirm,
    DuringSweep,
}

impl CrashPoint {
    /// All of them, in the order of a job's life.
    pub const ALL: [Self; 14] = [
        Self::BeforeClaimCommit,
        Self::AfterClaim,
        Self::MidRows,
        Self::MidUpload,
        Self::AfterUpload,
        Self::AfterVerify,
        Self::BeforeCommit,
        Self::AfterCommit,
        Self::BeforeDeliveryClaim,
        Self::AfterDeliveryClaim,
        Self::AfterSend,
        Self::BeforeReceipt,
        Self::AfterConfirm,
        Self::DuringSweep,
    ];

    /// The point with this name (as written in [`CrashPoint::ALL`]), if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.to_string() == name)
    }
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What happens at the crash points of one process.
#[derive(Clone, Debug, Default)]
pub struct CrashPlan(Option<Armed>);

#[derive(Clone, Debug)]
struct Armed {
    point: CrashPoint,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Abort,
    Pause(Arc<Shared>),
}

#[derive(Debug)]
struct Shared {
    reached: Notify,
    open: Semaphore,
}

/// The test's side of a paused crash point.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Shared>);

impl CrashPlan {
    /// Nothing ever happens: production.
    pub const fn none() -> Self {
        Self(None)
    }

    /// The process aborts, as if killed, when it first gets to this point.
    pub const fn aborting(point: CrashPoint) -> Self {
        Self(Some(Armed { point, action: Action::Abort }))
    }

    /// Every task that gets to this point waits for the gate.
    pub fn pausing(point: CrashPoint) -> (Self, Gate) {
        let shared = Arc::new(Shared { reached: Notify::new(), open: Semaphore::new(0) });
        let plan = Self(Some(Armed { point, action: Action::Pause(Arc::clone(&shared)) }));
        (plan, Gate(shared))
    }

    /// Says that the caller is at this point.
    pub async fn reach(&self, point: CrashPoint) {
        let Some(armed) = self.0.as_ref().filter(|armed| armed.point == point) else { return };
        match &armed.action {
            Action::Abort => std::process::abort(),
            Action::Pause(shared) => {
                shared.reached.notify_one();
                // A closed semaphore is an open gate.
                let _closed = shared.open.acquire().await;
            }
        }
    }
}

impl Gate {
    /// Waits until a task stands at the point. Panics after `patience`: the point was not reached.
    pub async fn reached(&self, patience: Duration) {
        tokio::time::timeout(patience, self.0.reached.notified())
            .await
            .expect("no task reached the crash point in time");
    }

    /// Lets all tasks through, now and later.
    pub fn open(&self) {
        self.0.open.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_found_by_its_name() {
        for point in CrashPoint::ALL {
            assert_eq!(CrashPoint::from_name(&point.to_string()), Some(point));
        }
    }

    #[tokio::test]
    async fn a_paused_task_goes_on_when_the_gate_opens() {
        let (plan, gate) = CrashPlan::pausing(CrashPoint::AfterClaim);
        plan.reach(CrashPoint::MidRows).await;
        let task = tokio::spawn(async move { plan.reach(CrashPoint::AfterClaim).await });
        gate.reached(Duration::from_secs(5)).await;
        assert!(!task.is_finished());
        gate.open();
        task.await.expect("the task ends");
    }
}
