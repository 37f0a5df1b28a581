//! What a channel has: replayed from a cursor, or refused.

use chrono::{DateTime, Utc};
use outport_contract::stream::{Channel, StreamEvent};
use sea_orm::{ConnectionTrait as _, QueryResult};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    epoch::{LATEST, no_epoch},
    wire_id,
};
use crate::{Store, StoreError, instant};

/// Bytes of data after which a page takes no further event.
const PAGE_BYTES: i64 = 1024 * 1024;

/// A page of a channel, contiguous with the cursor that it was asked with.
#[derive(Clone, Debug)]
pub struct Page {
    /// The generation of the store.
    pub epoch: String,
    /// The highest sequence that was purged; 0 at first.
    pub floor: u64,
    /// The highest sequence that was given; 0 at first.
    pub head: u64,
    /// The database's clock.
    pub now: DateTime<Utc>,
    /// Ascending, the first of them right after the cursor.
    pub events: Vec<StreamEvent>,
}

/// What a cursor led to.
#[derive(Clone, Debug)]
pub enum Replayed {
    /// Events, or none when it is at the head.
    Page(Page),
    /// The cursor is below the floor, above the head, or of another epoch: its owner must load a
    /// snapshot. Where the channel is now, without events.
    Resync(Page),
}

/// The events after `after`, at most `limit` and about a mebibyte of data, but one at least. All of
/// it is read at one moment.
pub async fn replay(
    store: &Store,
    channel: &Channel,
    after: u64,
    of_epoch: Option<&str>,
    limit: u64,
) -> Result<Replayed, StoreError> {
    let now = store.engine().now();
    let sql = format!(
        "SELECT {LATEST} AS epoch, {now} AS now, c.head, c.floor, p.* \
         FROM (SELECT 1 AS one) o LEFT JOIN channels c ON c.channel = $1 LEFT JOIN \
         (SELECT sequence, id, event_type, scope, data, time FROM \
             (SELECT n.sequence, e.*, SUM(octet_length(e.data)) OVER (ORDER BY n.sequence) \
                 - octet_length(e.data) AS bytes_before \
              FROM (SELECT sequence, event_id FROM channel_events \
                  WHERE channel = $1 AND sequence > $2 ORDER BY sequence LIMIT $3) n \
              LEFT JOIN stream_events e ON e.id = n.event_id) s \
          WHERE bytes_before IS NULL OR bytes_before < $4) p ON TRUE \
         ORDER BY p.sequence"
    );
    let cursor = i64::try_from(after).unwrap_or(i64::MAX);
    let values =
        [channel.to_string().into(), cursor.into(), (limit as i64).into(), PAGE_BYTES.into()];
    let rows = store.reader().query_all_raw(store.engine().statement(sql, values)).await?;
    let mut page = match rows.first() {
        Some(row) => empty(row)?,
        None => return Err(StoreError::Corrupt("a query has no answer".to_owned())),
    };
    if after < page.floor || after > page.head || of_epoch.is_some_and(|epoch| epoch != page.epoch)
    {
        return Ok(Replayed::Resync(page));
    }
    for row in &rows {
        if let Some(event) = event(row)? {
            page.events.push(event);
        }
    }
    Ok(Replayed::Page(page))
}

/// Where the channel is, by the first row.
fn empty(row: &QueryResult) -> Result<Page, StoreError> {
    let epoch: Option<String> = row.try_get("", "epoch")?;
    Ok(Page {
        epoch: epoch.ok_or_else(no_epoch)?,
        floor: number_or_zero(row, "floor")?,
        head: number_or_zero(row, "head")?,
        now: instant::at(row.try_get("", "now")?)?,
        events: Vec::new(),
    })
}

/// The highest sequence of a channel; 0 at first.
pub async fn head(store: &Store, channel: &Channel) -> Result<u64, StoreError> {
    let sql = "SELECT head FROM channels WHERE channel = $1";
    let statement = store.engine().statement(sql, [channel.to_string().into()]);
    let row = store.reader().query_one_raw(statement).await?;
    row.map_or(Ok(0), |row| number_or_zero(&row, "head"))
}

/// Of a channel that has nothing yet, it is 0.
pub(super) fn number_or_zero(row: &QueryResult, column: &str) -> Result<u64, StoreError> {
    let number: Option<i64> = row.try_get("", column)?;
    let number = number.unwrap_or_default();
    u64::try_from(number).map_err(|_| StoreError::Corrupt(format!("{column} is {number}")))
}

fn event(row: &QueryResult) -> Result<Option<StreamEvent>, StoreError> {
    let Some(sequence) = row.try_get::<Option<i64>>("", "sequence")? else { return Ok(None) };
    let corrupt = |what: &str| StoreError::Corrupt(format!("the {what} of a stream event"));
    let id: Uuid = row.try_get("", "id")?;
    let scope: String = row.try_get("", "scope")?;
    let data: String = row.try_get("", "data")?;
    Ok(Some(StreamEvent {
        id: wire_id(id),
        stream: serde_json::from_str(&scope).map_err(|_| corrupt("scope"))?,
        sequence: Some(u64::try_from(sequence).map_err(|_| corrupt("sequence"))?),
        event_type: row.try_get("", "event_type")?,
        time: instant::at(row.try_get("", "time")?)?.into(),
        data: RawValue::from_string(data).map_err(|_| corrupt("data"))?,
    }))
}
