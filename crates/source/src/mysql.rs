//! MySQL and MariaDB: a connection of its own, one read-only transaction with its tables
//! locked before its snapshot, one query in the text protocol: the server's own text, row by row.
//!
//! | Real type | Printed as |
//! |---|---|
//! | integers, DECIMAL, DOUBLE, YEAR | as the server does; `TINYINT(1)` hence as its number |
//! | FLOAT | the shortest text that reads back the same; the server itself would show six digits |
//! | BIT | its number |
//! | DATE, DATETIME, TIME | as stored: `0000-00-00` and `-100:00:00` are values |
//! | TIMESTAMP | the instant in the selection's zone with its offset, `2026-07-01 09:00:00-03` |
//! | texts, ENUM, SET, JSON, UUID | the text in UTF-8, whatever the column's character set |
//! | BLOB, BINARY, geometries | `\x` and hex digits; sixteen bytes declared UUID in canonical form |
//!
//! Tables without snapshots (any storage engine but `InnoDB`) are refused. Who truncates, alters
//! or renames a table waits until it is read: its lock is taken before the snapshot.
//!
//! Absent on purpose: the binary protocol, RSA (passwords of `caching_sha2_password` travel
//! encrypted by TLS), and reading in parallel.

mod behind;
mod cells;
mod estimate;
mod failure;
#[cfg(test)]
mod plans;
mod reader;
mod relation;
mod schema;
mod session;
mod snapshot;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_domain::selection::Selection;
use sqlx::{Connection, MySqlConnection, mysql::MySqlConnectOptions};
use tokio::task::JoinHandle;

use crate::{
    Batch, Next, RowStream, Source, SourceError, compile, compile::mysql::MySql, handoff,
    handoff::Consumer, malformed, several,
};
use cells::Form;
use failure::{Stage, failure};
use session::{Server, Thread};

/// How long a cancel may take before the connection is closed all the same.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// One MySQL or MariaDB server.
pub struct MySqlSource {
    server: Server,
}

/// What is wrong with the form of a URL, if anything is.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    url.parse::<MySqlConnectOptions>().map(|_| ()).map_err(|error| malformed(&error))
}

impl MySqlSource {
    /// A source; nothing is connected to yet.
    pub fn new(url: String, connect_timeout: Duration) -> Self {
        Self { server: Server { url, tls: Arc::default(), connect_timeout } }
    }

    /// The same source, with certificates at hand.
    #[must_use]
    pub fn with_tls(self, tls: Arc<crate::Tls>) -> Self {
        Self { server: Server { tls, ..self.server } }
    }
}

#[async_trait]
impl Source for MySqlSource {
    async fn open(&self, selection: &Selection) -> Result<Box<dyn RowStream>, SourceError> {
        let mut opened = Opened::of(&self.server, &[selection]).await?;
        let sql = &opened.statements[0].sql;
        let estimated_rows = estimate::rows(&mut opened.connection, sql).await?;
        let mut streams = opened.read(&[selection], estimated_rows);
        Ok(streams.remove(0))
    }

    async fn open_several(
        &self,
        selections: &[&Selection],
    ) -> Result<Vec<Box<dyn RowStream>>, SourceError> {
        Ok(Opened::of(&self.server, selections).await?.read(selections, None))
    }

    async fn estimate(&self, selection: &Selection) -> Result<Option<u64>, SourceError> {
        let mut connection = self.server.connect().await?;
        session::pin(&mut connection).await?;
        session::bound(&mut connection).await?;
        let mut dialect = MySql::new(relation::real_types(&mut connection, selection).await?);
        let sql = compile::select(&mut dialect, selection)?;
        session::set_parameters(&mut connection, &dialect.parameters).await?;
        let rows = estimate::rows(&mut connection, &sql).await?;
        connection.close().await.map_err(|error| failure(error, Stage::Query))?;
        Ok(rows)
    }

    async fn check(&self) -> Result<(), SourceError> {
        let mut connection = self.server.connect().await?;
        session::rows(&mut connection, "SELECT 1").await?;
        connection.close().await.map_err(|error| failure(error, Stage::Query))
    }
}

/// A connection that holds its locks and its snapshot, and what is to be read over it.
struct Opened {
    connection: MySqlConnection,
    thread: Thread,
    snapshot_at: DateTime<Utc>,
    statements: Vec<reader::Statement>,
}

