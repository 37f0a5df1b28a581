//! How runs and jobs end: finish, rescue, cancel. All of it goes through [`settle`], so that
//! counters, sweeps, events and the live stream cannot be forgotten on one of the ways.

use std::time::Duration;

use outport_contract::export_event::ExportEventType;
use outport_domain::{
    failure::{Disposition, Failure, FailureCode},
    id::{Fence, JobId, OrganizationId},
    job::{ExportJob, FinishedFile, JobKind, JobStatus, Step},
    limits::backoff_ceiling,
};
use sea_orm::ConnectionTrait as _;

use super::{CancelOutcome, FinishPolicy, Finished, Hold, RunEnd, lease::holds};
use crate::{
    StoreError, Tx,
    entity::job,
    hints::Topic,
    instant, job_row,
    outbox::{self, NewEvent},
    telling::{self, Account, Level, StageStep},
    turns,
};

/// When the runs of a job that was canceled before it could finish are swept for the second
/// time; other ends say it by the retention of files.
const SECOND_SWEEP: Duration = Duration::from_hours(168);

/// Ends a run, fenced by (job, state, run, lease token), as one change with its events and
/// deliveries, and what the run has not told the live stream yet. A run that was asked to stop
/// ends as CANCELED whatever it came to.
pub async fn finish(
    tx: &mut Tx,
    fence: &Fence,
    end: &RunEnd,
    policy: &FinishPolicy,
    account: &Account,
) -> Result<Finished, StoreError> {
    let Some(row) = lock_held(tx, fence).await? else { return Ok(Finished::Lost) };
    let (step, change) = match end {
        RunEnd::Completed(file) => (Step::Complete, Change::complete(file)),
        RunEnd::Failed(failure) => fail_or_requeue(&row, failure, Step::Requeue, policy),
        RunEnd::HandedBack => (Step::Requeue, Change::default()),
        RunEnd::Canceled => (Step::ConfirmCancel, Change::default()),
    };
    // A run cannot confirm what nobody asked for.
    let Ok(to) = job_row::status(&row)?.after(step) else { return Ok(Finished::Lost) };
    telling::tell_account(tx, &row, account).await?;
    settle(tx, &row, to, &change, policy.file_retention).await.map(finished)
}

/// Takes a job from a lost worker, if its lease is still the expired one: back to PENDING, or
/// FAILED with `WORKER_LOST` when its budget is spent, or CANCELED when it was asked to stop.
pub async fn rescue(
    tx: &mut Tx,
    fence: &Fence,
    policy: &FinishPolicy,
) -> Result<Finished, StoreError> {
    let Some(row) = lock_held(tx, fence).await? else { return Ok(Finished::Lost) };
    let now = tx.now().await?;
    if row.lease_expires_at.is_some_and(|ends| ends > now) {
        return Ok(Finished::Lost);
    }
    let lost = Failure::new(FailureCode::WorkerLost, "The worker that ran the job was lost.");
    let (step, change) = fail_or_requeue(&row, &lost, Step::Rescue, policy);
    let Ok(to) = job_row::status(&row)?.after(step) else { return Ok(Finished::Lost) };
    telling::tell_account(tx, &row, &last_words(&row, &lost)?).await?;
    settle(tx, &row, to, &change, policy.file_retention).await.map(finished)
}

/// What a lost worker cannot tell any more.
fn last_words(row: &job::Model, lost: &Failure) -> Result<Account, StoreError> {
    let progress = job_row::read(row)?.progress;
    let mut account = Account::default();
    account.stage(StageStep::Failed, &progress);
    account.line(Level::Error, progress.stage, &lost.message);
    Ok(account.outgoing())
}

/// Asks a job to stop. Idempotent.
pub async fn request_cancel(
    tx: &mut Tx,
    organization: OrganizationId,
    job: JobId,
) -> Result<CancelOutcome, StoreError> {
    let row = turns::lock_job(tx, job.uuid()).await?;
    let Some(row) = row.filter(|row| row.organization_id == organization.uuid()) else {
        return Ok(CancelOutcome::NotFound);
    };
    let from = job_row::status(&row)?;
    let Ok(to) = from.after(Step::RequestCancel) else {
        return Ok(CancelOutcome::Ended(job_row::read(&row)?));
    };
    match to {
        JobStatus::Canceling => Ok(CancelOutcome::Canceling(ask_to_stop(tx, row).await?)),
        _ if from == to => Ok(CancelOutcome::Canceled(job_row::read(&row)?)),
        _ => {
            let job = settle(tx, &row, to, &Change::default(), SECOND_SWEEP).await?;
            Ok(CancelOutcome::Canceled(job))
        }
    }
}

