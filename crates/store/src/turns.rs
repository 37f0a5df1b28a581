//! Turn rows: one for each organization, with the exact numbers of its queued and running
//! jobs. Whoever changes the state of a job that has not ended holds its turn row first.

use sea_orm::{ConnectionTrait as _, EntityTrait as _, QuerySelect as _};
use uuid::Uuid;

use crate::{StoreError, Tx, entity::job};

/// Locks an organization's turn row, and makes it if it is not there: until the transaction ends
/// no job of the organization begins or ends. Claims pass over it meanwhile.
pub async fn lock(tx: &Tx, organization: Uuid) -> Result<(), StoreError> {
    tx.run(
        "INSERT INTO turns (organization_id, queued, running, last_turn_at) VALUES ($1, 0, 0, 0) \
         ON CONFLICT (organization_id) DO UPDATE SET queued = turns.queued",
        [organization.into()],
    )
    .await?;
    Ok(())
}

/// Locks a job for a change of its state: its organization's turn row, then its own row.
pub async fn lock_job(tx: &Tx, job: Uuid) -> Result<Option<job::Model>, StoreError> {
    let sql = format!(
        "SELECT organization_id FROM turns \
         WHERE organization_id = (SELECT organization_id FROM jobs WHERE id = $1) {}",
        tx.engine().for_update()
    );
    tx.connection().query_one_raw(tx.engine().statement(sql, [job.into()])).await?;
    // Silently without a lock on SQLite, where the transaction is the lock.
    Ok(job::Entity::find_by_id(job).lock_exclusive().one(tx.connection()).await?)
}

/// Whether the organization of a locked turn row runs as many jobs as it may, as far as the last
/// claim knew.
pub async fn is_full(tx: &Tx, organization: Uuid) -> Result<bool, StoreError> {
    let sql = "SELECT running_most > 0 AND running >= running_most AS is_full FROM turns \
         WHERE organization_id = $1";
    let statement = tx.engine().statement(sql, [organization.into()]);
    let row = tx.connection().query_one_raw(statement).await?;
    Ok(row.map_or(Ok(false), |row| row.try_get("", "is_full"))?)
}

/// Changes the numbers of a locked turn row.
pub async fn shift(
    tx: &Tx,
    organization: Uuid,
    queued: i32,
    running: i32,
) -> Result<(), StoreError> {
    if (queued, running) != (0, 0) {
        tx.run(
            "UPDATE turns SET queued = queued + $1, running = running + $2 WHERE organization_id = $3",
            [queued.into(), running.into(), organization.into()],
        )
        .await?;
    }
    Ok(())
}
