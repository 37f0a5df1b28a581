//! The memory of the parts of one file.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use outport_domain::limits::fixed;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A permit for each that is in flight, and the buffers of those that are
/// uploaded, for later ones. Large pieces that are given back and asked for again, by threads in
/// turns, add up to far more than is ever in use.
#[derive(Clone)]
pub(crate) struct Memory {
    permits: Arc<Semaphore>,
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        // The part that is being filled counts as well.
        let permits = Arc::new(Semaphore::new(fixed::PARTS_IN_FLIGHT - 1));
        Self { permits, spare: Arc::default() }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        // The list is whole at any time.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer, empty.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        self.spare().pop().unwrap_or_default()
    }

    /// Waits for a permit, in turn.
    pub(crate) async fn permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.permits).acquire_owned().await.expect("it is never closed")
    }

    pub(crate) fn lend(&self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Borrowed { bytes, memory: self.clone() })
    }
}

/// Bytes whose memory is spare once nobody needs them any more.
struct Borrowed {
    bytes: Vec<u8>,
    memory: Memory,
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.clear();
        self.memory.spare().push(bytes);
    }
}
