//! The facade's own form of errors: `{"code":"FET-…","title","message","fields"?}`.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use outport_contract::redaction::{Chain, redact};
use outport_domain::json::{FieldCode, FieldError, FieldErrors};
use outport_pipeline::{
    connections::Unusable,
    fetcher::{Fault, Refused},
};
use outport_store::StoreError;
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

use crate::api::problem::{Problem, ProblemCode};

/// The codes of a Fetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each code is described once, by `title` and `meaning`")]
pub enum FetCode {
    BadRequest,
    Internal,
    Unavailable,
    Conflict,
    NotFound,
    InvalidDataRequest,
    MissingField,
    Header,
    PathParameter,
    QueryParameter,
    ForbiddenHost,
    EntityNotFound,
    EntityConflict,
    ProductNotAssigned,
    ProductMismatch,
    MissingDatasource,
    JobInProgress,
    ConnectionDown,
    SchemaFailed,
}

impl FetCode {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::BadRequest,
        Self::Internal,
        Self::Unavailable,
        Self::Conflict,
        Self::NotFound,
        Self::InvalidDataRequest,
        Self::MissingField,
        Self::Header,
        Self::PathParameter,
        Self::QueryParameter,
        Self::ForbiddenHost,
        Self::EntityNotFound,
        Self::EntityConflict,
        Self::ProductNotAssigned,
        Self::ProductMismatch,
        Self::MissingDatasource,
        Self::JobInProgress,
        Self::ConnectionDown,
        Self::SchemaFailed,
    ];

    /// The code on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "FET-0001",
            Self::Internal => "FET-0002",
            Self::Unavailable => "FET-0003",
            Self::Conflict => "FET-0004",
            Self::NotFound => "FET-0005",
            Self::InvalidDataRequest => "FET-0401",
            Self::MissingField => "FET-0402",
            Self::Header => "FET-0403",
            Self::PathParameter => "FET-0404",
            Self::QueryParameter => "FET-0405",
            Self::ForbiddenHost => "FET-0414",
            Self::EntityNotFound => "FET-1001",
            Self::EntityConflict => "FET-1002",
            Self::ProductNotAssigned => "FET-1014",
            Self::ProductMismatch => "FET-1016",
            Self::MissingDatasource => "FET-1020",
            Self::JobInProgress => "FET-1021",
            Self::ConnectionDown => "FET-1040",
            Self::SchemaFailed => "FET-1060",
        }
    }

    /// The problem of our own whose status it has.
    pub const fn problem(self) -> ProblemCode {
        match self {
            Self::BadRequest => ProblemCode::MalformedRequest,
            Self::Internal => ProblemCode::Internal,
            Self::Conflict | Self::EntityConflict | Self::JobInProgress => ProblemCode::JobRunning,
            Self::NotFound | Self::EntityNotFound => ProblemCode::NotFound,
            Self::InvalidDataRequest
            | Self::MissingField
            | Self::Header
            | Self::PathParameter
            | Self::QueryParameter
            | Self::ForbiddenHost => ProblemCode::InvalidParameter,
            Self::ProductNotAssigned | Self::ProductMismatch | Self::MissingDatasource => {
                ProblemCode::InvalidRequest
            }
            Self::Unavailable | Self::ConnectionDown | Self::SchemaFailed => {
                ProblemCode::Unavailable
            }
        }
    }

    /// A short name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::BadRequest => "Bad Request",
            Self::Internal => "Internal Server Error",
            Self::Unavailable => "Service Unavailable",
            Self::Conflict => "Conflict",
            Self::NotFound => "Not Found",
            Self::InvalidDataRequest => "Invalid Data Request",
            Self::MissingField => "Missing Field",
            Self::Header => "Invalid Header",
            Self::PathParameter => "Invalid Path Parameter",
            Self::QueryParameter => "Invalid Query Parameter",
            Self::ForbiddenHost => "Forbidden Host",
            Self::EntityNotFound => "Entity Not Found",
            Self::EntityConflict => "Entity Conflict",
            Self::ProductNotAssigned => "Product Not Assigned",
            Self::ProductMismatch => "Product Mismatch",
            Self::MissingDatasource => "Missing Data Source",
            Self::JobInProgress => "Job In Progress",
            Self::ConnectionDown => "Connection Down",
            Self::SchemaFailed => "Schema Failed",
        }
    }

    /// When it is answered, for the documents.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::BadRequest => {
                "The body is not JSON, not UTF-8, too large, too slow or of another media type, or the method is not offered; the status says which."
            }
            Self::Internal => {
                "An error of this service. The log has the details under the request id."
            }
            Self::Unavailable => {
                "This service cannot reach what it needs, lacks the key that a connection's credentials are sealed with, or is asked too often (429). Wait as long as `Retry-After` says."
            }
            Self::Conflict => "The request cannot be served in the present state.",
            Self::NotFound => "Nothing is at this address.",
            Self::InvalidDataRequest => {
                "The body breaks a rule; `fields` names each. Also a table, field or filter that the database does not have."
            }
            Self::MissingField => "The body lacks a field; `fields` names each.",
            Self::Header => {
                "A header is missing or wrong: no valid credential (401), one without the scope (403), or `X-Product-Name`, also where it stands twice."
            }
            Self::PathParameter => "The id in the path is no UUID.",
            Self::QueryParameter => {
                "A query parameter is unknown or has a wrong value; `fields` names each."
            }
            Self::ForbiddenHost => {
                "The host of a connection has an address within `facade.deniedNetworks`, or one of this machine."
            }
            Self::EntityNotFound => "There is no such job or connection in this organization.",
            Self::EntityConflict => "Another connection of the organization has this `configName`.",
            Self::ProductNotAssigned => {
                "`X-Product-Name` names a product, and the connection is of none."
            }
            Self::ProductMismatch => {
                "`X-Product-Name` names another product than the connection's."
            }
            Self::MissingDatasource => "The request names connections that are not there.",
            Self::JobInProgress => {
                "A job that has not ended reads the connection, which is not deleted then, nor led elsewhere."
            }
            Self::ConnectionDown => {
                "The database of a connection cannot be reached, or refuses the credentials."
            }
            Self::SchemaFailed => "The database was reached and did not say what it holds.",
        }
    }
}

