//! A TCP proxy that cuts the wire.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Forwards one connection, at most so many bytes from the server to the client; then cuts it.
/// Further connections are cut at once.
pub struct Proxy {
    pub port: u16,
    forwarded: Arc<AtomicU64>,
}

impl Proxy {
    pub async fn to(server: String, most: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let forwarded = Arc::new(AtomicU64::new(0));
        tokio::spawn({
            let forwarded = Arc::clone(&forwarded);
            async move {
                let Ok((client, _)) = listener.accept().await else { return };
                tokio::spawn(async move {
                    // Accepted and dropped: whoever comes now finds a cut wire.
                    while listener.accept().await.is_ok() {}
                });
                forward(client, &server, most, &forwarded).await;
            }
        });
        Self { port, forwarded }
    }

    pub fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }
}

/// Ends by dropping both sockets, whatever is still on its way.
async fn forward(mut client: TcpStream, server: &str, most: u64, forwarded: &AtomicU64) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let down = async {
        let mut buffer = vec![0; 4096];
        let mut left = most;
        while left > 0 {
            let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let Ok(count @ 1..) = from_server.read(&mut buffer[..room]).await else { return };
            if to_client.write_all(&buffer[..count]).await.is_err() {
                return;
            }
            left -= count as u64;
            forwarded.fetch_add(count as u64, Ordering::Relaxed);
        }
    };
    let up = async {
        let mut buffer = vec![0; 4096];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            if to_server.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! { () = down => {}, () = up => {} }
}
