//! From a claim to its end: the run and its lease side by side, panics caught, what is left
//! cleaned up, and the end committed with its events.

use std::{sync::Arc, time::Duration};

use outport_contract::redaction::told;
use outport_domain::{
    crash::CrashPoint,
    failure::{Failure, FailureCode},
    id::Fence,
    job::{ExportJob, FinishedFile, JobKind, JobStatus},
    object_key::{InvalidObjectKey, ObjectKey},
};
use outport_store::{
    StoreError,
    jobs::{self, Claim, ClaimPolicy, ExpiredLeases, Finished, RunEnd},
    telling::{Account, Level},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Pipeline,
    fetcher::run_fetcher,
    lease,
    run::{AbortOnDrop, Ended, RunState, run_export},
};

/// How long a run that must stop may take to do so by itself. A cancel is heard within a second
/// and must have ended the job within two: this and [`STORE_PATIENCE`] are the other second.
const STOP_PATIENCE: Duration = Duration::from_millis(700);

/// How long a job that was canceled or is handed back may wait for the object store.
const STORE_PATIENCE: Duration = Duration::from_millis(250);

/// Between tries of a step that needs our own database.
const STEP_AGAIN: Duration = Duration::from_millis(500);

impl Pipeline {
    /// Claims the next due job, if there is one.
    pub async fn claim(&self, policy: &ClaimPolicy) -> Result<Option<Claim>, StoreError> {
        let mut tx = self.store.begin().await?;
        let claim = jobs::claim(&mut tx, policy).await?;
        if claim.is_some() {
            self.crash.reach(CrashPoint::BeforeClaimCommit).await;
            tx.commit().await?;
            self.crash.reach(CrashPoint::AfterClaim).await;
        }
        Ok(claim)
    }

    /// Runs a claimed job to its end and commits it. When `hand_back` is cancelled the run is
    /// dropped and the job returned to the queue.
    pub async fn run_one(&self, claim: Claim, hand_back: CancellationToken) -> Finished {
        let Claim { job, fence } = claim;
        let state = match self.new_state(&job, fence) {
            Ok(state) => state,
            Err(failure) => return self.end(&job, fence, RunEnd::Failed(failure), None).await,
        };
        state.say(Level::Info, &format!("Attempt {} begins.", fence.run));
        let result = self.run_leased(&job, &state, &hand_back).await;
        state.stop.cancel();
        let end = match result {
            Ok(file) => RunEnd::Completed(file),
            Err(Ended::Failed(failure, cause)) => {
                tracing::warn!(
                    job = %fence.job,
                    run = fence.run,
                    code = %failure.code,
                    reason = failure.message,
                    cause = cause.as_ref().map(|cause| told(&**cause)),
                    "the run failed"
                );
                RunEnd::Failed(failure)
            }
            Err(Ended::Canceled) => RunEnd::Canceled,
            Err(Ended::HandedBack) => RunEnd::HandedBack,
            Err(Ended::Lost) => {
                tracing::warn!(job = %fence.job, run = fence.run, "the lease is lost; the run writes nothing");
                self.clean_up(&job, &state, self.limits.source_connect).await;
                return Finished::Lost;
            }
        };
        state.telling.end(&end);
        match &end {
            RunEnd::Completed(_) => {}
            RunEnd::Failed(_) => self.clean_up(&job, &state, self.limits.source_connect).await,
            // Somebody waits for this end.
            RunEnd::Canceled | RunEnd::HandedBack => {
                self.clean_up(&job, &state, STORE_PATIENCE).await;
            }
        }
        self.end(&job, fence, end, Some(&state)).await
    }

    fn new_state(&self, job: &ExportJob, fence: Fence) -> Result<Arc<RunState>, Failure> {
        let key = match job.kind {
            JobKind::Export => self.export_key(job, fence.run),
            JobKind::Fetcher => {
                let tenant = self.facade.tenant_in_key.then_some(job.scope.organization);
                ObjectKey::of_fetcher(job.id, fence.run, tenant)
            }
        };
        let key = key.map_err(|error| Failure::new(FailureCode::Internal, error.to_string()))?;
        Ok(Arc::new(RunState::new(self, fence, key)))
    }

    fn export_key(&self, job: &ExportJob, run: u32) -> Result<ObjectKey, InvalidObjectKey> {
        let stem = self
            .catalogue
            .0
            .get(&job.resource)
            .map_or("export", |resource| resource.key_stem.as_str());
        if job.split {
            ObjectKey::of_manifest(job.id, run, stem)
        } else {
            ObjectKey::of_export(job.id, run, stem, &job.compression.extension(job.format))
        }
    }

    /// The run beside its lease: whichever ends first decides.
    async fn run_leased(
        &self,
        job: &ExportJob,
        state: &Arc<RunState>,
        hand_back: &CancellationToken,
    ) -> Result<FinishedFile, Ended> {
        let pipeline = self.clone();
        let (run_job, run_state) = (job.clone(), Arc::clone(state));
        // A task of its own, so that a panic ends the run and nothing else.
        let mut run =
            AbortOnDrop::spawn(async move { run_job_of(&pipeline, &run_job, &run_state).await });
        let mut lease = AbortOnDrop::spawn(lease::keep(Arc::clone(state)));
        let ended = tokio::select! {
            biased;
            result = run.join() => return result.unwrap_or_else(|join| Err(Ended::panicked(join))),
            ended = lease.join() => ended.unwrap_or_else(Ended::panicked),
            () = hand_back.cancelled() => Ended::HandedBack,
        };
        // Ends the query by its own means; what is stuck elsewhere is dropped.
        state.stop.cancel();
        if tokio::time::timeout(STOP_PATIENCE, run.join()).await.is_err() {
            tracing::debug!(job = %job.id, "the run was dropped where it stood");
        }
        Err(ended)
    }

