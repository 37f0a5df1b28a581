//! The bytes of a finished export: a redirect to the store, or the bytes themselves.

mod reading;
mod served;

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use outport_domain::{
    caller::{Caller, Permission},
    job::{ExportJob, FinishedFile, JobStatus, Protection},
    json::FieldCode,
    spec::{self, RequestContext},
};
use outport_objects::{DownloadHeaders, disposition::content_disposition, sealed::whole};
use outport_store::{
    access::{self, Download},
    parts,
};
use uuid::Uuid;

use self::{reading::Reading, served::Served};
use super::{
    ApiState,
    exports::visible,
    extract::{Authorized, Client, FileNumber, Segment},
    problem::{Outcome, Problem, ProblemCode, ProblemView},
    range::{Asked, asked},
};

/// Asks with `never` for the bytes themselves, also where the object store would give them: the
/// script of a page may not be led to another origin.
const REDIRECT: HeaderName = HeaderName::from_static("x-outport-redirect");

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

/// The file, or the manifest of a split export: a redirect to the object store, or the bytes.
/// Each download is audited; HEAD is not.
#[utoipa::path(method(get, head), path = "/v1/exports/{id}/file", tag = "exports",
    security(("bearer" = ["exports:read"])),
    params(
        ("id" = Uuid, Path),
        ("Range" = Option<String>, Header, description = "One range of bytes"),
        ("X-Outport-Redirect" = Option<String>, Header, description = "`never`: the bytes come from here"),
    ),
    responses(
        (status = 302, description = "A pre-signed URL of the object store, for some minutes; never of a sealed file"),
        (status = 200, description = "The whole file, of the job's `contentType`", content_type = "*/*"),
        (status = 206, description = "The range asked for", content_type = "*/*"),
        (status = 403, description = "A column needs a scope that the caller lacks", body = ProblemView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
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
    deliver(&state, &job, None, downloader, &method, &headers).await
}

/// One of the files of a split export, by its number: like the file of any other export.
#[utoipa::path(method(get, head), path = "/v1/exports/{id}/files/{number}", tag = "exports",
    security(("bearer" = ["exports:read"])),
    params(
        ("id" = Uuid, Path),
        ("number" = u32, Path, description = "From 1"),
        ("Range" = Option<String>, Header, description = "One range of bytes"),
        ("X-Outport-Redirect" = Option<String>, Header, description = "`never`: the bytes come from here"),
    ),
    responses(
        (status = 302, description = "A pre-signed URL of the object store, for some minutes; never of a sealed file"),
        (status = 200, description = "The whole file", content_type = "*/*"),
        (status = 206, description = "The range asked for", content_type = "*/*"),
        (status = 403, description = "A column needs a scope that the caller lacks", body = ProblemView),
        (status = 404, description = "No such export, or it has no such file", body = ProblemView),
        (status = 409, description = "Not completed", body = ProblemView),
        (status = 410, description = "Expired or deleted", body = ProblemView),
        (status = 416, description = "The range is outside of the file", body = ProblemView),
    ))]
pub async fn part(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    client: Client,
    method: Method,
    headers: HeaderMap,
    id: Segment,
    FileNumber(number): FileNumber,
) -> Result<Response, Problem> {
    let caller = caller.with(Permission::ExportsRead)?;
    let job = visible(&state, &caller, &id).await?;
    may_read_columns(&state, &caller, &job)?;
    let downloader = Downloader { user: caller.user, via: "API", client };
    deliver(&state, &job, Some(number), downloader, &method, &headers).await
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
    let context = RequestContext {
        caller,
        locale: job.locale,
        requested_at: job.created_at,
        resolved_filters: None,
    };
    let faults = spec::parse(&job.request, &state.catalogue, context).err().unwrap_or_default();
    if faults.iter().any(|fault| fault.code == FieldCode::ForbiddenColumn) {
        let detail = "The file was made with a column that this credential may not read.";
        return Err(Problem::new(ProblemCode::Forbidden, detail));
    }
    Ok(())
}

/// Audits the download of the file, or of the numbered one of a split export, then redirects or
/// streams.
pub async fn deliver(
    state: &Arc<ApiState>,
    job: &ExportJob,
    number: Option<u32>,
    downloader: Downloader,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let now = Utc::now();
    let file = downloadable(job, now)?;
    let served = match number {
        None => Served::file(job, file)?,
        Some(number) => {
            let part = parts::find(&state.store, job, number).await?;
            Served::part(job, file, part.ok_or_else(Problem::not_found)?)
        }
    };
    let etag = format!("\"{}\"", served.sha256);
    let range = match headers.get(header::IF_RANGE) {
        // The file never changes, so another mark can only be of another file.
        Some(mark) if mark.as_bytes() != etag.as_bytes() => Asked::Whole,
        _ => asked(text(headers, &header::RANGE), served.size_bytes),
    };
    let range = match range {
        Asked::Outside => return Err(Problem::range_not_satisfiable(served.size_bytes)),
        Asked::Part(range) => Some(range),
        Asked::Whole => None,
    };
    let is_head = method == Method::HEAD;
    let reading = Reading::new(state, job.id, &served.key, is_head);
    // The audit is written when the store has agreed and before the first byte leaves.
    let may_redirect = text(headers, &REDIRECT) != Some("never");
    if may_redirect && let Some(url) = presigned(state, job, &served, &reading, now).await? {
        if is_head {
            // The URL is for a GET.
            return Ok(served.head(&etag, range.as_ref()));
        }
        audit(state, job, &served, downloader, now).await?;
        return Ok((Outcome::Found.status(), [(header::LOCATION, url)]).into_response());
    }
    // For a HEAD as well: it says what a GET would.
    let stream = reading.begin(&served, range.clone()).await?;
    let mut response = served.head(&etag, range.as_ref());
    if !is_head {
        audit(state, job, &served, downloader, now).await?;
        *response.body_mut() = Body::from_stream(stream);
    }
    Ok(response)
}

async fn audit(
    state: &Arc<ApiState>,
    job: &ExportJob,
    served: &Served,
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
        part: served.part,
        address: client.address,
        user_agent: client.user_agent,
        at: now,
    };
    let mut tx = state.store.begin().await?;
    access::record_download(&mut tx, &download).await?;
    Ok(tx.commit().await?)
}

/// A URL that lives no longer than the file itself; none where the store's bytes are not those of
/// the file. Nobody is led to what is not the file any more.
async fn presigned(
    state: &Arc<ApiState>,
    job: &ExportJob,
    served: &Served,
    reading: &Reading,
    now: DateTime<Utc>,
) -> Result<Option<HeaderValue>, Problem> {
    if served.protection != Protection::None {
        return Ok(None);
    }
    let left = job.expires_at.and_then(|end| (end - now).to_std().ok());
    let life = state.limits.presigned_url.min(left.unwrap_or(Duration::MAX));
    let headers = DownloadHeaders {
        content_disposition: content_disposition(&served.name),
        content_type: served.content_type.clone(),
    };
    let life = life.max(Duration::from_secs(1));
    let url = state.objects.presign_get(&served.key, &headers, life).await;
    let url = url.map_err(|error| reading.refused(&error))?;
    let url = url.and_then(|url| HeaderValue::try_from(url.as_str()).ok());
    if url.is_some() {
        let whole = whole(&*state.objects, &served.key, served.stored_bytes).await;
        whole.map_err(|error| reading.refused(&error))?;
    }
    Ok(url)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
