//! Deliveries: the duty of one handler towards one event, claimed, leased and fenced by the
//! same words as jobs; and the receipts that make doing it twice harmless.

mod attempt;
mod handlers;
mod many;
mod receipts;
mod view;

use std::time::Duration;

use chrono::{DateTime, Utc};
use outport_domain::id::DeliveryId;
use uuid::Uuid;

use crate::events::StoredEvent;

#[cfg(test)]
pub(crate) use attempt::due;
pub use attempt::{claim, finish, next_due, renew};
pub use handlers::{
    HandlerView, backfill, handlers, reconcile, reconcile_all, register, restore, retire,
};
pub use many::{finish_all, oldest_unfinished, record_receipts, renew_all};
pub use receipts::{receipt, record_receipt};
pub use view::{find, list, retry};

/// A compiled handler, as the synchronous path sees it: data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerRow {
    /// Its name.
    pub name: String,
    /// The event types it wants.
    pub event_types: Vec<String>,
}

/// Where a delivery is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryStatus {
    /// Waits until it is due.
    Pending,
    /// A relay has its lease.
    Running,
    /// Done.
    Done,
    /// Given up after the last attempt; can be retried by hand.
    Dead,
}

impl DeliveryStatus {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Running, Self::Done, Self::Dead];

    /// The name on the wire, e.g. `PENDING`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Done => "DONE",
            Self::Dead => "DEAD",
        }
    }

    /// The status with this wire name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// What is not done, for a FROM: by two partial indexes, of what is due and of what is dead.
pub(crate) const NOT_DONE: &str = "(SELECT * FROM deliveries WHERE status IN ('PENDING', 'RUNNING') \
     UNION ALL SELECT * FROM deliveries WHERE status = 'DEAD') AS not_done";

/// The fence of one attempt at a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryFence {
    /// Which delivery.
    pub delivery: DeliveryId,
    /// Which attempt; only ever grows.
    pub run: u32,
    /// Fresh with every claim.
    pub lease_token: Uuid,
}

/// One attempt, given to one relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryClaim {
    /// What every write of this attempt must name.
    pub fence: DeliveryFence,
    /// The event.
    pub event: StoredEvent,
    /// Whose duty it is.
    pub handler: String,
    /// To whom, for handlers with several targets; empty otherwise.
    pub target: String,
    /// Attempts that failed before.
    pub failures: u32,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryEnd {
    /// Done.
    Done,
    /// Try again after this pause.
    Retry {
        /// What went wrong, redacted.
        error: String,
        /// How long to wait.
        pause: Duration,
    },
    /// Given up.
    Dead {
        /// What went wrong, redacted.
        error: String,
    },
    /// The relay is stopping: due again at once, no failure.
    HandedBack,
}

/// A delivery as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the members are those of the API's reference")]
pub struct DeliveryView {
    pub id: DeliveryId,
    pub event: StoredEvent,
    pub handler: String,
    pub target: String,
    pub status: DeliveryStatus,
    pub attempts: u32,
    pub failures: u32,
    pub due_at: DateTime<Utc>,
    pub last_error: Option<String>,
    pub finished_at: Option<DateTime<Utc>>,
    pub receipt: Option<String>,
}

/// Which deliveries a list shows.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    /// Only with this status.
    pub status: Option<DeliveryStatus>,
    /// Only of this handler.
    pub handler: Option<String>,
    /// Only of this job.
    pub job: Option<outport_domain::id::JobId>,
}
