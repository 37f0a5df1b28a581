//! The generation of the store: numbers of another one mean nothing.
//!
//! On PostgreSQL it is bound to the server's identity, its timeline, the database and the table
//! of channels, so what was restored from a dump, or is a copy of a server that lives on, has an
//! epoch of its own by itself. A SQLite file cannot be told from its copy: after a restore, say
//! `outport epoch new`.

use sea_orm::ConnectionTrait as _;
use uuid::Uuid;

use crate::{Engine, Store, StoreError, Tx};

const BINDING: &str = "SELECT concat_ws(':', system_identifier, timeline_id, \
     (SELECT oid FROM pg_database WHERE datname = current_database()), \
     'channels'::regclass::oid) AS bound_to \
     FROM pg_control_system(), pg_control_checkpoint()";

/// The epoch of this store.
pub async fn epoch(store: &Store) -> Result<String, StoreError> {
    let known = "SELECT epoch FROM epochs ORDER BY created_at DESC, epoch DESC LIMIT 1";
    let statement = store.engine().statement(known, []);
    match store.reader().query_one_raw(statement).await? {
        Some(row) => Ok(row.try_get("", "epoch")?),
        None => Err(StoreError::Corrupt("there is no epoch".to_owned())),
    }
}

/// Begins a new epoch: every cursor from before is told to resync.
pub async fn new_epoch(tx: &mut Tx) -> Result<String, StoreError> {
    let bound_to = binding(tx).await?;
    begin(tx, bound_to).await
}

/// Makes sure that the epoch is of this very database. Called at the start.
pub(crate) async fn check_epoch(tx: &mut Tx) -> Result<(), StoreError> {
    let bound_to = binding(tx).await?;
    let latest = "SELECT bound_to FROM epochs ORDER BY created_at DESC, epoch DESC LIMIT 1";
    let row = tx.connection().query_one_raw(tx.engine().statement(latest, [])).await?;
    let known: Option<Option<String>> = row.map(|row| row.try_get("", "bound_to")).transpose()?;
    if known != Some(bound_to.clone()) {
        let epoch = begin(tx, bound_to).await?;
        tracing::info!(epoch, restored = known.is_some(), "a new epoch of the live stream begins");
    }
    Ok(())
}

async fn binding(tx: &Tx) -> Result<Option<String>, StoreError> {
    if tx.engine() == Engine::Sqlite {
        return Ok(None);
    }
    let row = tx.connection().query_one_raw(tx.engine().statement(BINDING, [])).await?;
    Ok(row.map(|row| row.try_get("", "bound_to")).transpose()?)
}

async fn begin(tx: &mut Tx, bound_to: Option<String>) -> Result<String, StoreError> {
    let epoch = Uuid::now_v7().simple().to_string();
    let now = tx.now().await?;
    tx.run(
        "INSERT INTO epochs (epoch, bound_to, created_at) VALUES ($1, $2, $3)",
        [epoch.as_str().into(), bound_to.into(), now.into()],
    )
    .await?;
    Ok(epoch)
}
