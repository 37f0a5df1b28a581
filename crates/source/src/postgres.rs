//! PostgreSQL: a connection of its own, one `REPEATABLE READ READ ONLY` transaction, the base
//! tables locked before the snapshot, then `COPY … TO STDOUT`: the server's own text.
//!
//! Printed is what the server prints with the settings of `session` pinned: booleans as `t`
//! and `f`, bytes as `\x` and hex digits, instants in the selection's zone, floats as the
//! shortest text that reads back the same. Arrays and composites of columns declared JSON are
//! JSON; everything else is as the server's type writes itself.
//!
//! Columns declared text may be enums: equality compares labels and uses indexes, the rest
//! compares the label's text.
//!
//! Absent on purpose: the binary format, and reading in parallel.

mod copy_text;
mod failure;
#[cfg(test)]
mod plans;
mod reader;
mod relation;
mod session;

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_domain::selection::Selection;
use sqlx::Connection;
use tokio::task::JoinHandle;

use crate::{
    Batch, Next, RowStream, Source, SourceError, compile, compile::postgres::Postgres, handoff,
    handoff::Consumer,
};
use failure::{Stage, failure};
use session::{Backend, Server};

/// How long a cancel may take before the connection is closed all the same.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// One PostgreSQL server.
pub struct PostgresSource {
    server: Server,
}

impl PostgresSource {
    /// A source; nothing is connected to yet.
    pub const fn new(url: String, connect_timeout: Duration) -> Self {
        Self { server: Server { url, connect_timeout } }
    }
}

#[async_trait]
impl Source for PostgresSource {
    async fn open(&self, selection: &Selection) -> Result<Box<dyn RowStream>, SourceError> {
        let mut connection = self.server.connect().await?;
        let backend = Backend::of(&mut connection, self.server.clone()).await?;
        session::pin(&mut connection, selection.time_zone).await?;
        let types = relation::real_types(&mut connection, selection).await?;
        let tables = relation::base_tables(&mut connection, &selection.relation).await?;
        let mut dialect = Postgres::new(types);
        let sql = compile::select(&mut dialect, selection)?;
        session::begin(&mut connection, &tables).await?;
        let snapshot_at = session::take_snapshot(&mut connection, &dialect.parameters).await?;
        let columns = selection.columns.len();
        let (producer, consumer) = handoff::handoff(columns);
        let task = tokio::spawn(reader::run(connection, sql, columns, producer));
        Ok(Box::new(PostgresStream { snapshot_at, consumer, task: AbortOnDrop(task), backend }))
    }

    async fn check(&self) -> Result<(), SourceError> {
        let mut connection = self.server.connect().await?;
        sqlx::raw_sql("SELECT 1")
            .execute(&mut connection)
            .await
            .map_err(|error| failure(error, Stage::Query))?;
        connection.close().await.map_err(|error| failure(error, Stage::Query))
    }
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
struct PostgresStream {
    snapshot_at: DateTime<Utc>,
    consumer: Consumer,
    task: AbortOnDrop,
    backend: Backend,
}

#[async_trait]
impl RowStream for PostgresStream {
    fn snapshot_at(&self) -> DateTime<Utc> {
        self.snapshot_at
    }

    async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        let next = self.consumer.next(batch).await?;
        if let Next::End { .. } = next {
            self.backend.is_done();
        }
        Ok(next)
    }

    async fn cancel(self: Box<Self>) {
        let Self { mut task, mut backend, consumer, .. } = *self;
        // First the cancel, then the socket: a server that is computing notices the former,
        // one that is waiting for us to read the latter.
        if let Err(error) = backend.cancel(CANCEL_TIME).await {
            tracing::warn!(error = %error, "a query could not be canceled; its connection is closed");
        }
        drop(consumer);
        task.0.abort();
        // Aborted or ended; either way the connection is closed after this.
        if let Err(error) = (&mut task.0).await
            && error.is_panic()
        {
            tracing::error!("the reader of a PostgreSQL source panicked");
        }
    }
}
