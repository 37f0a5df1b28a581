//! Connecting, the settings that the printed values and our patience depend on, the snapshot,
//! and the end of a query that is not wanted any more.

use std::{str::FromStr, time::Duration};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use outport_domain::failure::FailureCode;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row, postgres::PgConnectOptions,
};

use super::failure::{Stage, failure};
use crate::{SourceError, compile::postgres::literal};

/// Where a server is and how to get in. Holds credentials, so it has no `Debug`.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) url: String,
    pub(super) connect_timeout: Duration,
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

async fn run(connection: &mut PgConnection, sql: String) -> Result<(), SourceError> {
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

/// The server process behind a connection. Until it [is done](Backend::is_done), dropping this
/// asks the server to cancel whatever the process is doing.
pub(super) struct Backend {
    server: Server,
    pid: i32,
    /// In microseconds since 1970: a pid alone may be another process by the time of a cancel.
    started: i64,
    busy: bool,
}

impl Backend {
    pub(super) async fn of(
        connection: &mut PgConnection,
        server: Server,
    ) -> Result<Self, SourceError> {
        let read = async {
            let row = sqlx::query(
                "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint \
                 FROM pg_stat_activity WHERE pid = pg_backend_pid()",
            )
            .persistent(false)
            .fetch_one(connection)
            .await?;
            Ok((row.try_get(0)?, row.try_get(1)?))
        };
        let (pid, started) = read.await.map_err(|error| failure(error, Stage::Query))?;
        Ok(Self { server, pid, started, busy: true })
    }

    /// Nothing is left to cancel.
    pub(super) const fn is_done(&mut self) {
        self.busy = false;
    }

    /// Cancels what the process is doing, in no more than this time.
    pub(super) async fn cancel(&mut self, limit: Duration) -> Result<(), SourceError> {
        if !std::mem::take(&mut self.busy) {
            return Ok(());
        }
        cancel(&self.server, self.pid, self.started, limit).await
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if !self.busy {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (server, pid, started) = (self.server.clone(), self.pid, self.started);
        runtime.spawn(async move {
            let limit = server.connect_timeout;
            if let Err(error) = cancel(&server, pid, started, limit).await {
                tracing::debug!(error = %error, "a dropped query could not be canceled");
            }
        });
    }
}

async fn cancel(
    server: &Server,
    pid: i32,
    started: i64,
    limit: Duration,
) -> Result<(), SourceError> {
    let ask = async {
        let mut connection = server.connect().await?;
        sqlx::query(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
             WHERE pid = $1 AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2",
        )
        .bind(pid)
        .bind(started)
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
