//! Claiming: one short transaction for one job.

use outport_domain::{
    id::{Fence, JobId},
    job::{JobStatus, Step},
};
use sea_orm::{ConnectionTrait as _, EntityTrait as _, IntoActiveModel as _};
use uuid::Uuid;

use super::{Claim, ClaimPolicy};
use crate::{
    Engine, StoreError, Tx,
    entity::{job, run},
    hints::Topic,
    instant, job_row, telling,
};

/// The organization served least recently, below its cap ($1), with a job that is due ($2).
/// The scalar sub-query cannot be turned into a join over all jobs, as EXISTS could.
pub const NEXT_TURN: &str = "SELECT t.organization_id FROM turns t \
     WHERE t.queued > 0 AND t.running < $1 AND \
     (SELECT j.due_at FROM jobs j WHERE j.organization_id = t.organization_id \
      AND j.status = 'PENDING' ORDER BY j.due_at, j.id LIMIT 1) <= $2 \
     ORDER BY t.last_turn_at LIMIT 1";

/// The oldest job of an organization ($1) that is due ($2).
pub const OLDEST_DUE: &str = "SELECT * FROM jobs \
     WHERE organization_id = $1 AND status = 'PENDING' AND due_at <= $2 \
     ORDER BY due_at, id LIMIT 1";

/// Turns that one claim looks at before it gives up for now.
const TRIES: usize = 8;

/// Takes the organization served least recently (below its cap, with a due job), then its oldest
/// due job: PROCESSING, run + 1, fresh token, lease by the database's clock; also inserts the
/// run's row. `None` when nothing is due, or when whoever is about to commit has the only turn
/// row that is: that commit wakes [`Topic::Jobs`]. The caller commits at once.
///
/// It never waits for a turn row. A row that is passed over after a second look stays locked,
/// so two claims that waited could wait for each other.
pub async fn claim(tx: &mut Tx, policy: &ClaimPolicy) -> Result<Option<Claim>, StoreError> {
    let now = tx.now().await?;
    for _ in 0..TRIES {
        let Some(organization) = next_turn(tx, policy, now).await? else { return Ok(None) };
        if let Some(row) = oldest_due(tx, organization, now).await? {
            return take(tx, policy, &row, now).await.map(Some);
        }
        // Its last due job was taken between the look and the lock.
    }
    Ok(None)
}

async fn next_turn(tx: &Tx, policy: &ClaimPolicy, now: i64) -> Result<Option<Uuid>, StoreError> {
    let lock = match tx.engine() {
        Engine::Postgres => "FOR UPDATE OF t SKIP LOCKED",
        Engine::Sqlite => "",
    };
    let statement =
        tx.engine().statement(format!("{NEXT_TURN} {lock}"), [cap(policy).into(), now.into()]);
    let row = tx.connection().query_one_raw(statement).await?;
    Ok(row.map(|row| row.try_get("", "organization_id")).transpose()?)
}

fn cap(policy: &ClaimPolicy) -> i32 {
    i32::try_from(policy.running_per_organization).unwrap_or(i32::MAX)
}

async fn oldest_due(
    tx: &Tx,
    organization: Uuid,
    now: i64,
) -> Result<Option<job::Model>, StoreError> {
    let sql = format!("{OLDEST_DUE} {}", tx.engine().for_update());
    let statement = tx.engine().statement(sql, [organization.into(), now.into()]);
    Ok(job::Entity::find().from_raw_sql(statement).one(tx.connection()).await?)
}

async fn take(
    tx: &mut Tx,
    policy: &ClaimPolicy,
    before: &job::Model,
    now: i64,
) -> Result<Claim, StoreError> {
    let status = JobStatus::Pending
        .after(Step::Claim)
        .map_err(|illegal| StoreError::Corrupt(illegal.to_string()))?;
    let lease_token = Uuid::new_v4();
    let mut row = before.clone();
    status.name().clone_into(&mut row.status);
    row.run += 1;
    row.stage = None;
    row.rows_done = 0;
    row.rows_total = None;
    row.rows_total_is_estimate = false;
    row.lease_token = Some(lease_token);
    row.lease_expires_at = Some(now + instant::span(policy.lease));
    row.worker = Some(policy.worker.clone());
    row.started_at.get_or_insert(now);
    row.updated_at = now;
    // A later wait is another one.
    row.waiting_told = false;
    job_row::save(tx, before, &row).await?;
    run::Entity::insert(first_words(&row, &policy.worker, now).into_active_model())
        .exec_without_returning(tx.connection())
        .await?;
    telling::tell_claimed(tx, &row);
    take_turn(tx, policy, row.organization_id, now).await?;
    let fence = Fence { job: JobId::from_uuid(row.id), run: row.run as u32, lease_token };
    Ok(Claim { job: job_row::read(&row)?, fence })
}

/// Counts the claim, and tells those who wait behind it. When the organization could run one more
/// at once, whoever passed over its locked row is woken.
async fn take_turn(
    tx: &mut Tx,
    policy: &ClaimPolicy,
    organization: Uuid,
    now: i64,
) -> Result<(), StoreError> {
    // Two turns within one millisecond still follow each other.
    let statement = tx.engine().statement(
        "UPDATE turns SET queued = queued - 1, running = running + 1, running_most = $3, \
         last_turn_at = CASE WHEN last_turn_at >= $1 THEN last_turn_at + 1 ELSE $1 END \
         WHERE organization_id = $2 RETURNING queued, running",
        [now.into(), organization.into(), cap(policy).into()],
    );
    if let Some(turn) = tx.connection().query_one_raw(statement).await? {
        let queued: i32 = turn.try_get("", "queued")?;
        let running: i32 = turn.try_get("", "running")?;
        let full = running >= cap(policy);
        if queued > 0 && !full {
            tx.touch(Topic::Jobs);
        }
        if queued > 0 {
            telling::tell_queue(tx, organization, full).await?;
        }
    }
    Ok(())
}

fn first_words(job: &job::Model, worker: &str, now: i64) -> run::Model {
    run::Model {
        job_id: job.id,
        run: job.run,
        worker: worker.to_owned(),
        started_at: now,
        finished_at: None,
        outcome: None,
        failure_code: None,
        failure_message: None,
        object_key: None,
        upload_id: None,
        swept_at: None,
        sweep_due_at: None,
    }
}
