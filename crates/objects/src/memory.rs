//! A store in memory with planned faults, for tests of this and other crates.
//!
//! It behaves like the others until told otherwise: [`MemoryStore::fail`] plans a fault for one
//! step, [`MemoryStore::hang`] stops a step until the test lets it go. What is stored and what
//! is left open can be looked at, so that a test can say "nothing is left behind".

mod plan;

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use outport_domain::object_key::ObjectKey;
use url::Url;
use uuid::Uuid;

pub use self::plan::{Fault, Hang, Step};
use self::plan::{Gate, Planned, Plans, unreachable};
use crate::{
    DownloadHeaders, ObjectError, ObjectMeta, ObjectStore, ObjectStream, Upload,
    parts::{refused, total_bytes},
};

/// How large the pieces of a download are.
const PIECE_BYTES: usize = 64 * 1024;

/// Objects in memory. Clones share everything.
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Bytes>,
    uploads: BTreeMap<String, OpenUpload>,
    plans: Plans,
}

struct OpenUpload {
    key: String,
    parts: BTreeMap<u32, Bytes>,
}

impl MemoryStore {
    /// An empty store without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans a fault for the next time of this step. Plans for one step happen in their order.
    pub fn fail(&self, step: Step, fault: Fault) {
        self.plan(step, Planned::Fault(fault), false);
    }

    /// Plans a fault for every time of this step from now on, after those planned before.
    pub fn always_fail(&self, step: Step, fault: Fault) {
        self.plan(step, Planned::Fault(fault), true);
    }

    /// Takes back every plan that has not happened, and every standing one.
    pub fn recover(&self) {
        self.state().plans.clear();
    }

    /// Makes the next time of this step hang, before it has any effect.
    pub fn hang(&self, step: Step) -> Hang {
        let gate = Arc::new(Gate::default());
        self.plan(step, Planned::Hang(Arc::clone(&gate)), false);
        Hang(gate)
    }

