//! A message, made once for all who get it.

use bytes::Bytes;
use outport_contract::stream::{Channel, POINTER, PROTOCOL};

/// Between a frame's parts.
const EVENT: &str = "{\"event\":\"";
const DATA: &str = "\",\"data\":";

/// A broadcast message.
#[derive(Debug)]
pub struct Sent {
    /// Its broadcast name, [`PROTOCOL`] or [`POINTER`].
    pub name: &'static str,
    /// The channel whose sequence it counts in.
    pub channel: Channel,
    /// The channel's position before it: it tells of what is after this, without a gap.
    pub after: u64,
    /// The channel's position after it: the highest sequence that it names.
    pub sequence: u64,
    frame: Bytes,
}

impl Sent {
    pub(super) fn batch(channel: &Channel, text: &str, after: u64, sequence: u64) -> Self {
        Self::new(PROTOCOL, channel, text, after, sequence)
    }

    pub(super) fn pointer(channel: &Channel, text: &str, after: u64, sequence: u64) -> Self {
        Self::new(POINTER, channel, text, after, sequence)
    }

    fn new(name: &'static str, channel: &Channel, text: &str, after: u64, sequence: u64) -> Self {
        let frame = Bytes::from([EVENT, name, DATA, text, "}"].concat());
        Self { name, channel: channel.clone(), after, sequence, frame }
    }

    /// Whether it is a pointer: what is after `after` up to `sequence` did not travel.
    pub fn is_pointer(&self) -> bool {
        self.name == POINTER
    }

    /// The message, JSON.
    pub fn text(&self) -> &str {
        let from = EVENT.len() + self.name.len() + DATA.len();
        let text = &self.frame[from..self.frame.len() - 1];
        std::str::from_utf8(text).expect("a text was put there")
    }

    /// What a WebSocket carries, `{"event":<name>,"data":<text>}`; UTF-8, and cheap to clone.
    pub fn frame(&self) -> &Bytes {
        &self.frame
    }
}
