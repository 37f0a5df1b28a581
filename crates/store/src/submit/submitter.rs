//! The group commit: one task, one transaction at a time, as many jobs in it as are waiting.

use outport_contract::redaction::told;
use tokio::sync::{mpsc, oneshot};

use super::{IdempotencyKey, NewJob, Submitted, batch};
use crate::{Store, StoreError};

/// Jobs of one commit.
const JOBS_PER_COMMIT: usize = 64;
/// Requests that wait for their commit before the next has to wait for its place.
const WAITING: usize = 1_024;

/// Groups concurrent submissions into shared commits. Cheap to clone; ends when the last clone
/// is dropped.
#[derive(Clone)]
pub struct Submitter {
    waiting: mpsc::Sender<Waiting>,
}

struct Waiting {
    job: NewJob,
    key: Option<IdempotencyKey>,
    answer: oneshot::Sender<Result<Submitted, StoreError>>,
}

impl Submitter {
    /// Starts the task that commits. Needs a running Tokio runtime.
    pub fn start(store: Store, queued_per_organization: u32) -> Self {
        let (waiting, queue) = mpsc::channel(WAITING);
        tokio::spawn(Committer { store, queued_per_organization }.run(queue));
        Self { waiting }
    }

    /// Submits one job and answers after the commit that holds it.
    pub async fn submit(
        &self,
        job: NewJob,
        key: Option<IdempotencyKey>,
    ) -> Result<Submitted, StoreError> {
        let stopped = || StoreError::Unreachable("the submitter has stopped".into());
        let (answer, answered) = oneshot::channel();
        self.waiting.send(Waiting { job, key, answer }).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

struct Committer {
    store: Store,
    queued_per_organization: u32,
}

/// How a shared transaction failed.
enum Failed {
    /// Nothing of it is in the database.
    Before(StoreError),
    /// It broke at the commit; who knows.
    Unknown(StoreError),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Before(error)
    }
}

impl Committer {
    async fn run(self, mut queue: mpsc::Receiver<Waiting>) {
        let mut waiting = Vec::with_capacity(JOBS_PER_COMMIT);
        while queue.recv_many(&mut waiting, JOBS_PER_COMMIT).await > 0 {
            self.answer(std::mem::take(&mut waiting)).await;
        }
    }

    async fn answer(&self, waiting: Vec<Waiting>) {
        match self.commit(&waiting).await {
            Ok(answers) => {
                for (waiting, answer) in waiting.into_iter().zip(answers) {
                    reply(waiting, Ok(answer));
                }
            }
            Err(Failed::Unknown(error)) => {
                let (error, jobs) = (told(&error), waiting.len());
                tracing::warn!(error, jobs, "a commit of new jobs broke; its outcome is unknown");
                for waiting in waiting {
                    reply(waiting, Err(broken()));
                }
            }
            Err(Failed::Before(error)) => self.answer_one_by_one(waiting, error).await,
        }
    }

    /// After a failure of all together, so that one of them cannot fail the others.
    async fn answer_one_by_one(&self, waiting: Vec<Waiting>, together: StoreError) {
        tracing::debug!(error = %together, jobs = waiting.len(), "a shared commit failed, each job is tried alone");
        // When nothing can be reached, one more try is enough for all of them.
        let mut gone = false;
        for waiting in waiting {
            if gone {
                reply(waiting, Err(broken()));
                continue;
            }
            let alone = self.commit(std::slice::from_ref(&waiting)).await;
            let answer = alone.map(|mut answers| answers.swap_remove(0)).map_err(|failed| {
                let (Failed::Before(error) | Failed::Unknown(error)) = failed;
                gone = matches!(error, StoreError::Unreachable(_));
                error
            });
            reply(waiting, answer);
        }
    }

    async fn commit(&self, waiting: &[Waiting]) -> Result<Vec<Submitted>, Failed> {
        let requests = waiting
            .iter()
            .map(|waiting| batch::Request { job: &waiting.job, key: waiting.key.as_ref() })
            .collect::<Vec<_>>();
        let mut tx = self.store.begin().await?;
        let answers = batch::submit_all(&mut tx, &requests, self.queued_per_organization).await?;
        tx.commit().await.map_err(|error| match error {
            StoreError::Unreachable(_) => Failed::Unknown(error),
            error => Failed::Before(error),
        })?;
        Ok(answers)
    }
}

fn broken() -> StoreError {
    StoreError::Unreachable("the connection broke before the commit was confirmed".into())
}

fn reply(waiting: Waiting, answer: Result<Submitted, StoreError>) {
    if waiting.answer.send(answer).is_err() {
        // Its client has gone; the job stands, and a repetition with its key finds it.
        tracing::debug!("nobody waits for the answer of a submission any more");
    }
}
