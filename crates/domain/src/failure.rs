//! Why a job failed: one stable code for machines, one safe sentence for people.

use std::fmt;

/// The stable codes of `failureReason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each code is described once, by `meaning`")]
pub enum FailureCode {
    SourceUnreachable,
    SourceQueryFailed,
    SourceStalled,
    SourceTruncated,
    SchemaMismatch,
    ValueNotEncodable,
    LimitExceeded,
    StoreWriteFailed,
    StoreMismatch,
    WorkerLost,
    SnapshotTooOld,
    Canceled,
    Internal,
}

impl FailureCode {
    /// All of them, in the order of the reference page.
    pub const ALL: [Self; 13] = [
        Self::SourceUnreachable,
        Self::SourceQueryFailed,
        Self::SourceStalled,
        Self::SourceTruncated,
        Self::SchemaMismatch,
        Self::ValueNotEncodable,
        Self::LimitExceeded,
        Self::StoreWriteFailed,
        Self::StoreMismatch,
        Self::WorkerLost,
        Self::SnapshotTooOld,
        Self::Canceled,
        Self::Internal,
    ];

    /// The code on the wire, e.g. `SOURCE_UNREACHABLE`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SourceUnreachable => "SOURCE_UNREACHABLE",
            Self::SourceQueryFailed => "SOURCE_QUERY_FAILED",
            Self::SourceStalled => "SOURCE_STALLED",
            Self::SourceTruncated => "SOURCE_TRUNCATED",
            Self::SchemaMismatch => "SCHEMA_MISMATCH",
            Self::ValueNotEncodable => "VALUE_NOT_ENCODABLE",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::StoreWriteFailed => "STORE_WRITE_FAILED",
            Self::StoreMismatch => "STORE_MISMATCH",
            Self::WorkerLost => "WORKER_LOST",
            Self::SnapshotTooOld => "SNAPSHOT_TOO_OLD",
            Self::Canceled => "CANCELED",
            Self::Internal => "INTERNAL",
        }
    }

    /// The code with this wire name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// What the code means and what to do, for the reference page.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::SourceUnreachable => {
                "The source database could not be reached. Check that it is up and that the connection's address and credentials are right. \
                 The message says so where the connection is gone, or where the worker lacks the key \
                 that its credentials are sealed with."
            }
            Self::SourceQueryFailed => {
                "The source database refused or broke off the query. The message says what it answered, or only the \
                 code of it where the words could hold values of rows."
            }
            Self::SourceStalled => {
                "The source database sent nothing for longer than the no-progress time. Look for locks or an overloaded server."
            }
            Self::SourceTruncated => {
                "The connection to the source ended before the end of the result. Nothing was stored."
            }
            Self::SchemaMismatch => {
                "The resource's declaration no longer fits the source's tables, or the request no longer fits the declaration."
            }
            Self::ValueNotEncodable => {
                "A value cannot be written in the requested format: the message names the column. \
                 Or a row is larger than 64 MiB, the most that one may be."
            }
            Self::LimitExceeded => {
                "The export would exceed a limit of rows, bytes or files. Narrow the filters."
            }
            Self::StoreWriteFailed => {
                "The object store did not take the file. Check its reachability, credentials and free space."
            }
            Self::StoreMismatch => {
                "The object store reports another length for the file than was sent. Nothing was published."
            }
            Self::WorkerLost => {
                "The worker that ran the job was lost, and so were those of all further attempts."
            }
            Self::SnapshotTooOld => {
                "Reading took longer than a snapshot may live. Narrow the filters or raise the ceiling."
            }
            Self::Canceled => "The job was canceled by request.",
            Self::Internal => "An unexpected error in Outport itself. The log has the details.",
        }
    }

    /// What to do with a job that failed this way, unless the error at hand knows better.
    pub const fn disposition(self) -> Disposition {
        match self {
            Self::SourceUnreachable
            | Self::SourceStalled
            | Self::SourceTruncated
            | Self::StoreWriteFailed
            | Self::StoreMismatch
            | Self::WorkerLost
            | Self::Internal => Disposition::Retry,
            Self::SourceQueryFailed
            | Self::SchemaMismatch
            | Self::ValueNotEncodable
            | Self::LimitExceeded
            | Self::SnapshotTooOld
            | Self::Canceled => Disposition::Abandon,
        }
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What now, after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Try again, with back-off, while the budget lasts.
    Retry,
    /// Trying again cannot help.
    Abandon,
}

/// How a run failed, as far as outsiders may know: `message` is already redacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The stable code.
    pub code: FailureCode,
    /// One sentence for a person, free of addresses, credentials and row values.
    pub message: String,
    /// Whether another run may help.
    pub disposition: Disposition,
}

impl Failure {
    /// A failure with the code's own disposition. The message is redacted here, so that no
    /// way of making a failure can forget it.
    pub fn new(code: FailureCode, message: impl AsRef<str>) -> Self {
        Self {
            code,
            message: outport_contract::redaction::redact(message.as_ref()),
            disposition: code.disposition(),
        }
    }

    /// The same failure with another disposition.
    #[must_use]
    pub fn with_disposition(self, disposition: Disposition) -> Self {
        Self { disposition, ..self }
    }
}
