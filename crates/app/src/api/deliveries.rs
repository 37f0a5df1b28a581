//! Deliveries as people see them, and what can be done about dead ones.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use chrono::{DateTime, Utc};
use outport_contract::time::Instant;
use outport_domain::{
    caller::{Caller, Permission},
    json::{FieldCode, FieldErrors, object, string},
};
use outport_store::deliveries::{self, DeliveryFilter, DeliveryStatus, DeliveryView as Row};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    ApiState,
    extract::{Authorized, JsonBody, Params, Segment, cursor},
    problem::{Outcome, Problem, ProblemCode, ProblemView},
};

/// A delivery.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Delivery)]
pub struct DeliveryView {
    id: Uuid,
    event_id: Uuid,
    event_type: String,
    export_job_id: Uuid,
    handler: String,
    /// To whom, for handlers with several targets; else empty.
    target: String,
    /// `PENDING`, `RUNNING`, `DONE` or `DEAD`.
    status: &'static str,
    attempts: u32,
    failures: u32,
    #[schema(value_type = String, format = DateTime)]
    due_at: Instant,
    /// What went wrong the last time, redacted.
    last_error: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Instant>,
    /// What the handler has to show for it, e.g. a mail's Message-ID, or `accepted-unroutable` of
    /// an event that no queue took; null where being `DONE` says it all.
    receipt: Option<String>,
    /// When the event was committed.
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
}

/// A page of deliveries.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeliveryPage)]
pub struct DeliveryPageView {
    items: Vec<DeliveryView>,
    next_cursor: Option<String>,
}

/// Deliveries tell of the whole organization's jobs, so only who sees all of it may see them.
fn administrator(caller: Authorized) -> Result<Caller, Problem> {
    let caller = caller.with(Permission::DeliveriesAdmin)?;
    if caller.is_restricted() {
        let detail = "Deliveries are for those who see the whole organization.";
        return Err(Problem::new(ProblemCode::Forbidden, detail));
    }
    Ok(caller)
}

/// Deliveries of one's organization, newest first.
#[utoipa::path(get, path = "/v1/deliveries", tag = "deliveries",
    security(("bearer" = ["deliveries:admin"])),
    params(
        ("status" = Option<String>, Query, description = "E.g. `dead`; case makes no difference"),
        ("handler" = Option<String>, Query),
        ("exportJobId" = Option<Uuid>, Query),
        ("cursor" = Option<String>, Query),
        ("limit" = Option<u32>, Query, description = "1 to 200, else 50"),
    ),
    responses(
        (status = 200, description = "A page of deliveries", body = DeliveryPageView),
        (status = 400, description = "Every wrong parameter", body = ProblemView),
    ))]
pub async fn list(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    params: Params,
) -> Result<Json<DeliveryPageView>, Problem> {
    let caller = administrator(caller)?;
    let mut params = params.known(&["status", "handler", "exportJobId", "cursor", "limit"]);
    let filter = DeliveryFilter {
        status: params.get("status", "pending, running, done or dead", |text| {
            DeliveryStatus::from_name(&text.to_ascii_uppercase())
        }),
        handler: params.get("handler", "a handler's name", |text| Some(text.to_owned())),
        job: params.get("exportJobId", "a UUID", |text| text.parse().ok()),
    };
    let page = params.page();
    params.finish()?;
    let found = deliveries::list(&state.store, caller.organization, &filter, page).await?;
    let items = found.items.into_iter().map(view).collect();
    Ok(Json(DeliveryPageView { items, next_cursor: found.next.map(cursor) }))
}

/// One delivery.
#[utoipa::path(get, path = "/v1/deliveries/{id}", tag = "deliveries",
    security(("bearer" = ["deliveries:admin"])),
    params(("id" = Uuid, Path)),
    responses(
        (status = 200, description = "The delivery", body = DeliveryView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
    ))]
pub async fn get(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    id: Segment,
) -> Result<Json<DeliveryView>, Problem> {
    let caller = administrator(caller)?;
    let row = deliveries::find(&state.store, caller.organization, id.id()?).await?;
    row.map(|row| Json(view(row))).ok_or_else(Problem::not_found)
}

