//! Pages by id, newest first: stable while rows come and go, because ids sort by birth.

use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, ModelTrait, QueryFilter as _, QueryOrder as _,
    QuerySelect as _, Select,
};
use uuid::Uuid;

use crate::{Page, PageRequest, StoreError};

/// Reads one page of a query, and one row more to know whether there is a next.
pub async fn page<E, T>(
    query: Select<E>,
    id: E::Column,
    request: PageRequest,
    connection: &impl ConnectionTrait,
    read: impl Fn(&E::Model) -> Result<T, StoreError>,
) -> Result<Page<T>, StoreError>
where
    E: EntityTrait,
    E::Model: ModelTrait<Entity = E>,
{
    let limit = request.limit.max(1) as usize;
    let query = match request.after {
        Some(after) => query.filter(id.lt(after)),
        None => query,
    };
    let rows = query.order_by_desc(id).limit(limit as u64 + 1).all(connection).await?;
    let next = match rows.get(limit - 1) {
        Some(last) if rows.len() > limit => {
            let id: Option<Uuid> = last.get(id).unwrap();
            id
        }
        _ => None,
    };
    let items = rows.iter().take(limit).map(read).collect::<Result<_, _>>()?;
    Ok(Page { items, next })
}
