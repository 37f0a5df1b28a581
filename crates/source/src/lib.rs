//! Other people's databases: one read-only query, one snapshot, the server's own text.
//!
//! **Words.** A *source* is one configured connection. Opening it with a [`Selection`] gives a
//! *row stream*; rows come in *batches*: one buffer of bytes with the ends of its cells, so
//! that nothing is allocated per cell. Its [`schema`] says what tables and columns it has.
//!
//! **Invariants.** All rows of one stream are of one moment. A stream ends with
//! [`Next::End`] only when the database itself said that the result is complete; everything
//! else is an error. Dropping a stream closes its connection, never returns it to a pool.
//! Identifiers come from declared resources and are quoted; values are bound.
//!
//! **Absent on purpose.** Writing, looking up credentials (they are handed in), and deciding
//! what may be read: that is the [`Selection`]'s business.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_domain::{
    failure::{Disposition, Failure, FailureCode},
    selection::Selection,
};
use zeroize::Zeroizing;

pub mod batch;
mod compile;
mod error;
mod handoff;
pub mod mysql;
pub mod postgres;
pub mod sample;
pub mod schema;
mod server;
mod several;
pub mod sqlite;

pub use batch::Batch;

/// A row larger than this ends the stream with `VALUE_NOT_ENCODABLE`.
pub const MOST_ROW_BYTES: usize = 64 * 1024 * 1024;

/// The source that a configuration describes. Nothing is connected to before it is opened.
pub fn connect(config: &SourceConfig) -> Arc<dyn Source> {
    match config {
        SourceConfig::Postgres { url, connect_timeout } => {
            Arc::new(postgres::PostgresSource::new(url, *connect_timeout))
        }
        SourceConfig::MySql { url, connect_timeout } => {
            Arc::new(mysql::MySqlSource::new(url.clone(), *connect_timeout))
        }
        SourceConfig::Sqlite { path } => Arc::new(sqlite::SqliteSource::new(path.clone())),
        SourceConfig::Stored { url, tls, connect_timeout } if is_postgres(url) => {
            Arc::new(postgres::PostgresSource::new(url, *connect_timeout).with_tls(Arc::clone(tls)))
        }
        SourceConfig::Stored { url, tls, connect_timeout } => Arc::new(
            mysql::MySqlSource::new(url.clone(), *connect_timeout).with_tls(Arc::clone(tls)),
        ),
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres")
}

impl SourceConfig {
    /// Reads the URL without connecting. The error says what is wrong with it and quotes neither
    /// its credentials nor its host.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Postgres { url, .. } => postgres::check_url(url),
            Self::Sqlite { path } if path.as_os_str().is_empty() => {
                Err("it names no file".to_owned())
            }
            Self::Sqlite { .. } => Ok(()),
            Self::Stored { url, .. } if is_postgres(url) => postgres::check_url(url),
            Self::MySql { url, .. } | Self::Stored { url, .. } => mysql::check_url(url),
        }
    }
}

/// What is wrong with a URL, in the parser's own words, which are about its form alone.
fn malformed(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Configuration(cause) => cause.to_string(),
        _ => "it cannot be read".to_owned(),
    }
}

/// One configured database.
#[async_trait]
pub trait Source: Send + Sync {
    /// Opens a connection of its own, takes a snapshot and starts the query.
    async fn open(&self, selection: &Selection) -> Result<Box<dyn RowStream>, SourceError>;

    /// Opens several selections as of one moment, over one connection. The streams are read in the
    /// order given, each to its end before the next; the last one owns the connection.
    async fn open_all(
        &self,
        selections: &[&Selection],
    ) -> Result<Vec<Box<dyn RowStream>>, SourceError> {
        match selections {
            [] => Ok(Vec::new()),
            [only] => Ok(vec![self.open(only).await?]),
            several => self.open_several(several).await,
        }
    }

    /// [`Self::open_all`] where it is more than one.
    async fn open_several(
        &self,
        _selections: &[&Selection],
    ) -> Result<Vec<Box<dyn RowStream>>, SourceError> {
        Err(SourceError::new(
            FailureCode::SourceQueryFailed,
            "the source cannot read several tables as of one moment",
        ))
    }

    /// Checks that the database answers.
    async fn check(&self) -> Result<(), SourceError>;

    /// How many rows a selection has, as far as the database's planner knows without reading
    /// them; `None` where it does not say.
    async fn estimate(&self, _selection: &Selection) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    /// What was found out so far about the way to the database, if there is anything to know.
    fn note(&self) -> Option<&'static str> {
        None
    }
}

/// The rows of one query, all of one snapshot.
#[async_trait]
pub trait RowStream: Send {
    /// The moment that the rows are seen at.
    fn snapshot_at(&self) -> DateTime<Utc>;

    /// How many rows there may be, as the database's planner estimated them; `None` where it
    /// does not say. Never a count, and never more than a guess.
    fn estimated_rows(&self) -> Option<u64> {
        None
    }

    /// Clears the batch and fills it with the next rows. Cancel-safe only by dropping the stream.
    async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError>;

    /// Ends the query at the server, from another connection where need be, and closes this one.
    async fn cancel(self: Box<Self>);
}

/// What a stream gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At least one row is in the batch.
    Rows,
    /// The database said that the result is complete; it had this many rows in all.
    End {
        /// Rows of the whole stream, as counted by the reader.
        rows: u64,
    },
}

/// Where a source is. Holds credentials, so it has no `Debug`.
#[derive(Clone)]
pub enum SourceConfig {
    /// A PostgreSQL server: a `postgres://` URL, credentials included.
    Postgres {
        /// The URL.
        url: String,
        /// Time limit of connecting.
        connect_timeout: std::time::Duration,
    },
    /// A MySQL or MariaDB server: a `mysql://` or `mariadb://` URL, credentials included.
    MySql {
        /// The URL.
        url: String,
        /// Time limit of connecting.
        connect_timeout: std::time::Duration,
    },
    /// An SQLite file, opened read-only.
    Sqlite {
        /// Its path.
        path: std::path::PathBuf,
    },
    /// A PostgreSQL or MySQL server whose certificates are at hand, not in files.
    Stored {
        /// The URL.
        url: String,
        /// What the way to it is encrypted with.
        tls: Arc<Tls>,
        /// Time limit of connecting.
        connect_timeout: std::time::Duration,
    },
}

/// What the way to a server is encrypted with, each as PEM; whether it is says the URL. Holds a
/// key, so it has no `Debug`.
#[derive(Default)]
pub struct Tls {
    /// The authority that the server's certificate must be of.
    pub authority: Option<String>,
    /// The client's certificate.
    pub certificate: Option<String>,
    /// Its key.
    pub key: Option<Zeroizing<String>>,
}

/// What went wrong at a source. `Display` is safe to show to the requester; the cause is for
/// the log.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// The stable code.
    pub code: FailureCode,
    /// One sentence without addresses, credentials or row values.
    pub message: String,
    /// Whether trying again may help.
    pub disposition: Disposition,
    /// Everything else.
    #[source]
    pub cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl From<&SourceError> for Failure {
    fn from(error: &SourceError) -> Self {
        Self::new(error.code, &error.message).with_disposition(error.disposition)
    }
}
