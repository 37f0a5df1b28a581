//! One run: resolve, read, encode, upload, verify. What it comes to is committed by its worker.

mod state;

use std::{future::Future, sync::Arc};

use outport_contract::time::Instant as Moment;
use outport_domain::{
    crash::CrashPoint,
    failure::{Failure, FailureCode},
    job::{ExportJob, FinishedFile, Stage},
    spec::{self, ExportSpec, RequestContext},
};
use outport_source::{Batch, Next, RowStream, Source, SourceError};
use outport_store::telling::Level;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinHandle},
    time::Instant,
};

pub use state::RunState;
pub(crate) use state::Target;

use crate::{
    Pipeline,
    connections::Unusable,
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

/// Runs a claimed job up to the verified object. Nothing is committed here.
pub async fn run_export(
    pipeline: &Pipeline,
    job: &ExportJob,
    state: &Arc<RunState>,
) -> Result<FinishedFile, Ended> {
    state.enter(Stage::Resolve);
    let mut spec = resolve(pipeline, job)?;
    let source = source_of(pipeline, job, &mut spec).await?;

    state.enter(Stage::Prepare);
    let rows = open(&*source, &spec, state).await?;
    let snapshot_at = rows.snapshot_at();
    let taken = Moment::from(snapshot_at).text();
    state.say(Level::Info, &format!("The snapshot of the source was taken at {taken}."));

    state.enter(Stage::Analyze);
    let estimate = rows.estimated_rows();
    state.advance(|progress| progress.expect(estimate));
    if let Some(rows) = estimate {
        state.say(Level::Info, &format!("The source expects {rows} rows."));
    }

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

/// The configured connection of this name, or else one that the job's organization stores, which
/// may say what schema unqualified tables are in.
async fn source_of(
    pipeline: &Pipeline,
    job: &ExportJob,
    spec: &mut ExportSpec,
) -> Result<Arc<dyn Source>, Ended> {
    let name = &spec.resource.connection;
    if let Some(configured) = pipeline.sources.get(name) {
        return Ok(Arc::clone(configured));
    }
    let stored = pipeline.facade.connections.stored(job, name).await;
    let usable = stored.map_err(unusable)?;
    let relation = spec.selection.relation.clone();
    spec.selection.relation = relation.within(usable.default_schema.as_deref());
    Ok(usable.source())
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

pub(crate) fn unusable(error: Unusable) -> Ended {
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
