//! The REST API over HTTP: JSON in and out, problems by RFC 9457, described by `OpenAPI` 3.1.
//!
//! **Words.** A *view* is the JSON form of something. A *problem* is an answer that is no
//! success. A *link* is the URL in a mail, `/d/{token}`.
//!
//! **Invariants.** Every answer about an organization's things is for its callers alone;
//! what belongs to another tenant, or is out of a restricted caller's reach, is 404. A request
//! that breaks a rule is told all it breaks and leaves no row. One file knows status codes:
//! [`problem`]. Paths and queries are not logged, because a link's token is a capability.
//!
//! **Absent on purpose.** Running exports: the API inserts a row. What it reads of a source is
//! what proves that an export would fail.

pub mod channels;
mod connections;
mod console;
mod deliveries;
mod downloads;
mod envelope;
mod export_request;
mod export_view;
mod exports;
mod extract;
pub mod fetcher;
mod files;
mod foresight;
pub mod health;
mod links;
pub mod metrics;
mod pages;
pub mod problem;
mod range;
mod reference;
mod resources;
mod revocations;
pub mod stream;
mod tokens;

use std::{collections::BTreeMap, sync::Arc};

use axum::Router;
use outport_contract::{key_ring::KeyRing, link::LinkKeys};
use outport_domain::{limits::Limits, spec::Catalogue};
use outport_objects::ObjectStore;
use outport_pipeline::foresight::Foresight;
use outport_source::Source;
use outport_store::{Store, submit::Submitter};
use url::Url;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use self::{fetcher::Facade, health::Readiness, metrics::Metrics, stream::Streams};
use crate::auth::Authenticator;

/// All that the API works with.
pub struct ApiState {
    /// Our own state.
    pub store: Store,
    /// Where new jobs go.
    pub submitter: Submitter,
    /// Where finished files are.
    pub objects: Arc<dyn ObjectStore>,
    /// What may be exported.
    pub catalogue: Arc<Catalogue>,
    /// The configured databases: whether they answer, and what is bound to fail.
    pub sources: BTreeMap<String, Arc<dyn Source>>,
    /// The Fetcher facade, where there is one.
    pub facade: Option<Arc<Facade>>,
    /// Whether an export is bound to fail.
    pub foresight: Foresight,
    /// Turns credentials into callers.
    pub authenticator: Authenticator,
    /// Verifies links.
    pub link_keys: Arc<LinkKeys>,
    /// Opens sealed files.
    pub storage_keys: KeyRing,
    /// What people and clients reach this service by.
    pub public_url: Url,
    /// The bounds.
    pub limits: Arc<Limits>,
    /// The application of jobs in the live stream where their resource names none.
    pub application: String,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The live stream.
    pub stream: Arc<Streams>,
    /// Readiness of what is not listed here, such as mail.
    pub readiness: Readiness,
    /// Whether `X-Forwarded-For` is written by a proxy of ours; else it is not believed.
    pub behind_proxy: bool,
}

impl ApiState {
    /// The public URL of a path that starts with `/`.
    pub fn public(&self, path: &str) -> String {
        format!("{}{path}", self.public_url.as_str().trim_end_matches('/'))
    }
}

/// The API's router. Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, so
/// that downloads are audited with the client's address.
pub fn router(state: Arc<ApiState>) -> Router {
    let described = if state.facade.is_some() { described() } else { without_facade() };
    let (router, document) = described.split_for_parts();
    let reference = Arc::new(reference::Reference::new(&document));
    let pages = Arc::new(pages::Pages::load());
    let console = Arc::new(console::Console::load());
    let router = router
        .layer(axum::Extension(reference))
        .layer(axum::Extension(pages))
        .layer(axum::Extension(console));
    wrapped(router, state)
}

/// What a process without the API still answers: `/livez`, `/readyz` and `/metrics`.
pub fn health_router(state: Arc<ApiState>) -> Router {
    wrapped(operational().into(), state)
}

fn wrapped(router: Router<Arc<ApiState>>, state: Arc<ApiState>) -> Router {
    router
        .fallback(envelope::not_found)
        .method_not_allowed_fallback(envelope::method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&state), envelope::wrap))
        .with_state(state)
}

/// The `OpenAPI` 3.1 document of all routes.
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().into_openapi()
}

fn described() -> OpenApiRouter<Arc<ApiState>> {
    without_facade()
        .routes(routes!(fetcher::create))
        .routes(routes!(fetcher::get))
        .routes(routes!(fetcher::cancel))
        .routes(routes!(connections::create, connections::list))
        .routes(routes!(connections::validate_schema))
        .routes(routes!(connections::get, connections::update, connections::delete))
        .routes(routes!(connections::test))
        .routes(routes!(connections::schema))
}

fn without_facade() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(exports::create, exports::list))
        .routes(routes!(exports::get, exports::delete))
        .routes(routes!(exports::cancel))
        .routes(routes!(exports::rerun))
        .routes(routes!(files::file))
        .routes(routes!(files::part))
        .routes(routes!(downloads::downloads))
        .routes(routes!(resources::list))
        .routes(routes!(resources::get))
        .routes(routes!(deliveries::list))
        .routes(routes!(deliveries::get))
        .routes(routes!(deliveries::retry))
        .routes(routes!(deliveries::backfill))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(revocations::create))
        .routes(routes!(channels::append::append))
        .routes(routes!(channels::replay::events))
        .routes(routes!(channels::snapshot::snapshot))
        .routes(routes!(stream::sse::follow))
        .routes(routes!(stream::socket::socket))
        .routes(routes!(stream::tickets::create))
        .routes(routes!(links::page))
        .routes(routes!(links::file))
        .routes(routes!(links::part))
        .routes(routes!(links::rerun))
        .routes(routes!(console::page))
        .routes(routes!(console::file))
        .routes(routes!(reference::document))
        .routes(routes!(reference::page))
        .routes(routes!(reference::errors))
        .merge(operational())
}

fn operational() -> OpenApiRouter<Arc<ApiState>> {
    OpenApiRouter::new()
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(metrics::scrape))
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Outport",
        description = "Exports of database rows into files: requested, followed, downloaded.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    modifiers(&BearerScheme),
    components(schemas(problem::ProblemView, problem::FieldErrorView)),
    tags(
        (name = "exports", description = "Request exports, follow them, download their files"),
        (name = "resources", description = "What may be exported"),
        (name = "deliveries", description = "The duties of handlers towards events"),
        (name = "events", description = "The live stream: follow it, replay it, append to it"),
        (name = "tokens", description = "API tokens of one's organization"),
        (name = "fetcher", description = "Jobs for clients of a Fetcher"),
        (name = "connections", description = "The databases that an organization stores"),
        (name = "links", description = "The links in mails"),
        (name = "operation", description = "For those who run the service"),
    )
)]
struct Described;

struct BearerScheme;

impl Modify for BearerScheme {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API token (`opt_…`) or a JWT of the surrounding application."))
            .build();
        document
            .components
            .get_or_insert_default()
            .add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}
