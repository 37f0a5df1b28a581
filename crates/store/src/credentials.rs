//! The encrypted secrets of all stored connections, for who encrypts them with another key.

use outport_domain::id::ConnectionId;
use sea_orm::{
    ColumnTrait as _, EntityTrait as _, QueryFilter as _, QueryOrder as _, QuerySelect as _,
};

use crate::{
    Store, StoreError, Tx,
    entity::connection::{Column, Entity},
};

/// Secrets and the connection that they belong to, by its id, at most so many after this one. Of
/// every organization.
pub async fn page(
    store: &Store,
    after: Option<ConnectionId>,
    limit: u64,
) -> Result<Vec<(ConnectionId, String)>, StoreError> {
    let mut query = Entity::find().filter(Column::DeletedAt.is_null());
    if let Some(after) = after {
        query = query.filter(Column::Id.gt(after.uuid()));
    }
    let rows = query.order_by_asc(Column::Id).limit(limit).all(store.reader()).await?;
    let pair =
        |row: crate::entity::connection::Model| (ConnectionId::from_uuid(row.id), row.credentials);
    Ok(rows.into_iter().map(pair).collect())
}

/// Replaces secrets by the same in another form; not if somebody changed them meanwhile.
pub async fn replace(
    tx: &mut Tx,
    id: ConnectionId,
    before: &str,
    after: &str,
) -> Result<(), StoreError> {
    let sql = "UPDATE connections SET credentials = $1 WHERE id = $2 AND credentials = $3";
    tx.run(sql, [after.into(), id.uuid().into(), before.into()]).await?;
    Ok(())
}
