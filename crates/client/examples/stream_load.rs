//! Load on a server's live stream, for `tests/bench/stream.sh`: many sockets on one channel.
//!
//! ```text
//! stream_load URL CHANNEL latency TYPE SUBSCRIBERS EVENTS EVERY_MS BYTES [stalled]
//! stream_load URL CHANNEL idle CONNECTIONS
//! ```
//!
//! `latency` posts events of a type, with so many bytes of data, and prints how long each took
//! from its commit (`time`, cut to milliseconds) to each subscriber, one line of JSON. All must
//! get all. With `stalled`, one subscriber more reads nothing at all. `idle` subscribes and says
//! `ready`, then waits until its standard input ends. The token is in `BENCH_TOKEN`.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::{
    error::Error,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use chrono::DateTime;
use futures::{SinkExt as _, StreamExt as _};
use outport_contract::stream::Channel;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde_json::json;
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{Message, client::IntoClientRequest as _, protocol::WebSocketConfig},
};

type Failure = Box<dyn Error + Send + Sync>;
type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that a socket reads at once.
const READ_BYTES: usize = 8 * 1024;
/// Connections that are being made at once.
const DIALLING: usize = 64;

#[derive(Clone)]
struct Server {
    url: String,
    bearer: HeaderValue,
    channel: Channel,
}

/// What is posted.
struct Load {
    event_type: String,
    events: usize,
    every: Duration,
    bytes: usize,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [url, channel, case @ ..] = &arguments[..] else { return Err("URL CHANNEL CASE".into()) };
    let token = std::env::var("BENCH_TOKEN")?;
    let bearer = HeaderValue::try_from(format!("Bearer {token}"))?;
    let server = Server { url: (*url).to_owned(), bearer, channel: channel.parse()? };
    match case {
        ["latency", event_type, subscribers, events, every, bytes, rest @ ..] => {
            let load = Load {
                event_type: (*event_type).to_owned(),
                events: events.parse()?,
                every: Duration::from_millis(every.parse()?),
                bytes: bytes.parse()?,
            };
            latency(&server, subscribers.parse()?, &load, rest == ["stalled"]).await
        }
        ["idle", connections] => {
            let sockets = server.dial_many(connections.parse()?).await?;
            println!("ready");
            tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
            drop(sockets);
            Ok(())
        }
        _ => Err("latency … or idle …".into()),
    }
}

impl Server {
    /// A connection that is subscribed.
    async fn dial(&self) -> Result<Socket, Failure> {
        let url = format!("{}/v1/stream", self.url.replacen("http", "ws", 1));
        let mut request = url.into_client_request()?;
        request.headers_mut().insert(AUTHORIZATION, self.bearer.clone());
        // Of each read the whole buffer is cleared first, which is the load's time, not the server's.
        let config = Some(WebSocketConfig::default().read_buffer_size(READ_BYTES));
        let dialled = connect_async_with_config(request, config, true);
        let (mut socket, _) = timeout(PATIENCE, dialled).await??;
        let subscribe = json!({"action": "subscribe", "channel": self.channel});
        socket.send(Message::text(subscribe.to_string())).await?;
        loop {
            match timeout(PATIENCE, socket.next()).await? {
                Some(Ok(Message::Text(text))) if text.contains("\"subscribed\"") => {
                    return Ok(socket);
                }
                Some(Ok(Message::Close(close))) => return Err(format!("closed: {close:?}").into()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Err("the connection was cut".into()),
            }
        }
    }

    async fn dial_many(&self, connections: usize) -> Result<Vec<Socket>, Failure> {
        let dials = futures::stream::iter((0..connections).map(|_| self.dial()));
        dials.buffer_unordered(DIALLING).collect::<Vec<_>>().await.into_iter().collect()
    }

    async fn post(&self, load: &Load) -> Result<(), Failure> {
        let client = reqwest::Client::new();
        let (Channel::Organization(organization) | Channel::Application(organization, _)) =
            &self.channel
        else {
            return Err("an organization's or an application's channel".into());
        };
        let mut scope = json!({"organization": organization});
        if let Channel::Application(_, name) = &self.channel {
            scope["application"] = format!("{organization}.{name}").into();
        }
        let data = json!({"note": "x".repeat(load.bytes)});
        let event = json!({"scope": scope, "type": load.event_type, "data": data});
        let mut ticks = interval(load.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..load.events {
            ticks.tick().await;
            let request = client
                .post(format!("{}/v1/channels/events", self.url))
                .header(AUTHORIZATION, self.bearer.clone())
                .json(&event);
            let answer = request.send().await?;
            if answer.status() != 201 {
                return Err(format!("{}: {}", answer.status(), answer.text().await?).into());
            }
        }
        Ok(())
    }
}

async fn latency(
    server: &Server,
    subscribers: usize,
    load: &Load,
    is_stalled: bool,
) -> Result<(), Failure> {
    let stalled = if is_stalled { Some(server.dial().await?) } else { None };
    let mut listening = JoinSet::new();
    for socket in server.dial_many(subscribers).await? {
        listening.spawn(listen(socket, load.events));
    }
    let began = Instant::now();
    server.post(load).await?;
    let posting = began.elapsed();
    let (mut waits, mut messages) = (Vec::new(), 0);
    while let Some(heard) = listening.join_next().await {
        let (own, of_one) = heard??;
        waits.extend(own);
        messages = messages.max(of_one);
    }
    drop(stalled);
    waits.sort_unstable();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
    let figures = json!({
        "type": load.event_type,
        "subscribers": subscribers,
        "stalled": is_stalled,
        "events": load.events,
        "messages": messages,
        "eventsPerSecond": (load.events as f64 / posting.as_secs_f64()).round(),
        "p50Ms": at(0.5),
        "p99Ms": at(0.99),
        "mostMs": at(1.0),
    });
    println!("{figures}");
    Ok(())
}

/// How long each event took, in milliseconds, and in how many messages they came.
async fn listen(mut socket: Socket, events: usize) -> Result<(Vec<i64>, usize), Failure> {
    let (mut waits, mut messages) = (Vec::with_capacity(events), 0);
    while waits.len() < events {
        match timeout(PATIENCE, socket.next()).await? {
            Some(Ok(Message::Text(text))) if text.contains("\"events\":[") => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
                messages += 1;
                for (at, key) in text.match_indices("\"time\":\"") {
                    let time = &text[at + key.len()..][..24];
                    waits.push(now - DateTime::parse_from_rfc3339(time)?.timestamp_millis());
                }
            }
            // A heartbeat tells nothing new; any other pointer is something that did not travel.
            Some(Ok(Message::Text(text))) if text.contains("\"reason\":\"head\"") => {}
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            other => return Err(format!("after {} events: {other:?}", waits.len()).into()),
        }
    }
    Ok((waits, messages))
}
