//! One run: resolve, read, encode, upload, verify. What it comes to is committed by its worker.

use std::{
    future::Future,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use outport_contract::{key_ring::KeyRing, signature::ResultSigner};
use outport_domain::{
    crash::CrashPoint,
    failure::{Failure, FailureCode},
    id::Fence,
    job::{ExportJob, FinishedFile, FinishedPart, Progress, Protection, Stage},
    limits::Limits,
    object_key::ObjectKey,
    spec::{self, ExportSpec, RequestContext},
};
use outport_objects::{ObjectError, ObjectStore};
use outport_source::{Batch, Next, RowStream, Source, SourceError};
use outport_store::{
    Store, StoreError,
    jobs::{self, Hold},
    parts,
    runs::Written,
};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinHandle},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Pipeline,
    file_writer::store_failure,
    output::{Output, verify},
};

/// Batches on their way from the reader to the encoder.
const BATCHES_IN_FLIGHT: usize = 2;

/// How a run ended without a file.
#[derive(Debug)]
pub enum Ended {
    /// It failed; the cause is for the log.
    Failed(Failure, Option<outport_store::Cause>),
    /// It was asked to stop.
    Canceled,
    /// Its lease is another's: it writes nothing more.
    Lost,
    /// Its worker is stopping.
    HandedBack,
}

impl Ended {
    pub(crate) fn stuck_store() -> Self {
        Self::Failed(
            Failure::new(
                FailureCode::StoreWriteFailed,
                "the object store made no progress in time",
            ),
            None,
        )
    }

    pub(crate) fn panicked(join: JoinError) -> Self {
        Self::Failed(
            Failure::new(
                FailureCode::Internal,
                "an unexpected error ended the run; the log has the details",
            ),
            Some(Box::new(join)),
        )
    }
}

/// A task that does not outlive who waits for it.
pub(crate) struct AbortOnDrop<T>(JoinHandle<T>);

