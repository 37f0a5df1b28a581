//! The life of a relay: leases, stops, crashes and outages.

use std::time::Duration;

use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    limits::Limits,
};
use outport_relay::{Outcome, Registry};
use outport_store::{
    deliveries::{self, DeliveryStatus},
    hints::Topic,
};
use tokio_util::sync::CancellationToken;

use crate::{
    probe::{Deed, Probe},
    rules::wait_for,
    world::{Asked, PATIENCE, World, on_both_stores, quick, work_off},
};

on_both_stores![
    a_lease_is_renewed_while_its_handler_runs,
    a_lost_lease_drops_the_handler_and_writes_nothing,
    a_stop_waits_for_what_runs,
    a_stop_hands_back_what_does_not_end,
    the_loop_is_woken_by_a_commit,
    looking_in_vain_wakes_nobody,
    the_loop_survives_broken_connections,
    a_delivery_that_kills_its_process_every_time_is_dead_without_another_run,
    a_crash_around_the_claim_loses_nothing,
];

fn registry(probe: &Probe) -> Registry {
    let mut registry = Registry::new();
    registry.register(probe.clone()).expect("the first");
    registry
}

async fn a_lease_is_renewed_while_its_handler_runs(world: &World) {
    let probe =
        Probe::scripted("tell", |_, attempt| if attempt == 1 { Deed::Hang } else { Deed::Succeed });
    // The handler takes two leases and more; a lease is long enough for a busy machine.
    let limits = Limits {
        lease: Duration::from_secs(2),
        heartbeat: Duration::from_millis(100),
        handler_time: Duration::from_secs(5),
        ..quick()
    };
    let mut relay = world.relay(registry(&probe), limits.clone()).await;
    let mut other = world.relay(registry(&probe), limits).await;
    let job = world.completed(&Asked::default()).await;
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Worked(1));
    probe.called().await;
    let settled = async {
        relay.settle().await;
    };
    let stolen = async {
        loop {
            if let Outcome::Worked(_) = other.tick().await.expect("a look") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = settled => {}
        () = stolen => panic!("another relay got the delivery of a living one"),
    }
    assert_eq!(probe.dropped(), 1, "the time limit ended it");
    let delivery = world.delivery(job.id, "tell").await;
    assert_eq!((delivery.status, delivery.failures), (DeliveryStatus::Pending, 1));
}

async fn a_lost_lease_drops_the_handler_and_writes_nothing(world: &World) {
    let probe =
        Probe::scripted("tell", |_, attempt| if attempt == 1 { Deed::Hang } else { Deed::Succeed });
    // A heartbeat longer than its lease: only a misconfigured relay loses a lease this way.
    let limits =
        Limits { lease: Duration::from_millis(200), heartbeat: Duration::from_secs(4), ..quick() };
    let mut relay = world.relay(registry(&probe), limits).await;
    let mut other = world.relay(registry(&probe), quick()).await;
    let job = world.completed(&Asked::default()).await;
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Worked(1));
    probe.called().await;
    work_off(&mut other).await;
    let done = world.delivery(job.id, "tell").await;
    assert_eq!((done.status, done.attempts, done.failures), (DeliveryStatus::Done, 2, 1));

    probe.let_go().await;
    relay.settle().await;
    assert_eq!(world.delivery(job.id, "tell").await, done, "the late one wrote nothing");
}

async fn a_stop_waits_for_what_runs(world: &World) {
    let probe = Probe::always("tell", Deed::Once);
    let (crash, gate) = CrashPlan::pausing(CrashPoint::AfterSend);
    let relay = world.crashing_relay(registry(&probe), quick(), crash).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(relay.run(stop.clone()));
    let job = world.completed(&Asked::default()).await;
    gate.reached(PATIENCE).await;
    stop.cancel();
    let next = world.completed(&Asked::default()).await;
    gate.open();
    tokio::time::timeout(PATIENCE, running).await.expect("it stops in time").expect("no panic");
    assert_eq!(world.delivery(job.id, "tell").await.status, DeliveryStatus::Done);
    assert_eq!(world.delivery(next.id, "tell").await.attempts, 0, "no claim after the stop");
}

async fn a_stop_hands_back_what_does_not_end(world: &World) {
    let probe =
        Probe::scripted("tell", |_, attempt| if attempt == 1 { Deed::Hang } else { Deed::Succeed });
    let limits = Limits { drain: Duration::from_millis(50), ..quick() };
    let stop = CancellationToken::new();
    let relay = world.relay(registry(&probe), limits).await;
    let running = tokio::spawn(relay.run(stop.clone()));
    let job = world.completed(&Asked::default()).await;
    probe.called().await;
    stop.cancel();
    tokio::time::timeout(PATIENCE, running).await.expect("it stops in time").expect("no panic");
    assert_eq!(probe.dropped(), 1);
    let back = world.delivery(job.id, "tell").await;
    assert_eq!((back.status, back.failures), (DeliveryStatus::Pending, 0), "no failure");

    let mut relay = world.relay(registry(&probe), quick()).await;
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Worked(1), "due at once");
    relay.settle().await;
    assert_eq!(world.delivery(job.id, "tell").await.status, DeliveryStatus::Done);
}

