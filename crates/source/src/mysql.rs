//! MySQL and MariaDB: a connection of its own, one read-only transaction with a consistent
//! snapshot, one query in the text protocol: the server's own text, row by row.
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
//! Tables without snapshots (any storage engine but `InnoDB`) are refused. A table that is
//! truncated or altered after the snapshot is an error, and tried again.
//!
//! Absent on purpose: the binary protocol, RSA (passwords of `caching_sha2_password` travel
//! encrypted by TLS), and reading in parallel.

mod cells;
mod estimate;
mod failure;
#[cfg(test)]
mod plans;
mod reader;
mod relation;
mod schema;
mod session;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_domain::selection::Selection;
use sqlx::{Connection, mysql::MySqlConnectOptions};
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
        let mut connection = self.server.connect().await?;
        let thread = Thread::of(&mut connection, self.server.clone()).await?;
        session::pin(&mut connection).await?;
        let types = relation::real_types(&mut connection, selection).await?;
        relation::check_snapshots(&mut connection, &selection.relation).await?;
        let mut dialect = MySql::new(types);
        let sql = thread.marked(&compile::select(&mut dialect, selection)?);
        let forms = forms(&dialect, selection)?;
        session::set_parameters(&mut connection, &dialect.parameters).await?;
        let estimated_rows = estimate::rows(&mut connection, &sql).await;
        let snapshot_at = session::take_snapshot(&mut connection).await?;
        // The text protocol runs many statements at once; to prepare is to allow only one.
        relation::prepare(&mut connection, &sql).await?;
        let (producer, consumer) = handoff::handoff(selection.columns.len());
        let reads = vec![(reader::Statement { sql, forms }, producer)];
        let task = AbortOnDrop(tokio::spawn(reader::run_each(connection, reads)));
        Ok(Box::new(MySqlStream { snapshot_at, estimated_rows, consumer, task, thread }))
    }

    async fn open_all(
        &self,
        selections: &[&Selection],
    ) -> Result<Vec<Box<dyn RowStream>>, SourceError> {
        if let [only] = selections {
            return Ok(vec![self.open(only).await?]);
        }
        let mut connection = self.server.connect().await?;
        let thread = Thread::of(&mut connection, self.server.clone()).await?;
        session::pin(&mut connection).await?;
        let mut parameters = Vec::new();
        let mut reads = Vec::with_capacity(selections.len());
        let mut consumers = Vec::with_capacity(selections.len());
        for selection in selections {
            let types = relation::real_types(&mut connection, selection).await?;
            relation::check_snapshots(&mut connection, &selection.relation).await?;
            let mut dialect = MySql::new(types);
            dialect.parameters = parameters;
            let sql = thread.marked(&compile::select(&mut dialect, selection)?);
            let forms = forms(&dialect, selection)?;
            parameters = dialect.parameters;
            let (producer, consumer) = handoff::handoff(selection.columns.len());
            reads.push((reader::Statement { sql, forms }, producer));
            consumers.push(consumer);
        }
        session::set_parameters(&mut connection, &parameters).await?;
        let snapshot_at = session::take_snapshot(&mut connection).await?;
        for (statement, _) in &reads {
            relation::prepare(&mut connection, &statement.sql).await?;
        }
        let task = AbortOnDrop(tokio::spawn(reader::run_each(connection, reads)));
        Ok(several::streams(snapshot_at, consumers, |consumer| {
            Box::new(MySqlStream { snapshot_at, estimated_rows: None, consumer, task, thread })
        }))
    }

    async fn estimate(&self, selection: &Selection) -> Result<Option<u64>, SourceError> {
        let mut connection = self.server.connect().await?;
        session::pin(&mut connection).await?;
        let mut dialect = MySql::new(relation::real_types(&mut connection, selection).await?);
        let sql = compile::select(&mut dialect, selection)?;
        session::set_parameters(&mut connection, &dialect.parameters).await?;
        let rows = estimate::rows(&mut connection, &sql).await;
        connection.close().await.map_err(|error| failure(error, Stage::Query))?;
        Ok(rows)
    }

    async fn check(&self) -> Result<(), SourceError> {
        let mut connection = self.server.connect().await?;
        session::rows(&mut connection, "SELECT 1").await?;
        connection.close().await.map_err(|error| failure(error, Stage::Query))
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
