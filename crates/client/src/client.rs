//! Requests to a server, each with the token.

use std::{fmt, time::Duration};

use futures::StreamExt as _;
use outport_contract::stream::Channel;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{
    Method, RequestBuilder, Response, Url,
    header::{HeaderValue, RETRY_AFTER},
    redirect,
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::page::{Page, Snapshot};

/// Bytes of an answer, at most: a page of events or a snapshot of jobs.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// Events of a page, at first; fewer are asked for when they come to too many bytes.
const PAGE: u64 = 500;
/// How long a server may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long a server may say nothing in the midst of an answer.
const SILENCE: Duration = Duration::from_secs(30);

/// What a redirect says: whoever is there must not learn the token.
pub(crate) const ELSEWHERE: &str = "it leads elsewhere";

/// A server, and who asks it.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: Url,
    authorization: HeaderValue,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token stays out of every log.
        f.debug_struct("Client").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

/// Why there can be no such client.
#[derive(Debug, thiserror::Error)]
pub enum InvalidToken {
    /// The address is none of a server.
    #[error("the URL must be http://… or https://…, without a user, a query or a fragment")]
    Url,
    /// The token cannot be a header.
    #[error("the token must be printable ASCII")]
    Token,
    /// TLS or the like is not at hand.
    #[error("no requests can be made: {0}")]
    Http(#[source] reqwest::Error),
}

/// Why a request had no answer to use.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server said no.
    #[error("{status}{}{}", said(" ", code.as_deref()), said(": ", detail.as_deref()))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The stable code of the problem.
        code: Option<String>,
        /// For a person.
        detail: Option<String>,
        /// When the server asked to be asked again, from then on.
        retry_after: Option<Duration>,
    },
    /// There was no answer, or it broke off.
    #[error("the server cannot be reached: {0}")]
    Unreachable(#[source] reqwest::Error),
    /// More than the limit.
    #[error("the answer has more than {MOST_BYTES} bytes")]
    TooLarge,
    /// It is not what the contract says.
    #[error("the answer cannot be read: {0}")]
    Unreadable(#[source] serde_json::Error),
    /// It is of something else than what was asked for.
    #[error("the answer is of another channel or export than the one that was asked for")]
    Foreign,
}

fn said(before: &str, text: Option<&str>) -> String {
    text.map(|text| format!("{before}{text}")).unwrap_or_default()
}

impl ClientError {
    /// The HTTP status, where there was an answer.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// How long the server asked to be left alone.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// A problem as RFC 9457 has it, as far as it is used.
#[derive(Default, Deserialize)]
pub(crate) struct Problem {
    pub code: Option<String>,
    pub detail: Option<String>,
}

impl Client {
    /// A client of the server at `url`, for whom `token` was made.
    pub fn new(url: &str, token: &str) -> Result<Self, InvalidToken> {
        let mut url: Url = url.parse().map_err(|_| InvalidToken::Url)?;
        let plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !matches!(url.scheme(), "http" | "https") || !plain {
            return Err(InvalidToken::Url);
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        let authorization = bearer(token)?;
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(SILENCE)
            .redirect(redirect::Policy::none())
            .build()
            .map_err(InvalidToken::Http)?;
        Ok(Self { http, url, authorization })
    }

    /// The same server, asked by somebody else.
    pub fn with_token(&self, token: &str) -> Result<Self, InvalidToken> {
        Ok(Self { authorization: bearer(token)?, ..self.clone() })
    }

    /// The events of a channel after a sequence, as many as one page has. Of another `epoch`, or
    /// when the sequence is below the floor or above the head, it is refused with 410.
    pub async fn replay(
        &self,
        channel: &Channel,
        after: u64,
        epoch: Option<&str>,
    ) -> Result<Page, ClientError> {
        let mut limit = PAGE;
        loop {
            match self.page(channel, after, epoch, limit).await {
                Err(ClientError::TooLarge) if limit > 1 => limit /= 8,
                answer => return answer,
            }
            limit = limit.max(1);
        }
    }

    /// [`Client::replay`] with a limit of events.
    pub async fn page(
        &self,
        channel: &Channel,
        after: u64,
        epoch: Option<&str>,
        limit: u64,
    ) -> Result<Page, ClientError> {
        let mut path = format!("/v1/channels/{channel}/events?after={after}&limit={limit}");
        if let Some(epoch) = epoch {
            path.push_str("&epoch=");
            path.extend(utf8_percent_encode(epoch, NON_ALPHANUMERIC));
        }
        let page: Page = self.get(&path).await?;
        if page.channel == *channel { Ok(page) } else { Err(ClientError::Foreign) }
    }

    /// What is so now.
    pub async fn snapshot(&self, channel: &Channel) -> Result<Snapshot, ClientError> {
        let snapshot: Snapshot = self.get(&format!("/v1/channels/{channel}/snapshot")).await?;
        if snapshot.is_of(channel) { Ok(snapshot) } else { Err(ClientError::Foreign) }
    }

    /// The answer to a GET of a path from `/v1/` on.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        read(self.request(Method::GET, path)).await
    }

    /// The answer to a POST of JSON.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<T, ClientError> {
        read(self.request(Method::POST, path).json(body)).await
    }

    /// A request with the token.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let authorization = self.authorization.clone();
        self.anonymous(method, path).header(reqwest::header::AUTHORIZATION, authorization)
    }

    /// A request without it.
    pub(crate) fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url.as_str().trim_end_matches('/')))
    }

    /// A request to wherever a server pointed: it must not learn the token.
    pub(crate) fn elsewhere(&self, url: Url) -> RequestBuilder {
        self.http.get(url)
    }

    /// The address, as far as a redirection is relative to it.
    pub(crate) fn join(&self, location: &str) -> Option<Url> {
        self.url.join(location).ok()
    }

    /// The header that names who asks.
    pub(crate) fn authorization(&self) -> HeaderValue {
        self.authorization.clone()
    }

    /// Where the WebSocket is.
    pub(crate) fn socket_url(&self) -> String {
        let url = self.url.as_str().trim_end_matches('/');
        format!("ws{}/v1/stream", url.strip_prefix("http").unwrap_or(url))
    }
}

