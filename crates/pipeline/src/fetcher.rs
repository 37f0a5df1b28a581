//! One run of a job asked for as of a Fetcher: tables of several connections into one JSON
//! result, which is whole in memory before the first byte of it is stored.

mod prepare;
mod result;
mod value;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use outport_contract::{adapter_managed, digest::Sha256Digest};
use outport_domain::{
    crash::CrashPoint,
    data_request,
    failure::{Failure, FailureCode},
    job::{ExportJob, FinishedFile, Protection, Stage, Warnings},
};
use outport_source::{Batch, Next, RowStream, SourceError};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

pub use prepare::{Fault, Part, Refused, Table, all_there, prepare};
use result::{Rows, whole};

use crate::{
    Pipeline,
    connections::Connections,
    output::{failed, verify},
    run::{Ended, RunState, Target, source_failure, stalled, unusable},
};

/// Connections that are read at once.
pub const CONNECTIONS_AT_ONCE: usize = 4;
/// Bytes of one result before it is encrypted.
pub const RESULT_BYTES: u64 = 256 * 1024 * 1024;

/// What runs of facade jobs need besides what all runs share.
#[derive(Clone)]
pub struct Facade {
    /// What may be read.
    pub connections: Connections,
    /// Whether keys begin with the tenant.
    pub tenant_in_key: bool,
    /// One for each result that this process may hold in memory.
    pub memory: Arc<Semaphore>,
}

/// How much of the result has come, over all connections.
#[derive(Default)]
struct Come {
    bytes: AtomicU64,
    rows: AtomicU64,
}

/// Runs a claimed job up to the verified object. Nothing is committed here.
pub(crate) async fn run_fetcher(
    pipeline: &Pipeline,
    job: &ExportJob,
    state: &Arc<RunState>,
) -> Result<FinishedFile, Ended> {
    let facade = &pipeline.facade;
    state.enter(Stage::Resolve);
    let request = data_request::parse(&job.request).map_err(|errors| {
        failed(Failure::new(FailureCode::SchemaMismatch, prepare::sentence(&errors.into_vec())))
    })?;
    let found = facade.connections.find_accepted(job).await;
    let found = found.map_err(|error| unusable(error.into()))?;
    let parts = prepare(&facade.connections, &found, &request.connections).await;
    let parts = parts.map_err(Ended::from)?;

    state.enter(Stage::Prepare);
    let _memory = permit(facade, state).await;

    state.enter(Stage::Generate);
    let come = Come::default();
    let reads = parts.into_iter().map(|part| read_connection(pipeline, state, part, &come));
    let reads: Vec<_> = reads.collect();
    // The first that fails ends the others.
    let read: Vec<(String, Vec<(String, Rows)>)> =
        stream::iter(reads).buffer_unordered(CONNECTIONS_AT_ONCE).try_collect().await?;
    pipeline.crash.reach(CrashPoint::MidRows).await;
    let rows = come.rows.into_inner();
    state.advance(|progress| progress.end(rows));
    let snapshot_at = read.iter().flat_map(|(_, tables)| tables).map(|(_, rows)| rows.snapshot_at);
    let snapshot_at = snapshot_at.min().unwrap_or_else(Utc::now);
    let plain = whole(read);
    if plain.len() as u64 > RESULT_BYTES {
        return Err(too_large());
    }
    let file = store(pipeline, state, plain, rows, snapshot_at).await?;
    pipeline.crash.reach(CrashPoint::AfterUpload).await;

    state.enter(Stage::Validate);
    verify(state, &file.key, file.stored_bytes).await?;
    pipeline.crash.reach(CrashPoint::AfterVerify).await;
    Ok(file)
}

/// Waits for memory. It is no standstill: another result is being read.
async fn permit(facade: &Facade, state: &RunState) -> OwnedSemaphorePermit {
    let mut permit = Box::pin(Arc::clone(&facade.memory).acquire_owned());
    loop {
        match tokio::time::timeout(state.limits.heartbeat, &mut permit).await {
            Ok(permit) => return permit.expect("it is never closed"),
            Err(_elapsed) => state.touch(),
        }
    }
}

/// Reads all tables of one connection.
async fn read_connection(
    pipeline: &Pipeline,
    state: &RunState,
    part: Part,
    come: &Come,
) -> Result<(String, Vec<(String, Rows)>), Ended> {
    let selections: Vec<_> = part.tables.iter().map(|table| &table.selection).collect();
    let opening = part.source.open_all(&selections);
    let opened = tokio::time::timeout(state.limits.no_progress, opening).await;
    let streams = opened.map_err(|_elapsed| stalled())?.map_err(|error| of(&part.name, error))?;
    let mut tables = Vec::with_capacity(part.tables.len());
    for (table, stream) in part.tables.into_iter().zip(streams) {
        let rows = Rows::new(stream.snapshot_at(), &table);
        let rows = read_table(state, stream, rows, come).await.map_err(|ended| match ended {
            Ended::Failed(failure, cause) => Ended::Failed(
                Failure::new(
                    failure.code,
                    format!("{}.{}: {}", part.name, table.name, failure.message),
                )
                .with_disposition(failure.disposition),
                cause,
            ),
            ended => ended,
        })?;
        tables.push((table.name, rows));
        pipeline.crash.reach(CrashPoint::MidRows).await;
    }
    Ok((part.name, tables))
}

