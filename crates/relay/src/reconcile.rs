//! The repairer: inserts deliveries that a commit around a handler's registration missed.

use std::time::Duration;

use outport_contract::redaction::Chain;
use outport_store::{Store, StoreError, deliveries};
use tokio_util::sync::CancellationToken;

/// Inserts missing deliveries, at its start all that are missing, and once every period those of
/// events since the last look.
pub struct Reconciler {
    store: Store,
    every: Duration,
}

impl Reconciler {
    /// One with this period ([`outport_domain::limits::Limits::reconcile_every`]).
    pub fn new(store: Store, every: Duration) -> Self {
        Self { store, every }
    }

    /// Looks once. Returns how many deliveries were missing.
    pub async fn tick(&self) -> Result<u64, StoreError> {
        let mut tx = self.store.begin().await?;
        let inserted = deliveries::reconcile(&mut tx).await?;
        tx.commit().await?;
        Ok(inserted)
    }

    /// Looks once every period until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut has_seen_all = false;
        while !stop.is_cancelled() {
            let looked = if has_seen_all {
                self.tick().await
            } else {
                deliveries::reconcile_all(&self.store).await
            };
            has_seen_all |= looked.is_ok();
            match looked {
                Ok(0) => {}
                Ok(inserted) => tracing::info!(inserted, "missing deliveries were added"),
                Err(error) => tracing::warn!(error = %Chain(&error), "reconciling failed"),
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.every) => {}
            }
        }
    }
}
