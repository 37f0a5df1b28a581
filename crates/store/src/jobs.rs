//! Jobs: claim, lease, fence, finish, cancel; and the finders.

use std::time::Duration;

use chrono::{DateTime, Utc};
use outport_domain::{
    failure::Failure,
    id::{Fence, JobId, OrganizationId, UserId},
    job::{ExportJob, FinishedFile, JobStatus, Progress},
    object_key::ObjectKey,
};

use crate::{Page, PageRequest, Store, StoreError, Tx};

/// How a worker claims.
#[derive(Clone, Debug)]
pub struct ClaimPolicy {
    /// The worker's name, for people.
    pub worker: String,
    /// Life of the lease.
    pub lease: Duration,
    /// Running jobs of one organization, over all workers.
    pub running_per_organization: u32,
}

/// One run of a job, given to one worker.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The job as claimed: PROCESSING, `run` already grown.
    pub job: ExportJob,
    /// What every write of this run must name.
    pub fence: Fence,
}

/// Takes the organization served least recently (below its cap, with a due job), then its oldest
/// due job: PROCESSING, run + 1, fresh token, lease by the database's clock; also inserts the
/// run's row. `None` when nothing is due. The caller commits at once.
pub async fn claim(tx: &mut Tx, policy: &ClaimPolicy) -> Result<Option<Claim>, StoreError> {
    todo!()
}

/// When the next pending job becomes due, for a timed sleep; `None` when none waits.
pub async fn next_due(store: &Store) -> Result<Option<DateTime<Utc>>, StoreError> {
    todo!()
}

/// What a run's owner learns about its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Still its own.
    Held,
    /// Still its own, and it was asked to stop.
    CancelRequested,
    /// No longer its own: it must abort its upload and write nothing.
    Lost,
}

/// Renews a lease by run and token (not by expiry: an outage of the database kills no healthy
/// run).
pub async fn renew(store: &Store, fence: &Fence, lease: Duration) -> Result<Hold, StoreError> {
    todo!()
}

/// Looks at running jobs without renewing, in the order given.
pub async fn look(store: &Store, fences: &[Fence]) -> Result<Vec<Hold>, StoreError> {
    todo!()
}

/// Records where the run is about to write, before its first byte: fenced.
pub async fn record_object(
    store: &Store,
    fence: &Fence,
    key: &ObjectKey,
    upload_id: Option<&str>,
) -> Result<Hold, StoreError> {
    todo!()
}

/// Records how far the run is: fenced.
pub async fn record_progress(
    store: &Store,
    fence: &Fence,
    progress: &Progress,
) -> Result<Hold, StoreError> {
    todo!()
}

/// How a run came to its end.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEnd {
    /// All bytes are stored and verified.
    Completed(FinishedFile),
    /// It failed; the policy says whether it is tried again.
    Failed(Failure),
    /// The worker is stopping and gives the job back: no failure.
    HandedBack,
    /// It has stopped as asked.
    Canceled,
}

/// Budgets and times that `finish` applies.
#[derive(Clone, Debug)]
pub struct FinishPolicy {
    /// Failures before FAILED.
    pub job_failures: u32,
    /// First pause, see [`outport_domain::limits::backoff_ceiling`].
    pub backoff: Duration,
    /// Longest pause.
    pub backoff_most: Duration,
    /// From `finishedAt` to `expiresAt`.
    pub file_retention: Duration,
}

/// What `finish` made of the end.
#[derive(Clone, Debug, PartialEq)]
pub enum Finished {
    /// COMPLETED, with its events and deliveries.
    Completed(ExportJob),
    /// FAILED, with its events and deliveries.
    Failed(ExportJob),
    /// CANCELED, with its events and deliveries.
    Canceled(ExportJob),
    /// PENDING again, due at `due_at`.
    Requeued(ExportJob),
    /// The fence no longer matched: nothing was written.
    Lost,
}

/// Ends a run, fenced by (job, state, run, lease token), as one change with its events and
/// deliveries. A run that was asked to stop ends as CANCELED whatever it came to.
pub async fn finish(
    tx: &mut Tx,
    fence: &Fence,
    end: &RunEnd,
    policy: &FinishPolicy,
) -> Result<Finished, StoreError> {
    todo!()
}

