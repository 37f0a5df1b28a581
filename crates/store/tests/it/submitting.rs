//! Submissions: alone, repeated, in crowds.

use std::collections::HashSet;

use outport_domain::{
    id::{JobId, OrganizationId},
    job::JobStatus,
};
use outport_store::{
    StoreError, access, jobs,
    submit::{self, Submitted, Submitter},
};

use crate::bench::{Bench, key, new_job};

on_both_engines!(
    a_job_reads_back_as_it_was_submitted,
    the_same_key_makes_one_job,
    an_expired_key_is_free_again,
    a_full_queue_writes_nothing,
    a_dropped_transaction_leaves_no_trace,
    a_hundred_submissions_make_a_hundred_jobs,
    a_hundred_submissions_with_one_key_make_one_job,
    the_submitter_counts_the_queue_exactly,
    one_poisonous_job_fails_alone,
);

async fn a_job_reads_back_as_it_was_submitted(bench: Bench) {
    let new = new_job(OrganizationId::new());
    let job = bench.submit(&new).await;
    assert_eq!(job, bench.find(&job).await);
    assert_eq!(job.status, JobStatus::Pending);
    assert_eq!((job.run, job.failures), (0, 0));
    assert_eq!(job.caller, new.caller);
    assert_eq!(job.filters, new.filters);
    assert_eq!(job.metadata, new.metadata);
    assert_eq!(job.created_at.timestamp_millis(), new.requested_at.timestamp_millis());
    let requester = access::is_requester(&bench.store, job.id, new.caller.user).await;
    assert!(requester.expect("an answer"));
    let stranger = access::is_requester(&bench.store, job.id, outport_domain::id::Id::new()).await;
    assert!(!stranger.expect("an answer"));
}

async fn the_same_key_makes_one_job(bench: Bench) {
    let first = new_job(OrganizationId::new());
    let mut again = new_job(first.scope.organization);
    again.caller = first.caller.clone();
    let created = bench.try_submit(&first, Some(&key("k", 1))).await.expect("a submission");
    let Submitted::Created(job) = created else { panic!("not created: {created:?}") };
    let repeated = bench.try_submit(&again, Some(&key("k", 1))).await.expect("a submission");
    assert_eq!(repeated, Submitted::Repeated(job));
    let reused = bench.try_submit(&again, Some(&key("k", 2))).await.expect("a submission");
    assert_eq!(reused, Submitted::KeyReused);
    let mut stranger = new_job(OrganizationId::new());
    stranger.caller.user = first.caller.user;
    let other = bench.try_submit(&stranger, Some(&key("k", 2))).await.expect("a submission");
    assert!(matches!(other, Submitted::Created(_)), "a key is its organization's own: {other:?}");
    assert_eq!(bench.count("SELECT COUNT(*) FROM jobs").await, 2);
    bench.assert_counters().await;
}

async fn an_expired_key_is_free_again(bench: Bench) {
    let first = new_job(OrganizationId::new());
    let mut again = new_job(first.scope.organization);
    again.caller = first.caller.clone();
    bench.try_submit(&first, Some(&key("k", 1))).await.expect("a submission");
    bench.force("UPDATE idempotency_keys SET expires_at = 1").await;
    let second = bench.try_submit(&again, Some(&key("k", 2))).await.expect("a submission");
    assert!(matches!(second, Submitted::Created(_)), "{second:?}");
    let third = bench.try_submit(&again, Some(&key("k", 2))).await.expect("a submission");
    assert!(matches!(third, Submitted::Repeated(_)), "{third:?}");
    bench.force("UPDATE idempotency_keys SET expires_at = 1").await;
    let mut tx = bench.store.begin().await.expect("a transaction");
    assert_eq!(access::forget_keys(&mut tx).await.expect("forgotten"), 1);
    tx.commit().await.expect("a commit");
}

async fn a_full_queue_writes_nothing(bench: Bench) {
    let organization = OrganizationId::new();
    let first = new_job(organization);
    for (job, expected) in [(&first, "Created"), (&new_job(organization), "QueueFull")] {
        let mut tx = bench.store.begin().await.expect("a transaction");
        let key = key(&job.id.to_string(), 1);
        let submitted = submit::submit(&mut tx, job, Some(&key), 1).await.expect("an answer");
        tx.commit().await.expect("a commit");
        assert!(format!("{submitted:?}").starts_with(expected), "{submitted:?}");
    }
    assert_eq!(bench.count("SELECT COUNT(*) FROM idempotency_keys").await, 1);
    assert_eq!(bench.count("SELECT COUNT(*) FROM requesters").await, 1);
    bench.assert_counters().await;
    bench.claim().await.expect("the first one");
    let mut tx = bench.store.begin().await.expect("a transaction");
    let submitted = submit::submit(&mut tx, &new_job(organization), None, 1).await;
    assert!(matches!(submitted, Ok(Submitted::Created(_))), "a claim makes room: {submitted:?}");
}

