//! Events of other producers: checked against the catalogue, redacted, appended once.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use outport_contract::{
    digest::Sha256Digest,
    redaction::redact_members,
    stream::{self, Channel, ChannelKind, Family, Scope, StreamEventType},
};
use outport_domain::{
    caller::{Caller, Permission},
    json::{FieldCode, FieldErrors, is_interoperable, object, string},
};
use outport_store::channels::{self, ClientId, NewEvent, Posted};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::access;
use crate::api::{
    ApiState,
    extract::{Authorized, JsonBody},
    problem::{Outcome, Problem, ProblemCode, ProblemView},
};

/// Bytes of an event's data, after redaction.
const DATA_BYTES: usize = 64 * 1024;
/// Characters of a client id.
const CLIENT_ID_CHARS: usize = 200;

/// The body of an event, for the reference.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body in the OpenAPI document")]
pub struct NewStreamEvent {
    /// Whom it concerns. Its type says in which of these it is numbered.
    scope: NewStreamScope,
    /// A type of the catalogue.
    #[schema(rename = "type")]
    event_type: String,
    /// An object of at most 64 KiB with what the type's family asks for. Addresses and
    /// credentials are taken out.
    #[schema(value_type = Object)]
    data: serde_json::Value,
    /// Posted again within 24 hours with the same body, it is appended once.
    client_id: Option<String>,
}

/// Whom an event concerns.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body in the OpenAPI document")]
pub struct NewStreamScope {
    /// One's own; it may be left out.
    organization: Option<Uuid>,
    /// `<organization id>.<name>`
    application: Option<String>,
    /// A job of one's organization.
    job: Option<Uuid>,
}

/// An event that was appended.
#[derive(Serialize, ToSchema)]
#[schema(as = AppendedEvent)]
pub struct AppendedView {
    /// `evt_…`, the same in every channel.
    id: String,
    /// Where it is numbered.
    channels: Vec<NumberView>,
}

/// A number of an event.
#[derive(Serialize, ToSchema)]
#[schema(as = AppendedNumber)]
pub struct NumberView {
    #[schema(value_type = String)]
    channel: Channel,
    sequence: u64,
}

/// Appends an event of the catalogue.
#[utoipa::path(post, path = "/v1/channels/events", tag = "events",
    security(("bearer" = ["events:write"])),
    request_body(content = NewStreamEvent, content_type = "application/json"),
    responses(
        (status = 201, description = "Appended, with its numbers", body = AppendedView),
        (status = 200, description = "The same client id and body appended this before", body = AppendedView),
        (status = 404, description = "The scope is not in reach of the caller", body = ProblemView),
        (status = 409, description = "The client id came with another body before", body = ProblemView),
        (status = 422, description = "Every wrong field; nothing was appended", body = ProblemView),
    ))]
pub async fn append(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let caller = caller.with(Permission::EventsWrite)?;
    let (asked, body) = {
        let caller = caller.clone();
        // A text of this size may take a moment: not for a thread that others wait on.
        let parsed = tokio::task::spawn_blocking(move || (parse(&body, &caller), body));
        parsed.await.map_err(|error| Problem::internal(&error))?
    };
    let Asked { event_type, scope, data, client_id } = asked?;
    let own = event_type.channels.iter().filter_map(|kind| scope.channel(*kind));
    // The members of the scope that number nothing are told all the same.
    for channel in own.chain(ChannelKind::ALL[..2].iter().filter_map(|kind| scope.channel(*kind))) {
        access::open(&state, &caller, &channel.to_string()).await?;
    }
    let client_id = client_id.map(|id| ClientId {
        id,
        fingerprint: Sha256Digest::of(body.as_bytes()).0,
        life: state.limits.idempotency_key,
    });
    let event = NewEvent::new(event_type, scope, data);
    let mut tx = state.store.begin().await?;
    let posted = channels::post(&mut tx, caller.organization, event, client_id.as_ref()).await?;
    tx.commit().await?;
    let (outcome, id) = match posted {
        Posted::New(id) => (Outcome::Created, id),
        Posted::Repeated(id) => (Outcome::Ok, id),
        Posted::Reused => {
            let detail = "The clientId was used with another body.";
            return Err(Problem::new(ProblemCode::ClientIdReused, detail));
        }
    };
    let numbers = channels::numbers(&state.store, id).await?.into_iter();
    let channels = numbers.map(|(channel, sequence)| NumberView { channel, sequence }).collect();
    let view = AppendedView { id: channels::wire_id(id), channels };
    Ok((outcome.status(), Json(view)).into_response())
}

/// An event as posted.
struct Asked {
    event_type: &'static StreamEventType,
    scope: Scope,
    data: String,
    client_id: Option<String>,
}

