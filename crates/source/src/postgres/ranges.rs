//! Reading one table over several connections: the table is cut into ranges of pages, which the
//! connections read in turns and whose rows are put in order again.
//!
//! All connections see one exported snapshot, and each holds the table's lock itself before the
//! first row is read: none of them depends on another being open. The last range has no end. The
//! size of a table is what the file system says after the snapshot was taken, never `relpages`.
//!
//! Absent on purpose: anything but one plain table, and the right to lock it, that would be read
//! from its first page to its last anyway. Where an index, a view's query or the planner's own
//! workers serve better, or an order is asked for, one connection reads.

use futures::future::join_all;
use outport_domain::selection::{Relation, Selection};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{
    connect::Server,
    failure::{Stage, failure},
    session::{self, Pins},
};
use crate::{SourceError, compile};

/// Pages of one range. With pages of 8 KiB the rows of a range fit into what may wait of it.
const RANGE_PAGES: u64 = 256;

/// A table of fewer pages is read by one connection.
const FEWEST_PAGES: u64 = 8 * RANGE_PAGES;

/// `TID` range scans came with PostgreSQL 14.
const FIRST_VERSION: u32 = 140_000;

/// A statement, or its rows by ranges of pages.
#[derive(Clone)]
pub(super) struct Statement {
    sql: String,
    ranges: Option<u64>,
}

impl Statement {
    pub(super) const fn whole(sql: String) -> Self {
        Self { sql, ranges: None }
    }

    /// Whether it is read in parts.
    pub(super) const fn has_parts(&self) -> bool {
        self.ranges.is_some()
    }

    /// The statements of one reader out of so many.
    pub(super) fn share(&self, reader: usize, readers: usize) -> impl Iterator<Item = String> {
        let parts = self.ranges.unwrap_or(1);
        (0..parts).skip(reader).step_by(readers).map(move |part| self.part(part))
    }

    fn part(&self, part: u64) -> String {
        let Some(ranges) = self.ranges else { return self.sql.clone() };
        let mut sql = self.sql.clone();
        if part > 0 {
            sql = format!("{sql} AND r.ctid >= '({},0)'::tid", part * RANGE_PAGES);
        }
        if part + 1 < ranges {
            sql = format!("{sql} AND r.ctid < '({},0)'::tid", (part + 1) * RANGE_PAGES);
        }
        sql
    }
}

/// A table that may be read in ranges, within the transaction that will.
pub(super) struct Table {
    name: String,
    oid: i64,
    pub(super) statement: Statement,
}

/// Finds out whether the selection can be read in ranges, and is worth it. Afterwards the
/// transaction reads tables by their pages alone.
pub(super) async fn of(
    connection: &mut PgConnection,
    selection: &Selection,
    sql: &str,
) -> Result<Option<Table>, SourceError> {
    let name = compile::relation(&selection.relation);
    let version = connection.server_version_num().unwrap_or_default();
    let is_table = matches!(selection.relation, Relation::Table(_));
    if !is_table || !selection.order.is_empty() || version < FIRST_VERSION {
        return Ok(None);
    }
    let plain = sqlx::query(
        "SELECT c.oid::bigint, pg_relation_size(c.oid) / current_setting('block_size')::bigint \
         FROM pg_class c JOIN pg_am a ON a.oid = c.relam \
         WHERE c.oid = to_regclass($1) AND c.relkind = 'r' AND c.relpersistence <> 't' \
           AND a.amname = 'heap' AND has_table_privilege(c.oid, 'SELECT') \
           AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)",
    )
    .bind(name.as_str())
    .persistent(false)
    .fetch_optional(&mut *connection)
    .await
    .map_err(|error| failure(error, Stage::Query))?;
    let Some(plain) = plain else { return Ok(None) };
    let read = |index| plain.try_get::<i64, _>(index).map_err(|error| failure(error, Stage::Query));
    let (oid, pages) = (read(0)?, read(1)?.cast_unsigned());
    if pages < FEWEST_PAGES || scan(connection, sql).await? != "Seq Scan" {
        return Ok(None);
    }
    read_by_pages(connection).await?;
    // Each range is planned by itself, and a table may be given children while it is read.
    let sql = sql.replacen(&format!(" FROM {name} AS r "), &format!(" FROM ONLY {name} AS r "), 1);
    let statement = Statement { sql, ranges: Some(pages.div_ceil(RANGE_PAGES)) };
    let is_by_range = scan(connection, &statement.part(1)).await? == "Tid Range Scan";
    Ok(is_by_range.then_some(Table { name, oid, statement }))
}

