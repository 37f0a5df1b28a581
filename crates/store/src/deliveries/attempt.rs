//! Attempts at deliveries: claim, renew, finish.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, Utc};
use outport_domain::id::DeliveryId;
use sea_orm::{
    ColumnTrait as _, ConnectionTrait as _, EntityTrait as _, QueryFilter as _, QueryOrder as _,
    QuerySelect as _, Select, Value,
    sea_query::{Expr, ExprTrait as _, LockBehavior, LockType},
};
use uuid::Uuid;

use super::{DeliveryClaim, DeliveryEnd, DeliveryFence, DeliveryStatus};
use crate::{
    Store, StoreError, Tx,
    entity::{
        delivery::{Column, Entity, Model},
        event,
    },
    events,
    hints::Topic,
    instant,
};

/// The words of delivery queries.
trait Words {
    fn unfinished(self) -> Self;
    fn of_handlers(self, handlers: &[&str]) -> Self;
    fn due(self, now: i64) -> Self;
    fn oldest_first(self) -> Self;
}

impl Words for Select<Entity> {
    fn unfinished(self) -> Self {
        // Literally, for the partial index.
        self.filter(Expr::cust("status IN ('PENDING', 'RUNNING')"))
    }

    fn of_handlers(self, handlers: &[&str]) -> Self {
        self.filter(Column::Handler.is_in(handlers.iter().copied()))
    }

    fn due(self, now: i64) -> Self {
        self.filter(Column::DueAt.lte(now))
    }

    fn oldest_first(self) -> Self {
        self.order_by_asc(Column::DueAt)
    }
}

/// Takes up to `most` due deliveries of one handler, oldest due first, those with an expired
/// lease included (an expired lease counts as a failure). The caller commits at once.
pub async fn claim(
    tx: &mut Tx,
    handler: &str,
    lease: Duration,
    most: u32,
) -> Result<Vec<DeliveryClaim>, StoreError> {
    let now = tx.now().await?;
    let rows = due(handler, now, most).all(tx.connection()).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let lease_token = Uuid::new_v4();
    let one_more_failure = Expr::cust("failures + CASE WHEN status = 'RUNNING' THEN 1 ELSE 0 END");
    Entity::update_many()
        .col_expr(Column::Failures, one_more_failure)
        .col_expr(Column::Status, Expr::value(DeliveryStatus::Running.name()))
        .col_expr(Column::Run, Expr::col(Column::Run).add(1))
        .col_expr(Column::LeaseToken, Expr::value(lease_token))
        .col_expr(Column::DueAt, Expr::value(now + instant::span(lease)))
        .filter(Column::Id.is_in(rows.iter().map(|row| row.id)))
        .exec(tx.connection())
        .await?;
    let events = event::Entity::find()
        .filter(event::Column::Id.is_in(rows.iter().map(|row| row.event_id)))
        .all(tx.connection())
        .await?
        .into_iter()
        .map(|row| (row.id, row))
        .collect::<HashMap<_, _>>();
    rows.into_iter().map(|row| taken(row, lease_token, &events)).collect()
}

/// What a claim chooses from, passing over what another claim has locked.
pub fn due(handler: &str, now: i64, most: u32) -> Select<Entity> {
    Entity::find()
        .of_handlers(&[handler])
        .unfinished()
        .due(now)
        .oldest_first()
        .limit(u64::from(most))
        .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
}

fn taken(
    before: Model,
    lease_token: Uuid,
    events: &HashMap<Uuid, event::Model>,
) -> Result<DeliveryClaim, StoreError> {
    let event = events.get(&before.event_id).cloned().ok_or_else(|| {
        StoreError::Corrupt("a delivery is of an event that is not there".to_owned())
    })?;
    let was_lost = before.status == DeliveryStatus::Running.name();
    Ok(DeliveryClaim {
        fence: DeliveryFence {
            delivery: DeliveryId::from_uuid(before.id),
            run: before.run as u32 + 1,
            lease_token,
        },
        event: events::read(event)?,
        handler: before.handler,
        target: before.target,
        failures: before.failures as u32 + u32::from(was_lost),
    })
}

/// When the next delivery of these handlers becomes due (an expiring lease included).
pub async fn next_due(
    store: &Store,
    handlers: &[&str],
) -> Result<Option<DateTime<Utc>>, StoreError> {
    let mut next = None;
    // One look-up in the index for each; together they would be a scan.
    for handler in handlers {
        let due_at: Option<i64> = Entity::find()
            .select_only()
            .column(Column::DueAt)
            .of_handlers(&[handler])
            .unfinished()
            .oldest_first()
            .limit(1)
            .into_tuple()
            .one(store.reader())
            .await?;
        next = match (next, due_at) {
            (Some(one), Some(other)) => Some(std::cmp::min::<i64>(one, other)),
            (one, other) => one.or(other),
        };
    }
    instant::maybe_at(next)
}

/// The part of a WHERE clause that every write of an attempt names.
const HELD: &str = "id = $1 AND run = $2 AND lease_token = $3 AND status = 'RUNNING'";

fn fence_values(fence: &DeliveryFence) -> [Value; 3] {
    [fence.delivery.uuid().into(), (fence.run as i32).into(), fence.lease_token.into()]
}

/// Renews a lease by run and token. `false`: it is lost.
pub async fn renew(
    store: &Store,
    fence: &DeliveryFence,
    lease: Duration,
) -> Result<bool, StoreError> {
    let sql = format!("UPDATE deliveries SET due_at = {} + $4 WHERE {HELD}", store.engine().now());
    let values = fence_values(fence).into_iter().chain([instant::span(lease).into()]);
    let renewed = store.writer().execute_raw(store.engine().statement(sql, values)).await?;
    Ok(renewed.rows_affected() > 0)
}

/// Ends an attempt, fenced. `false`: the lease was lost, nothing was written.
pub async fn finish(
    tx: &mut Tx,
    fence: &DeliveryFence,
    end: &DeliveryEnd,
) -> Result<bool, StoreError> {
    let now = tx.now().await?;
    let (set, values): (_, Vec<Value>) = match end {
        DeliveryEnd::Done => ("status = 'DONE', finished_at = $4", vec![now.into()]),
        DeliveryEnd::Retry { error, pause } => (
            "status = 'PENDING', failures = failures + 1, due_at = $4, last_error = $5",
            vec![(now + instant::span(*pause)).into(), error.clone().into()],
        ),
        DeliveryEnd::Dead { error } => (
            "status = 'DEAD', failures = failures + 1, finished_at = $4, last_error = $5",
            vec![now.into(), error.clone().into()],
        ),
        DeliveryEnd::HandedBack => ("status = 'PENDING', due_at = $4", vec![now.into()]),
    };
    let sql = format!("UPDATE deliveries SET lease_token = NULL, {set} WHERE {HELD}");
    let ended = tx.run(sql, fence_values(fence).into_iter().chain(values)).await? > 0;
    if ended && matches!(end, DeliveryEnd::Retry { .. } | DeliveryEnd::HandedBack) {
        tx.touch(Topic::Deliveries);
    }
    Ok(ended)
}
