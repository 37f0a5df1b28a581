//! Transactions that SQLite itself ends, as it does when the disk is full, and those whose beginning
//! nobody waits for.

use std::{
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use outport_domain::id::{OrganizationId, UserId};
use outport_store::{
    Engine, Store, StoreConfig,
    access::{self, Ticket},
};

use crate::bench::{self, Bench, caller, new_job};

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

on_both_engines!(who_gives_up_while_a_transaction_begins_leaves_none_open);

/// What is written next over the same connection is there for all at once.
async fn who_gives_up_while_a_transaction_begins_leaves_none_open(bench: Bench) {
    let config = StoreConfig { max_connections: 1, ..bench.config.clone() };
    let store = Store::connect(&config).await.expect("the store connects");
    let ticket = Ticket {
        caller: caller(OrganizationId::new()),
        owner: UserId::new(),
        credential_expires_at: None,
    };
    for secret in (0..20).map(|number| [number; 32]) {
        let mut tx = bench.store.begin().await.expect("a transaction");
        let life = Duration::from_mins(1);
        access::create_ticket(&mut tx, &ticket, &secret, life).await.expect("a ticket");
        tx.commit().await.expect("a commit");

        {
            let beginning = pin!(store.begin());
            let begun = beginning.poll(&mut Context::from_waker(Waker::noop()));
            assert!(begun.is_pending());
        }
        let taken = access::take_ticket(&store, &secret).await.expect("an answer");
        assert_eq!(taken.as_ref(), Some(&ticket));
        let again = access::take_ticket(&bench.store, &secret).await.expect("nobody is waited for");
        assert_eq!(again, None, "it is taken");
    }
    store.close().await;
}
