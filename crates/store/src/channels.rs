//! The live stream's channels: events numbered from 1 and without gaps, in the order in which
//! their transactions committed.
//!
//! A counter row per channel is bumped by the last statement before the commit, channels in the
//! order of their names. Whoever bumps it holds the row until the commit, so the order of the
//! numbers is that of the commits, and a rollback leaves no hole. No identity column, transaction
//! id or maximum plus one could be a cursor: those are given before it is known who commits first.

mod epoch;
mod numbering;
mod positions;
mod posted;
mod replay;
mod retention;

use outport_contract::stream::{Channel, Scope, StreamEventType};
use uuid::Uuid;

pub(crate) use epoch::{check_epoch, recheck_epoch};
pub use epoch::{epoch, new_epoch};
pub(crate) use numbering::number;
#[cfg(test)]
pub(crate) use positions::query as positions_query;
pub use positions::{Position, Positions, positions};
pub use posted::{ClientId, Posted, numbers, post};
pub use replay::{Page, Replayed, head, replay};
pub(crate) use retention::forget;
pub use retention::purge;

use crate::Tx;

/// An event that is to be numbered when its transaction commits.
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub(crate) id: Uuid,
    pub(crate) event_type: &'static StreamEventType,
    pub(crate) scope: Scope,
    pub(crate) data: String,
}

impl NewEvent {
    /// An event with an id of its own. It is numbered in those channels of its type that its
    /// scope has. `data` is the JSON text, already redacted.
    pub fn new(event_type: &'static StreamEventType, scope: Scope, data: String) -> Self {
        Self { id: Uuid::now_v7(), event_type, scope, data }
    }

    fn channels(&self) -> impl Iterator<Item = Channel> {
        self.event_type.channels.iter().filter_map(|kind| self.scope.channel(*kind))
    }
}

impl Tx {
    /// Appends an event to its channels: it is stored and numbered by [`Tx::commit`], with the
    /// clock of that moment.
    pub fn append(&mut self, event: NewEvent) {
        self.appended.push(event);
    }
}

/// The id on the wire: `evt_` and 32 hexadecimal digits.
pub fn wire_id(id: Uuid) -> String {
    format!("evt_{}", id.simple())
}
