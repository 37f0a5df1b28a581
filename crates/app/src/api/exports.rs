//! Requesting exports, and what can be done with one.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use chrono::Utc;
use outport_contract::digest::Sha256Digest;
use outport_domain::{
    caller::{Caller, Permission},
    id::JobId,
    job::{ExportJob, JobKind, JobStatus},
    locale::Locale,
    spec::{self, RequestContext},
};
use outport_store::{
    PageRequest,
    jobs::{self, CancelOutcome, JobFilter},
    parts,
    submit::{IdempotencyKey, NewJob, Submitted},
};

use super::{
    ApiState,
    export_request::ExportRequest,
    export_view::{ExportPageView, ExportView, poll_after},
    extract::{Authorized, JsonBody, Params, Segment, cursor, idempotency_key, locale},
    fetcher::products_of_resource,
    foresight,
    problem::{Outcome, Problem, ProblemCode, ProblemView, seconds},
};
use crate::auth::reach;

/// Pages of the store that one page of a restricted caller may look through.
const PAGES_PER_PAGE: usize = 10;

/// Requests an export.
///
/// With an `Idempotency-Key` the same body gives the same job: 202 when it is new, 200 when it
/// was made before.
#[utoipa::path(post, path = "/v1/exports", tag = "exports", security(("bearer" = ["exports:write"])),
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters; the same body means the same bytes"),
        ("X-Outport-User" = Option<String>, Header, description = "Acts for this user; needs exports:act-for"),
    ),
    request_body(content = ExportRequest, content_type = "application/json"),
    responses(
        (status = 202, description = "Queued; `Location` names it", body = ExportView),
        (status = 200, description = "The same key and body made this job before", body = ExportView),
        (status = 400, description = "Not JSON, or a wrong header", body = ProblemView),
        (status = 413, description = "The body is too large", body = ProblemView),
        (status = 415, description = "The body is not JSON by its type", body = ProblemView),
        (status = 422, description = "Every wrong field; nothing was stored", body = ProblemView),
        (status = 429, description = "Too many requests or waiting exports", body = ProblemView),
    ))]
pub async fn create(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let caller = caller.with(Permission::ExportsWrite)?;
    let key = idempotency_key(&headers)?.map(|key| IdempotencyKey {
        key,
        fingerprint: Sha256Digest::of(body.as_bytes()).0,
        life: state.limits.idempotency_key,
    });
    let locale = locale(Some(&caller), &headers);
    submit(&state, caller, locale, body, key).await
}

/// Parses a body and submits its job.
async fn submit(
    state: &Arc<ApiState>,
    caller: Caller,
    locale: Locale,
    body: String,
    key: Option<IdempotencyKey>,
) -> Result<Response, Problem> {
    let repeater = caller.clone();
    match submit_job(state, caller, locale, body, key).await? {
        Submitted::Created(job) => Ok(accepted(state, Outcome::Accepted, &job)),
        Submitted::Repeated(job) if reach::sees_job(&repeater, &job) => {
            Ok(accepted(state, Outcome::Ok, &job))
        }
        // Also when the rights are narrower now than they were: it would be another export.
        Submitted::Repeated(_) | Submitted::KeyReused => Err(Problem::new(
            ProblemCode::IdempotencyKeyReused,
            "The Idempotency-Key was used with another body.",
        )),
        Submitted::QueueFull => Err(Problem::new(
            ProblemCode::QueueFull,
            "The organization has too many waiting exports.",
        )
        .retry_after(std::time::Duration::from_secs(30))),
    }
}

/// Parses a body against its caller and today's resources and submits its job.
pub async fn submit_job(
    state: &Arc<ApiState>,
    caller: Caller,
    locale: Locale,
    body: String,
    key: Option<IdempotencyKey>,
) -> Result<Submitted, Problem> {
    let requested_at = Utc::now();
    let context = RequestContext { caller: &caller, locale, requested_at, resolved_filters: None };
    let spec = spec::parse(&body, &state.catalogue, context).map_err(Problem::invalid_request)?;
    foresight::pass(state, &caller, &spec, key.as_ref()).await?;
    let resource = &spec.resource.name;
    let products = products_of_resource(state, caller.organization, resource).await?;
    let application = spec.resource.application.as_ref().unwrap_or(&state.application).clone();
    let job = NewJob {
        id: JobId::new(),
        kind: JobKind::Export,
        schedule: None,
        scope: spec.scope,
        resource: spec.resource.name.clone(),
        application,
        format: spec.format,
        compression: spec.compression,
        split: spec.split.is_some(),
        columns: spec.columns.into_iter().map(|column| column.key).collect(),
        products,
        connection_ids: None,
        filters: spec.filters,
        resolved_filters: spec.resolved_filters,
        request: body,
        metadata: spec.metadata,
        locale: spec.locale,
        notify_email: spec.notify_email,
        file_name: spec.file_name,
        requested_at,
        caller,
    };
    Ok(state.submitter.submit(job, key).await?)
}

