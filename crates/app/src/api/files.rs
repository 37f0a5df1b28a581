//! The bytes of a finished export: a redirect to the store, or the bytes themselves.

use std::{ops::Range, sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use outport_domain::{
    caller::{Caller, Permission},
    job::{ExportJob, FinishedFile, JobStatus},
    json::FieldCode,
    spec::{self, RequestContext},
};
use outport_objects::{DownloadHeaders, disposition::content_disposition};
use outport_store::access::{self, Download};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    ApiState,
    exports::visible,
    extract::{Authorized, Client, Params, Segment, cursor},
    problem::{Outcome, Problem, ProblemCode, ProblemView},
    range::{Asked, asked},
};
use outport_contract::time::Instant;

/// Who downloads, for the audit.
pub struct Downloader {
    /// The user.
    pub user: outport_domain::id::UserId,
    /// `API` or `LINK`.
    pub via: &'static str,
    /// From where.
    pub client: Client,
}

/// Whether a job has a file that may be downloaded at this moment.
pub fn is_there(job: &ExportJob, now: DateTime<Utc>) -> bool {
    job.status == JobStatus::Completed
        && job.file.is_some()
        && job.deleted_at.is_none()
        && job.expires_at.is_none_or(|end| now < end)
}

/// The file of a job, or why there is none.
pub fn downloadable(job: &ExportJob, now: DateTime<Utc>) -> Result<&FinishedFile, Problem> {
    if is_there(job, now)
        && let Some(file) = &job.file
    {
        return Ok(file);
    }
    if matches!(job.status, JobStatus::Completed | JobStatus::Expired) {
        let detail = "The file has expired or was deleted; run the export again.";
        return Err(Problem::new(ProblemCode::FileGone, detail));
    }
    let detail = format!("The export is {}; only a COMPLETED one has a file.", job.status.name());
    Err(Problem::new(ProblemCode::NotCompleted, detail))
}

/// The file: a redirect to the object store, or the bytes. Each download is audited; HEAD is not.
#[utoipa::path(method(get, head), path = "/v1/exports/{id}/file", tag = "exports",
    security(("bearer" = ["exports:read"])),
    params(
        ("id" = Uuid, Path),
        ("Range" = Option<String>, Header, description = "One range of bytes"),
    ),
    responses(
        (status = 302, description = "A pre-signed URL of the object store, for some minutes"),
        (status = 200, description = "The whole file, of the job's `contentType`", content_type = "*/*"),
        (status = 206, description = "The range asked for", content_type = "*/*"),
        (status = 403, description = "A column needs a scope that the caller lacks", body = ProblemView),
        (status = 404, body = ProblemView),
        (status = 409, description = "Not completed", body = ProblemView),
        (status = 410, description = "Expired or deleted", body = ProblemView),
        (status = 416, description = "The range is outside of the file", body = ProblemView),
    ))]
pub async fn file(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    client: Client,
    method: Method,
    headers: HeaderMap,
    id: Segment,
) -> Result<Response, Problem> {
    let caller = caller.with(Permission::ExportsRead)?;
    let job = visible(&state, &caller, &id).await?;
    may_read_columns(&state, &caller, &job)?;
    let downloader = Downloader { user: caller.user, via: "API", client };
    deliver(&state, &job, downloader, &method, &headers).await
}

/// A file may hold columns that not every colleague may read. The requester's own right was
/// checked at the request, and is checked again.
fn may_read_columns(
    state: &Arc<ApiState>,
    caller: &Caller,
    job: &ExportJob,
) -> Result<(), Problem> {
    let resource = state.catalogue.0.get(&job.resource);
    for key in &job.columns {
        match resource.and_then(|resource| resource.column(key)) {
            Some(column) => {
                let scope = column.requires_scope.as_ref();
                if let Some(scope) = scope.filter(|scope| !caller.scopes.contains(*scope)) {
                    return Err(Problem::missing_scope(scope));
                }
            }
            // No longer declared, so its rule is not known any more.
            None if caller.user == job.caller.user => {}
            None => {
                let detail = "The resource no longer declares a column of this file.";
                return Err(Problem::new(ProblemCode::Forbidden, detail));
            }
        }
    }
    // What a filter or an order tells of a column is read as well.
    let context = RequestContext { caller, locale: job.locale, requested_at: job.created_at };
    let faults = spec::parse(&job.request, &state.catalogue, context).err().unwrap_or_default();
    if faults.iter().any(|fault| fault.code == FieldCode::ForbiddenColumn) {
        let detail = "The file was made with a column that this credential may not read.";
        return Err(Problem::new(ProblemCode::Forbidden, detail));
    }
    Ok(())
}