fn of(connection: &str, error: SourceError) -> Ended {
    let failure = Failure::from(&error);
    let message = format!("{connection}: {}", failure.message);
    let failure = Failure::new(failure.code, message).with_disposition(failure.disposition);
    Ended::Failed(failure, Some(Box::new(error)))
}

/// Reads a table until the source says that its result is complete.
async fn read_table(
    state: &RunState,
    mut stream: Box<dyn RowStream>,
    mut rows: Rows,
    come: &Come,
) -> Result<Rows, Ended> {
    let opened = Instant::now();
    let mut batch = Batch::new(rows.columns());
    loop {
        let next = tokio::select! {
            biased;
            () = state.stop.cancelled() => None,
            next = tokio::time::timeout(state.limits.no_progress, stream.next(&mut batch)) => Some(next),
        };
        let ended = match next {
            None => Ended::Canceled,
            Some(Err(_elapsed)) => stalled(),
            Some(Ok(Err(error))) => return Err(source_failure(error)),
            Some(Ok(Ok(Next::End { rows: counted }))) if counted == rows.count() => {
                return Ok(rows);
            }
            Some(Ok(Ok(Next::End { rows: counted }))) => {
                let message =
                    format!("the source counted {counted} rows and {} came", rows.count());
                return Err(failed(Failure::new(FailureCode::SourceTruncated, message)));
            }
            Some(Ok(Ok(Next::Rows))) if opened.elapsed() > state.limits.snapshot_age => {
                let message = "reading took longer than a snapshot may live; narrow the filters";
                failed(Failure::new(FailureCode::SnapshotTooOld, message))
            }
            Some(Ok(Ok(Next::Rows))) => match take(state, &batch, &mut rows, come) {
                Ok(()) => continue,
                Err(ended) => ended,
            },
        };
        stream.cancel().await;
        return Err(ended);
    }
}

fn take(state: &RunState, batch: &Batch, rows: &mut Rows, come: &Come) -> Result<(), Ended> {
    let before = rows.bytes();
    rows.take(batch).map_err(failed)?;
    let grown = (rows.bytes() - before) as u64;
    let all = come.rows.fetch_add(batch.rows() as u64, Ordering::Relaxed) + batch.rows() as u64;
    state.advance(|progress| progress.reach(all));
    if come.bytes.fetch_add(grown, Ordering::Relaxed) + grown > RESULT_BYTES {
        return Err(too_large());
    }
    Ok(())
}

fn too_large() -> Ended {
    let message = format!(
        "the result has more than {} MiB; narrow the filters",
        RESULT_BYTES / (1024 * 1024)
    );
    failed(Failure::new(FailureCode::LimitExceeded, message))
}

/// Signs, encrypts and stores the result.
async fn store(
    pipeline: &Pipeline,
    state: &Arc<RunState>,
    plain: Vec<u8>,
    total_rows: u64,
    snapshot_at: DateTime<Utc>,
) -> Result<FinishedFile, Ended> {
    let (protection, storage) = (pipeline.protection, pipeline.storage.clone());
    let mut signer = state.signer.clone();
    let size_bytes = plain.len() as u64;
    // A second or two of work: not for a thread that others wait on.
    let made = tokio::task::spawn_blocking(move || {
        signer.update(&plain);
        let (integrity, sha256) = (signer.finish(), Sha256Digest::of(&plain).hex());
        // As a Fetcher does it, or not at all.
        let (stored, protection) = match protection {
            Protection::None => (Bytes::from(plain), Protection::None),
            Protection::Sealed | Protection::AdapterManaged => {
                let text = adapter_managed::seal(&storage, plain);
                (Bytes::from(text), Protection::AdapterManaged)
            }
        };
        (integrity, sha256, stored, protection)
    });
    let (integrity, sha256, stored, protection) = made.await.map_err(Ended::panicked)?;
    state.touch();
    let content_type = match protection {
        Protection::None => "application/json",
        Protection::Sealed | Protection::AdapterManaged => "application/octet-stream",
    };
    let key = state.key.clone();
    // It is encrypted already.
    let target = Target { key: key.clone(), content_type, number: None, protection };
    state.record_object(&target, None).await?;
    pipeline.crash.reach(CrashPoint::MidUpload).await;
    state.still_held().await?;
    let stored_bytes = stored.len() as u64;
    state.timed(state.objects.put(&key, content_type, stored)).await?;
    state.touch();
    Ok(FinishedFile {
        key,
        size_bytes,
        stored_bytes,
        total_rows,
        sha256,
        integrity: Some(integrity),
        protection,
        warnings: Warnings::default(),
        snapshot_at,
    })
}