fn accepted(state: &Arc<ApiState>, outcome: Outcome, job: &ExportJob) -> Response {
    let mut response = view(state, outcome, job, None);
    let location = state.public(&format!("/v1/exports/{}", job.id));
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn view(
    state: &Arc<ApiState>,
    outcome: Outcome,
    job: &ExportJob,
    queue_position: Option<u32>,
) -> Response {
    answer(outcome, job, ExportView::new(state, job, queue_position))
}

fn answer(outcome: Outcome, job: &ExportJob, view: ExportView) -> Response {
    let mut response = (outcome.status(), Json(view)).into_response();
    if let Some(pause) = poll_after(job)
        && let Ok(value) = HeaderValue::try_from(seconds(pause))
    {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

/// A job that this caller may see. What it may not see is as good as not there.
pub async fn visible(
    state: &Arc<ApiState>,
    caller: &Caller,
    id: &Segment,
) -> Result<ExportJob, Problem> {
    let job = jobs::find(&state.store, caller.organization, id.id()?).await?;
    job.filter(|job| job.kind == JobKind::Export && reach::sees_job(caller, job))
        .ok_or_else(Problem::not_found)
}

/// Exports of one's organization, newest first.
///
/// A caller restricted to companies or cooperatives may get short pages: `nextCursor` alone
/// says whether more follows.
#[utoipa::path(get, path = "/v1/exports", tag = "exports", security(("bearer" = ["exports:read"])),
    params(
        ("status" = Option<String>, Query, description = "Only with this status"),
        ("resource" = Option<String>, Query, description = "Only of this resource"),
        ("requestedBy" = Option<uuid::Uuid>, Query, description = "Only asked for by this user"),
        ("scheduleId" = Option<uuid::Uuid>, Query, description = "Only of this schedule"),
        ("cursor" = Option<String>, Query, description = "`nextCursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "1 to 200, else 50"),
    ),
    responses(
        (status = 200, description = "A page of exports", body = ExportPageView),
        (status = 400, description = "Every wrong parameter", body = ProblemView),
    ))]
pub async fn list(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    params: Params,
) -> Result<Json<ExportPageView>, Problem> {
    let caller = caller.with(Permission::ExportsRead)?;
    let mut params =
        params.known(&["status", "resource", "requestedBy", "scheduleId", "cursor", "limit"]);
    let filter = JobFilter {
        status: params.get("status", "a status such as COMPLETED", JobStatus::from_name),
        resource: params.get("resource", "a resource's name", |text| Some(text.to_owned())),
        requested_by: params.get("requestedBy", "a UUID", |text| text.parse().ok()),
        schedule: params.get("scheduleId", "a UUID", |text| text.parse().ok()),
        ..JobFilter::default()
    };
    let page = params.page();
    params.finish()?;
    let (jobs, next) = visible_page(&state, &caller, &filter, page).await?;
    let items = jobs.iter().map(|job| ExportView::new(&state, job, None)).collect();
    Ok(Json(ExportPageView { items, next_cursor: next.map(cursor) }))
}

/// A page of what the caller may see, filled from as many pages of the store as that takes,
/// within reason.
async fn visible_page(
    state: &Arc<ApiState>,
    caller: &Caller,
    filter: &JobFilter,
    page: PageRequest,
) -> Result<(Vec<ExportJob>, Option<uuid::Uuid>), Problem> {
    let mut seen = Vec::new();
    let mut after = page.after;
    for _ in 0..PAGES_PER_PAGE {
        let request = PageRequest { after, ..page };
        let found = jobs::list(&state.store, caller.organization, filter, request).await?;
        let last = found.items.last().map(|job| job.id.uuid());
        for job in found.items {
            let id = job.id.uuid();
            if reach::sees_job(caller, &job) {
                seen.push(job);
            }
            if seen.len() == page.limit as usize {
                let more = found.next.is_some() || Some(id) != last;
                return Ok((seen, more.then_some(id)));
            }
        }
        after = found.next;
        if after.is_none() {
            break;
        }
    }
    Ok((seen, after))
}

/// One export.
#[utoipa::path(get, path = "/v1/exports/{id}", tag = "exports", security(("bearer" = ["exports:read"])),
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "`Retry-After` while it has not ended", body = ExportView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
    ))]
