//! Connections that organizations store. Their secrets come and go encrypted; who has the keys
//! opens them just before connecting.

use outport_domain::{
    connection::{Connection, ConnectionKind, TlsMode},
    id::{ConnectionId, OrganizationId},
};
use sea_orm::{
    ActiveModelTrait as _, ColumnTrait as _, ConnectionTrait, DbErr, EntityTrait as _,
    IntoActiveModel as _, PaginatorTrait as _, QueryFilter as _, QueryOrder as _, QuerySelect as _,
    Select, SqlErr,
};

use crate::{
    Store, StoreError, Tx,
    entity::connection::{Column, Entity, Model},
    instant,
};

/// What a change of a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is as asked.
    Done,
    /// Another connection of the organization has this name: nothing was written.
    NameTaken,
    /// There is no such connection.
    NotFound,
}

/// A page of connections, newest first.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Of this page.
    pub items: Vec<Connection>,
    /// On all pages.
    pub total: u64,
}

fn of(organization: OrganizationId) -> Select<Entity> {
    Entity::find()
        .filter(Column::OrganizationId.eq(organization.uuid()))
        .filter(Column::DeletedAt.is_null())
}

/// Stores a new connection. After [`Changed::NameTaken`] nothing more can be written in this
/// transaction.
pub async fn create(tx: &mut Tx, connection: &Connection) -> Result<Changed, StoreError> {
    if is_name_taken(tx, connection).await? {
        return Ok(Changed::NameTaken);
    }
    let inserted = Entity::insert(row(connection).into_active_model())
        .exec_without_returning(tx.connection())
        .await;
    Ok(unless_taken(inserted)?.map_or(Changed::NameTaken, |_| Changed::Done))
}

/// Between two that ask for a name at once the unique index has the last word: `None` for the
/// one that it refuses.
fn unless_taken<T>(written: Result<T, DbErr>) -> Result<Option<T>, StoreError> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(error) if matches!(error.sql_err(), Some(SqlErr::UniqueConstraintViolation(_))) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether another connection of the organization has this name.
async fn is_name_taken(tx: &Tx, connection: &Connection) -> Result<bool, StoreError> {
    let others = of(connection.organization)
        .filter(Column::Name.eq(&connection.name))
        .filter(Column::Id.ne(connection.id.uuid()));
    Ok(others.one(tx.connection()).await?.is_some())
}

/// A connection of this organization.
pub async fn find(
    store: &Store,
    organization: OrganizationId,
    id: ConnectionId,
) -> Result<Option<Connection>, StoreError> {
    let row = of(organization).filter(Column::Id.eq(id.uuid())).one(store.reader()).await?;
    row.map(read).transpose()
}

/// The connection of this organization that has this name.
pub async fn find_by_name(
    store: &Store,
    organization: OrganizationId,
    name: &str,
) -> Result<Option<Connection>, StoreError> {
    let row = of(organization).filter(Column::Name.eq(name)).one(store.reader()).await?;
    row.map(read).transpose()
}

/// The connections of this organization that have one of these names.
pub async fn find_by_names(
    store: &Store,
    organization: OrganizationId,
    names: &[&str],
) -> Result<Vec<Connection>, StoreError> {
    named(store.reader(), organization, names).await
}

/// The same by any connection to our own state.
pub(crate) async fn named(
    connection: &impl ConnectionTrait,
    organization: OrganizationId,
    names: &[&str],
) -> Result<Vec<Connection>, StoreError> {
    let asked = of(organization).filter(Column::Name.is_in(names.iter().copied()));
    let rows = asked.order_by_asc(Column::Id).all(connection).await?;
    rows.into_iter().map(read).collect()
}

/// A connection of this organization as it stands, for who changes or deletes it: nobody else does
/// before this transaction ends.
pub async fn hold(
    tx: &Tx,
    organization: OrganizationId,
    id: ConnectionId,
) -> Result<Option<Connection>, StoreError> {
    // Silently without a lock on SQLite, where the transaction is the lock.
    let held = of(organization).filter(Column::Id.eq(id.uuid())).lock_exclusive();
    held.one(tx.connection()).await?.map(read).transpose()
}

