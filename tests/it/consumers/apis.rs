//! APIs that answer otherwise than ours does.

use std::{
    future::ready,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse as _,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};

/// The address of an API that gives every request this answer.
pub async fn in_trouble(status: StatusCode, body: &'static str) -> String {
    serve(Router::new().fallback(move || async move { (status, body) })).await
}

/// The address of an API that has this file and closes each connection behind its last byte, where
/// an end is still to come. Answers that break off before it, after so many bytes, tell their
/// length. What is asked for behind the last byte is answered by 416 with this size, or by 503.
pub async fn closing(file: String, after: &'static [usize], size: Option<usize>) -> String {
    let (file, answered) = (Bytes::from(file), Arc::new(AtomicUsize::new(0)));
    serve(Router::new().fallback(move |headers: HeaderMap| async move {
        let start = start(&headers);
        if start == Some(file.len()) {
            let Some(size) = size else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
            let size = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return (StatusCode::RANGE_NOT_SATISFIABLE, size).into_response();
        }
        let status = start.map_or(StatusCode::OK, |_| StatusCode::PARTIAL_CONTENT);
        let rest = file.slice(start.unwrap_or(0)..);
        match after.get(answered.fetch_add(1, Ordering::Relaxed)) {
            Some(given) => {
                let length = [(header::CONTENT_LENGTH, rest.len())];
                (status, length, broken_off(rest.slice(..*given))).into_response()
            }
            None => (status, broken_off(rest)).into_response(),
        }
    }))
    .await
}

/// The address of an API that has this file, and breaks off its answers one after the other after
/// so many bytes; what is asked for after that it gives whole.
pub async fn breaking(file: String, after: &'static [usize]) -> String {
    let (file, answered) = (Bytes::from(file), Arc::new(AtomicUsize::new(0)));
    serve(Router::new().fallback(move |headers: HeaderMap| async move {
        let start = start(&headers);
        let status = start.map_or(StatusCode::OK, |_| StatusCode::PARTIAL_CONTENT);
        let rest = file.slice(start.unwrap_or(0)..);
        let length = [(header::CONTENT_LENGTH, rest.len())];
        let Some(given) = after.get(answered.fetch_add(1, Ordering::Relaxed)) else {
            return (status, rest).into_response();
        };
        (status, length, broken_off(rest.slice(..*given))).into_response()
    }))
    .await
}

/// Where the range that is asked for begins.
fn start(headers: &HeaderMap) -> Option<usize> {
    let range = headers.get(header::RANGE)?.to_str().expect("a text").strip_prefix("bytes=");
    let start = range.and_then(|range| range.strip_suffix('-')).expect("all the rest");
    Some(start.parse().expect("a number"))
}

/// A body that breaks off behind these bytes.
fn broken_off(given: Bytes) -> Body {
    // What was given is on its way before the answer breaks off.
    let broken = stream::once(async {
        tokio::task::yield_now().await;
        Err(io::Error::other("it breaks off"))
    });
    Body::from_stream(stream::once(ready(Ok(given))).chain(broken))
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}
