//! How the pools are made and what their sessions are set to.

use std::time::Duration;

use sea_orm::{
    DatabaseConnection, SqlxPostgresConnector, SqlxSqliteConnector,
    sqlx::{
        self, ConnectOptions as _, Connection as _,
        postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
        sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
    },
};

use crate::{StoreConfig, StoreError};

/// Connections that only read, on `SQLite`.
const SQLITE_READERS: u32 = 4;
/// How long a `SQLite` statement waits for another process's write.
const SQLITE_BUSY: Duration = Duration::from_secs(10);
/// A connection idle for longer is asked for a sign of life before it is used.
const PING_AFTER: Duration = Duration::from_secs(1);
const NEITHER: &str = "the URL of the state database starts neither with sqlite:// nor postgres://";

/// The pools of one store.
pub struct Pools {
    /// For transactions and single writes.
    pub writer: DatabaseConnection,
    /// For reads; the same pool on `PostgreSQL`.
    pub reader: DatabaseConnection,
    /// How to open a connection of one's own, on `PostgreSQL`.
    pub postgres: Option<PgConnectOptions>,
}

/// Connects to where the URL says.
pub async fn connect(config: &StoreConfig) -> Result<Pools, StoreError> {
    if let Some(path) = config.url.strip_prefix("sqlite://") {
        sqlite(path.split('?').next().unwrap_or(path), config.acquire_timeout).await
    } else if config.url.starts_with("postgres://") || config.url.starts_with("postgresql://") {
        postgres(config).await
    } else {
        Err(StoreError::Refused(NEITHER.into()))
    }
}

/// What is wrong with the form of a PostgreSQL URL; of another URL nothing is.
pub fn check_url(url: &str) -> Result<(), String> {
    if !url.starts_with("postgres") {
        return Ok(());
    }
    match url.parse::<PgConnectOptions>() {
        Ok(_) => Ok(()),
        Err(sqlx::Error::Configuration(cause)) => Err(cause.to_string()),
        Err(_) => Err("it cannot be read".to_owned()),
    }
}

async fn sqlite(path: &str, acquire_timeout: Duration) -> Result<Pools, StoreError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(SQLITE_BUSY)
        .disable_statement_logging();
    let pool = || {
        SqlitePoolOptions::new()
            .acquire_timeout(acquire_timeout)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
    };
    // One writer, so that transactions of this process queue in the pool and not in SQLite.
    let writer = pool().max_connections(1).connect_with(options.clone()).await?;
    let reader = pool()
        .max_connections(SQLITE_READERS)
        .connect_with(options.pragma("query_only", "ON"))
        .await?;
    Ok(Pools {
        writer: SqlxSqliteConnector::from_sqlx_sqlite_pool(writer),
        reader: SqlxSqliteConnector::from_sqlx_sqlite_pool(reader),
        postgres: None,
    })
}

async fn postgres(config: &StoreConfig) -> Result<Pools, StoreError> {
    let options = config
        .url
        .parse::<PgConnectOptions>()?
        .application_name("outport")
        .options([
            ("statement_timeout", "30s"),
            ("lock_timeout", "10s"),
            ("idle_in_transaction_session_timeout", "60s"),
            ("default_transaction_isolation", "read committed"),
        ])
        .disable_statement_logging();
    let options = without_tls_at_home(options);
    let pool = PgPoolOptions::new()
        .max_connections(config.max_connections.max(1))
        .acquire_timeout(config.acquire_timeout)
        .test_before_acquire(false)
        .before_acquire(|connection, idle| {
            Box::pin(async move {
                if idle.idle_for >= PING_AFTER {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_with(options.clone())
        .await?;
    let pool = SqlxPostgresConnector::from_sqlx_postgres_pool(pool);
    Ok(Pools { writer: pool.clone(), reader: pool, postgres: Some(options) })
}

/// On the machine's own loopback TLS protects no wire, and sqlx 0.9.0 leaves Nagle's algorithm on
/// (transact-rs/sqlx#4335): every request of more than one TLS record then waits 40 ms for a
/// delayed acknowledgement. A mode that asks for TLS is kept.
fn without_tls_at_home(options: PgConnectOptions) -> PgConnectOptions {
    let home = ["localhost", "127.0.0.1", "::1"].contains(&options.get_host());
    if home && matches!(options.get_ssl_mode(), PgSslMode::Prefer | PgSslMode::Allow) {
        options.ssl_mode(PgSslMode::Disable)
    } else {
        options
    }
}
