//! Whether the process lives, and whether it can do its work.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use futures::{
    FutureExt as _, future::BoxFuture, stream::FuturesUnordered, stream::StreamExt as _,
};
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;

use super::{ApiState, problem::Outcome};

/// Time that one check has.
const CHECK_TIME: Duration = Duration::from_secs(2);
/// How long an answer is given again.
const FRESH: Duration = Duration::from_secs(1);

/// A check of something that the API itself does not use, such as mail. Its error must be safe
/// to show to anybody.
#[derive(Clone)]
pub struct Check {
    name: String,
    probe: Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
}

impl Check {
    /// A check by name.
    pub fn new<F>(name: &str, probe: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { name: name.to_owned(), probe: Arc::new(move || probe().boxed()) }
    }
}

/// The checks besides the API's own, and the last answer.
#[derive(Default)]
pub struct Readiness {
    more: Vec<Check>,
    last: Mutex<Option<(Instant, ReadyView)>>,
}

impl Readiness {
    /// With more checks than the API's own.
    pub fn new(more: Vec<Check>) -> Self {
        Self { more, last: Mutex::default() }
    }
}

/// Whether the service can do its work.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = Readiness)]
pub struct ReadyView {
    /// `ok` or `failing`.
    status: &'static str,
    /// Each dependency by name: `ok`, or what is wrong, without addresses.
    checks: BTreeMap<String, String>,
}

/// The process answers.
#[utoipa::path(get, path = "/livez", tag = "operation",
    responses((status = 200, description = "It lives", content_type = "text/plain")))]
pub async fn livez() -> &'static str {
    "ok\n"
}

/// Whether each dependency answers.
#[utoipa::path(get, path = "/readyz", tag = "operation",
    responses(
        (status = 200, description = "All answer", body = ReadyView),
        (status = 503, description = "At least one does not", body = ReadyView),
    ))]
pub async fn readyz(State(state): State<Arc<ApiState>>) -> Response {
    // Held over the checks, so that a crowd of probes makes one round of them.
    let mut last = state.readiness.last.lock().await;
    let view = match &*last {
        Some((at, view)) if at.elapsed() < FRESH => view.clone(),
        _ => {
            let view = check_all(&state).await;
            *last = Some((Instant::now(), view.clone()));
            view
        }
    };
    let outcome = if view.status == "ok" { Outcome::Ok } else { Outcome::NotReady };
    (outcome.status(), Json(view)).into_response()
}

async fn check_all(state: &Arc<ApiState>) -> ReadyView {
    let rounds: FuturesUnordered<_> = checks(state)
        .into_iter()
        .map(|(name, probe)| async move {
            let verdict = tokio::time::timeout(CHECK_TIME, probe).await;
            let word = match verdict {
                Ok(Ok(())) => "ok".to_owned(),
                Ok(Err(word)) => word,
                Err(_) => "did not answer in time".to_owned(),
            };
            (name, word)
        })
        .collect();
    let checks: BTreeMap<String, String> = rounds.collect().await;
    let ok = checks.values().all(|word| word == "ok");
    ReadyView { status: if ok { "ok" } else { "failing" }, checks }
}

type Probe<'a> = BoxFuture<'a, Result<(), String>>;

fn checks(state: &Arc<ApiState>) -> Vec<(String, Probe<'_>)> {
    let store = async {
        match state.store.is_migrated().await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the state database needs 'outport migrate'".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    let objects = async { state.objects.check().await.map_err(|error| error.to_string()) };
    let mut checks: Vec<(String, Probe<'_>)> =
        vec![("store".to_owned(), store.boxed()), ("objects".to_owned(), objects.boxed())];
    for (name, source) in &state.sources {
        let probe = async { source.check().await.map_err(|error| error.to_string()) };
        checks.push((format!("source:{name}"), probe.boxed()));
    }
    for check in &state.readiness.more {
        checks.push((check.name.clone(), (check.probe)()));
    }
    checks
}
