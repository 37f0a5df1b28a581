//! The generation of the store: numbers of another one mean nothing.
//!
//! On PostgreSQL it is bound to the server's identity, its timeline, the database, the table of
//! channels and the transaction that wrote it, so what was restored from a dump, is a copy of a
//! server that lives on, or has taken over from one, has an epoch of its own by itself: as soon as
//! a process starts on it, or as a running one is connected to it. A SQLite file cannot be told
//! from its copy: after a restore, say `outport epoch new`.

use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, TransactionTrait as _,
};
use uuid::Uuid;

use crate::{Engine, Store, StoreError, Tx};

/// A column of the epoch's row, the latest one; no row before the first.
macro_rules! latest {
    ($column:literal) => {
        concat!("SELECT ", $column, " FROM epochs ORDER BY created_at DESC, epoch DESC LIMIT 1")
    };
}

/// The timeline that is written, which names its files: the last checkpoint may be of the one
/// before for minutes after a standby took over.
const BINDING: &str = "concat_ws(':', system_identifier, \
     CASE WHEN pg_is_in_recovery() THEN timeline_id ELSE \
       ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END, \
     (SELECT oid FROM pg_database WHERE datname = current_database()), \
     'channels'::regclass::oid, ";

/// Who writes an epoch's row. The row knows it by itself as well (`xmin`): a restore writes the
/// row anew and changes the one, not the other.
const WRITER: &str = "pg_current_xact_id()::xid";
const WRITTEN_BY: &str = concat!("(", latest!("xmin"), ")");

/// The epoch, as an expression; NULL before the first.
pub(super) const LATEST: &str = concat!("(", latest!("epoch"), ")");

pub(super) fn no_epoch() -> StoreError {
    StoreError::Corrupt("there is no epoch".to_owned())
}

/// The epoch of this store.
pub async fn epoch(store: &Store) -> Result<String, StoreError> {
    let statement = store.engine().statement(format!("SELECT {LATEST} AS epoch"), []);
    let row = store.reader().query_one_raw(statement).await?;
    let epoch: Option<String> = row.map(|row| row.try_get("", "epoch")).transpose()?.flatten();
    epoch.ok_or_else(no_epoch)
}

/// Begins a new epoch: every cursor from before is told to resync.
pub async fn new_epoch(tx: &mut Tx) -> Result<String, StoreError> {
    let (connection, engine) = (tx.connection(), tx.engine());
    alone(connection, engine).await?;
    begin(connection, engine).await
}

/// Makes sure that the epoch is of this very database. Called at the start.
pub(crate) async fn check_epoch(tx: &Tx) -> Result<(), StoreError> {
    check(tx.connection(), tx.engine()).await
}

/// The same for who was connected anew to a `PostgreSQL`: it may be another one.
pub(crate) async fn recheck_epoch(pool: &DatabaseConnection) -> Result<(), StoreError> {
    let connection = pool.begin().await?;
    check(&connection, Engine::Postgres).await?;
    Ok(connection.commit().await?)
}

async fn check(connection: &DatabaseTransaction, engine: Engine) -> Result<(), StoreError> {
    alone(connection, engine).await?;
    let bound_to = binding(connection, engine, WRITTEN_BY).await?;
    let row = connection.query_one_raw(engine.statement(latest!("bound_to"), [])).await?;
    let known: Option<Option<String>> = row.map(|row| row.try_get("", "bound_to")).transpose()?;
    if known != Some(bound_to) {
        let epoch = begin(connection, engine).await?;
        tracing::info!(epoch, restored = known.is_some(), "a new epoch of the live stream begins");
    }
    Ok(())
}

/// Several processes notice at once: one of them begins the epoch. Who reads is not kept waiting.
async fn alone(connection: &DatabaseTransaction, engine: Engine) -> Result<(), StoreError> {
    if engine == Engine::Postgres {
        connection.execute_unprepared("LOCK TABLE epochs IN SHARE ROW EXCLUSIVE MODE").await?;
    }
    Ok(())
}

async fn binding(
    connection: &DatabaseTransaction,
    engine: Engine,
    writer: &str,
) -> Result<Option<String>, StoreError> {
    if engine == Engine::Sqlite {
        return Ok(None);
    }
    let sql = format!(
        "SELECT {BINDING}{writer}) AS bound_to FROM pg_control_system(), pg_control_checkpoint()"
    );
    let row = connection.query_one_raw(engine.statement(sql, [])).await?;
    Ok(row.map(|row| row.try_get("", "bound_to")).transpose()?)
}

async fn begin(connection: &DatabaseTransaction, engine: Engine) -> Result<String, StoreError> {
    let bound_to = binding(connection, engine, WRITER).await?;
    let epoch = Uuid::now_v7().simple().to_string();
    // After all others, whatever the clock of a restored server says.
    let sql = format!(
        "INSERT INTO epochs (epoch, bound_to, created_at) SELECT $1, $2, \
         CASE WHEN latest >= now THEN latest + 1 ELSE now END \
         FROM (SELECT COALESCE(MAX(created_at), 0) AS latest, {} AS now FROM epochs) AS clocks",
        engine.now()
    );
    let values = [epoch.as_str().into(), bound_to.into()];
    connection.execute_raw(engine.statement(sql, values)).await?;
    Ok(epoch)
}
