//! The JSON form of a job: the members of the contract's `ExportJob`, then the API's own.

use std::{sync::Arc, time::Duration};

use outport_contract::{export_event::ExportJobData, time::Instant};
use outport_domain::{
    file_name,
    job::{ExportJob, FinishedPart, JobStatus, Progress},
};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::ApiState;

/// An export job.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ExportJob)]
pub struct ExportView {
    export_job_id: Uuid,
    export_scheduled_id: Option<Uuid>,
    organization_id: Uuid,
    company_id: Option<Uuid>,
    cooperative_id: Option<Uuid>,
    requested_by_user_id: Uuid,
    resource: String,
    /// `ORGANIZATION`, `COMPANY` or `COOPERATIVE`.
    scope_type: String,
    /// `CSV`, `NDJSON`, `JSON`, `XLSX` or `PARQUET`.
    format: String,
    columns: Vec<String>,
    /// As requested, digit for digit.
    #[schema(value_type = Object)]
    filters: Box<RawValue>,
    /// Of a split export: the manifest's.
    file_key: Option<String>,
    /// Of a split export: what the names of its files are made of.
    file_name: String,
    /// Of what `fileKey` names.
    content_type: String,
    /// Of a split export: of all its files, without the manifest.
    size_bytes: Option<u64>,
    /// Of a split export: of all its files.
    total_rows: Option<u64>,
    /// Null, or a stable code such as `SOURCE_UNREACHABLE`.
    failure_reason: Option<String>,
    /// `PENDING`, `PROCESSING`, `CANCELING`, `COMPLETED`, `FAILED`, `CANCELED` or `EXPIRED`.
    status: String,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Instant>,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Instant>,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Instant>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Instant,
    #[schema(value_type = Option<String>, format = DateTime)]
    deleted_at: Option<Instant>,
    progress: ProgressView,
    /// Number of the latest run; 0 before the first.
    run: u32,
    /// Due jobs of the organization before this one; null when it does not wait, in lists, in
    /// the answer to a request, and beyond the first hundred.
    queue_position: Option<u32>,
    /// The moment that the rows were seen at.
    #[schema(value_type = Option<String>, format = DateTime)]
    snapshot_at: Option<Instant>,
    #[schema(value_type = Option<Object>)]
    metadata: Option<Box<RawValue>>,
    /// `filters` with relative dates as what they meant when the export was asked for; null when
    /// there are none.
    #[schema(value_type = Option<Object>)]
    resolved_filters: Option<Box<RawValue>>,
    /// `none`, `gzip` or `zstd`: of the file as a whole. `sizeBytes` and `sha256` are of the
    /// compressed bytes.
    compression: &'static str,
    warnings: WarningsView,
    /// Of the file's bytes, lower-case hex; of a split export: of the manifest's.
    sha256: Option<String>,
    /// HMAC-SHA256 of the same bytes with the external key, lower-case hex; null for files from
    /// before there were signatures.
    hmac: Option<String>,
    links: LinksView,
    failure: Option<FailureView>,
    /// Of a completed split export, in order; null for all others, in lists, and in the answers
    /// to all but `GET /v1/exports/{id}`.
    files: Option<Vec<FileView>>,
}

/// One of the files of a split export.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ExportFile)]
pub struct FileView {
    /// From 1.
    number: u32,
    name: String,
    key: String,
    /// Data rows, the header not counted.
    rows: u64,
    size_bytes: u64,
    /// Of the file's bytes, lower-case hex.
    sha256: String,
    /// Where its bytes are, while they are there.
    link: Option<String>,
}

/// How far a job is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Progress)]
pub struct ProgressView {
    /// `resolve`, `prepare`, `analyze`, `generate` or `validate`; null while no run is under way.
    stage: Option<&'static str>,
    /// Rows in the file so far.
    done: u64,
    /// Rows in all, where known or estimated.
    total: Option<u64>,
    total_is_estimate: bool,
    /// Of `total`; null where that is unknown.
    percent: Option<u8>,
}

/// What was changed on the way to the file, counted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Warnings)]
pub struct WarningsView {
    /// Cells with invalid text, replaced by U+FFFD.
    replaced_cells: u64,
    /// Cells and headers that got an apostrophe, so that no program takes them for formulas.
    guarded_cells: u64,
}

/// Where to go from here.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Links)]
pub struct LinksView {
    #[serde(rename = "self")]
    own: String,
    /// While it can be canceled.
    cancel: Option<String>,
    rerun: String,
    /// While there is a file; of a split export: the manifest.
    file: Option<String>,
    downloads: String,
}