/// What a handler of the facade answers when it cannot do what was asked.
#[derive(Debug)]
pub struct Refusal {
    code: FetCode,
    /// Its status and its headers.
    problem: Box<Problem>,
    message: String,
    fields: BTreeMap<String, String>,
}

/// The body of a refusal.
#[derive(Serialize, ToSchema)]
#[schema(as = FetcherError)]
pub struct RefusalView {
    /// The stable code, `FET-…`.
    code: &'static str,
    /// A short name of the kind.
    title: &'static str,
    /// What happened here, in words.
    message: String,
    /// The rules that each wrong field breaks, by its path.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<String, String>,
}

/// What every call of the facade may answer besides its own.
#[derive(IntoResponses)]
pub enum AnyRefusal {
    /// No valid credential
    #[response(status = 401)]
    Unauthenticated(RefusalView),
    /// A credential without the right
    #[response(status = 403)]
    Forbidden(RefusalView),
    /// Too many requests
    #[response(status = 429)]
    TooMany(RefusalView),
    /// An error of this service
    #[response(status = 500)]
    Internal(RefusalView),
    /// The service cannot reach what it needs
    #[response(status = 503)]
    Unavailable(RefusalView),
}

impl Refusal {
    /// A refusal with its own words.
    pub fn new(code: FetCode, message: String) -> Self {
        let problem = Box::new(Problem::new(code.problem(), message.clone()));
        Self { code, problem, message, fields: BTreeMap::new() }
    }

    /// A body that breaks these rules.
    pub fn fields(errors: FieldErrors) -> Self {
        Self::field_errors(&errors.into_vec())
    }

    fn field_errors(errors: &[FieldError]) -> Self {
        let missing = |error: &FieldError| error.code == FieldCode::Required;
        let code = if !errors.is_empty() && errors.iter().all(missing) {
            FetCode::MissingField
        } else {
            FetCode::InvalidDataRequest
        };
        let fields = rules_by_field(errors);
        let message = format!("{} field(s) of the body are wrong.", fields.len());
        Self { fields, ..Self::new(code, message) }
    }
}

