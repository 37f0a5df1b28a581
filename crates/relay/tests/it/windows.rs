//! The rules of batch handlers, each on both stores: many at once, one transaction for their
//! ends, never dead.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    id::JobId,
    limits::Limits,
};
use outport_relay::{
    BatchHandler, HandlerError, Outcome, Reconciler, Registry, Verdict, handlers::PublishJobEvent,
};
use outport_store::deliveries::{self, DeliveryClaim, DeliveryStatus};

use crate::{
    exchange::Exchange,
    publishing::{config, keys},
    world::{Asked, PATIENCE, World, on_both_stores, quick, work_off},
};

on_both_stores![
    a_window_is_claimed_at_once_and_every_delivery_ends_as_its_verdict_says,
    a_delivery_of_a_batch_is_never_dead,
    attempts_that_took_their_process_with_them_do_not_end_it,
    a_panic_fails_the_window_alone,
    a_hang_fails_the_window_alone,
    nothing_is_claimed_while_nobody_is_there,
    a_window_that_was_told_and_not_recorded_is_told_again,
    a_stop_hands_back_a_window,
    leases_of_a_window_are_renewed,
];

type Script = dyn Fn(&DeliveryClaim) -> Verdict + Send + Sync;

/// A batch handler under a test's control; its clones share what they remember.
#[derive(Clone)]
struct Tell {
    script: Arc<Script>,
    windows: Arc<Mutex<Vec<Vec<JobId>>>>,
    is_ready: Arc<AtomicBool>,
    hangs: bool,
}

impl Tell {
    fn scripted(script: impl Fn(&DeliveryClaim) -> Verdict + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(script),
            windows: Arc::default(),
            is_ready: Arc::new(AtomicBool::new(true)),
            hangs: false,
        }
    }

    fn windows(&self) -> Vec<Vec<JobId>> {
        self.windows.lock().expect("no panic holds it").clone()
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register_batch(self.clone()).expect("the first");
        registry
    }
}

#[async_trait]
impl BatchHandler for Tell {
    fn name(&self) -> &'static str {
        "tell"
    }

    fn event_types(&self) -> &'static [&'static str] {
        &["export.completed"]
    }

    fn window(&self) -> usize {
        4
    }

    fn is_ready(&self) -> bool {
        self.is_ready.load(SeqCst)
    }

    async fn handle(&self, window: &[DeliveryClaim]) -> Vec<Verdict> {
        let jobs = window.iter().map(|claim| claim.event.job).collect();
        self.windows.lock().expect("no panic holds it").push(jobs);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        window.iter().map(|claim| (self.script)(claim)).collect()
    }
}

fn retry() -> Verdict {
    Verdict::Retry {
        error: HandlerError::retry("no answer from 10.0.0.7:5672"),
        most: Duration::from_millis(1),
    }
}

async fn completed(world: &World, jobs: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..jobs {
        ids.push(world.completed(&Asked::default()).await.id);
    }
    ids
}

async fn a_window_is_claimed_at_once_and_every_delivery_ends_as_its_verdict_says(world: &World) {
    let jobs: Arc<Mutex<Vec<JobId>>> = Arc::default();
    let known = Arc::clone(&jobs);
    let tell = Tell::scripted(move |claim| {
        let jobs = known.lock().expect("no panic holds it");
        match jobs.iter().position(|job| *job == claim.event.job) {
            Some(1) => Verdict::DoneAs("nobody-took-it"),
            Some(2) => Verdict::Retry {
                error: HandlerError::retry("no answer from 10.0.0.7:5672"),
                most: Duration::from_hours(1),
            },
            _ => Verdict::Done,
        }
    });
    let mut relay = world.relay(tell.registry(), quick()).await;
    *jobs.lock().expect("no panic holds it") = completed(world, 6).await;
    let jobs = jobs.lock().expect("no panic holds it").clone();
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Worked(4));
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Worked(2), "beside the first");
    relay.settle().await;
    assert_eq!(tell.windows().iter().map(Vec::len).sum::<usize>(), 6);
    for (number, job) in jobs.iter().enumerate() {
        let delivery = world.delivery(*job, "tell").await;
        let receipt = deliveries::receipt(&world.store, delivery.event.id, "tell", "").await;
        let receipt = receipt.expect("an answer");
        let seen = (delivery.status, delivery.failures, delivery.last_error, receipt);
        let expected = match number {
            1 => (DeliveryStatus::Done, 0, None, Some("nobody-took-it".to_owned())),
            2 => {
                let error = "no answer from [redacted]".to_owned();
                (DeliveryStatus::Pending, 1, Some(error), None)
            }
            _ => (DeliveryStatus::Done, 0, None, None),
        };
        assert_eq!(seen, expected, "the job number {number}");
        assert_eq!(delivery.finished_at.is_some(), number != 2);
    }
}

