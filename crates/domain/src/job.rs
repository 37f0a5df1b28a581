//! The `ExportJob` and its total state machine.

mod event;
mod file;
mod format;
mod kind;
mod progress;
mod status;

use chrono::{DateTime, Utc};

use crate::{
    caller::Caller,
    connection::{ConnectionIds, Products},
    failure::FailureCode,
    id::{CompanyId, CooperativeId, JobId, OrganizationId, ScheduleId},
    locale::Locale,
};
pub use event::InvalidEnd;
pub use file::{FinishedFile, FinishedPart, Protection, Warnings};
pub use format::{Compression, Format};
pub use kind::JobKind;
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

/// A job as its row says.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportJob {
    /// Its id.
    pub id: JobId,
    /// What kind of work it is.
    pub kind: JobKind,
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
    /// The stored connections that it was accepted to read; `None` where that was not kept yet.
    pub products: Option<Products>,
    /// Which those of a facade job are; `None` of exports, and where that was not kept yet.
    pub connection_ids: Option<ConnectionIds>,
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
