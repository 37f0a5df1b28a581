//! The one file that knows HTTP status codes. Errors are RFC 9457 problem details with a stable
//! code; the whole cause goes to the log, once, here.

use std::{error::Error, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use outport_contract::{key_ring::UnknownKey, redaction::told, sealed::NotOpened};
use outport_domain::json::{FieldCode, FieldError};
use outport_objects::ObjectError;
use outport_store::StoreError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::AuthError;

/// The media type of a problem, RFC 9457.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The stable codes of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each code is described once, by `meaning`")]
pub enum ProblemCode {
    MalformedRequest,
    InvalidParameter,
    Unauthenticated,
    MissingScope,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    JobRunning,
    JobEnded,
    NotCompleted,
    ClientIdReused,
    DeliveryDone,
    FileGone,
    ResyncRequired,
    BodyTooLarge,
    UnsupportedMediaType,
    RangeNotSatisfiable,
    InvalidRequest,
    IdempotencyKeyReused,
    RateLimited,
    QueueFull,
    Internal,
    FileDamaged,
    Unavailable,
    StorageUnavailable,
    AtCapacity,
}

impl ProblemCode {
    /// All of them, in the order of their statuses.
    pub const ALL: [Self; 27] = [
        Self::MalformedRequest,
        Self::InvalidParameter,
        Self::Unauthenticated,
        Self::MissingScope,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::JobRunning,
        Self::JobEnded,
        Self::NotCompleted,
        Self::ClientIdReused,
        Self::DeliveryDone,
        Self::FileGone,
        Self::ResyncRequired,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::RangeNotSatisfiable,
        Self::InvalidRequest,
        Self::IdempotencyKeyReused,
        Self::RateLimited,
        Self::QueueFull,
        Self::Internal,
        Self::FileDamaged,
        Self::Unavailable,
        Self::StorageUnavailable,
        Self::AtCapacity,
    ];

    /// The HTTP status.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::MalformedRequest | Self::InvalidParameter => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::MissingScope | Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::JobRunning
            | Self::JobEnded
            | Self::NotCompleted
            | Self::ClientIdReused
            | Self::DeliveryDone => StatusCode::CONFLICT,
            Self::FileGone | Self::ResyncRequired => StatusCode::GONE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::InvalidRequest | Self::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited | Self::QueueFull => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal | Self::FileDamaged => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable | Self::StorageUnavailable | Self::AtCapacity => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The code on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MalformedRequest => "MALFORMED_REQUEST",
            Self::InvalidParameter => "INVALID_PARAMETER",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::MissingScope => "MISSING_SCOPE",
            Self::Forbidden => "FORBIDDEN",
            Self::NotFound => "NOT_FOUND",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::RequestTimeout => "REQUEST_TIMEOUT",
            Self::JobRunning => "JOB_RUNNING",
            Self::JobEnded => "JOB_ENDED",
            Self::NotCompleted => "NOT_COMPLETED",
            Self::ClientIdReused => "CLIENT_ID_REUSED",
            Self::DeliveryDone => "DELIVERY_DONE",
            Self::FileGone => "FILE_GONE",
            // A word of the stream's protocol.
            Self::ResyncRequired => "resync.required",
            Self::BodyTooLarge => "BODY_TOO_LARGE",
            Self::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
            Self::RangeNotSatisfiable => "RANGE_NOT_SATISFIABLE",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::IdempotencyKeyReused => "IDEMPOTENCY_KEY_REUSED",
            Self::RateLimited => "RATE_LIMITED",
            Self::QueueFull => "QUEUE_FULL",
            Self::Internal => "INTERNAL",
            Self::FileDamaged => "FILE_DAMAGED",
            Self::Unavailable => "UNAVAILABLE",
            Self::StorageUnavailable => "STORAGE_UNAVAILABLE",
            Self::AtCapacity => "AT_CAPACITY",
        }
    }

    /// A short name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::MalformedRequest => "The request cannot be read",
            Self::InvalidParameter => "A parameter or header is wrong",
            Self::Unauthenticated => "No valid credential",
            Self::MissingScope => "A scope is missing",
            Self::Forbidden => "Not for this caller",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::RequestTimeout => "The request took too long to arrive",
            Self::JobRunning => "The export has not ended",
            Self::JobEnded => "The export has already ended",
            Self::NotCompleted => "There is no file",
            Self::ClientIdReused => "The client id was used before",
            Self::DeliveryDone => "The delivery is done",
            Self::FileGone => "The file is gone",
            Self::ResyncRequired => "The position cannot be trusted",
            Self::BodyTooLarge => "The body is too large",
            Self::UnsupportedMediaType => "Unsupported media type",
            Self::RangeNotSatisfiable => "Range not satisfiable",
            Self::InvalidRequest => "The request is wrong",
            Self::IdempotencyKeyReused => "The idempotency key was used before",
            Self::RateLimited => "Too many requests",
            Self::QueueFull => "Too many exports are waiting",
            Self::Internal => "Internal error",
            Self::FileDamaged => "The stored file is not the one that was written",
            Self::Unavailable => "Temporarily unavailable",
            Self::StorageUnavailable => "The object store is unavailable",
            Self::AtCapacity => "No room for another live stream",
        }
    }

    /// What it means and what to do, for the reference page.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::MalformedRequest => {
                "The body is not UTF-8 or not JSON, or the request breaks HTTP itself."
            }
            Self::InvalidParameter => {
                "A query parameter or header has a wrong value or is unknown; `errors` lists each."
            }
            Self::Unauthenticated => {
                "The Authorization header is missing, or its credential is unknown, expired, revoked or not meant for this service. Send `Authorization: Bearer …` with a valid one."
            }
            Self::MissingScope => {
                "The credential is valid and lacks the scope that `detail` names."
            }
            Self::Forbidden => "The caller may not do this; `detail` says why.",
            Self::NotFound => {
                "Nothing is there, or it belongs to somebody whose things this caller may not see."
            }
            Self::MethodNotAllowed => "The path exists; `Allow` lists its methods.",
            Self::RequestTimeout => "The body did not arrive in time. Send it again.",
            Self::JobRunning => "Cancel the export, or wait until it has ended.",
            Self::JobEnded => "An export that has ended cannot be canceled.",
            Self::NotCompleted => {
                "Only a COMPLETED export has a file. Wait while it runs; when it has failed, run it again."
            }
            Self::ClientIdReused => {
                "The same `clientId` came with another body before. Nothing was appended; use a new one."
            }
            Self::DeliveryDone => {
                "Only a DEAD delivery can be retried: one that is DONE is not done again, and one that is PENDING or RUNNING needs no retry."
            }
            Self::FileGone => "The file has expired or was deleted. Run the export again.",
            Self::ResyncRequired => {
                "The events after this position are gone, or it is of another epoch or above the head. Load the channel's snapshot and go on from its `sequence`; `floor`, `head` and `epoch` say where the channel is."
            }
            Self::BodyTooLarge => "The body is larger than this service takes.",
            Self::UnsupportedMediaType => "Send `Content-Type: application/json`, uncompressed.",
            Self::RangeNotSatisfiable => {
                "The requested range starts after the end of the file; `Content-Range` has its length."
            }
            Self::InvalidRequest => {
                "The body was read and breaks a rule; `errors` lists every wrong field. Nothing was stored."
            }
            Self::IdempotencyKeyReused => {
                "The same Idempotency-Key came with another body before. Nothing was stored; use a new key."
            }
            Self::RateLimited => {
                "The credential asks more often than allowed. Wait as long as `Retry-After` says."
            }
            Self::QueueFull => {
                "The organization has as many waiting exports as allowed. Wait as long as `Retry-After` says."
            }
            Self::Internal => {
                "An error of this service. The log has the details under the request id."
            }
            Self::FileDamaged => {
                "What is in the object store was changed, cut short or exchanged since it was written, so it is not delivered. Run the export again, and tell whoever runs the service."
            }
            Self::Unavailable => "The service cannot reach what it needs. Try again later.",
            Self::StorageUnavailable => "The file cannot be read right now. Try again later.",
            Self::AtCapacity => {
                "This process serves as many live streams as it may, or is stopping. Wait as long as `Retry-After` says."
            }
        }
    }
}

