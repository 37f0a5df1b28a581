//! The Fetcher facade: what clients of a Fetcher ask for, in its words and with its errors.
//!
//! It reads tables whole, past all scopes of resources. Hence a scope of its own that no other
//! call asks for, and no caller that may see a part of its organization only.

mod asked;
mod product;
mod refusal;
mod view;

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use chrono::Utc;
use outport_domain::{
    caller::{Caller, Permission},
    connection::{Products, ids, products},
    data_request::{self, DataRequest},
    id::{JobId, OrganizationId},
    job::{Compression, ExportJob, Format, JobKind, JobScope, ScopeType},
    locale::Locale,
};
use outport_pipeline::{
    connections::Connections,
    fetcher::{all_there, prepare},
};
use outport_store::{
    fetcher,
    jobs::{self, CancelOutcome},
    submit::{NewJob, Submitted},
};

pub use asked::{Asked, AskedBody, NoQuery};
pub use product::{Product, products_of_resource};
pub use refusal::{AnyRefusal, FetCode, Refusal, RefusalView};
use view::{AcceptedView, DataRequestBody, FetcherJobView};

use super::{
    ApiState,
    extract::{Authorized, Segment},
    problem::{Outcome, Problem, ProblemCode},
};
use crate::auth::{rate::RateLimiter, reach};

/// The resource that jobs of this kind name.
pub const RESOURCE: &str = "fetcher";

/// What the facade works with.
pub struct Facade {
    /// What may be read.
    pub connections: Connections,
    /// Tests of each organization's connections: of one connection alone they would not count,
    /// since another is stored as quickly as one is tested.
    pub tests: RateLimiter<OrganizationId>,
}

/// How often the connections of one request are looked at, when they change meanwhile.
const LOOKS: u32 = 3;
/// Tests of all connections of an organization a minute.
const TESTS_PER_MINUTE: u32 = 10;

impl Facade {
    /// A facade over these connections.
    pub fn new(connections: Connections) -> Self {
        Self { connections, tests: RateLimiter::new(TESTS_PER_MINUTE) }
    }
}

