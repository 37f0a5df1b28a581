//! A queue of one consumer, in a broker that runs.

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{
        BasicPublishOptions, ConfirmSelectOptions, QueueBindOptions, QueueDeclareOptions,
        QueuePurgeOptions,
    },
    types::{AMQPValue, FieldTable},
};
use outport_contract::job_event::JobEventType;

use crate::harness::{
    PATIENCE,
    broker::exchange::{Exchange, Message, server},
    until,
};

/// A queue of one consumer, and the queue of what it refused.
pub struct Queue {
    pub name: String,
    pub dead: String,
    channel: Channel,
    exchange: String,
    _connection: Connection,
}

/// How a producer sends the values of headers.
#[derive(Clone, Copy)]
pub enum Form {
    Texts,
    Bytes,
}

impl Queue {
    pub async fn bound_to(exchange: &Exchange) -> Self {
        let connection = Connection::connect(&server(), ConnectionProperties::default()).await;
        let connection = connection.expect("RabbitMQ");
        let channel = connection.create_channel().await.expect("a channel");
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
        let name = format!("{}.consumer", exchange.name);
        let dead = format!("{name}.dead");
        let queue =
            Self { name, dead, channel, exchange: exchange.name.clone(), _connection: connection };
        queue.declare(&queue.dead, &[]).await;
        // The default exchange leads to the queue that the routing key names.
        let letters =
            [("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", queue.dead.as_str())];
        queue.declare(&queue.name, &letters).await;
        for key in JobEventType::ALL.map(JobEventType::name) {
            let (name, exchange) = (queue.name.as_str().into(), exchange.name.as_str().into());
            let options = QueueBindOptions::default();
            let bound = queue.channel.queue_bind(
                name,
                exchange,
                key.into(),
                options,
                FieldTable::default(),
            );
            bound.await.expect("a binding");
        }
        queue
    }

    async fn declare(&self, name: &str, arguments: &[(&str, &str)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        // What a test that is killed leaves behind goes by itself.
        table.insert("x-expires".into(), AMQPValue::LongInt(600_000));
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(name.into(), durable, table).await.expect("a queue");
    }

    /// Sends a message as it is, forged or not, by its exchange.
    pub async fn send(&self, message: &Message, form: Form) {
        self.send_with(message, form, FieldTable::default()).await;
    }

    /// Likewise, with headers that are of other types, or that it has not.
    pub async fn send_with(&self, message: &Message, form: Form, more: FieldTable) {
        let mut headers = FieldTable::default();
        for (name, value) in &message.headers {
            let value = match form {
                Form::Texts => AMQPValue::LongString(value.as_str().into()),
                Form::Bytes => AMQPValue::ByteArray(value.as_bytes().to_vec().into()),
            };
            headers.insert(name.as_str().into(), value);
        }
        for (name, value) in more.inner() {
            headers.insert(name.clone(), value.clone());
        }
        let properties = BasicProperties::default().with_headers(headers);
        let (exchange, key) = (self.exchange.as_str().into(), message.routing_key.as_str().into());
        let options = BasicPublishOptions::default();
        let sent = self.channel.basic_publish(exchange, key, options, &message.body, properties);
        sent.await.expect("sent").await.expect("confirmed");
    }

    /// Messages that wait in the queue of a name, those apart that somebody has not acknowledged.
    pub async fn waiting(&self, name: &str) -> u32 {
        self.look(name).await.message_count()
    }

    async fn look(&self, name: &str) -> lapin::Queue {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.channel.queue_declare(name.into(), passive, FieldTable::default()).await;
        queue.expect("the queue")
    }

    pub async fn has(&self, name: &str, count: u32) {
        let what = format!("{count} messages wait in {name}");
        until(&what, PATIENCE, async || (self.waiting(name).await == count).then_some(())).await;
    }

    /// Waits until nobody takes messages from it, and throws away what is left: how many were.
    pub async fn emptied(&self) -> u32 {
        until("the broker sees it go", PATIENCE, async || {
            (self.look(&self.name).await.consumer_count() == 0).then_some(())
        })
        .await;
        let left =
            self.channel.queue_purge(self.name.as_str().into(), QueuePurgeOptions::default());
        left.await.expect("purged")
    }
}
