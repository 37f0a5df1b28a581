//! An exchange of a test's own, on the RabbitMQ that `OUTPORT_TEST_RABBITMQ` names, and what
//! comes out of it.

use std::collections::BTreeMap;

use lapin::{
    Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
        QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};
use uuid::Uuid;

/// The broker of the tests.
pub fn server() -> String {
    std::env::var("OUTPORT_TEST_RABBITMQ")
        .unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:5672".to_owned())
}

/// An exchange of a test's own; it goes with the value.
pub struct Exchange {
    pub name: String,
    pub server: String,
    connection: Connection,
    channel: Channel,
}

/// A message as a consumer gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub exchange: String,
    pub routing_key: String,
    pub content_type: Option<String>,
    pub delivery_mode: Option<u8>,
    pub id: String,
    /// All of them were long strings.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Message {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }
}

impl Exchange {
    /// A name that nobody has; nothing is declared yet.
    pub async fn named() -> Self {
        Self::on(&server()).await
    }

    /// A durable topic exchange.
    pub async fn declared() -> Self {
        let exchange = Self::named().await;
        exchange.declare().await;
        exchange
    }

    /// The same on another broker.
    pub async fn on(server: &str) -> Self {
        let connection = Connection::connect(server, ConnectionProperties::default()).await;
        let connection = connection.unwrap_or_else(|error| {
            panic!("no RabbitMQ at {server} ({error}); `tests/run` says how to get one")
        });
        let channel = connection.create_channel().await.expect("a channel");
        let name = format!("outport.test.{}", Uuid::now_v7().simple());
        Self { name, server: server.to_owned(), connection, channel }
    }

    pub async fn declare(&self) {
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        self.channel
            .exchange_declare(
                self.name.as_str().into(),
                ExchangeKind::Topic,
                durable,
                FieldTable::default(),
            )
            .await
            .expect("an exchange");
    }

    pub async fn delete(&self) {
        let options = ExchangeDeleteOptions::default();
        self.channel.exchange_delete(self.name.as_str().into(), options).await.expect("deleted");
    }

    /// A durable queue for these routing keys.
    pub async fn bind(&self, keys: &[&str]) -> Inbox {
        let queue = format!("{}.{}", self.name, keys.join("."));
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let mut arguments = FieldTable::default();
        // What a test that is killed leaves behind goes by itself.
        arguments.insert("x-expires".into(), AMQPValue::LongInt(3_600_000));
        self.channel
            .queue_declare(queue.as_str().into(), durable, arguments)
            .await
            .expect("a queue");
        for key in keys {
            self.channel
                .queue_bind(
                    queue.as_str().into(),
                    self.name.as_str().into(),
                    (*key).into(),
                    QueueBindOptions::default(),
                    FieldTable::default(),
                )
                .await
                .expect("a binding");
        }
        let channel = self.connection.create_channel().await.expect("a channel");
        Inbox { queue, channel, _connection: None }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // A destructor cannot wait on the runtime it runs in. The broker of a test may be gone.
        let deleting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let connected = Connection::connect(&server, ConnectionProperties::default());
                let Ok(connection) = connected.await else { return };
                let Ok(channel) = connection.create_channel().await else { return };
                let options = ExchangeDeleteOptions::default();
                channel.exchange_delete(name.as_str().into(), options).await.ok();
                connection.close(200, "OK".into()).await.ok();
            });
        });
        deleting.join().expect("the thread ends");
    }
}

/// A queue of a test.
pub struct Inbox {
    queue: String,
    channel: Channel,
    _connection: Option<Connection>,
}

impl Inbox {
    /// The same queue over a connection of its own.
    pub async fn again(&self, server: &str) -> Self {
        let connection = Connection::connect(server, ConnectionProperties::default()).await;
        let connection = connection.expect("a connection");
        let channel = connection.create_channel().await.expect("a channel");
        Self { queue: self.queue.clone(), channel, _connection: Some(connection) }
    }

    /// Takes everything that is there.
    pub async fn take(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        let options = BasicGetOptions { no_ack: true };
        while let Some(got) =
            self.channel.basic_get(self.queue.as_str().into(), options).await.expect("an answer")
        {
            messages.push(message(got.delivery));
        }
        messages
    }

    /// The one message that is there.
    pub async fn only(&self) -> Message {
        let mut messages = self.take().await;
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages.remove(0)
    }
}

fn message(delivery: lapin::message::Delivery) -> Message {
    let properties = &delivery.properties;
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => String::from_utf8(text.as_bytes().to_vec()).expect("UTF-8"),
        other => panic!("no long string: {other:?}"),
    };
    let headers = properties.headers().as_ref().expect("headers");
    Message {
        exchange: delivery.exchange.to_string(),
        routing_key: delivery.routing_key.to_string(),
        content_type: properties.content_type().as_ref().map(ToString::to_string),
        delivery_mode: *properties.delivery_mode(),
        id: properties.message_id().as_ref().expect("an id").to_string(),
        headers: headers
            .inner()
            .iter()
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect(),
        body: delivery.data,
    }
}
