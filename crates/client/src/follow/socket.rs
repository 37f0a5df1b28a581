//! One connection: what is said on it, and how it ends.

use std::{sync::Arc, time::Duration};

use futures::{SinkExt as _, StreamExt as _};
use outport_contract::stream::{Batch, Channel, POINTER, PROTOCOL, Pointer};
use reqwest::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{self, Message, client::IntoClientRequest as _, protocol::WebSocketConfig},
};

use super::machine::End;
use crate::{
    Client, ClientError,
    client::{ELSEWHERE, Problem, retry_after},
};

/// Bytes of a message, at most; a server's own limit is far below.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// How long a connection may take to be made, and a message to be taken.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name of what is about the connection itself.
pub(crate) const CONTROL: &str = "outport-control/1";

/// A connection.
pub(crate) struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

/// What the server said.
#[derive(Debug)]
pub(crate) enum Frame {
    Batch(Batch),
    Pointer(Pointer),
    Control(Control),
    /// Nothing that is understood; that it came is a sign of life.
    Other,
}

/// About the connection itself.
#[derive(Debug, Deserialize)]
pub(crate) struct Control {
    pub kind: String,
    pub channel: Option<Channel>,
    pub head: Option<u64>,
    pub epoch: Option<String>,
    pub code: Option<String>,
    pub detail: Option<String>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) struct Loss {
    pub why: String,
    /// That another try is of no use.
    pub end: Option<End>,
    /// How long the server asked to be left alone.
    pub retry_after: Option<Duration>,
    /// The code of the server's close, or the status of its answer.
    pub code: Option<u16>,
}

impl Loss {
    pub fn because(why: impl Into<String>) -> Self {
        Self { why: why.into(), end: None, retry_after: None, code: None }
    }
}

/// Every message, by the name of its event.
#[derive(Deserialize)]
struct Envelope {
    event: String,
    data: Box<RawValue>,
}

impl Frame {
    fn parse(text: &str) -> Self {
        fn data<T: serde::de::DeserializeOwned>(data: &RawValue) -> Option<T> {
            serde_json::from_str(data.get()).ok()
        }
        let parsed = serde_json::from_str(text).ok().and_then(|Envelope { event, data: raw }| {
            match event.as_str() {
                PROTOCOL => data(&raw).map(Self::Batch),
                POINTER => data(&raw).map(Self::Pointer),
                CONTROL => data(&raw).map(Self::Control),
                _ => None,
            }
        });
        parsed.unwrap_or(Self::Other)
    }
}

impl Socket {
    pub async fn connect(client: &Client) -> Result<Self, Loss> {
        Self::connect_as(client, Some(client.authorization())).await
    }

    /// With this header, or none.
    pub async fn connect_as(client: &Client, header: Option<HeaderValue>) -> Result<Self, Loss> {
        let late = |_| Loss::because("the server does not answer");
        tokio::time::timeout(PATIENCE, Self::dial(client, header)).await.map_err(late)?
    }

    async fn dial(client: &Client, header: Option<HeaderValue>) -> Result<Self, Loss> {
        let mut request = client
            .socket_url()
            .into_client_request()
            .map_err(|error| Loss::because(error.to_string()))?;
        if let Some(header) = header {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(MOST_BYTES))
            .max_frame_size(Some(MOST_BYTES));
        match connect_async_with_config(request, Some(config), true).await {
            Ok((stream, _)) => Ok(Self { stream }),
            Err(tungstenite::Error::Http(answer)) => Err(refused(&answer)),
            Err(error) => Err(Loss::because(error.to_string())),
        }
    }

    /// Says it; a server that does not take it in time is lost.
    pub async fn say(&mut self, what: &serde_json::Value) -> Result<(), Loss> {
        let sent = self.stream.send(Message::text(what.to_string()));
        match tokio::time::timeout(PATIENCE, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Loss::because(error.to_string())),
            Err(_) => Err(Loss::because("the server does not read")),
        }
    }

    pub async fn subscribe(
        &mut self,
        channel: &Channel,
        after: Option<u64>,
        epoch: Option<&Arc<str>>,
    ) -> Result<(), Loss> {
        let mut what = json!({"action": "subscribe", "channel": channel});
        if let Some(after) = after {
            what["after"] = after.into();
        }
        if let Some(epoch) = epoch {
            what["epoch"] = epoch.as_ref().into();
        }
        self.say(&what).await
    }

    pub async fn unsubscribe(&mut self, channel: &Channel) -> Result<(), Loss> {
        self.say(&json!({"action": "unsubscribe", "channel": channel})).await
    }

    /// The next frame. Nothing is lost when this is given up in the midst.
    pub async fn hear(&mut self) -> Result<Frame, Loss> {
        let text = self.hear_text().await?;
        Ok(text.map_or(Frame::Other, |text| Frame::parse(&text)))
    }

    /// The text of the next frame, if it has one.
    pub async fn hear_text(&mut self) -> Result<Option<String>, Loss> {
        match self.stream.next().await {
            Some(Ok(Message::Text(text))) => Ok(Some(text.as_str().to_owned())),
            Some(Ok(Message::Close(close))) => {
                let close = close.map(|close| (u16::from(close.code), close.reason.to_string()));
                Err(closed(close))
            }
            Some(Ok(_)) => Ok(None),
            Some(Err(error)) => Err(Loss::because(error.to_string())),
            None => Err(closed(None)),
        }
    }

    /// Says goodbye, as far as the server takes it.
    pub async fn close(mut self) {
        let closing = self.stream.close(None);
        drop(tokio::time::timeout(Duration::from_secs(1), closing).await);
    }
}

/// The server closed. Whether another try is of use is told by the code.
fn closed(close: Option<(u16, String)>) -> Loss {
    let Some((code, reason)) = close else { return Loss::because("the connection was cut") };
    let end = match code {
        4400 | 4429 => Some(End::Refused(format!("{code} {reason}").trim_end().to_owned())),
        4401 => Some(End::Unauthenticated),
        4403 => Some(End::AccessRevoked),
        _ => None,
    };
    let why = format!("closed with {code} {reason}").trim_end().to_owned();
    Loss { why, end, retry_after: None, code: Some(code) }
}

/// The server answered, and not with a connection.
fn refused(answer: &tungstenite::http::Response<Option<Vec<u8>>>) -> Loss {
    let status = answer.status().as_u16();
    let body = answer.body().as_deref().unwrap_or_default();
    let Problem { code, detail } = serde_json::from_slice(body).unwrap_or_default();
    let retry_after = retry_after(answer.headers().get(RETRY_AFTER));
    let detail = detail.or_else(|| no_connection(status).map(str::to_owned));
    let why = ClientError::Refused { status, code, detail, retry_after }.to_string();
    let end = match status {
        401 => Some(End::Unauthenticated),
        408 | 425 | 429 => None,
        400..=499 => Some(End::Refused(why.clone())),
        _ => None,
    };
    Loss { why, end, retry_after, code: Some(status) }
}

/// What an answer says by its status alone that is no refusal.
const fn no_connection(status: u16) -> Option<&'static str> {
    match status {
        200..=299 => Some("the answer cannot be read: it is no connection"),
        300..=399 => Some(ELSEWHERE),
        _ => None,
    }
}
