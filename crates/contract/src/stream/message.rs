//! What is broadcast: batches and pointers, none larger than the limit.

use serde::{Deserialize, Serialize};

use super::{Channel, PROTOCOL, StreamEvent};

/// Events of one channel, in their order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Batch {
    protocol: String,
    /// Whose sequence the events are numbered in.
    pub channel: Channel,
    /// The generation of the store: numbers of another one mean nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// At least one.
    pub events: Vec<StreamEvent>,
}

/// A channel reached at least `sequence`, and the events up to it did not travel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    protocol: String,
    /// The channel.
    pub channel: Channel,
    /// The generation of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// What it reached.
    pub sequence: u64,
    /// Why they did not travel. A reason that a consumer does not know is a gap like any other.
    pub reason: String,
}

/// The reasons of pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerReason {
    /// The event fits into no message.
    Oversize,
    /// The notification waited longer than the maximum age.
    Stale,
    /// A heartbeat: the last sequence that was queued to this connection.
    Head,
}

impl PointerReason {
    /// The word on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Oversize => "oversize",
            Self::Stale => "stale",
            Self::Head => "head",
        }
    }
}

impl Pointer {
    /// A pointer.
    pub fn new(channel: Channel, epoch: &str, sequence: u64, reason: PointerReason) -> Self {
        Self {
            protocol: PROTOCOL.to_owned(),
            channel,
            epoch: Some(epoch.to_owned()),
            sequence,
            reason: reason.name().to_owned(),
        }
    }
}

/// One broadcast message, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A batch, with the highest sequence in it.
    Batch(String, u64),
    /// A pointer to this sequence.
    Pointer(String, u64),
}

impl Message {
    /// The JSON text.
    pub fn text(&self) -> &str {
        match self {
            Self::Batch(text, _) | Self::Pointer(text, _) => text,
        }
    }

    /// The sequence that a consumer has reached who has got it, or knows to replay up to.
    pub const fn sequence(&self) -> u64 {
        match self {
            Self::Batch(_, sequence) | Self::Pointer(_, sequence) => *sequence,
        }
    }

    /// A pointer.
    pub fn pointer(channel: &Channel, epoch: &str, sequence: u64, reason: PointerReason) -> Self {
        Self::Pointer(encoded(&Pointer::new(channel.clone(), epoch, sequence, reason)), sequence)
    }
}

fn encoded(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts, numbers and raw JSON have no failure")
}

/// Puts events of one channel, in their order, into as few messages as it takes, none of them
/// longer than `most_bytes` of UTF-8. An event that fits into no message becomes a pointer;
/// several of them in a row share one at the highest.
pub fn messages(
    channel: &Channel,
    epoch: &str,
    events: &[StreamEvent],
    most_bytes: usize,
) -> Vec<Message> {
    let empty = Batch {
        protocol: PROTOCOL.to_owned(),
        channel: channel.clone(),
        epoch: Some(epoch.to_owned()),
        events: Vec::new(),
    };
    let envelope = encoded(&empty);
    let head = envelope.strip_suffix("]}").expect("the events come last");
    let mut messages = Vec::new();
    let mut open = String::new();
    let mut last = 0;
    for event in events {
        let sequence = event.sequence.unwrap_or_default();
        let text = encoded(event);
        let grown = if open.is_empty() { envelope.len() } else { open.len() + 1 + "]}".len() };
        if !open.is_empty() && grown + text.len() > most_bytes {
            messages.push(closed(&mut open, last));
        }
        if envelope.len() + text.len() > most_bytes {
            if matches!(messages.last(), Some(Message::Pointer(..))) {
                messages.pop();
            }
            messages.push(Message::pointer(channel, epoch, sequence, PointerReason::Oversize));
            continue;
        }
        open.push_str(if open.is_empty() { head } else { "," });
        open.push_str(&text);
        last = sequence;
    }
    if !open.is_empty() {
        messages.push(closed(&mut open, last));
    }
    messages
}

fn closed(open: &mut String, last: u64) -> Message {
    open.push_str("]}");
    Message::Batch(std::mem::take(open), last)
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use uuid::Uuid;

    use super::{super::Scope, *};
    use crate::time::Instant;

    fn event(sequence: u64, text: &str) -> StreamEvent {
        StreamEvent {
            id: format!("evt_{sequence}"),
            stream: Scope { organization: Uuid::nil(), application: None, job: None },
            sequence: Some(sequence),
            event_type: "plan.changed".to_owned(),
            time: Instant::from(chrono::DateTime::UNIX_EPOCH),
            data: RawValue::from_string(format!("{{\"note\":\"{text}\"}}")).expect("JSON"),
        }
    }

    fn channel() -> Channel {
        Channel::Organization(Uuid::nil())
    }

    fn kinds(messages: &[Message]) -> Vec<(bool, u64)> {
        let batch = |message: &Message| matches!(message, Message::Batch(..));
        messages.iter().map(|message| (batch(message), message.sequence())).collect()
    }

    #[test]
    fn a_batch_is_the_contracts_message() {
        let messages = messages(&channel(), "e1", &[event(118, "é")], 1000);
        assert_eq!(
            messages[0].text(),
            "{\"protocol\":\"beyond-cdn-events/1\",\
             \"channel\":\"organization:00000000-0000-0000-0000-000000000000\",\"epoch\":\"e1\",\
             \"events\":[{\"id\":\"evt_118\",\
             \"stream\":{\"organization\":\"00000000-0000-0000-0000-000000000000\"},\
             \"sequence\":118,\"type\":\"plan.changed\",\"time\":\"1970-01-01T00:00:00.000Z\",\
             \"data\":{\"note\":\"é\"}}]}"
        );
        let batch: Batch = serde_json::from_str(messages[0].text()).expect("a batch");
        assert_eq!((batch.channel, batch.events.len()), (channel(), 1));
    }

    #[test]
    fn a_batch_of_exactly_the_limit_travels_and_one_byte_more_does_not() {
        // Two bytes a letter: the limit counts bytes.
        let events = [event(1, "ééé"), event(2, "é"), event(3, "é")];
        let whole = messages(&channel(), "e", &events, usize::MAX);
        assert_eq!(kinds(&whole), [(true, 3)]);
        let size = whole[0].text().len();
        assert_eq!(messages(&channel(), "e", &events, size), whole);
        let split = messages(&channel(), "e", &events, size - 1);
        assert_eq!(kinds(&split), [(true, 2), (true, 3)]);
        assert!(split.iter().all(|message| message.text().len() < size));
    }

    #[test]
    fn what_fits_into_no_message_becomes_a_pointer_in_its_place() {
        let large = "x".repeat(600);
        let events = [event(1, "a"), event(2, &large), event(3, &large), event(4, "b")];
        let messages = messages(&channel(), "e", &events, 600);
        assert_eq!(kinds(&messages), [(true, 1), (false, 3), (true, 4)]);
        let pointer: Pointer = serde_json::from_str(messages[1].text()).expect("a pointer");
        assert_eq!((pointer.sequence, pointer.reason.as_str()), (3, "oversize"));
    }
}
