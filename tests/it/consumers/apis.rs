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

/// The address of an API that has this file, and breaks off its answers one after the other after
/// so many bytes; what is asked for after that it gives whole.
pub async fn breaking(file: String, after: &'static [usize]) -> String {
    let (file, answered) = (Bytes::from(file), Arc::new(AtomicUsize::new(0)));
    serve(Router::new().fallback(move |headers: HeaderMap| async move {
        let rest = headers.get(header::RANGE).map(|range| {
            let range = range.to_str().expect("a text").strip_prefix("bytes=");
            let start = range.and_then(|range| range.strip_suffix('-')).expect("all the rest");
            file.slice(start.parse::<usize>().expect("a number")..)
        });
        let status = rest.as_ref().map_or(StatusCode::OK, |_| StatusCode::PARTIAL_CONTENT);
        let rest = rest.unwrap_or(file);
        let length = [(header::CONTENT_LENGTH, rest.len())];
        let Some(given) = after.get(answered.fetch_add(1, Ordering::Relaxed)) else {
            return (status, rest).into_response();
        };
        // What was given is on its way before the answer breaks off.
        let broken = stream::once(async {
            tokio::task::yield_now().await;
            Err(io::Error::other("it breaks off"))
        });
        let given = stream::once(ready(Ok(rest.slice(..*given))));
        (status, length, Body::from_stream(given.chain(broken))).into_response()
    }))
    .await
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}
