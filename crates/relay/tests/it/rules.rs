//! The nine rules of handlers, each on both stores.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use chrono::{TimeDelta, Utc};
use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    job::JobStatus,
    limits::Limits,
};
use outport_relay::{
    Delivery, Done, DuplicateHandler, Handler, HandlerError, Outcome, Reconciler, Registry,
};
use outport_store::{
    Store,
    deliveries::{self, DeliveryStatus},
    jobs,
};

use tokio_util::sync::CancellationToken;

use crate::{
    probe::{Deed, Probe},
    ring_bell::RingBell,
    world::{Asked, PATIENCE, World, on_both_stores, quick, work_off},
};

on_both_stores![
    rule_1_a_handler_runs_after_the_commit_and_in_no_transaction,
    rule_2_no_failure_of_a_handler_reaches_the_job,
    rule_3_the_same_event_twice_has_the_effect_of_once,
    rule_3_an_effect_without_its_receipt_is_repeated,
    rule_4_a_new_handler_is_one_file_and_one_line,
    rule_5_a_hanging_handler_delays_no_other_and_no_other_event,
    rule_6_a_failure_is_retried_and_then_dead_and_can_be_retried_by_hand,
    rule_6_what_cannot_be_helped_is_dead_at_once,
    rule_6_a_delivery_waits_out_its_pause,
    rule_7_a_later_handler_starts_with_later_events_and_backfill_replays_older_ones,
    rule_7_the_reconciler_finds_nothing_where_nothing_is_missing,
    rule_8_an_unregistered_handler_leaves_its_deliveries_visible,
    rule_9_the_same_name_twice_is_refused,
];

fn registry(probes: &[&Probe]) -> Registry {
    let mut registry = Registry::new();
    for probe in probes {
        registry.register((*probe).clone()).expect("names of their own");
    }
    registry
}

/// Looks at the state from outside while it handles.
struct Onlooker {
    other_process: Store,
    found: Arc<Mutex<Option<Found>>>,
}

#[derive(Debug, PartialEq)]
struct Found {
    job: JobStatus,
    delivery: DeliveryStatus,
    can_be_written: bool,
}

#[async_trait]
impl Handler for Onlooker {
    fn name(&self) -> &'static str {
        "look-on"
    }

    fn event_types(&self) -> &'static [&'static str] {
        &["export.completed"]
    }

    async fn handle(&self, delivery: &Delivery<'_>) -> Result<Done, HandlerError> {
        let (organization, id) = (delivery.stored.organization, delivery.stored.job);
        let job = jobs::find(&self.other_process, organization, id).await?.expect("the job");
        let page = outport_store::PageRequest { limit: 10, after: None };
        let filter = deliveries::DeliveryFilter::default();
        let list = deliveries::list(&self.other_process, organization, &filter, page).await?;
        // On SQLite an open transaction of the relay would keep this one out.
        let mut tx = self.other_process.begin().await?;
        deliveries::register(&mut tx, &[]).await?;
        let can_be_written = tx.commit().await.is_ok();
        let found = Found { job: job.status, delivery: list.items[0].status, can_be_written };
        *self.found.lock().expect("no panic holds it") = Some(found);
        Ok(Done::Now)
    }
}

async fn rule_1_a_handler_runs_after_the_commit_and_in_no_transaction(world: &World) {
    let found = Arc::new(Mutex::new(None));
    let other_process = world.connect_again().await;
    let onlooker = Onlooker { other_process: other_process.clone(), found: Arc::clone(&found) };
    let mut registry = Registry::new();
    registry.register(onlooker).expect("the first");
    let mut relay = world.relay(registry, quick()).await;
    world.completed(&Asked::default()).await;
    work_off(&mut relay).await;
    other_process.close().await;
    let expected = Found {
        job: JobStatus::Completed,
        delivery: DeliveryStatus::Running,
        can_be_written: true,
    };
    assert_eq!(*found.lock().expect("no panic holds it"), Some(expected));
}

