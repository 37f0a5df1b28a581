//! Numbers over all organizations, each read from few rows however long the queues are.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sea_orm::{ConnectionTrait as _, Value};

use super::Gauges;
use crate::{
    Store, StoreError,
    deliveries::{DeliveryStatus, NOT_DONE},
    instant,
};

/// When the next pending job becomes due, for a timed sleep after a claim that found nothing;
/// `None` when none waits for its time. Jobs that are due already do not count: what they wait
/// for (a free place under their organization's cap) is announced by a hint.
pub async fn next_due(store: &Store) -> Result<Option<DateTime<Utc>>, StoreError> {
    let next = "SELECT MIN((SELECT due_at FROM jobs WHERE organization_id = t.organization_id \
         AND status = 'PENDING' AND due_at > $1 ORDER BY due_at LIMIT 1)) AS number \
         FROM turns t WHERE queued > 0";
    let now = now(store).await?;
    instant::maybe_at(number(store, next, [now.into()]).await?)
}

/// Reads the numbers for the metrics page.
pub async fn gauges(store: &Store) -> Result<Gauges, StoreError> {
    let oldest_queued = "SELECT MIN((SELECT due_at FROM jobs \
         WHERE organization_id = t.organization_id AND status = 'PENDING' ORDER BY due_at LIMIT 1)) \
         AS number FROM turns t WHERE queued > 0";
    let oldest_delivery = format!("SELECT MIN(created_at) AS number FROM {NOT_DONE}");
    let sum = |column: &str| {
        format!("SELECT CAST(COALESCE(SUM({column}), 0) AS BIGINT) AS number FROM turns")
    };
    let now = now(store).await?;
    let age = |since: Option<i64>| {
        let age = now - since.filter(|since| *since <= now)?;
        Some(Duration::from_millis(age as u64))
    };
    Ok(Gauges {
        queued: number(store, &sum("queued"), []).await?.unwrap_or_default() as u64,
        running: number(store, &sum("running"), []).await?.unwrap_or_default() as u64,
        oldest_queued: age(number(store, oldest_queued, []).await?),
        deliveries: deliveries(store).await?,
        oldest_delivery: age(number(store, &oldest_delivery, []).await?),
    })
}

async fn deliveries(store: &Store) -> Result<Vec<(String, &'static str, u64)>, StoreError> {
    let sql = format!(
        "SELECT handler, status, COUNT(*) AS number FROM {NOT_DONE} \
         GROUP BY handler, status ORDER BY handler, status"
    );
    let statement = store.engine().statement(sql, []);
    let rows = store.reader().query_all_raw(statement).await?;
    rows.iter()
        .map(|row| {
            let status: String = row.try_get("", "status")?;
            let status = DeliveryStatus::from_name(&status).ok_or_else(|| {
                StoreError::Corrupt("a delivery's status has an unknown name".to_owned())
            })?;
            let count: i64 = row.try_get("", "number")?;
            Ok((row.try_get("", "handler")?, status.name(), count as u64))
        })
        .collect()
}

async fn now(store: &Store) -> Result<i64, StoreError> {
    let sql = format!("SELECT {} AS number", store.engine().now());
    number(store, &sql, [])
        .await?
        .ok_or_else(|| StoreError::Corrupt("the database has no clock".to_owned()))
}

async fn number(
    store: &Store,
    sql: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Option<i64>, StoreError> {
    let row = store.reader().query_one_raw(store.engine().statement(sql, values)).await?;
    Ok(row.map(|row| row.try_get("", "number")).transpose()?.flatten())
}
