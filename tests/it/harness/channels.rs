//! The channels of the live stream in a world that is settled.

use std::collections::BTreeMap;

use super::World;

const ENDS: [&str; 4] = ["job.succeeded", "job.failed", "job.cancelled", "job.limit_exceeded"];

/// Every channel has all numbers up to its head; every job has ended once, with all its turns and
/// stages.
pub async fn assert_whole(world: &World) {
    let heads = world.state.rows("SELECT channel, head FROM channels ORDER BY channel").await;
    let told = "SELECT p.channel, p.sequence, e.event_type FROM channel_events p \
         JOIN stream_events e ON e.id = p.event_id ORDER BY p.channel, p.sequence";
    let mut channels = BTreeMap::<String, Vec<(u64, String)>>::new();
    for row in world.state.rows(told).await {
        let [channel, sequence, event_type] = row.try_into().expect("three columns");
        let sequence = sequence.parse().expect("a number");
        channels.entry(channel).or_default().push((sequence, event_type));
    }
    assert_eq!(heads.len(), channels.len(), "a head for each channel: {channels:?}");
    for row in heads {
        let [channel, head] = row.try_into().expect("two columns");
        let told = &channels[&channel];
        let numbers = told.iter().map(|(sequence, _)| *sequence);
        assert!(numbers.eq(1..=head.parse().expect("a number")), "{channel} to {head}: {told:?}");
        if channel.starts_with("job:") {
            let count = |names: &[&str]| {
                told.iter().filter(|(_, name)| names.contains(&name.as_str())).count()
            };
            assert_eq!(count(&["job.queued"]), 1, "{told:?}");
            assert_eq!(count(&ENDS), 1, "{told:?}");
            assert_eq!(count(&["turn.started"]), count(&["turn.ended"]), "{told:?}");
            let ended = count(&["stage.succeeded", "stage.failed"]);
            assert_eq!(count(&["stage.started"]), ended, "{told:?}");
            let last: Vec<&str> =
                told.iter().rev().take(2).map(|(_, name)| name.as_str()).collect();
            assert_eq!(last, ["turn.ended", "usage.recorded"], "{told:?}");
        }
    }
}