/// Whether an address is one of the facade's, or might be.
pub fn is_facade_path(path: &str) -> bool {
    ["/v1/fetcher", "/v1/management"].iter().any(|base| {
        path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The facade; its routes are there only when it is.
pub fn facade(state: &ApiState) -> Result<&Facade, Refusal> {
    state.facade.as_deref().ok_or_else(|| Problem::not_found().into())
}

/// A caller that sees all of its organization and has this right.
pub fn whole_caller(caller: Authorized, permission: Permission) -> Result<Caller, Refusal> {
    let caller = caller.with(permission)?;
    if caller.is_restricted() {
        let detail = "The caller sees only some companies or cooperatives of its organization.";
        return Err(Problem::new(ProblemCode::Forbidden, detail).into());
    }
    Ok(caller)
}

/// Asks for tables of connections as one JSON result.
///
/// The same request within five minutes, or while its job has not ended, is the same job: 200,
/// unless one of its connections is another by now or leads elsewhere.
#[utoipa::path(post, path = "/v1/fetcher", tag = "fetcher", security(("bearer" = ["fetcher:run"])),
    params(("X-Product-Name" = Option<String>, Header, description = "The product that the connections must be of")),
    request_body(content = DataRequestBody, content_type = "application/json"),
    responses(AnyRefusal,
        (status = 202, description = "Queued; `Location` names it", body = AcceptedView),
        (status = 200, description = "The same request made this job before", body = AcceptedView),
        (status = 400, description = "The request is wrong, also where it does not fit the tables", body = RefusalView),
        (status = 422, description = "It names connections that are not there, or of another product", body = RefusalView),
        (status = 429, description = "Too many requests or waiting jobs", body = RefusalView),
        (status = 503, description = "A connection's database does not answer, or its connections change all the time", body = RefusalView),
    ))]
pub async fn create(
    State(state): State<Arc<ApiState>>,
    Asked(caller): Asked<Authorized>,
    product: Product,
    _: NoQuery,
    AskedBody(body): AskedBody,
) -> Result<Response, Refusal> {
    let facade = facade(&state)?;
    let caller = whole_caller(caller, Permission::FetcherRun)?;
    let request = data_request::parse(&body).map_err(Refusal::fields)?;
    let job = new_job(state.application.clone(), caller, body, &request);
    match submit(&state, facade, &product, &request, job).await? {
        Submitted::Created(job) => Ok(accepted(&state, Outcome::Accepted, &job)),
        Submitted::Repeated(job) => Ok(accepted(&state, Outcome::Ok, &job)),
        Submitted::QueueFull | Submitted::KeyReused => {
            let detail = "The organization has too many waiting jobs.";
            let problem = Problem::new(ProblemCode::QueueFull, detail);
            Err(problem.retry_after(Duration::from_secs(30)).into())
        }
    }
}

/// Looks the connections up, once for everything that is decided about them, and then at their
/// databases, which takes its time: the job is submitted only if its connections are still the
/// same.
async fn submit(
    state: &ApiState,
    facade: &Facade,
    product: &Product,
    request: &DataRequest,
    mut job: NewJob,
) -> Result<Submitted, Refusal> {
    let organization = job.scope.organization;
    let names: Vec<&str> = request.connections.keys().map(String::as_str).collect();
    for _ in 0..LOOKS {
        let found = facade.connections.find(organization, &names).await?;
        product.check_all(&found.stored)?;
        all_there(&found)?;
        let identity = request.identity_with(&found.stored).0;
        if let Some(known) = fetcher::known_job(&state.store, organization, identity).await? {
            return Ok(Submitted::Repeated(known));
        }
        prepare(&facade.connections, &found, &request.connections).await?;
        job.products = products(&found.stored);
        job.connection_ids = Some(ids(&found.stored));
        let most = state.limits.queued_per_organization;
        let mut tx = state.store.begin().await?;
        if let Some(submitted) = fetcher::submit(&mut tx, &job, identity, &found.seen, most).await?
        {
            tx.commit().await?;
            return Ok(submitted);
        }
    }
    let detail = "The request's connections change while they are looked at.";
    let problem = Problem::new(ProblemCode::Unavailable, detail);
    Err(problem.retry_after(Duration::from_secs(1)).into())
}

fn new_job(application: String, caller: Caller, body: String, request: &DataRequest) -> NewJob {
    let scope = JobScope {
        scope_type: ScopeType::Organization,
        organization: caller.organization,
        company: None,
        cooperative: None,
    };
    let id = JobId::new();
    NewJob {
        id,
        kind: JobKind::Fetcher,
        schedule: None,
        scope,
        resource: RESOURCE.to_owned(),
        application,
        format: Format::Json,
        compression: Compression::None,
        split: false,
        columns: request.connections.keys().cloned().collect(),
        products: Products::new(),
        connection_ids: None,
        filters: request.filters.clone().unwrap_or_else(|| "{}".to_owned()),
        resolved_filters: None,
        request: body,
        metadata: Some(request.metadata.clone()),
        locale: caller.locale.unwrap_or(Locale::En),
        notify_email: None,
        file_name: format!("{id}.json"),
        requested_at: Utc::now(),
        caller,
    }
}

fn accepted(state: &ApiState, outcome: Outcome, job: &ExportJob) -> Response {
    let mut response = (outcome.status(), Json(AcceptedView::new(job, outcome))).into_response();
    let location = state.public(&format!("/v1/fetcher/{}", job.id));
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// A job of either kind: what was asked for here, or an export.
#[utoipa::path(get, path = "/v1/fetcher/{id}", tag = "fetcher", security(("bearer" = ["fetcher:run"])),
    params(("id" = uuid::Uuid, Path),
        ("X-Product-Name" = Option<String>, Header, description = "The product that its connections must be of")),
    responses(AnyRefusal,
        (status = 200, description = "The job; exports need the scope `exports:read`", body = FetcherJobView),
        (status = 400, description = "The id is no UUID, the header is wrong, or there is a query", body = RefusalView),
        (status = 404, description = "There is no such job", body = RefusalView),
        (status = 422, description = "It reads a connection of another product", body = RefusalView),
    ))]
