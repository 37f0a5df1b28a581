//! The links in mails (rule 35). Opening one never uses it up, so a mail scanner does no harm:
//! the page is only looked at, and the file behind its button is what is audited. The holder's
//! right is looked up at every click; the token alone grants nothing.

use std::sync::Arc;

use axum::{
    Extension,
    extract::FromRequestParts,
    http::{HeaderMap, Method, request::Parts},
    response::Response,
};
use chrono::{DateTime, Utc};
use minijinja::context;
use outport_contract::link::LinkToken;
use outport_domain::{
    file_name,
    id::UserId,
    job::{ExportJob, FinishedPart, JobStatus},
    locale::Locale,
};
use outport_store::{
    PageRequest, StoreError,
    access::{self, TokenRow},
    jobs, parts,
    submit::{IdempotencyKey, Submitted},
};

use super::{
    ApiState,
    exports::{rerun_fingerprint, submit_job},
    extract::{Client, FileNumber, Segment, locale},
    files::{self, Downloader},
    pages::{PageWords, Pages, Words},
    problem::{Outcome, Problem, ProblemCode},
};
use crate::auth;

/// A link whose holder may see its job.
struct Followed {
    token: String,
    user: UserId,
    job: ExportJob,
    /// Whether the link or the file has reached its end.
    gone: bool,
}

/// What a link page needs of a request.
pub struct Visit {
    state: Arc<ApiState>,
    pages: Arc<Pages>,
    headers: HeaderMap,
    token: String,
}

impl FromRequestParts<Arc<ApiState>> for Visit {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<ApiState>) -> Result<Self, Problem> {
        let Segment(token) = Segment::from_request_parts(parts, state).await?;
        let pages = Extension::<Arc<Pages>>::from_request_parts(parts, state).await;
        let Extension(pages) = pages.map_err(|error| Problem::internal(&error))?;
        Ok(Self { state: Arc::clone(state), pages, headers: parts.headers.clone(), token })
    }
}

/// The page behind the link in a mail: what the file is, and a button.
#[utoipa::path(method(get, head), path = "/d/{token}", tag = "links",
    params(("token" = String, Path, description = "From the mail")),
    responses(
        (status = 200, description = "The page", content_type = "text/html"),
        (status = 403, description = "The holder has lost access", content_type = "text/html"),
        (status = 404, description = "Not a link of ours", content_type = "text/html"),
        (status = 410, description = "Expired or deleted, with an offer to run it again", content_type = "text/html"),
    ))]
pub async fn page(visit: Visit) -> Response {
    match visit.follow().await {
        Err(problem) => visit.refusal(&problem),
        Ok(followed) if followed.gone => visit.gone(&followed),
        Ok(followed) => match followed.job.status {
            JobStatus::Completed | JobStatus::Expired => match visit.ready(&followed).await {
                Ok(page) => page,
                Err(problem) => visit.refusal(&problem),
            },
            JobStatus::Pending | JobStatus::Processing | JobStatus::Canceling => {
                visit.say(Outcome::Ok.status(), followed.job.locale, |words| &words.waiting)
            }
            JobStatus::Failed | JobStatus::Canceled => {
                visit.say(Outcome::Ok.status(), followed.job.locale, |words| &words.no_file)
            }
        },
    }
}

/// The file behind the button: audited, then a redirect to the object store or the bytes.
#[utoipa::path(method(get, head), path = "/d/{token}/file", tag = "links",
    params(
        ("token" = String, Path, description = "From the mail"),
        ("Range" = Option<String>, Header, description = "One range of bytes"),
    ),
    responses(
        (status = 302, description = "A pre-signed URL of the object store, for some minutes"),
        (status = 200, description = "The whole file", content_type = "text/csv"),
        (status = 206, description = "The range asked for", content_type = "text/csv"),
        (status = 403, description = "The holder has lost access", content_type = "text/html"),
        (status = 404, description = "Not a link of ours", content_type = "text/html"),
        (status = 410, description = "Expired or deleted", content_type = "text/html"),
    ))]
pub async fn file(visit: Visit, method: Method, client: Client) -> Response {
    visit.deliver(None, &method, client).await
}

/// One of the files of a split export: like the file of any other export.
#[utoipa::path(method(get, head), path = "/d/{token}/files/{number}", tag = "links",
    params(
        ("token" = String, Path, description = "From the mail"),
        ("number" = u32, Path, description = "From 1"),
        ("Range" = Option<String>, Header, description = "One range of bytes"),
    ),
    responses(
        (status = 302, description = "A pre-signed URL of the object store, for some minutes"),
        (status = 200, description = "The whole file", content_type = "*/*"),
        (status = 206, description = "The range asked for", content_type = "*/*"),
        (status = 403, description = "The holder has lost access", content_type = "text/html"),
        (status = 404, description = "Not a link of ours", content_type = "text/html"),
        (status = 410, description = "Expired or deleted", content_type = "text/html"),
    ))]
