//! Pages by id, newest first: stable while rows come and go, because ids sort by birth.

use crate::{Page, PageRequest, StoreError};
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, ModelTrait, QueryFilter as _, QueryOrder as _,
    QuerySelect as _, Select, Value,
};

/// The rows of one page, and one row more to know whether there is a next.
pub fn rows<E: EntityTrait>(query: Select<E>, id: E::Column, request: PageRequest) -> Select<E> {
    let query = match request.after {
        Some(after) => query.filter(id.lt(after)),
        None => query,
    };
    query.order_by_desc(id).limit(u64::from(request.limit.max(1)) + 1)
}

/// Reads one page of a query.
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
    let rows = rows(query, id, request).all(connection).await?;
    let next = match rows.get(limit - 1).map(|last| last.get(id)) {
        Some(Value::Uuid(last)) if rows.len() > limit => last,
        _ => None,
    };
    let items = rows.iter().take(limit).map(read).collect::<Result<_, _>>()?;
    Ok(Page { items, next })
}
