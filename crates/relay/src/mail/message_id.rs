//! The identity of a message: the same for every copy, another for every other message.

use std::fmt;

use outport_contract::digest::{Sha256, hex};
use outport_domain::id::EventId;

/// A Message-ID, without its angle brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageId {
    local: String,
    domain: String,
}

impl MessageId {
    /// The id that follows from event, handler and recipient.
    pub fn of(event: EventId, handler: &str, recipient: &str, domain: &str) -> Self {
        let mut digest = Sha256::new();
        for part in [event.to_string().as_str(), handler, recipient] {
            digest.update(part.as_bytes());
            // No part holds a NUL, so no two triples give the same bytes.
            digest.update(&[0]);
        }
        Self { local: hex(&digest.finish().0[..20]), domain: domain.to_owned() }
    }

    /// The part before the `@`: 40 lower-case hex digits.
    pub fn local(&self) -> &str {
        &self.local
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.local, self.domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_from_event_handler_and_recipient() {
        let event = EventId::new();
        let id = |event, handler, to| MessageId::of(event, handler, to, "example.com");
        let first = id(event, "send", "ana@example.com");
        assert_eq!(first, id(event, "send", "ana@example.com"));
        assert_ne!(first, id(EventId::new(), "send", "ana@example.com"));
        assert_ne!(first, id(event, "sen", "dana@example.com"));
        assert_ne!(first, id(event, "send", "bea@example.com"));
        assert!(first.to_string().ends_with("@example.com"));
        assert_eq!(first.local().len(), 40);
    }
}
