//! Batches on their way from the reader to the consumer: few, bounded, and used again.

use std::{
    mem,
    time::{Duration, Instant},
};

use outport_domain::limits::fixed::BATCH_BYTES;
use tokio::sync::mpsc;

use crate::{Batch, Next, SourceError};

/// Full batches that may wait for the consumer.
const WAITING: usize = 2;

/// A batch that grew beyond this, for one huge row, is not used again.
const LARGEST_KEPT: usize = 4 * BATCH_BYTES;

/// Rows older than this are handed over in a batch that is not full, so that a slow query
/// shows its progress.
pub(crate) const OLDEST_ROW: Duration = Duration::from_millis(500);

enum Message {
    Rows(Batch),
    End { rows: u64 },
}

/// Both ends of a handoff.
pub(crate) fn handoff(columns: usize) -> (Producer, Consumer) {
    let (full, filled) = mpsc::channel(WAITING);
    let (used, free) = mpsc::channel(WAITING + 2);
    let producer = Producer {
        columns,
        batch: Batch::new(columns),
        rows: 0,
        since: Instant::now(),
        full,
        free,
    };
    (producer, Consumer { columns, filled, used, ended: None })
}

/// The consumer went away: nobody wants further rows.
#[derive(Debug)]
pub(crate) struct Gone;

/// The reader's end.
pub(crate) struct Producer {
    columns: usize,
    /// The batch being filled.
    pub(crate) batch: Batch,
    /// Rows handed over.
    rows: u64,
    /// When the batch was begun.
    since: Instant,
    full: mpsc::Sender<Result<Message, SourceError>>,
    free: mpsc::Receiver<Batch>,
}

impl Producer {
    /// Rows handed over and waiting in the batch.
    pub(crate) fn rows(&self) -> u64 {
        self.rows + self.batch.rows() as u64
    }

    /// Whether the batch is large enough to be handed over.
    pub(crate) fn is_full(&self) -> bool {
        // Cells without bytes take room too: four bytes each for where they end.
        self.batch.len_bytes() >= BATCH_BYTES
            || self.batch.rows() * self.columns >= BATCH_BYTES / size_of::<u32>()
    }

    /// Whether the batch was begun so long ago that it should not wait to be full.
    pub(crate) fn is_old(&self) -> bool {
        self.since.elapsed() >= OLDEST_ROW
    }

    fn take(&mut self) -> Option<Message> {
        self.since = Instant::now();
        if self.batch.is_empty() {
            return None;
        }
        self.rows += self.batch.rows() as u64;
        let mut next = self.free.try_recv().unwrap_or_else(|_| Batch::new(self.columns));
        next.clear();
        Some(Message::Rows(mem::replace(&mut self.batch, next)))
    }

    /// Hands the batch over, waiting for room.
    pub(crate) async fn hand_over(&mut self) -> Result<(), Gone> {
        match self.take() {
            Some(message) => self.full.send(Ok(message)).await.map_err(|_| Gone),
            None => Ok(()),
        }
    }

    /// Says that the database itself declared the result complete. The batch must be handed over.
    pub(crate) async fn end(self) -> Result<(), Gone> {
        self.full.send(Ok(Message::End { rows: self.rows })).await.map_err(|_| Gone)
    }

    /// The last word of a reader that failed.
    pub(crate) async fn fail(self, error: SourceError) -> Result<(), Gone> {
        self.full.send(Err(error)).await.map_err(|_| Gone)
    }

    /// [`Producer::hand_over`] for a thread that may block.
    pub(crate) fn hand_over_blocking(&mut self) -> Result<(), Gone> {
        match self.take() {
            Some(message) => self.full.blocking_send(Ok(message)).map_err(|_| Gone),
            None => Ok(()),
        }
    }

    /// [`Producer::end`] for a thread that may block.
    pub(crate) fn end_blocking(self) -> Result<(), Gone> {
        self.full.blocking_send(Ok(Message::End { rows: self.rows })).map_err(|_| Gone)
    }

    /// [`Producer::fail`] for a thread that may block.
    pub(crate) fn fail_blocking(self, error: SourceError) -> Result<(), Gone> {
        self.full.blocking_send(Err(error)).map_err(|_| Gone)
    }
}

/// The stream's end.
pub(crate) struct Consumer {
    columns: usize,
    filled: mpsc::Receiver<Result<Message, SourceError>>,
    used: mpsc::Sender<Batch>,
    ended: Option<u64>,
}

impl Consumer {
    /// What [`crate::RowStream::next`] promises.
    pub(crate) async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        batch.clear();
        if let Some(rows) = self.ended {
            return Ok(Next::End { rows });
        }
        match self.filled.recv().await {
            Some(Ok(Message::Rows(filled))) => {
                self.take_back(mem::replace(batch, filled));
                Ok(Next::Rows)
            }
            Some(Ok(Message::End { rows })) => {
                self.ended = Some(rows);
                Ok(Next::End { rows })
            }
            Some(Err(error)) => Err(error),
            None => Err(SourceError::reader_lost()),
        }
    }

    fn take_back(&self, used: Batch) {
        if used.columns() == self.columns && used.capacity_bytes() <= LARGEST_KEPT {
            // A full channel means that enough batches are about; this one may go.
            drop(self.used.try_send(used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::handoff;
    use crate::{Batch, Next};

    #[tokio::test]
    async fn a_reader_that_ends_without_a_word_is_an_error_not_an_end() {
        let (mut producer, mut consumer) = handoff(1);
        producer.batch.push(b"a");
        producer.hand_over().await.expect("a consumer");
        drop(producer);
        let mut batch = Batch::new(1);
        assert_eq!(consumer.next(&mut batch).await.expect("rows"), Next::Rows);
        assert!(consumer.next(&mut batch).await.is_err());
        assert!(consumer.next(&mut batch).await.is_err());
    }

    #[tokio::test]
    async fn the_end_counts_the_rows_and_stays_the_end() {
        let (mut producer, mut consumer) = handoff(2);
        for _ in 0..3 {
            producer.batch.push(b"a");
            producer.batch.push_null();
        }
        producer.hand_over().await.expect("a consumer");
        producer.end().await.expect("a consumer");
        // The caller's batch may be of another shape; it must not travel back to the reader.
        let mut batch = Batch::new(1);
        assert_eq!(consumer.next(&mut batch).await.expect("rows"), Next::Rows);
        assert_eq!(batch.rows(), 3);
        for _ in 0..2 {
            assert_eq!(consumer.next(&mut batch).await.expect("an end"), Next::End { rows: 3 });
            assert!(batch.is_empty());
        }
    }
}
