//! The `ExportJob` and its total state machine.

mod format;
mod progress;
mod status;

use chrono::{DateTime, Utc};
use outport_contract::export_event::{ExportEvent, ExportEventType, ExportJobData};
use serde_json::value::RawValue;

use crate::{
    caller::Caller,
    failure::FailureCode,
    id::{CompanyId, CooperativeId, JobId, OrganizationId, ScheduleId},
    locale::Locale,
    object_key::ObjectKey,
};
pub use format::{Compression, Format};
pub use progress::Progress;
pub use status::{IllegalStep, JobStatus, Step};

/// What the rows of an export are limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeType {
    /// All that the caller may see of its organization.
    Organization,
    /// One company.
    Company,
    /// One cooperative.
    Cooperative,
}

impl ScopeType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Organization, Self::Company, Self::Cooperative];

    /// The name on the wire, e.g. `COMPANY`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Organization => "ORGANIZATION",
            Self::Company => "COMPANY",
            Self::Cooperative => "COOPERATIVE",
        }
    }

    /// The scope type with this wire name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope_type| scope_type.name() == name)
    }
}

/// The tenant scope of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobScope {
    /// What the rows are limited to.
    pub scope_type: ScopeType,
    /// The tenant.
    pub organization: OrganizationId,
    /// The company, with [`ScopeType::Company`].
    pub company: Option<CompanyId>,
    /// The cooperative, with [`ScopeType::Cooperative`].
    pub cooperative: Option<CooperativeId>,
}

/// The stages of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Resource, columns, filters and scope become one fixed query.
    Resolve,
    /// Source snapshot and upload are opened.
    Prepare,
    /// The number of rows is estimated.
    Analyze,
    /// Rows become the file.
    Generate,
    /// Counts, lengths and digests are compared, then committed.
    Validate,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Self; 5] =
        [Self::Resolve, Self::Prepare, Self::Analyze, Self::Generate, Self::Validate];

    /// The name on the wire, e.g. `generate`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Prepare => "prepare",
            Self::Analyze => "analyze",
            Self::Generate => "generate",
            Self::Validate => "validate",
        }
    }

    /// The stage with this wire name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

/// What was changed on the way to the file, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    /// Cells with invalid UTF-8 or NUL, replaced by U+FFFD.
    pub replaced_cells: u64,
    /// Cells and headers that got an apostrophe by the formula guard.
    pub guarded_cells: u64,
}

impl std::ops::AddAssign for Warnings {
    fn add_assign(&mut self, other: Self) {
        self.replaced_cells += other.replaced_cells;
        self.guarded_cells += other.guarded_cells;
    }
}

/// What a finished run made: one file, or the files of a split export with their manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedFile {
    /// Where it is; of a split export: where its manifest is.
    pub key: ObjectKey,
    /// Bytes as delivered; of a split export: of all its files, without the manifest.
    pub size_bytes: u64,
    /// Bytes as stored; of a split export: of its manifest.
    pub stored_bytes: u64,
    /// Data rows of all files, headers not counted.
    pub total_rows: u64,
    /// SHA-256 of the bytes as delivered, lower-case hex; of a split export: of its manifest.
    pub sha256: String,
    /// What was changed on the way.
    pub warnings: Warnings,
    /// The moment that the rows were seen at.
    pub snapshot_at: DateTime<Utc>,
}

/// One of the numbered files of a split export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedPart {
    /// Its place among them, counted from 1.
    pub number: u32,
    /// Where it is.
    pub key: ObjectKey,
    /// Data rows, the header not counted.
    pub rows: u64,
    /// Bytes as delivered.
    pub size_bytes: u64,
    /// SHA-256 of these bytes, lower-case hex.
    pub sha256: String,
}

