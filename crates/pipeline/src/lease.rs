//! The heartbeat of a run: proves life, not existence. It renews only while the run shows
//! progress, and it is how the run learns that it was asked to stop or has lost its lease.

use std::{sync::Arc, time::Duration};

use outport_contract::redaction::told;
use outport_domain::job::Progress;
use outport_store::{
    StoreError,
    hints::Topic,
    jobs::{self, Hold},
};
use tokio::time::Instant;

use crate::run::{Ended, RunState};

/// How often a running job's row is looked at, so that a cancel is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long news of a run are gathered. One that ends within this time tells all with its end.
const GATHER: Duration = Duration::from_millis(250);

/// Keeps the lease until it ends, and says how: this future never ends while all is well.
pub(crate) async fn keep(state: Arc<RunState>) -> Ended {
    let mut cancels = state.store.subscribe(Topic::Cancels);
    let began = Instant::now();
    let mut renewed = began;
    let mut recorded = Progress::default();
    let look_every = LOOK_EVERY.min(state.limits.heartbeat);
    loop {
        let renewal_is_due =
            renewed.elapsed() >= state.limits.heartbeat && state.idle() < state.limits.no_progress;
        let is_new = state.progress() != recorded && began.elapsed() >= GATHER;
        let mut hold = if renewal_is_due {
            renewed = Instant::now();
            jobs::renew(&state.store, &state.fence, state.limits.lease).await
        } else if is_new {
            // Recording looks as well.
            Ok(Hold::Held)
        } else {
            look(&state).await
        };
        // Also after a renewal: with a short heartbeat every look is one.
        if is_new && matches!(hold, Ok(Hold::Held)) {
            hold = record(&state, &mut recorded).await;
        }
        match hold {
            Ok(Hold::Held) => {}
            Ok(Hold::CancelRequested) => return Ended::Canceled,
            Ok(Hold::Lost) => return Ended::Lost,
            // An outage of our own database kills no healthy run: the commit is fenced.
            Err(error) => {
                tracing::warn!(job = %state.fence.job, error = told(&error), "the lease could not be looked at");
            }
        }
        // A hint only makes the look earlier; without hints the clock does.
        tokio::select! {
            () = tokio::time::sleep(look_every) => {}
            () = gathered(&state) => {}
            hinted = cancels.changed() => if hinted.is_err() {
                tokio::time::sleep(look_every).await;
            },
        }
    }
}

/// A stage has begun, and perhaps the next ones.
async fn gathered(state: &RunState) {
    state.telling.news().await;
    tokio::time::sleep(GATHER).await;
}

/// Writes how far the run is with what it has to tell. What could not be written is written with
/// what comes next.
async fn record(state: &RunState, recorded: &mut Progress) -> Result<Hold, StoreError> {
    let (progress, account) = state.telling.outgoing();
    let hold = jobs::record_progress(&state.store, &state.fence, &progress, &account).await?;
    *recorded = progress;
    state.telling.told(&account);
    Ok(hold)
}

async fn look(state: &RunState) -> Result<Hold, StoreError> {
    let holds = jobs::look(&state.store, &[state.fence]).await?;
    Ok(holds.first().copied().unwrap_or(Hold::Lost))
}
