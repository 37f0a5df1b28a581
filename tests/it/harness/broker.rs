//! The broker of a world: an exchange of its own on the RabbitMQ of the tests, and a queue that
//! takes everything.

#[expect(dead_code, reason = "the relay's own tests look closer")]
#[path = "../../../crates/relay/tests/it/exchange.rs"]
pub mod exchange;

use exchange::{Exchange, Inbox};

use super::process::Env;

/// What a world has of a broker.
pub struct Broker {
    /// The exchange.
    pub exchange: Exchange,
    /// Takes every message.
    pub inbox: Inbox,
}

impl Broker {
    /// An exchange and its queue.
    pub async fn create() -> Self {
        let exchange = Exchange::declared().await;
        let inbox = exchange.bind(&["#"]).await;
        Self { exchange, inbox }
    }

    /// How a process is told to use it.
    pub fn env(&self) -> Env {
        [
            ("OUTPORT_BROKER_URL", self.exchange.server.as_str()),
            ("RABBITMQ_JOB_EVENTS_EXCHANGE", &self.exchange.name),
            ("STREAMING_ENABLED", "true"),
            ("STREAMING_CLOUDEVENTS_SOURCE", "//outport/worker"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}
