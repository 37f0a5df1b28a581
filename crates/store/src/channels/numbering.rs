//! The end of a transaction that appended events.

use std::collections::BTreeMap;

use sea_orm::Value;
use serde_json::json;
use uuid::Uuid;

use super::NewEvent;
use crate::{Engine, StoreError, Tx};

/// Counters of one statement on `SQLite`, so that it has no more values than that takes.
const COUNTERS: usize = 500;

/// By channel: its organization, and what is appended to it, in order. Sorted, as channels are
/// locked: all of a transaction in one order, or two transactions wait for each other.
type Channels = BTreeMap<String, (Uuid, Vec<Uuid>)>;

/// A row of `channel_events` before its number is known.
struct Place<'a> {
    channel: &'a str,
    /// How many numbers of the same transaction come after it.
    behind: i64,
    event: Uuid,
}

/// Stores and numbers what was appended. Nothing may be locked after this.
pub(crate) async fn number(tx: &Tx, events: &[NewEvent]) -> Result<Vec<String>, StoreError> {
    let mut channels = Channels::new();
    for event in events {
        for channel in event.channels() {
            let of = channels.entry(channel.to_string());
            of.or_insert_with(|| (event.scope.organization, Vec::new())).1.push(event.id);
        }
    }
    if channels.is_empty() {
        return Ok(Vec::new());
    }
    match (tx.engine(), events) {
        (Engine::Postgres, [event]) => single(tx, &channels, event).await?,
        (Engine::Postgres, _) => at_once(tx, &channels, events).await?,
        (Engine::Sqlite, _) => one_by_one(tx, &channels, events).await?,
    }
    Ok(channels.into_keys().collect())
}

fn places(channels: &Channels) -> impl Iterator<Item = Place<'_>> {
    channels.iter().flat_map(|(channel, (_, events))| {
        let last = events.len() - 1;
        let place = move |(at, event): (usize, &Uuid)| Place {
            channel,
            behind: (last - at) as i64,
            event: *event,
        };
        events.iter().enumerate().map(place)
    })
}

fn scope_of(event: &NewEvent) -> Result<String, StoreError> {
    serde_json::to_string(&event.scope).map_err(|error| StoreError::Refused(error.into()))
}

/// A row of `stream_events` without its time.
fn values_of(event: &NewEvent) -> Result<[Value; 5], StoreError> {
    Ok([
        event.id.into(),
        event.scope.organization.into(),
        event.event_type.name.into(),
        scope_of(event)?.into(),
        event.data.as_str().into(),
    ])
}

const BUMP: &str = "ON CONFLICT (channel) DO UPDATE SET head = channels.head + excluded.head";

/// What most transactions append, without JSON to take apart: a quarter more of them a second
/// (`cargo bench -p outport-store --bench append`, `spread`).
async fn single(tx: &Tx, channels: &Channels, event: &NewEvent) -> Result<(), StoreError> {
    let tuples: Vec<_> = (6..).take(channels.len()).map(|at| format!("(${at}, $2, 1)")).collect();
    let sql = format!(
        "WITH bumped AS (\
           INSERT INTO channels (channel, organization_id, head) VALUES {} {BUMP} \
           RETURNING channel, head, {} AS at), \
         stored AS (\
           INSERT INTO stream_events (id, organization_id, event_type, scope, data, time) \
           SELECT $1, $2, $3, $4, $5, MAX(at) FROM bumped), \
         numbered AS (\
           INSERT INTO channel_events (channel, sequence, event_id) \
           SELECT channel, head, $1 FROM bumped) \
         SELECT COUNT(*) FROM bumped",
        tuples.join(", "),
        tx.engine().now()
    );
    let names = channels.keys().map(|name| name.as_str().into());
    tx.run(sql, values_of(event)?.into_iter().chain(names)).await?;
    Ok(())
}

/// One round trip, however many events there are: the counters are held for no longer than it
/// takes. The rows of the first INSERT are locked in the order of the channels, before anything
/// else is written. The values travel as JSON, so that the statement is always the same one and
/// is prepared once.
async fn at_once(tx: &Tx, channels: &Channels, events: &[NewEvent]) -> Result<(), StoreError> {
    let counters = channels.iter().map(|(channel, (organization, events))| {
        json!({"channel": channel, "organization_id": organization, "given": events.len()})
    });
    let rows = events.iter().map(|event| {
        Ok(json!({
            "id": event.id,
            "organization_id": event.scope.organization,
            "event_type": event.event_type.name,
            "scope": scope_of(event)?,
            "data": event.data,
        }))
    });
    let numbered = places(channels).map(
        |place| json!({"channel": place.channel, "behind": place.behind, "event_id": place.event}),
    );
    let values = [
        counters.collect::<serde_json::Value>(),
        rows.collect::<Result<serde_json::Value, StoreError>>()?,
        numbered.collect(),
    ];
    let sql = format!(
        "WITH bumped AS (\
           INSERT INTO channels (channel, organization_id, head) \
           SELECT channel, organization_id, given \
           FROM json_to_recordset($1::json) \
             AS c (channel text, organization_id uuid, given bigint) \
           ORDER BY channel COLLATE \"C\" {BUMP} \
           RETURNING channel, head, {} AS at), \
         stored AS (\
           INSERT INTO stream_events (id, organization_id, event_type, scope, data, time) \
           SELECT id, organization_id, event_type, scope, data, (SELECT MAX(at) FROM bumped) \
           FROM json_to_recordset($2::json) \
             AS e (id uuid, organization_id uuid, event_type text, scope text, data text)), \
         numbered AS (\
           INSERT INTO channel_events (channel, sequence, event_id) \
           SELECT p.channel, head - p.behind, p.event_id \
           FROM json_to_recordset($3::json) AS p (channel text, behind bigint, event_id uuid) \
           JOIN bumped ON bumped.channel = p.channel) \
         SELECT COUNT(*) FROM bumped",
        tx.engine().now()
    );
    tx.run(sql, values.map(|value| value.to_string().into())).await?;
    Ok(())
}

/// The transaction has the database to itself already.
async fn one_by_one(tx: &Tx, channels: &Channels, events: &[NewEvent]) -> Result<(), StoreError> {
    let counters: Vec<[Value; 3]> = channels
        .iter()
        .map(|(channel, (organization, events))| {
            [channel.as_str().into(), (*organization).into(), (events.len() as i64).into()]
        })
        .collect();
    for counters in counters.chunks(COUNTERS) {
        let tuple = |row: usize| format!("(${}, ${}, ${})", 3 * row + 1, 3 * row + 2, 3 * row + 3);
        let tuples = (0..counters.len()).map(tuple).collect::<Vec<_>>().join(", ");
        let sql =
            format!("INSERT INTO channels (channel, organization_id, head) VALUES {tuples} {BUMP}");
        tx.run(sql, counters.iter().flatten().cloned()).await?;
    }
    for event in events {
        let sql = format!(
            "INSERT INTO stream_events (id, organization_id, event_type, scope, data, time) \
             VALUES ($1, $2, $3, $4, $5, {})",
            tx.engine().now()
        );
        let values = values_of(event)?;
        tx.run(sql, values).await?;
    }
    for place in places(channels) {
        tx.run(
            "INSERT INTO channel_events (channel, sequence, event_id) \
             SELECT channel, head - $2, $3 FROM channels WHERE channel = $1",
            [place.channel.into(), place.behind.into(), place.event.into()],
        )
        .await?;
    }
    Ok(())
}
