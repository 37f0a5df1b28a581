//! The end of a query that is not wanted any more: asked for from a second connection.

use std::time::Duration;

use outport_domain::failure::FailureCode;
use sqlx::{AssertSqlSafe, Connection};

use super::{
    connect::Server,
    failure::{Stage, failure},
};
use crate::{SourceError, compile::postgres::literal};

/// The transactions of one stream, told by their name. Until they [are done](Backends::are_done),
/// dropping this asks the server to cancel whatever they are doing.
///
/// Not by the number of the server process: that may be another's by now, whose process has ended
/// or been handed on by a pooler. The name is there as long as the transaction.
pub(super) struct Backends {
    server: Server,
    name: Option<String>,
}

impl Backends {
    pub(super) const fn new(server: Server, name: String) -> Self {
        Self { server, name: Some(name) }
    }

    /// Nothing is left to cancel.
    pub(super) fn are_done(&mut self) {
        self.name = None;
    }

    /// Cancels what the transactions are doing, in no more than this time.
    pub(super) async fn cancel(&mut self, limit: Duration) -> Result<(), SourceError> {
        match self.name.take() {
            Some(name) => cancel(&self.server, &name, limit).await,
            None => Ok(()),
        }
    }
}

impl Drop for Backends {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let server = self.server.clone();
        runtime.spawn(async move {
            let limit = server.connect_timeout;
            if let Err(error) = cancel(&server, &name, limit).await {
                tracing::debug!(error = %error, "a dropped query could not be canceled");
            }
        });
    }
}

async fn cancel(server: &Server, name: &str, limit: Duration) -> Result<(), SourceError> {
    // One message, hence one transaction: a pooler may give each another server process.
    let sql = format!(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
         WHERE application_name = {} AND backend_type = 'client backend'",
        literal(name)?
    );
    let ask = async {
        let mut connection = server.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
            .map_err(|error| failure(error, Stage::Query))?;
        connection.close().await.map_err(|error| failure(error, Stage::Query))
    };
    tokio::time::timeout(limit, ask).await.unwrap_or_else(|_| {
        Err(SourceError::new(
            FailureCode::SourceUnreachable,
            "the source database did not answer a cancel in time",
        ))
    })
}
