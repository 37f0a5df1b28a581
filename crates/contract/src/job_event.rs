//! The `job.*` events on a broker: their bodies, and the CloudEvents attributes they travel
//! with.
//!
//! The members are written in the order of the contract, so the order of the fields below is
//! part of it. A consumer ignores members that it does not know.
//!
//! `integrity.keyVersion` is an addition of ours. It is written only when the key is not the
//! first one, so a deployment that never rotated its key writes exactly the contract's bytes,
//! and an absent member means version 1, like an absent `x-signature-key` header.

mod attributes;
mod metadata;
mod outcome;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

pub use self::{
    attributes::{Attributes, DEFAULT_TYPE_PREFIX, RESOURCE_TYPE, SINGLE_TENANT, header},
    metadata::{InvalidMetadata, Metadata, RESERVED_METADATA},
    outcome::{HMAC_SHA256, Integrity, JobError, JobResult, Protection},
};
use crate::time::Instant;

/// The media type of a body.
pub const CONTENT_TYPE: &str = "application/json";

/// How a job ended, for a broker: a canceled job failed, with the code `CANCELED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobEventType {
    /// The result is in storage, and the job is recorded as completed.
    Completed,
    /// The run stopped, and nothing was left in storage.
    Failed,
}

impl JobEventType {
    /// Both types.
    pub const ALL: [Self; 2] = [Self::Completed, Self::Failed];

    /// The event's name, which is its routing key: `job.completed` or `job.failed`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "job.completed",
            Self::Failed => "job.failed",
        }
    }

    /// The member `status` and the attribute `ce-eventtype`: `completed` or `failed`.
    pub const fn status(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// The type with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event_type| event_type.name() == name)
    }

    /// `ce-id`, the key by which a consumer knows a repeated event: always the same for one job
    /// and status.
    pub fn event_id(self, job_id: Uuid) -> String {
        format!("fetcher.{}.{job_id}", self.name())
    }
}

/// The body of `job.completed`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct JobCompleted {
    /// The job that ended.
    pub job_id: Uuid,
    status: CompletedStatus,
    /// What the client sent with the job, as sent.
    pub metadata: Box<RawValue>,
    /// What the job made.
    pub result: JobResult,
    /// From the start of the run to its end.
    pub execution_time_ms: u64,
    /// When the terminal status was recorded.
    pub completed_at: Instant,
}

/// The body of `job.failed`: no `result`, no `completedAt`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct JobFailed {
    /// The job that ended.
    pub job_id: Uuid,
    status: FailedStatus,
    /// What the client sent with the job, as sent, and after it the member `error`.
    pub metadata: Box<RawValue>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum CompletedStatus {
    #[serde(rename = "completed")]
    Completed,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum FailedStatus {
    #[serde(rename = "failed")]
    Failed,
}

impl JobCompleted {
    /// The event of a job that has a result.
    pub fn new(
        job_id: Uuid,
        metadata: Metadata,
        result: JobResult,
        execution_time_ms: u64,
        completed_at: Instant,
    ) -> Self {
        Self {
            job_id,
            status: CompletedStatus::Completed,
            metadata: metadata.into_raw(),
            result,
            execution_time_ms,
            completed_at,
        }
    }
}

impl JobFailed {
    /// The event of a job that has none.
    pub fn new(job_id: Uuid, metadata: Metadata, error: &JobError) -> Self {
        let metadata = metadata.with_error(error).into_raw();
        Self { job_id, status: FailedStatus::Failed, metadata }
    }

    /// Why the job failed, if the metadata says so.
    pub fn error(&self) -> Option<JobError> {
        #[derive(Deserialize)]
        struct Said {
            error: JobError,
        }
        serde_json::from_str(self.metadata.get()).ok().map(|Said { error }| error)
    }
}

/// Either event.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum JobEvent {
    /// `job.completed`
    Completed(Box<JobCompleted>),
    /// `job.failed`
    Failed(JobFailed),
}

impl JobEvent {
    /// Reads a body by its `status`.
    pub fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Said {
            status: JobEventType,
        }
        let Said { status } = serde_json::from_slice(body)?;
        Ok(match status {
            JobEventType::Completed => Self::Completed(serde_json::from_slice(body)?),
            JobEventType::Failed => Self::Failed(serde_json::from_slice(body)?),
        })
    }

    /// The body, as it is stored and sent.
    pub fn body(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and raw JSON have no failure")
    }

    /// Which of the two it is.
    pub fn event_type(&self) -> JobEventType {
        match self {
            Self::Completed(_) => JobEventType::Completed,
            Self::Failed(_) => JobEventType::Failed,
        }
    }

    /// The job that ended.
    pub fn job_id(&self) -> Uuid {
        match self {
            Self::Completed(completed) => completed.job_id,
            Self::Failed(failed) => failed.job_id,
        }
    }
}
