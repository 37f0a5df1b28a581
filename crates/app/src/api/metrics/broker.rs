//! What the publisher of job events has seen in this process.

use std::{fmt, sync::Arc};

use outport_relay::broker::Figures;
use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use super::put;

/// Reads the figures at each scrape.
#[derive(Debug)]
pub(super) struct JobEvents(pub Arc<Figures>);

impl Collector for JobEvents {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let counts = self.0.counts();
        for (name, help, count) in [
            ("published", "Job events confirmed by the broker and not returned", counts.published),
            ("returned", "Job events that no queue took, to be sent again", counts.returned),
            (
                "accepted_unroutable",
                "Job events that no queue took, where that is accepted",
                counts.accepted_unroutable,
            ),
            ("nacked", "Job events that the broker said no to", counts.nacked),
            ("refused", "Job events for which the broker closed the channel", counts.refused),
            ("reconnects", "Connections to the broker after the first one", counts.reconnects),
        ] {
            put(&mut encoder, &format!("job_events_{name}"), help, &ConstCounter::new(count))?;
        }
        for (name, help, is_so) in [
            ("connected", "Whether there is a connection to the broker", counts.connected),
            ("blocked", "Whether the broker blocks publishers", counts.blocked),
        ] {
            put(
                &mut encoder,
                &format!("job_events_{name}"),
                help,
                &ConstGauge::new(i64::from(is_so)),
            )?;
        }
        Ok(())
    }
}
