//! Receipts: their unique key is what makes a handler idempotent.

use outport_domain::id::EventId;
use sea_orm::{EntityTrait as _, IntoActiveModel as _};

use crate::{
    Store, StoreError, Tx,
    entity::receipt::{Entity, Model},
};

/// The receipt of (event, handler, target), if there is one.
pub async fn receipt(
    store: &Store,
    event: EventId,
    handler: &str,
    target: &str,
) -> Result<Option<String>, StoreError> {
    let key = (event.uuid(), handler.to_owned(), target.to_owned());
    let row = Entity::find_by_id(key).one(store.reader()).await?;
    Ok(row.map(|row| row.receipt))
}

/// Records a receipt; the first one stays. Its unique key is what makes a handler idempotent.
pub async fn record_receipt(
    tx: &mut Tx,
    event: EventId,
    handler: &str,
    target: &str,
    receipt: &str,
) -> Result<(), StoreError> {
    let row = Model {
        event_id: event.uuid(),
        handler: handler.to_owned(),
        target: target.to_owned(),
        receipt: receipt.to_owned(),
        created_at: tx.now().await?,
    };
    Entity::insert(row.into_active_model())
        .on_conflict_do_nothing()
        .exec_without_returning(tx.connection())
        .await?;
    Ok(())
}
