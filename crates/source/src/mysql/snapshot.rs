//! One moment: first the locks, then the read view.
//!
//! A metadata lock is taken by the first statement of a transaction that opens a table, and held
//! until the transaction ends: whoever alters, empties, renames or drops the table waits (MySQL
//! 8.4 Reference Manual, 10.11.4). The read view is made when the first row is looked for, not by
//! `START TRANSACTION` (17.7.2.3). Taken the other way round, as `WITH CONSISTENT SNAPSHOT` does,
//! a table that takes another's place in between has none of its rows in the view, and a column
//! that is altered in between is not of the type any more that it was found to have.

use chrono::{DateTime, NaiveDateTime, Utc};
use outport_domain::{
    failure::FailureCode,
    selection::{Relation, Selection},
};
use sqlx::{AssertSqlSafe, MySqlConnection};

use super::{
    failure::{Stage, failure},
    relation::{QUOTE, checked},
    session::{Thread, rows, text},
};
use crate::{SourceError, compile};

/// Begins the transaction and locks all that the selections read, in one statement: it opens
/// its tables before it plans, and planning may look into a table of one row.
pub(super) async fn lock(
    connection: &mut MySqlConnection,
    thread: &Thread,
    selections: &[&Selection],
) -> Result<(), SourceError> {
    rows(connection, "START TRANSACTION READ ONLY").await?;
    let part = |selection: &&Selection| {
        let relation = compile::relation_by(QUOTE, &selection.relation);
        format!("(SELECT 1 FROM {relation} AS r LIMIT 0)")
    };
    let parts: Vec<String> = selections.iter().map(part).collect();
    let sql = thread.marked(checked(&parts.join(" UNION ALL "))?);
    // Prepared, so that it is a single one.
    sqlx::query(AssertSqlSafe(sql))
        .execute(connection)
        .await
        .map(drop)
        .map_err(|error| failure(error, Stage::Query))
}

/// Looks for a row of a table, if there is any: what is committed until the moment that this
/// answers with is seen by all that the transaction reads, and hardly anything later.
pub(super) async fn take(
    connection: &mut MySqlConnection,
    thread: &Thread,
    table: Option<&Relation>,
) -> Result<DateTime<Utc>, SourceError> {
    let row = table.map_or_else(String::new, |table| {
        format!(", (SELECT 1 FROM {} LIMIT 1)", compile::relation_by(QUOTE, table))
    });
    // The server takes the time before it runs the statement.
    let sql = thread.marked(&format!("SELECT UTC_TIMESTAMP(6){row}"));
    let rows = rows(connection, sql).await?;
    let now = match rows.first() {
        Some(row) => text(row, 0)?,
        None => None,
    };
    moment(&now.unwrap_or_default())
}

/// A UTC time as the server writes it.
pub(super) fn moment(now: &str) -> Result<DateTime<Utc>, SourceError> {
    let now = NaiveDateTime::parse_from_str(now, "%Y-%m-%d %H:%M:%S%.f");
    now.map(|now| now.and_utc()).map_err(|_| {
        SourceError::new(FailureCode::SourceQueryFailed, "the source's clock is out of range")
    })
}