/// A job as its row says.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportJob {
    /// Its id.
    pub id: JobId,
    /// The schedule that produced it.
    pub schedule: Option<ScheduleId>,
    /// What its rows are limited to.
    pub scope: JobScope,
    /// Who asked, with the rights it had then.
    pub caller: Caller,
    /// The resource's name.
    pub resource: String,
    /// The file's format.
    pub format: Format,
    /// How the file is compressed.
    pub compression: Compression,
    /// Whether its rows become numbered files with a manifest.
    pub split: bool,
    /// The column keys, in the order requested.
    pub columns: Vec<String>,
    /// The `filters` member as sent, `{}` when there was none.
    pub filters: String,
    /// The same with relative dates as what they meant at the request; `None` when there are none.
    pub resolved_filters: Option<String>,
    /// The whole body as accepted; a worker parses it again.
    pub request: String,
    /// The `metadata` member as sent.
    pub metadata: Option<String>,
    /// The language of labels, mail and file name.
    pub locale: Locale,
    /// Who gets the mail, when it is not the caller.
    pub notify_email: Option<String>,
    /// The name that people see.
    pub file_name: String,
    /// The file, once there is one.
    pub file: Option<FinishedFile>,
    /// Where it is in its life.
    pub status: JobStatus,
    /// Why it failed or was canceled, safe to show.
    pub failure: Option<(FailureCode, String)>,
    /// Number of the latest run; 0 before the first, only ever grows.
    pub run: u32,
    /// Runs that failed.
    pub failures: u32,
    /// How far it is.
    pub progress: Progress,
    /// When it is due, while pending.
    pub due_at: DateTime<Utc>,
    /// When its file goes.
    pub expires_at: Option<DateTime<Utc>>,
    /// When its first run began.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// When it was requested.
    pub created_at: DateTime<Utc>,
    /// When its row last changed.
    pub updated_at: DateTime<Utc>,
    /// When its file was deleted by request.
    pub deleted_at: Option<DateTime<Utc>>,
}

impl ExportJob {
    /// The event of this job's end, as the contract prints it.
    pub fn event(&self, event_type: ExportEventType) -> ExportEvent {
        ExportEvent { event_type, data: self.event_data() }
    }

    /// The wire form of the job itself.
    pub fn event_data(&self) -> ExportJobData {
        ExportJobData {
            export_job_id: self.id.uuid(),
            export_scheduled_id: self.schedule.map(crate::id::Id::uuid),
            organization_id: self.scope.organization.uuid(),
            company_id: self.scope.company.map(crate::id::Id::uuid),
            cooperative_id: self.scope.cooperative.map(crate::id::Id::uuid),
            requested_by_user_id: self.caller.user.uuid(),
            resource: self.resource.clone(),
            scope_type: self.scope.scope_type.name().to_owned(),
            format: self.format.name().to_owned(),
            columns: self.columns.clone(),
            filters: raw_object(&self.filters),
            file_key: self.file.as_ref().map(|file| file.key.as_str().to_owned()),
            file_name: self.file_name.clone(),
            content_type: self.content_type().to_owned(),
            size_bytes: self.file.as_ref().map(|file| file.size_bytes),
            total_rows: self.file.as_ref().map(|file| file.total_rows),
            failure_reason: self.failure.as_ref().map(|(code, _)| code.name().to_owned()),
            status: self.status.name().to_owned(),
            expires_at: self.expires_at.map(Into::into),
            started_at: self.started_at.map(Into::into),
            finished_at: self.finished_at.map(Into::into),
            created_at: self.created_at.into(),
            updated_at: self.updated_at.into(),
            deleted_at: self.deleted_at.map(Into::into),
        }
    }

    /// The media type of what its key names: the file, or the manifest of a split export.
    pub fn content_type(&self) -> &'static str {
        if self.split { Format::Json.content_type() } else { self.part_content_type() }
    }

    /// The media type of each file of a split export.
    pub fn part_content_type(&self) -> &'static str {
        self.compression.content_type(self.format)
    }

    /// Whom to tell about this job by mail.
    pub fn recipient(&self) -> Option<&str> {
        self.notify_email.as_deref().or(self.caller.email.as_deref())
    }
}

/// A text that was JSON when it was accepted, as raw JSON again.
fn raw_object(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap_or_else(|_| {
        RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
    })
}
