//! Jobs asked for as of a Fetcher: the same request within a while, or while its job has not
//! ended, is the same job.
//!
//! What an identity stands for is a row of `idempotency_keys` that no caller can name: its user
//! and its token are nil. The organization's turn row is locked before it is looked at, so two
//! requests of one identity come one after the other.
//!
//! The same lock keeps a connection and its jobs apart: [`submit()`] looks once more under it at
//! the connections that the job reads, and who would take one from under a job looks under it for
//! jobs, by [`is_in_use`].

use std::time::Duration;

use outport_domain::{
    connection::Connection,
    id::OrganizationId,
    job::{ExportJob, JobKind, JobStatus},
};
use sea_orm::{
    ColumnTrait as _, Condition, ConnectionTrait, EntityTrait as _, IntoActiveModel as _,
    QueryFilter as _, sea_query::OnConflict,
};
use uuid::Uuid;

use crate::{
    Store, StoreError, Tx, connections,
    entity::{idempotency_key, job},
    hints::Topic,
    instant, job_row,
    submit::{self, NewJob, Submitted},
    turns,
};

/// How long a request is the same as an earlier one whose job has ended.
pub const SAME_FOR: Duration = Duration::from_mins(5);

/// How long a row is kept for a job that has not ended: longer than any waits.
const KEPT: Duration = Duration::from_hours(24 * 90);

/// Inserts a job, unless its identity stands for one already. `None` when the stored connections
/// of the names that it reads are not those that were `seen`, one for one, or lead elsewhere now:
/// nothing was written, and no earlier job is the same.
pub async fn submit(
    tx: &mut Tx,
    job: &NewJob,
    identity: [u8; 32],
    seen: &[Connection],
    queued_per_organization: u32,
) -> Result<Option<Submitted>, StoreError> {
    let organization = job.scope.organization.uuid();
    turns::lock(tx, organization).await?;
    // What a job of this kind has for columns are its connections.
    let names: Vec<&str> = job.columns.iter().map(String::as_str).collect();
    let stored = connections::named(tx.connection(), job.scope.organization, &names).await?;
    if !are_the_same(seen, &stored) {
        return Ok(None);
    }
    let key = key_of(&identity);
    let now = tx.now().await?;
    if let Some(known) = known(tx.connection(), organization, key.clone(), now).await? {
        // Claims have passed over the locked turn row.
        tx.touch(Topic::Jobs);
        return Ok(Some(Submitted::Repeated(known)));
    }
    let submitted = submit::submit(tx, job, None, queued_per_organization).await?;
    if let Submitted::Created(job) = &submitted {
        remember(tx, organization, key, identity, job).await?;
    }
    Ok(Some(submitted))
}

/// Both in the order of their ids.
fn are_the_same(seen: &[Connection], stored: &[Connection]) -> bool {
    let same =
        |(one, now): (&Connection, &Connection)| one.product == now.product && one.reads_like(now);
    seen.len() == stored.len() && seen.iter().zip(stored).all(same)
}

/// The job that an identity stands for, looked at without a lock: [`submit()`] decides.
pub async fn known_job(
    store: &Store,
    organization: OrganizationId,
    identity: [u8; 32],
) -> Result<Option<ExportJob>, StoreError> {
    let now = chrono::Utc::now().timestamp_millis();
    known(store.reader(), organization.uuid(), key_of(&identity), now).await
}

fn key_of(identity: &[u8]) -> String {
    format!("fetcher:{}", outport_contract::digest::hex(identity))
}

/// The job that a key stands for, if it still does.
async fn known(
    connection: &impl ConnectionTrait,
    organization: Uuid,
    key: String,
    now: i64,
) -> Result<Option<ExportJob>, StoreError> {
    let id = (organization, Uuid::nil(), Uuid::nil(), key);
    let row = idempotency_key::Entity::find_by_id(id).one(connection).await?;
    let Some(row) = row else { return Ok(None) };
    let Some(row) = job::Entity::find_by_id(row.job_id).one(connection).await? else {
        return Ok(None);
    };
    let ended = job_row::status(&row)?.has_ended();
    let is_same = !ended || row.created_at > now - instant::span(SAME_FOR);
    is_same.then(|| job_row::read(&row)).transpose()
}

async fn remember(
    tx: &mut Tx,
    organization: Uuid,
    key: String,
    identity: [u8; 32],
    job: &ExportJob,
) -> Result<(), StoreError> {
    use idempotency_key::Column;
    let row = idempotency_key::Model {
        organization_id: organization,
        user_id: Uuid::nil(),
        token_id: Uuid::nil(),
        key,
        fingerprint: identity.to_vec(),
        job_id: job.id.uuid(),
        expires_at: tx.now().await? + instant::span(KEPT),
    };
    let latest =
        OnConflict::columns([Column::OrganizationId, Column::UserId, Column::TokenId, Column::Key])
            .update_columns([Column::JobId, Column::ExpiresAt])
            .to_owned();
    idempotency_key::Entity::insert(row.into_active_model())
        .on_conflict(latest)
        .exec_without_returning(tx.connection())
        .await?;
    Ok(())
}

/// Whether a job of this organization that has not ended reads this connection, which exports of
/// these resources do. The answer holds until the transaction ends: no job begins before.
pub async fn is_in_use(
    tx: &mut Tx,
    organization: OrganizationId,
    connection: &str,
    resources: &[&str],
) -> Result<bool, StoreError> {
    turns::lock(tx, organization.uuid()).await?;
    // Claims have passed over the locked turn row.
    tx.touch(Topic::Jobs);
    let exports = Condition::all()
        .add(job::Column::Kind.eq(JobKind::Export.name()))
        .add(job::Column::Resource.is_in(resources.iter().copied()));
    let reading = Condition::any().add(job::Column::Kind.eq(JobKind::Fetcher.name())).add(exports);
    let unfinished = [JobStatus::Pending, JobStatus::Processing, JobStatus::Canceling];
    let rows = job::Entity::find()
        .filter(job::Column::OrganizationId.eq(organization.uuid()))
        .filter(job::Column::Status.is_in(unfinished.map(JobStatus::name)))
        .filter(reading)
        .all(tx.connection())
        .await?;
    for row in &rows {
        let job = job_row::read(row)?;
        // What a job of this kind has for columns are its connections.
        if job.kind == JobKind::Export || job.columns.iter().any(|name| name == connection) {
            return Ok(true);
        }
    }
    Ok(false)
}
