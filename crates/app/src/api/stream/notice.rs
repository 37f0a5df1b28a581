//! What one subscriber alone is told: an event without a number, which is neither stored nor
//! replayed.

use chrono::Utc;
use outport_contract::stream::{Channel, Message, Scope, StreamEvent, messages};
use outport_domain::caller::Caller;
use outport_store::channels;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::api::problem::Position;

/// Access to this channel ended.
pub fn access_revoked(caller: &Caller, channel: &Channel, epoch: &str) -> Message {
    notice(caller, channel, epoch, "access.revoked", "{}".to_owned())
}

/// The position in this channel cannot be trusted; this is where the channel is.
pub fn resync_required(caller: &Caller, channel: &Channel, position: &Position) -> Message {
    let data = serde_json::to_string(position).expect("numbers and a text have no failure");
    notice(caller, channel, &position.epoch, "resync.required", data)
}

fn notice(caller: &Caller, channel: &Channel, epoch: &str, name: &str, data: String) -> Message {
    let mut scope =
        Scope { organization: caller.organization.uuid(), application: None, job: None };
    match channel {
        Channel::Job(id) => scope.job = Some(*id),
        Channel::Application(organization, name) => {
            scope.application = Some(format!("{organization}.{name}"));
        }
        Channel::Organization(_) => {}
    }
    let event = StreamEvent {
        id: channels::wire_id(Uuid::now_v7()),
        stream: scope,
        sequence: None,
        event_type: name.to_owned(),
        time: Utc::now().into(),
        data: RawValue::from_string(data).expect("JSON"),
    };
    let mut one = messages(channel, epoch, &[event], usize::MAX);
    one.pop().expect("an event makes a message")
}