pub async fn get(
    State(state): State<Arc<ApiState>>,
    Asked(Authorized(caller)): Asked<Authorized>,
    product: Product,
    _: NoQuery,
    Asked(id): Asked<Segment>,
) -> Result<Response, Refusal> {
    if !caller.may(Permission::FetcherRun) && !caller.may(Permission::ExportsRead) {
        return Err(Problem::missing_scope(Permission::FetcherRun.name()).into());
    }
    let job = jobs::find(&state.store, caller.organization, path_id(&id)?).await?;
    let visible = |job: &ExportJob| match job.kind {
        JobKind::Fetcher => caller.may(Permission::FetcherRun) && !caller.is_restricted(),
        JobKind::Export => caller.may(Permission::ExportsRead) && reach::sees_job(&caller, job),
    };
    let job = job.filter(visible).ok_or_else(no_job)?;
    product.check_job(&state, &job).await?;
    let connection = state.catalogue.0.get(&job.resource).map(|one| one.connection.as_str());
    Ok((Outcome::Ok.status(), Json(FetcherJobView::new(&job, connection))).into_response())
}

/// Asks a job to stop; its event is `job.failed` with the code `CANCELED`.
#[utoipa::path(post, path = "/v1/fetcher/{id}/cancel", tag = "fetcher", security(("bearer" = ["fetcher:run"])),
    params(("id" = uuid::Uuid, Path),
        ("X-Product-Name" = Option<String>, Header, description = "The product that its connections must be of")),
    responses(AnyRefusal,
        (status = 202, description = "Failed, or processing while a worker stops", body = FetcherJobView),
        (status = 400, description = "The id is no UUID, the header is wrong, or there is a query", body = RefusalView),
        (status = 404, description = "There is no such job", body = RefusalView),
        (status = 409, description = "It has ended otherwise", body = RefusalView),
        (status = 422, description = "It reads a connection of another product", body = RefusalView),
    ))]
pub async fn cancel(
    State(state): State<Arc<ApiState>>,
    Asked(caller): Asked<Authorized>,
    product: Product,
    _: NoQuery,
    Asked(id): Asked<Segment>,
) -> Result<Response, Refusal> {
    let caller = whole_caller(caller, Permission::FetcherRun)?;
    let id: JobId = path_id(&id)?;
    let job = jobs::find(&state.store, caller.organization, id).await?;
    let job = job.filter(|job| job.kind == JobKind::Fetcher).ok_or_else(no_job)?;
    product.check_job(&state, &job).await?;
    let mut tx = state.store.begin().await?;
    let outcome = jobs::request_cancel(&mut tx, caller.organization, id).await?;
    tx.commit().await?;
    match outcome {
        CancelOutcome::Canceled(job) | CancelOutcome::Canceling(job) => {
            let view = FetcherJobView::new(&job, None);
            Ok((Outcome::Accepted.status(), Json(view)).into_response())
        }
        CancelOutcome::Ended(_) => {
            Err(Refusal::new(FetCode::Conflict, "The job has ended.".to_owned()))
        }
        CancelOutcome::NotFound => Err(no_job()),
    }
}

fn no_job() -> Refusal {
    Refusal::new(FetCode::EntityNotFound, "There is no such job.".to_owned())
}

/// The id in a path.
pub fn path_id<T>(segment: &Segment) -> Result<outport_domain::id::Id<T>, Refusal> {
    segment.0.parse().map_err(|_| {
        let message = "The id in the path must be a UUID in its hyphenated form.".to_owned();
        Refusal::new(FetCode::PathParameter, message)
    })
}