pub async fn part(
    visit: Visit,
    method: Method,
    client: Client,
    FileNumber(number): FileNumber,
) -> Response {
    visit.deliver(Some(number), &method, client).await
}

/// Runs the export of an expired link again, for the same requester: once a day at most.
///
/// The token in the path is what authorises this, so no other site can ask for it unknowingly.
#[utoipa::path(post, path = "/d/{token}/rerun", tag = "links",
    params(("token" = String, Path, description = "From the mail")),
    responses(
        (status = 202, description = "Requested", content_type = "text/html"),
        (status = 403, description = "The holder has lost access", content_type = "text/html"),
        (status = 404, description = "Not a link of ours", content_type = "text/html"),
        (status = 422, description = "The request no longer fits", content_type = "text/html"),
        (status = 429, description = "Too many waiting exports", content_type = "text/html"),
    ))]
pub async fn rerun(visit: Visit) -> Response {
    let followed = match visit.follow().await {
        Err(problem) => return visit.refusal(&problem),
        Ok(followed) => followed,
    };
    let locale = followed.job.locale;
    match visit.run_again(followed).await {
        Ok(()) => visit.say(Outcome::Accepted.status(), locale, |words| &words.requested_again),
        Err(problem) => match problem.code {
            ProblemCode::InvalidRequest | ProblemCode::QueueFull => {
                visit.say(problem.code.status(), locale, |words| &words.cannot_rerun)
            }
            _ => visit.refusal(&problem),
        },
    }
}

impl Followed {
    /// Only who asked for it, and only when its time ran out by itself: a file that was deleted
    /// by request does not come back through a mailbox.
    fn may_rerun(&self) -> bool {
        self.gone && self.job.caller.user == self.user && self.job.deleted_at.is_none()
    }
}

impl Visit {
    /// Verifies the token and looks up the holder's right as it is now.
    async fn follow(&self) -> Result<Followed, Problem> {
        let link = LinkToken::verify(&self.state.link_keys, &self.token)
            .map_err(|_| Problem::not_found())?;
        let store = &self.state.store;
        let id = outport_domain::id::Id::from_uuid(link.job);
        let user = UserId::from_uuid(link.user);
        let job =
            jobs::find_in_any_organization(store, id).await?.ok_or_else(Problem::not_found)?;
        let forbidden = || Problem::new(ProblemCode::Forbidden, "The link gives no access.");
        if self.state.authenticator.is_revoked(job.scope.organization, user).await?
            || !access::is_requester(store, job.id, user).await?
        {
            return Err(forbidden());
        }
        let now = Utc::now();
        let over = matches!(job.status, JobStatus::Completed | JobStatus::Expired)
            && !files::is_there(&job, now);
        let gone = link.is_expired(now.timestamp()) || over;
        Ok(Followed { token: self.token.clone(), user, job, gone })
    }

    /// The file, or the numbered one of a split export; or the page that says why not.
    async fn deliver(&self, number: Option<u32>, method: &Method, client: Client) -> Response {
        let followed = match self.follow().await {
            Err(problem) => return self.refusal(&problem),
            Ok(followed) if followed.gone => return self.gone(&followed),
            Ok(followed) => followed,
        };
        let downloader = Downloader { user: followed.user, via: "LINK", client };
        let Followed { job, .. } = &followed;
        let delivered =
            files::deliver(&self.state, job, number, downloader, method, &self.headers).await;
        delivered.unwrap_or_else(|problem| match problem.code {
            ProblemCode::FileGone => self.gone(&followed),
            ProblemCode::NotCompleted => {
                self.say(problem.code.status(), followed.job.locale, |words| &words.no_file)
            }
            // A program asked for a range; a page would not help it.
            ProblemCode::RangeNotSatisfiable => {
                axum::response::IntoResponse::into_response(problem)
            }
            _ => self.refusal(&problem),
        })
    }

    /// Submits the job's request again. The rights are those of the request; what took them away
    /// since is a revoked or ended API token, or a revocation of the user or organization.
    async fn run_again(&self, followed: Followed) -> Result<(), Problem> {
        let may_rerun = followed.may_rerun();
        let Followed { job, .. } = followed;
        if !may_rerun || !self.credential_is_live(&job).await? {
            return Err(Problem::new(ProblemCode::Forbidden, "The link gives no access."));
        }
        let key = IdempotencyKey {
            key: format!("link-rerun:{}", job.id),
            fingerprint: rerun_fingerprint(&job),
            life: self.state.limits.idempotency_key,
        };
        match submit_job(&self.state, job.caller, job.locale, job.request, Some(key)).await? {
            Submitted::Created(_) | Submitted::Repeated(_) => Ok(()),
            Submitted::KeyReused | Submitted::QueueFull => {
                Err(Problem::new(ProblemCode::QueueFull, "Too many exports are waiting."))
            }
        }
    }

