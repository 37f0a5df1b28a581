//! What handlers take out of a request. Everything that can be wrong with it is a [`Problem`].

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody as _},
    extract::{ConnectInfo, FromRequest, FromRequestParts, Path, Request},
    http::{HeaderMap, header, request::Parts},
};
use chrono::Utc;
use futures::StreamExt as _;
use outport_domain::{
    caller::{Caller, Permission},
    id::Id,
    json::{FieldCode, FieldErrors},
    limits::fixed,
    locale::Locale,
};
use outport_store::PageRequest;
use url::form_urlencoded;
use uuid::Uuid;

use super::{
    ApiState,
    problem::{Problem, ProblemCode},
};
use crate::auth::Identity;

/// Time that a body has to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Bytes of a too large body that are still read, so that the answer reaches the client.
const DRAIN_BYTES: usize = 4 * 1024 * 1024;

/// The authenticated caller.
pub struct Authorized(pub Caller);

impl Authorized {
    /// The caller, if its credential carries this right.
    pub fn with(self, permission: Permission) -> Result<Caller, Problem> {
        if self.0.may(permission) {
            Ok(self.0)
        } else {
            Err(Problem::missing_scope(permission.name()))
        }
    }
}

impl FromRequestParts<Arc<ApiState>> for Authorized {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<ApiState>) -> Result<Self, Problem> {
        Ok(Self(state.authenticator.authenticate(&parts.headers, Utc::now()).await?))
    }
}

/// The authenticated caller, and when its credential ends.
pub struct Identified(pub Identity);

impl FromRequestParts<Arc<ApiState>> for Identified {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<ApiState>) -> Result<Self, Problem> {
        Ok(Self(state.authenticator.identify(&parts.headers, Utc::now()).await?))
    }
}

/// The first variable segment of the path.
pub struct Segment(pub String);

impl Segment {
    /// The id that it is. What is no id names nothing.
    pub fn id<T>(&self) -> Result<Id<T>, Problem> {
        self.0.parse().map_err(|_| Problem::not_found())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        segments(parts, state).await?.into_iter().next().map(Self).ok_or_else(Problem::not_found)
    }
}

/// The number of a file, the last variable segment of the path.
pub struct FileNumber(pub u32);

impl<S: Send + Sync> FromRequestParts<S> for FileNumber {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let last = segments(parts, state).await?.pop().unwrap_or_default();
        // One file has one URL: no sign, no leading zero.
        let number = last.parse().ok().filter(|number: &u32| number.to_string() == last);
        number.map(Self).ok_or_else(Problem::not_found)
    }
}

async fn segments<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Vec<String>, Problem> {
    let path = Path::<Vec<String>>::from_request_parts(parts, state).await;
    path.map(|Path(segments)| segments).map_err(|_| Problem::not_found())
}

/// The query, read whole: unknown, repeated and wrong parameters are told together.
pub struct Params {
    pairs: Vec<(String, String)>,
    errors: FieldErrors,
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes())
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        Ok(Self { pairs, errors: FieldErrors::default() })
    }
}

impl Params {
    /// Notes parameters that are not among these, and repeated ones.
    #[must_use]
    pub fn known(mut self, names: &[&str]) -> Self {
        for (index, (name, _)) in self.pairs.iter().enumerate() {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
            if !names.contains(&name.as_str()) {
                self.errors.push(
                    shown,
                    FieldCode::UnknownMember,
                    "is not a parameter of this call",
                );
            } else if self.pairs[..index].iter().any(|(earlier, _)| earlier == name) {
                self.errors.push(shown, FieldCode::Duplicate, "stands twice");
            }
        }
        self
    }

    /// A parameter as read by `read`, if it is there.
    pub fn get<T>(
        &mut self,
        name: &str,
        rule: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let (_, value) = self.pairs.iter().find(|(own, _)| own == name)?;
        let found = if value.contains('\0') { None } else { read(value) };
        if found.is_none() {
            self.errors.push(name, FieldCode::InvalidValue, format!("must be {rule}"));
        }
        found
    }

    /// `cursor` and `limit`.
    pub fn page(&mut self) -> PageRequest {
        let after = self.get("cursor", "a nextCursor of this list", read_cursor);
        let rule = format!("a whole number from 1 to {}", fixed::PAGE_MOST);
        let limit = self.get("limit", &rule, |text| {
            text.parse().ok().filter(|limit| (1..=fixed::PAGE_MOST).contains(limit))
        });
        PageRequest { limit: limit.unwrap_or(fixed::PAGE_DEFAULT), after }
    }

    /// Answers with everything that was wrong.
    pub fn finish(self) -> Result<(), Problem> {
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(Problem::invalid_parameters(self.errors.into_vec()))
        }
    }
}

/// The text of a cursor: opaque to clients, the id of the last row to us.
pub fn cursor(after: Uuid) -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.encode(after.as_bytes())
}