/// What a handler answers when it cannot do what was asked.
#[derive(Debug)]
pub struct Problem {
    /// What kind.
    pub code: ProblemCode,
    detail: String,
    errors: Vec<FieldError>,
    retry_after: Option<Duration>,
    challenge: Option<String>,
    content_range: Option<Box<str>>,
    /// Boxed: a problem is an error that many calls hand on.
    position: Option<Box<Position>>,
}

/// Where a channel is, told to who must load its snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Position {
    /// The highest sequence that was purged.
    pub floor: u64,
    /// The highest sequence that was given.
    pub head: u64,
    /// The generation of the store.
    pub epoch: String,
}

/// The body of a problem.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemView {
    /// A link to the code's description.
    #[serde(rename = "type")]
    type_uri: String,
    /// A short name of the kind.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What happened here, in words.
    detail: String,
    /// The stable code.
    code: &'static str,
    /// Every wrong field; empty for problems that are not about fields.
    errors: Vec<FieldErrorView>,
    /// With `resync.required` alone: the highest sequence that was purged.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<u64>,
    /// With `resync.required` alone: the highest sequence that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<u64>,
    /// With `resync.required` alone: the generation of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<String>,
}

/// One wrong field.
#[derive(Serialize, ToSchema)]
#[schema(as = FieldError)]
pub struct FieldErrorView {
    /// Its path, e.g. `columns[2].label`.
    field: String,
    /// The stable code.
    code: &'static str,
    /// The rule, in words.
    message: String,
}