    /// Removes what the run may have left. Only ever at its own keys, which no other run shares;
    /// what fails here, or takes longer than this, the sweeper does later by what is recorded.
    async fn clean_up(&self, job: &ExportJob, state: &RunState, patience: Duration) {
        let work = self.remove(state.written());
        match tokio::time::timeout(patience, work).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(job = %job.id, error = told(&error), "left for the sweeper");
            }
            Err(_elapsed) => {
                tracing::warn!(job = %job.id, "the object store is slow; left for the sweeper");
            }
        }
    }

    /// Commits the end, again and again within the step's time: an answer that was lost is
    /// told from a fence that was lost by reading the row.
    async fn end(
        &self,
        job: &ExportJob,
        fence: Fence,
        end: RunEnd,
        state: Option<&RunState>,
    ) -> Finished {
        let deadline = tokio::time::Instant::now() + self.limits.finishing_step;
        let keep_alive =
            state.map(|state| AbortOnDrop::spawn(keep_alive(self.clone(), state.fence)));
        let account = state.map(|state| state.telling.last()).unwrap_or_default();
        let finished = loop {
            let end = self.try_end(&fence, &end, &account);
            match tokio::time::timeout_at(deadline, end).await {
                Ok(Ok(finished)) => break finished,
                Ok(Err(error)) => {
                    tracing::warn!(job = %fence.job, error = told(&error), "the end could not be committed yet");
                }
                Err(_elapsed) => {
                    tracing::error!(job = %fence.job, run = fence.run, "the end could not be committed in time; the lease will end");
                    return Finished::Lost;
                }
            }
            tokio::time::sleep(STEP_AGAIN).await;
        };
        drop(keep_alive);
        let owns_file =
            matches!(finished, Finished::Completed(_)) || self.names_file(job, &fence, &end).await;
        if let (Some(state), false, RunEnd::Completed(_)) = (state, owns_file, &end) {
            // Canceled or lost at the very end: the bytes belong to nobody.
            self.clean_up(job, state, self.limits.source_connect).await;
        }
        tracing::info!(job = %fence.job, run = fence.run, outcome = outcome(&finished), "the run ended");
        finished
    }

    async fn try_end(
        &self,
        fence: &Fence,
        end: &RunEnd,
        account: &Account,
    ) -> Result<Finished, StoreError> {
        let mut tx = self.store.begin().await?;
        let finished = jobs::finish(&mut tx, fence, end, &self.finish_policy(), account).await?;
        if finished == Finished::Lost {
            return Ok(finished);
        }
        self.crash.reach(CrashPoint::BeforeCommit).await;
        tx.commit().await?;
        self.crash.reach(CrashPoint::AfterCommit).await;
        Ok(finished)
    }

    /// Whether the job's row names this run's file after all, or cannot be read just now. In
    /// both cases the file must stay.
    async fn names_file(&self, job: &ExportJob, fence: &Fence, end: &RunEnd) -> bool {
        let RunEnd::Completed(file) = end else { return false };
        match jobs::find_in_any_organization(&self.store, job.id).await {
            Ok(Some(row)) => row.file.as_ref().is_some_and(|named| named.key == file.key),
            Ok(None) => false,
            Err(error) => {
                tracing::warn!(job = %fence.job, error = told(&error), "left for the sweeper");
                true
            }
        }
    }

    /// Takes jobs from lost workers: those whose lease was seen expired twice, one heartbeat
    /// apart. Returns what became of them.
    pub async fn rescue(&self, leases: &mut ExpiredLeases) -> Result<Vec<Finished>, StoreError> {
        let seen = match jobs::expired_leases(&self.store).await {
            Ok(seen) => seen,
            Err(error) => {
                // After an outage of the database nobody could renew: start counting afresh.
                *leases = ExpiredLeases::default();
                return Err(error);
            }
        };
        let mut rescued = Vec::new();
        for fence in leases.seen_again(seen) {
            let mut tx = self.store.begin().await?;
            let finished = jobs::rescue(&mut tx, &fence, &self.finish_policy()).await?;
            tx.commit().await?;
            if finished != Finished::Lost {
                tracing::warn!(job = %fence.job, run = fence.run, outcome = outcome(&finished), "a lost worker's job was taken over");
            }
            rescued.push(finished);
        }
        Ok(rescued)
    }
}

/// What a worker makes of a job of its kind.
async fn run_job_of(
    pipeline: &Pipeline,
    job: &ExportJob,
    state: &Arc<RunState>,
) -> Result<FinishedFile, Ended> {
    match job.kind {
        JobKind::Export => run_export(pipeline, job, state).await,
        JobKind::Fetcher => run_fetcher(pipeline, job, state).await,
    }
}

/// Renews while the end is being committed; that step has its own time limit.
async fn keep_alive(pipeline: Pipeline, fence: Fence) {
    loop {
        tokio::time::sleep(pipeline.limits.heartbeat).await;
        if let Err(error) = jobs::renew(&pipeline.store, &fence, pipeline.limits.lease).await {
            tracing::warn!(job = %fence.job, error = told(&error), "the lease could not be renewed");
        }
    }
}

fn outcome(finished: &Finished) -> &'static str {
    match finished {
        Finished::Completed(_) => JobStatus::Completed.name(),
        Finished::Failed(_) => JobStatus::Failed.name(),
        Finished::Canceled(_) => JobStatus::Canceled.name(),
        Finished::Requeued(_) => JobStatus::Pending.name(),
        Finished::Lost => "LOST",
    }
}