    /// The keys of all objects, sorted.
    pub fn keys(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// The bytes of an object.
    pub fn bytes(&self, key: &str) -> Option<Bytes> {
        self.state().objects.get(key).cloned()
    }

    /// Replaces an object's bytes behind everybody's back, to test what notices.
    pub fn tamper(&self, key: &str, bytes: Bytes) {
        self.state().objects.insert(key.to_owned(), bytes);
    }

    /// The (key, id) of all uploads that are neither finished nor aborted.
    pub fn open_uploads(&self) -> Vec<(String, String)> {
        let state = self.state();
        state.uploads.iter().map(|(id, upload)| (upload.key.clone(), id.clone())).collect()
    }

    fn plan(&self, step: Step, what: Planned, always: bool) {
        self.state().plans.add(step, what, always);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits at a gate if one is planned, then gives the fault of this step, if one is.
    async fn fault_at(&self, step: Step) -> Option<Fault> {
        loop {
            let planned = self.state().plans.take(step)?;
            match planned {
                Planned::Fault(fault) => return Some(fault),
                Planned::Hang(gate) => gate.pass().await,
            }
        }
    }

    /// Does `effect` at `step`, with what is planned for it.
    async fn step<T>(
        &self,
        step: Step,
        effect: impl FnOnce(&mut State) -> Result<T, ObjectError> + Send,
    ) -> Result<T, ObjectError> {
        let fault = self.fault_at(step).await;
        if let Some(error) = fault.and_then(Fault::before) {
            return Err(error);
        }
        let done = effect(&mut self.state())?;
        if fault == Some(Fault::AnswerLost) { Err(unreachable()) } else { Ok(done) }
    }

    /// As [`step`](Self::step), for steps that report an object.
    async fn measured(
        &self,
        step: Step,
        effect: impl FnOnce(&mut State) -> Result<Option<u64>, ObjectError> + Send,
    ) -> Result<Option<ObjectMeta>, ObjectError> {
        let fault = self.fault_at(step).await;
        if let Some(error) = fault.and_then(Fault::before) {
            return Err(error);
        }
        let size = effect(&mut self.state())?;
        match fault {
            Some(Fault::AnswerLost) => Err(unreachable()),
            Some(Fault::WrongSize) => {
                Ok(size.map(|size| ObjectMeta { size: size + 1, etag: None }))
            }
            _ => Ok(size.map(|size| ObjectMeta { size, etag: None })),
        }
    }
}

#[async_trait]
impl ObjectStore for MemoryStore {
    async fn put(
        &self,
        key: &ObjectKey,
        _content_type: &str,
        bytes: Bytes,
    ) -> Result<ObjectMeta, ObjectError> {
        let meta = self.measured(Step::Put, |state| {
            let size = bytes.len() as u64;
            state.objects.insert(key.to_string(), bytes);
            Ok(Some(size))
        });
        meta.await?.ok_or(ObjectError::NotFound)
    }

    async fn begin(
        &self,
        key: &ObjectKey,
        _content_type: &str,
    ) -> Result<Box<dyn Upload>, ObjectError> {
        let id = Uuid::now_v7().to_string();
        self.step(Step::Begin, |state| {
            let upload = OpenUpload { key: key.to_string(), parts: BTreeMap::new() };
            state.uploads.insert(id.clone(), upload);
            Ok(())
        })
        .await?;
        Ok(Box::new(MemoryUpload { store: self.clone(), id }))
    }

    async fn abort(&self, _key: &ObjectKey, upload_id: &str) -> Result<(), ObjectError> {
        self.step(Step::Abort, |state| {
            state.uploads.remove(upload_id);
            Ok(())
        })
        .await
    }

    async fn abandon(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        self.step(Step::Abort, |state| {
            state.uploads.retain(|_, upload| upload.key != key.as_str());
            Ok(())
        })
        .await
    }

    async fn head(&self, key: &ObjectKey) -> Result<Option<ObjectMeta>, ObjectError> {
        self.measured(Step::Head, |state| {
            Ok(state.objects.get(key.as_str()).map(|bytes| bytes.len() as u64))
        })
        .await
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> Result<ObjectStream, ObjectError> {
        let fault = self.fault_at(Step::Get).await;
        if let Some(error) = fault.and_then(Fault::before) {
            return Err(error);
        }
        let bytes = self.bytes(key.as_str()).ok_or(ObjectError::NotFound)?;
        let size = bytes.len() as u64;
        let range = range.unwrap_or(0..size);
        if range.start > range.end || range.end > size {
            return Err(refused("InvalidRange", "the range is not within the object"));
        }
        let mut bytes = bytes.slice(range.start as usize..range.end as usize);
        let mut broken = None;
        match fault {
            Some(Fault::BreakAfter(sent)) => {
                bytes.truncate(sent);
                broken = Some(Err(unreachable()));
            }
            Some(Fault::AnswerLost) => return Err(unreachable()),
            _ => {}
        }
        let starts = (0..bytes.len()).step_by(PIECE_BYTES);
        let pieces: Vec<_> = starts
            .map(|start| Ok(bytes.slice(start..bytes.len().min(start + PIECE_BYTES))))
            .chain(broken)
            .collect();
        Ok(stream::iter(pieces).boxed())
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        self.step(Step::Delete, |state| {
            state.objects.remove(key.as_str());
            Ok(())
        })
        .await
    }

    async fn presign_get(
        &self,
        _key: &ObjectKey,
        _headers: &DownloadHeaders,
        _expires_in: Duration,
    ) -> Result<Option<Url>, ObjectError> {
        Ok(None)
    }

    async fn check(&self) -> Result<(), ObjectError> {
        self.step(Step::Check, |_| Ok(())).await
    }
}

struct MemoryUpload {
    store: MemoryStore,
    id: String,
}

#[async_trait]
impl Upload for MemoryUpload {
    fn id(&self) -> &str {
        &self.id
    }

    async fn part(&self, number: u32, bytes: Bytes) -> Result<(), ObjectError> {
        self.store
            .step(Step::Part(number), |state| {
                let upload = state
                    .uploads
                    .get_mut(&self.id)
                    .ok_or_else(|| refused("NoSuchUpload", "no such upload"))?;
                upload.parts.insert(number, bytes);
                Ok(())
            })
            .await
    }

    async fn finish(self: Box<Self>) -> Result<ObjectMeta, ObjectError> {
        let meta = self.store.measured(Step::Finish, |state| {
            let upload = state
                .uploads
                .get(&self.id)
                .ok_or_else(|| refused("NoSuchUpload", "no such upload"))?;
            let sizes = upload.parts.iter().map(|(number, part)| (*number, part.len() as u64));
            total_bytes(&sizes.collect())?;
            let bytes: Bytes =
                upload.parts.values().flat_map(|part| part.iter().copied()).collect();
            let (size, key) = (bytes.len() as u64, upload.key.clone());
            state.uploads.remove(&self.id);
            state.objects.insert(key, bytes);
            Ok(Some(size))
        });
        meta.await?.ok_or(ObjectError::NotFound)
    }

    async fn abort(self: Box<Self>) -> Result<(), ObjectError> {
        self.store
            .step(Step::Abort, |state| {
                state.uploads.remove(&self.id);
                Ok(())
            })
            .await
    }
}
