//! What is counted, in a registry of its own, read at `/metrics` in the `OpenMetrics` text form.

mod broker;
mod downloads;
mod notifier;
mod stream;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use axum::{
    extract::State,
    http::{Method, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use outport_contract::redaction::told;
use outport_relay::{broker::Figures, handlers::PublishJobEvent, notifier::Figures as Broadcast};
use outport_store::{
    deliveries,
    jobs::{self, Gauges},
};
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::sync::Mutex;

pub use self::{
    downloads::DownloadFigures,
    stream::{Held, StreamFigures},
};
use super::{ApiState, problem::Problem};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Served {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Deliveries {
    handler: String,
    status: &'static str,
}

type Seconds = Gauge<f64, AtomicU64>;

/// Counters of this process and gauges of the shared state.
pub struct Metrics {
    registry: Registry,
    requests: Family<Served, Counter>,
    latency: Family<Route, Histogram, fn() -> Histogram>,
    store_up: Gauge,
    queued: Gauge,
    running: Gauge,
    oldest_queued: Seconds,
    deliveries: Family<Deliveries, Gauge>,
    oldest_delivery: Seconds,
    oldest_unpublished: Seconds,
    /// Of downloads.
    pub downloads: DownloadFigures,
    /// Of the live stream.
    pub stream: StreamFigures,
    /// One scrape at a time, so that none reads another's half-set gauges.
    scraping: Mutex<()>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// In a registry of their own.
    pub fn new() -> Self {
        Self::with(Registry::with_prefix("outport"))
    }

    /// The same, with what the publisher and the notifier of this process have done.
    pub fn of_process(broker: Arc<Figures>, notifier: Arc<Broadcast>) -> Self {
        let mut registry = Registry::with_prefix("outport");
        registry.register_collector(Box::new(broker::JobEvents(broker)));
        registry.register_collector(Box::new(notifier::Broadcasts(notifier)));
        Self::with(registry)
    }

    /// Adds the API's own to a registry that may hold others already.
    pub fn with(mut registry: Registry) -> Self {
        let buckets = || Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0]);
        let requests = Family::<Served, Counter>::default();
        let latency = Family::new_with_constructor(buckets as fn() -> Histogram);
        let (store_up, queued, running) = (Gauge::default(), Gauge::default(), Gauge::default());
        let (oldest_queued, oldest_delivery) = (Seconds::default(), Seconds::default());
        let oldest_unpublished = Seconds::default();
        let deliveries = Family::<Deliveries, Gauge>::default();
        registry.register("http_requests", "Requests answered", requests.clone());
        registry.register(
            "http_request_seconds",
            "Time until the answer's head, by route",
            latency.clone(),
        );
        registry.register("store_up", "Whether the state database answered", store_up.clone());
        registry.register("jobs_queued", "Jobs that wait", queued.clone());
        registry.register("jobs_running", "Jobs that run", running.clone());
        registry.register(
            "jobs_oldest_queued_seconds",
            "Age of the oldest due job, 0 when none waits",
            oldest_queued.clone(),
        );
        registry.register("deliveries", "Deliveries by handler and status", deliveries.clone());
        registry.register(
            "deliveries_oldest_seconds",
            "Age of the oldest delivery that is not done, 0 when all are",
            oldest_delivery.clone(),
        );
        registry.register(
            "job_events_oldest_unpublished_seconds",
            "Age of the oldest job event that the broker has not confirmed, 0 when it has all",
            oldest_unpublished.clone(),
        );
        let downloads = DownloadFigures::registered(&mut registry);
        let stream = StreamFigures::registered(&mut registry);
        Self {
            registry,
            downloads,
            stream,
            requests,
            latency,
            store_up,
            queued,
            running,
            oldest_queued,
            deliveries,
            oldest_delivery,
            oldest_unpublished,
            scraping: Mutex::default(),
        }
    }

    /// Counts one answered request under its route's template.
    pub fn request(&self, method: &Method, route: &str, status: u16, took: Duration) {
        let served = Served { method: method_name(method), route: route.to_owned(), status };
        self.requests.get_or_create(&served).inc();
        self.latency.get_or_create(&Route { route: route.to_owned() }).observe(took.as_secs_f64());
    }

    fn set(&self, gauges: Option<Gauges>) {
        self.store_up.set(i64::from(gauges.is_some()));
        let gauges = gauges.unwrap_or_default();
        let seconds = |age: Option<Duration>| age.map_or(0.0, |age| age.as_secs_f64());
        self.queued.set(gauges.queued as i64);
        self.running.set(gauges.running as i64);
        self.oldest_queued.set(seconds(gauges.oldest_queued));
        self.oldest_delivery.set(seconds(gauges.oldest_delivery));
        self.deliveries.clear();
        for (handler, status, count) in gauges.deliveries {
            self.deliveries.get_or_create(&Deliveries { handler, status }).set(count as i64);
        }
    }

    fn set_unpublished(&self, since: Option<DateTime<Utc>>) {
        let age = since.and_then(|since| (Utc::now() - since).to_std().ok());
        self.oldest_unpublished.set(age.unwrap_or_default().as_secs_f64());
    }
}

/// Methods are outsiders' text; only known ones become labels.
fn method_name(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "OTHER",
    }
}

/// Everything counted, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operation",
    responses((status = 200, description = "OpenMetrics text", content_type = "text/plain")))]
pub async fn scrape(State(state): State<Arc<ApiState>>) -> Result<Response, Problem> {
    let metrics = &state.metrics;
    let _one = metrics.scraping.lock().await;
    let gauges = jobs::gauges(&state.store).await;
    if let Err(error) = &gauges {
        tracing::warn!(error = told(error), "the gauges cannot be read");
    }
    metrics.set(gauges.ok());
    match deliveries::oldest_unfinished(&state.store, PublishJobEvent::NAME).await {
        Ok(since) => metrics.set_unpublished(since),
        Err(error) => {
            tracing::warn!(error = told(&error), "the oldest job event cannot be read");
        }
    }
    let mut page = String::new();
    text::encode(&mut page, &metrics.registry).map_err(|error| Problem::internal(&error))?;
    let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, media_type)], page).into_response())
}

/// One metric without labels, as it is at this scrape.
fn put(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}