impl Opened {
    async fn of(server: &Server, selections: &[&Selection]) -> Result<Self, SourceError> {
        let mut connection = server.connect().await?;
        let thread = Thread::of(&mut connection, server.clone()).await?;
        session::pin(&mut connection).await?;
        let before = snapshot::take(&mut connection, &thread, None).await?;
        snapshot::lock(&mut connection, &thread, selections).await?;
        // From here on tables and columns stay what they are.
        let (mut table, mut looked_at, mut is_read_by_planning) = (None, None, false);
        let mut parameters = Vec::new();
        let mut statements = Vec::with_capacity(selections.len());
        for selection in selections {
            let types = relation::real_types(&mut connection, selection).await?;
            let behind = behind::check_snapshots(&mut connection, selection).await?;
            table = table.or(behind.table);
            looked_at = looked_at.or(behind.looked_at);
            is_read_by_planning |= behind.is_read_by_planning;
            let mut dialect = MySql::new(types);
            dialect.parameters = parameters;
            let sql = thread.marked(&compile::select(&mut dialect, selection)?);
            let (forms, converts_bytes) = (forms(&dialect, selection)?, dialect.converts_bytes);
            statements.push(reader::Statement { sql, forms, converts_bytes });
            parameters = dialect.parameters;
        }
        let now = snapshot::take(&mut connection, &thread, table.as_ref()).await?;
        // Whoever looks for a first row while planning makes the view, at some time between.
        let snapshot_at = if is_read_by_planning { before } else { looked_at.unwrap_or(now) };
        session::set_parameters(&mut connection, &parameters).await?;
        // The text protocol runs many statements at once; to prepare is to allow only one.
        for statement in &statements {
            relation::prepare(&mut connection, &statement.sql).await?;
        }
        Ok(Self { connection, thread, snapshot_at, statements })
    }

    /// Starts reading.
    fn read(
        self,
        selections: &[&Selection],
        estimated_rows: Option<u64>,
    ) -> Vec<Box<dyn RowStream>> {
        let Self { connection, thread, snapshot_at, statements } = self;
        let ends = selections.iter().map(|selection| handoff::handoff(selection.columns.len()));
        let (producers, consumers): (Vec<_>, Vec<_>) = ends.unzip();
        let reads = statements.into_iter().zip(producers).collect();
        let task = AbortOnDrop(tokio::spawn(reader::run_each(connection, reads)));
        several::streams(snapshot_at, consumers, |consumer| {
            Box::new(MySqlStream { snapshot_at, estimated_rows, consumer, task, thread })
        })
    }
}

/// How the cells of a selection are printed.
fn forms(dialect: &MySql, selection: &Selection) -> Result<Vec<Form>, SourceError> {
    let columns = selection.columns.iter();
    columns
        .map(|column| Ok(Form::of(column, dialect.real_type(column)?, selection.time_zone)))
        .collect()
}

/// Drops the reader, and its connection with it.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The order of the fields is the order of their end: first the connection is closed, then the
/// server is told to give up what it may still be computing.
struct MySqlStream {
    snapshot_at: DateTime<Utc>,
    estimated_rows: Option<u64>,
    consumer: Consumer,
    task: AbortOnDrop,
    thread: Thread,
}

#[async_trait]
impl RowStream for MySqlStream {
    fn snapshot_at(&self) -> DateTime<Utc> {
        self.snapshot_at
    }

    fn estimated_rows(&self) -> Option<u64> {
        self.estimated_rows
    }

    async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        let next = self.consumer.next(batch).await?;
        if let Next::End { .. } = next {
            self.thread.is_done();
        }
        Ok(next)
    }

    async fn cancel(self: Box<Self>) {
        let Self { mut task, mut thread, consumer, .. } = *self;
        // First the kill, then the socket: a server that is computing notices the former, one
        // that is waiting for us to read the latter.
        if let Err(error) = thread.cancel(CANCEL_TIME).await {
            tracing::warn!(error = %error, "a query could not be canceled; its connection is closed");
        }
        drop(consumer);
        task.0.abort();
        // Aborted or ended; either way the connection is closed after this.
        if let Err(error) = (&mut task.0).await
            && error.is_panic()
        {
            tracing::error!("the reader of a MySQL source panicked");
        }
    }
}