/// Every rule that a field breaks, as one text: an empty `host` is too short and no name.
fn rules_by_field(errors: &[FieldError]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::<String, String>::new();
    for error in errors {
        let rules = fields.entry(error.field.clone()).or_default();
        if !rules.is_empty() {
            rules.push_str("; ");
        }
        rules.push_str(&error.message);
    }
    fields
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let code = match problem.code {
            ProblemCode::MalformedRequest
            | ProblemCode::RequestTimeout
            | ProblemCode::BodyTooLarge
            | ProblemCode::UnsupportedMediaType
            | ProblemCode::MethodNotAllowed
            | ProblemCode::RangeNotSatisfiable => FetCode::BadRequest,
            ProblemCode::InvalidParameter => FetCode::QueryParameter,
            ProblemCode::Unauthenticated | ProblemCode::MissingScope | ProblemCode::Forbidden => {
                FetCode::Header
            }
            ProblemCode::NotFound | ProblemCode::FileGone => FetCode::NotFound,
            ProblemCode::JobRunning | ProblemCode::JobEnded | ProblemCode::NotCompleted => {
                FetCode::Conflict
            }
            // One code has one status here, whoever looked at the body.
            ProblemCode::InvalidRequest => return Self::field_errors(problem.errors()),
            ProblemCode::IdempotencyKeyReused => FetCode::InvalidDataRequest,
            ProblemCode::RateLimited
            | ProblemCode::QueueFull
            | ProblemCode::Unavailable
            | ProblemCode::StorageUnavailable => FetCode::Unavailable,
            _ => FetCode::Internal,
        };
        let fields = rules_by_field(problem.errors());
        let message = problem.detail().to_owned();
        Self { code, message, fields, problem: Box::new(problem) }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Problem::from(error).into()
    }
}

impl From<Unusable> for Refusal {
    fn from(error: Unusable) -> Self {
        let code = match error {
            Unusable::Unknown(_) => FetCode::MissingDatasource,
            Unusable::Forbidden(_) => FetCode::ForbiddenHost,
            Unusable::NoHost(_) => FetCode::ConnectionDown,
            Unusable::UnknownKey(..) => {
                let message = sentence(&error.to_string());
                tracing::error!(error = message, "a connection cannot be used");
                return Self::new(FetCode::Unavailable, message);
            }
            Unusable::Credentials(..) => {
                return Problem::internal(&error).into();
            }
            Unusable::Store(error) => return error.into(),
        };
        Self::new(code, sentence(&error.to_string()))
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unusable(error) => error.into(),
            Fault::Source(error) => {
                let code = match error.code {
                    outport_domain::failure::FailureCode::SourceUnreachable => {
                        FetCode::ConnectionDown
                    }
                    _ => FetCode::SchemaFailed,
                };
                let told = redact(&Chain(&error).to_string());
                tracing::warn!(error = told, "a source did not say what it holds");
                Self::new(code, sentence(&error.to_string()))
            }
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Fields(errors) => Self::field_errors(&errors),
            Refused::Connections(faults) => {
                let fields = faults.iter().map(|(name, fault)| {
                    (format!("dataRequest.mappedFields.{name}"), fault.to_string())
                });
                let fields = fields.collect();
                let first = faults.into_iter().next().map(|(_, fault)| Self::from(fault));
                let first = first.unwrap_or_else(|| {
                    Self::new(FetCode::Internal, "A connection cannot be used.".to_owned())
                });
                Self { fields, ..first }
            }
        }
    }
}

/// A message of ours as a sentence of its own.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { code, problem, message, fields } = self;
        let view = RefusalView { code: code.name(), title: code.title(), message, fields };
        let body = serde_json::to_string(&view).unwrap_or_else(|_| "{}".to_owned());
        problem.answer("application/json", body)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_is_the_contracts() {
        let names: BTreeSet<&str> = FetCode::ALL.iter().map(|code| code.name()).collect();
        let numbers = "0001 0002 0003 0004 0005 0401 0402 0403 0404 0405 0414 \
                       1001 1002 1014 1016 1020 1021 1040 1060";
        let expected: BTreeSet<String> =
            numbers.split_whitespace().map(|number| format!("FET-{number}")).collect();
        assert_eq!(names, expected.iter().map(String::as_str).collect());
        for code in FetCode::ALL {
            assert!(code.meaning().ends_with('.'), "{}", code.name());
        }
    }
}
