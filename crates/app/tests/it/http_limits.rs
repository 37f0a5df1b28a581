//! Connections that do nothing: each is closed after its time, and there are only so many.
//! The tests read to the server's close; what would never be closed would never end.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use outport::http::{HttpLimits, serve};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
};
use tokio_util::sync::{CancellationToken, DropGuard};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame and the acknowledgement of the server's.
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";
const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

fn limits() -> HttpLimits {
    let short = Duration::from_millis(200);
    HttpLimits { head: short, stall: short, connections: 100 }
}

async fn start(router: Router, limits: HttpLimits) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, router, limits, stop.clone(), Duration::ZERO));
    (address, stop.drop_guard())
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

async fn connect(address: SocketAddr, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(sent).await.expect("it is open");
    stream
}

/// What the server says until it closes the connection, well or badly.
async fn to_the_close(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // A reset is a close too.
    drop(stream.read_to_end(&mut said).await);
    said
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_request_is_closed() {
    let (address, _stop) = start(hello(), limits()).await;
    let settled = [PREFACE, SETTINGS].concat();
    for sent in [b"".as_slice(), b"P", b"PRI * HTT", b"GET / HT", PREFACE, &settled] {
        to_the_close(connect(address, sent).await).await;
    }
    let said = to_the_close(connect(address, GET).await).await;
    assert!(said.ends_with(b"hello"), "one that asks is answered, then closed");
}

#[tokio::test]
async fn an_idle_http2_client_that_acknowledges_pings_is_closed() {
    let (address, _stop) = start(hello(), limits()).await;
    let mut stream = connect(address, &[PREFACE, SETTINGS].concat()).await;
    let mut goodbye = false;
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            break;
        }
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        if stream.read_exact(&mut payload).await.is_err() {
            break;
        }
        let (kind, flags) = (head[3], head[4]);
        goodbye |= kind == 7;
        if kind == 6 && flags & 1 == 0 {
            head[4] |= 1;
            drop(stream.write_all(&[&head[..], &payload].concat()).await);
        }
    }
    assert!(goodbye, "GOAWAY comes first");
}

#[tokio::test]
async fn a_download_that_nobody_reads_ends() {
    let (ended, mut ends) = mpsc::unbounded_channel::<Infallible>();
    let router = Router::new().route(
        "/",
        get(move || {
            let ended = ended.clone();
            let endless = stream::repeat(Bytes::from(vec![b'x'; 1 << 20]));
            async move {
                Body::from_stream(endless.map(move |piece| {
                    let _kept_while_the_body_lives = &ended;
                    Ok::<_, Infallible>(piece)
                }))
            }
        }),
    );
    let (address, stop) = start(router, limits()).await;
    let _unread = connect(address, GET).await;
    let mut reads = connect(address, GET).await;
    for _ in 0..20 {
        reads.read_exact(&mut vec![0; 1 << 20]).await.expect("who reads is served");
    }
    drop(reads);
    drop(stop);
    assert!(ends.recv().await.is_none(), "every body is dropped");
}

#[tokio::test]
async fn an_answer_may_take_longer_than_a_request() {
    let ready = Arc::new(Notify::new());
    let waits = Arc::clone(&ready);
    let router = hello().route(
        "/slow",
        get(move || {
            let (head, piece) = (Arc::clone(&waits), Arc::clone(&waits));
            async move {
                head.notified().await;
                Body::from_stream(stream::once(async move {
                    piece.notified().await;
                    Ok::<_, Infallible>("late")
                }))
            }
        }),
    );
    let (address, _stop) = start(router, limits()).await;
    let slow = b"GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let slow = tokio::spawn(to_the_close(connect(address, slow).await));
    for _ in 0..2 {
        // As many silent connections as outlast every limit, one after the other.
        for _ in 0..3 {
            to_the_close(connect(address, b"").await).await;
        }
        ready.notify_one();
    }
    let said = String::from_utf8(slow.await.expect("no panic")).expect("text");
    assert!(said.contains("late"), "{said}");
}

#[tokio::test]
async fn a_connection_too_many_is_closed_and_the_next_has_room_again() {
    let patient = Duration::from_hours(1);
    let (address, _stop) =
        start(hello(), HttpLimits { head: patient, stall: patient, connections: 1 }).await;
    let mut first = connect(address, GET).await;
    first.read_exact(&mut [0; 1]).await.expect("it is served");
    assert!(to_the_close(TcpStream::connect(address).await.expect("accepted")).await.is_empty());
    drop(first);
    loop {
        // The server may not have seen the first one's end yet.
        let mut next = TcpStream::connect(address).await.expect("accepted");
        if next.write_all(GET).await.is_ok() && next.read_exact(&mut [0; 1]).await.is_ok() {
            break;
        }
    }
}
