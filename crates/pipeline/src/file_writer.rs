//! The file writer: counts, digests, signs and perhaps seals bytes on their way, and uploads them
//! as parts of one size, a few in flight, or as one request when they fit into a single part. Parts
//! that a slow store does not take yet wait in the [`Spool`]; when that is full, the source waits.

use std::{future, mem, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use outport_contract::{
    digest::Sha256,
    job_event::Integrity,
    redaction::told,
    sealed::{CHUNK_BYTES, Sealer},
    signature::ResultSigner,
};
use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    failure::{Failure, FailureCode},
    job::Protection,
    limits::fixed,
};
use outport_objects::{ObjectError, Upload};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::{
    memory::Memory,
    run::{AbortOnDrop, Ended, RunState, Target},
    spool::{Slot, Spool, Spooled},
};

/// How long a part waits for memory before it is the first on disk. A store that takes a part
/// within this time is fast enough: the disk would only add to the work.
const PATIENCE: Duration = Duration::from_millis(200);

/// What was written.
#[derive(Debug)]
pub(crate) struct Written {
    /// Bytes as delivered: what the digest and the signature are of.
    pub(crate) size_bytes: u64,
    /// What the store must report.
    pub(crate) stored_bytes: u64,
    pub(crate) sha256: String,
    pub(crate) integrity: Integrity,
}

/// Writes one file of one run.
pub(crate) struct FileWriter {
    state: Arc<RunState>,
    crash: CrashPlan,
    target: Target,
    buffer: Vec<u8>,
    memory: Memory,
    /// None when there is to be none, or when it could not be written.
    spool: Option<Spool>,
    uploader: Option<Uploader>,
    size_bytes: u64,
    stored_bytes: u64,
    sha256: Sha256,
    signer: ResultSigner,
    sealer: Option<Sealer>,
    /// What the sealer gives, on its way.
    sealed: Vec<u8>,
}

/// The task that uploads parts, and the way to it.
struct Uploader {
    parts: mpsc::UnboundedSender<Part>,
    task: AbortOnDrop<Result<(), Ended>>,
}

/// A part on its way. Its permit or slot travels with it, so that parts are bounded wherever
/// they are.
enum Part {
    InMemory(Bytes, OwnedSemaphorePermit),
    OnDisk(Spooled),
}

/// Where the next part may be.
enum Place {
    Memory(OwnedSemaphorePermit),
    Disk(Slot),
}

impl FileWriter {
    pub(crate) fn new(state: Arc<RunState>, crash: CrashPlan, target: Target) -> Self {
        let spool = Spool::new(state.limits.spool_bytes_per_export, &state.spool_dir);
        let signer = state.signer.clone();
        let sealer = || Sealer::new(&state.storage, target.key.as_str());
        let sealer = (target.protection == Protection::Sealed).then(sealer);
        Self {
            state,
            crash,
            target,
            buffer: Vec::new(),
            memory: Memory::new(),
            spool,
            uploader: None,
            size_bytes: 0,
            stored_bytes: 0,
            sha256: Sha256::new(),
            signer,
            sealer,
            sealed: Vec::new(),
        }
    }

