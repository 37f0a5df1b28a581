//! Jobs: claim, lease, fence, finish, cancel; and the finders.

mod claim;
mod ending;
mod find;
mod lease;
mod numbers;
mod retention;

use std::time::Duration;

use outport_domain::{
    failure::Failure,
    id::{Fence, UserId},
    job::{ExportJob, FinishedFile, JobStatus},
};

pub use claim::claim;
#[cfg(test)]
pub(crate) use claim::{NEXT_TURN, OLDEST_DUE};
pub use ending::{finish, request_cancel, rescue};
#[cfg(test)]
pub(crate) use find::list_query;
pub use find::{find, find_in_any_organization, list, queue_position};
pub use lease::{expired_leases, look, record_object, record_part, record_progress, renew};
pub use numbers::{gauges, next_due};
pub use retention::{delete_file, expire_due, purge};

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

/// Leases seen expired by one rescuer; a lease is only acted on when seen expired twice.
#[derive(Debug, Default)]
pub struct ExpiredLeases(Vec<Fence>);

impl ExpiredLeases {
    /// Notes what was seen now; returns what was seen the last time too. Must be called one
    /// heartbeat apart; after any error start with a fresh one.
    pub fn seen_again(&mut self, now: Vec<Fence>) -> Vec<Fence> {
        let again = now.iter().filter(|fence| self.0.contains(fence)).copied().collect();
        self.0 = now;
        again
    }
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
    /// Of the live stream's application with this name.
    pub application: Option<String>,
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
