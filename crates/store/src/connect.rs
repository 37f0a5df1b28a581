//! How the pools are made and what their sessions are set to.

use std::time::Duration;

use sea_orm::{
    DatabaseConnection, SqlxPostgresConnector, SqlxSqliteConnector,
    sqlx::{
        self, ConnectOptions as _, Connection as _,
        postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
        sqlite::{
            SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions,
            SqliteSynchronous,
        },
    },
};

use crate::{StoreConfig, StoreError};

/// Connections that only read, on `SQLite`.
const SQLITE_READERS: u32 = 4;
/// How long a `SQLite` statement waits for another process's write.
const SQLITE_BUSY: Duration = Duration::from_secs(10);
/// How long two processes that make a `SQLite` file's journal at once keep out of each other's way.
const SQLITE_TURNS: Duration = Duration::from_millis(20);
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

/// A database that is not there yet is made as its owner's alone; SQLite gives the files beside it
/// the same rights. Its content is of all tenants.
fn create_privately(path: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

async fn sqlite(path: &str, acquire_timeout: Duration) -> Result<Pools, StoreError> {
    create_privately(path).map_err(sqlx::Error::Io)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
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
            .after_release(|connection, _| Box::pin(is_outside_transactions(connection)))
    };
    // One writer, so that transactions of this process queue in the pool and not in SQLite.
    let writer = once_not_busy(|| pool().max_connections(1).connect_with(options.clone())).await?;
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

/// What `connect` gives once no other process is in its way.
///
/// A file becomes WAL when it is connected to for the first time. `SQLite` waits for nobody who
/// turns it at the same moment: both hold its lock for reading and want the one for writing, so
/// that one of them is told `SQLITE_BUSY` at once, whatever its timeout.
async fn once_not_busy<T, F: Future<Output = Result<T, sqlx::Error>>>(
    connect: impl Fn() -> F,
) -> Result<T, StoreError> {
    let until = tokio::time::Instant::now() + SQLITE_BUSY;
    loop {
        match connect().await.map_err(StoreError::from) {
            Err(StoreError::Conflict(_)) if tokio::time::Instant::now() < until => {
                tokio::time::sleep(SQLITE_TURNS).await;
            }
            done => return done,
        }
    }
}

/// Whether a connection that comes back may serve others; one that may not is closed, which ends
/// whatever was open in it.
///
/// A full disk and other failures (`SQLITE_FULL`, `SQLITE_IOERR`, `SQLITE_NOMEM`) end a transaction
/// within SQLite itself. The rollback of sqlx 0.9.0 then fails, for there is nothing to roll back,
/// and its count of open transactions stays: from then on each "transaction" would be a savepoint,
/// and once one of them is rolled back, the next ones lie within a transaction that nobody commits.
async fn is_outside_transactions(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    if connection.is_in_transaction() {
        // The rollback of a dropped transaction is on its way; this comes behind it.
        connection.ping().await?;
    }
    let outside = !connection.is_in_transaction();
    if !outside {
        tracing::warn!("a transaction of the state database broke off; its connection is closed");
    }
    Ok(outside)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sea_orm::ConnectionTrait as _;

    use crate::{Store, StoreConfig, StoreError};

    async fn rows(store: &Store) -> i64 {
        let counted = store.engine().statement("SELECT COUNT(*) AS n FROM filler", []);
        let row = store.reader().query_one_raw(counted).await.expect("an answer").expect("a row");
        row.try_get("", "n").expect("a number")
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_new_file_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("state.db").display());
        let acquire_timeout = Duration::from_secs(20);
        let config = StoreConfig { url, max_connections: 1, acquire_timeout };
        let store = Store::connect(&config).await.expect("connected");
        store.migrate().await.expect("migrated");
        for file in ["state.db", "state.db-wal", "state.db-shm"] {
            let file = std::fs::metadata(folder.path().join(file)).expect(file);
            assert_eq!(file.permissions().mode() & 0o777, 0o600);
        }
        store.close().await;
    }

    #[tokio::test]
    async fn what_is_committed_after_a_full_disk_is_there() {
        const ROUNDS: i64 = 3;
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("state.db").display());
        let acquire_timeout = Duration::from_secs(20);
        let config = StoreConfig { url, max_connections: 1, acquire_timeout };
        let store = Store::connect(&config).await.expect("connected");
        let create = "CREATE TABLE filler (bytes BLOB)";
        store.writer().execute_unprepared(create).await.expect("a table");
        for round in 1..=ROUNDS {
            // Of this connection alone: one that is opened anew has no such bound.
            let bound = "PRAGMA max_page_count = 50";
            store.writer().execute_unprepared(bound).await.expect("a bound");
            let full = store.begin().await.expect("a transaction");
            let error = full.run("INSERT INTO filler VALUES (zeroblob(1000000))", []).await;
            let error = error.expect_err("no room");
            assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
            let error = std::error::Error::source(&error).map(ToString::to_string);
            assert!(error.as_deref().is_some_and(|error| error.contains("full")), "{error:?}");
            drop(full);
            // As every look for work that finds none.
            drop(store.begin().await.expect("a transaction"));
            let small = store.begin().await.expect("a transaction");
            small.run("INSERT INTO filler VALUES ('small')", []).await.expect("room");
            small.commit().await.expect("committed");
            assert_eq!(rows(&store).await, round, "seen from outside");
        }
        store.close().await;
        let store = Store::connect(&config).await.expect("connected again");
        assert_eq!(rows(&store).await, ROUNDS, "after a restart");
        store.close().await;
    }
}
