//! Runs: what each attempt was about to write, so that it can be cleaned up without listing.
//!
//! A run is due to be swept from the moment it ends without being the one its job names
//! (`runs.sweep_due_at`), once more when what a slow store was still about must have ended, and a
//! last time when its job expires.

use std::time::Duration;

use outport_domain::{id::JobId, object_key::ObjectKey};
use sea_orm::{ConnectionTrait as _, EntityTrait as _};

use crate::{Store, StoreError, Tx, entity::job, instant, parts};

/// How long after the first sweep the next one is: a store may carry out all the same what it was
/// asked for and nobody waits for any more. Twice as long as a store is waited for.
const BELATED: Duration = Duration::from_mins(20);

/// Something a run may have left in the object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Whose.
    pub job: JobId,
    /// Which run.
    pub run: u32,
    /// Where; of a split export: where its manifest is.
    pub key: ObjectKey,
    /// Its upload, when it was a multipart one.
    pub upload_id: Option<String>,
}

/// One object of a run, or what may become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where.
    pub key: ObjectKey,
    /// Its upload, when it was a multipart one.
    pub upload_id: Option<String>,
}

/// Objects and uploads that nobody needs: of superseded runs, of runs whose job ended without
/// them, and files that are expired or deleted. Never the file of a COMPLETED job, never one
/// of a run that still holds a lease. Each is offered until [`record_swept`], once more after 20
/// minutes, and at its job's expiry: a slow store or a late twin may write after the first sweep.
pub async fn leftovers(store: &Store, most: u32) -> Result<Vec<Leftover>, StoreError> {
    // The conditions on the job say again what `sweep_due_at` says already: a mistake here
    // would delete somebody's file.
    let sql = format!(
        "SELECT r.job_id, r.run, r.object_key, r.upload_id FROM runs r \
         JOIN jobs j ON j.id = r.job_id \
         WHERE r.sweep_due_at <= {} AND r.object_key IS NOT NULL \
         AND NOT (j.status IN ('PROCESSING', 'CANCELING') AND j.run = r.run) \
         AND NOT (j.status = 'COMPLETED' AND j.deleted_at IS NULL AND j.file_key = r.object_key) \
         ORDER BY r.sweep_due_at LIMIT $1",
        store.engine().now()
    );
    let statement = store.engine().statement(sql, [i64::from(most).into()]);
    let rows = store.reader().query_all_raw(statement).await?;
    rows.iter()
        .map(|row| {
            let run: i32 = row.try_get("", "run")?;
            let key: String = row.try_get("", "object_key")?;
            Ok(Leftover {
                job: JobId::from_uuid(row.try_get("", "job_id")?),
                run: run as u32,
                key: ObjectKey::parse(&key)
                    .map_err(|_| StoreError::Corrupt("a run's key is no object key".to_owned()))?,
                upload_id: row.try_get("", "upload_id")?,
            })
        })
        .collect()
}

/// All objects that a leftover consists of: its own, and the files of a split export.
pub async fn objects(store: &Store, leftover: &Leftover) -> Result<Vec<Written>, StoreError> {
    let mut all =
        vec![Written { key: leftover.key.clone(), upload_id: leftover.upload_id.clone() }];
    for row in parts::rows(store, leftover.job, leftover.run).await? {
        all.push(Written { key: parts::key(&row)?, upload_id: row.upload_id });
    }
    Ok(all)
}

/// Records that a leftover is gone.
pub async fn record_swept(tx: &mut Tx, leftover: &Leftover) -> Result<(), StoreError> {
    let now = tx.now().await?;
    let job = job::Entity::find_by_id(leftover.job.uuid()).one(tx.connection()).await?;
    // While the job lives its last sweep is not known; its end schedules it.
    let last = job.and_then(|job| job.final_sweep_at);
    let belated = now + instant::span(BELATED);
    let second = last.is_none_or(|at| at > belated).then_some(belated);
    let last = last.filter(|at| *at > now);
    tx.run(
        "UPDATE runs SET sweep_due_at = CASE WHEN swept_at IS NULL THEN $1 ELSE $2 END, \
         swept_at = $3 WHERE job_id = $4 AND run = $5",
        [
            second.or(last).into(),
            last.into(),
            now.into(),
            leftover.job.uuid().into(),
            (leftover.run as i32).into(),
        ],
    )
    .await?;
    Ok(())
}

/// Puts a leftover that could not be removed behind all others for `pause`, so that what cannot
/// be removed never keeps the sweeper from what can.
pub async fn postpone(tx: &mut Tx, leftover: &Leftover, pause: Duration) -> Result<(), StoreError> {
    let later = tx.now().await? + instant::span(pause);
    tx.run(
        "UPDATE runs SET sweep_due_at = $1 WHERE job_id = $2 AND run = $3",
        [later.into(), leftover.job.uuid().into(), (leftover.run as i32).into()],
    )
    .await?;
    Ok(())
}
