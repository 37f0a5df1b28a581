//! One attempt at one delivery: the handler in a task of its own, its lease renewed beside it,
//! and its end written under its fence.

use std::{sync::Arc, time::Duration};

use outport_contract::redaction::Chain;
use outport_domain::{crash::CrashPlan, limits::Limits};
use outport_store::{
    Store, StoreError,
    deliveries::{self, DeliveryClaim, DeliveryEnd, DeliveryFence},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    handler::{Delivery, Disposition, Done, Handler, HandlerError},
    pause::full_jitter,
};

/// How long a dropped handler may take to let go before the relay no longer waits for it.
pub(crate) const LET_GO: Duration = Duration::from_secs(1);

/// What all attempts of a relay share.
pub(crate) struct Surroundings {
    pub store: Store,
    pub limits: Limits,
    pub crash: CrashPlan,
    /// Cancelled when the relay no longer waits for running handlers.
    pub hand_back: CancellationToken,
}

/// Carries one claimed delivery to its end.
pub(crate) async fn carry_out(
    around: Arc<Surroundings>,
    handler: Arc<dyn Handler>,
    claim: DeliveryClaim,
) {
    let fence = claim.fence;
    let Some(end) = attempt(&around, handler, claim).await else {
        tracing::warn!(delivery = %fence.delivery, "the lease of a delivery was lost");
        return;
    };
    finish(&around, &fence, &end).await;
}

/// Runs the handler; `None` when the lease was lost meanwhile.
async fn attempt(
    around: &Arc<Surroundings>,
    handler: Arc<dyn Handler>,
    claim: DeliveryClaim,
) -> Option<DeliveryEnd> {
    let (fence, failures) = (claim.fence, claim.failures);
    if failures >= around.limits.delivery_attempts {
        // The attempts before this one took their process with them: do not let it take ours.
        let error = "every attempt was lost together with its process".to_owned();
        return Some(DeliveryEnd::Dead { error });
    }
    let mut task = AbortOnDropHandle::new(tokio::spawn(run(Arc::clone(around), handler, claim)));
    let failed = |error: HandlerError| after_failure(&around.limits, failures, &error);
    let interrupted = tokio::select! {
        joined = &mut task => {
            return Some(match joined {
                Ok(Ok(done)) => {
                    tracing::debug!(delivery = %fence.delivery, ?done, "delivered");
                    DeliveryEnd::Done
                }
                Ok(Err(error)) => {
                    tracing::warn!(
                        delivery = %fence.delivery, error = %Chain(&error), "a handler failed"
                    );
                    failed(error)
                }
                Err(error) => {
                    tracing::error!(delivery = %fence.delivery, %error, "a handler panicked");
                    failed(HandlerError::retry("the handler panicked"))
                }
            });
        }
        () = until_lost(around, &fence) => None,
        () = tokio::time::sleep(around.limits.handler_time) => {
            tracing::warn!(delivery = %fence.delivery, "a handler took too long");
            Some(failed(HandlerError::retry("the handler did not end within its time limit")))
        }
        () = around.hand_back.cancelled() => Some(DeliveryEnd::HandedBack),
    };
    // The handler's future is gone before anybody else may be given the delivery.
    task.abort();
    if tokio::time::timeout(LET_GO, task).await.is_err() {
        tracing::error!(delivery = %fence.delivery, "a handler blocks its thread");
    }
    interrupted
}

async fn run(
    around: Arc<Surroundings>,
    handler: Arc<dyn Handler>,
    claim: DeliveryClaim,
) -> Result<Done, HandlerError> {
    handler.handle(&Delivery::new(&claim, &around.store, &around.crash)).await
}

/// Renews the lease until it is lost. An outage of the database loses none: renewal compares
/// run and token, not expiry.
async fn until_lost(around: &Surroundings, fence: &DeliveryFence) {
    loop {
        tokio::time::sleep(around.limits.heartbeat).await;
        match deliveries::renew(&around.store, fence, around.limits.lease).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => tracing::warn!(
                delivery = %fence.delivery, error = %Chain(&error), "a lease is not renewed yet"
            ),
        }
    }
}

fn after_failure(limits: &Limits, failures_before: u32, error: &HandlerError) -> DeliveryEnd {
    let failures = failures_before + 1;
    let message = error.message().to_owned();
    match error.disposition() {
        Disposition::Retry if failures < limits.delivery_attempts => DeliveryEnd::Retry {
            error: message,
            pause: full_jitter(limits.delivery_backoff, limits.delivery_backoff_most, failures),
        },
        Disposition::Retry | Disposition::Dead => DeliveryEnd::Dead { error: message },
    }
}

async fn finish(around: &Surroundings, fence: &DeliveryFence, end: &DeliveryEnd) {
    let written = until_written(around, || try_finish(&around.store, fence, end)).await;
    if written != Some(true) {
        tracing::warn!(delivery = %fence.delivery, "the end of a delivery was not written");
    }
}

async fn try_finish(
    store: &Store,
    fence: &DeliveryFence,
    end: &DeliveryEnd,
) -> Result<bool, StoreError> {
    let mut tx = store.begin().await?;
    let written = deliveries::finish(&mut tx, fence, end).await?;
    tx.commit().await?;
    Ok(written)
}

/// Writes, trying for the life of a lease: after that somebody else has what it is about.
pub(crate) async fn until_written<T, F: Future<Output = Result<T, StoreError>>>(
    around: &Surroundings,
    write: impl Fn() -> F,
) -> Option<T> {
    let written = tokio::time::timeout(around.limits.lease, async {
        for failures in 1.. {
            match write().await {
                Ok(written) => return Some(written),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "an end is not written yet");
                }
            }
            let (first, most) = (Duration::from_millis(100), Duration::from_secs(5));
            tokio::time::sleep(full_jitter(first, most, failures)).await;
        }
        None
    });
    written.await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_attempt_is_followed_by_death() {
        let limits = Limits { delivery_attempts: 3, ..Limits::default() };
        let end = |before| after_failure(&limits, before, &HandlerError::retry("no"));
        assert!(matches!(end(0), DeliveryEnd::Retry { pause, .. } if pause.as_secs() <= 1));
        assert!(matches!(end(1), DeliveryEnd::Retry { pause, .. } if pause.as_secs() <= 4));
        assert_eq!(end(2), DeliveryEnd::Dead { error: "no".to_owned() });
    }

    #[test]
    fn what_cannot_be_helped_dies_at_once() {
        let end = after_failure(&Limits::default(), 0, &HandlerError::dead("never"));
        assert_eq!(end, DeliveryEnd::Dead { error: "never".to_owned() });
    }
}
