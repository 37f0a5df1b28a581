//! What a handler is, what it is given, and how it may fail.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use outport_contract::{export_event::ExportEvent, redaction::redact};
use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    id::EventId,
    job::ExportJob,
};
use outport_store::{Store, StoreError, deliveries, events::StoredEvent, jobs};

use crate::pause::full_jitter;

/// A duty towards some types of event.
///
/// It may be run several times for one event (see [`Delivery::once`]), several events at once,
/// and its future may be dropped at any `await`. It must not block its thread.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Its name for ever: rows in the database refer to it.
    fn name(&self) -> &'static str;

    /// The names of the events it wants, e.g. `export.completed`.
    fn event_types(&self) -> &'static [&'static str];

    /// Does the duty towards one event.
    async fn handle(&self, delivery: &Delivery<'_>) -> Result<Done, HandlerError>;
}

/// How a handler came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It did its duty now.
    Now,
    /// A receipt said that an earlier attempt had done it.
    Before,
}

/// What now, after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Try again, with back-off, while the budget lasts.
    Retry,
    /// Trying again cannot help: a person has to look.
    Dead,
}

/// The cause of a [`HandlerError`], for the log.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a handler failed. Its message is for people outside and is redacted when it is made;
/// the cause is for the log.
#[derive(Debug)]
pub struct HandlerError {
    message: String,
    cause: Option<Cause>,
    disposition: Disposition,
}

impl HandlerError {
    /// A failure that may pass.
    pub fn retry(message: impl AsRef<str>) -> Self {
        Self { message: redact(message.as_ref()), cause: None, disposition: Disposition::Retry }
    }

    /// A failure that will not pass.
    pub fn dead(message: impl AsRef<str>) -> Self {
        Self { message: redact(message.as_ref()), cause: None, disposition: Disposition::Dead }
    }

    /// The same failure with what caused it.
    #[must_use]
    pub fn because(self, cause: impl Into<Cause>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }

    /// What went wrong, safe to show.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What now.
    pub fn disposition(&self) -> Disposition {
        self.disposition
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HandlerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

impl From<StoreError> for HandlerError {
    fn from(error: StoreError) -> Self {
        Self::retry(error.to_string()).because(error)
    }
}

/// One attempt at one delivery, as its handler sees it.
pub struct Delivery<'a> {
    /// The event as committed: its id, its type, its frozen body, its instant.
    pub stored: &'a StoredEvent,
    /// To whom, for handlers with several targets; empty otherwise.
    pub target: &'a str,
    /// Which attempt this is; the first is 1. Attempts handed back at a stop count too.
    pub attempt: u32,
    handler: &'a str,
    store: &'a Store,
    crash: &'a CrashPlan,
}

impl<'a> Delivery<'a> {
    /// An attempt. The relay makes them; tests of a handler may.
    pub fn new(
        claim: &'a deliveries::DeliveryClaim,
        store: &'a Store,
        crash: &'a CrashPlan,
    ) -> Self {
        Self {
            stored: &claim.event,
            target: &claim.target,
            attempt: claim.fence.run,
            handler: &claim.handler,
            store,
            crash,
        }
    }

    /// The event's id: the same at every attempt, different for every event.
    pub fn event_id(&self) -> EventId {
        self.stored.id
    }

    /// The event's body as committed, byte for byte.
    pub fn body(&self) -> &str {
        &self.stored.body
    }

    /// The event of an export, parsed. A body that this version does not read is a failure that
    /// will not pass.
    pub fn export_event(&self) -> Result<ExportEvent, HandlerError> {
        serde_json::from_str(self.body()).map_err(|error| {
            HandlerError::dead("the event's body is not one this version reads").because(error)
        })
    }

    /// The job as its row says now; `None` when it has been purged.
    pub async fn job(&self) -> Result<Option<ExportJob>, HandlerError> {
        Ok(jobs::find_in_any_organization(self.store, self.stored.job).await?)
    }

    /// The receipt of this handler for this event and target, if there is one.
    pub async fn receipt(&self, target: &str) -> Result<Option<String>, HandlerError> {
        Ok(deliveries::receipt(self.store, self.stored.id, self.handler, target).await?)
    }

    /// Does `effect` unless there is a receipt for it, then records the receipt it gives.
    ///
    /// Between the effect and its receipt the process may die, and the next attempt does the
    /// effect again: give the outside an identity that follows from [`Self::event_id`].
    pub async fn once(
        &self,
        target: &str,
        effect: impl Future<Output = Result<String, HandlerError>> + Send,
    ) -> Result<Done, HandlerError> {
        if self.receipt(target).await?.is_some() {
            return Ok(Done::Before);
        }
        let receipt = effect.await?;
        self.crash.reach(CrashPoint::AfterSend).await;
        self.crash.reach(CrashPoint::BeforeReceipt).await;
        self.record(target, &receipt).await;
        Ok(Done::Now)
    }

    /// Records a receipt, trying until it is written. Giving up would repeat an effect that has
    /// happened; the relay's time limit ends what does not end.
    async fn record(&self, target: &str, receipt: &str) {
        for failures in 1.. {
            let Err(error) = self.try_record(target, receipt).await else { return };
            tracing::warn!(
                handler = self.handler,
                event = %self.stored.id,
                error = %outport_contract::redaction::Chain(&error),
                "a receipt is not written yet"
            );
            let (first, most) = (Duration::from_millis(100), Duration::from_secs(2));
            tokio::time::sleep(full_jitter(first, most, failures)).await;
        }
    }

    async fn try_record(&self, target: &str, receipt: &str) -> Result<(), StoreError> {
        let mut tx = self.store.begin().await?;
        deliveries::record_receipt(&mut tx, self.stored.id, self.handler, target, receipt).await?;
        tx.commit().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_redacted_and_its_cause_is_not_in_it() {
        let error = HandlerError::retry("no answer from 10.0.0.7:25").because("ana@example.com");
        assert_eq!(error.to_string(), "no answer from [redacted]");
        assert_eq!(error.disposition(), Disposition::Retry);
        let cause = std::error::Error::source(&error).expect("a cause");
        assert_eq!(cause.to_string(), "ana@example.com");
    }
}
