//! Where a case plays.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::future;
use outport_contract::stream::{Channel, Family, Scope, StreamEventType};
use reqwest::{Method, RequestBuilder, Response, header::RETRY_AFTER};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Flaw, KitConfig, ensure};
use crate::{
    Client, ClientError,
    client::{answered, read, retry_after},
};

/// A server, who asks it, and what it is asked about.
pub(crate) struct Stage {
    clients: Vec<Client>,
    turn: AtomicUsize,
    pub organization: Uuid,
    pub job: Option<Uuid>,
    pub message_bytes: usize,
    pub heartbeat: Duration,
}

/// An event that was appended.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Appended {
    pub id: String,
    channels: Vec<Numbered>,
}

#[derive(Clone, Debug, Deserialize)]
struct Numbered {
    channel: Channel,
    sequence: u64,
}

impl Appended {
    /// Its number in a channel.
    pub fn sequence(&self, channel: &Channel) -> Result<u64, Flaw> {
        let number = self.channels.iter().find(|numbered| numbered.channel == *channel);
        let number = number.map(|numbered| numbered.sequence);
        number.ok_or_else(|| Flaw::Failed(format!("{} is not numbered in {channel}", self.id)))
    }

    /// Where it is numbered.
    pub fn channels(&self) -> Vec<Channel> {
        self.channels.iter().map(|numbered| numbered.channel.clone()).collect()
    }
}

/// A page as it was sent.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RawPage {
    pub protocol: String,
    pub channel: Channel,
    pub epoch: String,
    pub floor: u64,
    pub head: u64,
    pub events: Vec<Value>,
}

impl RawPage {
    pub fn sequences(&self) -> Vec<u64> {
        self.events.iter().filter_map(|event| event["sequence"].as_u64()).collect()
    }
}

/// An application that nobody else has, and its channel.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub scope: Scope,
    pub channel: Channel,
}

impl Stage {
    /// Appends one event, and so learns whose the token is.
    pub async fn set(config: KitConfig) -> Result<Self, Flaw> {
        let KitConfig { clients, organization, job, message_bytes, heartbeat, .. } = config;
        let first = clients.first().ok_or_else(|| Flaw::Failed("no server".to_owned()))?;
        let organization = if let Some(organization) = organization {
            organization
        } else {
            let event = json!({"scope": {}, "type": "plan.changed", "data": {}});
            let appended: Appended = post(first, &event).await?;
            let own = appended.channels().into_iter().find_map(|channel| match channel {
                Channel::Organization(organization) => Some(organization),
                _ => None,
            });
            own.ok_or_else(|| Flaw::Failed("say the organization".to_owned()))?
        };
        let turn = AtomicUsize::new(0);
        Ok(Self { clients, turn, organization, job, message_bytes, heartbeat })
    }

    /// Another process each time.
    pub fn client(&self) -> &Client {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.clients[turn % self.clients.len()]
    }

    /// Who asks as somebody else.
    pub fn client_as(&self, token: &str) -> Result<Client, Flaw> {
        Ok(self.client().with_token(token)?)
    }

    /// A place that nothing has happened at.
    pub fn fresh(&self) -> Place {
        let name = format!("conformance-{}", Uuid::now_v7().simple());
        let organization = self.organization;
        let application = Some(format!("{organization}.{name}"));
        let scope = Scope { organization, application, job: None };
        Place { scope, channel: Channel::Application(organization, name) }
    }

    /// The organization's own channel, where others are too.
    pub fn shared(&self) -> Place {
        let organization = self.organization;
        let scope = Scope { organization, application: None, job: None };
        Place { scope, channel: Channel::Organization(organization) }
    }

    /// The channel of the job that was named.
    pub fn of_job(&self) -> Result<Place, Flaw> {
        let Some(job) = self.job else {
            return super::not_here("these types are a job's: name one of the caller's jobs");
        };
        let Place { scope, .. } = self.fresh();
        Ok(Place { scope: Scope { job: Some(job), ..scope }, channel: Channel::Job(job) })
    }

    pub async fn append(
        &self,
        place: &Place,
        event_type: &str,
        data: Value,
    ) -> Result<Appended, Flaw> {
        let event = json!({"scope": place.scope, "type": event_type, "data": data});
        Ok(post(self.client(), &event).await?)
    }

    /// An append as it is.
    pub async fn post(&self, event: &Value) -> Result<Appended, ClientError> {
        post(self.client(), event).await
    }

    /// Events all at once: their ids and sequences in the place's channel, in that order.
    pub async fn append_at_once(
        &self,
        place: &Place,
        event_type: &str,
        data: impl Iterator<Item = Value>,
    ) -> Result<Vec<(String, u64)>, Flaw> {
        let appending = data.map(|data| self.append(place, event_type, data));
        let appended = future::try_join_all(appending).await?;
        let place = |one: &Appended| Ok((one.id.clone(), one.sequence(&place.channel)?));
        let mut places = appended.iter().map(place).collect::<Result<Vec<_>, Flaw>>()?;
        places.sort_by_key(|(_, sequence)| *sequence);
        Ok(places)
    }

    /// So many events, one after the other, that only the application's channel has and that do
    /// not wait.
    pub async fn append_some(&self, place: &Place, count: usize) -> Result<Vec<Appended>, Flaw> {
        let mut appended = Vec::new();
        for number in 0..count {
            let data = json!({"number": number});
            appended.push(self.append(place, "release.candidate", data).await?);
        }
        Ok(appended)
    }