impl<T: Send + 'static> AbortOnDrop<T> {
    pub(crate) fn spawn(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }

    /// Waits for its end. Cancel-safe: a dropped wait does not end the task.
    pub(crate) async fn join(&mut self) -> Result<T, JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

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
    progress: Mutex<Progress>,
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
            progress: Mutex::default(),
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
        *lock(&self.progress)
    }

    pub(crate) fn written(&self) -> Vec<Written> {
        lock(&self.written).clone()
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.advance(|progress| progress.stage = Some(stage));
    }

    pub(crate) fn advance(&self, how: impl FnOnce(&mut Progress)) {
        how(&mut lock(&self.progress));
        self.touch();
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

/// Runs a claimed job up to the verified object. Nothing is committed here.
pub async fn run_export(
    pipeline: &Pipeline,
    job: &ExportJob,
    state: &Arc<RunState>,
) -> Result<FinishedFile, Ended> {
    state.enter(Stage::Resolve);
    let spec = resolve(pipeline, job)?;
    let source = source_of(pipeline, job, &spec).await?;

    state.enter(Stage::Prepare);
    let rows = open(&*source, &spec, state).await?;
    let snapshot_at = rows.snapshot_at();

    state.enter(Stage::Analyze);
    state.advance(|progress| progress.expect(rows.estimated_rows()));

    state.enter(Stage::Generate);
    let mut output = Output::open(pipeline, &spec, state)?;
    let counted = transfer(pipeline, state, rows, spec.columns.len(), &mut output).await?;
    if counted != output.rows() {
        let message =
            format!("the source counted {counted} rows and {} were encoded", output.rows());
        return Err(Ended::Failed(Failure::new(FailureCode::SourceTruncated, message), None));
    }
    state.advance(|progress| progress.end(counted));
    let file = output.finish(job, snapshot_at).await?;
    pipeline.crash.reach(CrashPoint::AfterUpload).await;

    state.enter(Stage::Validate);
    verify(state, &file.key, file.stored_bytes).await?;
    pipeline.crash.reach(CrashPoint::AfterVerify).await;
    Ok(file)
}

/// The accepted body once more, against the resources as they are declared now.
fn resolve(pipeline: &Pipeline, job: &ExportJob) -> Result<ExportSpec, Ended> {
    let context = RequestContext {
        caller: &job.caller,
        locale: job.locale,
        requested_at: job.created_at,
        resolved_filters: job.resolved_filters.as_deref(),
    };
    spec::parse(&job.request, &pipeline.catalogue, context).map_err(|errors| {
        let faults: Vec<String> =
            errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
        let message = format!("the request no longer fits its resource: {}", faults.join("; "));
        Ended::Failed(Failure::new(FailureCode::SchemaMismatch, message), None)
    })
}

/// The configured connection of this name, or else one that the job's organization stores.
async fn source_of(
    pipeline: &Pipeline,
    job: &ExportJob,
    spec: &ExportSpec,
) -> Result<Arc<dyn Source>, Ended> {
    let name = &spec.resource.connection;
    if let Some(configured) = pipeline.sources.get(name) {
        return Ok(Arc::clone(configured));
    }
    let stored = pipeline.facade.connections.stored(job.scope.organization, name).await;
    stored
        .map(|usable| usable.source())
        .map_err(|error| Ended::Failed(Failure::from(&error), Some(Box::new(error))))
}

async fn open(
    source: &dyn Source,
    spec: &ExportSpec,
    state: &RunState,
) -> Result<Box<dyn RowStream>, Ended> {
    let opened = tokio::time::timeout(state.limits.no_progress, source.open(&spec.selection)).await;
    match opened {
        Ok(opened) => opened.map_err(source_failure),
        Err(_elapsed) => Err(stalled()),
    }
}

pub(crate) fn source_failure(error: SourceError) -> Ended {
    Ended::Failed(Failure::from(&error), Some(Box::new(error)))
}

pub(crate) fn stalled() -> Ended {
    Ended::Failed(
        Failure::new(FailureCode::SourceStalled, "the source sent nothing for too long"),
        None,
    )
}

/// Moves all rows into the file and returns how many the reader counted.
async fn transfer(
    pipeline: &Pipeline,
    state: &Arc<RunState>,
    rows: Box<dyn RowStream>,
    columns: usize,
    output: &mut Output<'_>,
) -> Result<u64, Ended> {
    let (filled, mut batches) = mpsc::channel(BATCHES_IN_FLIGHT);
    let (emptied, spare) = mpsc::channel(BATCHES_IN_FLIGHT + 2);
    // Whatever ends this function, the query ends too.
    let _query_ends = state.stop.clone().drop_guard();
    let mut reader = AbortOnDrop::spawn(read(Arc::clone(state), rows, columns, filled, spare));
    let mut first = true;
    while let Some(batch) = batches.recv().await {
        output.take(batch, &emptied).await?;
        state.advance(|progress| progress.reach(output.rows()));
        if first {
            first = false;
            pipeline.crash.reach(CrashPoint::MidRows).await;
        }
    }
    if first {
        pipeline.crash.reach(CrashPoint::MidRows).await;
    }
    reader.join().await.unwrap_or_else(|join| Err(Ended::panicked(join)))
}

/// The reader: fills batches until the source says that the result is complete.
async fn read(
    state: Arc<RunState>,
    mut rows: Box<dyn RowStream>,
    columns: usize,
    filled: mpsc::Sender<Batch>,
    mut spare: mpsc::Receiver<Batch>,
) -> Result<u64, Ended> {
    let opened = Instant::now();
    loop {
        let mut batch = spare.try_recv().unwrap_or_else(|_| Batch::new(columns));
        let next = tokio::select! {
            biased;
            () = state.stop.cancelled() => None,
            next = tokio::time::timeout(state.limits.no_progress, rows.next(&mut batch)) => Some(next),
        };
        let ended = match next {
            None => Ended::Canceled,
            Some(Err(_elapsed)) => stalled(),
            Some(Ok(Err(error))) => return Err(source_failure(error)),
            Some(Ok(Ok(Next::End { rows }))) => return Ok(rows),
            Some(Ok(Ok(Next::Rows))) if opened.elapsed() > state.limits.snapshot_age => {
                let message = "reading took longer than a snapshot may live; narrow the filters";
                Ended::Failed(Failure::new(FailureCode::SnapshotTooOld, message), None)
            }
            Some(Ok(Ok(Next::Rows))) => {
                state.touch();
                if filled.send(batch).await.is_ok() {
                    continue;
                }
                Ended::Canceled
            }
        };
        rows.cancel().await;
        return Err(ended);
    }
}
