//! What a run shares with its lease and with who cleans up after it.

use std::{
    future::Future,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use outport_contract::{key_ring::KeyRing, signature::ResultSigner};
use outport_domain::{
    failure::{Failure, FailureCode},
    id::Fence,
    job::{FinishedPart, Progress, Protection, Stage},
    limits::Limits,
    object_key::ObjectKey,
};
use outport_objects::{ObjectError, ObjectStore};
use outport_store::{
    Store, StoreError,
    jobs::{self, Hold},
    parts,
    runs::Written,
    telling::Level,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Ended;
use crate::{Pipeline, file_writer::store_failure, telling::Telling};

/// An object that a run is about to write.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) key: ObjectKey,
    pub(crate) content_type: &'static str,
    /// Its number among the files of a split export, counted from 1.
    pub(crate) number: Option<u32>,
    pub(crate) protection: Protection,
}

/// What a run shares with its lease and with who cleans up after it.
pub struct RunState {
    pub(crate) store: Store,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) signer: ResultSigner,
    pub(crate) storage: KeyRing,
    pub(crate) limits: Arc<Limits>,
    pub(crate) spool_dir: PathBuf,
    pub(crate) fence: Fence,
    /// The file, or the manifest of a split export.
    pub(crate) key: ObjectKey,
    /// Set when the query must end: by cancel, loss, or any other end of the run.
    pub(crate) stop: CancellationToken,
    pub(crate) telling: Telling,
    touched: Mutex<Instant>,
    /// What was begun, each before its first byte.
    written: Mutex<Vec<Written>>,
}

impl RunState {
    pub(crate) fn new(pipeline: &Pipeline, fence: Fence, key: ObjectKey) -> Self {
        Self {
            store: pipeline.store.clone(),
            objects: Arc::clone(&pipeline.objects),
            signer: pipeline.signer.clone(),
            storage: pipeline.storage.clone(),
            limits: Arc::clone(&pipeline.limits),
            spool_dir: pipeline.spool_dir.clone(),
            fence,
            key,
            stop: CancellationToken::new(),
            telling: Telling::default(),
            touched: Mutex::new(Instant::now()),
            written: Mutex::default(),
        }
    }

    /// Says that the run got on.
    pub(crate) fn touch(&self) {
        *lock(&self.touched) = Instant::now();
    }

    /// How long ago the run last got on.
    pub(crate) fn idle(&self) -> Duration {
        lock(&self.touched).elapsed()
    }

    pub(crate) fn progress(&self) -> Progress {
        self.telling.progress()
    }

    pub(crate) fn written(&self) -> Vec<Written> {
        lock(&self.written).clone()
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.telling.enter(stage);
        self.touch();
    }

    pub(crate) fn advance(&self, how: impl FnOnce(&mut Progress)) {
        self.telling.advance(how);
        self.touch();
    }

    /// Tells a person who looks on.
    pub(crate) fn say(&self, level: Level, message: &str) {
        self.telling.say(level, message);
    }

    /// An operation of the object store, within the no-progress time.
    pub(crate) async fn timed<T>(
        &self,
        operation: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, Ended> {
        match tokio::time::timeout(self.limits.no_progress, operation).await {
            Ok(result) => result.map_err(store_failure),
            Err(_elapsed) => Err(Ended::stuck_store()),
        }
    }

    /// Looks once more before something becomes visible in the store.
    pub(crate) async fn still_held(&self) -> Result<(), Ended> {
        match jobs::look(&self.store, &[self.fence]).await.as_deref() {
            Ok([Hold::Lost] | []) => Err(Ended::Lost),
            // Without an answer the commit decides: it is fenced.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Records where this run writes, before there is anything at it; once more when the id of
    /// an upload is known.
    pub(crate) async fn record_object(
        &self,
        target: &Target,
        upload_id: Option<&str>,
    ) -> Result<(), Ended> {
        let Target { key, number, .. } = target;
        let written = Written { key: key.clone(), upload_id: upload_id.map(str::to_owned) };
        {
            let mut all = lock(&self.written);
            match all.iter_mut().rev().find(|known| known.key == *key) {
                Some(known) => *known = written,
                None => all.push(written),
            }
        }
        let (store, fence) = (&self.store, &self.fence);
        let hold = match number {
            None => jobs::record_object(store, fence, key, upload_id).await,
            Some(number) => {
                jobs::record_part(store, fence, &self.key, *number, key, upload_id).await
            }
        };
        match hold.map_err(state_failure)? {
            Hold::Held | Hold::CancelRequested => Ok(()),
            Hold::Lost => Err(Ended::Lost),
        }
    }

    /// Records what a file of a split export has come to.
    pub(crate) async fn record_part_written(&self, part: &FinishedPart) -> Result<(), Ended> {
        self.touch();
        parts::record_written(&self.store, &self.fence, part).await.map_err(state_failure)
    }
}

fn state_failure(error: StoreError) -> Ended {
    Ended::Failed(
        Failure::new(FailureCode::Internal, "the state database could not be written"),
        Some(Box::new(error)),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Every value behind these locks is whole at any time, so a panic elsewhere spoils nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
