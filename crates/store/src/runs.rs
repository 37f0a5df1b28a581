//! Runs: what each attempt was about to write, so that it can be cleaned up without listing.

use outport_domain::{id::JobId, object_key::ObjectKey};

use crate::{Store, StoreError, Tx};

/// Something a run may have left in the object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Whose.
    pub job: JobId,
    /// Which run.
    pub run: u32,
    /// Where.
    pub key: ObjectKey,
    /// Its upload, when it was a multipart one.
    pub upload_id: Option<String>,
}

/// Objects and uploads that nobody needs: of superseded runs, of runs whose job ended without
/// them, and files that are expired or deleted. Never the file of a COMPLETED job, never one
/// of a run that still holds a lease. Each is offered until [`record_swept`], and once more at
/// its job's expiry, because a late twin may write after the first sweep.
pub async fn leftovers(store: &Store, most: u32) -> Result<Vec<Leftover>, StoreError> {
    todo!()
}

/// Records that a leftover is gone.
pub async fn record_swept(tx: &mut Tx, leftover: &Leftover) -> Result<(), StoreError> {
    todo!()
}