async fn ask_to_stop(tx: &mut Tx, before: job::Model) -> Result<ExportJob, StoreError> {
    let mut row = before.clone();
    if before.status != JobStatus::Canceling.name() {
        JobStatus::Canceling.name().clone_into(&mut row.status);
        row.updated_at = tx.now().await?;
        job_row::save(tx, &before, &row).await?;
    }
    tx.touch(Topic::Cancels);
    job_row::read(&row)
}

/// What a job's new state comes with.
#[derive(Default)]
struct Change<'a> {
    file: Option<&'a FinishedFile>,
    failure: Option<&'a Failure>,
    /// Before the next run.
    pause: Duration,
}

impl<'a> Change<'a> {
    fn complete(file: &'a FinishedFile) -> Self {
        Self { file: Some(file), ..Self::default() }
    }
}

async fn lock_held(tx: &Tx, fence: &Fence) -> Result<Option<job::Model>, StoreError> {
    let Some(row) = turns::lock_job(tx, fence.job.uuid()).await? else { return Ok(None) };
    Ok((holds(&row, fence)? != Hold::Lost).then_some(row))
}

/// The step after a failure: `again` while the budget lasts, the end when it is spent.
fn fail_or_requeue<'a>(
    row: &job::Model,
    failure: &'a Failure,
    again: Step,
    policy: &FinishPolicy,
) -> (Step, Change<'a>) {
    let failures = row.failures as u32 + 1;
    let spent = failures >= policy.job_failures;
    let step = match failure.disposition {
        Disposition::Retry if !spent => again,
        Disposition::Retry | Disposition::Abandon => Step::Fail,
    };
    let ceiling = backoff_ceiling(policy.backoff, policy.backoff_most, failures);
    let pause = ceiling.mul_f64(rand::random::<f64>());
    (step, Change { failure: Some(failure), pause, ..Change::default() })
}

/// Writes a job's new state and all that goes with it: counters, its run, what is to be swept,
/// and, when it has ended, its events.
async fn settle(
    tx: &mut Tx,
    before: &job::Model,
    to: JobStatus,
    change: &Change<'_>,
    retention: Duration,
) -> Result<ExportJob, StoreError> {
    let now = tx.now().await?;
    let ran = before.status != JobStatus::Pending.name();
    let row = after(before, to, change, now, now + instant::span(retention));
    job_row::save(tx, before, &row).await?;
    let queued = i32::from(to == JobStatus::Pending) - i32::from(!ran);
    turns::shift(tx, row.organization_id, queued, -i32::from(ran)).await?;
    if !ran {
        let full = turns::is_full(tx, row.organization_id).await?;
        telling::tell_queue(tx, row.organization_id, full).await?;
    }
    let run_began_at = if ran { end_run(tx, &row, to, change.failure, now).await? } else { None };
    // Its place is free, or it is due again; and claims have passed over the locked turn row.
    tx.touch(Topic::Jobs);
    telling::tell_settled(tx, &row, to, change.failure, ran)?;
    let job = job_row::read(&row)?;
    if let Some(event_type) = event_of(to) {
        sweep_again_later(tx, &row).await?;
        emit_end(tx, &job, event_type, run_began_at).await?;
    }
    Ok(job)
}

/// The events of a job's end, side by side in one commit: those of an export have both names.
async fn emit_end(
    tx: &mut Tx,
    job: &ExportJob,
    event_type: ExportEventType,
    run_began_at: Option<i64>,
) -> Result<(), StoreError> {
    let run_began_at = instant::maybe_at(run_began_at)?;
    let for_broker =
        job.job_event(run_began_at).map_err(|invalid| StoreError::Corrupt(invalid.to_string()))?;
    let for_broker = for_broker.map(|event| NewEvent::of_job(job, &event));
    let export = match job.kind {
        JobKind::Export => Some(NewEvent::of_export(job, event_type)?),
        JobKind::Fetcher => None,
    };
    outbox::emit(tx, export.into_iter().chain(for_broker)).await
}

