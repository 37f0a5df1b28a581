//! Deliveries: the duty of one handler towards one event, claimed, leased and fenced by the
//! same words as jobs; and the receipts that make doing it twice harmless.

use std::time::Duration;

use chrono::{DateTime, Utc};
use outport_domain::id::{DeliveryId, EventId, OrganizationId};
use uuid::Uuid;

use crate::{Page, PageRequest, Store, StoreError, Tx, events::StoredEvent};

/// A compiled handler, as the synchronous path sees it: data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerRow {
    /// Its name.
    pub name: String,
    /// The event types it wants.
    pub event_types: Vec<String>,
}

/// Registers handlers: adds what is new (with `registered_at` now), never removes. Idempotent.
pub async fn register(tx: &mut Tx, handlers: &[HandlerRow]) -> Result<(), StoreError> {
    todo!()
}

/// Retires a handler: no new deliveries from now on. `false` when it is not registered.
pub async fn retire(tx: &mut Tx, handler: &str) -> Result<bool, StoreError> {
    todo!()
}

/// Inserts deliveries that are missing for events since each active handler's registration.
/// Returns how many.
pub async fn reconcile(tx: &mut Tx) -> Result<u64, StoreError> {
    todo!()
}

/// Inserts deliveries for this organization's events since `since`, older than the handler's
/// registration. Returns how many; `None` when the handler is not registered.
pub async fn backfill(
    tx: &mut Tx,
    organization: OrganizationId,
    handler: &str,
    since: DateTime<Utc>,
) -> Result<Option<u64>, StoreError> {
    todo!()
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

/// Takes up to `most` due deliveries of one handler, oldest due first, those with an expired
/// lease included (an expired lease counts as a failure). The caller commits at once.
pub async fn claim(
    tx: &mut Tx,
    handler: &str,
    lease: Duration,
    most: u32,
) -> Result<Vec<DeliveryClaim>, StoreError> {
    todo!()
}

/// When the next delivery of these handlers becomes due (an expiring lease included).
pub async fn next_due(
    store: &Store,
    handlers: &[&str],
) -> Result<Option<DateTime<Utc>>, StoreError> {
    todo!()
}

/// Renews a lease by run and token. `false`: it is lost.
pub async fn renew(
    store: &Store,
    fence: &DeliveryFence,
    lease: Duration,
) -> Result<bool, StoreError> {
    todo!()
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

/// Ends an attempt, fenced. `false`: the lease was lost, nothing was written.
pub async fn finish(
    tx: &mut Tx,
    fence: &DeliveryFence,
    end: &DeliveryEnd,
) -> Result<bool, StoreError> {
    todo!()
}

/// The receipt of (event, handler, target), if there is one.
pub async fn receipt(
    store: &Store,
    event: EventId,
    handler: &str,
    target: &str,
) -> Result<Option<String>, StoreError> {
    todo!()
}

/// Records a receipt; the first one stays. Its unique key is what makes a handler idempotent.
pub async fn record_receipt(
    tx: &mut Tx,
    event: EventId,
    handler: &str,
    target: &str,
    receipt: &str,
) -> Result<(), StoreError> {
    todo!()
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

/// Deliveries of this organization, newest first.
pub async fn list(
    store: &Store,
    organization: OrganizationId,
    filter: &DeliveryFilter,
    page: PageRequest,
) -> Result<Page<DeliveryView>, StoreError> {
    todo!()
}

/// A delivery of this organization.
pub async fn find(
    store: &Store,
    organization: OrganizationId,
    delivery: DeliveryId,
) -> Result<Option<DeliveryView>, StoreError> {
    todo!()
}

/// Makes a dead delivery due again at once with a fresh budget; others stay as they are.
/// `None` when there is no such delivery in this organization.
pub async fn retry(
    tx: &mut Tx,
    organization: OrganizationId,
    delivery: DeliveryId,
) -> Result<Option<DeliveryView>, StoreError> {
    todo!()
}
