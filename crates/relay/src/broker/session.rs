//! One connection to the broker, and its channels.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::StreamExt as _;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    DefaultConnectionBuilder, ErrorKind, Event, ExchangeKind,
    options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions},
    protocol::AMQPErrorKind,
    tcp::OwnedTLSConfig,
    types::FieldTable,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    check::CertificateFault,
    config::{BrokerConfig, Topology},
    emission::Outgoing,
    figures::Figures,
};

/// Time limit of connecting, and of the exchange.
pub(super) const CONNECT: Duration = Duration::from_secs(10);
/// AMQP 0-9-1: not allowed, and not there. Both tell of the exchange, not of a message.
const DESTINATION: [u16; 2] = [403, 404];

/// One connection. Dropped, it closes.
pub(super) struct Session {
    connection: Connection,
    /// Channels in confirm mode, all of whose confirms are there.
    idle: Mutex<Vec<Channel>>,
    /// Messages are out whose confirms nobody waits for any more.
    stale: AtomicBool,
    _events: AbortOnDropHandle<()>,
}

/// Why a message was not confirmed.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// The broker closed the channel for what was sent over it.
    Channel(String),
    /// The exchange is not there, or not for us.
    Destination(String),
    /// The connection is gone.
    Connection(String),
    /// There is none, because of the broker's certificate.
    Certificate(CertificateFault),
    /// No confirm came in time.
    Late,
    /// The channel is not in confirm mode, so nothing is known.
    NotRequested,
    /// A message came back that the window did not send.
    Foreign,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(error) => write!(f, "the broker closed the channel: {error}"),
            Self::Destination(error) => write!(f, "the broker does not take messages: {error}"),
            Self::Connection(error) => write!(f, "the connection to the broker failed: {error}"),
            Self::Certificate(fault) => write!(f, "the broker's certificate {fault}"),
            Self::Late => f.write_str("the broker did not confirm in time"),
            Self::NotRequested => f.write_str("the channel is not in confirm mode"),
            Self::Foreign => f.write_str("the broker returned a message that was not sent"),
        }
    }
}

impl From<lapin::Error> for Trouble {
    fn from(error: lapin::Error) -> Self {
        if let Some(fault) = CertificateFault::of(&error) {
            return Self::Certificate(fault);
        }
        let text = error.to_string();
        match error.kind() {
            ErrorKind::ProtocolError(error) if DESTINATION.contains(&error.get_id()) => {
                Self::Destination(text)
            }
            ErrorKind::ProtocolError(error) if matches!(error.kind(), AMQPErrorKind::Soft(_)) => {
                Self::Channel(text)
            }
            ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidChannel(_) => {
                Self::Channel(text)
            }
            _ => Self::Connection(text),
        }
    }
}

impl Session {
    /// Connects, and makes or looks for the exchange.
    pub(super) async fn connect(
        config: &BrokerConfig,
        figures: &Arc<Figures>,
    ) -> Result<Self, Trouble> {
        let connecting = async {
            let session = Self::dial(config, Arc::clone(figures)).await?;
            let channel = session.channel().await?;
            declare(&channel, config).await?;
            session.give_back(channel);
            Ok(session)
        };
        let late = || Trouble::Connection("it did not answer in time".to_owned());
        tokio::time::timeout(CONNECT, connecting).await.map_err(|_| late())?
    }

    /// Connects, without a time limit.
    pub(super) async fn dial(config: &BrokerConfig, figures: Arc<Figures>) -> lapin::Result<Self> {
        let mut uri = config.url.0.clone();
        uri.query.connection_timeout.get_or_insert(CONNECT.as_millis() as u64);
        // Recovery stays off: what was in flight is ours to judge.
        let properties = ConnectionProperties::default().with_connection_name("outport".into());
        let tls = OwnedTLSConfig { identity: None, cert_chain: config.authorities.clone() };
        let connection = DefaultConnectionBuilder::new()?
            .with_uri(uri)
            .with_properties(properties)
            .with_tls_config(tls)
            .connect()
            .await?;
        let events = listen(&connection, figures);
        Ok(Self {
            connection,
            idle: Mutex::default(),
            stale: AtomicBool::new(false),
            _events: events,
        })
    }

    /// A channel in confirm mode that nobody else uses.
    pub(super) async fn channel(&self) -> Result<Channel, Trouble> {
        let idle = self.idle().pop();
        if let Some(channel) = idle.filter(|channel| channel.status().connected()) {
            return Ok(channel);
        }
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Takes back a channel all of whose confirms are there.
    pub(super) fn give_back(&self, channel: Channel) {
        self.idle().push(channel);
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Channel>> {
        // A list of channels is whole whatever panicked.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one message and waits for its confirm.
    pub(super) async fn send(
        &self,
        channel: &Channel,
        exchange: &str,
        message: Outgoing<'_>,
        properties: BasicProperties,
        limit: Duration,
    ) -> Result<Confirmation, Trouble> {
        let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sending = async {
            let (exchange, routing_key) = (exchange.into(), message.routing_key());
            let confirm = channel
                .basic_publish(exchange, routing_key, mandatory, message.body(), properties)
                .await?;
            confirm.await
        };
        match tokio::time::timeout(limit, sending).await {
            Err(_) => Err(Trouble::Late),
            Ok(Ok(Confirmation::NotRequested)) => Err(Trouble::NotRequested),
            Ok(Ok(confirmation)) => Ok(confirmation),
            Ok(Err(error)) if !self.is_up() => Err(Trouble::Connection(error.to_string())),
            Ok(Err(error)) => Err(error.into()),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.connection.status().connected()
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// To be replaced when the broker takes messages again.
    pub(super) fn make_stale(&self) {
        self.stale.store(true, Relaxed);
    }

    pub(super) fn is_stale(&self) -> bool {
        self.stale.load(Relaxed)
    }
}

/// Makes or looks for the exchange.
pub(super) async fn declare(channel: &Channel, config: &BrokerConfig) -> lapin::Result<()> {
    let options = ExchangeDeclareOptions {
        durable: true,
        passive: config.topology == Topology::Check,
        ..ExchangeDeclareOptions::default()
    };
    let exchange = config.exchange.as_str().into();
    channel.exchange_declare(exchange, ExchangeKind::Topic, options, FieldTable::default()).await
}

/// Tells of alarms as they come and go.
fn listen(connection: &Connection, figures: Arc<Figures>) -> AbortOnDropHandle<()> {
    let mut events = connection.events_listener();
    AbortOnDropHandle::new(tokio::spawn(async move {
        while let Some(event) = events.next().await {
            match event {
                Event::ConnectionBlocked(reason) => {
                    figures.blocked(true);
                    tracing::warn!(reason, "the broker blocks publishers: events wait");
                }
                Event::ConnectionUnblocked => {
                    figures.blocked(false);
                    tracing::info!("the broker takes messages again");
                }
                _ => {}
            }
        }
    }))
}
