//! What those who wait are told: that their organization runs as many as it may, and where they
//! stand. Only the first ones of a queue, so that it costs the same however long it is.

use std::time::Duration;

use outport_contract::stream::Scope;
use sea_orm::{
    ColumnTrait as _, ConnectionTrait as _, EntityTrait as _, QueryFilter as _, sea_query::Expr,
};
use serde_json::json;
use uuid::Uuid;

use super::{append, tell_waiting};
use crate::{StoreError, Tx, entity::job, instant};

/// Who is told.
const FIRST: u32 = 10;

/// How long a job is not told its place again.
const POSITION_EVERY: Duration = Duration::from_secs(10);

/// A job that waits, as far as it is told of it.
struct Queued {
    id: Uuid,
    application: String,
    waiting_told: bool,
    position_told_at: i64,
}

/// The queue of an organization has changed; `full` when it runs as many as it may. Its turn row
/// is locked, so nobody else changes what is read here.
pub(crate) async fn tell_queue(
    tx: &mut Tx,
    organization: Uuid,
    full: bool,
) -> Result<(), StoreError> {
    let now = tx.now().await?;
    let (mut waiting, mut placed) = (Vec::new(), Vec::new());
    for (ahead, job) in first(tx, organization, now).await?.into_iter().enumerate() {
        let scope = Scope::of_job(organization, &job.application, job.id);
        if full && !job.waiting_told {
            tell_waiting(tx, scope.clone());
            waiting.push(job.id);
        }
        if job.position_told_at <= now - instant::span(POSITION_EVERY) {
            let data = json!({"position": ahead + 1, "ahead": ahead});
            append(tx, scope, "queue.position", &data);
            placed.push(job.id);
        }
    }
    note(tx, job::Column::WaitingTold, true.into(), waiting).await?;
    note(tx, job::Column::PositionToldAt, now.into(), placed).await
}

async fn first(tx: &Tx, organization: Uuid, now: i64) -> Result<Vec<Queued>, StoreError> {
    let sql = format!(
        "SELECT id, application, waiting_told, position_told_at FROM jobs \
         WHERE organization_id = $1 AND status = 'PENDING' AND due_at <= $2 \
         ORDER BY due_at, id LIMIT {FIRST}"
    );
    let statement = tx.engine().statement(sql, [organization.into(), now.into()]);
    let rows = tx.connection().query_all_raw(statement).await?;
    let read = |row: &sea_orm::QueryResult| {
        Ok(Queued {
            id: row.try_get("", "id")?,
            application: row.try_get("", "application")?,
            waiting_told: row.try_get("", "waiting_told")?,
            position_told_at: row.try_get("", "position_told_at")?,
        })
    };
    rows.iter().map(read).collect()
}

async fn note(
    tx: &Tx,
    column: job::Column,
    value: sea_orm::Value,
    jobs: Vec<Uuid>,
) -> Result<(), StoreError> {
    if !jobs.is_empty() {
        job::Entity::update_many()
            .col_expr(column, Expr::value(value))
            .filter(job::Column::Id.is_in(jobs))
            .exec(tx.connection())
            .await?;
    }
    Ok(())
}
