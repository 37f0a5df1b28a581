//! The life of a job: one total match.

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobStatus {
    /// Waits for a worker.
    Pending,
    /// A worker has its lease.
    Processing,
    /// A worker has its lease and was asked to stop.
    Canceling,
    /// The file is in storage.
    Completed,
    /// Ended without a file.
    Failed,
    /// Ended by request, without a file.
    Canceled,
    /// Was completed; the file has reached its `expiresAt`.
    Expired,
}

/// What can happen to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A worker takes it.
    Claim,
    /// Its run ended well, all bytes are stored.
    Complete,
    /// Its run ended badly for good.
    Fail,
    /// Its run ended badly and may be tried again; or the worker hands it back.
    Requeue,
    /// Its lease ended and the worker is taken for lost.
    Rescue,
    /// Somebody asks for it to stop.
    RequestCancel,
    /// Its worker has stopped as asked.
    ConfirmCancel,
    /// Its file has reached `expiresAt`.
    Expire,
}

/// A step that the state machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {from:?} job cannot take the step {step:?}")]
pub struct IllegalStep {
    /// The status it is in.
    pub from: JobStatus,
    /// What was tried.
    pub step: Step,
}

impl JobStatus {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Processing,
        Self::Canceling,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::Expired,
    ];

    /// The status after a step. What is not listed is illegal.
    pub const fn after(self, step: Step) -> Result<Self, IllegalStep> {
        use JobStatus::{Canceled, Canceling, Completed, Expired, Failed, Pending, Processing};
        Ok(match (self, step) {
            (Pending, Step::Claim) => Processing,
            (Processing, Step::Complete) => Completed,
            (Processing, Step::Fail) => Failed,
            (Processing, Step::Requeue | Step::Rescue) => Pending,
            (Processing | Canceling, Step::RequestCancel) => Canceling,
            // Whatever a run that was asked to stop comes to, the job is canceled.
            (Pending | Canceled, Step::RequestCancel)
            | (
                Canceling,
                Step::ConfirmCancel | Step::Complete | Step::Fail | Step::Requeue | Step::Rescue,
            ) => Canceled,
            (Completed, Step::Expire) => Expired,
            (from, step) => return Err(IllegalStep { from, step }),
        })
    }

    /// Whether nothing but expiry and deletion can happen any more.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Expired)
    }

    /// The name on the wire, e.g. `PROCESSING`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Processing => "PROCESSING",
            Self::Canceling => "CANCELING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
            Self::Expired => "EXPIRED",
        }
    }

    /// The status with this wire name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_listed_steps_exist() {
        const STEPS: [Step; 8] = [
            Step::Claim,
            Step::Complete,
            Step::Fail,
            Step::Requeue,
            Step::Rescue,
            Step::RequestCancel,
            Step::ConfirmCancel,
            Step::Expire,
        ];
        let legal = JobStatus::ALL
            .into_iter()
            .flat_map(|from| {
                STEPS
                    .into_iter()
                    .filter_map(move |step| from.after(step).ok().map(|to| (from, step, to)))
            })
            .map(|(from, step, to)| format!("{} {step:?} {}", from.name(), to.name()))
            .collect::<Vec<_>>();
        assert_eq!(
            legal,
            [
                "PENDING Claim PROCESSING",
                "PENDING RequestCancel CANCELED",
                "PROCESSING Complete COMPLETED",
                "PROCESSING Fail FAILED",
                "PROCESSING Requeue PENDING",
                "PROCESSING Rescue PENDING",
                "PROCESSING RequestCancel CANCELING",
                "CANCELING Complete CANCELED",
                "CANCELING Fail CANCELED",
                "CANCELING Requeue CANCELED",
                "CANCELING Rescue CANCELED",
                "CANCELING RequestCancel CANCELING",
                "CANCELING ConfirmCancel CANCELED",
                "COMPLETED Expire EXPIRED",
                "CANCELED RequestCancel CANCELED",
            ]
        );
    }
}
