//! What the servers that are reached through sqlx have in common: when an error came, what a lost
//! connection means, and the last words of a reader.

use std::{io, time::Duration};

use outport_domain::failure::FailureCode;
use sqlx::Connection;

use crate::{
    SourceError,
    handoff::{Gone, Producer},
};

/// How long saying goodbye to the server may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// The longest part of a server's message that is passed on, in characters.
const MESSAGE_CHARS: usize = 200;

/// When an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before there was a connection.
    Connect,
    /// Before the first row.
    Query,
    /// After rows had come.
    Rows,
}

impl Stage {
    /// Of a reader that has got so far.
    pub(crate) fn of(producer: &Producer) -> Self {
        if producer.rows() > 0 { Self::Rows } else { Self::Query }
    }
}

/// The connection is gone.
pub(crate) fn lost(stage: Stage) -> SourceError {
    match stage {
        Stage::Connect => SourceError::new(
            FailureCode::SourceUnreachable,
            "the source database could not be reached",
        ),
        Stage::Query => SourceError::new(
            FailureCode::SourceUnreachable,
            "the connection to the source database was lost",
        ),
        Stage::Rows => SourceError::new(
            FailureCode::SourceTruncated,
            "the connection to the source database was lost before the end of the result",
        ),
    }
}

/// An error that the server itself did not send.
pub(crate) fn not_of_the_server(error: &sqlx::Error, stage: Stage) -> SourceError {
    match error {
        sqlx::Error::Configuration(_) => {
            SourceError::new(FailureCode::SourceUnreachable, "the connection's URL is not valid")
                .abandoned()
        }
        sqlx::Error::Tls(_) => unencrypted(),
        // Certificates that do not fit, of either side, come as what the socket could not read.
        sqlx::Error::Io(error)
            if stage == Stage::Connect && error.kind() == io::ErrorKind::InvalidData =>
        {
            unencrypted()
        }
        _ => lost(stage),
    }
}

fn unencrypted() -> SourceError {
    SourceError::new(
        FailureCode::SourceUnreachable,
        "no encrypted connection to the source database could be made",
    )
}

/// A server's own words, short and without control characters.
pub(crate) fn plain(message: &str) -> String {
    message.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS).collect()
}

/// How a reader ends without the result's end.
pub(crate) enum Ended {
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

/// Tells the consumer how reading ended, and the server goodbye. `Ok` is a proven end.
pub(crate) async fn end(connection: impl Connection, producer: Producer, read: Result<(), Ended>) {
    let told = match read {
        Ok(()) => {
            // The end is proven already, so a slow or failed goodbye changes nothing.
            let said = tokio::time::timeout(GOODBYE, connection.close()).await;
            if !matches!(said, Ok(Ok(()))) {
                tracing::debug!("a source server did not say goodbye");
            }
            producer.end().await
        }
        Err(Ended::Unwanted) => return,
        Err(Ended::Failed(error)) => producer.fail(error).await,
    };
    if told.is_err() {
        tracing::debug!("the consumer of a source left before the last word");
    }
}
