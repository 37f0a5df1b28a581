//! Batches on their way from the reader to the consumer: few, bounded, and used again.
//!
//! One result may be read by several readers, each with a handoff of its own. It is then cut into
//! *parts* that the readers read in turns, and [`Turns`] puts them in order again.

use std::{
    mem,
    time::{Duration, Instant},
};

use outport_domain::limits::fixed::BATCH_BYTES;
use tokio::sync::mpsc;

use crate::{Batch, Next, SourceError};

/// Full batches that may wait for the consumer.
pub(crate) const WAITING: usize = 2;

/// Room of a fresh batch: it is handed over by the row that fills it.
const ROOM: usize = BATCH_BYTES + BATCH_BYTES / 8;

/// A batch that grew beyond this, for one huge row, is not used again.
const LARGEST_KEPT: usize = 4 * BATCH_BYTES;

/// Rows older than this are handed over in a batch that is not full, so that a slow query
/// shows its progress.
pub(crate) const OLDEST_ROW: Duration = Duration::from_millis(500);

enum Message {
    Rows(Batch),
    PartEnd,
    End { rows: u64 },
}

/// Both ends of a handoff.
pub(crate) fn handoff(columns: usize) -> (Producer, Consumer) {
    handoff_of(columns, WAITING)
}

/// Both ends of a handoff in which so many full batches may wait.
pub(crate) fn handoff_of(columns: usize, waiting: usize) -> (Producer, Consumer) {
    let (full, filled) = mpsc::channel(waiting);
    let (used, free) = mpsc::channel(waiting + 2);
    let producer = Producer {
        columns,
        batch: Batch::with_room(columns, ROOM),
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
        self.batch.bytes().len() >= BATCH_BYTES
            || self.batch.len_cells() >= BATCH_BYTES / size_of::<u32>()
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
        let mut next =
            self.free.try_recv().unwrap_or_else(|_| Batch::with_room(self.columns, ROOM));
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

    /// Hands the batch over and says that a part of the result is whole.
    pub(crate) async fn end_part(&mut self) -> Result<(), Gone> {
        self.hand_over().await?;
        self.full.send(Ok(Message::PartEnd)).await.map_err(|_| Gone)
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

/// What came.
enum Taken {
    Rows,
    PartEnd,
    End { rows: u64 },
}

impl Consumer {
    /// What [`crate::RowStream::next`] promises.
    pub(crate) async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        loop {
            match self.take(batch).await? {
                Taken::Rows => return Ok(Next::Rows),
                Taken::PartEnd => {}
                Taken::End { rows } => return Ok(Next::End { rows }),
            }
        }
    }

    async fn take(&mut self, batch: &mut Batch) -> Result<Taken, SourceError> {
        batch.clear();
        if let Some(rows) = self.ended {
            return Ok(Taken::End { rows });
        }
        match self.filled.recv().await {
            Some(Ok(Message::Rows(filled))) => {
                self.take_back(mem::replace(batch, filled));
                Ok(Taken::Rows)
            }
            Some(Ok(Message::PartEnd)) => Ok(Taken::PartEnd),
            Some(Ok(Message::End { rows })) => {
                self.ended = Some(rows);
                Ok(Taken::End { rows })
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

/// The consumers of one result that is read by several readers: the first part comes from the
/// first reader, the second from the second, and so on, round and round.
pub(crate) struct Turns {
    consumers: Vec<Consumer>,
    /// Whose turn it is.
    turn: usize,
    /// Readers that came to their end.
    ended: usize,
    rows: u64,
}

impl Turns {
    /// Of at least one reader. A single one need not end any part.
    pub(crate) fn new(consumers: Vec<Consumer>) -> Self {
        assert!(!consumers.is_empty(), "somebody reads");
        Self { consumers, turn: 0, ended: 0, rows: 0 }
    }

    /// What [`crate::RowStream::next`] promises: the end is the end of every reader.
    pub(crate) async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        while self.ended < self.consumers.len() {
            match self.consumers[self.turn].take(batch).await? {
                // After the last part nothing but ends may come.
                Taken::Rows | Taken::PartEnd if self.ended > 0 => {
                    return Err(SourceError::reader_lost());
                }
                Taken::Rows => return Ok(Next::Rows),
                Taken::PartEnd => {}
                Taken::End { rows } => {
                    self.ended += 1;
                    self.rows += rows;
                }
            }
            self.turn = (self.turn + 1) % self.consumers.len();
        }
        batch.clear();
        Ok(Next::End { rows: self.rows })
    }
}

#[cfg(test)]
mod tests {
    use super::{Turns, handoff};
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

    #[tokio::test]
    async fn parts_come_in_order_and_the_end_is_the_end_of_all() {
        let (mut first, first_consumer) = handoff(1);
        let (mut second, second_consumer) = handoff(1);
        let mut turns = Turns::new(vec![first_consumer, second_consumer]);
        // The second is ahead of the first; the third part has no rows.
        second.batch.push(b"b");
        second.end_part().await.expect("a consumer");
        first.batch.push(b"a");
        let reading = tokio::spawn(async move {
            first.end_part().await.expect("a consumer");
            first.end_part().await.expect("a consumer");
            first.end().await.expect("a consumer");
            second.batch.push(b"d");
            second.batch.push(b"d");
            second.end_part().await.expect("a consumer");
            second.end().await.expect("a consumer");
        });
        let mut batch = Batch::new(1);
        let mut seen = Vec::new();
        while turns.next(&mut batch).await.expect("rows") == Next::Rows {
            seen.extend(batch.cells().flatten().flatten().copied());
        }
        assert_eq!(seen, b"abdd");
        assert_eq!(turns.next(&mut batch).await.expect("the end"), Next::End { rows: 4 });
        reading.await.expect("both ended");
    }

    #[tokio::test]
    async fn one_reader_that_is_lost_is_no_end_of_all() {
        let (mut first, first_consumer) = handoff(1);
        let (second, second_consumer) = handoff(1);
        let mut turns = Turns::new(vec![first_consumer, second_consumer]);
        let mut batch = Batch::new(1);
        drop(second);
        first.end_part().await.expect("a consumer");
        first.end().await.expect("a consumer");
        assert!(turns.next(&mut batch).await.is_err());
    }

    #[tokio::test]
    async fn a_reader_that_ends_before_its_turn_is_over_is_no_end() {
        let (mut first, first_consumer) = handoff(1);
        let (second, second_consumer) = handoff(1);
        let mut turns = Turns::new(vec![second_consumer, first_consumer]);
        let mut batch = Batch::new(1);
        second.end().await.expect("a consumer");
        first.batch.push(b"a");
        first.end_part().await.expect("a consumer");
        assert!(turns.next(&mut batch).await.is_err());
    }
}
