//! Enqueueing: the insert is the enqueue, and the answer comes after one commit. Requests that
//! arrive while a commit is under way share the next one (a group commit), because all jobs of
//! an organization lock its turn row until the commit is on disk.

mod batch;
mod known;
mod submitter;

use outport_domain::{
    caller::Caller,
    connection::{ConnectionIds, Products},
    id::{JobId, ScheduleId},
    job::{Compression, ExportJob, Format, JobKind, JobScope},
    locale::Locale,
};

pub use known::is_known;
pub use submitter::Submitter;

use crate::{StoreError, Tx};

/// A job to be.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Its id.
    pub id: JobId,
    /// What kind of work it is.
    pub kind: JobKind,
    /// The schedule that asks.
    pub schedule: Option<ScheduleId>,
    /// Who asks.
    pub caller: Caller,
    /// What its rows are limited to.
    pub scope: JobScope,
    /// The resource's name.
    pub resource: String,
    /// The name of its application in the live stream, such as `outport`.
    pub application: String,
    /// The file's format.
    pub format: Format,
    /// How the file is compressed.
    pub compression: Compression,
    /// Whether its rows become numbered files with a manifest.
    pub split: bool,
    /// The column keys, in order.
    pub columns: Vec<String>,
    /// The stored connections that it reads.
    pub products: Products,
    /// Which those of a facade job are.
    pub connection_ids: Option<ConnectionIds>,
    /// The `filters` member as sent.
    pub filters: String,
    /// The same with relative dates as what they meant at the request; `None` when there are none.
    pub resolved_filters: Option<String>,
    /// The whole body as accepted.
    pub request: String,
    /// The `metadata` member as sent.
    pub metadata: Option<String>,
    /// The language.
    pub locale: Locale,
    /// Who gets the mail, when it is not the caller.
    pub notify_email: Option<String>,
    /// The name that people see.
    pub file_name: String,
    /// When it was asked for; what relative defaults were computed against.
    pub requested_at: chrono::DateTime<chrono::Utc>,
}

/// An `Idempotency-Key` as used by one caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The header's value; scoped to the job's organization and caller.
    pub key: String,
    /// SHA-256 of the request's body.
    pub fingerprint: [u8; 32],
    /// How long it is remembered.
    pub life: std::time::Duration,
}

/// What a submission came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Submitted {
    /// A new job.
    Created(ExportJob),
    /// The job that the same key and body made before.
    Repeated(ExportJob),
    /// The key was used with another body: nothing was written.
    KeyReused,
    /// The organization has too many queued jobs: nothing was written.
    QueueFull,
}

/// Inserts a job (PENDING, due now), its turn row, its idempotency key and its requester.
pub async fn submit(
    tx: &mut Tx,
    job: &NewJob,
    key: Option<&IdempotencyKey>,
    queued_per_organization: u32,
) -> Result<Submitted, StoreError> {
    let mut answers =
        batch::submit_all(tx, &[batch::Request { job, key }], queued_per_organization).await?;
    // One request, one answer.
    answers.pop().ok_or_else(|| StoreError::Corrupt("a submission has no answer".to_owned()))
}
