//! Who follows the live stream at this process.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Transport {
    transport: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Closed {
    transport: &'static str,
    code: u16,
}

/// What is counted of the live stream. Clones count the same.
#[derive(Clone, Debug)]
pub struct StreamFigures {
    connections: Family<Transport, Gauge>,
    channels: Gauge,
    closed: Family<Closed, Counter>,
}

impl StreamFigures {
    /// Figures that a registry shows.
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let connections = Family::<Transport, Gauge>::default();
        let channels = Gauge::default();
        let closed = Family::<Closed, Counter>::default();
        registry.register("stream_connections", "Live streams", connections.clone());
        registry.register("stream_channels", "Channels followed by them", channels.clone());
        registry.register(
            "stream_closed",
            "Live streams that ended, by WebSocket close code; 1000 when the client went",
            closed.clone(),
        );
        Self { connections, channels, closed }
    }

    /// Counts a connection as long as it is held.
    pub fn connection(&self, transport: &'static str) -> Held {
        Held::new(self.connections.get_or_create(&Transport { transport }).clone())
    }

    /// Counts a followed channel as long as it is held.
    pub fn channel(&self) -> Held {
        Held::new(self.channels.clone())
    }

    /// Counts the end of a connection.
    pub fn closed(&self, transport: &'static str, code: u16) {
        self.closed.get_or_create(&Closed { transport, code }).inc();
    }
}

/// One that a gauge counts until this is dropped.
#[derive(Debug)]
pub struct Held(Gauge);

impl Held {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}
