//! Windows of deliveries: many renewed, or ended, by one statement.
//!
//! On `SQLite` a statement is no round trip, so there a window is written row by row.

use std::{collections::HashSet, time::Duration};

use chrono::{DateTime, Utc};
use outport_domain::id::{DeliveryId, EventId};
use sea_orm::{ConnectionTrait as _, EntityTrait as _, IntoActiveModel as _};
use serde::Serialize;
use uuid::Uuid;

use super::{DeliveryEnd, DeliveryFence, DeliveryStatus, NOT_DONE, attempt};
use crate::{Engine, Store, StoreError, Tx, entity::receipt, hints::Topic, instant};

/// A fence, as a row that `PostgreSQL` makes of JSON.
#[derive(Serialize)]
struct Held {
    id: Uuid,
    run: u32,
    lease: Uuid,
}

impl From<&DeliveryFence> for Held {
    fn from(fence: &DeliveryFence) -> Self {
        Self { id: fence.delivery.uuid(), run: fence.run, lease: fence.lease_token }
    }
}

/// An end under its fence, likewise.
#[derive(Serialize)]
struct Ended<'a> {
    #[serde(flatten)]
    held: Held,
    status: &'static str,
    failed: i32,
    due_at: Option<i64>,
    error: Option<&'a str>,
    finished_at: Option<i64>,
}

impl<'a> Ended<'a> {
    fn new(fence: &DeliveryFence, end: &'a DeliveryEnd, now: i64) -> Self {
        let held = Held::from(fence);
        let pending = |failed, pause, error| Self {
            held: Held::from(fence),
            status: DeliveryStatus::Pending.name(),
            failed,
            due_at: Some(now + instant::span(pause)),
            error,
            finished_at: None,
        };
        let finished = |status: DeliveryStatus, failed, error| Self {
            held,
            status: status.name(),
            failed,
            due_at: None,
            error,
            finished_at: Some(now),
        };
        match end {
            DeliveryEnd::Done => finished(DeliveryStatus::Done, 0, None),
            DeliveryEnd::Dead { error } => finished(DeliveryStatus::Dead, 1, Some(error)),
            DeliveryEnd::Retry { error, pause } => pending(1, *pause, Some(error)),
            DeliveryEnd::HandedBack => pending(0, Duration::ZERO, None),
        }
    }
}

fn json(rows: &[impl Serialize]) -> Result<String, StoreError> {
    serde_json::to_string(rows).map_err(|error| StoreError::Refused(error.into()))
}

/// Renews the leases of a window by run and token. Returns how many of them are still held.
pub async fn renew_all(
    store: &Store,
    fences: &[DeliveryFence],
    lease: Duration,
) -> Result<u64, StoreError> {
    if store.engine() == Engine::Sqlite {
        let mut held = 0;
        for fence in fences {
            held += u64::from(attempt::renew(store, fence, lease).await?);
        }
        return Ok(held);
    }
    let sql = format!(
        "UPDATE deliveries SET due_at = {} + $2 \
         FROM json_to_recordset($1::json) AS held (id uuid, run int, lease uuid) \
         WHERE deliveries.id = held.id AND deliveries.run = held.run \
         AND lease_token = held.lease AND status = 'RUNNING'",
        store.engine().now()
    );
    let rows = json(&fences.iter().map(Held::from).collect::<Vec<_>>())?;
    let values = [rows.into(), instant::span(lease).into()];
    let renewed = store.writer().execute_raw(store.engine().statement(sql, values)).await?;
    Ok(renewed.rows_affected())
}

/// Ends the attempts of a window, each under its fence. Returns those whose lease was still held;
/// nothing is written for the others.
pub async fn finish_all(
    tx: &mut Tx,
    ends: &[(DeliveryFence, DeliveryEnd)],
) -> Result<HashSet<DeliveryId>, StoreError> {
    if tx.engine() == Engine::Sqlite {
        let mut written = HashSet::new();
        for (fence, end) in ends {
            if attempt::finish(tx, fence, end).await? {
                written.insert(fence.delivery);
            }
        }
        return Ok(written);
    }
    let now = tx.now().await?;
    let rows: Vec<_> = ends.iter().map(|(fence, end)| Ended::new(fence, end, now)).collect();
    let statement = tx.engine().statement(
        "UPDATE deliveries SET lease_token = NULL, status = ended.status, \
         failures = failures + ended.failed, due_at = COALESCE(ended.due_at, deliveries.due_at), \
         last_error = COALESCE(ended.error, last_error), finished_at = ended.finished_at \
         FROM json_to_recordset($1::json) AS ended (id uuid, run int, lease uuid, status text, \
              failed int, due_at bigint, error text, finished_at bigint) \
         WHERE deliveries.id = ended.id AND deliveries.run = ended.run \
         AND lease_token = ended.lease AND deliveries.status = 'RUNNING' RETURNING deliveries.id",
        [json(&rows)?.into()],
    );
    let written = tx
        .connection()
        .query_all_raw(statement)
        .await?
        .iter()
        .map(|row| Ok(DeliveryId::from_uuid(row.try_get("", "id")?)))
        .collect::<Result<HashSet<_>, StoreError>>()?;
    let waits =
        |end: &DeliveryEnd| matches!(end, DeliveryEnd::Retry { .. } | DeliveryEnd::HandedBack);
    if ends.iter().any(|(fence, end)| waits(end) && written.contains(&fence.delivery)) {
        tx.touch(Topic::Deliveries);
    }
    Ok(written)
}

/// Records the receipts of a handler without targets; of each event the first one stays.
pub async fn record_receipts(
    tx: &mut Tx,
    handler: &str,
    receipts: &[(EventId, &str)],
) -> Result<(), StoreError> {
    if receipts.is_empty() {
        return Ok(());
    }
    let now = tx.now().await?;
    let rows = receipts.iter().map(|(event, receipt)| {
        receipt::Model {
            event_id: event.uuid(),
            handler: handler.to_owned(),
            target: String::new(),
            receipt: (*receipt).to_owned(),
            created_at: now,
        }
        .into_active_model()
    });
    receipt::Entity::insert_many(rows)
        .on_conflict_do_nothing()
        .exec_without_returning(tx.connection())
        .await?;
    Ok(())
}

/// When the oldest event was committed whose delivery by this handler is not done.
pub async fn oldest_unfinished(
    store: &Store,
    handler: &str,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    let sql = format!(
        "SELECT MIN(events.created_at) AS oldest FROM {NOT_DONE} \
         JOIN events ON events.id = event_id WHERE handler = $1"
    );
    let statement = store.engine().statement(sql, [handler.into()]);
    let row = store.reader().query_one_raw(statement).await?;
    instant::maybe_at(row.map(|row| row.try_get("", "oldest")).transpose()?.flatten())
}