async fn a_delivery_of_a_batch_is_never_dead(world: &World) {
    let tell = Tell::scripted(|claim| if claim.failures < 40 { retry() } else { Verdict::Done });
    let limits = Limits { delivery_attempts: 2, ..quick() };
    let mut relay = world.relay(tell.registry(), limits).await;
    let job = completed(world, 1).await[0];
    work_off(&mut relay).await;
    let done = world.delivery(job, "tell").await;
    assert_eq!((done.status, done.failures), (DeliveryStatus::Done, 40));
}

async fn attempts_that_took_their_process_with_them_do_not_end_it(world: &World) {
    let tell = Tell::scripted(|_| Verdict::Done);
    let limits = Limits { delivery_attempts: 2, ..quick() };
    let mut relay = world.relay(tell.registry(), limits).await;
    let jobs = completed(world, 2).await;
    for _ in 0..5 {
        let claims = tokio::time::timeout(PATIENCE, async {
            loop {
                let mut tx = world.store.begin().await.expect("a transaction");
                let lease = Duration::from_millis(1);
                let claims = deliveries::claim(&mut tx, "tell", lease, 9).await.expect("a claim");
                tx.commit().await.expect("a commit");
                if claims.len() == 2 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        claims.await.expect("due in time");
    }
    work_off(&mut relay).await;
    for job in jobs {
        let done = world.delivery(job, "tell").await;
        assert_eq!((done.status, done.failures), (DeliveryStatus::Done, 5));
    }
}

async fn a_panic_fails_the_window_alone(world: &World) {
    let tell = Tell::scripted(|_| panic!("a test's panic"));
    fails_with(world, tell, quick(), "the handler panicked").await;
}

async fn a_hang_fails_the_window_alone(world: &World) {
    let tell = Tell { hangs: true, ..Tell::scripted(|_| Verdict::Done) };
    let limits = Limits { handler_time: Duration::from_millis(50), ..quick() };
    fails_with(world, tell, limits, "the handler did not end within its time limit").await;
}

async fn fails_with(world: &World, tell: Tell, limits: Limits, told: &str) {
    let mut relay = world.relay(tell.registry(), limits).await;
    let job = completed(world, 1).await[0];
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Worked(1));
    relay.settle().await;
    let delivery = world.delivery(job, "tell").await;
    assert_eq!(
        (delivery.status, delivery.failures, delivery.last_error.as_deref()),
        (DeliveryStatus::Pending, 1, Some(told))
    );
}

async fn nothing_is_claimed_while_nobody_is_there(world: &World) {
    let tell = Tell::scripted(|_| Verdict::Done);
    tell.is_ready.store(false, SeqCst);
    let mut relay = world.relay(tell.registry(), quick()).await;
    let job = completed(world, 1).await[0];
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Idle, "no spin");
    let waiting = world.delivery(job, "tell").await;
    assert_eq!((waiting.attempts, waiting.failures), (0, 0));
    tell.is_ready.store(true, SeqCst);
    work_off(&mut relay).await;
    let done = world.delivery(job, "tell").await;
    assert_eq!((done.status, done.attempts), (DeliveryStatus::Done, 1));
}

async fn a_window_that_was_told_and_not_recorded_is_told_again(world: &World) {
    let tell = Tell::scripted(|_| Verdict::Done);
    let limits = Limits { lease: Duration::from_millis(300), ..quick() };
    let (crash, gate) = CrashPlan::pausing(CrashPoint::AfterConfirm);
    let mut killed = world.crashing_relay(tell.registry(), limits.clone(), crash).await;
    let jobs = completed(world, 3).await;
    assert_eq!(killed.tick().await.expect("a look"), Outcome::Worked(3));
    gate.reached(PATIENCE).await;
    drop(killed);
    let mut relay = world.relay(tell.registry(), limits).await;
    work_off(&mut relay).await;
    for job in &jobs {
        let delivery = world.delivery(*job, "tell").await;
        assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Done, 2));
    }
    assert_eq!(tell.windows().concat().len(), 6, "at least once");
}