/// Leases seen expired by one rescuer; a lease is only acted on when seen expired twice.
#[derive(Debug, Default)]
pub struct ExpiredLeases(Vec<Fence>);

/// Leases that have expired by the database's clock, each with its job's fence.
pub async fn expired_leases(store: &Store) -> Result<Vec<Fence>, StoreError> {
    todo!()
}

impl ExpiredLeases {
    /// Notes what was seen now; returns what was seen the last time too. Must be called one
    /// heartbeat apart; after any error start with a fresh one.
    pub fn seen_again(&mut self, now: Vec<Fence>) -> Vec<Fence> {
        let again = now.iter().filter(|fence| self.0.contains(fence)).copied().collect();
        self.0 = now;
        again
    }
}

/// Takes a job from a lost worker, if its lease is still the expired one: back to PENDING, or
/// FAILED with WORKER_LOST when its budget is spent, or CANCELED when it was asked to stop.
pub async fn rescue(
    tx: &mut Tx,
    fence: &Fence,
    policy: &FinishPolicy,
) -> Result<Finished, StoreError> {
    todo!()
}

/// What a request to cancel met.
#[derive(Clone, Debug, PartialEq)]
pub enum CancelOutcome {
    /// It waited and is CANCELED at once.
    Canceled(ExportJob),
    /// It runs and is CANCELING (or was already).
    Canceling(ExportJob),
    /// It had ended otherwise.
    Ended(ExportJob),
    /// No such job in this organization.
    NotFound,
}

/// Asks a job to stop. Idempotent.
pub async fn request_cancel(
    tx: &mut Tx,
    organization: OrganizationId,
    job: JobId,
) -> Result<CancelOutcome, StoreError> {
    todo!()
}

/// Marks an ended job's file as deleted by request; the sweeper deletes the object. `None` when
/// there is no such job; the job unchanged when it has not ended.
pub async fn delete_file(
    tx: &mut Tx,
    organization: OrganizationId,
    job: JobId,
) -> Result<Option<ExportJob>, StoreError> {
    todo!()
}

/// Completed jobs whose `expiresAt` has passed become EXPIRED, with their events; at most
/// `most` of them. The sweeper deletes their objects.
pub async fn expire_due(tx: &mut Tx, most: u32) -> Result<Vec<ExportJob>, StoreError> {
    todo!()
}

/// Deletes ended jobs older than `retention` whose objects are swept and deliveries finished.
pub async fn purge(tx: &mut Tx, retention: Duration, most: u32) -> Result<u64, StoreError> {
    todo!()
}

/// A job of this organization.
pub async fn find(
    store: &Store,
    organization: OrganizationId,
    job: JobId,
) -> Result<Option<ExportJob>, StoreError> {
    todo!()
}

/// A job of any organization: for workers, handlers and links, never for the API.
pub async fn find_in_any_organization(
    store: &Store,
    job: JobId,
) -> Result<Option<ExportJob>, StoreError> {
    todo!()
}

/// Which jobs a list shows.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Only with this status.
    pub status: Option<JobStatus>,
    /// Only of this resource.
    pub resource: Option<String>,
    /// Only asked for by this user.
    pub requested_by: Option<UserId>,
    /// Only of this schedule.
    pub schedule: Option<outport_domain::id::ScheduleId>,
}

/// Jobs of this organization, newest first.
pub async fn list(
    store: &Store,
    organization: OrganizationId,
    filter: &JobFilter,
    page: PageRequest,
) -> Result<Page<ExportJob>, StoreError> {
    todo!()
}

/// How many due jobs of its organization are before a pending job (0: it is next), for those
/// within the first hundred.
pub async fn queue_position(store: &Store, job: &ExportJob) -> Result<Option<u32>, StoreError> {
    todo!()
}

/// Numbers for the metrics page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that run.
    pub running: u64,
    /// Age of the oldest due job.
    pub oldest_queued: Option<Duration>,
    /// Deliveries by handler and status name.
    pub deliveries: Vec<(String, &'static str, u64)>,
    /// Age of the oldest delivery that is not done.
    pub oldest_delivery: Option<Duration>,
}

/// Reads the numbers for the metrics page.
pub async fn gauges(store: &Store) -> Result<Gauges, StoreError> {
    todo!()
}
