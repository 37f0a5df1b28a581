//! What every answer has, whatever the handler: a request id, security headers, a count, and a
//! problem instead of a torn connection when a handler panics.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Uri,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
            X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
        },
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::FutureExt as _;
use tracing::Instrument as _;
use uuid::Uuid;

use super::{
    ApiState,
    fetcher::{Refusal, is_facade_path},
    problem::{Problem, ProblemCode},
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Wraps every route and the fallbacks.
pub async fn wrap(State(state): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    // The template, never the path: a path may hold a link's token.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "unmatched".to_owned(), |path| path.as_str().to_owned());
    let form = Form::of(&state, request.uri());
    let method = request.method().clone();
    // Of the highest level, so that what a request logs has its id whatever the log is limited to.
    let span = tracing::error_span!("request", %method, route, id);
    let served = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone()).await;
    let mut response = served.unwrap_or_else(|_| {
        let _in_span = span.enter();
        tracing::error!("a handler panicked");
        let said = "Something went wrong in this service.";
        form.answer(Problem::new(ProblemCode::Internal, said))
    });
    let status = response.status();
    state.metrics.request(&method, &route, status.as_u16(), started.elapsed());
    span.in_scope(|| tracing::debug!(status = status.as_u16(), "answered"));
    let https = state.public_url.scheme() == "https";
    finish(response.headers_mut(), &id, https);
    response
}

/// For paths that nothing is at.
pub async fn not_found(State(state): State<Arc<ApiState>>, uri: Uri) -> Response {
    Form::of(&state, &uri).answer(Problem::not_found())
}

/// For paths that exist, with another method. The router adds `Allow`.
pub async fn method_not_allowed(State(state): State<Arc<ApiState>>, uri: Uri) -> Response {
    let said = "The method is not offered at this address.";
    Form::of(&state, &uri).answer(Problem::new(ProblemCode::MethodNotAllowed, said))
}

/// The form of problems at an address.
#[derive(Clone, Copy)]
enum Form {
    Own,
    Facade,
}

impl Form {
    fn of(state: &ApiState, uri: &Uri) -> Self {
        if state.facade.is_some() && is_facade_path(uri.path()) { Self::Facade } else { Self::Own }
    }

    fn answer(self, problem: Problem) -> Response {
        match self {
            Self::Own => problem.into_response(),
            Self::Facade => Refusal::from(problem).into_response(),
        }
    }
}

/// The caller's own id when it is a modest one, else a fresh one.
fn request_id(headers: &HeaderMap) -> String {
    let modest = |text: &&str| {
        (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(modest)
        .map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

fn finish(headers: &mut HeaderMap, id: &str, https: bool) {
    let mut default = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    default(X_CONTENT_TYPE_OPTIONS, "nosniff");
    default(X_FRAME_OPTIONS, "DENY");
    default(REFERRER_POLICY, "no-referrer");
    default(CACHE_CONTROL, "no-store");
    default(CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
    default(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if https {
        default(STRICT_TRANSPORT_SECURITY, "max-age=31536000");
    }
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
}
