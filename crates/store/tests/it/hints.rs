//! Hints: within a process, and between processes on `PostgreSQL`.

use std::time::Duration;

use outport_domain::id::OrganizationId;
use outport_store::{
    Engine, Store,
    hints::Topic,
    submit::{Submitted, Submitter},
};
use tokio::time::timeout;

use crate::bench::{self, Bench, HANDLER, new_job};

on_both_engines!(
    a_commit_wakes_who_waits,
    a_rollback_wakes_nobody,
    the_submitter_ends_with_its_last_clone,
);

const SOON: Duration = Duration::from_secs(10);

async fn a_commit_wakes_who_waits(bench: Bench) {
    bench.register(HANDLER, &["export.completed"]).await;
    let mut jobs = bench.store.subscribe(Topic::Jobs);
    let mut deliveries = bench.store.subscribe(Topic::Deliveries);
    bench.submit(&new_job(OrganizationId::new())).await;
    timeout(SOON, jobs.changed()).await.expect("in time").expect("a hint");
    let claim = bench.claim().await.expect("a job");
    let end = outport_store::jobs::RunEnd::Completed(bench::file_of(&claim));
    bench.finish(&claim.fence, &end).await;
    timeout(SOON, deliveries.changed()).await.expect("in time").expect("a hint");
}

async fn a_rollback_wakes_nobody(bench: Bench) {
    let jobs = bench.store.subscribe(Topic::Jobs);
    let mut tx = bench.store.begin().await.expect("a transaction");
    let new = new_job(OrganizationId::new());
    outport_store::submit::submit(&mut tx, &new, None, 10).await.expect("a submission");
    drop(tx);
    bench.store.begin().await.expect("the connection is back").commit().await.expect("a commit");
    assert!(!jobs.has_changed().expect("the store is open"));
}

async fn the_submitter_ends_with_its_last_clone(bench: Bench) {
    let store = Store::connect(&bench.config).await.expect("the store connects");
    let jobs = store.subscribe(Topic::Jobs);
    let submitter = Submitter::start(store, 10);
    let clone = submitter.clone();
    drop(submitter);
    let answer = clone.submit(new_job(OrganizationId::new()), None).await;
    assert!(matches!(answer, Ok(Submitted::Created(_))), "{answer:?}");
    drop(clone);
    // The task held the last clone of the store: its senders go with it, and so must the
    // listener, or the receiver would wait for ever.
    let mut jobs = jobs;
    let gone = async { while jobs.changed().await.is_ok() {} };
    timeout(SOON, gone).await.expect("nothing keeps the store alive");
}

/// Across processes there are hints on `PostgreSQL` alone.
mod between_processes {
    use super::{
        Bench, Duration, Engine, OrganizationId, SOON, Store, Topic, bench, new_job, timeout,
    };

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_commit_wakes_another_process() {
        bench::run(Engine::Postgres, wakes_another_process).await;
    }

    async fn wakes_another_process(bench: Bench) {
        let other = Store::connect(&bench.config).await.expect("another process");
        let mut jobs = other.subscribe(Topic::Jobs);
        let cancels = other.subscribe(Topic::Cancels);
        bench.submit(&new_job(OrganizationId::new())).await;
        timeout(SOON, jobs.changed()).await.expect("in time").expect("a hint");
        assert!(!cancels.has_changed().expect("open"), "another topic");
        other.close().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_broken_listener_wakes_everybody_and_listens_again() {
        bench::run(Engine::Postgres, listens_again).await;
    }

    async fn listens_again(bench: Bench) {
        let other = Store::connect(&bench.config).await.expect("another process");
        let mut deliveries = other.subscribe(Topic::Deliveries);
        let killed = bench
            .count(
                "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE datname = current_database() AND query LIKE 'LISTEN%'",
            )
            .await;
        assert!(killed >= 1, "the listener is there");
        timeout(SOON, deliveries.changed()).await.expect("in time").expect("something may be lost");
        let mut jobs = other.subscribe(Topic::Jobs);
        let heard = async {
            loop {
                bench.submit(&new_job(OrganizationId::new())).await;
                if timeout(Duration::from_millis(200), jobs.changed()).await.is_ok() {
                    break;
                }
            }
        };
        timeout(SOON, heard).await.expect("it listens again");
        other.close().await;
    }
}
