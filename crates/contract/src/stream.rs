//! The live event stream, protocol `beyond-cdn-events/1`: the catalogue of event types, channels,
//! events as they are stored and replayed, and the messages that broadcast them.
//!
//! **Words.** An *event* tells of one change. A *channel* is a numbered sequence of events about
//! one job, application or organization; the same event may be in several. A *batch* carries
//! events of one channel in their order. A *pointer* says that a channel reached a sequence and
//! that the events up to it did not travel: replay them.

mod catalogue;
mod channel;
mod message;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::{
    catalogue::{CATALOGUE, DeliveryClass, Family, InvalidData, StageRule, StreamEventType, find},
    channel::{Channel, ChannelKind, InvalidChannel, Scope},
    message::{Batch, Message, Pointer, PointerReason, messages},
};
use crate::time::Instant;

/// The value of `protocol`, and the broadcast name of a batch.
pub const PROTOCOL: &str = "beyond-cdn-events/1";
/// The broadcast name of a pointer.
pub const POINTER: &str = "beyond-cdn-pointer/1";

/// An event, as a channel has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamEvent {
    /// `evt_…`, the same in every channel: by it a consumer knows what it has seen.
    pub id: String,
    /// Whom it concerns.
    pub stream: Scope,
    /// Its number in the channel, from 1 and without gaps; none for what is told to one
    /// subscriber alone, which is neither stored nor replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// A type of the catalogue, or one that a later version knows.
    #[serde(rename = "type")]
    pub event_type: String,
    /// When the change was committed.
    pub time: Instant,
    /// By type.
    pub data: Box<RawValue>,
}
