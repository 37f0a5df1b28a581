//! The end of a transaction that appended events.

use std::collections::BTreeMap;

use sea_orm::{ConnectionTrait as _, Value};
use uuid::Uuid;

use super::NewEvent;
use crate::{Engine, StoreError, Tx, hints::STREAM};

/// Rows of one statement, so that it has no more values than either engine takes.
const ROWS: usize = 500;

/// By channel: its organization, and what is appended to it, in order. Sorted, as channels are locked.
type Channels = BTreeMap<String, (Uuid, Vec<Uuid>)>;

/// A row of `channel_events` before its number is known.
struct Place<'a> {
    channel: &'a str,
    /// How many numbers of the same statement come after it.
    left: i64,
    event: Uuid,
}

/// Stores and numbers what was appended. Nothing may be locked after this.
pub(crate) async fn number(tx: &Tx, events: &[NewEvent]) -> Result<Vec<String>, StoreError> {
    let mut touched = Vec::new();
    for events in events.chunks(ROWS / 3) {
        let mut channels = Channels::new();
        for event in events {
            for channel in event.channels() {
                let of = channels.entry(channel.to_string());
                of.or_insert_with(|| (event.scope.organization, Vec::new())).1.push(event.id);
            }
        }
        let places = channels
            .iter()
            .flat_map(|(channel, (_, events))| {
                let left = |at: usize| (events.len() - 1 - at) as i64;
                events.iter().enumerate().map(move |(at, event)| Place {
                    channel,
                    left: left(at),
                    event: *event,
                })
            })
            .collect::<Vec<_>>();
        match tx.engine() {
            Engine::Postgres => at_once(tx, &channels, events, &places).await?,
            Engine::Sqlite => one_by_one(tx, &channels, events, &places).await?,
        }
        touched.extend(channels.into_keys());
    }
    Ok(touched)
}

/// `($1, $2), ($3, $4)` and so on, with the casts that the first row needs to tell its types.
fn tuples(from: usize, rows: usize, casts: &[&str]) -> String {
    let tuple = |row: usize| {
        let columns = casts.iter().enumerate().map(|(column, cast)| {
            let cast = if row == 0 { *cast } else { "" };
            format!("${}{cast}", from + row * casts.len() + column + 1)
        });
        format!("({})", columns.collect::<Vec<_>>().join(", "))
    };
    (0..rows).map(tuple).collect::<Vec<_>>().join(", ")
}

fn channel_values(channels: &Channels) -> impl Iterator<Item = Value> {
    channels.iter().flat_map(|(channel, (organization, events))| {
        [channel.as_str().into(), (*organization).into(), (events.len() as i64).into()]
    })
}

fn event_values(event: &NewEvent) -> Result<[Value; 5], StoreError> {
    let scope =
        serde_json::to_string(&event.scope).map_err(|error| StoreError::Refused(error.into()))?;
    Ok([
        event.id.into(),
        event.scope.organization.into(),
        event.event_type.name.into(),
        scope.into(),
        event.data.as_str().into(),
    ])
}

const BUMP: &str = "ON CONFLICT (channel) DO UPDATE SET head = channels.head + excluded.head";

/// One round trip: the counters are held for no longer than it takes. The rows of the first
/// INSERT are locked in the order of its values. Who waits for the channels is told.
async fn at_once(
    tx: &Tx,
    channels: &Channels,
    events: &[NewEvent],
    places: &[Place<'_>],
) -> Result<(), StoreError> {
    let now = tx.engine().now();
    let mut values: Vec<Value> = channel_values(channels).collect();
    let counters = tuples(0, channels.len(), &["::text", "::uuid", "::bigint"]);
    let rows =
        tuples(values.len(), events.len(), &["::uuid", "::uuid", "::text", "::text", "::text"]);
    for event in events {
        values.extend(event_values(event)?);
    }
    let numbered = tuples(values.len(), places.len(), &["::text", "::bigint", "::uuid"]);
    for place in places {
        values.extend([place.channel.into(), place.left.into(), place.event.into()]);
    }
    values.push(STREAM.into());
    let topic = values.len();
    let sql = format!(
        "WITH bumped AS (\
           INSERT INTO channels (channel, organization_id, head) VALUES {counters} {BUMP} \
           RETURNING channel, head, {now} AS at), \
         stored AS (\
           INSERT INTO stream_events (id, organization_id, event_type, scope, data, time) \
           SELECT id, organization_id, event_type, scope, data, (SELECT MAX(at) FROM bumped) \
           FROM (VALUES {rows}) AS e (id, organization_id, event_type, scope, data)), \
         numbered AS (\
           INSERT INTO channel_events (channel, sequence, event_id) \
           SELECT p.channel, head - p.behind, p.event_id \
           FROM (VALUES {numbered}) AS p (channel, behind, event_id) \
           JOIN bumped ON bumped.channel = p.channel) \
         SELECT pg_notify(${topic}, channel) FROM bumped"
    );
    tx.connection().query_all_raw(tx.engine().statement(sql, values)).await?;
    Ok(())
}

/// The transaction has the database to itself already.
async fn one_by_one(
    tx: &Tx,
    channels: &Channels,
    events: &[NewEvent],
    places: &[Place<'_>],
) -> Result<(), StoreError> {
    let counters = tuples(0, channels.len(), &["", "", ""]);
    let sql =
        format!("INSERT INTO channels (channel, organization_id, head) VALUES {counters} {BUMP}");
    tx.run(sql, channel_values(channels)).await?;
    for event in events {
        let sql = format!(
            "INSERT INTO stream_events (id, organization_id, event_type, scope, data, time) \
             VALUES ($1, $2, $3, $4, $5, {})",
            tx.engine().now()
        );
        tx.run(sql, event_values(event)?).await?;
    }
    for place in places {
        tx.run(
            "INSERT INTO channel_events (channel, sequence, event_id) \
             SELECT channel, head - $2, $3 FROM channels WHERE channel = $1",
            [place.channel.into(), place.left.into(), place.event.into()],
        )
        .await?;
    }
    Ok(())
}