async fn rule_2_no_failure_of_a_handler_reaches_the_job(world: &World) {
    let fail = Probe::always("fail", Deed::Fail);
    let panic = Probe::always("panic", Deed::Panic);
    let hang = Probe::always("hang", Deed::Hang);
    let good = Probe::always("good", Deed::Succeed);
    let limits = Limits { handler_time: Duration::from_millis(50), ..quick() };
    let mut relay = world.relay(registry(&[&fail, &panic, &hang, &good]), limits).await;
    let job = world.completed(&Asked::default()).await;
    work_off(&mut relay).await;

    assert_eq!(world.job(job.id).await, job, "the job is as it was committed");
    let mut ends = Vec::new();
    for handler in ["fail", "panic", "hang", "good"] {
        let delivery = world.delivery(job.id, handler).await;
        ends.push((delivery.status, delivery.failures, delivery.last_error));
    }
    let dead = |error: &str| (DeliveryStatus::Dead, 3, Some(error.to_owned()));
    assert_eq!(
        ends[..3],
        [
            dead("no answer from [redacted]"),
            dead("the handler panicked"),
            dead("the handler did not end within its time limit"),
        ]
    );
    assert_eq!(ends[3].0, DeliveryStatus::Done);
    assert_eq!(hang.dropped(), 3, "no hanging future is left behind");
}

async fn rule_3_the_same_event_twice_has_the_effect_of_once(world: &World) {
    // The effect and its receipt happen; then the attempt is lost before its end is written.
    let probe = Probe::scripted("tell", |_, _| Deed::Once);
    let limits = Limits { lease: Duration::from_millis(300), ..quick() };
    let mut relay = world.relay(registry(&[&probe]), limits.clone()).await;
    let job = world.completed(&Asked::default()).await;
    let claim = {
        let mut tx = world.store.begin().await.expect("a transaction");
        let claims = deliveries::claim(&mut tx, "tell", limits.lease, 1).await.expect("a claim");
        tx.commit().await.expect("a commit");
        claims.into_iter().next().expect("a due delivery")
    };
    let crash = CrashPlan::none();
    let delivery = Delivery::new(&claim, &world.store, &crash);
    assert_eq!(probe.handle(&delivery).await.expect("it tells"), Done::Now);

    work_off(&mut relay).await;
    let delivery = world.delivery(job.id, "tell").await;
    assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Done, 2));
    assert_eq!(probe.calls().len(), 2, "it was asked twice");
    assert_eq!(probe.effects(), 1, "it acted once");
}

async fn rule_3_an_effect_without_its_receipt_is_repeated(world: &World) {
    let probe = Probe::always("tell", Deed::Once);
    let limits = Limits { lease: Duration::from_millis(300), ..quick() };
    let (crash, gate) = CrashPlan::pausing(CrashPoint::BeforeReceipt);
    let mut killed = world.crashing_relay(registry(&[&probe]), limits.clone(), crash).await;
    let job = world.completed(&Asked::default()).await;
    assert_eq!(killed.tick().await.expect("a look"), Outcome::Worked(1));
    gate.reached(PATIENCE).await;
    drop(killed);

    let mut relay = world.relay(registry(&[&probe]), limits).await;
    work_off(&mut relay).await;
    let delivery = world.delivery(job.id, "tell").await;
    assert_eq!((delivery.status, delivery.failures), (DeliveryStatus::Done, 1));
    assert_eq!(probe.effects(), 2, "at least once");
}

async fn rule_4_a_new_handler_is_one_file_and_one_line(world: &World) {
    let bell = RingBell::default();
    let mut registry = Registry::new();
    registry.register(bell.clone()).expect("the first of its name");
    let mut relay = world.relay(registry, quick()).await;
    let completed = world.completed(&Asked::default()).await;
    let failed = world.failed(&Asked::default()).await;
    work_off(&mut relay).await;
    let mut rung = bell.rung();
    rung.sort();
    let mut expected = [format!("{} COMPLETED", completed.id), format!("{} FAILED", failed.id)];
    expected.sort();
    assert_eq!(rung, expected);
}