    /// Whether the API token that asked for the job still opens doors, if it was one.
    async fn credential_is_live(&self, job: &ExportJob) -> Result<bool, StoreError> {
        let Some(id) = job.caller.token else { return Ok(true) };
        let row = token_of(&self.state, job.scope.organization, id).await?;
        Ok(row.is_some_and(|row| auth::is_live(&row, Utc::now())))
    }

    async fn ready(&self, followed: &Followed) -> Result<Response, Problem> {
        let Followed { token, job, .. } = followed;
        let words = self.pages.words(job.locale);
        let parts = parts::of_file(&self.state.store, job).await?;
        // People want the rows; a manifest is for programs.
        let (download, number, files) = match parts.as_slice() {
            [] => (Some("file"), None, Vec::new()),
            [only] => (Some("files"), Some(only.number), Vec::new()),
            several => (None, None, several.iter().map(|part| entry(job, part)).collect()),
        };
        let values = context! {
            text => words.ready.text.as_str(), facts => facts(job, words), token, download, number,
            files, rerun => (), words => buttons(words),
        };
        Ok(self.render(Outcome::Ok.status(), job.locale, &words.ready, values))
    }

    fn gone(&self, followed: &Followed) -> Response {
        let job = &followed.job;
        let words = self.pages.words(job.locale);
        let rerun = followed.may_rerun().then_some(followed.token.as_str());
        let values = context! {
            text => words.gone.text.as_str(), facts => facts(job, words), download => (),
            files => (), rerun, words => buttons(words),
        };
        self.render(ProblemCode::FileGone.status(), job.locale, &words.gone, values)
    }

    /// The page for a link that leads nowhere for its holder.
    fn refusal(&self, problem: &Problem) -> Response {
        let locale = locale(None, &self.headers);
        self.say(problem.code.status(), locale, |words| match problem.code {
            ProblemCode::NotFound => &words.unknown,
            ProblemCode::Forbidden => &words.forbidden,
            _ => &words.unavailable,
        })
    }

    fn say(
        &self,
        status: axum::http::StatusCode,
        locale: Locale,
        choose: impl Fn(&Words) -> &PageWords,
    ) -> Response {
        let words = self.pages.words(locale);
        let page = choose(words);
        let values = context! {
            text => page.text.as_str(), facts => (), download => (), files => (), rerun => (),
            words => buttons(words),
        };
        self.render(status, locale, page, values)
    }

    fn render(
        &self,
        status: axum::http::StatusCode,
        locale: Locale,
        page: &PageWords,
        values: minijinja::Value,
    ) -> Response {
        self.pages.answer(status, "link.html", locale, &page.title, values)
    }
}

/// A token of an organization by its id: a rare need, so it is looked for page by page.
pub async fn token_of(
    state: &Arc<ApiState>,
    organization: outport_domain::id::OrganizationId,
    id: outport_domain::id::TokenId,
) -> Result<Option<TokenRow>, StoreError> {
    let mut after = None;
    loop {
        let request = PageRequest { limit: 200, after };
        let page = access::list_tokens(&state.store, organization, request).await?;
        if let Some(row) = page.items.into_iter().find(|row| row.id == id) {
            return Ok(Some(row));
        }
        after = page.next;
        if after.is_none() {
            return Ok(None);
        }
    }
}

fn buttons(words: &Words) -> minijinja::Value {
    let Words { download, files, rerun, .. } = words;
    context! { download, files, rerun }
}

/// One of several files on a page.
fn entry(job: &ExportJob, part: &FinishedPart) -> minijinja::Value {
    context! {
        number => part.number,
        name => file_name::of_part(&job.file_name, job.compression.suffix(), part.number),
        size => human_size(part.size_bytes),
    }
}

fn facts(job: &ExportJob, words: &Words) -> Vec<Vec<String>> {
    let mut facts = vec![vec![words.file_name.clone(), job.file_name.clone()]];
    if let Some(file) = &job.file {
        facts.push(vec![words.size.clone(), human_size(file.size_bytes)]);
        facts.push(vec![words.rows.clone(), file.total_rows.to_string()]);
    }
    facts.push(vec![words.requested.clone(), minute(job.created_at)]);
    if let Some(end) = job.expires_at {
        facts.push(vec![words.expires.clone(), minute(end)]);
    }
    facts
}

fn minute(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M UTC").to_string()
}

fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_units_that_people_read() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (5 * 1024 * 1024 + 512 * 1024, "5.5 MiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(human_size(bytes), text);
        }
    }
}
