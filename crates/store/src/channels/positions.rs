//! Where many channels are, by one query.

use sea_orm::{ConnectionTrait as _, QueryResult, Statement};

use super::{
    epoch::{LATEST, no_epoch},
    replay::number_or_zero,
};
use crate::{Engine, Store, StoreError};

/// Where channels are, all at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The generation of the store.
    pub epoch: String,
    /// One for each channel that was asked for, in that order.
    pub channels: Vec<Position>,
}

/// Where a channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The highest sequence that was purged; 0 at first.
    pub floor: u64,
    /// The highest sequence that was given; 0 at first.
    pub head: u64,
}

/// Where these channels are.
pub async fn positions(store: &Store, channels: &[&str]) -> Result<Positions, StoreError> {
    let rows = store.reader().query_all_raw(query(store.engine(), channels)).await?;
    let epoch: Option<Option<String>> =
        rows.first().map(|row| row.try_get("", "epoch")).transpose()?;
    let epoch = epoch.flatten().ok_or_else(no_epoch)?;
    // Without channels there is a row nevertheless.
    let channels = rows.iter().take(channels.len()).map(position).collect::<Result<_, _>>()?;
    Ok(Positions { epoch, channels })
}

/// The names travel as one value: there may be more of them than a statement takes values.
pub(crate) fn query(engine: Engine, channels: &[&str]) -> Statement {
    let names = serde_json::Value::from(channels).to_string();
    let asked = match engine {
        Engine::Postgres => {
            "SELECT value, place \
             FROM json_array_elements_text($1::json) WITH ORDINALITY AS a (value, place)"
        }
        Engine::Sqlite => "SELECT value, key AS place FROM json_each($1)",
    };
    let sql = format!(
        "SELECT {LATEST} AS epoch, a.place, c.floor, c.head FROM (SELECT 1 AS one) o \
         LEFT JOIN ({asked}) a ON TRUE LEFT JOIN channels c ON c.channel = a.value \
         ORDER BY a.place"
    );
    engine.statement(sql, [names.into()])
}

fn position(row: &QueryResult) -> Result<Position, StoreError> {
    Ok(Position { floor: number_or_zero(row, "floor")?, head: number_or_zero(row, "head")? })
}
