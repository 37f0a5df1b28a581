//! What a run makes, and what is known of it.

use chrono::{DateTime, Utc};
use outport_contract::{
    adapter_managed,
    job_event::{self, Integrity},
    sealed,
};

use crate::object_key::ObjectKey;

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
    /// The signature over the same bytes. `None` for files of before there were signatures.
    pub integrity: Option<Integrity>,
    /// How it is stored; of a split export: how its manifest and all its files are.
    pub protection: Protection,
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
    /// Bytes as stored.
    pub stored_bytes: u64,
    /// SHA-256 of the bytes as delivered, lower-case hex.
    pub sha256: String,
    /// The signature over the same bytes. `None` for files of before there were signatures.
    pub integrity: Option<Integrity>,
}

/// How the stored bytes are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    #[default]
    None,
    /// Chunk by chunk, see [`sealed`].
    Sealed,
    /// As a whole, as a Fetcher stores them, see [`adapter_managed`].
    AdapterManaged,
}

impl Protection {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Sealed, Self::AdapterManaged];

    /// `none`, or the mode as `job.completed` says it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sealed => sealed::MODE,
            Self::AdapterManaged => adapter_managed::MODE,
        }
    }

    /// The one of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protection| protection.name() == name)
    }

    /// What the event says of it.
    pub const fn described(self) -> job_event::Protection {
        match self {
            Self::None => job_event::Protection::NONE,
            Self::Sealed => job_event::Protection::SEALED,
            Self::AdapterManaged => job_event::Protection::ADAPTER_MANAGED,
        }
    }
}
