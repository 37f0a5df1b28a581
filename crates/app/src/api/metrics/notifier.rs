//! What the live stream's notifier has done in this process, and whom it serves.

use std::{fmt, sync::Arc};

use outport_relay::notifier::Figures;
use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use super::put;

/// Reads the figures at each scrape.
#[derive(Debug)]
pub(super) struct Broadcasts(pub Arc<Figures>);

impl Collector for Broadcasts {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let counts = self.0.counts();
        for (name, help, count) in [
            ("batches", "Batches broadcast, each once however many got it", counts.batches),
            ("events", "Events in them", counts.events),
            ("oversize", "Pointers to events that fit into no message", counts.oversize),
            ("stale", "Pointers to events that had become too old", counts.stale),
            ("lagged", "Pointers to one subscriber that had fallen behind", counts.lagged),
            ("resyncs", "Channels whose subscribers had to load a snapshot", counts.resyncs),
        ] {
            put(&mut encoder, &format!("notifier_{name}"), help, &ConstCounter::new(count))?;
        }
        for (name, help, number) in [
            ("channels", "Channels that somebody subscribes to", counts.channels),
            ("subscribers", "Subscriptions to channels", counts.subscribers),
        ] {
            put(&mut encoder, &format!("notifier_{name}"), help, &ConstGauge::new(number as i64))?;
        }
        Ok(())
    }
}
