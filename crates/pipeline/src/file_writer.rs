//! The file writer: counts and digests bytes on their way, and uploads them as parts of one
//! size, a few in flight, or as one request when they fit into a single part.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use outport_contract::digest::Sha256;
use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    failure::{Failure, FailureCode},
    limits::fixed,
};
use outport_objects::{ObjectError, Upload};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::run::{AbortOnDrop, Ended, RunState, Target};

/// What was written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) size_bytes: u64,
    pub(crate) sha256: String,
}

/// Writes one file of one run.
pub(crate) struct FileWriter {
    state: Arc<RunState>,
    crash: CrashPlan,
    target: Target,
    buffer: Vec<u8>,
    spare: Spare,
    uploader: Option<Uploader>,
    size_bytes: u64,
    sha256: Sha256,
}

/// The task that uploads parts, and the way to it. A permit travels with each part, so that the
/// memory of parts is bounded wherever they are.
struct Uploader {
    parts: mpsc::Sender<Part>,
    permits: Arc<Semaphore>,
    task: AbortOnDrop<Result<(), Ended>>,
}

struct Part {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

/// The memory of parts that are uploaded, for later parts: large pieces that are given back and
/// asked for again, by threads in turns, add up to far more than is ever in use.
#[derive(Clone, Default)]
struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spare {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        // The list is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes whose memory is spare once nobody needs them any more.
struct Borrowed {
    bytes: Vec<u8>,
    spare: Spare,
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.spare.lock().push(bytes);
    }
}

impl FileWriter {
    pub(crate) fn new(state: Arc<RunState>, crash: CrashPlan, target: Target) -> Self {
        Self {
            state,
            crash,
            target,
            buffer: Vec::new(),
            spare: Spare::default(),
            uploader: None,
            size_bytes: 0,
            sha256: Sha256::new(),
        }
    }

    /// Bytes so far.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Takes the next bytes of the file. Waits while too many parts are in flight.
    pub(crate) async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Ended> {
        self.sha256.update(bytes);
        self.size_bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            // A part is sent when a byte follows it, so a file of exactly one part stays small.
            if self.buffer.len() == fixed::PART_BYTES {
                self.send_part().await?;
            }
            // A small file never pays for a whole part; a large one does not grow by doubling.
            let grown = self.buffer.len() + bytes.len();
            if grown > self.buffer.capacity() && grown > fixed::PART_BYTES / 8 {
                self.buffer.reserve_exact(fixed::PART_BYTES - self.buffer.len());
            }
            let taken = bytes.len().min(fixed::PART_BYTES - self.buffer.len());
            let (now, later) = bytes.split_at(taken);
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    async fn send_part(&mut self) -> Result<(), Ended> {
        let uploader = match self.uploader.take() {
            Some(uploader) => uploader,
            None => self.open().await?,
        };
        let limit = self.state.limits.no_progress;
        let permit = Arc::clone(&uploader.permits).acquire_owned();
        let permit = match tokio::time::timeout(limit, permit).await {
            Ok(Ok(permit)) => permit,
            // The uploader ended early, and says why.
            Ok(Err(_closed)) => return Err(uploader.end().await.expect_err("it ended early")),
            Err(_elapsed) => return Err(Ended::stuck_store()),
        };
        let next = self.spare.lock().pop().unwrap_or_default();
        let bytes = std::mem::replace(&mut self.buffer, next);
        let bytes = Bytes::from_owner(Borrowed { bytes, spare: self.spare.clone() });
        if uploader.parts.send(Part { bytes, _permit: permit }).await.is_err() {
            return Err(uploader.end().await.expect_err("it ended early"));
        }
        self.uploader = Some(uploader);
        Ok(())
    }

    async fn open(&self) -> Result<Uploader, Ended> {
        let state = Arc::clone(&self.state);
        let Target { key, content_type, .. } = &self.target;
        let upload = state.timed(state.objects.begin(key, content_type)).await?;
        state.record_object(&self.target, Some(upload.id())).await?;
        // The part that is being filled counts as well.
        let permits = Arc::new(Semaphore::new(fixed::PARTS_IN_FLIGHT - 1));
        let (parts, queue) = mpsc::channel(fixed::PARTS_IN_FLIGHT);
        let task = upload_parts(state, self.crash.clone(), upload, queue, Arc::clone(&permits));
        Ok(Uploader { parts, permits, task: AbortOnDrop::spawn(task) })
    }

    /// Sends what is left and makes the object visible.
    pub(crate) async fn finish(mut self) -> Result<Written, Ended> {
        if self.uploader.is_some() {
            self.send_part().await?;
        }
        let state = Arc::clone(&self.state);
        if let Some(uploader) = self.uploader.take() {
            uploader.end().await?;
        } else {
            state.record_object(&self.target, None).await?;
            self.crash.reach(CrashPoint::MidUpload).await;
            let bytes = Bytes::from(std::mem::take(&mut self.buffer));
            let Target { key, content_type, .. } = &self.target;
            state.timed(state.objects.put(key, content_type, bytes)).await?;
        }
        state.touch();
        Ok(Written { size_bytes: self.size_bytes, sha256: self.sha256.finish().hex() })
    }
}

impl Uploader {
    /// Waits until every part is uploaded and the object is whole.
    async fn end(mut self) -> Result<(), Ended> {
        drop(self.parts);
        self.task.join().await.unwrap_or_else(|join| Err(Ended::panicked(join)))
    }
}

/// Uploads parts as they come, all in flight at once that have a permit, then finishes.
async fn upload_parts(
    state: Arc<RunState>,
    crash: CrashPlan,
    upload: Box<dyn Upload>,
    mut queue: mpsc::Receiver<Part>,
    permits: Arc<Semaphore>,
) -> Result<(), Ended> {
    // However this ends, nobody must go on waiting for a permit.
    let _closed_at_the_end = CloseOnDrop(permits);
    let mut in_flight = FuturesUnordered::new();
    let mut number = 0;
    loop {
        tokio::select! {
            part = queue.recv() => match part {
                Some(part) => {
                    number += 1;
                    in_flight.push(upload_part(&state, &crash, &*upload, number, part));
                }
                None => break,
            },
            Some(done) = in_flight.next() => done?,
        }
    }
    while let Some(done) = in_flight.next().await {
        done?;
    }
    drop(in_flight);
    state.still_held().await?;
    state.timed(upload.finish()).await?;
    Ok(())
}

async fn upload_part(
    state: &RunState,
    crash: &CrashPlan,
    upload: &dyn Upload,
    number: u32,
    part: Part,
) -> Result<(), Ended> {
    let Part { bytes, _permit } = part;
    match tokio::time::timeout(state.limits.no_progress, upload.part(number, bytes)).await {
        Ok(result) => result.map_err(store_failure)?,
        Err(_elapsed) => return Err(Ended::stuck_store()),
    }
    state.touch();
    if number == 1 {
        crash.reach(CrashPoint::MidUpload).await;
    }
    Ok(())
}

struct CloseOnDrop(Arc<Semaphore>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A failure of the object store as the end of a run.
pub(crate) fn store_failure(error: ObjectError) -> Ended {
    Ended::Failed(
        Failure::new(FailureCode::StoreWriteFailed, error.to_string()),
        Some(Box::new(error)),
    )
}
