//! What runs leave behind, and how files and jobs go.

use std::time::Duration;

use outport_domain::{
    id::OrganizationId,
    job::{ExportJob, JobStatus},
};
use outport_store::{
    access::{self, Download},
    deliveries::{self, DeliveryEnd},
    events,
    jobs::{self, RunEnd},
    runs::{self, Leftover},
};

use crate::bench::{Bench, HANDLER, abandoned, failed, file_of, key_of};

on_both_engines!(
    the_object_of_a_running_job_is_nobodys_leftover,
    a_completed_jobs_file_is_never_offered,
    superseded_runs_are_swept_twice,
    a_failed_jobs_object_is_offered_until_swept,
    what_a_slow_store_completes_after_the_sweep_is_swept_soon,
    an_expired_file_is_swept_and_told_of,
    a_deleted_file_is_swept_and_swept_again_at_expiry,
    a_job_that_has_not_ended_keeps_its_file,
    purge_waits_for_sweeps_and_deliveries,
    purge_takes_all_that_belongs_to_a_job,
);

async fn leftovers(bench: &Bench) -> Vec<Leftover> {
    runs::leftovers(&bench.store, 100).await.expect("a look")
}

async fn sweep(bench: &Bench) -> usize {
    let found = leftovers(bench).await;
    for leftover in &found {
        let mut tx = bench.store.begin().await.expect("a transaction");
        runs::record_swept(&mut tx, leftover).await.expect("recorded");
        tx.commit().await.expect("a commit");
    }
    found.len()
}

async fn expire(bench: &Bench) -> Vec<ExportJob> {
    bench.force("UPDATE runs SET sweep_due_at = 1 WHERE sweep_due_at IS NOT NULL").await;
    bench.force("UPDATE jobs SET final_sweep_at = 2 WHERE final_sweep_at IS NOT NULL").await;
    bench.force("UPDATE jobs SET expires_at = 2 WHERE expires_at IS NOT NULL").await;
    let mut tx = bench.store.begin().await.expect("a transaction");
    let expired = jobs::expire_due(&mut tx, 100).await.expect("expired");
    tx.commit().await.expect("a commit");
    expired
}

async fn purge(bench: &Bench) -> u64 {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let purged = jobs::purge(&mut tx, Duration::ZERO, 100).await.expect("purged");
    tx.commit().await.expect("a commit");
    purged
}

async fn delete(bench: &Bench, job: &ExportJob) -> Option<ExportJob> {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let deleted =
        jobs::delete_file(&mut tx, job.scope.organization, job.id).await.expect("an answer");
    tx.commit().await.expect("a commit");
    deleted
}

async fn the_object_of_a_running_job_is_nobodys_leftover(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let key = key_of(&claim);
    jobs::record_object(&bench.store, &claim.fence, &key, Some("upload")).await.expect("recorded");
    bench.expire_leases().await;
    // Even if the note that it is due were wrong.
    bench.force("UPDATE runs SET sweep_due_at = 1").await;
    assert_eq!(leftovers(&bench).await, [], "expired, but nobody has taken it away");
    bench.rescue(&claim.fence).await;
    let upload_id = Some("upload".to_owned());
    assert_eq!(leftovers(&bench).await, [Leftover { job: claim.job.id, run: 1, key, upload_id }]);
}

async fn a_completed_jobs_file_is_never_offered(bench: Bench) {
    bench.completed(OrganizationId::new()).await;
    assert_eq!(leftovers(&bench).await, []);
    bench.force("UPDATE runs SET sweep_due_at = 1").await;
    assert_eq!(leftovers(&bench).await, [], "even if the note that it is due were wrong");
}

async fn superseded_runs_are_swept_twice(bench: Bench) {
    let first = bench.running(OrganizationId::new()).await;
    jobs::record_object(&bench.store, &first.fence, &key_of(&first), None).await.expect("recorded");
    bench.finish(&first.fence, &failed()).await;
    let second = bench.claim().await.expect("the second run");
    let file = file_of(&second);
    jobs::record_object(&bench.store, &second.fence, &file.key, None).await.expect("recorded");
    assert_eq!(leftovers(&bench).await.iter().map(|l| l.run).collect::<Vec<_>>(), [1]);
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(sweep(&bench).await, 0, "swept");
    bench.finish(&second.fence, &RunEnd::Completed(file)).await;
    assert_eq!(sweep(&bench).await, 0, "not before the job's expiry");
    expire(&bench).await;
    let both = leftovers(&bench).await;
    assert_eq!(both.len(), 2, "the late twin's and the expired file: {both:?}");
    assert_eq!(sweep(&bench).await, 2);
    assert_eq!(sweep(&bench).await, 0, "for good");
}

async fn a_failed_jobs_object_is_offered_until_swept(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    jobs::record_object(&bench.store, &claim.fence, &key_of(&claim), None).await.expect("recorded");
    bench.finish(&claim.fence, &abandoned()).await;
    assert_eq!(leftovers(&bench).await.len(), 1);
    assert_eq!(leftovers(&bench).await.len(), 1, "until it is recorded");
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(sweep(&bench).await, 0);
    expire(&bench).await;
    assert_eq!(sweep(&bench).await, 1, "once more");
    assert_eq!(sweep(&bench).await, 0);
}

