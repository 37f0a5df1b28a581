//! What tests of the live stream share.

use outport_contract::stream::{self, Channel, StreamEvent};
use outport_domain::job::ExportJob;
use outport_store::{
    Store,
    channels::{self, Replayed},
};
use serde_json::Value;

/// What an application's channel has of a job.
pub const OF_APPLICATION: [&str; 7] = [
    "job.queued",
    "job.waiting_turn",
    "job.running",
    "job.succeeded",
    "job.failed",
    "job.cancelled",
    "job.limit_exceeded",
];

pub fn channel_of(job: &ExportJob) -> Channel {
    Channel::Job(job.id.uuid())
}

/// The channel of the application of `bench::new_job`.
pub fn application_of(job: &ExportJob) -> Channel {
    Channel::Application(job.scope.organization.uuid(), "shop".to_owned())
}

pub fn organization_of(job: &ExportJob) -> Channel {
    Channel::Organization(job.scope.organization.uuid())
}

/// All of a channel: without a gap, and as the catalogue says.
pub async fn heard(store: &Store, channel: &Channel) -> Vec<StreamEvent> {
    let answer = channels::replay(store, channel, 0, None, 10_000).await.expect("an answer");
    let Replayed::Page(page) = answer else { panic!("resync: {answer:?}") };
    let numbers = page.events.iter().filter_map(|event| event.sequence);
    assert!(numbers.eq(1..=page.head), "{page:?}");
    for event in &page.events {
        let known = stream::find(&event.event_type).expect("a type of the catalogue");
        assert_eq!(known.check(&event.data), Ok(()), "{event:?}");
        assert!(known.channels.contains(&channel.kind()), "{event:?} in {channel}");
        let own = event.stream.channel(channel.kind());
        assert_eq!(own.as_ref(), Some(channel), "{event:?}");
    }
    page.events
}

pub fn types(events: &[StreamEvent]) -> Vec<&str> {
    events.iter().map(|event| event.event_type.as_str()).collect()
}

/// The data of the one event of this type.
pub fn data_of(events: &[StreamEvent], event_type: &str) -> Value {
    let mut found = events.iter().filter(|event| event.event_type == event_type);
    let event = found.next().unwrap_or_else(|| panic!("no {event_type}"));
    assert!(found.next().is_none(), "more than one {event_type}");
    serde_json::from_str(event.data.get()).expect("JSON")
}
