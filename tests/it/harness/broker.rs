//! The broker of a world: an exchange of its own on the RabbitMQ of the tests, and a queue that
//! takes everything.

#[expect(dead_code, reason = "the relay's own tests look closer")]
#[path = "../../../crates/relay/tests/it/exchange.rs"]
pub mod exchange;

use exchange::{Exchange, Inbox, server};
use url::Url;

use super::process::Env;

/// Where the broker of the tests listens, on this machine.
pub fn port() -> u16 {
    Url::parse(&server()).expect("a URL").port().unwrap_or(5672)
}

/// The broker's URL by way of another port of this machine.
pub fn url_at(port: u16) -> String {
    let mut url = Url::parse(&server()).expect("a URL");
    url.set_host(Some("127.0.0.1")).expect("a host");
    url.set_port(Some(port)).expect("a port");
    url.to_string()
}

/// The same over TLS, by the name that certificates of the tests are for.
pub fn secure_url(port: u16) -> String {
    let mut url = Url::parse(&url_at(port)).expect("a URL");
    url.set_scheme("amqps").expect("a scheme");
    url.set_host(Some("localhost")).expect("a host");
    url.to_string()
}

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
