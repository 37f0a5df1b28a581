//! A job as its row, and back.

use std::collections::BTreeMap;

use outport_contract::job_event::Integrity;
use outport_domain::{
    connection::ConnectionIds,
    failure::FailureCode,
    id::{CompanyId, ConnectionId, CooperativeId, Id, JobId, OrganizationId, ScheduleId},
    job::{
        Compression, ExportJob, FinishedFile, Format, JobKind, JobScope, JobStatus, Progress,
        Protection, ScopeType, Stage, Warnings,
    },
    locale::Locale,
    object_key::ObjectKey,
};
use sea_orm::{
    ActiveModelBehavior as _, ActiveModelTrait as _, ColumnTrait as _, EntityTrait as _,
    Iterable as _, ModelTrait as _, QueryFilter as _,
};
use uuid::Uuid;

use crate::{
    StoreError, Tx, caller_text,
    entity::job::{ActiveModel, Column, Entity, Model},
    instant,
    submit::NewJob,
};

/// The row of a new job: PENDING, due now.
pub fn of_new(job: &NewJob, now: i64) -> Result<Model, StoreError> {
    let requested_at = instant::millis(job.requested_at);
    Ok(Model {
        id: job.id.uuid(),
        kind: job.kind.name().to_owned(),
        schedule_id: job.schedule.map(Id::uuid),
        organization_id: job.scope.organization.uuid(),
        scope_type: job.scope.scope_type.name().to_owned(),
        company_id: job.scope.company.map(Id::uuid),
        cooperative_id: job.scope.cooperative.map(Id::uuid),
        user_id: job.caller.user.uuid(),
        caller: caller_text::write(&job.caller)?,
        resource: job.resource.clone(),
        format: job.format.name().to_owned(),
        compression: job.compression.name().to_owned(),
        split: job.split,
        columns: serde_json::to_string(&job.columns)
            .map_err(|error| StoreError::Refused(error.into()))?,
        filters: job.filters.clone(),
        resolved_filters: job.resolved_filters.clone(),
        request: job.request.clone(),
        metadata: job.metadata.clone(),
        locale: job.locale.tag().to_owned(),
        notify_email: job.notify_email.clone(),
        file_name: job.file_name.clone(),
        file_key: None,
        size_bytes: None,
        stored_bytes: None,
        total_rows: None,
        sha256: None,
        hmac: None,
        hmac_key_version: None,
        protection: Protection::None.name().to_owned(),
        replaced_cells: 0,
        guarded_cells: 0,
        snapshot_at: None,
        status: JobStatus::Pending.name().to_owned(),
        failure_code: None,
        failure_message: None,
        run: 0,
        failures: 0,
        stage: None,
        rows_done: 0,
        rows_total: None,
        rows_total_is_estimate: false,
        due_at: now,
        lease_token: None,
        lease_expires_at: None,
        worker: None,
        final_sweep_at: None,
        expires_at: None,
        started_at: None,
        finished_at: None,
        created_at: requested_at,
        updated_at: requested_at,
        deleted_at: None,
        application: job.application.clone(),
        waiting_told: false,
        position_told_at: 0,
        products: Some(
            serde_json::to_string(&job.products)
                .map_err(|error| StoreError::Refused(error.into()))?,
        ),
        connection_ids: job.connection_ids.as_ref().map(ids_text).transpose()?,
    })
}

/// The job that a row tells of.
pub fn read(row: &Model) -> Result<ExportJob, StoreError> {
    Ok(ExportJob {
        id: JobId::from_uuid(row.id),
        kind: known("kind", &row.kind, JobKind::from_name)?,
        schedule: row.schedule_id.map(ScheduleId::from_uuid),
        scope: JobScope {
            scope_type: known("scope type", &row.scope_type, ScopeType::from_name)?,
            organization: OrganizationId::from_uuid(row.organization_id),
            company: row.company_id.map(CompanyId::from_uuid),
            cooperative: row.cooperative_id.map(CooperativeId::from_uuid),
        },
        // A job is always of its caller's organization.
        caller: caller_text::read(row.organization_id, row.user_id, &row.caller)?,
        resource: row.resource.clone(),
        format: known("format", &row.format, Format::from_name)?,
        compression: known("compression", &row.compression, Compression::from_name)?,
        split: row.split,
        columns: serde_json::from_str(&row.columns)
            .map_err(|_| StoreError::Corrupt("columns are not a list of texts".to_owned()))?,
        products: row
            .products
            .as_deref()
            .map(serde_json::from_str)
            .transpose()
            .map_err(|_| StoreError::Corrupt("products are not texts by name".to_owned()))?,
        connection_ids: row.connection_ids.as_deref().map(ids).transpose()?,
        filters: row.filters.clone(),
        resolved_filters: row.resolved_filters.clone(),
        request: row.request.clone(),
        metadata: row.metadata.clone(),
        locale: known("locale", &row.locale, Locale::from_tag)?,
        notify_email: row.notify_email.clone(),
        file_name: row.file_name.clone(),
        file: file(row)?,
        status: status(row)?,
        failure: failure(row)?,
        run: row.run as u32,
        failures: row.failures as u32,
        progress: Progress {
            stage: row.stage.as_deref().map(|s| known("stage", s, Stage::from_name)).transpose()?,
            done: row.rows_done as u64,
            total: row.rows_total.map(|rows| rows as u64),
            total_is_estimate: row.rows_total_is_estimate,
        },
        due_at: instant::at(row.due_at)?,
        expires_at: instant::maybe_at(row.expires_at)?,
        started_at: instant::maybe_at(row.started_at)?,
        finished_at: instant::maybe_at(row.finished_at)?,
        created_at: instant::at(row.created_at)?,
        updated_at: instant::at(row.updated_at)?,
        deleted_at: instant::maybe_at(row.deleted_at)?,
    })
}

