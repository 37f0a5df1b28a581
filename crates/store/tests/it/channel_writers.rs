//! Many writers of the same channels: no deadlock, and no gap for who reads meanwhile, whatever
//! happens to the writers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use outport_contract::stream::{self, Channel, ChannelKind, Scope};
use outport_store::{
    Engine, Store, StoreError, Tx,
    channels::{self, NewEvent, Replayed},
};
use uuid::Uuid;

use crate::bench::{self, Bench};

on_both_engines!(a_large_transaction_is_numbered_whole,);

/// Jobs of one application.
fn scopes(count: usize) -> Vec<Scope> {
    let organization = Uuid::now_v7();
    (0..count).map(|_| Scope::of_job(organization, "shop", Uuid::now_v7())).collect()
}

fn append(tx: &mut Tx, scope: &Scope) {
    let event_type = stream::find("job.running").expect("a type of the catalogue");
    tx.append(NewEvent::new(event_type, scope.clone(), "{}".to_owned()));
}

async fn write<'a>(
    store: &Store,
    scopes: impl IntoIterator<Item = &'a Scope>,
) -> Result<(), StoreError> {
    let mut tx = store.begin().await?;
    for scope in scopes {
        append(&mut tx, scope);
    }
    tx.commit().await
}

/// Every channel has all numbers up to its head.
async fn assert_whole(bench: &Bench, rows: i64) {
    let wrong = "SELECT COUNT(*) FROM channels c WHERE head <> \
         (SELECT COUNT(*) FROM channel_events p WHERE p.channel = c.channel) OR head <> \
         (SELECT MAX(sequence) FROM channel_events p WHERE p.channel = c.channel)";
    assert_eq!(bench.count(wrong).await, 0, "channels with gaps");
    assert_eq!(bench.count("SELECT COUNT(*) FROM channel_events").await, rows);
}

async fn a_large_transaction_is_numbered_whole(bench: Bench) {
    let scopes = scopes(700);
    write(&bench.store, &scopes).await.expect("a commit");
    write(&bench.store, scopes.iter().rev()).await.expect("a commit");
    assert_whole(&bench, 4 * 700).await;
    let first = scopes[0].channel(ChannelKind::Application).expect("an application");
    let page = channels::replay(&bench.store, &first, 0, None, 10_000).await.expect("an answer");
    let Replayed::Page(page) = page else { panic!("resync") };
    let jobs = page.events.iter().filter_map(|event| event.stream.job);
    let order = scopes.iter().chain(scopes.iter().rev()).filter_map(|scope| scope.job);
    assert!(jobs.eq(order), "in the order in which they were appended");
}

/// Each of more channels than one statement would take values for, in orders of their own: who
/// locked them in parts, or as they come, would wait for another for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_transactions_over_the_same_channels_do_not_wait_for_each_other() {
    const ROUNDS: usize = 6;
    bench::run(Engine::Postgres, async |bench| {
        let scopes = scopes(400);
        let writers = (0..4).map(|writer| {
            let (store, mut scopes) = (bench.store.clone(), scopes.clone());
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    scopes.rotate_left(97 * (writer + 1));
                    if (writer + round) % 2 == 0 {
                        scopes.reverse();
                    }
                    write(&store, &scopes).await.expect("no deadlock");
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("a writer");
        }
        assert_whole(&bench, 2 * 400 * 4 * ROUNDS as i64).await;
    })
    .await;
}

/// How long the next test goes on; a few hundred transactions in any case.
fn patience() -> Duration {
    let soak = std::env::var_os("OUTPORT_TEST_SOAK").is_some();
    if soak { Duration::from_mins(10) } else { Duration::ZERO }
}

/// Reads on from where it is until nothing more can come, and never meets a gap.
async fn follow(store: Store, channel: Channel, done: Arc<AtomicBool>) -> u64 {
    let mut cursor = 0;
    loop {
        let last = done.load(Ordering::Acquire);
        // Its connection is killed like those of others.
        let Ok(asked) = channels::replay(&store, &channel, cursor, None, 1_000).await else {
            continue;
        };
        let Replayed::Page(page) = asked else { panic!("resync at {cursor}") };
        let numbers = page.events.iter().filter_map(|event| event.sequence);
        let next = cursor + page.events.len() as u64;
        assert!(numbers.eq(cursor + 1..=next), "after {cursor}: {page:?}");
        assert!(
            next == page.head || page.events.len() == 1_000,
            "{next} is not the head: {page:?}"
        );
        cursor = next;
        if last && cursor == page.head {
            return cursor;
        }
    }
}

/// Eight writers, a tenth of their transactions rolled back, and their connections killed under
/// them, while another reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_writers_leave_no_gap_for_who_reads_meanwhile() {
    const TRANSACTIONS: usize = 60;
    bench::run(Engine::Postgres, async |bench| {
        let scopes = scopes(3);
        let channel = scopes[0].channel(ChannelKind::Application).expect("an application");
        let (done, broken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let until = Instant::now() + patience();
        let reader = tokio::spawn(follow(bench.store.clone(), channel, Arc::clone(&done)));
        let writers = (0..8).map(|writer| {
            let (bench, scopes, broken) = (bench.clone(), scopes.clone(), Arc::clone(&broken));
            tokio::spawn(async move {
                let mut committed = 0;
                let mut at = writer;
                while at < writer + TRANSACTIONS || Instant::now() < until {
                    at += 1;
                    let Ok(mut tx) = bench.store.begin().await else { continue };
                    for step in 0..scopes.len() {
                        append(&mut tx, &scopes[(at + step) % scopes.len()]);
                    }
                    if at % 10 == 0 {
                        drop(tx);
                    } else if tx.commit().await.is_ok() {
                        committed += scopes.len() as u64;
                    } else {
                        // It may be committed all the same.
                        broken.fetch_add(scopes.len() as u64, Ordering::Relaxed);
                    }
                    if at % 15 == 0 {
                        kill_one(&bench).await;
                    }
                }
                committed
            })
        });
        let mut committed = 0;
        for writer in writers.collect::<Vec<_>>() {
            committed += writer.await.expect("a writer");
        }
        done.store(true, Ordering::Release);
        let seen = reader.await.expect("the reader");
        let broken = broken.load(Ordering::Relaxed);
        assert!(broken > 0, "no transaction was broken off");
        assert!((committed..=committed + broken).contains(&seen), "{seen} of {committed}");
        assert_whole(&bench, 2 * seen as i64).await;
    })
    .await;
}

/// Ends one of the store's connections that is in a transaction.
async fn kill_one(bench: &Bench) {
    bench
        .force(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'outport' \
             AND xact_start IS NOT NULL ORDER BY random() LIMIT 1",
        )
        .await;
}
