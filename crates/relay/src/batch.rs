//! Handlers that take many events at once, for a receiver whose every answer costs a round trip.

use std::time::Duration;

use async_trait::async_trait;
use outport_store::deliveries::DeliveryClaim;

use crate::handler::HandlerError;

/// A duty towards many events at once.
///
/// It is given a window of claimed deliveries and answers for each; all ends are recorded in one
/// transaction. What it did and what was recorded may differ by a crash, so the outside must be
/// able to tell a copy from a second event, and there is no receipt to look for: a delivery that
/// is claimed is to be told (again).
///
/// It has no budget: a delivery is asked for until it is done, at the latest an hour apart, and
/// is never dead. Attempts that were lost together with their process do not end it either.
#[async_trait]
pub trait BatchHandler: Send + Sync {
    /// Its name for ever: rows in the database refer to it.
    fn name(&self) -> &'static str;

    /// The names of the events it wants, e.g. `job.completed`.
    fn event_types(&self) -> &'static [&'static str];

    /// Deliveries of a window, at most.
    fn window(&self) -> usize;

    /// Whether there is anybody to tell now. While there is not, nothing is claimed, and nothing
    /// counts as a failure. Asked before every look, so it must not block.
    fn is_ready(&self) -> bool;

    /// Does the duty towards a window. One verdict for each delivery, in their order; what is
    /// missing is retried.
    async fn handle(&self, window: &[DeliveryClaim]) -> Vec<Verdict>;
}

/// How the duty towards one delivery of a window went.
#[derive(Debug)]
pub enum Verdict {
    /// It is done.
    Done,
    /// There was nothing more to do, and the receipt says why.
    DoneAs(&'static str),
    /// Try again after a pause drawn between zero and a ceiling: 1 s, four times as long with
    /// every failure.
    Retry {
        /// What went wrong.
        error: HandlerError,
        /// The highest ceiling.
        most: Duration,
    },
}