async fn a_stop_hands_back_a_window(world: &World) {
    let tell = Tell { hangs: true, ..Tell::scripted(|_| Verdict::Done) };
    let limits = Limits { drain: Duration::from_millis(50), ..quick() };
    let relay = world.relay(tell.registry(), limits).await;
    let jobs = completed(world, 2).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn(relay.run(stop.clone()));
    let told = async {
        while tell.windows().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("told in time");
    stop.cancel();
    tokio::time::timeout(PATIENCE, running).await.expect("it stops in time").expect("no panic");
    for job in jobs {
        let back = world.delivery(job, "tell").await;
        assert_eq!((back.status, back.failures), (DeliveryStatus::Pending, 0));
    }
}

async fn leases_of_a_window_are_renewed(world: &World) {
    let tell = Tell { hangs: true, ..Tell::scripted(|_| Verdict::Done) };
    // The handler takes two leases and more; a lease is long enough for a busy machine.
    let limits = Limits {
        lease: Duration::from_secs(2),
        heartbeat: Duration::from_millis(100),
        handler_time: Duration::from_secs(5),
        ..quick()
    };
    let mut relay = world.relay(tell.registry(), limits.clone()).await;
    let mut other = world.relay(tell.registry(), limits).await;
    completed(world, 3).await;
    assert_eq!(relay.tick().await.expect("a look"), Outcome::Worked(3));
    let stolen = async {
        while !matches!(other.tick().await.expect("a look"), Outcome::Worked(_)) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = relay.settle() => {}
        () = stolen => panic!("another relay got the deliveries of a living one"),
    }
}

/// The whole way on a real broker; the reconciler adds what a commit missed, and what was not
/// published is not purged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_events_without_a_delivery_are_published_after_all() {
    World::on_postgres(async |world: &World| {
        let exchange = Exchange::declared().await;
        let inbox = exchange.bind(&["job.*"]).await;
        let mut registry = Registry::new();
        let handler = PublishJobEvent::new(config(&exchange), keys(), Arc::default());
        registry.register_batch(handler).expect("the first");
        let mut relay = world.relay(registry, quick()).await;
        let jobs =
            [world.completed(&Asked::default()).await.id, world.failed(&Asked::default()).await.id];
        world.lose_deliveries().await;
        let reconciler = Reconciler::new(world.store.clone(), Duration::from_secs(30));
        assert_eq!(reconciler.tick().await.expect("a look"), 2);
        assert_eq!(world.purge().await, 0, "what was not published stays");
        let published = async {
            loop {
                relay.tick().await.expect("a look");
                relay.settle().await;
                let mut states = Vec::new();
                for job in jobs {
                    states.push(world.delivery(job, PublishJobEvent::NAME).await.status);
                }
                if states == [DeliveryStatus::Done; 2] {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, published).await.expect("published in time");
        let mut got: Vec<_> = inbox
            .take()
            .await
            .into_iter()
            .map(|message| (message.routing_key.clone(), message.header("ce-subject").to_owned()))
            .collect();
        got.sort();
        let expected = [("job.completed", jobs[0]), ("job.failed", jobs[1])];
        assert_eq!(got, expected.map(|(key, job)| (key.to_owned(), job.to_string())));
    })
    .await;
}
