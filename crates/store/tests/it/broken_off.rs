//! Transactions that SQLite itself ends, as it does when the disk is full.

use outport_domain::id::OrganizationId;
use outport_store::{Engine, Store};

use crate::bench::{self, Bench, new_job};

/// A process that tells the state apart from what one connection believes.
async fn is_known_to_others(bench: &Bench, jobs: i64) {
    assert_eq!(bench.count("SELECT COUNT(*) FROM jobs").await, jobs);
    // Nobody holds the write lock.
    let other = Store::connect(&bench.config).await.expect("another process connects");
    let tx = other.begin().await.expect("it may write");
    tx.commit().await.expect("it commits");
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_lost_after_a_transaction_that_sqlite_ended_itself() {
    bench::run(Engine::Sqlite, async |bench: Bench| {
        for lost in 1..=3 {
            // `ROLLBACK` does what a full disk does: it ends the whole transaction at once.
            bench
                .force(
                    "CREATE TRIGGER full BEFORE INSERT ON jobs \
                     BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END",
                )
                .await;
            let job = new_job(OrganizationId::new());
            for _ in 0..lost {
                bench.try_submit(&job, None).await.expect_err("there is no room");
            }
            bench.force("DROP TRIGGER full").await;
            while bench.claim().await.is_some() {}
            drop(bench.store.begin().await.expect("a transaction"));
            let job = bench.submit(&new_job(OrganizationId::new())).await;
            assert_eq!(bench.find(&job).await.id, job.id);
            is_known_to_others(&bench, lost).await;
        }
    })
    .await;
}
