//! Whether a key was seen before, asked outside the transaction that decides what it means.

use outport_domain::caller::Caller;
use sea_orm::EntityTrait as _;

use crate::{Store, StoreError, entity::idempotency_key};

/// Whether this caller has used an `Idempotency-Key`, also one whose life has ended since.
pub async fn is_known(store: &Store, caller: &Caller, key: &str) -> Result<bool, StoreError> {
    let token = caller.token.map(outport_domain::id::Id::uuid).unwrap_or_default();
    let id = (caller.organization.uuid(), caller.user.uuid(), token, key.to_owned());
    Ok(idempotency_key::Entity::find_by_id(id).one(store.reader()).await?.is_some())
}