/// The row after the change; `later` is when its file goes, or would have gone.
fn after(
    before: &job::Model,
    to: JobStatus,
    change: &Change<'_>,
    now: i64,
    later: i64,
) -> job::Model {
    let mut row = before.clone();
    to.name().clone_into(&mut row.status);
    row.updated_at = now;
    row.lease_token = None;
    row.lease_expires_at = None;
    row.worker = None;
    if to.has_ended() {
        row.finished_at = Some(now);
        row.final_sweep_at = Some(later);
    }
    if change.failure.is_some() && to != JobStatus::Canceled {
        row.failures += 1;
    }
    match to {
        JobStatus::Completed => {
            row.expires_at = Some(later);
            if let Some(file) = change.file {
                job_row::set_file(&mut row, file);
                row.rows_done = file.total_rows as i64;
                row.rows_total = row.total_rows;
                row.rows_total_is_estimate = false;
            }
        }
        JobStatus::Failed => {
            row.failure_code = change.failure.map(|failure| failure.code.name().to_owned());
            row.failure_message = change.failure.map(|failure| failure.message.clone());
        }
        JobStatus::Canceled => {
            row.failure_code = Some(FailureCode::Canceled.name().to_owned());
            row.failure_message = Some(FailureCode::Canceled.meaning().to_owned());
        }
        JobStatus::Pending => {
            row.due_at = now + instant::span(change.pause);
            row.stage = None;
            row.rows_done = 0;
            row.rows_total = None;
            row.rows_total_is_estimate = false;
        }
        JobStatus::Processing | JobStatus::Canceling | JobStatus::Expired => {}
    }
    row
}

/// Ends the run's own row. Returns when it began.
async fn end_run(
    tx: &Tx,
    row: &job::Model,
    to: JobStatus,
    failure: Option<&Failure>,
    now: i64,
) -> Result<Option<i64>, StoreError> {
    let sweep_due_at = (to != JobStatus::Completed).then_some(now);
    let statement = tx.engine().statement(
        "UPDATE runs SET finished_at = $1, outcome = $2, failure_code = $3, failure_message = $4, \
         sweep_due_at = CASE WHEN object_key IS NULL THEN NULL ELSE $5 END \
         WHERE job_id = $6 AND run = $7 RETURNING started_at",
        [
            now.into(),
            to.name().into(),
            failure.map(|failure| failure.code.name().to_owned()).into(),
            failure.map(|failure| failure.message.clone()).into(),
            sweep_due_at.into(),
            row.id.into(),
            row.run.into(),
        ],
    );
    let run = tx.connection().query_one_raw(statement).await?;
    Ok(run.map(|run| run.try_get("", "started_at")).transpose()?)
}

/// What was swept before the job ended is swept once more: a late twin may have written since.
async fn sweep_again_later(tx: &Tx, row: &job::Model) -> Result<(), StoreError> {
    tx.run(
        "UPDATE runs SET sweep_due_at = $1 WHERE job_id = $2 AND object_key IS NOT NULL \
         AND swept_at IS NOT NULL AND sweep_due_at IS NULL",
        [row.final_sweep_at.into(), row.id.into()],
    )
    .await?;
    Ok(())
}

const fn event_of(to: JobStatus) -> Option<ExportEventType> {
    match to {
        JobStatus::Completed => Some(ExportEventType::Completed),
        JobStatus::Failed => Some(ExportEventType::Failed),
        JobStatus::Canceled => Some(ExportEventType::Canceled),
        JobStatus::Expired => Some(ExportEventType::Expired),
        JobStatus::Pending | JobStatus::Processing | JobStatus::Canceling => None,
    }
}

fn finished(job: ExportJob) -> Finished {
    match job.status {
        JobStatus::Completed | JobStatus::Expired => Finished::Completed(job),
        JobStatus::Failed => Finished::Failed(job),
        JobStatus::Canceled => Finished::Canceled(job),
        JobStatus::Pending | JobStatus::Processing | JobStatus::Canceling => {
            Finished::Requeued(job)
        }
    }
}
