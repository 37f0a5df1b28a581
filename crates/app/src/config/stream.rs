//! The live stream as configured.

use outport_domain::limits::Limits;
use outport_relay::notifier::NotifierConfig;

use super::Settings;
use crate::api::stream::StreamConfig;

/// Bytes that a message may be limited to, at least: an event's envelope must fit.
const LEAST_MESSAGE: usize = 1024;

/// Reads the bounds of the live stream.
pub(super) fn read(s: &mut Settings, limits: &Limits) -> StreamConfig {
    let default = StreamConfig::default();
    let config = StreamConfig {
        notifier: NotifierConfig {
            interval: s.milliseconds("stream.intervalMilliseconds"),
            most_bytes: s.number("stream.messageBytes") as usize,
            max_age: s.seconds("stream.maxAgeSeconds"),
            poll: s.milliseconds("stream.pollMilliseconds"),
            queue: s.number("stream.messagesPerChannel") as usize,
        },
        heartbeat: s.seconds("stream.heartbeatSeconds"),
        queue_bytes: s.number("stream.queueBytes") as usize,
        channels: s.number("stream.channelsPerConnection") as usize,
        connections: s.number("stream.connections") as usize,
        drain: limits.drain,
        ..default
    };
    if config.notifier.most_bytes < LEAST_MESSAGE {
        s.wrong("stream.messageBytes", "must be at least 1,024");
    }
    if config.queue_bytes < config.notifier.most_bytes {
        s.wrong("stream.queueBytes", "must be at least stream.messageBytes");
    }
    config
}
