//! Connecting, the settings that the printed values and our patience depend on, the snapshot,
//! and the end of a query that is not wanted any more.

use std::{str::FromStr, time::Duration};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use outport_domain::failure::FailureCode;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row,
    postgres::{PgConnectOptions, PgSslMode},
};

use super::failure::{Stage, failure};
use crate::{SourceError, compile::postgres::literal};

/// Where a server is and how to get in. Holds credentials, so it has no `Debug`.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) url: String,
    pub(super) connect_timeout: Duration,
}

/// The part of a URL's query that says how many connections may read one table at once.
const CONNECTIONS: &str = "connections";

/// Takes our own part out of a URL. What is no number stays in, and is refused as a whole.
pub(super) fn without_connections(url: &str) -> (String, Option<usize>) {
    let Some((front, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let mut connections = None;
    let rest: Vec<&str> = query
        .split('&')
        .filter(|part| match part.split_once('=') {
            Some((CONNECTIONS, number)) => {
                connections = number.parse().ok().or(connections);
                number.parse::<usize>().is_err()
            }
            _ => true,
        })
        .collect();
    let url =
        if rest.is_empty() { front.to_owned() } else { format!("{front}?{}", rest.join("&")) };
    (url, connections)
}

impl Server {
    pub(super) async fn connect(&self) -> Result<PgConnection, SourceError> {
        let options = PgConnectOptions::from_str(&self.url)
            .map_err(|error| {
                // The cause is told apart from the message: it may quote the URL.
                SourceError::new(
                    FailureCode::SourceUnreachable,
                    "the connection's URL is not valid",
                )
                .abandoned()
                .with_cause(error)
            })?
            .statement_cache_capacity(0)
            .application_name("outport")
            // Statements hold what filters ask for.
            .disable_statement_logging();
        let options = without_tls_at_home(options);
        match tokio::time::timeout(self.connect_timeout, PgConnection::connect_with(&options)).await
        {
            Ok(connected) => connected.map_err(|error| failure(error, Stage::Connect)),
            Err(_) => Err(SourceError::new(
                FailureCode::SourceUnreachable,
                format!(
                    "the source database did not answer within {} s",
                    self.connect_timeout.as_secs()
                ),
            )),
        }
    }
}

/// On the machine's own loopback TLS protects no wire, and with it sqlx 0.9.0, which leaves
/// Nagle's algorithm on (transact-rs/sqlx#4335), takes 90 ms to connect. A mode that asks for TLS
/// is kept.
fn without_tls_at_home(options: PgConnectOptions) -> PgConnectOptions {
    let home = ["localhost", "127.0.0.1", "::1"].contains(&options.get_host());
    if home && matches!(options.get_ssl_mode(), PgSslMode::Prefer | PgSslMode::Allow) {
        options.ssl_mode(PgSslMode::Disable)
    } else {
        options
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

/// Pins all that decides how values are printed, and lifts the time limits: who reads slowly
/// because a store is slow must not be cut off.
pub(super) async fn pin(connection: &mut PgConnection, zone: Tz) -> Result<(), SourceError> {
    let mut sql = format!(
        "SET client_encoding = 'UTF8'; \
         SET standard_conforming_strings = on; \
         SET TimeZone = {}; \
         SET DateStyle = 'ISO, YMD'; \
         SET IntervalStyle = 'postgres'; \
         SET extra_float_digits = 3; \
         SET bytea_output = 'hex'; \
         SET lc_monetary = 'C'; \
         SET statement_timeout = 0; \
         SET idle_in_transaction_session_timeout = 0;",
        literal(zone.name())?
    );
    if connection.server_version_num().is_some_and(|version| version >= 170_000) {
        sql.push_str(" SET transaction_timeout = 0;");
    }
    run(connection, sql).await
}

/// Begins the transaction and locks the tables, given as SQL. Neither takes the snapshot: a
/// TRUNCATE between a snapshot and a lock would leave an empty table.
pub(super) async fn begin(
    connection: &mut PgConnection,
    tables: &[String],
) -> Result<(), SourceError> {
    run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".to_owned()).await?;
    if tables.is_empty() {
        return Ok(());
    }
    run(connection, format!("LOCK TABLE {} IN ACCESS SHARE MODE", tables.join(", "))).await
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
    snapshot: &str,
    table: &str,
) -> Result<(), SourceError> {
    run(
        connection,
        format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
             SET TRANSACTION SNAPSHOT {}; \
             SET LOCAL lock_timeout = '100ms'; \
             LOCK TABLE {table} IN ACCESS SHARE MODE NOWAIT",
            literal(snapshot)?
        ),
    )
    .await
}

/// The server processes behind the connections of one stream. Until they
/// [are done](Backends::are_done), dropping this asks the server to cancel whatever they are doing.
pub(super) struct Backends {
    server: Server,
    processes: Vec<Process>,
}

/// A server process: its id, and since when in microseconds since 1970. An id alone may be
/// another process by the time of a cancel.
#[derive(Clone, Copy)]
pub(super) struct Process {
    id: i32,
    started: i64,
}

impl Process {
    pub(super) async fn of(connection: &mut PgConnection) -> Result<Self, SourceError> {
        let read = async {
            let row = sqlx::query(
                "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint \
                 FROM pg_stat_activity WHERE pid = pg_backend_pid()",
            )
            .persistent(false)
            .fetch_one(connection)
            .await?;
            Ok(Self { id: row.try_get(0)?, started: row.try_get(1)? })
        };
        read.await.map_err(|error| failure(error, Stage::Query))
    }
}

impl Backends {
    pub(super) const fn of(server: Server) -> Self {
        Self { server, processes: Vec::new() }
    }

    pub(super) fn add(&mut self, process: Process) {
        self.processes.push(process);
    }

    /// Nothing is left to cancel.
    pub(super) fn are_done(&mut self) {
        self.processes.clear();
    }

    /// Cancels what the processes are doing, in no more than this time.
    pub(super) async fn cancel(&mut self, limit: Duration) -> Result<(), SourceError> {
        let processes = std::mem::take(&mut self.processes);
        if processes.is_empty() {
            return Ok(());
        }
        cancel(&self.server, &processes, limit).await
    }
}

impl Drop for Backends {
    fn drop(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (server, processes) = (self.server.clone(), std::mem::take(&mut self.processes));
        runtime.spawn(async move {
            let limit = server.connect_timeout;
            if let Err(error) = cancel(&server, &processes, limit).await {
                tracing::debug!(error = %error, "a dropped query could not be canceled");
            }
        });
    }
}

async fn cancel(
    server: &Server,
    processes: &[Process],
    limit: Duration,
) -> Result<(), SourceError> {
    let (ids, starts): (Vec<i32>, Vec<i64>) =
        processes.iter().map(|process| (process.id, process.started)).unzip();
    let ask = async {
        let mut connection = server.connect().await?;
        sqlx::query(
            "SELECT pg_cancel_backend(a.pid) \
             FROM unnest($1::int[], $2::bigint[]) AS process(id, started) \
             JOIN pg_stat_activity a ON a.pid = process.id \
              AND (extract(epoch FROM a.backend_start) * 1000000)::bigint = process.started",
        )
        .bind(ids)
        .bind(starts)
        .persistent(false)
        .execute(&mut connection)
        .await
        .map_err(|error| failure(error, Stage::Query))?;
        connection.close().await.map_err(|error| failure(error, Stage::Query))
    };
    tokio::time::timeout(limit, ask).await.unwrap_or_else(|_| {
        Err(SourceError::new(
            FailureCode::SourceUnreachable,
            "the source database did not answer a cancel in time",
        ))
    })
}