async fn a_dropped_transaction_leaves_no_trace(bench: Bench) {
    let new = new_job(OrganizationId::new());
    let mut tx = bench.store.begin().await.expect("a transaction");
    submit::submit(&mut tx, &new, Some(&key("k", 1)), 10).await.expect("a submission");
    let seen = jobs::find(&bench.store, new.scope.organization, new.id).await;
    assert_eq!(seen.expect("a look"), None, "seen before the commit");
    drop(tx);
    for table in ["jobs", "turns", "requesters", "idempotency_keys"] {
        assert_eq!(bench.count(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
    }
}

async fn a_hundred_submissions_make_a_hundred_jobs(bench: Bench) {
    let submitter = Submitter::start(bench.store.clone(), 1_000);
    let organizations = [OrganizationId::new(), OrganizationId::new(), OrganizationId::new()];
    let tasks = (0..100).map(|i| {
        let submitter = submitter.clone();
        let job = new_job(organizations[i % 3]);
        tokio::spawn(async move { submitter.submit(job, Some(key(&i.to_string(), 1))).await })
    });
    let mut ids = HashSet::new();
    for task in tasks.collect::<Vec<_>>() {
        let answer = task.await.expect("no panic").expect("a submission");
        let Submitted::Created(job) = answer else { panic!("not created: {answer:?}") };
        assert_eq!(bench.find(&job).await, job, "answered before the commit");
        ids.insert(job.id.uuid());
    }
    assert_eq!(ids.len(), 100);
    assert_eq!(bench.count("SELECT COUNT(*) FROM jobs").await, 100);
    bench.assert_counters().await;
}

async fn a_hundred_submissions_with_one_key_make_one_job(bench: Bench) {
    let first = new_job(OrganizationId::new());
    // Two submitters: two processes share no queue, only the database.
    let submitters = [(); 2].map(|()| Submitter::start(bench.store.clone(), 1_000));
    let tasks = (0..100).map(|i| {
        let submitter = submitters[i % 2].clone();
        let mut job = first.clone();
        job.id = JobId::new();
        tokio::spawn(async move { submitter.submit(job, Some(key("same", 1))).await })
    });
    let (mut created, mut ids) = (0, HashSet::new());
    for task in tasks.collect::<Vec<_>>() {
        let (job, is_new) = match task.await.expect("no panic").expect("a submission") {
            Submitted::Created(job) => (job, 1),
            Submitted::Repeated(job) => (job, 0),
            other => panic!("{other:?}"),
        };
        created += is_new;
        ids.insert(job.id.uuid());
    }
    assert_eq!((created, ids.len()), (1, 1));
    assert_eq!(bench.count("SELECT COUNT(*) FROM jobs").await, 1);
    bench.assert_counters().await;
}

async fn the_submitter_counts_the_queue_exactly(bench: Bench) {
    let submitter = Submitter::start(bench.store.clone(), 10);
    let organization = OrganizationId::new();
    let tasks = (0..50).map(|_| {
        let submitter = submitter.clone();
        tokio::spawn(async move { submitter.submit(new_job(organization), None).await })
    });
    let mut created = 0;
    for task in tasks.collect::<Vec<_>>() {
        match task.await.expect("no panic").expect("an answer") {
            Submitted::Created(_) => created += 1,
            Submitted::QueueFull => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(created, 10);
    bench.assert_counters().await;
}

async fn one_poisonous_job_fails_alone(bench: Bench) {
    let submitter = Submitter::start(bench.store.clone(), 1_000);
    let organization = OrganizationId::new();
    let taken = bench.submit(&new_job(organization)).await;
    let tasks = (0..20).map(|i| {
        let submitter = submitter.clone();
        let mut job = new_job(organization);
        if i == 7 {
            job.id = taken.id;
        }
        tokio::spawn(async move { submitter.submit(job, None).await })
    });
    let mut refused = Vec::new();
    for (i, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
        match task.await.expect("no panic") {
            Ok(Submitted::Created(_)) => {}
            Err(StoreError::Refused(_)) => refused.push(i),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, [7]);
    assert_eq!(bench.count("SELECT COUNT(*) FROM jobs").await, 20);
    bench.assert_counters().await;
}
