//! A port whose server can be up or down.

use std::net::Ipv4Addr;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_util::task::AbortOnDropHandle;

use super::process::free_port;

/// A port that nobody listens on until it is opened.
pub struct Proxy {
    port: u16,
    forwarding: Option<AbortOnDropHandle<()>>,
}

impl Proxy {
    /// One that refuses connections.
    pub fn down() -> Self {
        Self { port: free_port(), forwarding: None }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on connections lead to this port.
    pub async fn lead_to(&mut self, upstream: u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await.expect("the port");
        self.forwarding = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            while let Ok((mut inner, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let outer = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)).await;
                    let mut outer = outer.expect("the server behind the proxy");
                    // Either side may go at any time.
                    copy_bidirectional(&mut inner, &mut outer).await.ok();
                });
            }
        })));
    }
}