async fn the_loop_is_woken_by_a_commit(world: &World) {
    let probe = Probe::always("tell", Deed::Succeed);
    let stop = CancellationToken::new();
    let relay = world.relay(registry(&probe), quick()).await;
    let running = tokio::spawn(relay.run(stop.clone()));
    let mut waits = Vec::new();
    for _ in 0..11 {
        world.completed(&Asked::default()).await;
        let began = std::time::Instant::now();
        probe.called().await;
        waits.push(began.elapsed());
    }
    // By polling alone the median would be half a second.
    waits.sort();
    assert!(waits[5] < Duration::from_millis(200), "{waits:?}");
    stop.cancel();
    running.await.expect("no panic");
}

async fn looking_in_vain_wakes_nobody(world: &World) {
    let probe = Probe::always("tell", Deed::Succeed);
    let mut relay = world.relay(registry(&probe), quick()).await;
    world.completed(&Asked::default()).await;
    work_off(&mut relay).await;
    let mut hint = world.store.subscribe(Topic::Deliveries);
    // The hints of the commits above may still be on their way.
    let quiet = async { while hint.changed().await.is_ok() {} };
    assert!(tokio::time::timeout(Duration::from_millis(500), quiet).await.is_err());
    for _ in 0..3 {
        assert_eq!(relay.tick().await.expect("a look"), Outcome::Idle);
    }
    let woken = tokio::time::timeout(Duration::from_millis(500), hint.changed()).await;
    assert!(woken.is_err(), "a relay that wakes itself never sleeps");
}

async fn the_loop_survives_broken_connections(world: &World) {
    let probe = Probe::always("tell", Deed::Succeed);
    let stop = CancellationToken::new();
    let relay = world.relay(registry(&probe), quick()).await;
    let running = tokio::spawn(relay.run(stop.clone()));
    world.completed(&Asked::default()).await;
    probe.called().await;
    for _ in 0..3 {
        world.cut_connections().await;
    }
    // The test's own next statement may meet a connection that has just been cut.
    let back = tokio::time::timeout(PATIENCE, async {
        while world.store.check().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    back.await.expect("the store is back in time");
    let job = world.completed(&Asked::default()).await;
    probe.called().await;
    wait_for(world, |deliveries| {
        deliveries.iter().all(|delivery| delivery.status == DeliveryStatus::Done)
    })
    .await;
    assert_eq!(world.deliveries(Some(job.id)).await.len(), 1);
    assert!(!running.is_finished());
    stop.cancel();
    running.await.expect("no panic");
}

async fn a_delivery_that_kills_its_process_every_time_is_dead_without_another_run(world: &World) {
    let probe = Probe::always("tell", Deed::Succeed);
    let limits = Limits { delivery_attempts: 2, ..quick() };
    let mut relay = world.relay(registry(&probe), limits).await;
    let job = world.completed(&Asked::default()).await;
    for _ in 0..2 {
        // Claimed by a process that is killed at once; its lease ends.
        let claims = tokio::time::timeout(PATIENCE, async {
            loop {
                let mut tx = world.store.begin().await.expect("a transaction");
                let lease = Duration::from_millis(1);
                let claims = deliveries::claim(&mut tx, "tell", lease, 1).await.expect("a claim");
                tx.commit().await.expect("a commit");
                if !claims.is_empty() {
                    return claims;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        assert_eq!(claims.await.expect("due in time").len(), 1);
    }
    work_off(&mut relay).await;
    let dead = world.delivery(job.id, "tell").await;
    assert_eq!(dead.status, DeliveryStatus::Dead);
    assert_eq!(
        dead.last_error.as_deref(),
        Some("every attempt was lost together with its process")
    );
    assert_eq!(probe.calls(), []);
}

async fn a_crash_around_the_claim_loses_nothing(world: &World) {
    for (point, attempts) in
        [(CrashPoint::BeforeDeliveryClaim, 1), (CrashPoint::AfterDeliveryClaim, 2)]
    {
        let probe = Probe::always("tell", Deed::Once);
        let limits = Limits { lease: Duration::from_millis(200), ..quick() };
        let (crash, gate) = CrashPlan::pausing(point);
        let mut killed = world.crashing_relay(registry(&probe), limits.clone(), crash).await;
        let job = world.completed(&Asked::default()).await;
        let task = tokio::spawn(async move { killed.tick().await.map(drop) });
        gate.reached(PATIENCE).await;
        task.abort();
        assert!(task.await.expect_err("it was killed").is_cancelled());

        let mut relay = world.relay(registry(&probe), limits).await;
        work_off(&mut relay).await;
        let delivery = world.delivery(job.id, "tell").await;
        assert_eq!(
            (delivery.status, delivery.attempts),
            (DeliveryStatus::Done, attempts),
            "{point}"
        );
        assert_eq!(probe.effects(), 1, "{point}");
    }
}
