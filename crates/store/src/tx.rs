//! The connection and the one type of transaction.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use outport_migrations::{Migrator, MigratorTrait as _};
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbBackend,
    SqliteTransactionMode, Statement, TransactionOptions, TransactionTrait as _, Value,
};
use tokio::task::AbortHandle;

use crate::{
    StoreError,
    channels::{NewEvent, check_epoch, number},
    connect::{Pools, connect},
    hints::{CHANNEL, Hints, Teller, Topic, listen},
};

/// Where the state lives. Holds credentials, so it has no `Debug`.
#[derive(Clone)]
pub struct StoreConfig {
    /// `sqlite://<path>` (created when missing) or `postgres://…`.
    pub url: String,
    /// Connections at most, on `PostgreSQL`; one more is kept to listen for hints.
    pub max_connections: u32,
    /// Time limit of getting a connection.
    pub acquire_timeout: Duration,
}

impl StoreConfig {
    /// Reads a PostgreSQL URL without connecting. The error says what is wrong with it and quotes
    /// neither its credentials nor its host.
    pub fn check_url(&self) -> Result<(), String> {
        crate::connect::check_url(&self.url)
    }
}

/// Which database the state lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// One file, one process.
    Sqlite,
    /// A server, many processes.
    Postgres,
}

impl Engine {
    fn backend(self) -> DbBackend {
        match self {
            Self::Sqlite => DbBackend::Sqlite,
            Self::Postgres => DbBackend::Postgres,
        }
    }

    /// The database's own clock, as an expression in milliseconds since 1970.
    pub(crate) const fn now(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)",
            Self::Postgres => "FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT",
        }
    }

    /// A lock on the chosen rows, where others may write at the same time.
    pub(crate) const fn for_update(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => "FOR UPDATE",
        }
    }

    /// The same, passing over rows that somebody else has locked.
    pub(crate) const fn skip_locked(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => "FOR UPDATE SKIP LOCKED",
        }
    }

    /// A statement with bound values (`$1`, `$2`, … on both engines).
    pub(crate) fn statement(
        self,
        sql: impl Into<String>,
        values: impl IntoIterator<Item = Value>,
    ) -> Statement {
        Statement::from_sql_and_values(self.backend(), sql, values)
    }
}

/// The state database. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    engine: Engine,
    writer: DatabaseConnection,
    reader: DatabaseConnection,
    hints: Arc<Hints>,
    others: Option<Others>,
}

/// What hears of other processes, and tells them; where there are some.
struct Others {
    listener: AbortHandle,
    teller: Teller,
}

impl Drop for Others {
    fn drop(&mut self) {
        self.abort();
    }
}

impl Others {
    fn abort(&self) {
        self.listener.abort();
        self.teller.abort();
    }
}

/// One transaction: READ COMMITTED on `PostgreSQL`, IMMEDIATE on `SQLite`. Dropped without
/// [`Tx::commit`] it leaves no trace. On `SQLite` it holds the only writing connection: whoever
/// has one open must not wait for a write outside it.
pub struct Tx {
    inner: DatabaseTransaction,
    store: Store,
    topics: BTreeSet<Topic>,
    now: Option<i64>,
    /// Numbered by the commit.
    pub(crate) appended: Vec<NewEvent>,
}

impl Store {
    /// Connects and sets the session up (on `SQLite`: WAL, `synchronous=FULL`, foreign keys, one
    /// writer and a small read pool). Does not migrate.
    pub async fn connect(config: &StoreConfig) -> Result<Self, StoreError> {
        let Pools { writer, reader, postgres } = connect(config).await?;
        let hints = Arc::new(Hints::default());
        let (engine, others) = match postgres {
            None => (Engine::Sqlite, None),
            Some(options) => {
                let (hints, timeout) = (Arc::clone(&hints), config.acquire_timeout);
                let listener = listen(options, timeout, hints, writer.clone()).await?;
                let teller = Teller::start(writer.clone());
                (Engine::Postgres, Some(Others { listener, teller }))
            }
        };
        Ok(Self(Arc::new(Inner { engine, writer, reader, hints, others })))
    }

