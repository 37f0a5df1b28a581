//! Serving HTTP: a connection must say what it wants in time and take what it asked for, and there
//! are only so many of them, so that who opens connections and does nothing with them cannot keep
//! others out for long.

mod pulse;

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use pulse::{Felt, Pulse};

/// After an error such as too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Most connections, however many files the process may open.
const MOST_CONNECTIONS: usize = 20_000;

/// How long connections are borne with, and how many.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// From a connection, or from its last answer, to the end of a request's head: 15 s.
    pub head: Duration,
    /// From one piece of an answer to the client's taking the next: 2 min. The kernel tells of
    /// room only after megabytes, so a slow reader needs this long between two of them.
    pub stall: Duration,
    /// Connections at once; one more is closed.
    pub connections: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(15),
            stall: Duration::from_mins(2),
            connections: MOST_CONNECTIONS.min(open_files() / 2),
        }
    }
}

/// How many files and sockets the process may have open. Half of them are left to databases,
/// stores and files, so that accepting never fails for want of one.
#[cfg(unix)]
fn open_files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

#[cfg(not(unix))]
fn open_files() -> usize {
    usize::MAX
}

/// Serves until `stop`, then lets running requests end within the drain time.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    stop: CancellationToken,
    drain: Duration,
) -> std::io::Result<()> {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    let mut full = false;
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            if !full {
                tracing::warn!(
                    most = limits.connections,
                    "too many connections; new ones are closed"
                );
            }
            full = true;
            continue;
        };
        full = false;
        let connection = attend(stream, address, router.clone(), limits, stop.clone());
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "a connection ended badly");
            }
            drop(permit);
        });
    }
    drop(listener);
    connections.close();
    tokio::select! {
        () = connections.wait() => {}
        () = tokio::time::sleep(drain) => tracing::warn!("connections are cut at the end of the drain time"),
    }
    Ok(())
}

/// Serves one connection to its end: the client's, ours after `stop`, or that of our patience.
///
/// The server's own time limit for a head starts only when the version of HTTP is known, and it
/// has none for clients that ask for nothing or do not read, so the pulse is watched besides.
async fn attend(
    stream: TcpStream,
    address: SocketAddr,
    router: Router,
    limits: HttpLimits,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let pulse = Arc::new(Pulse::new());
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(limits.head);
    let service = TowerToHyperService::new(Felt { router, address, pulse: Arc::clone(&pulse) });
    let mut connection =
        pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let mut ending = false;
    loop {
        let patience = if ending { limits.stall } else { limits.head };
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = stop.cancelled(), if !ending => {}
            () = pulse.quiet(patience, limits.stall) => if ending || pulse.is_sending() {
                return Err("the client did not read on".into());
            },
        }
        ending = true;
        pulse.beat();
        connection.as_mut().graceful_shutdown();
    }
}
