//! What a channel has: replayed from a cursor, or refused.

use outport_contract::stream::{Channel, StreamEvent};
use sea_orm::{ConnectionTrait as _, QueryResult};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{epoch, wire_id};
use crate::{Store, StoreError, instant};

/// A page of a channel, contiguous with the cursor that it was asked with.
#[derive(Clone, Debug)]
pub struct Page {
    /// The generation of the store.
    pub epoch: String,
    /// The highest sequence that was purged; 0 at first.
    pub floor: u64,
    /// The highest sequence that was given; 0 at first.
    pub head: u64,
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

/// The events after `after`, at most `limit`. All of it is read at one moment.
pub async fn replay(
    store: &Store,
    channel: &Channel,
    after: u64,
    of_epoch: Option<&str>,
    limit: u64,
) -> Result<Replayed, StoreError> {
    let epoch = epoch(store).await?;
    let sql = "SELECT c.head, c.floor, p.sequence, e.id, e.event_type, e.scope, e.data, e.time \
         FROM channels c \
         LEFT JOIN (SELECT sequence, event_id FROM channel_events \
             WHERE channel = $1 AND sequence > $2 ORDER BY sequence LIMIT $3) p ON TRUE \
         LEFT JOIN stream_events e ON e.id = p.event_id \
         WHERE c.channel = $1 ORDER BY p.sequence";
    let cursor = i64::try_from(after).unwrap_or(i64::MAX);
    let values = [channel.to_string().into(), cursor.into(), (limit as i64).into()];
    let rows = store.reader().query_all_raw(store.engine().statement(sql, values)).await?;
    let (head, floor) = match rows.first() {
        Some(row) => (number(row, "head")?, number(row, "floor")?),
        None => (0, 0),
    };
    let mut page = Page { epoch, floor, head, events: Vec::new() };
    if after < floor || after > head || of_epoch.is_some_and(|epoch| epoch != page.epoch) {
        return Ok(Replayed::Resync(page));
    }
    for row in &rows {
        if let Some(event) = event(row)? {
            page.events.push(event);
        }
    }
    Ok(Replayed::Page(page))
}

/// The highest sequence of a channel; 0 at first.
pub async fn head(store: &Store, channel: &Channel) -> Result<u64, StoreError> {
    let sql = "SELECT head FROM channels WHERE channel = $1";
    let statement = store.engine().statement(sql, [channel.to_string().into()]);
    let row = store.reader().query_one_raw(statement).await?;
    row.map_or(Ok(0), |row| number(&row, "head"))
}

fn number(row: &QueryResult, column: &str) -> Result<u64, StoreError> {
    let number: i64 = row.try_get("", column)?;
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