/// How many minutes are between two sweeps of the only run.
async fn minutes_between(bench: &Bench) -> i64 {
    bench.count("SELECT (sweep_due_at - swept_at) / 60000 FROM runs").await
}

async fn what_a_slow_store_completes_after_the_sweep_is_swept_soon(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    jobs::record_object(&bench.store, &claim.fence, &key_of(&claim), None).await.expect("recorded");
    bench.finish(&claim.fence, &abandoned()).await;
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(minutes_between(&bench).await, 20);
    bench.force("UPDATE runs SET sweep_due_at = 1").await;
    assert_eq!(sweep(&bench).await, 1);
    assert!(minutes_between(&bench).await > 60, "when the job expires");
}

async fn an_expired_file_is_swept_and_told_of(bench: Bench) {
    bench.register("tell", &["export.expired"]).await;
    let job = bench.completed(OrganizationId::new()).await;
    let kept = bench.completed(OrganizationId::new()).await;
    bench
        .force(&format!(
            "UPDATE jobs SET expires_at = 2 WHERE created_at <= {}",
            job.created_at.timestamp_millis()
        ))
        .await;
    let mut tx = bench.store.begin().await.expect("a transaction");
    let expired = jobs::expire_due(&mut tx, 100).await.expect("expired");
    tx.commit().await.expect("a commit");
    assert_eq!(expired, [bench.find(&job).await]);
    assert_eq!(expired[0].status, JobStatus::Expired);
    assert_eq!(bench.find(&kept).await, kept);
    assert_eq!(bench.told(&job).await, ["export.completed", "job.completed", "export.expired"]);
    assert_eq!(bench.count("SELECT COUNT(*) FROM deliveries").await, 1);
    let found = leftovers(&bench).await;
    assert_eq!(found.iter().map(|leftover| leftover.job).collect::<Vec<_>>(), [job.id]);
}

async fn a_deleted_file_is_swept_and_swept_again_at_expiry(bench: Bench) {
    let job = bench.completed(OrganizationId::new()).await;
    let deleted = delete(&bench, &job).await.expect("the job");
    assert_eq!(deleted, bench.find(&job).await);
    assert!(deleted.deleted_at.is_some());
    assert_eq!(delete(&bench, &job).await, Some(deleted), "idempotent");
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(sweep(&bench).await, 0);
    expire(&bench).await;
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(sweep(&bench).await, 0);
    let mut stranger = job;
    stranger.scope.organization = OrganizationId::new();
    assert_eq!(delete(&bench, &stranger).await, None);
}

async fn a_job_that_has_not_ended_keeps_its_file(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    assert_eq!(delete(&bench, &claim.job).await, Some(claim.job));
}

async fn purge_waits_for_sweeps_and_deliveries(bench: Bench) {
    bench.register(HANDLER, &["export.failed"]).await;
    let claim = bench.running(OrganizationId::new()).await;
    jobs::record_object(&bench.store, &claim.fence, &key_of(&claim), None).await.expect("recorded");
    assert_eq!(purge(&bench).await, 0, "it runs");
    bench.finish(&claim.fence, &abandoned()).await;
    assert_eq!(purge(&bench).await, 0, "not swept");
    sweep(&bench).await;
    expire(&bench).await;
    sweep(&bench).await;
    assert_eq!(purge(&bench).await, 0, "not delivered");
    let mut tx = bench.store.begin().await.expect("a transaction");
    let lease = Duration::from_secs(30);
    let claims = deliveries::claim(&mut tx, HANDLER, lease, 1).await.expect("a claim");
    deliveries::finish(&mut tx, &claims[0].fence, &DeliveryEnd::Done).await.expect("done");
    tx.commit().await.expect("a commit");
    let mut tx = bench.store.begin().await.expect("a transaction");
    let kept = jobs::purge(&mut tx, Duration::from_hours(1), 100).await.expect("purged");
    tx.commit().await.expect("a commit");
    assert_eq!(kept, 0, "not old enough");
    assert_eq!(purge(&bench).await, 1);
    bench.assert_counters().await;
}

async fn purge_takes_all_that_belongs_to_a_job(bench: Bench) {
    let organization = OrganizationId::new();
    let job = bench.completed(organization).await;
    bench.completed(OrganizationId::new()).await;
    let event = events::of_job(&bench.store, organization, job.id).await.expect("events").remove(0);
    let mut tx = bench.store.begin().await.expect("a transaction");
    let download = Download {
        id: uuid::Uuid::now_v7(),
        job: job.id,
        organization,
        user: None,
        via: "LINK",
        part: None,
        address: None,
        user_agent: None,
        at: job.created_at,
    };
    access::record_download(&mut tx, &download).await.expect("recorded");
    deliveries::record_receipt(&mut tx, event.id, "h", "", "r").await.expect("recorded");
    tx.commit().await.expect("a commit");
    assert_eq!(purge(&bench).await, 0, "a completed job has a file");
    delete(&bench, &job).await;
    expire(&bench).await;
    sweep(&bench).await;
    assert_eq!(purge(&bench).await, 2);
    for table in ["jobs", "runs", "requesters", "events", "deliveries", "receipts", "downloads"] {
        assert_eq!(bench.count(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
    }
}
