//! One window of a batch handler: the handler in a task of its own, the leases renewed beside it,
//! and all ends written in one transaction, each under its fence.

use std::{sync::Arc, time::Duration};

use outport_contract::redaction::Chain;
use outport_domain::crash::CrashPoint;
use outport_store::{
    StoreError,
    deliveries::{self, DeliveryClaim, DeliveryEnd, DeliveryFence},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    attempt::{LET_GO, Surroundings, until_written},
    batch::{BatchHandler, Verdict},
    handler::HandlerError,
    pause::full_jitter,
};

/// The first ceiling of pauses, and the highest when the handler gave no verdict.
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(1);

/// Carries one claimed window to its end.
pub(crate) async fn carry_out(
    around: Arc<Surroundings>,
    handler: Arc<dyn BatchHandler>,
    claims: Vec<DeliveryClaim>,
) {
    let window = Arc::new(claims);
    let Some(verdicts) = attempt(&around, &handler, &window).await else { return };
    around.crash.reach(CrashPoint::AfterConfirm).await;
    let write = || record(&around, handler.name(), &window, &verdicts);
    match until_written(&around, write).await {
        Some(written) if written == window.len() => {}
        Some(written) => {
            tracing::warn!(
                handler = handler.name(),
                lost = window.len() - written,
                "leases were lost"
            );
        }
        None => {
            tracing::warn!(handler = handler.name(), of = window.len(), "ends were not written");
        }
    }
}

/// How each delivery goes on: an end, and perhaps a receipt.
type Ends = Vec<(DeliveryEnd, Option<&'static str>)>;

/// Runs the handler; `None` when every lease was lost meanwhile.
async fn attempt(
    around: &Arc<Surroundings>,
    handler: &Arc<dyn BatchHandler>,
    window: &Arc<Vec<DeliveryClaim>>,
) -> Option<Ends> {
    let (name, count) = (handler.name(), window.len());
    let mut task = AbortOnDropHandle::new(tokio::spawn({
        let (handler, window) = (Arc::clone(handler), Arc::clone(window));
        async move { handler.handle(&window).await }
    }));
    let failed = |message: &str| {
        tracing::warn!(handler = name, of = count, "{message}");
        let retry = || Verdict::Retry { error: HandlerError::retry(message), most: MOST };
        Some(ends(window, (0..count).map(|_| retry()).collect()))
    };
    let interrupted = tokio::select! {
        joined = &mut task => return match joined {
            Ok(verdicts) => {
                told(name, &verdicts);
                Some(ends(window, verdicts))
            }
            Err(error) => {
                tracing::error!(handler = name, %error, "a handler panicked");
                failed("the handler panicked")
            }
        },
        () = until_lost(around, window) => {
            tracing::warn!(handler = name, of = count, "the leases of a window were lost");
            None
        }
        () = tokio::time::sleep(around.limits.handler_time) => {
            failed("the handler did not end within its time limit")
        }
        () = around.hand_back.cancelled() => {
            Some(window.iter().map(|_| (DeliveryEnd::HandedBack, None)).collect())
        }
    };
    // The handler's future is gone before anybody else may be given the deliveries.
    task.abort();
    if tokio::time::timeout(LET_GO, task).await.is_err() {
        tracing::error!(handler = name, "a handler blocks its thread");
    }
    interrupted
}

/// One line in the log for a window, however many of its deliveries failed.
fn told(handler: &str, verdicts: &[Verdict]) {
    let mut errors = verdicts.iter().filter_map(|verdict| match verdict {
        Verdict::Retry { error, .. } => Some(error),
        Verdict::Done | Verdict::DoneAs(_) => None,
    });
    if let Some(first) = errors.next() {
        let failed = 1 + errors.count();
        tracing::warn!(handler, failed, of = verdicts.len(), error = %Chain(first), "a handler failed");
    }
}

fn ends(window: &[DeliveryClaim], verdicts: Vec<Verdict>) -> Ends {
    let mut verdicts = verdicts.into_iter();
    window
        .iter()
        .map(|claim| match verdicts.next() {
            Some(Verdict::Done) => (DeliveryEnd::Done, None),
            Some(Verdict::DoneAs(receipt)) => (DeliveryEnd::Done, Some(receipt)),
            Some(Verdict::Retry { error, most }) => (retry(claim, error.message(), most), None),
            None => (retry(claim, "the handler gave no verdict", MOST), None),
        })
        .collect()
}

fn retry(claim: &DeliveryClaim, error: &str, most: Duration) -> DeliveryEnd {
    let pause = full_jitter(FIRST, most, claim.failures.saturating_add(1));
    DeliveryEnd::Retry { error: error.to_owned(), pause }
}

/// Renews the leases until all are lost. One that is lost alone is not written in the end.
async fn until_lost(around: &Surroundings, window: &[DeliveryClaim]) {
    let fences: Vec<DeliveryFence> = window.iter().map(|claim| claim.fence).collect();
    loop {
        tokio::time::sleep(around.limits.heartbeat).await;
        match deliveries::renew_all(&around.store, &fences, around.limits.lease).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the leases of a window are not renewed yet");
            }
        }
    }
}

