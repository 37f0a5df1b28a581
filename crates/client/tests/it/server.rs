//! A server that does what the test says, well or badly: every connection and every request is
//! handed to the test, which answers.

use std::net::SocketAddr;

use futures::{SinkExt as _, StreamExt as _};
use outport_contract::stream::Channel;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::{
    WebSocketStream, accept_async,
    tungstenite::{
        Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use crate::words::PATIENCE;

/// The server.
pub struct Server {
    address: SocketAddr,
    visits: mpsc::UnboundedReceiver<Visit>,
    /// Those that came while another kind was waited for.
    waiting: Vec<Visit>,
}

/// Who came.
enum Visit {
    Socket(TcpStream),
    Request(Asked),
}

/// A request that waits for its answer.
pub struct Asked {
    stream: TcpStream,
    /// With the query.
    pub path: String,
}

/// A connection.
pub struct Connection(WebSocketStream<TcpStream>);

impl Server {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, visits) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                tokio::spawn(async move {
                    if let Some(visit) = visit(stream).await {
                        // The test may have ended.
                        drop(sender.send(visit));
                    }
                });
            }
        });
        Self { address, visits, waiting: Vec::new() }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next connection, made.
    pub async fn connection(&mut self) -> Connection {
        let stream = self.visit(|visit| matches!(visit, Visit::Socket(_))).await;
        let Visit::Socket(stream) = stream else { unreachable!("it was looked for") };
        Connection(accept_async(stream).await.expect("a handshake"))
    }

    /// The next connection, refused with this answer.
    pub async fn refuse(&mut self, status: u16, headers: &str) {
        let stream = self.visit(|visit| matches!(visit, Visit::Socket(_))).await;
        let Visit::Socket(mut stream) = stream else { unreachable!("it was looked for") };
        let mut head = [0; 4096];
        let read = stream.read(&mut head).await.expect("a request");
        assert_ne!(read, 0);
        answer(&mut stream, status, headers, "").await;
    }

    /// The next request.
    pub async fn request(&mut self) -> Asked {
        match self.visit(|visit| matches!(visit, Visit::Request(_))).await {
            Visit::Request(asked) => asked,
            Visit::Socket(_) => unreachable!("it was looked for"),
        }
    }

    /// The next request is a replay after this sequence.
    pub async fn replay(&mut self, channel: &Channel, after: u64) -> Asked {
        let asked = self.request().await;
        let expected = format!("/v1/channels/{channel}/events?after={after}&");
        assert!(asked.path.starts_with(&expected), "{}, not {expected}", asked.path);
        asked
    }

    /// Nothing was asked that was not answered.
    pub fn nothing_else_was_asked(&mut self) {
        while let Ok(visit) = self.visits.try_recv() {
            self.waiting.push(visit);
        }
        let asked = self.waiting.iter().filter_map(|visit| match visit {
            Visit::Request(asked) => Some(asked.path.clone()),
            Visit::Socket(_) => None,
        });
        assert_eq!(asked.collect::<Vec<_>>(), [""; 0]);
    }

    async fn visit(&mut self, is: impl Fn(&Visit) -> bool) -> Visit {
        if let Some(at) = self.waiting.iter().position(&is) {
            return self.waiting.remove(at);
        }
        let coming = async {
            loop {
                let visit = self.visits.recv().await.expect("the server lives");
                if is(&visit) {
                    return visit;
                }
                self.waiting.push(visit);
            }
        };
        tokio::time::timeout(PATIENCE, coming).await.expect("a visit in time")
    }
}

/// Tells a request from a connection to be, whose head is left for its handshake.
async fn visit(mut stream: TcpStream) -> Option<Visit> {
    let mut head = vec![0; 8192];
    let length = loop {
        let length = stream.peek(&mut head).await.ok()?;
        if length == 0 {
            return None;
        }
        if head[..length].windows(4).any(|four| four == b"\r\n\r\n") {
            break length;
        }
        tokio::task::yield_now().await;
    };
    let head = String::from_utf8_lossy(&head[..length]).into_owned();
    let path = head.split_whitespace().nth(1)?.to_owned();
    assert!(head.to_lowercase().contains("authorization: bearer opt_token"), "{head}");
    if path == "/v1/stream" {
        return Some(Visit::Socket(stream));
    }
    stream.read_exact(&mut vec![0; length]).await.ok()?;
    Some(Visit::Request(Asked { stream, path }))
}

async fn answer(stream: &mut TcpStream, status: u16, headers: &str, body: &str) {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {length}\r\n{headers}\r\n{body}"
    );
    // Who asked may be gone.
    drop(stream.write_all(text.as_bytes()).await);
    drop(stream.shutdown().await);
}

impl Asked {
    pub async fn answer(self, body: &Value) {
        self.refuse(200, "", &body.to_string()).await;
    }

    pub async fn refuse(mut self, status: u16, headers: &str, body: &str) {
        answer(&mut self.stream, status, headers, body).await;
    }
}

impl Connection {
    /// What the follower says next.
    pub async fn hear(&mut self) -> Value {
        let message = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("in time");
        match message {
            Some(Ok(Message::Text(text))) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?}"),
        }
    }

    /// The follower subscribes to this channel; after which sequence.
    pub async fn subscription(&mut self, channel: &Channel) -> Option<u64> {
        let said = self.hear().await;
        assert_eq!(
            (&said["action"], &said["channel"]),
            (&"subscribe".into(), &channel.to_string().into())
        );
        said["after"].as_u64()
    }

    pub async fn say(&mut self, message: Value) {
        self.say_text(&message.to_string()).await;
    }

    pub async fn say_text(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.expect("the follower listens");
    }

    pub async fn close(mut self, code: u16) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: "said".into() };
        self.0.close(Some(frame)).await.expect("a close");
        // The follower answers, then the connection ends.
        while let Some(Ok(_)) = self.0.next().await {}
    }

    /// Without a word.
    pub fn cut(self) {
        drop(self);
    }
}
