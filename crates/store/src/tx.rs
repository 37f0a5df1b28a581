//! The connection and the one type of transaction.

use std::time::Duration;

use crate::StoreError;

/// Where the state lives. Holds credentials, so it has no `Debug`.
#[derive(Clone)]
pub struct StoreConfig {
    /// `sqlite://<path>` (created when missing) or `postgres://…`.
    pub url: String,
    /// Connections at most, on PostgreSQL.
    pub max_connections: u32,
    /// Time limit of getting a connection.
    pub acquire_timeout: Duration,
}

/// Which database the state lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// One file, one process.
    Sqlite,
    /// A server, many processes.
    Postgres,
}

/// The state database. Cheap to clone.
#[derive(Clone)]
pub struct Store {}

/// One transaction: READ COMMITTED on PostgreSQL, IMMEDIATE on SQLite. Dropped without
/// [`Tx::commit`] it leaves no trace.
pub struct Tx {}

impl Store {
    /// Connects and sets the session up (on SQLite: WAL, `synchronous=FULL`, foreign keys, one
    /// writer and a small read pool). Does not migrate.
    pub async fn connect(config: &StoreConfig) -> Result<Self, StoreError> {
        todo!()
    }

    /// Brings the schema up to date; safe to call from several processes at once.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        todo!()
    }

    /// Whether every migration of this program has been applied.
    pub async fn is_migrated(&self) -> Result<bool, StoreError> {
        todo!()
    }

    /// Which engine it is.
    pub fn engine(&self) -> Engine {
        todo!()
    }

    /// Checks that the database answers.
    pub async fn check(&self) -> Result<(), StoreError> {
        todo!()
    }

    /// Opens a transaction.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        todo!()
    }

    /// Closes all connections.
    pub async fn close(&self) {
        todo!()
    }
}

impl Tx {
    /// Commits everything, then wakes who waits for it.
    pub async fn commit(self) -> Result<(), StoreError> {
        todo!()
    }
}
