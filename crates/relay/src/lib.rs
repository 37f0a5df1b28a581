//! Tells the world what was committed: claims deliveries, runs handlers, records how it went.
//!
//! **Words.** A *handler* is a compiled duty towards some types of event. A *delivery* is that
//! duty towards one event, claimed under a *lease*. A *receipt* says that the outside has been
//! told, so that a second attempt need not tell it again. A *tick* is one look for due
//! deliveries. A *window* is many deliveries that a batch handler gets at once. A *letter* is a mail before it has a form.
//!
//! **Invariants.** A claim is committed before its handler starts; no handler runs inside a
//! transaction of the store. How a delivery ends is written under its fence; a relay that has
//! lost a lease drops the handler's future and writes nothing. No failure of a handler (an
//! error, a panic, a hang) reaches the job, another handler or another event. Every handler has
//! slots of its own. A letter's Message-ID follows from event, handler and recipient, so copies
//! are recognisable; credentials of a mail server or a broker have no `Debug` and are in no
//! error text.
//!
//! **Absent on purpose.** The pipeline: both sides meet only in the store's tables. Exactly-once
//! delivery, which the outside cannot offer. A retry layer around handlers: the table is it.
//!
//! How to add a handler is told in `HANDLERS.md` beside this crate's manifest.

mod attempt;
pub mod batch;
pub mod broker;
pub mod handler;
pub mod handlers;
pub mod mail;
pub mod notifier;
mod pause;
pub mod reconcile;
pub mod registry;
pub mod tick;
mod window;

pub use batch::{BatchHandler, Verdict};
pub use handler::{Delivery, Disposition, Done, Handler, HandlerError};
pub use notifier::{Event, Notifier, NotifierConfig, Sent, Subscription};
pub use reconcile::Reconciler;
pub use registry::{DuplicateHandler, Registry};
pub use tick::{Outcome, Relay};
