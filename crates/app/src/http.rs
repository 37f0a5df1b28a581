//! Serving HTTP: a connection must say what it wants in time, and there are only so many of them,
//! so that who opens connections and says nothing cannot keep others out for long.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;
use tower::Service as _;

/// From a connection, or the answer before, to the end of a request's head.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// Connections at once; one more waits until another ends.
const CONNECTIONS: usize = 20_000;
/// After an error such as too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves until `stop`, then lets running requests end within the drain time.
pub async fn serve(
    listener: TcpListener,
    router: axum::Router,
    stop: CancellationToken,
    drain: Duration,
) -> std::io::Result<()> {
    let mut services = router.into_make_service_with_connect_info::<SocketAddr>();
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD_TIME);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &permits) => accepted,
        };
        let (stream, address, permit) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let service = match services.call(address).await {
            Ok(service) => TowerToHyperService::new(service),
            Err(never) => match never {},
        };
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let connection = graceful.watch(connection.into_owned());
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "a connection ended badly");
            }
            drop(permit);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(drain) => tracing::warn!("connections are cut at the end of the drain time"),
    }
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, address) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, address, permit))
}
