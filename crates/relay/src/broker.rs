//! The broker: job events as messages of a topic exchange, over AMQP 0-9-1.
//!
//! **Words.** A *link* is the way to the broker, up or down; a *session* is one connection of it.
//! A *window* is what is published before the first confirm is waited for. A message's *fate* is
//! what became of it. An *emission* is one sending of an event: its instant and its signatures
//! are its own, its id and its body those of every other emission.
//!
//! **Invariants.** A message counts as published when the broker has confirmed it and has not
//! returned it. A window is believed whole or not at all: the client hands out returned messages
//! with whatever confirm comes next, so they are matched by their ids once every confirm is
//! there, and a window without all of its confirms has to be sent again. The channel of a failed
//! window is not used again. What a message could have done to its channel is found out by
//! sending one at a time. The link is rebuilt by us, with full jitter; while it is down or the
//! broker blocks publishers, nothing is claimed.

mod check;
mod config;
mod emission;
mod figures;
mod link;
mod publish;
mod sample;
mod session;

pub use check::{Unusable, check, untrusted};
pub use config::{BrokerConfig, BrokerUrl, Tenancy, Topology, Unroutable};
pub(crate) use emission::Outgoing;
pub use figures::{Counts, Figures};
pub(crate) use publish::{Fate, Publisher};
pub use sample::{Received, SampleQueues};
