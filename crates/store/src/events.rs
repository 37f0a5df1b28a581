//! Events: committed facts with frozen bodies. They are written by the job functions, in the
//! transaction that makes the fact true.

use chrono::{DateTime, Utc};
use outport_domain::id::{EventId, JobId, OrganizationId};
use sea_orm::{ColumnTrait as _, EntityTrait as _, QueryFilter as _, QueryOrder as _};

use crate::{
    Store, StoreError,
    entity::event::{Column, Entity, Model},
    instant,
};

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
    let rows = Entity::find()
        .filter(Column::JobId.eq(job.uuid()))
        .filter(Column::OrganizationId.eq(organization.uuid()))
        .order_by_asc(Column::CreatedAt)
        .order_by_asc(Column::Id)
        .all(store.reader())
        .await?;
    rows.into_iter().map(read).collect()
}

/// The event that a row tells of.
pub(crate) fn read(row: Model) -> Result<StoredEvent, StoreError> {
    Ok(StoredEvent {
        id: EventId::from_uuid(row.id),
        event_type: row.event_type,
        job: JobId::from_uuid(row.job_id),
        organization: OrganizationId::from_uuid(row.organization_id),
        body: row.body,
        created_at: instant::at(row.created_at)?,
    })
}
