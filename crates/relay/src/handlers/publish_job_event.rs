//! Publishes how jobs ended to the broker.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use outport_contract::{job_event::JobEventType, key_ring::KeyRing};
use outport_store::deliveries::DeliveryClaim;

use crate::{
    batch::{BatchHandler, Verdict},
    broker::{BrokerConfig, Fate, Figures, Outgoing, Publisher, Unroutable},
    handler::HandlerError,
};

/// Receipt of a message that no queue took, where that is accepted.
const ACCEPTED_UNROUTABLE: &str = "accepted-unroutable";
/// The highest ceiling of pauses while the broker does not take messages.
const OUTAGE: Duration = Duration::from_mins(1);
/// The same for a message that the broker answered, and did not keep.
const REFUSED: Duration = Duration::from_hours(1);

/// Publishes job events.
pub struct PublishJobEvent {
    publisher: Publisher,
    unroutable: Unroutable,
}

impl PublishJobEvent {
    /// Its name, by which the metrics page asks for what waits.
    pub const NAME: &'static str = "publish-job-event";

    /// One that signs with the current key of this ring of external keys. It connects when the
    /// relay first asks for it.
    pub fn new(config: BrokerConfig, keys: KeyRing, figures: Arc<Figures>) -> Self {
        let unroutable = config.unroutable;
        Self { publisher: Publisher::new(config, keys, figures), unroutable }
    }

    fn verdict(&self, fate: Fate, event_type: &str) -> Verdict {
        let retry =
            |message: &str, most| Verdict::Retry { error: HandlerError::retry(message), most };
        match fate {
            Fate::Published => Verdict::Done,
            Fate::Returned(_) if self.unroutable == Unroutable::Accept => {
                Verdict::DoneAs(ACCEPTED_UNROUTABLE)
            }
            Fate::Returned(reason) => retry(
                &format!("the broker returned it: no queue takes {event_type} ({reason})"),
                REFUSED,
            ),
            Fate::Nacked => retry("the broker said no to it", OUTAGE),
            Fate::Refused(error) => retry(&format!("the broker refused it: {error}"), REFUSED),
            Fate::Unknown(error) => retry(&error, OUTAGE),
        }
    }
}

#[async_trait]
impl BatchHandler for PublishJobEvent {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn event_types(&self) -> &'static [&'static str] {
        const { &[JobEventType::Completed.name(), JobEventType::Failed.name()] }
    }

    fn window(&self) -> usize {
        self.publisher.window()
    }

    fn is_ready(&self) -> bool {
        self.publisher.is_ready()
    }

    async fn handle(&self, window: &[DeliveryClaim]) -> Vec<Verdict> {
        let outgoing: Vec<Option<Outgoing<'_>>> =
            window.iter().map(|claim| Outgoing::of(&claim.event)).collect();
        let messages: Vec<Outgoing<'_>> = outgoing.iter().flatten().copied().collect();
        let mut fates = self.publisher.publish(&messages).await.into_iter();
        outgoing
            .iter()
            .map(|message| match message {
                Some(message) => match fates.next() {
                    Some(fate) => self.verdict(fate, message.event_type.name()),
                    None => self.verdict(Fate::Unknown("it was not sent".to_owned()), ""),
                },
                // Registered by another version of this program.
                None => Verdict::Retry {
                    error: HandlerError::retry("this version does not publish events of its type"),
                    most: REFUSED,
                },
            })
            .collect()
    }
}
