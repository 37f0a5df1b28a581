//! Random schedules of faults: whatever comes in whatever order, every event is given once and in
//! order, or a snapshot is; and when the faults end, the follower arrives at the head.

use outport_client::{
    Snapshot, Start,
    follow::{Machine, Reason, Step},
};
use proptest::{collection::vec, prelude::*};
use serde_json::json;

use crate::{
    model::{Happening, How, LIMITS, World},
    words::{channel, named},
};

fn happening() -> impl Strategy<Value = Happening> {
    let how = prop_oneof![
        6 => Just(How::Truly),
        2 => Just(How::Failed),
        1 => Just(How::WithAHole),
        1 => Just(How::Empty),
    ];
    prop_oneof![
        4 => (any::<bool>(), any::<bool>(), 1..6_usize)
            .prop_map(|(first, second, count)| Happening::Append { first, second, count }),
        6 => (0..2_usize, vec(any::<usize>(), 1..8), prop::bool::weighted(0.05)).prop_map(
            |(channel, places, stale_epoch)| Happening::Deliver { channel, places, stale_epoch }),
        3 => (0..2_usize, 0..40_u64)
            .prop_map(|(channel, sequence)| Happening::Pointer { channel, sequence }),
        2 => (0..2_usize).prop_map(|channel| Happening::Heartbeat { channel }),
        6 => (any::<usize>(), how).prop_map(|(which, how)| Happening::Answer { which, how }),
        1 => Just(Happening::Reconnect),
        1 => prop::bool::weighted(0.3).prop_map(|new| {
            if new { Happening::NewEpoch } else { Happening::Reconnect }
        }),
        1 => (0..2_usize).prop_map(|channel| Happening::Purge { channel }),
        1 => (0..2_usize).prop_map(|channel| Happening::Told { channel }),
        1 => (0..2_usize, any::<usize>())
            .prop_map(|(channel, place)| Happening::Lie { channel, place }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_event_is_given_once_and_in_order_or_a_snapshot_is(
        happenings in vec(happening(), 0..120),
    ) {
        let mut world = World::new();
        world.reconnect();
        for happening in happenings {
            world.happen(happening);
        }
        world.settle();
    }
}

#[test]
fn a_schedule_without_faults_needs_no_snapshot() {
    let mut world = World::new();
    world.reconnect();
    for count in 1..20 {
        world.happen(Happening::Append { first: true, second: count % 2 == 0, count });
        world.happen(Happening::Deliver { channel: 0, places: vec![count], stale_epoch: false });
        world.happen(Happening::Heartbeat { channel: 1 });
        while let Some(asked) = world.asked.pop_front() {
            world.answer(asked, How::Truly);
        }
    }
    world.settle();
    assert_eq!(world.reasons, []);
}

#[test]
fn snapshots_in_a_row_wait_ever_longer() {
    let job = channel(1);
    let (mut machine, mut steps) = Machine::start([(job.clone(), Start::Snapshot)], LIMITS);
    let load = |steps: &[Step]| match steps {
        [Step::LoadSnapshot { ticket, tries, .. }] => (*ticket, *tries),
        other => panic!("{other:?}"),
    };
    let answer = json!({"channel": job, "epoch": "e0", "sequence": 7});
    let answer: Snapshot = serde_json::from_value(answer).expect("a snapshot");
    for expected in 0..5 {
        let (ticket, tries) = load(&steps);
        assert_eq!(tries, expected);
        machine.snapshotted(&job, ticket, Ok(answer.clone()));
        steps = machine.resync(&job, Reason::Told);
    }
    machine.snapshotted(&job, load(&steps).0, Ok(answer));
    let world = World::new();
    machine.batch(world.batch(0, 0, &[named(8, "evt_8")]));
    assert_eq!(load(&machine.resync(&job, Reason::Told)).1, 0, "the last one was of use");
}
