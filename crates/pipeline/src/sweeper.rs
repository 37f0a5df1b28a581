//! The sweeper: deletes what runs left in the object store, expires files whose time has come,
//! and forgets what is past its retention. It only ever touches keys that our own rows name.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use outport_contract::redaction::told;
use outport_domain::crash::CrashPoint;
use outport_objects::ObjectError;
use outport_store::{
    StoreError, access, channels, jobs,
    runs::{self, Written},
};

use crate::Pipeline;

/// Rows of one sweep.
const AT_ONCE: u32 = 100;

/// Until what could not be removed is tried again.
const SWEEP_AGAIN: Duration = Duration::from_secs(30);

/// Objects that are removed at once: a split export may have thousands, and a cancel must not
/// wait long for them.
const REMOVED_AT_ONCE: usize = 32;

/// Events of the live stream that one transaction looks at, and transactions of one sweep.
const STREAM_EVENTS_AT_ONCE: u32 = 1_000;
const STREAM_PURGES: u32 = 20;

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Objects and uploads removed.
    pub leftovers: u64,
    /// Jobs that became EXPIRED.
    pub expired: u64,
    /// Jobs forgotten.
    pub purged: u64,
    /// Rows that channels of the live stream lost.
    pub stream_rows: u64,
}

impl Pipeline {
    /// Sweeps once. What cannot be removed now is offered again next time.
    pub async fn sweep(&self) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        let mut tx = self.store.begin().await?;
        swept.expired = jobs::expire_due(&mut tx, AT_ONCE).await?.len() as u64;
        tx.commit().await?;
        for leftover in runs::leftovers(&self.store, AT_ONCE).await? {
            let objects = runs::objects(&self.store, &leftover).await?;
            if let Err(error) = self.remove(objects).await {
                tracing::warn!(job = %leftover.job, error = told(&error), "a leftover stays for now");
                let mut tx = self.store.begin().await?;
                runs::postpone(&mut tx, &leftover, SWEEP_AGAIN).await?;
                tx.commit().await?;
                continue;
            }
            self.crash.reach(CrashPoint::DuringSweep).await;
            let mut tx = self.store.begin().await?;
            runs::record_swept(&mut tx, &leftover).await?;
            tx.commit().await?;
            swept.leftovers += 1;
        }
        let mut tx = self.store.begin().await?;
        swept.purged = jobs::purge(&mut tx, self.limits.job_retention, AT_ONCE).await?;
        access::forget_keys(&mut tx).await?;
        tx.commit().await?;
        swept.stream_rows = self.purge_stream().await?;
        Ok(swept)
    }

    /// What is left after so many transactions is for the next sweep.
    async fn purge_stream(&self) -> Result<u64, StoreError> {
        let mut rows = 0;
        for _ in 0..STREAM_PURGES {
            let mut tx = self.store.begin().await?;
            let retention = self.limits.stream_event_retention;
            let purged = channels::purge(&mut tx, retention, STREAM_EVENTS_AT_ONCE).await?;
            tx.commit().await?;
            rows += purged;
            if purged == 0 {
                break;
            }
        }
        Ok(rows)
    }

    /// Removes objects and their uploads; what is not there is gone already.
    pub(crate) async fn remove(&self, written: Vec<Written>) -> Result<(), ObjectError> {
        let one = |Written { key, upload_id }| async move {
            match &upload_id {
                Some(upload_id) => self.objects.abort(&key, upload_id).await?,
                // It may have died between beginning an upload and recording its id, or in the
                // middle of a small object.
                None => self.objects.abandon(&key).await?,
            }
            self.objects.delete(&key).await
        };
        stream::iter(written).map(one).buffer_unordered(REMOVED_AT_ONCE).try_collect().await
    }
}