/// Makes a dead delivery due again, with a fresh budget. One that waits or runs stays as it is, so
/// a repetition does no harm; one that is done is not done again.
#[utoipa::path(post, path = "/v1/deliveries/{id}/retry", tag = "deliveries",
    security(("bearer" = ["deliveries:admin"])),
    params(("id" = Uuid, Path)),
    responses(
        (status = 202, description = "The delivery", body = DeliveryView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
        (status = 409, description = "It is done", body = ProblemView),
    ))]
pub async fn retry(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    id: Segment,
) -> Result<(StatusCode, Json<DeliveryView>), Problem> {
    let caller = administrator(caller)?;
    let mut tx = state.store.begin().await?;
    let row = deliveries::retry(&mut tx, caller.organization, id.id()?).await?;
    tx.commit().await?;
    let row = row.ok_or_else(Problem::not_found)?;
    if row.status == DeliveryStatus::Done {
        let detail = "The delivery is DONE; only a DEAD one can be retried.";
        return Err(Problem::new(ProblemCode::DeliveryDone, detail));
    }
    Ok((Outcome::Accepted.status(), Json(view(row))))
}

/// What a backfill did.
#[derive(Serialize, ToSchema)]
#[schema(as = Backfill)]
pub struct BackfillView {
    handler: String,
    /// Deliveries that were added.
    deliveries: u64,
}

/// The body of a backfill, for the reference.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body in the OpenAPI document")]
pub struct BackfillRequest {
    /// Events from here on, RFC 3339.
    since: String,
}

/// Gives a handler the events of one's organization from before its registration.
#[utoipa::path(post, path = "/v1/handlers/{name}/backfill", tag = "deliveries",
    security(("bearer" = ["deliveries:admin"])),
    params(("name" = String, Path)),
    request_body = BackfillRequest,
    responses(
        (status = 202, description = "What was added", body = BackfillView),
        (status = 404, description = "No such handler", body = ProblemView),
        (status = 422, description = "Every wrong field; nothing was changed", body = ProblemView),
    ))]
pub async fn backfill(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    handler: Segment,
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<BackfillView>), Problem> {
    let caller = administrator(caller)?;
    let since = since(&body)?;
    if handler.0.contains('\0') {
        return Err(Problem::not_found());
    }
    let mut tx = state.store.begin().await?;
    let added = deliveries::backfill(&mut tx, caller.organization, &handler.0, since).await?;
    tx.commit().await?;
    let deliveries = added.ok_or_else(Problem::not_found)?;
    Ok((Outcome::Accepted.status(), Json(BackfillView { handler: handler.0, deliveries })))
}

fn since(body: &str) -> Result<DateTime<Utc>, Problem> {
    let mut errors = FieldErrors::default();
    let raw: &RawValue = serde_json::from_str(body).map_err(|error| Problem::internal(&error))?;
    let members = object(raw, "", Some(&["since"]), &mut errors);
    let since = members.as_ref().and_then(|members| {
        let Some((_, raw)) = members.first() else {
            errors.push("since", FieldCode::Required, "is required");
            return None;
        };
        let text = string(raw, "since", &mut errors)?;
        let instant = DateTime::parse_from_rfc3339(&text).ok();
        if instant.is_none() {
            let rule = "must be an instant such as 2026-07-01T00:00:00Z";
            errors.push("since", FieldCode::InvalidValue, rule);
        }
        instant.map(|instant| instant.with_timezone(&Utc))
    });
    match since {
        Some(since) if errors.is_empty() => Ok(since),
        _ => Err(Problem::invalid_request(errors.into_vec())),
    }
}

fn view(row: Row) -> DeliveryView {
    DeliveryView {
        id: row.id.uuid(),
        event_id: row.event.id.uuid(),
        event_type: row.event.event_type,
        export_job_id: row.event.job.uuid(),
        handler: row.handler,
        target: row.target,
        status: row.status.name(),
        attempts: row.attempts,
        failures: row.failures,
        due_at: row.due_at.into(),
        last_error: row.last_error,
        finished_at: row.finished_at.map(Into::into),
        receipt: row.receipt,
        created_at: row.event.created_at.into(),
    }
}