/// One transaction for a window. Returns how many leases were still held.
async fn record(
    around: &Surroundings,
    handler: &str,
    window: &[DeliveryClaim],
    ends: &Ends,
) -> Result<usize, StoreError> {
    let fenced: Vec<_> =
        window.iter().zip(ends).map(|(claim, (end, _))| (claim.fence, end.clone())).collect();
    let mut tx = around.store.begin().await?;
    let written = deliveries::finish_all(&mut tx, &fenced).await?;
    let receipts: Vec<_> = window
        .iter()
        .zip(ends)
        .filter(|(claim, _)| written.contains(&claim.fence.delivery))
        .filter_map(|(claim, (_, receipt))| receipt.map(|receipt| (claim.event.id, receipt)))
        .collect();
    deliveries::record_receipts(&mut tx, handler, &receipts).await?;
    tx.commit().await?;
    Ok(written.len())
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use outport_domain::id::{DeliveryId, EventId, JobId, OrganizationId};
    use outport_store::events::StoredEvent;
    use uuid::Uuid;

    use super::*;

    fn claim(failures: u32) -> DeliveryClaim {
        DeliveryClaim {
            fence: DeliveryFence {
                delivery: DeliveryId::new(),
                run: 1,
                lease_token: Uuid::new_v4(),
            },
            event: StoredEvent {
                id: EventId::new(),
                event_type: "job.completed".to_owned(),
                job: JobId::new(),
                organization: OrganizationId::new(),
                body: "{}".to_owned(),
                created_at: Utc::now(),
            },
            handler: "tell".to_owned(),
            target: String::new(),
            failures,
        }
    }

    /// An outage of two hours, on a clock that stands still: a delivery that fails whenever it is
    /// due is tried all the time, never further apart than the most, and never given up.
    #[test]
    fn two_hours_of_failures_are_a_bounded_number_of_pauses_and_no_death() {
        for (most, tries) in [(MOST, 150..), (Duration::from_hours(1), 4..)] {
            let (mut waited, mut failures) = (Duration::ZERO, 0);
            while waited < Duration::from_hours(2) {
                let verdict = Verdict::Retry { error: HandlerError::retry("down"), most };
                let (end, receipt) = ends(&[claim(failures)], vec![verdict]).remove(0);
                let DeliveryEnd::Retry { error, pause } = end else { panic!("{end:?}") };
                assert_eq!((error.as_str(), receipt), ("down", None));
                assert!(pause <= most, "{pause:?}");
                waited += pause;
                failures += 1;
            }
            assert!(tries.contains(&failures), "{failures} tries, at most {most:?} apart");
        }
        let (end, _) = ends(&[claim(u32::MAX)], Vec::new()).remove(0);
        assert!(matches!(end, DeliveryEnd::Retry { pause, .. } if pause <= MOST));
    }
}
