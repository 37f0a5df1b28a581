//! SQLite files: opened read-only on a blocking thread, one read transaction, every value by
//! the storage class that it really has.
//!
//! | Stored as | Printed as |
//! |---|---|
//! | INTEGER | its digits; a boolean hence as `0` or `1` |
//! | REAL | the shortest text that reads back the same, such as `1.0` or `1e300` |
//! | TEXT | its bytes, be they valid UTF-8 or not |
//! | BLOB | `\x` and hex digits; sixteen bytes in a column declared UUID in canonical form |
//!
//! Instants are ISO texts in UTC unless they carry an offset, with `T` or a space between day
//! and time; filters compare what they mean, the file holds them as they are stored. UUIDs are
//! texts in canonical form or sixteen bytes.
//!
//! Unless the file is in WAL mode, writers wait while rows are read; the log says so, once.

pub(crate) mod functions;
#[cfg(test)]
mod plans;
mod reader;
mod schema;

use std::{
    path::PathBuf,
    sync::{
        Arc, Once,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_domain::selection::Selection;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{Batch, Next, RowStream, Source, SourceError, handoff, handoff::Consumer, several};

/// One SQLite file.
pub struct SqliteSource {
    path: PathBuf,
    warned: Once,
}

impl SqliteSource {
    /// A source; the file is not touched yet.
    pub const fn new(path: PathBuf) -> Self {
        Self { path, warned: Once::new() }
    }

    fn warn_of_waiting_writers(&self) {
        self.warned.call_once(|| {
            tracing::warn!(
                file = %self.path.display(),
                "an SQLite source is not in WAL mode: who writes to it waits while it is read"
            );
        });
    }
}

#[async_trait]
impl Source for SqliteSource {
    async fn open(&self, selection: &Selection) -> Result<Box<dyn RowStream>, SourceError> {
        let mut streams = self.open_several(&[selection]).await?;
        streams.pop().ok_or_else(SourceError::reader_lost)
    }

    async fn open_several(
        &self,
        selections: &[&Selection],
    ) -> Result<Vec<Box<dyn RowStream>>, SourceError> {
        let stop = Stop::default();
        let (mut reads, mut consumers) = (Vec::new(), Vec::new());
        for &selection in selections {
            let (producer, consumer) = handoff::handoff(selection.columns.len().max(1));
            reads.push((selection.clone(), producer));
            consumers.push(consumer);
        }
        let (opened, when_opened) = oneshot::channel();
        let task = tokio::task::spawn_blocking({
            let (path, stop) = (self.path.clone(), stop.flag());
            move || reader::run(&path, reads, stop, opened)
        });
        let Opened { snapshot_at, is_wal } =
            when_opened.await.map_err(|_| SourceError::reader_lost())??;
        if !is_wal {
            self.warn_of_waiting_writers();
        }
        Ok(several::streams(snapshot_at, consumers, |consumer| {
            Box::new(SqliteStream { snapshot_at, consumer, task, stop })
        }))
    }

    async fn check(&self) -> Result<(), SourceError> {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || reader::check(&path))
            .await
            .map_err(|_| SourceError::reader_lost())?
    }
}

/// What is known of a file that is being read.
struct Opened {
    snapshot_at: DateTime<Utc>,
    is_wal: bool,
}

/// Ends the query when it is dropped. A flag that the engine itself asks for now and then: an
/// interrupt is lost when it comes between two statements.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct SqliteStream {
    snapshot_at: DateTime<Utc>,
    consumer: Consumer,
    task: JoinHandle<()>,
    stop: Stop,
}

#[async_trait]
impl RowStream for SqliteStream {
    fn snapshot_at(&self) -> DateTime<Utc> {
        self.snapshot_at
    }

    async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        self.consumer.next(batch).await
    }

    async fn cancel(self: Box<Self>) {
        let Self { consumer, task, stop, .. } = *self;
        drop(stop);
        // The reader may be waiting for room.
        drop(consumer);
        if let Err(error) = task.await {
            tracing::warn!(%error, "the reader of an SQLite file ended badly");
        }
    }
}