fn read_cursor(text: &str) -> Option<Uuid> {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    Uuid::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

/// A JSON body as text. Its parser is the handler's, which tells every wrong field.
pub struct JsonBody(pub String);

impl FromRequest<Arc<ApiState>> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &Arc<ApiState>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        check_media_type(&parts.headers)?;
        let most = state.limits.request_body_bytes;
        let bytes =
            tokio::time::timeout(BODY_TIME, read_body(body, most)).await.map_err(|_| {
                Problem::new(ProblemCode::RequestTimeout, "The body did not arrive in time.")
            })??;
        let text = String::from_utf8(bytes)
            .map_err(|_| Problem::new(ProblemCode::MalformedRequest, "The body is not UTF-8."))?;
        if let Err(error) = serde_json::from_str::<&serde_json::value::RawValue>(&text) {
            let detail =
                format!("The body is not JSON (line {}, column {}).", error.line(), error.column());
            return Err(Problem::new(ProblemCode::MalformedRequest, detail));
        }
        if is_deep(&text) {
            let mut errors = FieldErrors::default();
            errors.push("", FieldCode::LimitExceeded, "is nested more than 64 levels deep");
            return Err(Problem::invalid_request(errors.into_vec()));
        }
        Ok(Self(text))
    }
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut pieces = value.unwrap_or_default().split(';').map(str::trim);
    let media_type = pieces.next().unwrap_or_default();
    let json = media_type.eq_ignore_ascii_case("application/json");
    let utf8 = pieces.all(|piece| match piece.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    });
    let encoded = headers.get(header::CONTENT_ENCODING).is_some_and(|value| value != "identity");
    if json && utf8 && !encoded {
        Ok(())
    } else {
        Err(Problem::new(
            ProblemCode::UnsupportedMediaType,
            "The body must be 'Content-Type: application/json' in UTF-8, uncompressed.",
        ))
    }
}

async fn read_body(body: Body, most: usize) -> Result<Vec<u8>, Problem> {
    let too_large = || {
        Problem::new(ProblemCode::BodyTooLarge, format!("The body may have {most} bytes at most."))
    };
    if body.size_hint().lower() > (most + DRAIN_BYTES) as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let mut seen = 0;
    let mut stream = body.into_data_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| {
            Problem::new(ProblemCode::MalformedRequest, "The body ended before its end.")
        })?;
        seen += chunk.len();
        if seen <= most {
            bytes.extend_from_slice(&chunk);
        } else if seen > most + DRAIN_BYTES {
            break;
        }
    }
    if seen > most { Err(too_large()) } else { Ok(bytes) }
}

/// Whether arrays and objects are nested so deep that readers of the stored request may break.
fn is_deep(json: &str) -> bool {
    const MOST: usize = 64;
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > MOST {
                    return true;
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The value of `Idempotency-Key`, if there is one.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| {
        (1..=fixed::IDEMPOTENCY_KEY_CHARS).contains(&key.len())
            && key.bytes().all(|byte| byte.is_ascii_graphic())
    });
    match (key, values.next()) {
        (Some(key), None) => Ok(Some(key.to_owned())),
        _ => Err(Problem::invalid_parameter(
            "Idempotency-Key",
            "must be one value of 1 to 255 visible ASCII characters",
        )),
    }
}

/// The language for a caller: its credential's, then the request's, then English.
pub fn locale(caller: Option<&Caller>, headers: &HeaderMap) -> Locale {
    let asked = || {
        let header = headers.get(header::ACCEPT_LANGUAGE)?.to_str().ok()?;
        Locale::from_accept_language(header)
    };
    caller.and_then(|caller| caller.locale).or_else(asked).unwrap_or_default()
}

/// Where a request came from, for the audit.
pub struct Client {
    /// The address, as far as it is known.
    pub address: Option<String>,
    /// The `User-Agent`, cut at 200 characters.
    pub user_agent: Option<String>,
}

impl FromRequestParts<Arc<ApiState>> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<ApiState>) -> Result<Self, Problem> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let address =
            if state.behind_proxy { forwarded_for(&parts.headers).or(peer) } else { peer };
        let user_agent = parts.headers.get(header::USER_AGENT).map(|value| {
            String::from_utf8_lossy(value.as_bytes())
                .chars()
                .filter(|c| !c.is_control())
                .take(200)
                .collect()
        });
        Ok(Self { address: address.map(|ip| ip.to_string()), user_agent })
    }
}

/// The last address of `X-Forwarded-For`: the one that our own proxy wrote.
fn forwarded_for(headers: &HeaderMap) -> Option<std::net::IpAddr> {
    let value = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_are_not_nesting() {
        assert!(!is_deep(&format!("[\"{}\\\"[\"]", "[".repeat(100))));
        assert!(!is_deep(&"[]".repeat(100)));
        assert!(is_deep(&format!("{}{}", "[".repeat(65), "]".repeat(65))));
    }

    #[test]
    fn a_cursor_reads_back_and_nothing_else_does() {
        let id = Uuid::now_v7();
        assert_eq!(read_cursor(&cursor(id)), Some(id));
        for text in ["", "x", &id.to_string(), "AAAA"] {
            assert_eq!(read_cursor(text), None, "{text:?}");
        }
    }
}