pub async fn get(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    id: Segment,
) -> Result<Response, Problem> {
    let caller = caller.with(Permission::ExportsRead)?;
    let job = visible(&state, &caller, &id).await?;
    let position = if job.status == JobStatus::Pending {
        jobs::queue_position(&state.store, &job).await?
    } else {
        None
    };
    let parts = parts::of_file(&state.store, &job).await?;
    let view = ExportView::new(&state, &job, position).with_files(&job, parts);
    Ok(answer(Outcome::Ok, &job, view))
}

/// Asks an export to stop. Asking again changes nothing.
#[utoipa::path(post, path = "/v1/exports/{id}/cancel", tag = "exports", security(("bearer" = ["exports:write"])),
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 202, description = "CANCELED, or CANCELING while a worker stops", body = ExportView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
        (status = 409, description = "It has ended otherwise", body = ProblemView),
    ))]
pub async fn cancel(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    id: Segment,
) -> Result<Response, Problem> {
    let caller = caller.with(Permission::ExportsWrite)?;
    let job = visible(&state, &caller, &id).await?;
    let mut tx = state.store.begin().await?;
    let outcome = jobs::request_cancel(&mut tx, caller.organization, job.id).await?;
    tx.commit().await?;
    match outcome {
        CancelOutcome::Canceled(job) | CancelOutcome::Canceling(job) => {
            Ok(view(&state, Outcome::Accepted, &job, None))
        }
        CancelOutcome::Ended(job) => Err(Problem::new(
            ProblemCode::JobEnded,
            format!("The export is {}.", job.status.name()),
        )),
        CancelOutcome::NotFound => Err(Problem::not_found()),
    }
}

/// Requests the same export again, with today's rights and resources.
#[utoipa::path(post, path = "/v1/exports/{id}/rerun", tag = "exports", security(("bearer" = ["exports:write"])),
    params(
        ("id" = uuid::Uuid, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters"),
    ),
    responses(
        (status = 202, description = "A new job; `Location` names it", body = ExportView),
        (status = 200, description = "The same key made this job before", body = ExportView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
        (status = 422, description = "The request no longer fits", body = ProblemView),
        (status = 429, description = "Too many requests or waiting exports", body = ProblemView),
    ))]
pub async fn rerun(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    headers: HeaderMap,
    id: Segment,
) -> Result<Response, Problem> {
    let caller = caller.with(Permission::ExportsWrite)?;
    let job = visible(&state, &caller, &id).await?;
    let key = idempotency_key(&headers)?.map(|key| IdempotencyKey {
        key,
        fingerprint: rerun_fingerprint(&job),
        life: state.limits.idempotency_key,
    });
    let locale = job.locale;
    submit(&state, caller, locale, job.request, key).await
}

/// What a rerun is under an idempotency key: no body is the same as it.
pub fn rerun_fingerprint(job: &ExportJob) -> [u8; 32] {
    Sha256Digest::of(format!("rerun {}", job.id).as_bytes()).0
}

/// Deletes the file of an export that has ended; the job stays, with `deletedAt`.
#[utoipa::path(delete, path = "/v1/exports/{id}", tag = "exports", security(("bearer" = ["exports:write"])),
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "The job, with `deletedAt`", body = ExportView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
        (status = 409, description = "It has not ended", body = ProblemView),
    ))]
pub async fn delete(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    id: Segment,
) -> Result<Response, Problem> {
    let caller = caller.with(Permission::ExportsWrite)?;
    let job = visible(&state, &caller, &id).await?;
    let mut tx = state.store.begin().await?;
    let job = jobs::delete_file(&mut tx, caller.organization, job.id).await?;
    tx.commit().await?;
    let job = job.ok_or_else(Problem::not_found)?;
    if !job.status.has_ended() {
        return Err(Problem::new(
            ProblemCode::JobRunning,
            format!("The export is {}; cancel it first.", job.status.name()),
        ));
    }
    Ok(view(&state, Outcome::Ok, &job, None))
}
