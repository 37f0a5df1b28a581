//! Many channels on one WebSocket: its beginning and its end.

mod connection;

use std::{pin::pin, sync::Arc, time::Duration};

use axum::{
    extract::{
        State,
        ws::{WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, header::AUTHORIZATION},
    response::Response,
};
use chrono::Utc;
use futures::StreamExt as _;
use tokio::{sync::oneshot, time::timeout};

use self::connection::{Connection, Exit};
use super::{
    Admitted,
    outbox::{Goodbye, Outbox},
    visitor::Visitor,
};
use crate::api::{
    ApiState,
    channels::access,
    problem::{Problem, ProblemCode, ProblemView},
};

const TRANSPORT: &str = "websocket";
/// Bytes of a frame of a client.
const FRAME_BYTES: usize = 64 * 1024;
/// Bytes that are read at once: what clients say is short, and each has such a buffer.
const READ_BYTES: usize = 4 * 1024;
/// Time from our last words to the client's.
const GRACE: Duration = Duration::from_secs(5);

/// Follows many channels on one connection.
///
/// The frames are JSON texts; the page on the live stream describes them.
#[utoipa::path(get, path = "/v1/stream", tag = "events",
    security(("bearer" = ["events:read"]), ()),
    responses(
        (status = 101, description = "A WebSocket"),
        (status = 400, description = "No WebSocket was asked for", body = ProblemView),
        (status = 401, description = "The header's credential is not valid", body = ProblemView),
        (status = 503, description = "At capacity, or stopping", body = ProblemView),
    ))]
pub async fn socket(
    State(state): State<Arc<ApiState>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    // A WebSocket may say later who it is; nothing else may.
    let visitor = if headers.contains_key(AUTHORIZATION) || upgrade.is_err() {
        let identity = state.authenticator.identify(&headers, Utc::now()).await?;
        access::may_follow(&identity.caller)?;
        Some(state.stream.visitor(identity))
    } else {
        None
    };
    let upgrade = upgrade.map_err(|_| {
        Problem::new(ProblemCode::MalformedRequest, "This address takes WebSockets alone.")
    })?;
    let admitted = state.stream.admit(visitor.is_some())?;
    let upgrade = upgrade
        .max_message_size(FRAME_BYTES)
        .max_frame_size(FRAME_BYTES)
        .read_buffer_size(READ_BYTES);
    Ok(upgrade.on_upgrade(move |socket| serve(state, socket, visitor, admitted)))
}

async fn serve(
    state: Arc<ApiState>,
    socket: WebSocket,
    visitor: Option<Visitor>,
    admitted: Admitted,
) {
    let _counted = state.metrics.stream.connection(TRANSPORT);
    let config = state.stream.config();
    let (sink, mut client) = socket.split();
    let (outbox, writer) = Outbox::new(sink, config.queue_bytes, config.stall, config.heartbeat);
    let (goodbye, said) = oneshot::channel();
    let (trouble, troubled) = oneshot::channel();
    let mut writing = tokio::spawn(writer.run(said, trouble));
    let mut connection = Connection::new(Arc::clone(&state), outbox, visitor, admitted);
    let exit = connection.run(&mut client, troubled).await;
    let (code, reason, notices) = match exit {
        Exit::Close(code, reason) => (code, reason, Vec::new()),
        Exit::Told(code, reason, notices) => (code, reason, notices),
        Exit::Gone => (1000, "", Vec::new()),
    };
    state.metrics.stream.closed(TRANSPORT, code);
    // Nothing that still waits is sent.
    drop(connection);
    drop(goodbye.send(Goodbye { notices, code, reason }));
    // What the client still says is read, for a socket that closes on it would take the last
    // words back.
    let mut read = pin!(async { while let Some(Ok(_)) = client.next().await {} });
    tokio::select! {
        () = &mut read => drop(writing.await),
        _ = &mut writing => drop(timeout(GRACE, read).await),
    }
}