fn bearer(token: &str) -> Result<HeaderValue, InvalidToken> {
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header = header.map_err(|_| InvalidToken::Token)?;
    header.set_sensitive(true);
    Ok(header)
}

/// Sends it, and reads the answer, refusals among them.
pub(crate) async fn answered(request: RequestBuilder) -> Result<Response, ClientError> {
    let response = request.send().await.map_err(ClientError::Unreachable)?;
    if response.status().is_success() || response.status().is_redirection() {
        return Ok(response);
    }
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers().get(RETRY_AFTER));
    let body = bytes(response).await.unwrap_or_default();
    let Problem { code, detail } = serde_json::from_slice(&body).unwrap_or_default();
    Err(ClientError::Refused { status, code, detail, retry_after })
}

pub(crate) async fn read<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, ClientError> {
    let response = answered(request).await?;
    if response.status().is_redirection() {
        let status = response.status().as_u16();
        let detail = Some(ELSEWHERE.to_owned());
        return Err(ClientError::Refused { status, code: None, detail, retry_after: None });
    }
    let body = bytes(response).await?;
    serde_json::from_slice(&body).map_err(ClientError::Unreadable)
}

async fn bytes(response: Response) -> Result<Vec<u8>, ClientError> {
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(ClientError::Unreachable)?;
        if body.len() + piece.len() > MOST_BYTES {
            return Err(ClientError::TooLarge);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Seconds; a date is not understood, and an hour is the most that is believed.
pub(crate) fn retry_after(header: Option<&HeaderValue>) -> Option<Duration> {
    let seconds: u64 = header?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.min(3600)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_address_has_a_place_for_the_socket() {
        for (url, socket) in [
            ("http://127.0.0.1:8080", "ws://127.0.0.1:8080/v1/stream"),
            ("https://outport.example/", "wss://outport.example/v1/stream"),
            ("https://example.com/outport/", "wss://example.com/outport/v1/stream"),
        ] {
            assert_eq!(Client::new(url, "t").expect("a client").socket_url(), socket);
        }
        for url in ["", "outport", "ftp://a", "https://u:p@a", "https://a?b", "https://a#b"] {
            assert!(matches!(Client::new(url, "t"), Err(InvalidToken::Url)), "{url}");
        }
        assert!(matches!(Client::new("http://a", "a\nb"), Err(InvalidToken::Token)));
    }

    #[test]
    fn the_token_is_in_no_debug_text() {
        let client = Client::new("http://a", "opt_secret").expect("a client");
        assert!(!format!("{client:?} {:?}", client.authorization()).contains("secret"));
    }

    #[test]
    fn a_server_may_ask_for_seconds_and_for_no_more_than_an_hour() {
        let asked = |text: &'static str| retry_after(Some(&HeaderValue::from_static(text)));
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("99999999"), Some(Duration::from_hours(1)));
        assert_eq!(asked("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(retry_after(None), None);
    }
}
