//! Who listens on a WebSocket, and keeps what was said as it was said.

use std::time::{Duration, Instant};

use outport_contract::stream::{Channel, POINTER, PROTOCOL};
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Flaw, ensure, stage::rest};
use crate::{
    Client,
    follow::socket::{CONTROL, Loss, Socket},
};

/// How long something that must come may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// A listener.
pub(super) struct Ear {
    pub socket: Socket,
}

/// What was said.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub at: Instant,
    pub event: String,
    pub data: Value,
    /// `data` as it was sent.
    pub text: String,
}

#[derive(Deserialize)]
struct Envelope {
    event: String,
    data: Box<RawValue>,
}

impl From<Loss> for Flaw {
    fn from(loss: Loss) -> Self {
        Self::Failed(loss.why)
    }
}

impl Said {
    pub fn is_about(&self, channel: &Channel) -> bool {
        self.data["channel"] == channel.to_string()
    }

    pub fn is_batch(&self) -> bool {
        self.event == PROTOCOL
    }

    pub fn is_pointer(&self) -> bool {
        self.event == POINTER
    }

    /// A pointer that is no heartbeat.
    pub fn is_gap(&self) -> bool {
        self.is_pointer() && self.data["reason"] != "head"
    }

    pub fn is_control(&self, kind: &str) -> bool {
        self.event == CONTROL && self.data["kind"] == kind
    }

    pub fn events(&self) -> &[Value] {
        self.data["events"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The sequences of a batch.
    pub fn sequences(&self) -> Vec<u64> {
        self.events().iter().filter_map(|event| event["sequence"].as_u64()).collect()
    }

    /// The highest sequence that it names.
    pub fn reaches(&self) -> u64 {
        let pointed = self.data["sequence"].as_u64().filter(|_| self.is_pointer());
        pointed.or_else(|| self.sequences().into_iter().max()).unwrap_or_default()
    }

    pub fn parse(text: &str) -> Result<Self, Flaw> {
        let Envelope { event, data } = serde_json::from_str(text)
            .map_err(|error| Flaw::Failed(format!("no message ({error}): {text}")))?;
        let text = data.get().to_owned();
        Ok(Self { at: Instant::now(), event, data: serde_json::from_str(&text)?, text })
    }
}

impl Ear {
    pub async fn connect(client: &Client) -> Result<Self, Flaw> {
        Self::connect_as(client, Some(client.authorization())).await
    }

    /// With this header, or none.
    pub async fn connect_as(client: &Client, header: Option<HeaderValue>) -> Result<Self, Flaw> {
        loop {
            match Socket::connect_as(client, header.clone()).await {
                Err(loss) if loss.code == Some(429) => rest(loss.retry_after).await,
                socket => return Ok(Self { socket: socket? }),
            }
        }
    }

    /// Connected, and subscribed to a channel.
    pub async fn on(client: &Client, channel: &Channel, after: Option<u64>) -> Result<Self, Flaw> {
        let mut ear = Self::connect(client).await?;
        ear.subscribe(channel, after).await?;
        Ok(ear)
    }

    /// Subscribes, and waits until that was taken.
    pub async fn subscribe(&mut self, channel: &Channel, after: Option<u64>) -> Result<Said, Flaw> {
        self.socket.subscribe(channel, after, None).await?;
        let said = self
            .until(|said| {
                said.is_about(channel)
                    && (said.is_control("subscribed") || said.is_control("error"))
            })
            .await?;
        let last = said.into_iter().next_back();
        let last = last.ok_or_else(|| Flaw::Failed("nothing was said".to_owned()))?;
        ensure(last.is_control("subscribed"), || format!("not subscribed: {}", last.text))?;
        Ok(last)
    }

    pub async fn say(&mut self, what: Value) -> Result<(), Flaw> {
        Ok(self.socket.say(&what).await?)
    }

    /// The next message.
    pub async fn hear(&mut self) -> Result<Said, Flaw> {
        loop {
            if let Some(text) = self.socket.hear_text().await? {
                return Said::parse(&text);
            }
        }
    }

    /// All that is said until something is so, which it must be in time.
    pub async fn until(&mut self, is_so: impl Fn(&Said) -> bool) -> Result<Vec<Said>, Flaw> {
        let mut heard = Vec::new();
        let hearing = async {
            loop {
                let said = self.hear().await?;
                let is_last = is_so(&said);
                heard.push(said);
                if is_last {
                    return Ok::<_, Flaw>(());
                }
            }
        };
        match tokio::time::timeout(PATIENCE, hearing).await {
            Ok(Ok(())) => Ok(heard),
            Ok(Err(flaw)) => Err(flaw),
            Err(_) => {
                let texts: Vec<_> = heard.iter().map(|said| shortened(&said.text)).collect();
                let why = format!("not said within {} s; heard: {texts:?}", PATIENCE.as_secs());
                Err(Flaw::Failed(why))
            }
        }
    }

    /// All messages about a channel until one reaches a sequence.
    pub async fn up_to(&mut self, channel: &Channel, sequence: u64) -> Result<Vec<Said>, Flaw> {
        let reaches = |said: &Said| {
            said.is_about(channel)
                && (said.is_batch() || said.is_pointer())
                && said.reaches() >= sequence
        };
        let mut heard = self.until(reaches).await?;
        heard.retain(|said| said.is_about(channel) && (said.is_batch() || said.is_gap()));
        Ok(heard)
    }

    /// What is said of a channel up to the answer to a ping.
    pub async fn up_to_pong(&mut self, channel: &Channel) -> Result<Vec<Said>, Flaw> {
        self.say(json!({"action": "ping"})).await?;
        let mut heard = self.until(|said| said.is_control("pong")).await?;
        heard.retain(|said| said.is_about(channel));
        Ok(heard)
    }

    /// The code with which the server closes, and what it says before.
    pub async fn until_closed(&mut self) -> Result<(Option<u16>, Vec<Said>), Flaw> {
        let mut heard = Vec::new();
        let hearing = async {
            loop {
                match self.socket.hear_text().await {
                    Ok(Some(text)) => heard.push(Said::parse(&text)?),
                    Ok(None) => {}
                    Err(loss) => return Ok::<_, Flaw>(loss.code),
                }
            }
        };
        let closed = tokio::time::timeout(PATIENCE, hearing).await;
        let code = closed.map_err(|_| Flaw::Failed("the server does not close".to_owned()))??;
        Ok((code, heard))
    }
}

/// The ids and the sequences of all events, in their order.
pub(super) fn told(heard: &[Said]) -> Vec<(String, u64)> {
    let events = heard.iter().filter(|said| said.is_batch()).flat_map(Said::events);
    events
        .filter_map(|event| Some((event["id"].as_str()?.to_owned(), event["sequence"].as_u64()?)))
        .collect()
}

/// Each of these, once and in this order, among whatever else.
pub(super) fn ensure_told(heard: &[Said], expected: &[(String, u64)]) -> super::Checked {
    let mine: Vec<_> = told(heard).into_iter().filter(|one| expected.contains(one)).collect();
    ensure(mine == expected, || format!("told {mine:?}, not {expected:?}"))
}

pub(super) fn shortened(text: &str) -> &str {
    text.get(..160).unwrap_or(text)
}
