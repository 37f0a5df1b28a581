//! A wire to a server that can be cut, muted and put together again.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};
use tokio_util::task::AbortOnDropHandle;

/// What a wire does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Up,
    /// Connections end at once, also those that are there.
    Down,
    /// What the server says is swallowed.
    Mute,
}

/// A wire to a server.
pub struct Wire {
    pub port: u16,
    mode: watch::Sender<Mode>,
    left: Arc<AtomicI64>,
    _accepting: AbortOnDropHandle<()>,
}

impl Wire {
    /// One that is up.
    pub async fn to(upstream: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (mode, watching) = watch::channel(Mode::Up);
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let budget = Arc::clone(&left);
        let accepting = tokio::spawn(async move {
            while let Ok((inner, _)) = listener.accept().await {
                tokio::spawn(lead(inner, upstream, watching.clone(), Arc::clone(&budget)));
            }
        });
        Self { port, mode, left, _accepting: AbortOnDropHandle::new(accepting) }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// The wire breaks after so many bytes more from the client, once.
    pub fn cut_after(&self, bytes: i64) {
        self.left.store(bytes, SeqCst);
    }
}

async fn lead(
    inner: TcpStream,
    upstream: u16,
    mut mode: watch::Receiver<Mode>,
    left: Arc<AtomicI64>,
) {
    if *mode.borrow() == Mode::Down {
        return;
    }
    let outer = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)).await.expect("the server");
    let (from_client, to_client) = inner.into_split();
    let (from_server, to_server) = outer.into_split();
    let answers = mode.clone();
    tokio::select! {
        () = up(from_client, to_server, left) => {}
        () = down(from_server, to_client, answers) => {}
        _ = mode.wait_for(|mode| *mode == Mode::Down) => {}
    }
}

async fn up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, left: Arc<AtomicI64>) {
    let mut buffer = vec![0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if left.fetch_sub(read as i64, SeqCst) < read as i64 {
            left.store(i64::MAX, SeqCst);
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn down(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mode: watch::Receiver<Mode>) {
    let mut buffer = vec![0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if *mode.borrow() == Mode::Mute {
            continue;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