    /// Bytes so far.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Takes the next bytes of the file. Waits while both memory and spool are full.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.sha256.update(bytes);
        self.signer.update(bytes);
        self.size_bytes += bytes.len() as u64;
        let Some(mut sealer) = self.sealer.take() else { return self.store(bytes).await };
        // A chunk at a time, so that what is sealed takes no more memory when more is given.
        for piece in bytes.chunks(CHUNK_BYTES) {
            sealer.update(piece, &mut self.sealed);
            self.store_sealed().await?;
        }
        self.sealer = Some(sealer);
        Ok(())
    }

    async fn store_sealed(&mut self) -> Result<(), Ended> {
        let mut sealed = mem::take(&mut self.sealed);
        self.store(&sealed).await?;
        sealed.clear();
        self.sealed = sealed;
        Ok(())
    }

    /// Takes the next bytes of the object.
    async fn store(&mut self, mut bytes: &[u8]) -> Result<(), Ended> {
        self.stored_bytes += bytes.len() as u64;
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
        let uploader = self.uploader.take().unwrap_or_else(|| self.start_uploader());
        let part = loop {
            match self.place(&uploader).await {
                Some(Place::Memory(permit)) => {
                    let bytes = mem::replace(&mut self.buffer, self.memory.buffer());
                    break Part::InMemory(self.memory.lend(bytes), permit);
                }
                Some(Place::Disk(slot)) => {
                    if let Some(spooled) = self.spool_part(slot).await? {
                        break Part::OnDisk(spooled);
                    }
                }
                None => return Err(uploader.ended_early().await),
            }
        };
        if uploader.parts.send(part).is_err() {
            return Err(uploader.ended_early().await);
        }
        self.uploader = Some(uploader);
        Ok(())
    }

    /// Waits until the next part may be in memory or on disk. None when the uploader has ended.
    async fn place(&mut self, uploader: &Uploader) -> Option<Place> {
        let (memory, spool) = (&self.memory, &mut self.spool);
        // Parts go in their order: none overtakes what waits on disk.
        let may_stay = spool.as_ref().is_none_or(Spool::is_empty);
        let slot = async {
            let Some(spool) = spool else { return future::pending().await };
            if may_stay {
                tokio::time::sleep(PATIENCE).await;
            }
            spool.slot().await
        };
        tokio::select! {
            biased;
            () = uploader.parts.closed() => None,
            permit = memory.permit(), if may_stay => Some(Place::Memory(permit)),
            slot = slot => Some(Place::Disk(slot)),
        }
    }

    /// Moves the full part to disk. When that fails there is no spool any more: the source
    /// waits for the store instead, and the export is whole all the same.
    async fn spool_part(&mut self, slot: Slot) -> Result<Option<Spooled>, Ended> {
        let Some(spool) = &mut self.spool else { return Ok(None) };
        let written = spool.write(slot, mem::take(&mut self.buffer)).await;
        let (bytes, written) = written.map_err(Ended::panicked)?;
        self.buffer = bytes;
        match written {
            Ok(spooled) => {
                self.buffer.clear();
                Ok(Some(spooled))
            }
            Err(error) => {
                tracing::warn!(job = %self.state.fence.job, error = told(&error), "the spool cannot be written; the source waits for the object store");
                self.spool = None;
                Ok(None)
            }
        }
    }

    fn start_uploader(&self) -> Uploader {
        let (parts, queue) = mpsc::unbounded_channel();
        let (state, crash) = (Arc::clone(&self.state), self.crash.clone());
        let task = upload(state, crash, self.target.clone(), queue, self.memory.clone());
        Uploader { parts, task: AbortOnDrop::spawn(task) }
    }

    /// Sends what is left and makes the object visible.
    pub(crate) async fn finish(mut self) -> Result<Written, Ended> {
        if let Some(sealer) = self.sealer.take() {
            sealer.finish(&mut self.sealed);
            self.store_sealed().await?;
        }
        if self.uploader.is_some() {
            self.send_part().await?;
        }
        let state = Arc::clone(&self.state);
        if let Some(uploader) = self.uploader.take() {
            uploader.end().await?;
        } else {
            state.record_object(&self.target, None).await?;
            self.crash.reach(CrashPoint::MidUpload).await;
            let bytes = Bytes::from(mem::take(&mut self.buffer));
            let Target { key, content_type, .. } = &self.target;
            state.timed(state.objects.put(key, content_type, bytes)).await?;
        }
        state.touch();
        Ok(Written {
            size_bytes: self.size_bytes,
            stored_bytes: self.stored_bytes,
            sha256: self.sha256.finish().hex(),
            integrity: self.signer.finish(),
        })
    }
}

impl Uploader {
    /// Waits until every part is uploaded and the object is whole.
    async fn end(mut self) -> Result<(), Ended> {
        drop(self.parts);
        self.task.join().await.unwrap_or_else(|join| Err(Ended::panicked(join)))
    }

    /// Why it takes no more parts.
    async fn ended_early(self) -> Ended {
        self.end().await.expect_err("it ends well only when no more parts can come")
    }
}

/// Begins an upload, uploads parts as they come, all in flight at once that have a permit, then
/// finishes.
async fn upload(
    state: Arc<RunState>,
    crash: CrashPlan,
    target: Target,
    mut queue: mpsc::UnboundedReceiver<Part>,
    memory: Memory,
) -> Result<(), Ended> {
    // The key is known before there is anything at it, and its id as soon as there is one.
    state.record_object(&target, None).await?;
    let upload = state.timed(state.objects.begin(&target.key, target.content_type)).await?;
    state.record_object(&target, Some(upload.id())).await?;
    let mut in_flight = FuturesUnordered::new();
    let mut number = 0;
    loop {
        tokio::select! {
            part = queue.recv() => match part {
                Some(part) => {
                    number += 1;
                    in_flight.push(upload_part(&state, &crash, &*upload, number, part, &memory));
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
    memory: &Memory,
) -> Result<(), Ended> {
    let (bytes, _permit) = part.into_memory(memory).await?;
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

impl Part {
    async fn into_memory(self, memory: &Memory) -> Result<(Bytes, OwnedSemaphorePermit), Ended> {
        let spooled = match self {
            Self::InMemory(bytes, permit) => return Ok((bytes, permit)),
            Self::OnDisk(spooled) => spooled,
        };
        let permit = memory.permit().await;
        match spooled.read(memory.buffer()).await.map_err(Ended::panicked)? {
            Ok(bytes) => Ok((memory.lend(bytes), permit)),
            Err(error) => Err(Ended::Failed(
                Failure::new(FailureCode::Internal, "the worker's spool could not be read back"),
                Some(Box::new(error)),
            )),
        }
    }
}

/// A failure of the object store as the end of a run.
pub(crate) fn store_failure(error: ObjectError) -> Ended {
    Ended::Failed(
        Failure::new(FailureCode::StoreWriteFailed, error.to_string()),
        Some(Box::new(error)),
    )
}
