//! Connecting, the settings that the printed values and our patience depend on, and the end of a
//! query that is not wanted any more.

use std::{str::FromStr, sync::Arc, time::Duration};

use outport_domain::failure::FailureCode;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, MySqlConnection,
    mysql::{MySqlConnectOptions, MySqlRow},
};
use uuid::Uuid;

use super::{
    cells::bytes,
    failure::{Stage, failure},
};
use crate::{SourceError, Tls, compile};

/// Parameters that one statement sets.
const SET_AT_ONCE: usize = 1_000;

/// More statements than one reader prepares, unless its filters have long lists.
const KEPT_STATEMENTS: usize = 128;

/// Where a server is and how to get in. Holds credentials, so it has no `Debug`.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) url: String,
    pub(super) tls: Arc<Tls>,
    pub(super) connect_timeout: Duration,
}

impl Server {
    pub(super) async fn connect(&self) -> Result<MySqlConnection, SourceError> {
        let mut options = MySqlConnectOptions::from_str(&self.url)
            .map_err(|error| {
                // The cause is told apart from the message: it may quote the URL.
                SourceError::new(
                    FailureCode::SourceUnreachable,
                    "the connection's URL is not valid",
                )
                .abandoned()
                .with_cause(error)
            })?
            .charset("utf8mb4")
            .collation("utf8mb4_general_ci")
            .timezone(Some("+00:00".to_owned()))
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            // Closing a statement has no answer, and sqlx leaves Nagle's algorithm on: the next
            // statement would wait 40 ms. The connection is closed soon.
            .statement_cache_capacity(KEPT_STATEMENTS)
            // Statements hold what filters ask for.
            .disable_statement_logging();
        if let Some(authority) = &self.tls.authority {
            options = options.ssl_ca_from_pem(authority.clone().into_bytes());
        }
        if let Some(certificate) = &self.tls.certificate {
            options = options.ssl_client_cert_from_pem(certificate);
        }
        if let Some(key) = &self.tls.key {
            options = options.ssl_client_key_from_pem(key.as_str());
        }
        match tokio::time::timeout(self.connect_timeout, MySqlConnection::connect_with(&options))
            .await
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

/// Runs statements without parameters and gives their rows.
pub(super) async fn rows(
    connection: &mut MySqlConnection,
    sql: impl Into<String>,
) -> Result<Vec<MySqlRow>, SourceError> {
    sqlx::raw_sql(AssertSqlSafe(sql.into()))
        .fetch_all(connection)
        .await
        .map_err(|error| failure(error, Stage::Query))
}

/// Asks for the plan of a statement. Both servers give the old form of the table only when asked so,
/// and MariaDB what it made of the statement; MySQL always does.
pub(super) fn explain(sql: &str) -> String {
    format!("EXPLAIN /*M! EXTENDED */ /*!50700 FORMAT=TRADITIONAL */ {sql}")
}

/// The text of a cell; NULL is `None`.
pub(super) fn text(row: &MySqlRow, index: usize) -> Result<Option<String>, SourceError> {
    let cell = bytes(row, index).map_err(|error| failure(error, Stage::Query))?;
    Ok(cell.map(|cell| String::from_utf8_lossy(cell).into_owned()))
}

async fn number(connection: &mut MySqlConnection, sql: &str) -> Result<u64, SourceError> {
    let rows = rows(connection, sql).await?;
    let number = match rows.first() {
        Some(row) => text(row, 0)?,
        None => None,
    };
    number.and_then(|number| number.parse().ok()).ok_or_else(|| {
        SourceError::new(FailureCode::SourceQueryFailed, "the source did not answer with a number")
    })
}

/// Pins all that decides what is read and how it is printed, and lifts the time limits: who
/// reads slowly because a store is slow must not be cut off.
///
/// `sql_select_limit` would cut every result short, silently; `group_concat_max_len` texts.
/// `system_versioning_asof` would give the rows of another day. Without `sql_notes` the server
/// would not say which tables a statement reads, without `sql_quote_show_create` not in quotes.
/// The comments are instructions to one of MariaDB and MySQL: in MySQL, `max_error_count` is that
/// by itself, and for the administrator alone to set; and to compare what a view computes with its
/// texts, in another collation than the server's own, is an error.
pub(super) async fn pin(connection: &mut MySqlConnection) -> Result<(), SourceError> {
    rows(
        connection,
        "SET NAMES utf8mb4 /*M!50500 COLLATE utf8mb4_general_ci */; \
         SET SESSION time_zone = '+00:00', sql_mode = 'NO_ENGINE_SUBSTITUTION', autocommit = 1, \
             sql_select_limit = 18446744073709551615, sql_big_selects = 1, \
             group_concat_max_len = 1073741824, sql_notes = 1, sql_quote_show_create = 1, \
             net_write_timeout = 2147483, net_read_timeout = 2147483, wait_timeout = 2147483 \
             /*M!50500 , max_error_count = 1024 */ \
             /*M!100101 , max_statement_time = 0 */ \
             /*M!100304 , system_versioning_asof = DEFAULT */ \
             /*M!100318 , in_predicate_conversion_threshold = 0 */ \
             /*!50708 , max_execution_time = 0 */; \
         SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    )
    .await
    .map(drop)
}

/// Puts the parameters where the query reads them.
pub(super) async fn set_parameters(
    connection: &mut MySqlConnection,
    parameters: &[String],
) -> Result<(), SourceError> {
    for (chunk, values) in parameters.chunks(SET_AT_ONCE).enumerate() {
        let variables: Vec<String> = (1..=values.len())
            .map(|n| format!("{} = ?", compile::mysql::variable(chunk * SET_AT_ONCE + n)))
            .collect();
        let sql = format!("SET {}", variables.join(", "));
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for value in values {
            query = query.bind(value.as_str());
        }
        query.execute(&mut *connection).await.map_err(|error| failure(error, Stage::Query))?;
    }
    Ok(())
}

/// Bounds how long a statement may wait for a table, and may take, to a second: whoever asks for
/// an estimate gives up sooner, and the server need not notice that they are gone.
pub(super) async fn bound(connection: &mut MySqlConnection) -> Result<(), SourceError> {
    rows(
        connection,
        "SET SESSION lock_wait_timeout = 1 \
             /*M!100101 , max_statement_time = 1 */ \
             /*!50708 , max_execution_time = 1000 */",
    )
    .await
    .map(drop)
}

/// The server's thread behind a connection. Until it [is done](Thread::is_done), dropping this
/// asks the server to give up the query.
pub(super) struct Thread {
    server: Server,
    id: u64,
    /// Stands in our query: after a restart of the server the number may be another's.
    marker: String,
    busy: bool,
}

impl Thread {
    pub(super) async fn of(
        connection: &mut MySqlConnection,
        server: Server,
    ) -> Result<Self, SourceError> {
        let id = number(connection, "SELECT CONNECTION_ID()").await?;
        Ok(Self { server, id, marker: Uuid::new_v4().simple().to_string(), busy: true })
    }

    /// A query of this thread, told by its marker.
    pub(super) fn marked(&self, sql: &str) -> String {
        format!("/* outport {} */ {sql}", self.marker)
    }

    /// Nothing is left to cancel.
    pub(super) const fn is_done(&mut self) {
        self.busy = false;
    }

    /// Ends the query, in no more than this time.
    pub(super) async fn cancel(&mut self, limit: Duration) -> Result<(), SourceError> {
        if !std::mem::take(&mut self.busy) {
            return Ok(());
        }
        kill(&self.server, self.id, &self.marker, limit).await
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if !self.busy {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (server, id, marker) = (self.server.clone(), self.id, self.marker.clone());
        runtime.spawn(async move {
            let limit = server.connect_timeout;
            if let Err(error) = kill(&server, id, &marker, limit).await {
                tracing::debug!(error = %error, "a dropped query could not be canceled");
            }
        });
    }
}

async fn kill(server: &Server, id: u64, marker: &str, limit: Duration) -> Result<(), SourceError> {
    let ask = async {
        let mut connection = server.connect().await?;
        let ours = format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
             WHERE ID = {id} AND INFO LIKE '%{marker}%'"
        );
        if number(&mut connection, &ours).await? > 0 {
            match rows(&mut connection, format!("KILL QUERY {id}")).await {
                Ok(_) => {}
                // It ended by itself.
                Err(error) if super::failure::is_no_such_thread(&error) => {}
                Err(error) => return Err(error),
            }
        }
        connection.close().await.map_err(|error| failure(error, Stage::Query))
    };
    tokio::time::timeout(limit, ask).await.unwrap_or_else(|_| {
        Err(SourceError::new(
            FailureCode::SourceUnreachable,
            "the source database did not answer a cancel in time",
        ))
    })
}
