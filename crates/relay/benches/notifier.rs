//! How long a commit takes to reach the subscribers of this process, and what they cost:
//! `cargo bench -p outport-relay --bench notifier`.
//!
//! Needs PostgreSQL where `OUTPORT_TEST_POSTGRES` says, and makes a database of its own there.
//! Prints a line of JSON for each case. A time counts from the call that commits, so it holds the
//! commit itself, its numbering and its flush to the disk. `stalled` has one subscriber more, that
//! takes nothing.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use outport_contract::stream::{self, Channel, Scope};
use outport_relay::{Event, Notifier, NotifierConfig, Subscription};
use outport_store::{Store, StoreConfig, channels::NewEvent};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const SUBSCRIBERS: usize = 1_000;
const EVENTS: usize = 500;
const EVERY: Duration = Duration::from_millis(20);
const IDLE: usize = 10_000;

#[tokio::main]
async fn main() {
    let server = std::env::var("OUTPORT_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
    let name = format!("outport_bench_{}", Uuid::now_v7().simple());
    administer(&server, &format!("CREATE DATABASE {name}")).await;
    let mut url = url::Url::parse(&server).expect("OUTPORT_TEST_POSTGRES is a URL");
    url.set_path(&name);
    let acquire_timeout = Duration::from_secs(10);
    let config = StoreConfig { url: url.into(), max_connections: 5, acquire_timeout };
    let store = Store::connect(&config).await.expect("a store");
    store.migrate().await.expect("the schema");
    let notifier = Notifier::new(store.clone(), NotifierConfig::default());
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (notifier, stop) = (notifier.clone(), stop.clone());
        async move { notifier.run(stop).await }
    });
    for (case, event_type, stalled) in [
        ("immediate", "turn.started", false),
        ("batched", "stage.progress", false),
        ("stalled", "turn.started", true),
    ] {
        latency(&store, &notifier, case, event_type, stalled).await;
    }
    idle(&notifier).await;
    stop.cancel();
    running.await.expect("an end in order");
    store.close().await;
    administer(&server, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
}

async fn administer(server: &str, sql: &str) {
    let mut connection = PgConnection::connect(server).await.expect("PostgreSQL answers");
    connection.execute(sqlx::AssertSqlSafe(sql)).await.expect("a statement");
}

/// When each event was about to be committed, by its number.
type Committed = Arc<[OnceLock<Instant>]>;

async fn latency(store: &Store, notifier: &Notifier, case: &str, event_type: &str, stalled: bool) {
    let scope = Scope::of_job(Uuid::now_v7(), "bench", Uuid::now_v7());
    let channel = Channel::Job(scope.job.expect("it is of a job"));
    let committed: Committed = (0..=EVENTS).map(|_| OnceLock::new()).collect();
    let before = notifier.figures().counts();
    let mut slow = None;
    if stalled {
        slow = Some(notifier.subscribe(&channel).await.expect("a subscription"));
    }
    let waits = Arc::new(Mutex::new(Vec::with_capacity(SUBSCRIBERS * EVENTS)));
    let mut subscribers = JoinSet::new();
    for _ in 0..SUBSCRIBERS {
        let subscription = notifier.subscribe(&channel).await.expect("a subscription");
        subscribers.spawn(listen(subscription, Arc::clone(&committed), Arc::clone(&waits)));
    }
    let event_type = stream::find(event_type).expect("a type of the catalogue");
    let mut ticks = tokio::time::interval(EVERY);
    for committed in &committed[1..] {
        ticks.tick().await;
        let mut tx = store.begin().await.expect("a transaction");
        let data = r#"{"stage":"generate","done":1234567,"total":null}"#.to_owned();
        tx.append(NewEvent::new(event_type, scope.clone(), data));
        committed.set(Instant::now()).expect("once");
        tx.commit().await.expect("a commit");
    }
    while let Some(subscriber) = subscribers.join_next().await {
        subscriber.expect("a subscriber");
    }
    let mut waits = std::mem::take(&mut *waits.lock().expect("nobody panics"));
    assert_eq!(waits.len(), SUBSCRIBERS * EVENTS, "everybody got everything");
    waits.sort_unstable();
    let at = |share: f64| {
        waits[((waits.len() - 1) as f64 * share) as usize].as_micros() as f64 / 1_000.0
    };
    let counts = notifier.figures().counts();
    println!(
        "{{\"case\":\"{case}\",\"subscribers\":{SUBSCRIBERS},\"events\":{EVENTS},\
         \"messages\":{},\"p50Ms\":{},\"p99Ms\":{},\"mostMs\":{}}}",
        counts.batches - before.batches,
        at(0.5),
        at(0.99),
        at(1.0)
    );
    drop(slow);
}

async fn listen(
    mut subscription: Subscription,
    committed: Committed,
    waits: Arc<Mutex<Vec<Duration>>>,
) {
    let mut own = Vec::with_capacity(EVENTS);
    while own.len() < EVENTS {
        let Some(Event::Sent(sent)) = subscription.next().await else { panic!("it goes on") };
        assert!(!sent.is_pointer(), "nobody lags: {sent:?}");
        let now = Instant::now();
        own.extend((sent.after + 1..=sent.sequence).map(|sequence| {
            let committed = committed[sequence as usize].get().expect("it was committed");
            now.saturating_duration_since(*committed)
        }));
    }
    waits.lock().expect("nobody panics").extend(own);
}

/// Each subscribes to a channel of its own.
async fn idle(notifier: &Notifier) {
    let before = resident_kib();
    let mut subscriptions = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        let channel = Channel::Job(Uuid::now_v7());
        subscriptions.push(notifier.subscribe(&channel).await.expect("a subscription"));
    }
    let took = resident_kib() - before;
    println!(
        r#"{{"case":"idle","channels":{IDLE},"MiB":{},"KiBEach":{}}}"#,
        took / 1024,
        took as f64 / IDLE as f64
    );
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a figure");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}