async fn rule_5_a_hanging_handler_delays_no_other_and_no_other_event(world: &World) {
    let first = Arc::new(Mutex::new(None));
    let stuck = Arc::clone(&first);
    let slow = Probe::scripted("slow", move |job, _| {
        let mut first = stuck.lock().expect("no panic holds it");
        if *first.get_or_insert(job) == job { Deed::Hang } else { Deed::Succeed }
    });
    let quick_one = Probe::always("quick", Deed::Succeed);
    let mut relay = world.relay(registry(&[&slow, &quick_one]), quick()).await;
    let hanging = world.completed(&Asked::default()).await;
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Worked(2));
    slow.called().await;
    quick_one.called().await;

    let next = world.completed(&Asked::default()).await;
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Worked(2));
    slow.called().await;
    quick_one.called().await;
    wait_for(world, |deliveries| {
        deliveries.iter().filter(|delivery| delivery.status == DeliveryStatus::Done).count() == 3
    })
    .await;
    let stuck = world.delivery(hanging.id, "slow").await;
    assert_eq!(stuck.status, DeliveryStatus::Running);
    assert_eq!(world.delivery(next.id, "slow").await.status, DeliveryStatus::Done);
    assert_eq!(slow.dropped(), 0, "it still hangs");
}

async fn rule_6_a_failure_is_retried_and_then_dead_and_can_be_retried_by_hand(world: &World) {
    let probe =
        Probe::scripted("tell", |_, attempt| if attempt <= 3 { Deed::Fail } else { Deed::Succeed });
    let mut relay = world.relay(registry(&[&probe]), quick()).await;
    let job = world.completed(&Asked::default()).await;
    work_off(&mut relay).await;
    let dead = world.delivery(job.id, "tell").await;
    assert_eq!((dead.status, dead.attempts, dead.failures), (DeliveryStatus::Dead, 3, 3));
    assert_eq!(dead.last_error.as_deref(), Some("no answer from [redacted]"));
    assert_eq!(probe.calls(), [(job.id, 1), (job.id, 2), (job.id, 3)]);

    let mut tx = world.store.begin().await.expect("a transaction");
    let retried = deliveries::retry(&mut tx, world.organization, dead.id).await.expect("a retry");
    tx.commit().await.expect("a commit");
    assert_eq!(retried.map(|retried| retried.status), Some(DeliveryStatus::Pending));
    work_off(&mut relay).await;
    let done = world.delivery(job.id, "tell").await;
    assert_eq!((done.status, done.attempts), (DeliveryStatus::Done, 4));
}

async fn rule_6_what_cannot_be_helped_is_dead_at_once(world: &World) {
    let probe = Probe::always("tell", Deed::GiveUp);
    let mut relay = world.relay(registry(&[&probe]), quick()).await;
    let job = world.completed(&Asked::default()).await;
    work_off(&mut relay).await;
    let dead = world.delivery(job.id, "tell").await;
    assert_eq!((dead.status, dead.attempts), (DeliveryStatus::Dead, 1));
    assert_eq!(dead.last_error.as_deref(), Some("nobody is there"));
}

async fn rule_6_a_delivery_waits_out_its_pause(world: &World) {
    let probe = Probe::always("tell", Deed::Fail);
    let hour = Duration::from_hours(1);
    let limits = Limits { delivery_backoff: hour, delivery_backoff_most: hour, ..quick() };
    let mut relay = world.relay(registry(&[&probe]), limits).await;
    let job = world.completed(&Asked::default()).await;
    let before = Utc::now();
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Worked(1));
    relay.settle().await;
    let waiting = world.delivery(job.id, "tell").await;
    assert_eq!((waiting.status, waiting.failures), (DeliveryStatus::Pending, 1));
    assert!(waiting.due_at < before + TimeDelta::hours(1) + TimeDelta::minutes(1));
    // Full jitter may draw next to nothing once in a while; then it is simply due again.
    if waiting.due_at > Utc::now() + TimeDelta::seconds(5) {
        assert_eq!(relay.tick().await.expect("a look"), Outcome::RetryAt(waiting.due_at));
        assert_eq!(probe.calls().len(), 1, "no spin at the head of the line");
    }
}

