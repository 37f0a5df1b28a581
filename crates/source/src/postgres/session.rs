//! Transactions, the settings that the printed values and our patience depend on, and the
//! snapshot.
//!
//! Two transactions follow each other: one looks at the catalogue, the other one locks the
//! tables, takes its snapshot and reads. Every setting is the transaction's own: behind a pooler
//! the next transaction may be another server process's, and nothing may be left to whoever gets
//! this one. What others may have left there, and what decides what a name means and whose
//! rights apply, is put back to what a fresh session has.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use outport_domain::failure::FailureCode;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use super::{
    connect::{DIRECT, Server},
    encoding::Encoding,
    failure::{Stage, failure},
};
use crate::{SourceError, compile::postgres::literal};

/// Whoever gave up must leave nothing behind in a queue for a lock. Servers on Linux know this
/// setting since version 14; elsewhere it may be refused.
const NOTICE_DEPARTURE: &str = "; SET LOCAL client_connection_check_interval = '1s'";

/// What is pinned in every transaction of one stream.
pub(super) struct Pins {
    zone: Tz,
    /// How the server stores texts, once it was asked.
    pub(super) encoding: Encoding,
    /// Whether the server can tell that its client is gone while it computes or waits.
    notices_departure: bool,
    /// The transactions' own name in the server's activity: who cancels finds them by it.
    pub(super) name: String,
}

impl Pins {
    pub(super) fn new(zone: Tz) -> Self {
        Self {
            zone,
            encoding: Encoding::Utf8,
            notices_departure: false,
            name: format!("outport {}", Uuid::new_v4().simple()),
        }
    }

    /// As statements. The time limits are lifted: who reads slowly because a store is slow must
    /// not be cut off.
    fn sql(&self, version: Option<u32>) -> Result<String, SourceError> {
        let mut sql = format!(
            "SET LOCAL application_name = {}; \
             SET LOCAL role TO DEFAULT; \
             SET LOCAL search_path TO DEFAULT; \
             SET LOCAL row_security TO DEFAULT; \
             SET LOCAL client_encoding = '{}'; \
             SET LOCAL standard_conforming_strings = on; \
             SET LOCAL TimeZone = {}; \
             SET LOCAL DateStyle = 'ISO, YMD'; \
             SET LOCAL IntervalStyle = 'postgres'; \
             SET LOCAL extra_float_digits = 3; \
             SET LOCAL bytea_output = 'hex'; \
             SET LOCAL lc_monetary = 'C'; \
             SET LOCAL statement_timeout = 0; \
             SET LOCAL idle_in_transaction_session_timeout = 0",
            literal(&self.name)?,
            self.encoding.of_client(),
            literal(self.zone.name())?
        );
        if version.is_some_and(|version| version >= 170_000) {
            sql.push_str("; SET LOCAL transaction_timeout = 0");
        }
        if self.notices_departure {
            sql.push_str(NOTICE_DEPARTURE);
        }
        Ok(sql)
    }
}

/// Statements without an answer.
pub(super) async fn run(connection: &mut PgConnection, sql: String) -> Result<(), SourceError> {
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(connection)
        .await
        .map_err(|error| failure(error, Stage::Query))?;
    Ok(())
}

/// Begins the transaction that looks at the catalogue; finds out how the server stores texts, and
/// whether there is a pooler before it.
pub(super) async fn begin_to_look(
    connection: &mut PgConnection,
    pins: &mut Pins,
    server: &Server,
) -> Result<(), SourceError> {
    let sql = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {}; \
         SELECT current_setting('{DIRECT}', true), current_setting('server_encoding'), \
                version() LIKE '%linux%' AND \
                current_setting('client_connection_check_interval', true) IS NOT NULL",
        pins.sql(connection.server_version_num())?
    );
    let read = async {
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut *connection).await?;
        let direct: Option<String> = row.try_get(0)?;
        Ok((direct, row.try_get::<String, _>(1)?, row.try_get(2)?))
    };
    let (direct, encoding, notices_departure) =
        read.await.map_err(|error| failure(error, Stage::Query))?;
    if direct.as_deref() != Some("on") {
        server.found_pooler();
    }
    pins.encoding = Encoding::of(&encoding);
    pins.notices_departure = notices_departure;
    let notice = if notices_departure { NOTICE_DEPARTURE } else { "" };
    let sql = format!("SET LOCAL client_encoding = '{}'{notice}", pins.encoding.of_client());
    run(connection, sql).await
}

/// Ends that transaction, begins the one that reads and locks the tables, given as SQL. None of
/// it takes the snapshot: a TRUNCATE between a snapshot and a lock would leave an empty table.
pub(super) async fn begin_to_read(
    connection: &mut PgConnection,
    pins: &Pins,
    tables: &[&str],
) -> Result<(), SourceError> {
    let mut sql = format!(
        "COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {}",
        pins.sql(connection.server_version_num())?
    );
    if !tables.is_empty() {
        sql = format!("{sql}; LOCK TABLE {} IN ACCESS SHARE MODE", tables.join(", "));
    }
    run(connection, sql).await
}

/// The transaction's first query: takes the snapshot, and puts the parameters where the next
/// one reads them. Answers with the moment of the snapshot.
pub(super) async fn take_snapshot(
    connection: &mut PgConnection,
    parameters: &[String],
) -> Result<DateTime<Utc>, SourceError> {
    let row = sqlx::query(
        "SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint, \
                count(set_config('outport.p' || n, value, true)) \
         FROM unnest($1::text[]) WITH ORDINALITY AS parameter(value, n)",
    )
    .bind(parameters)
    .persistent(false)
    .fetch_one(connection)
    .await
    .map_err(|error| failure(error, Stage::Query))?;
    let microseconds: i64 = row.try_get(0).map_err(|error| failure(error, Stage::Query))?;
    DateTime::from_timestamp_micros(microseconds).ok_or_else(|| {
        SourceError::new(FailureCode::SourceQueryFailed, "the source's clock is out of range")
    })
}

/// Makes the transaction's snapshot known to others, by a name.
pub(super) async fn export_snapshot(connection: &mut PgConnection) -> Result<String, SourceError> {
    let row = sqlx::raw_sql("SELECT pg_export_snapshot()")
        .fetch_one(connection)
        .await
        .map_err(|error| failure(error, Stage::Query))?;
    row.try_get(0).map_err(|error| failure(error, Stage::Query))
}

/// Begins a transaction that sees what another one sees, and takes the same lock.
///
/// Whoever waits to lock the table for writing waits for the other transaction; behind them this
/// one would wait for ever, and the other one for this. So it does not wait for locks.
pub(super) async fn join(
    connection: &mut PgConnection,
    pins: &Pins,
    snapshot: &str,
    table: &str,
) -> Result<(), SourceError> {
    let sql = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
         SET TRANSACTION SNAPSHOT {}; \
         {}; \
         SET LOCAL lock_timeout = '100ms'; \
         LOCK TABLE {table} IN ACCESS SHARE MODE NOWAIT",
        literal(snapshot)?,
        pins.sql(connection.server_version_num())?
    );
    run(connection, sql).await
}