/// The status of a row.
pub fn status(row: &Model) -> Result<JobStatus, StoreError> {
    known("status", &row.status, JobStatus::from_name)
}

/// Writes a finished file into a row.
pub fn set_file(row: &mut Model, file: &FinishedFile) {
    row.file_key = Some(file.key.as_str().to_owned());
    row.size_bytes = Some(file.size_bytes as i64);
    row.stored_bytes = Some(file.stored_bytes as i64);
    row.total_rows = Some(file.total_rows as i64);
    row.sha256 = Some(file.sha256.clone());
    (row.hmac, row.hmac_key_version) = integrity_columns(file.integrity.as_ref());
    file.protection.name().clone_into(&mut row.protection);
    row.replaced_cells = file.warnings.replaced_cells as i64;
    row.guarded_cells = file.warnings.guarded_cells as i64;
    row.snapshot_at = Some(instant::millis(file.snapshot_at));
}

/// Writes the columns in which a locked row has changed.
pub async fn save(tx: &Tx, before: &Model, after: &Model) -> Result<(), StoreError> {
    let mut changes = ActiveModel::new();
    for column in Column::iter() {
        let value = after.get(column);
        if value != before.get(column) {
            changes.set(column, value);
        }
    }
    if changes.is_changed() {
        Entity::update_many()
            .set(changes)
            .filter(Column::Id.eq(before.id))
            .exec(tx.connection())
            .await?;
    }
    Ok(())
}

fn file(row: &Model) -> Result<Option<FinishedFile>, StoreError> {
    let Some(key) = &row.file_key else { return Ok(None) };
    let incomplete = || StoreError::Corrupt("a finished file lacks a member".to_owned());
    Ok(Some(FinishedFile {
        key: ObjectKey::parse(key)
            .map_err(|_| StoreError::Corrupt("a file's key is no object key".to_owned()))?,
        size_bytes: row.size_bytes.ok_or_else(incomplete)? as u64,
        stored_bytes: row.stored_bytes.ok_or_else(incomplete)? as u64,
        total_rows: row.total_rows.ok_or_else(incomplete)? as u64,
        sha256: row.sha256.clone().ok_or_else(incomplete)?,
        integrity: integrity(row.hmac.as_deref(), row.hmac_key_version)?,
        protection: known("protection", &row.protection, Protection::from_name)?,
        warnings: Warnings {
            replaced_cells: row.replaced_cells as u64,
            guarded_cells: row.guarded_cells as u64,
        },
        snapshot_at: instant::at(row.snapshot_at.ok_or_else(incomplete)?)?,
    }))
}

/// The columns of a signature: its digits, and the version of its key.
pub fn integrity_columns(integrity: Option<&Integrity>) -> (Option<String>, Option<i32>) {
    integrity.map(|said| (said.signature.clone(), i32::from(said.key_version))).unzip()
}

/// The signature that these columns hold, if any.
pub fn integrity(
    hmac: Option<&str>,
    key_version: Option<i32>,
) -> Result<Option<Integrity>, StoreError> {
    let Some(hmac) = hmac else { return Ok(None) };
    let key_version = key_version
        .and_then(|version| u16::try_from(version).ok())
        .ok_or_else(|| StoreError::Corrupt("a signature lacks its key's version".to_owned()))?;
    Ok(Some(Integrity::new(hmac.to_owned(), key_version)))
}

fn ids_text(ids: &ConnectionIds) -> Result<String, StoreError> {
    let ids: BTreeMap<&str, Uuid> =
        ids.iter().map(|(name, id)| (name.as_str(), id.uuid())).collect();
    serde_json::to_string(&ids).map_err(|error| StoreError::Refused(error.into()))
}

fn ids(text: &str) -> Result<ConnectionIds, StoreError> {
    let ids: BTreeMap<String, Uuid> = serde_json::from_str(text)
        .map_err(|_| StoreError::Corrupt("connections are not ids by name".to_owned()))?;
    Ok(ids.into_iter().map(|(name, id)| (name, ConnectionId::from_uuid(id))).collect())
}

fn failure(row: &Model) -> Result<Option<(FailureCode, String)>, StoreError> {
    let Some(code) = &row.failure_code else { return Ok(None) };
    let code = known("failure code", code, FailureCode::from_name)?;
    Ok(Some((code, row.failure_message.clone().unwrap_or_default())))
}

/// A wire name that this program knows.
fn known<T>(
    what: &str,
    name: &str,
    from_name: impl Fn(&str) -> Option<T>,
) -> Result<T, StoreError> {
    from_name(name).ok_or_else(|| StoreError::Corrupt(format!("a {what} has an unknown name")))
}
