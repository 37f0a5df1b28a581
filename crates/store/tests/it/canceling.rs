//! Requests to cancel, in every status and in races.

use outport_domain::{id::OrganizationId, job::JobStatus};
use outport_store::{
    hints::Topic,
    jobs::{self, CancelOutcome, Finished, RunEnd},
};

use crate::bench::{Bench, HANDLER, abandoned, failed, file_of, new_job};

on_both_engines!(
    a_waiting_job_is_canceled_at_once,
    a_running_job_is_asked_to_stop,
    whatever_an_asked_run_comes_to_is_canceled,
    an_ended_job_stays_as_it_is,
    another_organizations_job_is_not_found,
    cancel_and_complete_end_in_exactly_one,
);

async fn a_waiting_job_is_canceled_at_once(bench: Bench) {
    bench.register(HANDLER, &["export.canceled"]).await;
    let job = bench.submit(&new_job(OrganizationId::new())).await;
    let outcome = bench.cancel(&job).await;
    let CancelOutcome::Canceled(canceled) = outcome else { panic!("{outcome:?}") };
    assert_eq!(canceled, bench.find(&job).await);
    assert_eq!(canceled.status, JobStatus::Canceled);
    assert_eq!(bench.cancel(&job).await, CancelOutcome::Canceled(canceled), "idempotent");
    assert!(bench.claim().await.is_none());
    assert_eq!(bench.told(&job).await, ["export.canceled", "job.failed"]);
    assert_eq!(bench.count("SELECT COUNT(*) FROM deliveries").await, 1);
    bench.assert_counters().await;
}

async fn a_running_job_is_asked_to_stop(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let mut cancels = bench.store.subscribe(Topic::Cancels);
    let outcome = bench.cancel(&claim.job).await;
    let CancelOutcome::Canceling(job) = outcome else { panic!("{outcome:?}") };
    assert_eq!(job, bench.find(&job).await);
    cancels.changed().await.expect("a hint");
    assert_eq!(bench.cancel(&job).await, CancelOutcome::Canceling(job), "idempotent");
    assert_eq!(bench.count("SELECT COUNT(*) FROM events").await, 0, "not canceled yet");
    bench.assert_counters().await;
}

async fn whatever_an_asked_run_comes_to_is_canceled(bench: Bench) {
    for end in ["completed", "failed", "abandoned", "handed back", "canceled"] {
        let claim = bench.running(OrganizationId::new()).await;
        bench.cancel(&claim.job).await;
        let run_end = match end {
            "completed" => RunEnd::Completed(file_of(&claim)),
            "failed" => failed(),
            "abandoned" => abandoned(),
            "handed back" => RunEnd::HandedBack,
            _ => RunEnd::Canceled,
        };
        let finished = bench.finish(&claim.fence, &run_end).await;
        let Finished::Canceled(job) = finished else { panic!("{end}: {finished:?}") };
        assert_eq!(job, bench.find(&job).await);
        assert_eq!((job.file, job.failures), (None, 0), "{end}");
        bench.assert_counters().await;
    }
}

async fn an_ended_job_stays_as_it_is(bench: Bench) {
    let completed = bench.completed(OrganizationId::new()).await;
    assert_eq!(bench.cancel(&completed).await, CancelOutcome::Ended(completed));
    let claim = bench.running(OrganizationId::new()).await;
    bench.finish(&claim.fence, &abandoned()).await;
    let failed = bench.find(&claim.job).await;
    assert_eq!(bench.cancel(&failed).await, CancelOutcome::Ended(failed));
    bench.force("UPDATE jobs SET expires_at = 1 WHERE status = 'COMPLETED'").await;
    let mut tx = bench.store.begin().await.expect("a transaction");
    let expired = jobs::expire_due(&mut tx, 10).await.expect("expired").remove(0);
    tx.commit().await.expect("a commit");
    assert_eq!(bench.cancel(&expired).await, CancelOutcome::Ended(expired));
    bench.assert_counters().await;
}

async fn another_organizations_job_is_not_found(bench: Bench) {
    let job = bench.submit(&new_job(OrganizationId::new())).await;
    let mut tx = bench.store.begin().await.expect("a transaction");
    let outcome = jobs::request_cancel(&mut tx, OrganizationId::new(), job.id).await;
    tx.commit().await.expect("a commit");
    assert_eq!(outcome.expect("an answer"), CancelOutcome::NotFound);
    assert_eq!(bench.find(&job).await, job);
}

async fn cancel_and_complete_end_in_exactly_one(bench: Bench) {
    for _ in 0..20 {
        let claim = bench.running(OrganizationId::new()).await;
        let canceler = {
            let (bench, job) = (bench.clone(), claim.job.clone());
            tokio::spawn(async move { bench.cancel(&job).await })
        };
        let finished = bench.finish(&claim.fence, &RunEnd::Completed(file_of(&claim))).await;
        let outcome = canceler.await.expect("no panic");
        let expected = match (&outcome, &finished) {
            (CancelOutcome::Canceling(_), Finished::Canceled(_)) => JobStatus::Canceled,
            (CancelOutcome::Ended(_), Finished::Completed(_)) => JobStatus::Completed,
            other => panic!("{other:?}"),
        };
        assert_eq!(bench.find(&claim.job).await.status, expected);
    }
    assert_eq!(bench.count("SELECT COUNT(*) FROM events").await, 40);
    bench.assert_counters().await;
}
