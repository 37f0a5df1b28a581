//! The handler that publishes, under a test: its configuration, its claims, its verdicts.

use std::{sync::Arc, time::Duration};

use outport_contract::{
    job_event::{DEFAULT_TYPE_PREFIX, JobEventType},
    key::{EXTERNAL_HMAC, MasterKey},
    key_ring::KeyRing,
};
use outport_domain::id::{DeliveryId, EventId, JobId, OrganizationId};
use outport_relay::{
    BatchHandler as _, Verdict,
    broker::{BrokerConfig, BrokerUrl, Counts, Figures, Tenancy, Topology, Unroutable},
    handlers::PublishJobEvent,
};
use outport_store::{
    deliveries::{DeliveryClaim, DeliveryFence},
    events::StoredEvent,
};
use uuid::Uuid;

use crate::{exchange::Exchange, world::PATIENCE};

/// A master key of tests.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The ring of external keys.
pub fn keys() -> KeyRing {
    KeyRing::new(1, MasterKey::parse(KEY).expect("a key").derive(EXTERNAL_HMAC))
}

/// A publisher's configuration for an exchange.
pub fn config(exchange: &Exchange) -> BrokerConfig {
    config_at(exchange, &exchange.server)
}

/// The same over another address of the broker.
pub fn config_at(exchange: &Exchange, url: &str) -> BrokerConfig {
    BrokerConfig {
        url: BrokerUrl::parse(url).expect("a URL"),
        authorities: None,
        exchange: exchange.name.clone(),
        topology: Topology::Declare,
        unroutable: Unroutable::Retry,
        tenancy: Tenancy::Single,
        source: "//outport/worker".to_owned(),
        type_prefix: DEFAULT_TYPE_PREFIX.to_owned(),
        confirm_time: PATIENCE,
    }
}

/// A claim of a fresh event with a body of this job.
pub fn claim(event_type: JobEventType) -> DeliveryClaim {
    let job = JobId::new();
    let status = event_type.status();
    claim_of(event_type, job, format!(r#"{{"jobId":"{job}","status":"{status}","metadata":{{}}}}"#))
}

/// A claim of a fresh event with this body.
pub fn claim_of(event_type: JobEventType, job: JobId, body: String) -> DeliveryClaim {
    DeliveryClaim {
        fence: DeliveryFence { delivery: DeliveryId::new(), run: 1, lease_token: Uuid::new_v4() },
        event: StoredEvent {
            id: EventId::new(),
            event_type: event_type.name().to_owned(),
            job,
            organization: OrganizationId::new(),
            body,
            created_at: chrono::Utc::now(),
        },
        handler: PublishJobEvent::NAME.to_owned(),
        target: String::new(),
        failures: 0,
    }
}

/// The handler under a test, and its figures.
pub struct Publishing {
    pub handler: PublishJobEvent,
    figures: Arc<Figures>,
}

impl Publishing {
    pub fn new(config: BrokerConfig) -> Self {
        let figures = Arc::new(Figures::default());
        Self { handler: PublishJobEvent::new(config, keys(), Arc::clone(&figures)), figures }
    }

    /// One that has connected.
    pub async fn ready(config: BrokerConfig) -> Self {
        let publishing = Self::new(config);
        publishing.becomes_ready().await;
        publishing
    }

    /// Asks as the relay does, until there is a connection.
    pub async fn becomes_ready(&self) {
        let asking = async {
            while !self.handler.is_ready() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.expect("a connection in time");
    }

    /// Publishes a window: of each delivery `None` when it is done, else why not and the ceiling
    /// of its pause.
    pub async fn window(&self, claims: &[DeliveryClaim]) -> Vec<Option<(String, Duration)>> {
        let verdicts = self.handler.handle(claims).await;
        assert_eq!(verdicts.len(), claims.len());
        let short = |verdict| match verdict {
            Verdict::Done => None,
            Verdict::DoneAs(receipt) => Some((receipt.to_owned(), Duration::ZERO)),
            Verdict::Retry { error, most } => Some((error.message().to_owned(), most)),
        };
        verdicts.into_iter().map(short).collect()
    }

    pub fn counts(&self) -> Counts {
        self.figures.counts()
    }
}
