//! What the live stream is told of jobs, in the transaction that makes it so.
//!
//! A job is `queued`, perhaps waits for its turn, gets it (`turn.started`), runs, and ends; or its
//! next run is scheduled (`retry.scheduled`), also when a stopping worker gives it back. Either
//! way its turn ends. What the runs themselves have to tell is in their [`Account`]s.

mod account;
mod queue;

use outport_contract::{
    stream::{self, Scope},
    time::Instant,
};
use outport_domain::{
    failure::{Failure, FailureCode},
    job::JobStatus,
};
use serde_json::{Value, json};

pub(crate) use account::tell_account;
pub use account::{Account, Level, StageStep};
pub(crate) use queue::tell_queue;

use crate::{StoreError, Tx, channels::NewEvent, entity::job, instant};

fn append(tx: &mut Tx, scope: Scope, name: &str, data: &Value) {
    let event_type = stream::find(name).expect("a type of the catalogue");
    tx.append(NewEvent::new(event_type, scope, data.to_string()));
}

fn scope_of(job: &job::Model) -> Scope {
    Scope::of_job(job.organization_id, &job.application, job.id)
}

/// A job was enqueued; `waits` when its organization runs as many as it may.
pub(crate) fn tell_submitted(tx: &mut Tx, job: &job::Model, waits: bool) {
    append(tx, scope_of(job), "job.queued", &json!({"state": "queued"}));
    if waits {
        tell_waiting(tx, scope_of(job));
    }
}

fn tell_waiting(tx: &mut Tx, scope: Scope) {
    append(tx, scope, "job.waiting_turn", &json!({"state": "waiting_turn"}));
}

/// A worker has taken a job.
pub(crate) fn tell_claimed(tx: &mut Tx, job: &job::Model) {
    append(tx, scope_of(job), "turn.started", &json!({}));
    let data = json!({"state": "running", "attempt": job.run});
    append(tx, scope_of(job), "job.running", &data);
}

/// A job has got this status, by the end of a run or without one.
pub(crate) fn tell_settled(
    tx: &mut Tx,
    job: &job::Model,
    to: JobStatus,
    failure: Option<&Failure>,
    ran: bool,
) -> Result<(), StoreError> {
    let (name, data) = match to {
        JobStatus::Pending => ("retry.scheduled", retry(job, failure)?),
        JobStatus::Completed => ("job.succeeded", json!({"state": "succeeded"})),
        JobStatus::Canceled => ("job.cancelled", json!({"state": "cancelled"})),
        JobStatus::Failed => failed(job),
        JobStatus::Processing | JobStatus::Canceling | JobStatus::Expired => return Ok(()),
    };
    append(tx, scope_of(job), name, &data);
    if ran && to.has_ended() {
        // Of the file that there is now, if there is one.
        let data = json!({
            "rows": job.total_rows.unwrap_or_default(),
            "bytes": job.size_bytes.unwrap_or_default(),
        });
        append(tx, scope_of(job), "usage.recorded", &data);
    }
    if ran {
        append(tx, scope_of(job), "turn.ended", &json!({}));
    }
    Ok(())
}

fn retry(job: &job::Model, failure: Option<&Failure>) -> Result<Value, StoreError> {
    Ok(json!({
        "module": "export",
        "attempt": job.run + 1,
        "at": Instant::from(instant::at(job.due_at)?),
        "code": failure.map(|failure| failure.code.name()),
    }))
}

fn failed(job: &job::Model) -> (&'static str, Value) {
    let (name, state) = match job.failure_code.as_deref() {
        Some(code) if code == FailureCode::LimitExceeded.name() => {
            ("job.limit_exceeded", "limit_exceeded")
        }
        Some(_) | None => ("job.failed", "failed"),
    };
    let (code, message) = (&job.failure_code, &job.failure_message);
    (name, json!({"state": state, "code": code, "message": message}))
}
