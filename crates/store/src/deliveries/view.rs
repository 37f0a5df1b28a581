//! Deliveries as people see them, and the retry by hand.

use std::collections::HashMap;

use outport_domain::id::{DeliveryId, OrganizationId};
use sea_orm::{
    ColumnTrait as _, ConnectionTrait, EntityTrait as _, QueryFilter as _, Select,
    sea_query::{Expr, ExprTrait as _, Query},
};
use uuid::Uuid;

use super::{DeliveryFilter, DeliveryStatus, DeliveryView};
use crate::{
    Page, PageRequest, Store, StoreError, Tx,
    entity::{
        delivery::{Column, Entity, Model},
        event, receipt,
    },
    events,
    hints::Topic,
    instant, paging,
};

/// The words of these queries.
trait Words {
    fn of(self, organization: OrganizationId) -> Self;
    fn matching(self, filter: &DeliveryFilter) -> Self;
}

impl Words for Select<Entity> {
    fn of(self, organization: OrganizationId) -> Self {
        self.filter(Column::OrganizationId.eq(organization.uuid()))
    }

    fn matching(self, filter: &DeliveryFilter) -> Self {
        let mut query = self;
        if let Some(status) = filter.status {
            // Literally, for the partial indexes.
            query = query.filter(Expr::cust(format!("status = '{}'", status.name())));
        }
        if let Some(handler) = &filter.handler {
            query = query.filter(Column::Handler.eq(handler));
        }
        if let Some(job) = filter.job {
            // By way of its events: an index on jobs would be written three times a delivery.
            let events = Query::select()
                .column(event::Column::Id)
                .from(event::Entity)
                .and_where(event::Column::JobId.eq(job.uuid()))
                .take();
            query = query.filter(Expr::col(Column::EventId).in_subquery(events));
        }
        query
    }
}

/// Deliveries of this organization, newest first.
pub async fn list(
    store: &Store,
    organization: OrganizationId,
    filter: &DeliveryFilter,
    page: PageRequest,
) -> Result<Page<DeliveryView>, StoreError> {
    let query = Entity::find().of(organization).matching(filter);
    let page = paging::page(query, Column::Id, page, store.reader(), |row| Ok(row.clone())).await?;
    let items = views(page.items, store.reader()).await?;
    Ok(Page { items, next: page.next })
}

/// A delivery of this organization.
pub async fn find(
    store: &Store,
    organization: OrganizationId,
    delivery: DeliveryId,
) -> Result<Option<DeliveryView>, StoreError> {
    let row = Entity::find_by_id(delivery.uuid()).of(organization).one(store.reader()).await?;
    Ok(views(row.into_iter().collect(), store.reader()).await?.pop())
}

/// Makes a dead delivery due again at once with a fresh budget; others stay as they are.
/// `None` when there is no such delivery in this organization.
pub async fn retry(
    tx: &mut Tx,
    organization: OrganizationId,
    delivery: DeliveryId,
) -> Result<Option<DeliveryView>, StoreError> {
    let now = tx.now().await?;
    let revived = tx
        .run(
            "UPDATE deliveries SET status = 'PENDING', failures = 0, due_at = $1, finished_at = NULL \
             WHERE id = $2 AND organization_id = $3 AND status = 'DEAD'",
            [now.into(), delivery.uuid().into(), organization.uuid().into()],
        )
        .await?;
    if revived > 0 {
        tx.touch(Topic::Deliveries);
    }
    let row = Entity::find_by_id(delivery.uuid()).of(organization).one(tx.connection()).await?;
    Ok(views(row.into_iter().collect(), tx.connection()).await?.pop())
}

async fn views(
    rows: Vec<Model>,
    connection: &impl ConnectionTrait,
) -> Result<Vec<DeliveryView>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let events = event::Entity::find()
        .filter(event::Column::Id.is_in(rows.iter().map(|row| row.event_id)))
        .all(connection)
        .await?
        .into_iter()
        .map(|row| (row.id, row))
        .collect::<HashMap<_, _>>();
    let receipts = receipt::Entity::find()
        .filter(receipt::Column::EventId.is_in(rows.iter().map(|row| row.event_id)))
        .all(connection)
        .await?;
    rows.into_iter()
        // Purged between the two reads: as if it had been before the first.
        .filter(|row| events.contains_key(&row.event_id))
        .map(|row| {
            let receipt = receipt_of(&row, &receipts);
            view(row, &events, receipt)
        })
        .collect()
}

/// The receipt of a delivery. A handler without targets may have made it out to whom it found, as
/// a mail's address.
fn receipt_of(row: &Model, receipts: &[receipt::Model]) -> Option<String> {
    let of_it =
        |found: &&receipt::Model| found.event_id == row.event_id && found.handler == row.handler;
    let mut found = receipts.iter().filter(of_it);
    let exact = found.clone().find(|found| found.target == row.target);
    let found = exact.or_else(|| found.next().filter(|_| row.target.is_empty()));
    found.map(|found| found.receipt.clone())
}

fn view(
    row: Model,
    events: &HashMap<Uuid, event::Model>,
    receipt: Option<String>,
) -> Result<DeliveryView, StoreError> {
    let event = events.get(&row.event_id).cloned().ok_or_else(|| {
        StoreError::Corrupt("a delivery is of an event that is not there".to_owned())
    })?;
    Ok(DeliveryView {
        id: DeliveryId::from_uuid(row.id),
        event: events::read(event)?,
        handler: row.handler,
        target: row.target,
        status: DeliveryStatus::from_name(&row.status).ok_or_else(|| {
            StoreError::Corrupt("a delivery's status has an unknown name".to_owned())
        })?,
        attempts: row.run as u32,
        failures: row.failures as u32,
        due_at: instant::at(row.due_at)?,
        last_error: row.last_error,
        finished_at: instant::maybe_at(row.finished_at)?,
        receipt,
    })
}
