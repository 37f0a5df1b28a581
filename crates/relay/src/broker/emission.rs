//! One sending of an event: properties, headers and signatures.

use chrono::{DateTime, Utc};
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};
use outport_contract::{
    job_event::{Attributes, CONTENT_TYPE, JobEventType},
    key_ring::KeyRing,
    signature::sign,
    time::Instant,
};
use outport_store::events::StoredEvent;

use super::config::BrokerConfig;

/// Survives a restart of the broker (AMQP 0-9-1, delivery-mode).
const PERSISTENT: u8 = 2;

/// An event that is to be published.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub event_type: JobEventType,
    pub event: &'a StoredEvent,
}

impl<'a> Outgoing<'a> {
    /// `None` when it is of a type that is not for a broker.
    pub(crate) fn of(event: &'a StoredEvent) -> Option<Self> {
        let event_type = JobEventType::from_name(&event.event_type)?;
        Some(Self { event_type, event })
    }

    /// `ce-id`, which is the message's id too.
    pub(super) fn id(&self) -> String {
        self.event_type.event_id(self.event.job.uuid())
    }

    pub(super) fn routing_key(&self) -> ShortString {
        self.event_type.name().into()
    }

    pub(super) fn body(&self) -> &'a [u8] {
        self.event.body.as_bytes()
    }

    /// The properties of an emission at this instant, signed for it. All headers are long strings.
    pub(super) fn properties(
        &self,
        config: &BrokerConfig,
        keys: &KeyRing,
        now: DateTime<Utc>,
    ) -> BasicProperties {
        let attributes = Attributes {
            event_type: self.event_type,
            job_id: self.event.job.uuid(),
            source: config.source.clone(),
            type_prefix: config.type_prefix.clone(),
            time: Instant(now),
            tenant: config.tenancy.tenant(self.event.organization),
        };
        let seconds = now.timestamp().unsigned_abs();
        let signatures = sign(keys, &attributes, &config.exchange, self.body(), seconds);
        let mut headers = FieldTable::default();
        for (name, value) in attributes.headers().into_iter().chain(signatures) {
            headers.insert(name.into(), AMQPValue::LongString(value.into()));
        }
        BasicProperties::default()
            .with_content_type(CONTENT_TYPE.into())
            .with_delivery_mode(PERSISTENT)
            .with_message_id(self.id().into())
            .with_headers(headers)
    }
}
