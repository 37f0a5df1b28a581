//! The task that owns the connection: reads COPY's stream into batches.
//!
//! The end is proven: sqlx ends the stream only after `CopyDone`, `CommandComplete` and
//! `ReadyForQuery` have come, and a connection that breaks before is an error (0.9, `copy.rs`).
//! On top of that the transaction's COMMIT must be answered.

use std::pin::pin;

use futures::TryStreamExt;
use outport_domain::failure::FailureCode;
use sqlx::{Connection, PgConnection};
use tokio::time::{Duration, Instant};

use super::{
    copy_text::{CopyText, Malformed},
    failure::{Stage, failure, lost},
};
use crate::{
    SourceError,
    handoff::{Gone, OLDEST_ROW, Producer},
};

/// How long saying goodbye to the server may take.
const GOODBYE: Duration = Duration::from_secs(1);

enum Ended {
    Failed(SourceError),
    Unwanted,
}

impl From<Gone> for Ended {
    fn from(_: Gone) -> Self {
        Self::Unwanted
    }
}

impl From<SourceError> for Ended {
    fn from(error: SourceError) -> Self {
        Self::Failed(error)
    }
}

/// Copies the query's result until its end, an error, or nobody wants it.
pub(super) async fn run(
    mut connection: PgConnection,
    sql: String,
    columns: usize,
    mut producer: Producer,
) {
    let told = match copy(&mut connection, &sql, columns, &mut producer).await {
        Ok(()) => {
            // The end is proven already, so a slow or failed goodbye changes nothing.
            let said = tokio::time::timeout(GOODBYE, connection.close()).await;
            if !matches!(said, Ok(Ok(()))) {
                tracing::debug!("a PostgreSQL source did not say goodbye");
            }
            producer.end().await
        }
        Err(Ended::Unwanted) => return,
        Err(Ended::Failed(error)) => producer.fail(error).await,
    };
    if told.is_err() {
        tracing::debug!("the consumer of a PostgreSQL source left before the last word");
    }
}

async fn copy(
    connection: &mut PgConnection,
    sql: &str,
    columns: usize,
    producer: &mut Producer,
) -> Result<(), Ended> {
    let mut text = CopyText::new(columns);
    {
        let mut stream = connection
            .copy_out_raw(&format!("COPY ({sql}) TO STDOUT"))
            .await
            .map_err(|error| failure(error, Stage::Query))?;
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
            let Some(piece) = piece.map_err(|error| failure(error, stage(producer)))? else {
                break;
            };
            if producer.batch.is_empty() {
                old.as_mut().reset(Instant::now() + OLDEST_ROW);
            }
            text.take(&piece, &mut producer.batch).map_err(malformed)?;
            if producer.is_full() {
                producer.hand_over().await?;
            }
        }
    }
    if !text.is_at_row_end() {
        return Err(Ended::Failed(lost(Stage::Rows)));
    }
    producer.hand_over().await?;
    sqlx::raw_sql("COMMIT")
        .execute(connection)
        .await
        .map_err(|error| failure(error, stage(producer)))?;
    Ok(())
}

fn stage(producer: &Producer) -> Stage {
    if producer.rows() > 0 { Stage::Rows } else { Stage::Query }
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