impl Problem {
    /// A problem of this kind with its own words.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            retry_after: None,
            challenge: None,
            content_range: None,
            position: None,
        }
    }

    /// The position of who asks cannot be trusted; this is where the channel is.
    pub fn resync(position: Position) -> Self {
        let detail = "Load the channel's snapshot and go on from its sequence.";
        Self {
            position: Some(Box::new(position)),
            ..Self::new(ProblemCode::ResyncRequired, detail)
        }
    }

    /// Nothing is there, or nothing that this caller may know of.
    pub fn not_found() -> Self {
        Self::new(ProblemCode::NotFound, "There is nothing at this address.")
    }

    /// The body breaks these rules.
    pub fn invalid_request(errors: Vec<FieldError>) -> Self {
        let detail = format!("{} field(s) of the body are wrong.", errors.len());
        Self { errors, ..Self::new(ProblemCode::InvalidRequest, detail) }
    }

    /// Parameters or headers break these rules.
    pub fn invalid_parameters(errors: Vec<FieldError>) -> Self {
        let detail = format!("{} parameter(s) or header(s) are wrong.", errors.len());
        Self { errors, ..Self::new(ProblemCode::InvalidParameter, detail) }
    }

    /// One parameter or header breaks a rule.
    pub fn invalid_parameter(field: &str, message: &str) -> Self {
        Self::invalid_parameters(vec![FieldError {
            field: field.to_owned(),
            code: FieldCode::InvalidValue,
            message: message.to_owned(),
        }])
    }

    /// The credential lacks this scope.
    pub fn missing_scope(scope: &str) -> Self {
        let challenge = scope
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
            .then(|| format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\""));
        Self {
            challenge,
            ..Self::new(
                ProblemCode::MissingScope,
                format!("The credential lacks the scope '{scope}'."),
            )
        }
    }

    /// The requested range is not in a file of this length.
    pub fn range_not_satisfiable(length: u64) -> Self {
        Self {
            content_range: Some(format!("bytes */{length}").into()),
            ..Self::new(ProblemCode::RangeNotSatisfiable, format!("The file has {length} bytes."))
        }
    }

    /// What happened here, in words.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Every wrong field.
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    /// Tells the client when to try again.
    #[must_use]
    pub fn retry_after(self, pause: Duration) -> Self {
        Self { retry_after: Some(pause), ..self }
    }

    /// An error of ours; the cause is logged, the client learns nothing of it.
    pub fn internal(cause: &(dyn Error + 'static)) -> Self {
        tracing::error!(error = told(cause), "a request failed");
        Self::new(ProblemCode::Internal, "Something went wrong in this service.")
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Unreachable(_) | StoreError::Conflict(_) => {
                tracing::error!(error = told(&error), "the state database failed");
                Self::new(ProblemCode::Unavailable, "The service cannot reach its database.")
                    .retry_after(Duration::from_secs(2))
            }
            StoreError::Corrupt(_) | StoreError::Refused(_) => Self::internal(&error),
        }
    }
}