/// Reads an event; everything that is wrong is told at once. A scope of others is 404.
fn parse(body: &str, caller: &Caller) -> Result<Asked, Problem> {
    let mut errors = FieldErrors::default();
    let raw: &RawValue = serde_json::from_str(body).map_err(|error| Problem::internal(&error))?;
    let members = ["scope", "type", "data", "clientId"];
    let members = object(raw, "", Some(&members), &mut errors).unwrap_or_default();
    let member = |name: &str, is_required: bool, errors: &mut FieldErrors| {
        let found = members.iter().find(|(own, _)| own == name).map(|(_, raw)| *raw);
        let found = found.filter(|raw| raw.get() != "null");
        if found.is_none() && is_required {
            errors.push(name, FieldCode::Required, "is required");
        }
        found
    };
    let scope = member("scope", true, &mut errors);
    let scope = scope.map(|raw| parse_scope(raw, caller, &mut errors)).transpose()?.flatten();
    let event_type = member("type", true, &mut errors)
        .and_then(|raw| string(raw, "type", &mut errors))
        .and_then(|name| appendable(&name, &mut errors));
    let data = member("data", true, &mut errors);
    let plain = event_type.map_or(&[][..], StreamEventType::plain_members);
    let data = data.filter(|raw| is_interoperable(raw, "data", &mut errors));
    let clean = data.and_then(|raw| redact_members(raw, plain, DATA_BYTES));
    if data.is_some() && clean.is_none() {
        let rule = format!("may have {DATA_BYTES} bytes at most");
        errors.push("data", FieldCode::LimitExceeded, rule);
    }
    let client_id =
        member("clientId", false, &mut errors).and_then(|raw| string(raw, "clientId", &mut errors));
    if client_id.as_ref().is_some_and(|id| !(1..=CLIENT_ID_CHARS).contains(&id.chars().count())) {
        let rule = format!("must have 1 to {CLIENT_ID_CHARS} characters");
        errors.push("clientId", FieldCode::InvalidValue, rule);
    }
    if let (Some(event_type), Some(data)) = (event_type, clean.as_deref().or(data)) {
        check_data(event_type, data, &mut errors);
    }
    if let (Some(event_type), Some(scope)) = (event_type, &scope)
        && event_type.channels.iter().all(|kind| scope.channel(*kind).is_none())
    {
        let kinds: Vec<_> = event_type.channels.iter().map(|kind| kind.name()).collect();
        let rule = format!("must have a member that the type is numbered in: {}", kinds.join(", "));
        errors.push("scope", FieldCode::Required, rule);
    }
    match (event_type, scope, clean) {
        (Some(event_type), Some(scope), Some(data)) if errors.is_empty() => {
            Ok(Asked { event_type, scope, data: data.get().to_owned(), client_id })
        }
        _ => Err(Problem::invalid_request(errors.into_vec())),
    }
}

fn parse_scope(
    raw: &RawValue,
    caller: &Caller,
    errors: &mut FieldErrors,
) -> Result<Option<Scope>, Problem> {
    let own = caller.organization.uuid();
    let names = ["organization", "application", "job"];
    let Some(members) = object(raw, "scope", Some(&names), errors) else { return Ok(None) };
    let mut text = |name: &str| {
        let raw = members.iter().find(|(own, raw)| own == name && raw.get() != "null")?.1;
        string(raw, &format!("scope.{name}"), errors)
    };
    let organization = text("organization").unwrap_or_else(|| own.to_string());
    let (application, job) = (text("application"), text("job"));
    // What names nothing of one's own is not there, whatever it looks like.
    let job = job.map(|id| id.parse::<Uuid>()).transpose().map_err(|_| Problem::not_found())?;
    let scope = Scope { organization: own, application, job };
    let foreign = scope.application.is_some() && scope.channel(ChannelKind::Application).is_none();
    if organization != own.to_string() || foreign {
        return Err(Problem::not_found());
    }
    Ok(Some(scope))
}

fn appendable(name: &str, errors: &mut FieldErrors) -> Option<&'static StreamEventType> {
    let found = stream::find(name);
    match found {
        None => errors.push("type", FieldCode::InvalidValue, "must be a type of the catalogue"),
        Some(event_type) if event_type.family == Family::Control => {
            let rule = "is told to one subscriber alone and cannot be posted";
            errors.push("type", FieldCode::NotAllowed, rule);
        }
        Some(event_type) => return Some(event_type),
    }
    None
}

fn check_data(event_type: &StreamEventType, data: &RawValue, errors: &mut FieldErrors) {
    if let Err(invalid) = event_type.check(data) {
        let field = match invalid.member {
            "*" => "data".to_owned(),
            member => format!("data.{member}"),
        };
        errors.push(field, FieldCode::InvalidValue, invalid.rule);
    }
}