/// The first step of the plan. Planning also locks what reading will, the table's indexes too.
async fn scan(connection: &mut PgConnection, sql: &str) -> Result<String, SourceError> {
    let row = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN (FORMAT JSON) {sql}")))
        .fetch_one(connection)
        .await
        .map_err(|error| failure(error, Stage::Query))?;
    let plan: Option<serde_json::Value> = row
        .try_get_raw(0)
        .map_err(|error| failure(error, Stage::Query))?
        .as_str()
        .ok()
        .and_then(|plan| serde_json::from_str(plan).ok());
    let step = plan.as_ref().and_then(|plan| plan.pointer("/0/Plan/Node Type"));
    Ok(step.and_then(serde_json::Value::as_str).unwrap_or_default().to_owned())
}

async fn read_by_pages(connection: &mut PgConnection) -> Result<(), SourceError> {
    let sql = "SET LOCAL enable_tidscan = on; SET LOCAL enable_indexscan = off; \
               SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off; \
               SET LOCAL max_parallel_workers_per_gather = 0";
    session::run(connection, sql.to_owned()).await
}

/// So many further connections that see what the given one sees. There may be fewer in the end:
/// the server may have none to spare, or somebody may be waiting to lock the table.
pub(super) async fn join(
    connection: &mut PgConnection,
    table: &Table,
    pins: &Pins,
    parameters: &[String],
    server: &Server,
    further: usize,
) -> Result<Vec<PgConnection>, SourceError> {
    let snapshot = session::export_snapshot(connection).await?;
    let joining = (0..further).map(|_| async {
        let one = one(&snapshot, table, pins, parameters, server);
        match tokio::time::timeout(server.connect_timeout, one).await {
            Ok(Ok(joined)) => Some(joined),
            Ok(Err(error)) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a connection less reads the table"
                );
                None
            }
            Err(_elapsed) => {
                tracing::debug!("a connection less reads the table: the server is slow to answer");
                None
            }
        }
    });
    Ok(join_all(joining).await.into_iter().flatten().collect())
}

async fn one(
    snapshot: &str,
    table: &Table,
    pins: &Pins,
    parameters: &[String],
    server: &Server,
) -> Result<PgConnection, SourceError> {
    let mut connection = server.connect().await?;
    session::join(&mut connection, pins, snapshot, &table.name).await?;
    session::take_snapshot(&mut connection, parameters).await?;
    read_by_pages(&mut connection).await?;
    scan(&mut connection, &table.statement.part(1)).await?;
    session::run(&mut connection, "SET LOCAL lock_timeout = 0".to_owned()).await?;
    let same = sqlx::query("SELECT to_regclass($1)::oid::bigint IS NOT DISTINCT FROM $2")
        .bind(table.name.as_str())
        .bind(table.oid)
        .persistent(false)
        .fetch_one(&mut connection)
        .await
        .and_then(|row| row.try_get::<bool, _>(0))
        .map_err(|error| failure(error, Stage::Query))?;
    if same { Ok(connection) } else { Err(SourceError::reader_lost()) }
}

#[cfg(test)]
mod tests {
    use super::Statement;

    #[test]
    fn every_page_is_in_one_range_and_the_last_has_no_end() {
        let statement = Statement { sql: "SELECT 1 WHERE TRUE".to_owned(), ranges: Some(3) };
        let of = |reader| statement.share(reader, 2).collect::<Vec<_>>();
        assert_eq!(
            of(0),
            [
                "SELECT 1 WHERE TRUE AND r.ctid < '(256,0)'::tid",
                "SELECT 1 WHERE TRUE AND r.ctid >= '(512,0)'::tid",
            ]
        );
        assert_eq!(
            of(1),
            ["SELECT 1 WHERE TRUE AND r.ctid >= '(256,0)'::tid AND r.ctid < '(512,0)'::tid"]
        );
    }

    #[test]
    fn what_is_not_cut_is_read_by_the_first() {
        let statement = Statement::whole("SELECT 1".to_owned());
        assert_eq!(statement.share(0, 1).collect::<Vec<_>>(), ["SELECT 1"]);
    }
}
