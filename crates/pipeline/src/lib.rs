//! One run of an export job, from its claim to its commit, readable in [`run::run_export`].
//!
//! **Words.** The *reader* takes batches from the source, the *encoder* makes bytes of them,
//! the *file writer* counts, digests and uploads them. A *run* owns all three and a *lease*
//! that lives only as long as the run shows progress.
//!
//! **Invariants.** A job becomes COMPLETED only when the source said that its result was
//! complete, the encoder counted as many rows as the reader, and the store reports as many
//! bytes as were sent. Where a run will write is recorded before its first byte. A run that
//! lost its lease writes nothing more. Cleaning up never touches the object that the job names.
//!
//! **Absent on purpose.** Telling anybody: the relay does that, and the two meet only in a table.

mod cell;
pub mod compressed;
pub mod connections;
pub mod csv;
pub mod encoder;
pub mod fetcher;
mod file_writer;
pub mod foresight;
pub mod json;
mod lease;
mod measure;
mod memory;
mod moment;
mod output;
pub mod parquet;
pub mod run;
mod spool;
pub mod sweeper;
mod telling;
mod worker;
pub mod xlsx;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use outport_contract::{key_ring::KeyRing, signature::ResultSigner};
use outport_domain::{crash::CrashPlan, job::Protection, limits::Limits, spec::Catalogue};
use outport_objects::ObjectStore;
use outport_source::Source;
use outport_store::{Store, jobs::FinishPolicy};

use crate::fetcher::Facade;

/// What all runs of one process share.
#[derive(Clone)]
pub struct Pipeline {
    /// Our own state.
    pub store: Store,
    /// Where files go.
    pub objects: Arc<dyn ObjectStore>,
    /// What may be exported.
    pub catalogue: Arc<Catalogue>,
    /// The configured connections by name.
    pub sources: Arc<BTreeMap<String, Arc<dyn Source>>>,
    /// For jobs asked for as of a Fetcher, and for the connections that organizations store.
    pub facade: Facade,
    /// Signs results; nothing is signed with it yet.
    pub signer: ResultSigner,
    /// Seals what is stored.
    pub storage: KeyRing,
    /// How files are stored whose resource does not say.
    pub protection: Protection,
    /// Every bound.
    pub limits: Arc<Limits>,
    /// Where what a slow object store does not take yet waits, in temporary files.
    pub spool_dir: PathBuf,
    /// Where this process dies in tests.
    pub crash: CrashPlan,
}

impl Pipeline {
    /// The budgets that ending a run applies.
    pub fn finish_policy(&self) -> FinishPolicy {
        FinishPolicy {
            job_failures: self.limits.job_failures,
            backoff: self.limits.job_backoff,
            backoff_most: self.limits.job_backoff_most,
            file_retention: self.limits.file_retention,
        }
    }
}
