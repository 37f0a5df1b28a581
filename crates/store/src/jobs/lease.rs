//! What a run's owner does while it runs: renew, look, record.

use std::{collections::HashMap, time::Duration};

use outport_domain::{
    id::{Fence, Id},
    job::{JobStatus, Progress},
    object_key::ObjectKey,
};
use sea_orm::{
    ColumnTrait as _, ConnectionTrait as _, EntityTrait as _, QueryFilter as _, QuerySelect as _,
    Value, sea_query::Expr,
};

use super::Hold;
use crate::{
    Store, StoreError, Tx,
    entity::{job, run},
    instant, job_row, parts,
    telling::{self, Account},
};

/// The part of a WHERE clause that every write of a run names ($1 job, $2 run, $3 token). Not
/// the expiry: an outage of the database kills no healthy run.
const HELD: &str =
    "id = $1 AND run = $2 AND lease_token = $3 AND status IN ('PROCESSING', 'CANCELING')";

fn fence_values(fence: &Fence) -> [Value; 3] {
    [fence.job.uuid().into(), (fence.run as i32).into(), fence.lease_token.into()]
}

/// Whether a row still belongs to a fence.
pub fn holds(row: &job::Model, fence: &Fence) -> Result<Hold, StoreError> {
    let own = row.run == fence.run as i32 && row.lease_token == Some(fence.lease_token);
    Ok(match job_row::status(row)? {
        JobStatus::Processing if own => Hold::Held,
        JobStatus::Canceling if own => Hold::CancelRequested,
        _ => Hold::Lost,
    })
}

/// Renews a lease by run and token (not by expiry: an outage of the database kills no healthy
/// run).
pub async fn renew(store: &Store, fence: &Fence, lease: Duration) -> Result<Hold, StoreError> {
    let set = format!("lease_expires_at = {} + $4", store.engine().now());
    update_held(store, fence, &set, [instant::span(lease).into()]).await
}

/// Records how far the run is, and what it has to tell the live stream: fenced. Of a run that has
/// lost its lease nothing is told.
pub async fn record_progress(
    store: &Store,
    fence: &Fence,
    progress: &Progress,
    account: &Account,
) -> Result<Hold, StoreError> {
    let sql = format!(
        "UPDATE jobs SET stage = $4, rows_done = $5, rows_total = $6, \
         rows_total_is_estimate = $7, updated_at = {} WHERE {HELD} RETURNING *",
        store.engine().now()
    );
    let values = [
        progress.stage.map(|stage| stage.name().to_owned()).into(),
        (progress.done as i64).into(),
        progress.total.map(|rows| rows as i64).into(),
        progress.total_is_estimate.into(),
    ];
    let mut tx = store.begin().await?;
    let statement = tx.engine().statement(sql, fence_values(fence).into_iter().chain(values));
    let row = job::Entity::find().from_raw_sql(statement).one(tx.connection()).await?;
    let Some(row) = row else { return Ok(Hold::Lost) };
    telling::tell_account(&mut tx, &row, account).await?;
    tx.commit().await?;
    holds(&row, fence)
}

async fn update_held(
    store: &Store,
    fence: &Fence,
    set: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Hold, StoreError> {
    let sql = format!("UPDATE jobs SET {set} WHERE {HELD} RETURNING status");
    let statement = store.engine().statement(sql, fence_values(fence).into_iter().chain(values));
    let Some(row) = store.writer().query_one_raw(statement).await? else {
        return Ok(Hold::Lost);
    };
    let status: String = row.try_get("", "status")?;
    Ok(if status == JobStatus::Canceling.name() { Hold::CancelRequested } else { Hold::Held })
}

/// Looks at running jobs without renewing, in the order given.
pub async fn look(store: &Store, fences: &[Fence]) -> Result<Vec<Hold>, StoreError> {
    if fences.is_empty() {
        return Ok(Vec::new());
    }
    let rows = job::Entity::find()
        .filter(job::Column::Id.is_in(fences.iter().map(|fence| fence.job.uuid())))
        .all(store.reader())
        .await?;
    let rows = rows.into_iter().map(|row| (row.id, row)).collect::<HashMap<_, _>>();
    fences
        .iter()
        .map(|fence| rows.get(&fence.job.uuid()).map_or(Ok(Hold::Lost), |row| holds(row, fence)))
        .collect()
}

/// Records where the run is about to write, before its first byte: fenced.
pub async fn record_object(
    store: &Store,
    fence: &Fence,
    key: &ObjectKey,
    upload_id: Option<&str>,
) -> Result<Hold, StoreError> {
    let tx = store.begin().await?;
    let hold = lock(&tx, fence).await?;
    if hold != Hold::Lost {
        name_object(&tx, fence, key, upload_id).await?;
        tx.commit().await?;
    }
    Ok(hold)
}

/// The same for a numbered file of a split export. The run's own object is their manifest, which
/// is named from the first file on: what a run has named is swept with all its files.
pub async fn record_part(
    store: &Store,
    fence: &Fence,
    manifest: &ObjectKey,
    number: u32,
    key: &ObjectKey,
    upload_id: Option<&str>,
) -> Result<Hold, StoreError> {
    let tx = store.begin().await?;
    let hold = lock(&tx, fence).await?;
    if hold != Hold::Lost {
        name_object(&tx, fence, manifest, None).await?;
        parts::insert(&tx, fence, number, key, upload_id).await?;
        tx.commit().await?;
    }
    Ok(hold)
}

/// The lock keeps the job's end away until the commit: what ends a run decides by the recorded
/// key whether there is something to sweep.
async fn lock(tx: &Tx, fence: &Fence) -> Result<Hold, StoreError> {
    let row =
        job::Entity::find_by_id(fence.job.uuid()).lock_exclusive().one(tx.connection()).await?;
    row.map_or(Ok(Hold::Lost), |row| holds(&row, fence))
}

async fn name_object(
    tx: &Tx,
    fence: &Fence,
    key: &ObjectKey,
    upload_id: Option<&str>,
) -> Result<(), StoreError> {
    run::Entity::update_many()
        .col_expr(run::Column::ObjectKey, Expr::value(key.as_str()))
        .col_expr(run::Column::UploadId, Expr::value(upload_id.map(str::to_owned)))
        .filter(run::Column::JobId.eq(fence.job.uuid()))
        .filter(run::Column::Run.eq(fence.run as i32))
        .exec(tx.connection())
        .await?;
    Ok(())
}

/// Leases that have expired by the database's clock, each with its job's fence.
pub async fn expired_leases(store: &Store) -> Result<Vec<Fence>, StoreError> {
    let sql = format!(
        "SELECT id, run, lease_token FROM jobs WHERE status IN ('PROCESSING', 'CANCELING') \
         AND lease_expires_at <= {} ORDER BY lease_expires_at",
        store.engine().now()
    );
    let rows = store.reader().query_all_raw(store.engine().statement(sql, [])).await?;
    rows.iter()
        .map(|row| {
            let run: i32 = row.try_get("", "run")?;
            Ok(Fence {
                job: Id::from_uuid(row.try_get("", "id")?),
                run: run as u32,
                lease_token: row.try_get("", "lease_token")?,
            })
        })
        .collect()
}
