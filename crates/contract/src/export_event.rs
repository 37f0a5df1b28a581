//! The `export.*` events: an envelope `{type, data}` around the whole `ExportJob`.
//!
//! The order of the members is part of the contract, so the order of the fields below is too.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::time::Instant;

/// The event types an `ExportJob` can emit, one for each way it can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExportEventType {
    /// The file is in storage and the job is committed as COMPLETED.
    #[serde(rename = "export.completed")]
    Completed,
    /// The job is committed as FAILED; nothing is left at the final key.
    #[serde(rename = "export.failed")]
    Failed,
    /// The job is committed as CANCELED.
    #[serde(rename = "export.canceled")]
    Canceled,
    /// The file of a completed job reached its `expiresAt` and is gone.
    #[serde(rename = "export.expired")]
    Expired,
}

impl ExportEventType {
    /// Every type, in the order of a job's life.
    pub const ALL: [Self; 4] = [Self::Completed, Self::Failed, Self::Canceled, Self::Expired];

    /// The name on the wire, e.g. `export.completed`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "export.completed",
            Self::Failed => "export.failed",
            Self::Canceled => "export.canceled",
            Self::Expired => "export.expired",
        }
    }

    /// The type with this wire name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event_type| event_type.name() == name)
    }
}

/// `{"type": …, "data": <ExportJob>}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportEvent {
    /// Which end the job came to.
    #[serde(rename = "type")]
    pub event_type: ExportEventType,
    /// The job as committed.
    pub data: ExportJobData,
}

/// The `ExportJob` of an event, every member always present.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(
    missing_docs,
    reason = "the members are described by the contract table in the handler guide"
)]
pub struct ExportJobData {
    pub export_job_id: Uuid,
    pub export_scheduled_id: Option<Uuid>,
    pub organization_id: Uuid,
    pub company_id: Option<Uuid>,
    pub cooperative_id: Option<Uuid>,
    pub requested_by_user_id: Uuid,
    pub resource: String,
    /// `ORGANIZATION`, `COMPANY` or `COOPERATIVE`.
    pub scope_type: String,
    /// `CSV`, …
    pub format: String,
    pub columns: Vec<String>,
    /// Exactly as requested, digit for digit.
    pub filters: Box<RawValue>,
    /// Of a split export: its manifest's, see [`crate::manifest`].
    pub file_key: Option<String>,
    /// Of a split export: what its files are named after.
    pub file_name: String,
    /// Of what `file_key` names.
    pub content_type: String,
    /// Bytes of the file as delivered: after compression, before sealing. Of a split export: the
    /// sum over its files.
    pub size_bytes: Option<u64>,
    /// Data rows, the header not counted. Of a split export: the sum over its files.
    pub total_rows: Option<u64>,
    /// Null, or a stable code such as `SOURCE_UNREACHABLE`.
    pub failure_reason: Option<String>,
    pub status: String,
    pub expires_at: Option<Instant>,
    pub started_at: Option<Instant>,
    pub finished_at: Option<Instant>,
    pub created_at: Instant,
    pub updated_at: Instant,
    pub deleted_at: Option<Instant>,
}