async fn rule_7_a_later_handler_starts_with_later_events_and_backfill_replays_older_ones(
    world: &World,
) {
    let before = world.completed(&Asked::default()).await;
    let late = Probe::always("late", Deed::Succeed);
    let mut relay = world.relay(registry(&[&late]), quick()).await;
    let after = world.completed(&Asked::default()).await;
    let reconciler = Reconciler::new(world.store.clone(), Duration::from_secs(30));
    assert_eq!(reconciler.tick().await.expect("a look"), 0, "nothing is missing");
    work_off(&mut relay).await;
    assert_eq!(late.calls(), [(after.id, 1)]);

    let mut tx = world.store.begin().await.expect("a transaction");
    let since = Utc::now() - TimeDelta::hours(1);
    let added =
        deliveries::backfill(&mut tx, world.organization, "late", since).await.expect("a backfill");
    tx.commit().await.expect("a commit");
    assert_eq!(added, Some(1));
    work_off(&mut relay).await;
    assert_eq!(late.calls(), [(after.id, 1), (before.id, 1)]);
}

async fn rule_7_the_reconciler_finds_nothing_where_nothing_is_missing(world: &World) {
    let probe = Probe::always("tell", Deed::Succeed);
    let mut relay = world.relay(registry(&[&probe]), quick()).await;
    world.completed(&Asked::default()).await;
    let reconciler = Reconciler::new(world.store.clone(), Duration::from_secs(30));
    assert_eq!(reconciler.tick().await.expect("a look"), 0, "it waits");
    work_off(&mut relay).await;
    assert_eq!(reconciler.tick().await.expect("a look"), 0, "it is done");
    assert_eq!(probe.calls().len(), 1);
}

/// Only `PostgreSQL` lets a test take a row away behind the store's back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_7_the_reconciler_adds_what_is_missing() {
    World::on_postgres(async |world: &World| {
        let probe = Probe::always("tell", Deed::Succeed);
        let mut relay = world.relay(registry(&[&probe]), quick()).await;
        let job = world.completed(&Asked::default()).await;
        world.lose_deliveries().await;
        // An hour ago: later looks do not go back so far.
        world
            .force(
                "UPDATE events SET created_at = created_at - 3600000; \
                 UPDATE handler_events SET registered_at = registered_at - 3600000",
            )
            .await;
        work_off(&mut relay).await;
        assert_eq!(probe.calls(), []);
        let stop = CancellationToken::new();
        let reconciler = Reconciler::new(world.store.clone(), Duration::from_millis(20));
        let running = tokio::spawn(reconciler.run(stop.clone()));
        wait_for(world, |deliveries| deliveries.len() == 1).await;
        stop.cancel();
        running.await.expect("no panic");
        work_off(&mut relay).await;
        assert_eq!(probe.calls(), [(job.id, 1)]);
    })
    .await;
}

async fn rule_8_an_unregistered_handler_leaves_its_deliveries_visible(world: &World) {
    let (gone, stays) =
        (Probe::always("gone", Deed::Succeed), Probe::always("stays", Deed::Succeed));
    world.register(&registry(&[&gone, &stays])).await;
    let mut relay = world.relay(registry(&[&stays]), quick()).await;
    let job = world.completed(&Asked::default()).await;
    work_off(&mut relay).await;
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Idle, "no loop");
    let left = world.delivery(job.id, "gone").await;
    assert_eq!((left.status, left.attempts, left.failures), (DeliveryStatus::Pending, 0, 0));
    assert_eq!(world.delivery(job.id, "stays").await.status, DeliveryStatus::Done);
    assert_eq!(gone.calls(), []);
}

async fn rule_9_the_same_name_twice_is_refused(_world: &World) {
    let mut registry = Registry::new();
    registry.register(Probe::always("tell", Deed::Succeed)).expect("the first");
    let refusal = registry.register(Probe::always("tell", Deed::Fail));
    assert_eq!(refusal, Err(DuplicateHandler { name: "tell" }));
}

/// Looks until the deliveries are as they must become.
pub async fn wait_for(world: &World, holds: impl Fn(&[deliveries::DeliveryView]) -> bool) {
    let looked = tokio::time::timeout(PATIENCE, async {
        while !holds(&world.deliveries(None).await) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(looked.await.is_ok(), "{:#?}", world.deliveries(None).await);
}
