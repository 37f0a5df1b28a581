//! How files and jobs go: deleted by request, expired, purged.

use std::time::Duration;

use outport_contract::export_event::ExportEventType;
use outport_domain::{
    id::{JobId, OrganizationId},
    job::{ExportJob, JobKind, JobStatus, Step},
};
use sea_orm::{
    ColumnTrait as _, EntityTrait as _, QueryFilter as _, QuerySelect as _,
    sea_query::{Expr, ExprTrait as _, Query},
};
use uuid::Uuid;

use crate::{
    StoreError, Tx, channels,
    entity::{delivery, download, event, job, part, receipt, requester, run},
    instant, job_row,
    outbox::{self, NewEvent},
};

/// Marks an ended job's file as deleted by request; the sweeper deletes the object. `None` when
/// there is no such job; the job unchanged when it has not ended.
pub async fn delete_file(
    tx: &mut Tx,
    organization: OrganizationId,
    job: JobId,
) -> Result<Option<ExportJob>, StoreError> {
    let before = job::Entity::find_by_id(job.uuid())
        .filter(job::Column::OrganizationId.eq(organization.uuid()))
        .lock_exclusive()
        .one(tx.connection())
        .await?;
    let Some(before) = before else { return Ok(None) };
    if !job_row::status(&before)?.has_ended() || before.deleted_at.is_some() {
        return job_row::read(&before).map(Some);
    }
    let now = tx.now().await?;
    let row = job::Model { deleted_at: Some(now), updated_at: now, ..before.clone() };
    job_row::save(tx, &before, &row).await?;
    sweep_files(tx, &[row.id], now).await?;
    job_row::read(&row).map(Some)
}

/// Completed jobs whose `expiresAt` has passed become EXPIRED, with their events; at most
/// `most` of them. The sweeper deletes their objects.
pub async fn expire_due(tx: &mut Tx, most: u32) -> Result<Vec<ExportJob>, StoreError> {
    let now = tx.now().await?;
    let sql = format!(
        "SELECT * FROM jobs WHERE status = 'COMPLETED' AND expires_at <= $1 \
         ORDER BY expires_at LIMIT $2 {}",
        tx.engine().skip_locked()
    );
    let statement = tx.engine().statement(sql, [now.into(), i64::from(most).into()]);
    let rows = job::Entity::find().from_raw_sql(statement).all(tx.connection()).await?;
    let mut expired = Vec::with_capacity(rows.len());
    for before in &rows {
        let to = job_row::status(before)?
            .after(Step::Expire)
            .map_err(|illegal| StoreError::Corrupt(illegal.to_string()))?;
        let row = job::Model { status: to.name().to_owned(), updated_at: now, ..before.clone() };
        expired.push(job_row::read(&row)?);
    }
    let ids = rows.iter().map(|row| row.id).collect::<Vec<_>>();
    if !ids.is_empty() {
        job::Entity::update_many()
            .col_expr(job::Column::Status, Expr::value(JobStatus::Expired.name()))
            .col_expr(job::Column::UpdatedAt, Expr::value(now))
            .filter(job::Column::Id.is_in(ids.iter().copied()))
            .exec(tx.connection())
            .await?;
        sweep_files(tx, &ids, now).await?;
        let event = |job| NewEvent::of_export(job, ExportEventType::Expired);
        let exports = expired.iter().filter(|job| job.kind == JobKind::Export);
        let events = exports.map(event).collect::<Result<Vec<_>, _>>()?;
        outbox::emit(tx, events).await?;
    }
    Ok(expired)
}

/// The objects that these jobs name are to be swept.
async fn sweep_files(tx: &Tx, jobs: &[Uuid], now: i64) -> Result<(), StoreError> {
    let named = Query::select()
        .column(job::Column::FileKey)
        .from(job::Entity)
        .and_where(job::Column::Id.is_in(jobs.iter().copied()))
        .and_where(job::Column::FileKey.is_not_null())
        .take();
    run::Entity::update_many()
        .col_expr(run::Column::SweepDueAt, Expr::value(now))
        .filter(run::Column::JobId.is_in(jobs.iter().copied()))
        .filter(Expr::col(run::Column::ObjectKey).in_subquery(named))
        .exec(tx.connection())
        .await?;
    Ok(())
}

/// Deletes ended jobs older than `retention` whose objects are swept and deliveries finished;
/// at most `most` of them. With a job go its runs, parts, requesters, downloads, events and their
/// deliveries and receipts, and its channel.
pub async fn purge(tx: &mut Tx, retention: Duration, most: u32) -> Result<u64, StoreError> {
    let before = tx.now().await? - instant::span(retention);
    let sql = format!(
        "SELECT * FROM jobs WHERE status IN ('FAILED', 'CANCELED', 'EXPIRED') \
         AND finished_at <= $1 \
         AND NOT EXISTS (SELECT 1 FROM runs WHERE job_id = jobs.id AND sweep_due_at IS NOT NULL) \
         AND NOT EXISTS (SELECT 1 FROM events JOIN deliveries ON event_id = events.id \
                         WHERE events.job_id = jobs.id \
                         AND deliveries.status IN ('PENDING', 'RUNNING')) \
         ORDER BY finished_at LIMIT $2 {}",
        tx.engine().skip_locked()
    );
    let statement = tx.engine().statement(sql, [before.into(), i64::from(most).into()]);
    let rows = job::Entity::find().from_raw_sql(statement).all(tx.connection()).await?;
    let ids = rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
    if ids.is_empty() {
        return Ok(0);
    }
    let events = Query::select()
        .column(event::Column::Id)
        .from(event::Entity)
        .and_where(event::Column::JobId.is_in(ids.iter().copied()))
        .take();
    let connection = tx.connection();
    receipt::Entity::delete_many()
        .filter(Expr::col(receipt::Column::EventId).in_subquery(events.clone()))
        .exec(connection)
        .await?;
    delivery::Entity::delete_many()
        .filter(Expr::col(delivery::Column::EventId).in_subquery(events))
        .exec(connection)
        .await?;
    event::Entity::delete_many()
        .filter(event::Column::JobId.is_in(ids.iter().copied()))
        .exec(connection)
        .await?;
    part::Entity::delete_many()
        .filter(part::Column::JobId.is_in(ids.iter().copied()))
        .exec(connection)
        .await?;
    run::Entity::delete_many()
        .filter(run::Column::JobId.is_in(ids.iter().copied()))
        .exec(connection)
        .await?;
    requester::Entity::delete_many()
        .filter(requester::Column::JobId.is_in(ids.iter().copied()))
        .exec(connection)
        .await?;
    download::Entity::delete_many()
        .filter(download::Column::JobId.is_in(ids.iter().copied()))
        .exec(connection)
        .await?;
    let deleted = job::Entity::delete_many()
        .filter(job::Column::Id.is_in(ids.iter().copied()))
        .exec(connection)
        .await?;
    channels::forget(tx, &ids).await?;
    Ok(deleted.rows_affected)
}
