//! Events: committed facts with frozen bodies. They are written by the job functions, in the
//! transaction that makes the fact true.

use chrono::{DateTime, Utc};
use outport_domain::id::{EventId, JobId, OrganizationId};

use crate::{Store, StoreError};

/// An event as committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its id.
    pub id: EventId,
    /// E.g. `export.completed`.
    pub event_type: String,
    /// The job it tells of.
    pub job: JobId,
    /// The tenant.
    pub organization: OrganizationId,
    /// The frozen body, JSON text.
    pub body: String,
    /// When it was committed.
    pub created_at: DateTime<Utc>,
}

/// The events of a job, oldest first.
pub async fn of_job(
    store: &Store,
    organization: OrganizationId,
    job: JobId,
) -> Result<Vec<StoredEvent>, StoreError> {
    todo!()
}
