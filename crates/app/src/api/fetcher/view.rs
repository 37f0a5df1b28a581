//! The JSON forms of the facade's jobs.

use outport_contract::{
    digest::Sha256Digest,
    job_event::{JobEvent, Metadata},
    time::Instant,
};
use outport_domain::{
    canonical, data_request,
    job::{ExportJob, JobKind, JobStatus},
};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::problem::Outcome;

/// Fields of tables of connections, with filters.
#[derive(ToSchema)]
#[schema(as = DataRequest, rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body in the OpenAPI document")]
pub struct DataRequestBody {
    /// `mappedFields`: connection → table → array of fields, or `["*"]` for all. `filters`:
    /// connection → table → field → operator → array of values. Operators: `eq` `gt` `gte` `lt`
    /// `lte` `between` `in` `nin` `ne` `like`.
    #[schema(value_type = Object)]
    data_request: serde_json::Value,
    /// Comes back with the job and in its event; `source` is required.
    #[schema(value_type = Object)]
    metadata: serde_json::Value,
}

/// A job that was asked for.
#[derive(Serialize, ToSchema)]
#[schema(as = FetcherAccepted)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedView {
    job_id: Uuid,
    /// `pending`, `processing`, `completed` or `failed`.
    status: &'static str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    /// What happened, in words.
    message: &'static str,
}

impl AcceptedView {
    pub fn new(job: &ExportJob, outcome: Outcome) -> Self {
        let message = match outcome {
            Outcome::Ok => "The same request made this job before.",
            _ => "The job is queued.",
        };
        let (status, created_at) = (status(job.status), job.created_at.into());
        Self { job_id: job.id.uuid(), status, created_at, message }
    }
}

/// A job, as the facade shows it.
#[derive(Serialize, ToSchema)]
#[schema(as = FetcherJob)]
#[serde(rename_all = "camelCase")]
pub struct FetcherJobView {
    id: Uuid,
    /// `pending`, `processing`, `completed` or `failed`.
    status: &'static str,
    /// As sent and as its event has it: of a failed job with a member `error`, of an export with
    /// its resource as `source` where none was sent.
    #[schema(value_type = Object)]
    metadata: Box<RawValue>,
    /// As sent. Of an export: its connection, its resource and its columns.
    #[schema(value_type = Object)]
    mapped_fields: Box<RawValue>,
    /// As sent.
    #[schema(value_type = Object)]
    filters: Box<RawValue>,
    /// Where the result is in storage.
    result_path: Option<String>,
    /// HMAC-SHA256 over the result before it was encrypted, with the external key.
    result_hmac: Option<String>,
    /// SHA-256 of what was asked for.
    request_hash: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    completed_at: Option<Instant>,
}

impl FetcherJobView {
    /// `connection` is that of the resource of an export.
    pub fn new(job: &ExportJob, connection: Option<&str>) -> Self {
        let asked = data_request::parse(&job.request).ok().filter(|_| job.kind == JobKind::Fetcher);
        let (mapped_fields, request_hash) = match asked {
            Some(request) => (request.mapped_fields, request.identity.hex()),
            None => (export_fields(job, connection), export_hash(&job.request)),
        };
        let file = job.file.as_ref();
        Self {
            id: job.id.uuid(),
            status: status(job.status),
            metadata: metadata(job),
            mapped_fields: raw(&mapped_fields),
            filters: raw(&job.filters),
            result_path: file.map(|file| file.key.as_str().to_owned()),
            result_hmac: file
                .and_then(|file| file.integrity.as_ref())
                .map(|integrity| integrity.signature.clone()),
            request_hash,
            created_at: job.created_at.into(),
            completed_at: job.finished_at.map(Into::into),
        }
    }
}

const fn status(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Pending => "pending",
        JobStatus::Processing | JobStatus::Canceling => "processing",
        JobStatus::Completed | JobStatus::Expired => "completed",
        JobStatus::Failed | JobStatus::Canceled => "failed",
    }
}

/// The metadata that the job's event has, or is to have; with its error.
fn metadata(job: &ExportJob) -> Box<RawValue> {
    match job.job_event(job.started_at) {
        Ok(Some(JobEvent::Failed(failed))) => failed.metadata,
        _ => job.event_metadata().map_or_else(|_| raw("{}"), Metadata::into_raw),
    }
}

fn export_fields(job: &ExportJob, connection: Option<&str>) -> String {
    let columns = serde_json::json!({ &job.resource: &job.columns });
    serde_json::json!({ connection.unwrap_or(&job.resource): columns }).to_string()
}

fn export_hash(request: &str) -> String {
    let mut text = String::new();
    canonical::compact(&raw(request), &mut text);
    Sha256Digest::of(text.as_bytes()).hex()
}

/// JSON that was read before.
fn raw(text: &str) -> Box<RawValue> {
    let empty = || RawValue::from_string("{}".to_owned()).expect("an empty object is JSON");
    RawValue::from_string(text.to_owned()).unwrap_or_else(|_| empty())
}