/// Audits the download, then redirects or streams.
pub async fn deliver(
    state: &Arc<ApiState>,
    job: &ExportJob,
    downloader: Downloader,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let now = Utc::now();
    let file = downloadable(job, now)?;
    let etag = format!("\"{}\"", file.sha256);
    let range = match headers.get(header::IF_RANGE) {
        // The file never changes, so another mark can only be of another file.
        Some(mark) if mark.as_bytes() != etag.as_bytes() => Asked::Whole,
        _ => asked(text(headers, &header::RANGE), file.size_bytes),
    };
    if range == Asked::Outside {
        return Err(Problem::range_not_satisfiable(file.size_bytes));
    }
    let part = match range {
        Asked::Part(part) => Some(part),
        Asked::Whole | Asked::Outside => None,
    };
    if method == Method::HEAD {
        return Ok(head(job, file, &etag, part.as_ref()));
    }
    // The audit is written when the store has agreed and before the first byte leaves.
    if let Some(url) = presigned(state, job, file, now).await? {
        audit(state, job, downloader, now).await?;
        return Ok((Outcome::Found.status(), [(header::LOCATION, url)]).into_response());
    }
    let stream = state.objects.get(&file.key, part.clone()).await?;
    audit(state, job, downloader, now).await?;
    let mut response = head(job, file, &etag, part.as_ref());
    // An error in the middle resets the connection: no client takes the rest for the end.
    *response.body_mut() = Body::from_stream(stream.inspect(|chunk| {
        if let Err(error) = chunk {
            tracing::error!(error = error as &dyn std::error::Error, "a download broke off");
        }
    }));
    Ok(response)
}

async fn audit(
    state: &Arc<ApiState>,
    job: &ExportJob,
    downloader: Downloader,
    now: DateTime<Utc>,
) -> Result<(), Problem> {
    let Downloader { user, via, client } = downloader;
    let download = Download {
        id: Uuid::now_v7(),
        job: job.id,
        organization: job.scope.organization,
        user: Some(user),
        via,
        address: client.address,
        user_agent: client.user_agent,
        at: now,
    };
    let mut tx = state.store.begin().await?;
    access::record_download(&mut tx, &download).await?;
    Ok(tx.commit().await?)
}

/// A URL that lives no longer than the file itself.
async fn presigned(
    state: &Arc<ApiState>,
    job: &ExportJob,
    file: &FinishedFile,
    now: DateTime<Utc>,
) -> Result<Option<HeaderValue>, Problem> {
    let left = job.expires_at.and_then(|end| (end - now).to_std().ok());
    let life = state.limits.presigned_url.min(left.unwrap_or(Duration::MAX));
    let headers = DownloadHeaders {
        content_disposition: content_disposition(&job.file_name),
        content_type: content_type(job),
    };
    let life = life.max(Duration::from_secs(1));
    let url = state.objects.presign_get(&file.key, &headers, life).await?;
    Ok(url.and_then(|url| HeaderValue::try_from(url.as_str()).ok()))
}

/// The media type as a header: texts say their character set.
fn content_type(job: &ExportJob) -> String {
    let charset = if job.content_type().starts_with("text/") { "; charset=utf-8" } else { "" };
    format!("{}{charset}", job.content_type())
}

fn head(job: &ExportJob, file: &FinishedFile, etag: &str, part: Option<&Range<u64>>) -> Response {
    let outcome = if part.is_some() { Outcome::Partial } else { Outcome::Ok };
    let mut response = outcome.into_response();
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, content_type(job));
    set(header::CONTENT_DISPOSITION, content_disposition(&job.file_name));
    set(header::ACCEPT_RANGES, "bytes".to_owned());
    set(header::ETAG, etag.to_owned());
    let length = part.map_or(file.size_bytes, |part| part.end - part.start);
    set(header::CONTENT_LENGTH, length.to_string());
    if let Some(part) = part {
        let value = format!("bytes {}-{}/{}", part.start, part.end - 1, file.size_bytes);
        set(header::CONTENT_RANGE, value);
    }
    response
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// One download.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Download)]
pub struct DownloadView {
    id: Uuid,
    user_id: Option<Uuid>,
    /// `API` or `LINK`.
    via: &'static str,
    address: Option<String>,
    user_agent: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    at: Instant,
}

/// A page of downloads.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DownloadPage)]
pub struct DownloadPageView {
    items: Vec<DownloadView>,
    next_cursor: Option<String>,
}

/// Who downloaded the file, when, from where; newest first.
#[utoipa::path(get, path = "/v1/exports/{id}/downloads", tag = "exports",
    security(("bearer" = ["exports:read"])),
    params(
        ("id" = Uuid, Path),
        ("cursor" = Option<String>, Query),
        ("limit" = Option<u32>, Query),
    ),
    responses((status = 200, body = DownloadPageView), (status = 404, body = ProblemView)))]
pub async fn downloads(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    id: Segment,
    params: Params,
) -> Result<Json<DownloadPageView>, Problem> {
    let caller = caller.with(Permission::ExportsRead)?;
    let mut params = params.known(&["cursor", "limit"]);
    let page = params.page();
    params.finish()?;
    let job = visible(&state, &caller, &id).await?;
    let found = access::list_downloads(&state.store, caller.organization, job.id, page).await?;
    let items = found
        .items
        .into_iter()
        .map(|download| DownloadView {
            id: download.id,
            user_id: download.user.map(outport_domain::id::Id::uuid),
            via: download.via,
            address: download.address,
            user_agent: download.user_agent,
            at: download.at.into(),
        })
        .collect();
    Ok(Json(DownloadPageView { items, next_cursor: found.next.map(cursor) }))
}
