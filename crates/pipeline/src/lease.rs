//! The heartbeat of a run: proves life, not existence. It renews only while the run shows
//! progress, and it is how the run learns that it was asked to stop or has lost its lease.

use std::{sync::Arc, time::Duration};

use outport_store::{
    StoreError,
    hints::Topic,
    jobs::{self, Hold},
};
use tokio::time::Instant;

use crate::run::{Ended, RunState};

/// How often a running job's row is looked at, so that a cancel is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps the lease until it ends, and says how: this future never ends while all is well.
pub(crate) async fn keep(state: Arc<RunState>) -> Ended {
    let mut cancels = state.store.subscribe(Topic::Cancels);
    let mut renewed = Instant::now();
    let mut recorded = state.progress();
    let look_every = LOOK_EVERY.min(state.limits.heartbeat);
    loop {
        let renewal_is_due =
            renewed.elapsed() >= state.limits.heartbeat && state.idle() < state.limits.no_progress;
        let progress = state.progress();
        let mut hold = if renewal_is_due {
            renewed = Instant::now();
            jobs::renew(&state.store, &state.fence, state.limits.lease).await
        } else if progress == recorded {
            look(&state).await
        } else {
            // Recording looks as well.
            Ok(Hold::Held)
        };
        // Also after a renewal: with a short heartbeat every look is one.
        if progress != recorded && matches!(hold, Ok(Hold::Held)) {
            hold = jobs::record_progress(&state.store, &state.fence, &progress).await;
            recorded = progress;
        }
        match hold {
            Ok(Hold::Held) => {}
            Ok(Hold::CancelRequested) => return Ended::Canceled,
            Ok(Hold::Lost) => return Ended::Lost,
            // An outage of our own database kills no healthy run: the commit is fenced.
            Err(error) => {
                tracing::warn!(job = %state.fence.job, error = &error as &dyn std::error::Error, "the lease could not be looked at");
            }
        }
        // A hint only makes the look earlier; without hints the clock does.
        let hinted = tokio::time::timeout(look_every, cancels.changed()).await;
        if let Ok(Err(_closed)) = hinted {
            tokio::time::sleep(look_every).await;
        }
    }
}

async fn look(state: &RunState) -> Result<Hold, StoreError> {
    let holds = jobs::look(&state.store, &[state.fence]).await?;
    Ok(holds.first().copied().unwrap_or(Hold::Lost))
}
