//! The task that owns the connection: reads the result's rows into batches.
//!
//! The end is proven: sqlx 0.9 reports a result's end only when its end packet has come, and a
//! connection that breaks before is an error (`executor.rs`). On top of that the server is
//! asked how many rows it sent and what it warned of, and the transaction's COMMIT must be
//! answered.

use std::pin::pin;

use futures::TryStreamExt;
use outport_domain::failure::FailureCode;
use sqlx::{AssertSqlSafe, Either, Executor, MySqlConnection, mysql::MySqlRow};
use tokio::time::Instant;

use super::{
    cells::{Form, bytes},
    failure::{Stage, failure, failure_of_rows, lost, too_large_for_server},
    session::{rows, text},
};
use crate::{
    MOST_ROW_BYTES, SourceError,
    handoff::{OLDEST_ROW, Producer},
    server::{self, Ended},
};

/// Cells before the selection's own.
const MARKS: usize = 1;

/// Warnings that say that a value was cut, not that the query did something odd: a text made
/// by a function, and one made by `GROUP_CONCAT`.
const CUT: [&str; 2] = ["1301", "1260"];

/// The warning that bytes were to be a text that are none: MySQL leaves out what follows them,
/// MariaDB puts a question mark.
const NO_TEXT: &str = "1300";

/// What is read, and how its cells are printed.
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) forms: Vec<Form>,
    /// Whether its filters may make the server warn of bytes that are no text.
    pub(super) converts_bytes: bool,
}

/// Reads the results of queries, one after the other, until the end of the last of them, an
/// error, or nobody wants them.
pub(super) async fn run_each(mut connection: MySqlConnection, reads: Vec<(Statement, Producer)>) {
    let mut reads = reads.into_iter().peekable();
    while let Some((statement, mut producer)) = reads.next() {
        let mut read = read(&mut connection, statement, &mut producer).await;
        if read.is_ok() && reads.peek().is_some() {
            if producer.end().await.is_err() {
                return;
            }
            continue;
        }
        if read.is_ok() {
            let committed = rows(&mut connection, "COMMIT").await;
            read = committed.map(drop).map_err(|error| as_truncated(error, &producer).into());
        }
        return server::end(connection, producer, read).await;
    }
}

async fn read(
    connection: &mut MySqlConnection,
    Statement { sql, forms, converts_bytes }: Statement,
    producer: &mut Producer,
) -> Result<(), Ended> {
    let mut ended = false;
    {
        let mut stream = connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(sql)));
        // Runs while rows wait in a batch that is not full.
        let mut old = pin!(tokio::time::sleep(OLDEST_ROW));
        loop {
            let item = tokio::select! {
                biased;
                item = stream.try_next() => item,
                () = &mut old, if !producer.batch.is_empty() => {
                    producer.hand_over().await?;
                    continue;
                }
            };
            let row = match item.map_err(|error| failure_of_rows(error, Stage::of(producer)))? {
                Some(Either::Right(row)) if !ended => row,
                Some(Either::Left(_)) if !ended => {
                    ended = true;
                    continue;
                }
                None if ended => break,
                // A second result, or none at all.
                Some(_) | None => return Err(Ended::Failed(lost(Stage::Rows))),
            };
            if producer.batch.is_empty() {
                old.as_mut().reset(Instant::now() + OLDEST_ROW);
            }
            push(&row, &forms, producer)?;
            if producer.is_full() {
                producer.hand_over().await?;
            }
        }
    }
    prove(connection, producer, converts_bytes).await?;
    producer.hand_over().await?;
    Ok(())
}

fn push(row: &MySqlRow, forms: &[Form], producer: &mut Producer) -> Result<(), SourceError> {
    if sqlx::Row::len(row) != forms.len() + MARKS {
        return Err(malformed());
    }
    let mut size = 0;
    for (index, form) in forms.iter().enumerate() {
        match bytes(row, index + MARKS).map_err(|error| failure(error, Stage::Rows))? {
            None => producer.batch.push_null(),
            Some(cell) => {
                size += cell.len();
                if size > MOST_ROW_BYTES {
                    return Err(SourceError::row_too_large());
                }
                form.print(cell, producer.batch.buffer());
                producer.batch.end_cell();
            }
        }
    }
    Ok(())
}

/// Asks the server about the result that it sent: first what it warned of, which MySQL forgets
/// when it warns of `FOUND_ROWS()`.
async fn prove(
    connection: &mut MySqlConnection,
    producer: &Producer,
    converts_bytes: bool,
) -> Result<(), SourceError> {
    let told = rows(connection, "SHOW WARNINGS; SELECT FOUND_ROWS()").await;
    let told = told.map_err(|error| as_truncated(error, producer))?;
    let (found, warnings) = told.split_last().ok_or_else(malformed)?;
    if text(found, 0)? != Some(producer.rows().to_string()) {
        return Err(malformed());
    }
    for warning in warnings {
        let code = text(warning, 1)?.unwrap_or_default();
        if CUT.contains(&code.as_str()) {
            return Err(too_large_for_server());
        }
        if code == NO_TEXT && !converts_bytes {
            let message = "a view or the resource's query makes a text of bytes that are none in \
                           the character set that it names, and the source server leaves them out \
                           or changes them";
            return Err(SourceError::new(FailureCode::ValueNotEncodable, message));
        }
    }
    Ok(())
}

/// A connection that is lost after rows had come.
fn as_truncated(error: SourceError, producer: &Producer) -> SourceError {
    if error.code == FailureCode::SourceUnreachable {
        SourceError { cause: error.cause, ..lost(Stage::of(producer)) }
    } else {
        error
    }
}

fn malformed() -> SourceError {
    SourceError::new(
        FailureCode::SourceTruncated,
        "the source database did not send all the rows that it had",
    )
}
