//! The task that owns a connection: reads COPY's streams into batches.
//!
//! The end is proven: sqlx ends the stream only after `CopyDone`, `CommandComplete` and
//! `ReadyForQuery` have come, and a connection that breaks before is an error (0.9, `copy.rs`).
//! On top of that the transaction's COMMIT must be answered.
//!
//! Measured, in processor seconds for a million rows of the six columns of `tests/bench` on two
//! cores: 0.50 of the server, where its text form takes 0.66; 0.39 of ours. Of these the kernel
//! has 0.07, SHA-256 0.05, CSV 0.07, printing 0.08, and 0.09 are sqlx's: a message of its own, a
//! locked mutex and shared bytes for each row. A reader of the socket of our own, tried without
//! its printing, took 0.03 with all it asked of the kernel; it would have to log in by itself.
//! Within 3 % of each other, so left as they are: two, three and one connection; ranges of 256
//! and of 1,024 pages; reads of 8 and of 64 KiB.

use std::pin::pin;

use futures::TryStreamExt;
use outport_domain::failure::FailureCode;
use sqlx::PgConnection;
use tokio::time::Instant;

use super::{
    copy_binary::CopyBinary,
    copy_text::{CopyText, Malformed},
    failure::{Stage, failure, lost},
    print::Form,
    ranges::Statement,
};
use crate::{
    Batch, SourceError,
    handoff::{OLDEST_ROW, Producer},
    server::{self, Ended},
};

/// What one connection reads.
pub(super) struct Share {
    pub(super) statement: Statement,
    /// Which of the readers this is, from zero, and how many there are.
    pub(super) reader: usize,
    pub(super) readers: usize,
    pub(super) wire: Wire,
}

/// The form in which rows travel.
#[derive(Clone)]
pub(super) enum Wire {
    /// So many columns as the server's own text.
    Text(usize),
    /// As bytes, which we print.
    Binary(Vec<Form>),
}

/// Copies a share of the query's result until its end, an error, or nobody wants it.
pub(super) async fn run(connection: PgConnection, share: Share, producer: Producer) {
    run_each(connection, vec![(share, producer)]).await;
}

/// Copies several results, one after the other, until the end of the last of them, an error, or
/// nobody wants them.
pub(super) async fn run_each(mut connection: PgConnection, reads: Vec<(Share, Producer)>) {
    let mut reads = reads.into_iter().peekable();
    while let Some((share, mut producer)) = reads.next() {
        let mut read = copy_all(&mut connection, &share, &mut producer).await;
        if read.is_ok() && reads.peek().is_some() {
            if producer.end().await.is_err() {
                return;
            }
            continue;
        }
        if read.is_ok() {
            read = commit(&mut connection, &producer).await;
        }
        return server::end(connection, producer, read).await;
    }
}

async fn copy_all(
    connection: &mut PgConnection,
    share: &Share,
    producer: &mut Producer,
) -> Result<(), Ended> {
    let mut decoder = Decoder::new(&share.wire);
    for sql in share.statement.share(share.reader, share.readers) {
        copy(connection, &sql, &mut decoder, producer).await?;
        if share.statement.has_parts() {
            producer.end_part().await?;
        } else {
            producer.hand_over().await?;
        }
    }
    Ok(())
}

async fn commit(connection: &mut PgConnection, producer: &Producer) -> Result<(), Ended> {
    sqlx::raw_sql("COMMIT")
        .execute(connection)
        .await
        .map_err(|error| failure(error, Stage::of(producer)))?;
    Ok(())
}

async fn copy(
    connection: &mut PgConnection,
    sql: &str,
    decoder: &mut Decoder,
    producer: &mut Producer,
) -> Result<(), Ended> {
    let sql = format!("COPY ({sql}) TO STDOUT{}", decoder.options());
    let mut stream =
        connection.copy_out_raw(&sql).await.map_err(|error| failure(error, Stage::of(producer)))?;
    // Runs while rows wait in a batch that is not full.
    let mut old = pin!(tokio::time::sleep(OLDEST_ROW));
    loop {
        let piece = tokio::select! {
            biased;
            piece = stream.try_next() => piece,
            () = &mut old, if !producer.batch.is_empty() => {
                producer.hand_over().await?;
                continue;
            }
        };
        let Some(piece) = piece.map_err(|error| failure(error, Stage::of(producer)))? else {
            break;
        };
        if producer.batch.is_empty() {
            old.as_mut().reset(Instant::now() + OLDEST_ROW);
        }
        decoder.take(&piece, &mut producer.batch).map_err(malformed)?;
        if producer.is_full() {
            producer.hand_over().await?;
        }
    }
    if decoder.is_at_end() { Ok(()) } else { Err(Ended::Failed(lost(Stage::Rows))) }
}

enum Decoder {
    Text(CopyText),
    Binary(CopyBinary),
}

impl Decoder {
    fn new(wire: &Wire) -> Self {
        match wire {
            Wire::Text(columns) => Self::Text(CopyText::new(*columns)),
            Wire::Binary(forms) => Self::Binary(CopyBinary::new(forms.clone())),
        }
    }

    const fn options(&self) -> &'static str {
        match self {
            Self::Text(_) => "",
            Self::Binary(_) => " (FORMAT binary)",
        }
    }

    fn take(&mut self, piece: &[u8], batch: &mut Batch) -> Result<(), Malformed> {
        match self {
            Self::Text(text) => text.take(piece, batch),
            Self::Binary(binary) => binary.take(piece, batch),
        }
    }

    /// Whether what has come is whole. Another statement may follow.
    fn is_at_end(&mut self) -> bool {
        match self {
            Self::Text(text) => text.is_at_row_end(),
            Self::Binary(binary) => binary.is_at_end(),
        }
    }
}

fn malformed(malformed: Malformed) -> SourceError {
    match malformed {
        Malformed::TooLarge => SourceError::row_too_large(),
        Malformed::Cells | Malformed::Escape => SourceError::new(
            FailureCode::SourceTruncated,
            "the source database sent a row that is not whole",
        ),
    }
}
