//! The numbered files of split exports: where each is written, recorded before its first byte,
//! and what it came to. The run's own row names their manifest.

use outport_domain::{
    id::{Fence, JobId},
    job::{ExportJob, FinishedPart},
    object_key::ObjectKey,
};
use sea_orm::{
    ColumnTrait as _, ConnectionTrait as _, EntityTrait as _, IntoActiveModel as _,
    QueryFilter as _, QueryOrder as _, sea_query::OnConflict,
};

use crate::{
    Store, StoreError, Tx,
    entity::part::{Column, Entity, Model},
    job_row,
};

/// Notes where a part is about to be written.
pub(crate) async fn insert(
    tx: &Tx,
    fence: &Fence,
    number: u32,
    key: &ObjectKey,
    upload_id: Option<&str>,
) -> Result<(), StoreError> {
    let row = Model {
        job_id: fence.job.uuid(),
        run: fence.run as i32,
        number: number as i32,
        object_key: key.as_str().to_owned(),
        upload_id: upload_id.map(str::to_owned),
        row_count: None,
        size_bytes: None,
        stored_bytes: None,
        sha256: None,
        hmac: None,
        hmac_key_version: None,
    };
    let replace = OnConflict::columns([Column::JobId, Column::Run, Column::Number])
        .update_columns([Column::ObjectKey, Column::UploadId])
        .to_owned();
    Entity::insert(row.into_active_model())
        .on_conflict(replace)
        .exec_without_returning(tx.connection())
        .await?;
    Ok(())
}

/// Notes what a part has come to. It is the run's own row, so it needs no fence: nobody reads it
/// unless the run's end is committed.
pub async fn record_written(
    store: &Store,
    fence: &Fence,
    part: &FinishedPart,
) -> Result<(), StoreError> {
    let sql = "UPDATE parts SET row_count = $1, size_bytes = $2, stored_bytes = $3, sha256 = $4, \
               hmac = $5, hmac_key_version = $6 WHERE job_id = $7 AND run = $8 AND number = $9";
    let (hmac, key_version) = job_row::integrity_columns(part.integrity.as_ref());
    let values = [
        (part.rows as i64).into(),
        (part.size_bytes as i64).into(),
        (part.stored_bytes as i64).into(),
        part.sha256.clone().into(),
        hmac.into(),
        key_version.into(),
        fence.job.uuid().into(),
        (fence.run as i32).into(),
        (part.number as i32).into(),
    ];
    store.writer().execute_raw(store.engine().statement(sql, values)).await?;
    Ok(())
}

/// The files of a split export that has been completed, in order; none for any other job.
pub async fn of_file(store: &Store, job: &ExportJob) -> Result<Vec<FinishedPart>, StoreError> {
    if !job.split || job.file.is_none() {
        return Ok(Vec::new());
    }
    // A completed job is never run again, so the latest run is the one that completed it.
    rows(store, job.id, job.run).await?.iter().map(read).collect()
}

/// One of them by its number.
pub async fn find(
    store: &Store,
    job: &ExportJob,
    number: u32,
) -> Result<Option<FinishedPart>, StoreError> {
    if job.file.is_none() {
        return Ok(None);
    }
    let Ok(number) = i32::try_from(number) else { return Ok(None) };
    let id = (job.id.uuid(), job.run as i32, number);
    let row = Entity::find_by_id(id).one(store.reader()).await?;
    row.as_ref().map(read).transpose()
}

/// All rows of a run, in order.
pub(crate) async fn rows(store: &Store, job: JobId, run: u32) -> Result<Vec<Model>, StoreError> {
    Ok(Entity::find()
        .filter(Column::JobId.eq(job.uuid()))
        .filter(Column::Run.eq(run as i32))
        .order_by_asc(Column::Number)
        .all(store.reader())
        .await?)
}

/// The key of a part's row.
pub(crate) fn key(row: &Model) -> Result<ObjectKey, StoreError> {
    ObjectKey::parse(&row.object_key)
        .map_err(|_| StoreError::Corrupt("a part's key is no object key".to_owned()))
}

fn read(row: &Model) -> Result<FinishedPart, StoreError> {
    let incomplete = || StoreError::Corrupt("a finished part lacks a member".to_owned());
    let size_bytes = row.size_bytes.ok_or_else(incomplete)? as u64;
    Ok(FinishedPart {
        number: row.number as u32,
        key: key(row)?,
        rows: row.row_count.ok_or_else(incomplete)? as u64,
        size_bytes,
        // Not said of those of before files were sealed.
        stored_bytes: row.stored_bytes.map_or(size_bytes, |bytes| bytes as u64),
        sha256: row.sha256.clone().ok_or_else(incomplete)?,
        integrity: job_row::integrity(row.hmac.as_deref(), row.hmac_key_version)?,
    })
}