impl Problem {
    /// A file that cannot be given out. Who asked for its object has said so in the log.
    pub fn of_object(error: &ObjectError) -> Self {
        match error {
            ObjectError::NotFound => {
                Self::new(ProblemCode::FileGone, "The file is no longer in storage.")
            }
            ObjectError::NotOpened(NotOpened::UnknownKey(UnknownKey { version })) => {
                let detail =
                    format!("The file is sealed with key {version}, which this service lacks.");
                Self::new(ProblemCode::StorageUnavailable, detail)
            }
            ObjectError::NotOpened(_) | ObjectError::Sealed => Self::new(
                ProblemCode::FileDamaged,
                "The stored file is not the one that was written, and is not delivered.",
            ),
            ObjectError::Unreachable(_)
            | ObjectError::Refused { .. }
            | ObjectError::Full(_)
            | ObjectError::NotWritable(_)
            | ObjectError::Failed(_) => {
                Self::new(ProblemCode::StorageUnavailable, "The file cannot be read right now.")
                    .retry_after(Duration::from_secs(5))
            }
        }
    }
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        let unauthenticated = |challenge: &str, detail: &str| Self {
            challenge: Some(challenge.to_owned()),
            ..Self::new(ProblemCode::Unauthenticated, detail)
        };
        match error {
            AuthError::Missing => unauthenticated(
                "Bearer",
                "Send a credential: 'Authorization: Bearer' and an API token or a JWT.",
            ),
            AuthError::Invalid => unauthenticated(
                "Bearer error=\"invalid_token\"",
                "The credential is unknown, expired, revoked or not meant for this service.",
            ),
            AuthError::LacksScope(permission) => Self::missing_scope(permission.name()),
            AuthError::BadActFor => {
                Self::invalid_parameter("X-Outport-User", "must be one UUID in its hyphenated form")
            }
            AuthError::TooMany { retry_after } => {
                Self::new(ProblemCode::RateLimited, "The credential asks too often.")
                    .retry_after(retry_after)
            }
            AuthError::KeysUnavailable => Self::new(
                ProblemCode::Unavailable,
                "The service cannot read the keys that credentials are checked with.",
            )
            .retry_after(Duration::from_secs(5)),
            AuthError::Store(error) => error.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let view = ProblemView {
            type_uri: format!("/docs/errors#{}", self.code.name()),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            detail: self.detail.clone(),
            code: self.code.name(),
            errors: self
                .errors
                .iter()
                .map(|error| FieldErrorView {
                    field: error.field.clone(),
                    code: error.code.name(),
                    message: error.message.clone(),
                })
                .collect(),
            floor: self.position.as_ref().map(|position| position.floor),
            head: self.position.as_ref().map(|position| position.head),
            epoch: self.position.as_ref().map(|position| position.epoch.clone()),
        };
        let body = serde_json::to_string(&view).unwrap_or_else(|_| "{}".to_owned());
        self.answer(PROBLEM_JSON, body)
    }
}

impl Problem {
    /// The problem's status and headers, with another body than its own.
    pub fn answer(self, media_type: &'static str, body: String) -> Response {
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        let mut set = |name, value: Option<String>| {
            if let Some(value) = value.and_then(|text| HeaderValue::try_from(text).ok()) {
                headers.insert(name, value);
            }
        };
        set(header::RETRY_AFTER, self.retry_after.map(seconds));
        set(header::WWW_AUTHENTICATE, self.challenge);
        set(header::CONTENT_RANGE, self.content_range.map(String::from));
        response
    }
}

/// The value of `Retry-After`: whole seconds, at least one.
pub fn seconds(pause: Duration) -> String {
    pause.as_secs_f64().ceil().max(1.0).to_string()
}

/// How a request that was served ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Here it is.
    Ok,
    /// It is made.
    Created,
    /// It will be done.
    Accepted,
    /// Done, nothing to say.
    NoContent,
    /// A part of it, as asked.
    Partial,
    /// It is elsewhere for now.
    Found,
    /// The caller has it already.
    NotModified,
    /// The service cannot do its work; for readiness alone.
    NotReady,
}

impl Outcome {
    /// The HTTP status.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Ok => StatusCode::OK,
            Self::Created => StatusCode::CREATED,
            Self::Accepted => StatusCode::ACCEPTED,
            Self::NoContent => StatusCode::NO_CONTENT,
            Self::Partial => StatusCode::PARTIAL_CONTENT,
            Self::Found => StatusCode::FOUND,
            Self::NotModified => StatusCode::NOT_MODIFIED,
            Self::NotReady => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl IntoResponse for Outcome {
    fn into_response(self) -> Response {
        self.status().into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once_and_documented() {
        let mut names: Vec<&str> = ProblemCode::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ProblemCode::ALL.len());
        for code in ProblemCode::ALL {
            assert!(code.status().is_client_error() || code.status().is_server_error());
            assert!(code.meaning().ends_with('.'), "{}", code.name());
        }
        assert!(ProblemCode::ALL.is_sorted_by_key(|code| code.status()));
    }
}