/// The connections of an organization, of a product's when one is named. Pages count from 1.
pub async fn list(
    store: &Store,
    organization: OrganizationId,
    product: Option<&str>,
    page: u32,
    limit: u32,
) -> Result<Listed, StoreError> {
    let mut query = of(organization);
    if let Some(product) = product {
        query = query.filter(Column::Product.eq(product));
    }
    let total = query.clone().count(store.reader()).await?;
    let before = u64::from(page.saturating_sub(1)) * u64::from(limit);
    let rows = query
        .order_by_desc(Column::Id)
        .offset(before)
        .limit(u64::from(limit))
        .all(store.reader())
        .await?;
    Ok(Listed { items: rows.into_iter().map(read).collect::<Result<_, _>>()?, total })
}

/// Writes a changed connection whole: as [`hold`] gave it, but for the change. After [`Changed::NameTaken`] nothing more can be written in this
/// transaction.
pub async fn update(tx: &mut Tx, connection: &Connection) -> Result<Changed, StoreError> {
    if is_name_taken(tx, connection).await? {
        return Ok(Changed::NameTaken);
    }
    let changed = Entity::update_many()
        .set(row(connection).into_active_model().reset_all())
        .filter(Column::Id.eq(connection.id.uuid()))
        .filter(Column::OrganizationId.eq(connection.organization.uuid()))
        .filter(Column::DeletedAt.is_null())
        .exec(tx.connection())
        .await;
    Ok(match unless_taken(changed)?.map(|changed| changed.rows_affected) {
        None => Changed::NameTaken,
        Some(0) => Changed::NotFound,
        Some(_) => Changed::Done,
    })
}

/// Deletes a connection, its secrets first of all; its name is free again. `false` when this
/// organization has no such connection.
pub async fn delete(
    tx: &mut Tx,
    organization: OrganizationId,
    id: ConnectionId,
) -> Result<bool, StoreError> {
    let now = tx.now().await?;
    let deleted = tx
        .run(
            "UPDATE connections SET deleted_at = $1, updated_at = $1, credentials = '' \
             WHERE id = $2 AND organization_id = $3 AND deleted_at IS NULL",
            [now.into(), id.uuid().into(), organization.uuid().into()],
        )
        .await?;
    Ok(deleted > 0)
}

fn row(connection: &Connection) -> Model {
    Model {
        id: connection.id.uuid(),
        organization_id: connection.organization.uuid(),
        name: connection.name.clone(),
        product: connection.product.clone(),
        kind: connection.kind.name().to_owned(),
        host: connection.host.clone(),
        port: connection.port.into(),
        database: connection.database.clone(),
        username: connection.username.clone(),
        schema: connection.schema.clone(),
        tls_mode: connection.tls_mode.name().to_owned(),
        tls_ca: connection.tls_ca.clone(),
        tls_certificate: connection.tls_certificate.clone(),
        credentials: connection.credentials.clone(),
        metadata: connection.metadata.clone(),
        created_at: instant::millis(connection.created_at),
        updated_at: instant::millis(connection.updated_at),
        deleted_at: None,
    }
}

fn read(row: Model) -> Result<Connection, StoreError> {
    let unreadable =
        |what: &str| StoreError::Corrupt(format!("a connection has an unknown {what}"));
    Ok(Connection {
        id: ConnectionId::from_uuid(row.id),
        organization: OrganizationId::from_uuid(row.organization_id),
        name: row.name,
        product: row.product,
        kind: ConnectionKind::from_name(&row.kind).ok_or_else(|| unreadable("kind"))?,
        host: row.host,
        port: u16::try_from(row.port).map_err(|_| unreadable("port"))?,
        database: row.database,
        username: row.username,
        schema: row.schema,
        tls_mode: TlsMode::from_name(&row.tls_mode).ok_or_else(|| unreadable("TLS mode"))?,
        tls_ca: row.tls_ca,
        tls_certificate: row.tls_certificate,
        credentials: row.credentials,
        metadata: row.metadata,
        created_at: instant::at(row.created_at)?,
        updated_at: instant::at(row.updated_at)?,
    })
}
