//! Followers of live streams over real sockets, and the words of their tests.

use std::{sync::Arc, time::Duration};

use futures::{SinkExt as _, StreamExt as _, stream::BoxStream};
use outport::{
    api::{self, stream::StreamConfig},
    http::{self, HttpLimits},
};
use outport_contract::stream::{self, Channel, Scope};
use outport_domain::limits::Limits;
use outport_relay::notifier::NotifierConfig;
use outport_store::{Store, StoreConfig, channels::NewEvent};
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json as j};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest as _},
};
use tokio_util::sync::CancellationToken;

use crate::api_world::{Options, World, json, state};

/// For what must come, however slow the machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Bytes that a client's kernel takes before it reads.
const RECEIVED: u32 = 64 * 1024;

/// Streams that look and tell so often that no test waits for them.
pub fn quick() -> Options {
    Options {
        stream: StreamConfig {
            notifier: NotifierConfig {
                interval: Duration::from_millis(20),
                poll: Duration::from_millis(100),
                ..NotifierConfig::default()
            },
            heartbeat: Duration::from_millis(200),
            access_every: Duration::from_millis(50),
            stall: Duration::from_secs(1),
            ..StreamConfig::default()
        },
        limits: Limits { requests_per_minute: 0, ..Limits::default() },
        ..Options::default()
    }
}

/// The same, with heartbeats that no test lives to see.
pub fn quiet() -> Options {
    let mut options = quick();
    options.stream.heartbeat = Duration::from_mins(10);
    options
}

pub async fn within<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it came in time")
}

impl World {
    /// The channel of the world's organization.
    pub fn channel(&self) -> Channel {
        Channel::Organization(self.organization.uuid())
    }

    /// Appends events to that channel, in one transaction.
    pub async fn append(&self, notes: impl IntoIterator<Item = String>) {
        let event_type = stream::find("plan.changed").expect("a type");
        let mut tx = self.store.begin().await.expect("a transaction");
        for note in notes {
            let organization = self.organization.uuid();
            let scope = Scope { organization, application: None, job: None };
            tx.append(NewEvent::new(event_type, scope, j!({"note": note}).to_string()));
        }
        tx.commit().await.expect("a commit");
    }

    /// Appends so many small ones.
    pub async fn append_some(&self, many: u64) {
        self.append((0..many).map(|note| note.to_string())).await;
    }

    /// A page of the channel, or the problem.
    pub async fn events(&self, query: &str) -> (StatusCode, Value) {
        let path = format!("/v1/channels/{}/events{query}", self.channel());
        json(self.get(&path).send().await.expect("an answer")).await
    }

    pub fn sse(&self, query: &str) -> RequestBuilder {
        self.get(&format!("/v1/channels/{}/stream{query}", self.channel()))
            .timeout(Duration::from_mins(5))
    }

    pub async fn epoch(&self) -> String {
        outport_store::channels::epoch(&self.store).await.expect("an epoch")
    }

    /// A socket that is authenticated.
    pub async fn socket(&self) -> Socket {
        self.socket_of(&self.token).await
    }

    pub async fn socket_of(&self, token: &str) -> Socket {
        let mut socket = self.anonymous().await;
        socket.say(&j!({"action": "auth", "token": token})).await;
        assert_eq!(socket.control().await["kind"], "authenticated");
        socket
    }

    pub async fn anonymous(&self) -> Socket {
        Socket::open(&self.url("/v1/stream"), None).await.expect("a socket")
    }

    /// Another process of the API on the same state, as it is really served.
    pub async fn neighbour(&self, options: Options) -> Neighbour {
        let config = StoreConfig {
            url: self.database_url.clone(),
            max_connections: 5,
            acquire_timeout: Duration::from_secs(10),
        };
        let store = Store::connect(&config).await.expect("a store");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (objects, keys) = (&self.objects, &self.keys);
        let state = Arc::new(state(&options, &store, objects, keys, &self.sick, address));
        let stop = CancellationToken::new();
        let streams = Arc::clone(&state.stream);
        let router = api::router(state);
        let (limits, drain) = (HttpLimits::default(), Duration::from_secs(20));
        tokio::spawn(http::serve(listener, router, limits, stop.clone(), drain));
        let stopped = stop.clone();
        let streams = tokio::spawn(async move { streams.run(stopped).await });
        Neighbour { base: format!("http://{address}"), store, stop, streams }
    }
}

/// Another process of the API.
pub struct Neighbour {
    pub base: String,
    pub store: Store,
    pub stop: CancellationToken,
    pub streams: tokio::task::JoinHandle<()>,
}

impl Neighbour {
    pub async fn end(self) {
        self.stop.cancel();
        within(self.streams).await.expect("everybody left");
        self.store.close().await;
    }
}