    /// Brings the schema up to date; safe to call from several processes at once.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        // One number, the same in every process: "outport" in hexadecimal ASCII.
        const LOCK: i64 = 0x006f_7574_706f_7274;
        // On SQLite the transaction alone keeps others away.
        let tx = self.begin().await?;
        if self.engine() == Engine::Postgres {
            tx.run("SET LOCAL statement_timeout = 0", []).await?;
            tx.run("SET LOCAL lock_timeout = 0", []).await?;
            tx.run("SELECT pg_advisory_xact_lock($1)", [LOCK.into()]).await?;
        }
        Migrator::up(&tx.inner, None).await?;
        check_epoch(&tx).await?;
        tx.commit().await
    }

    /// Whether every migration of this program has been applied.
    pub async fn is_migrated(&self) -> Result<bool, StoreError> {
        Ok(Migrator::get_pending_migrations_read_only(self.reader()).await?.is_empty())
    }

    /// Which engine it is.
    pub fn engine(&self) -> Engine {
        self.0.engine
    }

    /// Checks that the database answers.
    pub async fn check(&self) -> Result<(), StoreError> {
        Ok(self.reader().ping().await?)
    }

    /// Opens a transaction.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        let options = TransactionOptions {
            sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
            ..TransactionOptions::default()
        };
        // In a task of its own, which goes on when this is dropped: sqlx 0.9 undoes what is dropped
        // once it has begun, but of what is only about to begin PostgreSQL has heard already, and
        // the connection would go back to the pool with a transaction that nobody ends.
        let writer = self.0.writer.clone();
        let begun = tokio::spawn(async move { writer.begin_with_options(options).await });
        let inner = begun.await.map_err(|error| StoreError::Refused(error.into()))??;
        Ok(Tx {
            inner,
            store: self.clone(),
            topics: BTreeSet::new(),
            now: None,
            appended: Vec::new(),
        })
    }

    /// Closes all connections.
    pub async fn close(&self) {
        if let Some(others) = &self.0.others {
            others.abort();
        }
        for pool in [&self.0.reader, &self.0.writer] {
            if let Err(error) = pool.close_by_ref().await {
                tracing::debug!(%error, "a pool of the state database did not close cleanly");
            }
        }
    }

    /// For reads of what is committed.
    pub(crate) fn reader(&self) -> &DatabaseConnection {
        &self.0.reader
    }

    /// For a single statement that writes.
    pub(crate) fn writer(&self) -> &DatabaseConnection {
        &self.0.writer
    }

    pub(crate) fn hints(&self) -> &Hints {
        &self.0.hints
    }
}

impl Tx {
    /// Commits everything, then wakes who waits for it. What was appended is numbered as the last
    /// thing before the commit: channels are the last rows that any transaction locks.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        if self.engine() == Engine::Postgres {
            for topic in &self.topics {
                let values = [CHANNEL.into(), topic.payload().into()];
                self.run("SELECT pg_notify($1, $2)", values).await?;
            }
        }
        let appended = std::mem::take(&mut self.appended);
        let channels = number(&self, &appended).await?;
        self.inner.commit().await?;
        self.topics.into_iter().for_each(|topic| self.store.hints().bump(topic));
        for channel in &channels {
            self.store.hints().appended(channel);
        }
        if let Some(others) = &self.store.0.others {
            others.teller.tell(&channels);
        }
        Ok(())
    }

    pub(crate) fn engine(&self) -> Engine {
        self.store.engine()
    }

    pub(crate) fn connection(&self) -> &DatabaseTransaction {
        &self.inner
    }

    /// Notes that a commit of this transaction is of interest to who waits for this.
    pub(crate) fn touch(&mut self, topic: Topic) {
        self.topics.insert(topic);
    }

    /// The instant of this transaction, by the database's clock. Always the same one, so that
    /// a row and the events that tell of it agree to the digit.
    pub(crate) async fn now(&mut self) -> Result<i64, StoreError> {
        if let Some(now) = self.now {
            return Ok(now);
        }
        let sql = format!("SELECT {} AS now", self.engine().now());
        let row = self.inner.query_one_raw(self.engine().statement(sql, [])).await?;
        let now = row
            .ok_or_else(|| StoreError::Corrupt("the database has no clock".to_owned()))?
            .try_get("", "now")?;
        self.now = Some(now);
        Ok(now)
    }

    /// Runs a statement. Returns how many rows it changed.
    pub(crate) async fn run(
        &self,
        sql: impl Into<String>,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<u64, StoreError> {
        let statement = self.engine().statement(sql, values);
        Ok(self.inner.execute_raw(statement).await?.rows_affected())
    }
}
