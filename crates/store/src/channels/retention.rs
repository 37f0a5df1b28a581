//! How channels lose their beginnings: prefixes alone, the floor raised with them. What is numbered
//! later goes on from the head, also after all of it is gone.

use std::time::Duration;

use outport_contract::stream::Channel;
use sea_orm::{ConnectionTrait as _, Value};
use uuid::Uuid;

use crate::{Engine, StoreError, Tx, instant};

/// The oldest events ($2 of them at most) that are at least as old as $1.
const OLDEST: &str = "SELECT id FROM stream_events WHERE time <= $1 ORDER BY time, id LIMIT $2";

/// One number, the same in every process: "purge" in hexadecimal ASCII.
const LOCK: i64 = 0x0070_7572_6765;

/// Deletes what channels have of the oldest events, `most` of them, that are older than
/// `retention`, and the events that no channel has any more. Returns how many rows of channels
/// went; none also while another process is at it. The caller commits at once.
pub async fn purge(tx: &mut Tx, retention: Duration, most: u32) -> Result<u64, StoreError> {
    if tx.engine() == Engine::Postgres {
        let sql = "SELECT pg_try_advisory_xact_lock($1) AS free";
        let row = tx.connection().query_one_raw(tx.engine().statement(sql, [LOCK.into()])).await?;
        if !row.map_or(Ok(false), |row| row.try_get("", "free"))? {
            return Ok(0);
        }
    }
    let before = tx.now().await? - instant::span(retention);
    let oldest: [Value; 2] = [before.into(), i64::from(most).into()];
    let mut floors = Vec::new();
    let mut purged = 0;
    for (channel, last) in prefixes(tx, &oldest).await? {
        let floor = last.min(young_from(tx, &channel, last, before).await? - 1);
        let sql = "DELETE FROM channel_events WHERE channel = $1 AND sequence <= $2";
        purged += tx.run(sql, [channel.as_str().into(), floor.into()]).await?;
        floors.push((channel, floor));
    }
    let nobodys = format!(
        "DELETE FROM stream_events WHERE id IN ({OLDEST}) AND NOT EXISTS \
         (SELECT 1 FROM channel_events p WHERE p.event_id = stream_events.id)"
    );
    tx.run(nobodys, oldest).await?;
    // Counters are the last rows that any transaction locks, in the order of the channels.
    for (channel, floor) in floors {
        let sql = "UPDATE channels SET floor = $2 WHERE channel = $1 AND floor < $2";
        tx.run(sql, [channel.into(), floor.into()]).await?;
    }
    Ok(purged)
}

/// The channels that have one of the oldest events, each with the last of them.
async fn prefixes(tx: &Tx, oldest: &[Value; 2]) -> Result<Vec<(String, i64)>, StoreError> {
    let sql = format!(
        "SELECT p.channel, MAX(p.sequence) AS last FROM ({OLDEST}) AS e \
         JOIN channel_events p ON p.event_id = e.id GROUP BY p.channel"
    );
    let rows =
        tx.connection().query_all_raw(tx.engine().statement(sql, oldest.iter().cloned())).await?;
    let mut prefixes = rows
        .iter()
        .map(|row| Ok((row.try_get("", "channel")?, row.try_get("", "last")?)))
        .collect::<Result<Vec<(String, i64)>, StoreError>>()?;
    prefixes.sort();
    Ok(prefixes)
}

/// The first number up to `last` whose event is to stay; a clock that was set back leaves such.
async fn young_from(tx: &Tx, channel: &str, last: i64, before: i64) -> Result<i64, StoreError> {
    let sql = "SELECT MIN(p.sequence) AS first FROM channel_events p \
         JOIN stream_events e ON e.id = p.event_id \
         WHERE p.channel = $1 AND p.sequence <= $2 AND e.time > $3";
    let values = [channel.into(), last.into(), before.into()];
    let row = tx.connection().query_one_raw(tx.engine().statement(sql, values)).await?;
    let first: Option<i64> = row.map(|row| row.try_get("", "first")).transpose()?.flatten();
    Ok(first.unwrap_or(i64::MAX))
}

/// Forgets the channels of jobs that are forgotten themselves: nobody can append to them again.
pub(crate) async fn forget(tx: &Tx, jobs: &[Uuid]) -> Result<(), StoreError> {
    let mut channels: Vec<_> = jobs.iter().map(|job| Channel::Job(*job).to_string()).collect();
    channels.sort();
    for table in ["channel_events", "channels"] {
        for channel in &channels {
            let sql = format!("DELETE FROM {table} WHERE channel = $1");
            tx.run(sql, [channel.as_str().into()]).await?;
        }
    }
    Ok(())
}
