//! TCP proxies: one that cuts the wire, and one that lets something happen between two messages.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
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
        let most = AtomicU64::new(most);
        tokio::spawn({
            let forwarded = Arc::clone(&forwarded);
            async move {
                let Ok((client, _)) = listener.accept().await else { return };
                tokio::spawn(async move {
                    // Accepted and dropped: whoever comes now finds a cut wire.
                    while listener.accept().await.is_ok() {}
                });
                forward(client, &server, &most, &forwarded).await;
            }
        });
        Self { port, forwarded }
    }

    pub fn forwarded(&self) -> u64 {
        self.forwarded.load(Relaxed)
    }

    /// Forwards every connection, so many bytes from the server in all; then cuts each at its
    /// next byte.
    pub async fn of_all(server: String, most: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let forwarded = Arc::new(AtomicU64::new(0));
        let left = Arc::new(AtomicU64::new(most));
        tokio::spawn({
            let forwarded = Arc::clone(&forwarded);
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let (server, left, forwarded) =
                        (server.clone(), Arc::clone(&left), Arc::clone(&forwarded));
                    tokio::spawn(async move { forward(client, &server, &left, &forwarded).await });
                }
            }
        });
        Self { port, forwarded }
    }
}

/// Ends by dropping both sockets, whatever is still on its way.
async fn forward(mut client: TcpStream, server: &str, left: &AtomicU64, forwarded: &AtomicU64) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let down = async {
        let mut buffer = vec![0; 4096];
        loop {
            let room = buffer.len().min(usize::try_from(left.load(Relaxed)).unwrap_or(usize::MAX));
            if room == 0 {
                return;
            }
            let Ok(count @ 1..) = from_server.read(&mut buffer[..room]).await else { return };
            if to_client.write_all(&buffer[..count]).await.is_err() {
                return;
            }
            // Connections that read at once may together pass a little more.
            let taken = |left: u64| Some(left.saturating_sub(count as u64));
            left.fetch_update(Relaxed, Relaxed, taken).expect("it is always some");
            forwarded.fetch_add(count as u64, Relaxed);
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

/// Forwards one connection whose client waits for an answer to each message.
pub struct Gate {
    pub port: u16,
    task: JoinHandle<u64>,
}

impl Gate {
    /// Something happens right before the client's message of this number, counted from zero,
    /// goes on to the server.
    pub async fn before(
        number: u64,
        server: String,
        happens: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(async move {
            let (client, _) = listener.accept().await.expect("a client");
            let server = TcpStream::connect(server).await.expect("a server");
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let mut messages = 0;
            let up = async {
                let mut happens = Some(happens);
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
                    if messages == number
                        && let Some(happens) = happens.take()
                    {
                        happens.await;
                    }
                    messages += 1;
                    if to_server.write_all(&buffer[..count]).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! { _ = copy(&mut from_server, &mut to_client) => {}, () = up => {} }
            messages
        });
        Self { port, task }
    }

    /// Waits for the connection's end; answers with the number of the client's messages.
    pub async fn end(self) -> u64 {
        self.task.await.expect("what happens succeeds")
    }
}
