//! Hints of other processes, by `PostgreSQL`'s LISTEN on a connection of its own. Who is connected
//! anew may be connected to another server: the epoch is looked at again.

use std::{sync::Arc, time::Duration};

use sea_orm::{
    DatabaseConnection,
    sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::task::AbortHandle;

use super::{Hints, Topic};
use crate::{StoreError, channels::recheck_epoch};

/// The channel that commits notify.
pub(crate) const CHANNEL: &str = "outport";
/// The channel that is told where events were appended.
pub(crate) const STREAM: &str = "outport_stream";

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Listens until aborted. Returns after the first LISTEN, so that nothing committed later is
/// missed. The task holds the hints and the pool, never the store: it must not keep it alive.
pub(crate) async fn listen(
    options: PgConnectOptions,
    acquire_timeout: Duration,
    hints: Arc<Hints>,
    pool: DatabaseConnection,
) -> Result<AbortHandle, StoreError> {
    let first = open(&options, acquire_timeout).await?;
    let task = tokio::spawn(async move {
        let mut listener = first;
        loop {
            hear(&mut listener, &hints, &pool).await;
            listener = reopen(&options, acquire_timeout).await;
            look_again(&hints, &pool).await;
        }
    });
    Ok(task.abort_handle())
}

async fn open(
    options: &PgConnectOptions,
    acquire_timeout: Duration,
) -> Result<PgListener, StoreError> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(acquire_timeout)
        .connect_lazy_with(options.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen_all([CHANNEL, STREAM]).await?;
    Ok(listener)
}

/// Passes hints on until the connection is beyond the driver's own repair.
async fn hear(listener: &mut PgListener, hints: &Hints, pool: &DatabaseConnection) {
    loop {
        match listener.try_recv().await {
            Ok(Some(notification)) => {
                if notification.channel() == STREAM {
                    hints.appended(notification.payload());
                } else if let Some(topic) = Topic::from_payload(notification.payload()) {
                    hints.bump(topic);
                }
            }
            // The connection broke and was made anew: what came in between is lost.
            Ok(None) => look_again(hints, pool).await,
            Err(error) => {
                tracing::warn!(error = %StoreError::from(error), "hints of other processes are interrupted");
                return;
            }
        }
    }
}

/// What came while nobody listened is lost, and the server may be another one.
async fn look_again(hints: &Hints, pool: &DatabaseConnection) {
    let mut pause = FIRST_PAUSE;
    loop {
        match recheck_epoch(pool).await {
            Err(error @ (StoreError::Unreachable(_) | StoreError::Conflict(_))) => {
                tracing::debug!(%error, "the epoch of the live stream cannot be looked at yet");
            }
            Err(error) => {
                tracing::warn!(%error, "the epoch of the live stream cannot be looked at");
                break;
            }
            Ok(()) => break,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    hints.bump_all();
}

async fn reopen(options: &PgConnectOptions, acquire_timeout: Duration) -> PgListener {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        match open(options, acquire_timeout).await {
            Ok(listener) => return listener,
            Err(error) => tracing::debug!(%error, "hints of other processes are still interrupted"),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