    /// An append that must not be taken: its status, which must be of the caller's making.
    pub async fn refused(&self, event: &Value) -> Result<u16, Flaw> {
        match post::<Value>(self.client(), event).await {
            Ok(answer) => Err(Flaw::Failed(format!("{event} was taken: {answer}"))),
            Err(error) => match error.status() {
                Some(status @ 400..=499) => Ok(status),
                _ => Err(error.into()),
            },
        }
    }

    pub async fn page(&self, channel: &Channel, after: u64, more: &str) -> Result<RawPage, Flaw> {
        let path = format!("/v1/channels/{channel}/events?after={after}{more}");
        Ok(patiently(|| async { self.client().get(&path).await }).await?)
    }

    /// All of a channel after a sequence, page by page.
    pub async fn replay(&self, channel: &Channel, after: u64) -> Result<RawPage, Flaw> {
        let mut whole = self.page(channel, after, "&limit=1000").await?;
        while let Some(last) = whole.sequences().last().copied().filter(|last| *last < whole.head) {
            let page = self.page(channel, last, "&limit=1000").await?;
            ensure(!page.events.is_empty(), || format!("nothing after {last} of {}", whole.head))?;
            whole.events.extend(page.events);
        }
        Ok(whole)
    }

    /// One event of a channel.
    pub async fn event(&self, channel: &Channel, sequence: u64) -> Result<Value, Flaw> {
        let page = self.page(channel, sequence - 1, "&limit=1").await?;
        let event = page.events.into_iter().next();
        event.ok_or_else(|| Flaw::Failed(format!("{channel} has no {sequence}")))
    }

    pub async fn head(&self, channel: &Channel) -> Result<u64, Flaw> {
        Ok(self.page(channel, 0, "&limit=1").await?.head)
    }

    /// The status and the body of a GET.
    pub async fn get(&self, client: &Client, path: &str) -> Result<(u16, Value), Flaw> {
        status_of(client.request(Method::GET, path)).await
    }
}

/// The status and the JSON of an answer.
pub(crate) async fn status_of(request: RequestBuilder) -> Result<(u16, Value), Flaw> {
    let response = sent(request).await?;
    let status = response.status().as_u16();
    let body = response.bytes().await?;
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}

/// The answer to a request whose body can be sent again, once the server does not limit it.
pub(crate) async fn sent(request: RequestBuilder) -> Result<Response, Flaw> {
    loop {
        let again = request.try_clone();
        let again = again.ok_or_else(|| Flaw::Failed("a body that is a stream".to_owned()))?;
        let response = again.send().await?;
        if response.status().as_u16() != 429 {
            return Ok(response);
        }
        rest(retry_after(response.headers().get(RETRY_AFTER))).await;
    }
}

async fn post<T: DeserializeOwned>(client: &Client, event: &Value) -> Result<T, ClientError> {
    patiently(|| read(client.request(Method::POST, "/v1/channels/events").json(event))).await
}

/// A server may limit how often it is asked.
pub(crate) async fn patiently<T, F: Future<Output = Result<T, ClientError>>>(
    request: impl Fn() -> F,
) -> Result<T, ClientError> {
    loop {
        match request().await {
            Err(error) if error.status() == Some(429) => {
                rest(error.retry_after()).await;
            }
            answer => return answer,
        }
    }
}

/// Leaves the server alone for as long as it asked, or a second.
pub(crate) async fn rest(asked: Option<Duration>) {
    let wait = asked.unwrap_or(Duration::from_secs(1));
    tokio::time::sleep(wait.max(Duration::from_millis(100))).await;
}

/// A token of less than the caller's own reach, if the caller may make one.
pub(crate) async fn mint(stage: &Stage, scopes: &[&str]) -> Result<(String, String), Flaw> {
    #[derive(Deserialize)]
    struct Minted {
        id: String,
        token: String,
    }
    let body = json!({"name": "conformance", "scopes": scopes});
    let request = || read(stage.client().request(Method::POST, "/v1/tokens").json(&body));
    match patiently::<Minted, _>(request).await {
        Ok(Minted { id, token }) => Ok((id, token)),
        Err(error) if matches!(error.status(), Some(403..=405)) => {
            super::not_here("the token may not make another one to take away")
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes a token away.
pub(crate) async fn revoke(stage: &Stage, id: &str) -> Result<(), Flaw> {
    let path = format!("/v1/tokens/{id}");
    patiently(|| answered(stage.client().request(Method::DELETE, &path))).await?;
    Ok(())
}

/// Data that a type's family asks for.
pub(crate) fn data_of(event_type: &StreamEventType) -> Value {
    match event_type.family {
        Family::Job => json!({"state": event_type.name.trim_start_matches("job.")}),
        Family::Stage => json!({"stage": "generate", "done": 1, "total": 2}),
        Family::Module => json!({"module": "export", "key": "a"}),
        Family::Retry => json!({"module": "export", "attempt": 1}),
        Family::Log => json!({"lines": [
            {"time": "2026-07-04T12:20:00.000Z", "level": "info", "stage": null, "message": "m"}
        ]}),
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn a_server_that_limits_how_often_it_is_asked_breaks_no_rule() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            for (status, body) in [("429 Too Many Requests", "{}"), ("200 OK", "[1]")] {
                let (mut socket, _) = listener.accept().await.expect("a connection");
                let asked = socket.read(&mut [0; 4096]).await.expect("a request");
                assert!(asked > 0);
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nretry-after: 0\r\n\
                     connection: close\r\n\r\n{body}"
                );
                socket.write_all(answer.as_bytes()).await.expect("it reads");
            }
        });
        let client = Client::new(&format!("http://{address}"), "t").expect("a client");
        let answer = status_of(client.request(Method::GET, "/v1/exports")).await;
        assert_eq!(answer.expect("an answer"), (200, json!([1])));
    }
}