/// Why a job failed.
#[derive(Serialize, ToSchema)]
#[schema(as = Failure)]
pub struct FailureView {
    /// The stable code.
    code: &'static str,
    /// One sentence.
    message: String,
}

/// A page of jobs.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ExportPage)]
pub struct ExportPageView {
    /// Newest first.
    pub items: Vec<ExportView>,
    /// The `cursor` of the next page; null on the last one.
    pub next_cursor: Option<String>,
}

impl ExportView {
    /// The view of a job.
    pub fn new(state: &Arc<ApiState>, job: &ExportJob, queue_position: Option<u32>) -> Self {
        let own = state.public(&format!("/v1/exports/{}", job.id));
        let file = job.file.as_ref();
        let warnings = file.map(|file| file.warnings).unwrap_or_default();
        // Named member by member: a new one in the contract stops the build here.
        let ExportJobData {
            export_job_id,
            export_scheduled_id,
            organization_id,
            company_id,
            cooperative_id,
            requested_by_user_id,
            resource,
            scope_type,
            format,
            columns,
            filters,
            file_key,
            file_name,
            content_type,
            size_bytes,
            total_rows,
            failure_reason,
            status,
            expires_at,
            started_at,
            finished_at,
            created_at,
            updated_at,
            deleted_at,
        } = job.event_data();
        Self {
            export_job_id,
            export_scheduled_id,
            organization_id,
            company_id,
            cooperative_id,
            requested_by_user_id,
            resource,
            scope_type,
            format,
            columns,
            filters,
            file_key,
            file_name,
            content_type,
            size_bytes,
            total_rows,
            failure_reason,
            status,
            expires_at,
            started_at,
            finished_at,
            created_at,
            updated_at,
            deleted_at,
            progress: progress(&job.progress, job.status),
            run: job.run,
            queue_position,
            snapshot_at: file.map(|file| file.snapshot_at.into()),
            metadata: job.metadata.clone().and_then(|text| RawValue::from_string(text).ok()),
            resolved_filters: job
                .resolved_filters
                .clone()
                .and_then(|text| RawValue::from_string(text).ok()),
            compression: job.compression.name(),
            warnings: WarningsView {
                replaced_cells: warnings.replaced_cells,
                guarded_cells: warnings.guarded_cells,
            },
            sha256: file.map(|file| file.sha256.clone()),
            hmac: file.and_then(|file| Some(file.integrity.as_ref()?.signature.clone())),
            links: LinksView {
                cancel: (!job.status.has_ended()).then(|| format!("{own}/cancel")),
                rerun: format!("{own}/rerun"),
                file: super::files::is_there(job, chrono::Utc::now())
                    .then(|| format!("{own}/file")),
                downloads: format!("{own}/downloads"),
                own,
            },
            failure: job
                .failure
                .as_ref()
                .map(|(code, message)| FailureView { code: code.name(), message: message.clone() }),
            files: None,
        }
    }

    /// The same with the files of a split export.
    pub fn with_files(self, job: &ExportJob, parts: Vec<FinishedPart>) -> Self {
        let own = &self.links.own;
        let is_there = self.links.file.is_some();
        let file = |part: FinishedPart| FileView {
            number: part.number,
            name: file_name::of_part(&job.file_name, job.compression.suffix(), part.number),
            key: part.key.as_str().to_owned(),
            rows: part.rows,
            size_bytes: part.size_bytes,
            sha256: part.sha256,
            link: is_there.then(|| format!("{own}/files/{}", part.number)),
        };
        let files = (!parts.is_empty()).then(|| parts.into_iter().map(file).collect());
        Self { files, ..self }
    }
}

fn progress(progress: &Progress, status: JobStatus) -> ProgressView {
    let percent = match (status, progress.total) {
        (JobStatus::Completed | JobStatus::Expired, _) => Some(100),
        (_, None | Some(0)) => None,
        (_, Some(total)) => {
            let percent = u128::from(progress.done) * 100 / u128::from(total);
            Some(percent.min(100) as u8)
        }
    };
    ProgressView {
        stage: progress.stage.map(outport_domain::job::Stage::name),
        done: progress.done,
        total: progress.total,
        total_is_estimate: progress.total_is_estimate,
        percent,
    }
}

/// When it is worth to look at a job again; `None` when it has ended.
pub fn poll_after(job: &ExportJob) -> Option<Duration> {
    (!job.status.has_ended()).then_some(Duration::from_secs(2))
}