/// A client's WebSocket.
pub struct Socket {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Socket {
    /// The status and body of an answer that is no WebSocket are the error.
    pub async fn open(url: &str, token: Option<&str>) -> Result<Self, (u16, String)> {
        let url = url.replacen("http", "ws", 1);
        let mut request = url.into_client_request().expect("a request");
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("a header");
            request.headers_mut().insert("authorization", value);
        }
        // A kernel that takes megabytes for its reader would hide that it does not read.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(RECEIVED).expect("a size");
        let host = request.uri().authority().expect("an authority").as_str();
        let stream = within(socket.connect(host.parse().expect("an address"))).await;
        let stream = MaybeTlsStream::Plain(stream.expect("a connection"));
        match within(client_async(request, stream)).await {
            Ok((socket, _)) => Ok(Self { socket }),
            Err(Error::Http(answer)) => {
                let body = answer.body().clone().unwrap_or_default();
                Err((answer.status().as_u16(), String::from_utf8_lossy(&body).into_owned()))
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub async fn send(&mut self, message: Message) {
        within(self.socket.send(message)).await.expect("sent");
    }

    pub async fn say(&mut self, frame: &Value) {
        self.send(Message::text(frame.to_string())).await;
    }

    /// The next text, or the code that the server closes with.
    pub async fn next(&mut self) -> Result<Value, u16> {
        loop {
            match within(self.socket.next()).await {
                Some(Ok(Message::Text(text))) => {
                    return Ok(serde_json::from_str(&text).expect("JSON"));
                }
                Some(Ok(Message::Close(Some(frame)))) => return Err(frame.code.into()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next text.
    pub async fn hear(&mut self) -> Value {
        self.next().await.expect("no close")
    }

    /// What the next control frame says.
    pub async fn control(&mut self) -> Value {
        loop {
            let text = self.hear().await;
            if text["event"] == "outport-control/1" {
                return text["data"].clone();
            }
        }
    }

    /// The code that the server closes with, and what it said before.
    pub async fn closed(&mut self) -> (u16, Vec<Value>) {
        let mut said = Vec::new();
        loop {
            match self.next().await {
                Ok(text) => said.push(text),
                Err(code) => return (code, said),
            }
        }
    }

    /// Follows a channel, and says from where.
    pub async fn subscribe(&mut self, channel: &Channel, after: Option<u64>) -> Value {
        let mut frame = j!({"action": "subscribe", "channel": channel});
        if let Some(after) = after {
            frame["after"] = after.into();
        }
        self.say(&frame).await;
        let answer = self.control().await;
        assert_eq!(answer["kind"], "subscribed", "{answer}");
        answer
    }

    /// The sequences of one channel's batches up to `last`; a gap or a pointer fails.
    pub async fn follow(&mut self, after: u64, last: u64) {
        let mut cursor = after;
        while cursor < last {
            let text = self.hear().await;
            cursor = advanced(cursor, &text["event"], &text["data"]);
        }
        assert_eq!(cursor, last);
    }
}

/// Where a consumer is after a message that it may not have missed anything before.
pub fn advanced(cursor: u64, name: &Value, message: &Value) -> u64 {
    if name == "beyond-cdn-pointer/1" {
        let sequence = message["sequence"].as_u64().expect("a sequence");
        assert!(sequence <= cursor, "a gap after {cursor}: {message}");
        return cursor;
    }
    assert_eq!(name, "beyond-cdn-events/1", "{message}");
    let events = message["events"].as_array().expect("events");
    events.iter().fold(cursor, |cursor, event| {
        assert_eq!(event["sequence"].as_u64(), Some(cursor + 1), "{message}");
        cursor + 1
    })
}

/// An event of a stream of server-sent events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sse {
    pub event: String,
    pub id: Option<String>,
    pub data: Value,
}

/// Reads server-sent events.
pub struct SseReader {
    bytes: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    text: String,
}

impl SseReader {
    pub async fn open(request: RequestBuilder) -> Self {
        let answer = within(request.send()).await.expect("an answer");
        assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
        let header = |name: &str| answer.headers()[name].to_str().expect("a text").to_owned();
        assert_eq!(header("content-type"), "text/event-stream");
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("x-accel-buffering"), "no");
        assert!(answer.headers().get("content-encoding").is_none());
        Self { bytes: answer.bytes_stream().boxed(), text: String::new() }
    }

    /// The next event that is no comment; none when the stream has ended.
    pub async fn next(&mut self) -> Option<Sse> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                if let Some(event) = parse(&block) {
                    return Some(event);
                }
                continue;
            }
            let bytes = within(self.bytes.next()).await?.expect("bytes");
            self.text.push_str(std::str::from_utf8(&bytes).expect("UTF-8"));
        }
    }

    pub async fn hear(&mut self) -> Sse {
        self.next().await.expect("the stream goes on")
    }

    /// Up to `last`, without a gap.
    pub async fn follow(&mut self, after: u64, last: u64) -> Sse {
        let mut cursor = after;
        loop {
            let event = self.hear().await;
            cursor = advanced(cursor, &Value::from(event.event.as_str()), &event.data);
            if cursor >= last {
                assert_eq!(cursor, last);
                return event;
            }
        }
    }
}

fn parse(block: &str) -> Option<Sse> {
    let mut event = Sse::default();
    let mut data = String::new();
    for line in block.lines() {
        match line.split_once(':').map(|(name, value)| (name, value.trim_start())) {
            Some(("event", value)) => value.clone_into(&mut event.event),
            Some(("id", value)) => event.id = Some(value.to_owned()),
            Some(("data", value)) => data.push_str(value),
            Some(("", _)) => {}
            other => panic!("{other:?} in {block}"),
        }
    }
    event.data = serde_json::from_str(&data).ok()?;
    Some(event)
}

/// Until the channel can be followed again.
pub async fn until_followed(world: &World) {
    within(async {
        loop {
            let answer = world.sse("").send().await.expect("an answer");
            if answer.status() == 200 {
                break;
            }
        }
    })
    .await;
}
