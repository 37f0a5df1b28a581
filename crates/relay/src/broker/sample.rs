//! The two sample queues of the contract, and what is in them: for the demo.

use std::collections::BTreeMap;

use lapin::{
    Channel, ExchangeKind,
    message::Delivery,
    options::{
        BasicAckOptions, BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions,
        QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};
use outport_contract::{
    job_event::{JobEventType, header},
    redaction::redact,
};
use serde::Serialize;

use super::{config::BrokerConfig, session::Session};

/// The sample queues, one for each type of event.
pub struct SampleQueues {
    channel: Channel,
    _session: Session,
}

/// A message as its queue had it.
#[derive(Clone, Debug, Serialize)]
pub struct Received {
    /// The queue.
    pub queue: String,
    /// The routing key it came by.
    #[serde(rename = "routingKey")]
    pub routing_key: String,
    /// Its headers; all of ours are text.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: String,
}

/// `fetcher.job.completed.queue` or `fetcher.job.failed.queue`.
fn queue(event_type: JobEventType) -> String {
    format!("fetcher.{}.queue", event_type.name())
}

impl SampleQueues {
    /// Connects and declares the exchange, the durable queues and their bindings. The error is
    /// safe to show.
    pub async fn declare(config: &BrokerConfig) -> Result<Self, String> {
        let session = Session::connect(config, &std::sync::Arc::default())
            .await
            .map_err(|trouble| redact(&trouble.to_string()))?;
        let channel = session.channel().await.map_err(|trouble| redact(&trouble.to_string()))?;
        let queues = Self { channel, _session: session };
        queues.bind(config).await.map_err(|error| redact(&error.to_string()))?;
        Ok(queues)
    }

    async fn bind(&self, config: &BrokerConfig) -> lapin::Result<()> {
        let exchange = || config.exchange.as_str().into();
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let nothing = FieldTable::default;
        self.channel.exchange_declare(exchange(), ExchangeKind::Topic, durable, nothing()).await?;
        for event_type in JobEventType::ALL {
            let name = queue(event_type);
            let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            self.channel.queue_declare(name.as_str().into(), durable, nothing()).await?;
            let (name, key) = (name.as_str().into(), event_type.name().into());
            let options = QueueBindOptions::default();
            self.channel.queue_bind(name, exchange(), key, options, nothing()).await?;
        }
        Ok(())
    }

    /// Takes the messages of these jobs out of both queues. What is of other jobs goes back when
    /// the value is dropped. The error is safe to show.
    pub async fn take(&self, jobs: &[String]) -> Result<Vec<Received>, String> {
        let mut taken = Vec::new();
        for event_type in JobEventType::ALL {
            let found = self.take_from(&queue(event_type), jobs).await;
            taken.extend(found.map_err(|error| redact(&error.to_string()))?);
        }
        Ok(taken)
    }

    async fn take_from(&self, queue: &str, jobs: &[String]) -> lapin::Result<Vec<Received>> {
        let mut taken = Vec::new();
        let options = BasicGetOptions::default();
        while let Some(got) = self.channel.basic_get(queue.into(), options).await? {
            let received = received(queue, &got.delivery);
            let subject = received.headers.get(header::SUBJECT);
            if subject.is_some_and(|subject| jobs.contains(subject)) {
                got.delivery.ack(BasicAckOptions::default()).await?;
                taken.push(received);
            }
        }
        Ok(taken)
    }
}

fn received(queue: &str, delivery: &Delivery) -> Received {
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        other => format!("{other:?}"),
    };
    let headers = delivery.properties.headers().iter().flat_map(FieldTable::inner);
    Received {
        queue: queue.to_owned(),
        routing_key: delivery.routing_key.to_string(),
        headers: headers.map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: String::from_utf8_lossy(&delivery.data).into_owned(),
    }
}
