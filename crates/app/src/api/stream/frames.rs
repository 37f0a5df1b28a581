//! The frames of a WebSocket, JSON texts. What a client says is read strictly: a frame that is
//! not understood whole is not understood.

use axum::extract::ws::Utf8Bytes;
use outport_contract::stream::Channel;
use serde::{Deserialize, Serialize};

/// The name of what is told about the connection itself.
const CONTROL: &str = "outport-control/1";

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase", deny_unknown_fields)]
pub enum Frame {
    /// Who it is.
    Auth {
        /// An API token or a JWT.
        token: String,
    },
    /// Follow a channel.
    Subscribe {
        /// Its name.
        channel: String,
        /// The last sequence that the client has; none to begin now.
        #[serde(default)]
        after: Option<u64>,
        /// The epoch that it is of.
        #[serde(default)]
        epoch: Option<String>,
    },
    /// Follow it no more.
    Unsubscribe {
        /// Its name.
        channel: String,
    },
    /// Is anybody there?
    Ping {},
}

/// What is told about the connection itself.
#[derive(Debug, Default, Serialize)]
pub struct Control<'a> {
    /// `authenticated`, `subscribed`, `unsubscribed`, `pong` or `error`.
    pub kind: &'static str,
    /// Which channel it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<&'a str>,
    /// Where the channel is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<u64>,
    /// The generation of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<&'a str>,
    /// A stable code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// What happened, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<&'a str>,
}

impl Control<'_> {
    /// As a WebSocket carries it.
    pub fn frame(&self) -> Utf8Bytes {
        let data = serde_json::to_string(self).expect("texts and numbers have no failure");
        broadcast(CONTROL, &data)
    }
}

/// The end of a channel on this connection.
pub fn unsubscribed(channel: &Channel, code: Option<&'static str>) -> Utf8Bytes {
    let channel = channel.to_string();
    Control { kind: "unsubscribed", channel: Some(&channel), code, ..Control::default() }.frame()
}

/// A message under its broadcast name.
pub fn broadcast(name: &str, text: &str) -> Utf8Bytes {
    format!("{{\"event\":\"{name}\",\"data\":{text}}}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_understood_whole_or_not_at_all() {
        let read = |text: &str| serde_json::from_str::<Frame>(text).ok();
        let subscribe = |after, epoch: Option<&str>| Frame::Subscribe {
            channel: "job:1".to_owned(),
            after,
            epoch: epoch.map(str::to_owned),
        };
        for (text, frame) in [
            (r#"{"action":"ping"}"#, Frame::Ping {}),
            (r#"{"token":"t","action":"auth"}"#, Frame::Auth { token: "t".to_owned() }),
            (r#"{"action":"subscribe","channel":"job:1"}"#, subscribe(None, None)),
            (
                r#"{"action":"subscribe","channel":"job:1","after":0,"epoch":"e"}"#,
                subscribe(Some(0), Some("e")),
            ),
        ] {
            assert_eq!(read(text), Some(frame), "{text}");
        }
        for text in BAD {
            assert_eq!(read(text), None, "{text}");
        }
    }

    const BAD: [&str; 16] = [
        "",
        "ping",
        "[]",
        "{}",
        "{\"action\":\"ping\"",
        r#"{"action":"ping"} {"action":"ping"}"#,
        r#"{"action":"PING"}"#,
        r#"{"action":"shout"}"#,
        r#"{"action":"ping","channel":"job:1"}"#,
        r#"{"action":"auth"}"#,
        r#"{"action":"auth","token":7}"#,
        r#"{"action":"subscribe"}"#,
        r#"{"action":"subscribe","channel":"job:1","after":-1}"#,
        r#"{"action":"subscribe","channel":"job:1","after":"1"}"#,
        r#"{"action":"subscribe","channel":"job:1","after":1.5}"#,
        r#"{"action":"subscribe","channel":"job:1","from":1}"#,
    ];
}
