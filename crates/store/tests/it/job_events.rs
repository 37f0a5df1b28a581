//! What a broker is told of every end: one `job.*` event, frozen, in the transaction of the end.

use std::time::Duration;

use outport_contract::job_event::{Integrity, JobEvent};
use outport_domain::{
    failure::{Failure, FailureCode},
    id::OrganizationId,
    job::{ExportJob, FinishedFile, JobStatus, Protection},
};
use outport_store::{
    Engine, deliveries, events,
    jobs::{self, CancelOutcome, Claim, FinishPolicy, Finished, RunEnd},
    telling::Account,
};

use crate::bench::{Bench, failed, file_of, finish_policy, new_job};

on_both_engines!(
    a_completed_job_is_told_byte_for_byte,
    every_way_to_fail_is_told_once_with_its_code,
    a_job_that_is_canceled_before_it_ran_is_told_too,
    what_does_not_end_a_job_is_not_told,
    an_end_that_is_rolled_back_tells_nothing,
    metadata_comes_back_as_it_was_sent,
    nothing_at_all_is_told_as_zero,
    a_later_key_and_what_was_encrypted_are_told,
    a_body_stays_whatever_becomes_of_its_job,
    a_job_whose_event_is_not_delivered_is_not_forgotten,
    a_file_of_before_signatures_is_still_a_file,
);

const BROKER: &str = "publish-job-event";

/// The handler of a broker's events is there.
async fn with_broker(bench: &Bench) {
    bench.register(BROKER, &["job.completed", "job.failed"]).await;
}

/// The body of the one `job.*` event of a job.
async fn told(bench: &Bench, job: &ExportJob) -> String {
    let stored = events::of_job(&bench.store, job.scope.organization, job.id).await;
    let mut stored = stored.expect("events");
    stored.retain(|event| event.event_type.starts_with("job."));
    let [event] = stored.try_into().expect("one event");
    let parsed = JobEvent::parse(event.body.as_bytes()).expect("a body that reads");
    assert_eq!(parsed.event_type().name(), event.event_type);
    assert_eq!(parsed.job_id(), job.id.uuid());
    assert_eq!(parsed.body(), event.body);
    assert_eq!(Some(event.created_at), job.finished_at);
    event.body
}

/// A claimed job that sent this along.
async fn running_with(bench: &Bench, metadata: Option<&str>) -> Claim {
    let mut job = new_job(OrganizationId::new());
    job.metadata = metadata.map(str::to_owned);
    bench.submit(&job).await;
    bench.claim().await.expect("a due job")
}

async fn complete(bench: &Bench, claim: &Claim, file: FinishedFile) -> ExportJob {
    match bench.finish(&claim.fence, &RunEnd::Completed(file)).await {
        Finished::Completed(job) => job,
        other => panic!("not completed: {other:?}"),
    }
}

async fn a_completed_job_is_told_byte_for_byte(bench: Bench) {
    with_broker(&bench).await;
    let metadata = r#"{"source":"payments","correlationId":"settlement-2026-07-13"}"#;
    let first = running_with(&bench, Some(metadata)).await;
    // Only the run that made the file counts.
    bench.finish(&first.fence, &RunEnd::HandedBack).await;
    bench.force("UPDATE jobs SET started_at = started_at - 1000000").await;
    let claim = bench.claim().await.expect("the second run");
    bench.force("UPDATE runs SET started_at = started_at - 8421 WHERE run = 2").await;
    let began_at = bench.count("SELECT started_at FROM runs WHERE run = 2").await;
    let job = complete(&bench, &claim, file_of(&claim)).await;
    let ended_at = job.finished_at.expect("its end");
    let expected = format!(
        r#"{{"jobId":"{}","status":"completed","metadata":{metadata},"result":{{"path":"{}","sizeBytes":1000,"rowCount":12,"format":"csv","hmac":"{hmac}","integrity":{{"algorithm":"HMAC-SHA256","signature":"{hmac}"}},"protection":{{"encrypted":false}}}},"executionTimeMs":{},"completedAt":"{}"}}"#,
        job.id,
        job.file.as_ref().expect("a file").key,
        ended_at.timestamp_millis() - began_at,
        ended_at.format("%Y-%m-%dT%H:%M:%S%.3fZ"),
        hmac = "cd".repeat(32),
    );
    assert_eq!(told(&bench, &job).await, expected);
    assert!(ended_at.timestamp_millis() - began_at >= 8_421);
    assert_eq!(bench.told(&job).await, ["export.completed", "job.completed"]);
    assert_eq!(bench.count("SELECT COUNT(*) FROM deliveries").await, 1);
}

/// Ends a job with this code, in one of the ways that lead to it.
async fn fail(bench: &Bench, code: FailureCode) -> ExportJob {
    let policy = FinishPolicy { job_failures: 1, ..finish_policy() };
    let claim = bench.running(OrganizationId::new()).await;
    let finished = match code {
        FailureCode::Canceled => {
            bench.cancel(&claim.job).await;
            bench.finish(&claim.fence, &RunEnd::Canceled).await
        }
        FailureCode::WorkerLost => {
            bench.expire_leases().await;
            let mut tx = bench.store.begin().await.expect("a transaction");
            let rescued = jobs::rescue(&mut tx, &claim.fence, &policy).await.expect("a rescue");
            tx.commit().await.expect("a commit");
            rescued
        }
        _ => {
            let failure = Failure::new(code, "10.0.0.7:5432 says no");
            bench.finish_with(&claim.fence, &RunEnd::Failed(failure), &policy).await
        }
    };
    match finished {
        Finished::Failed(job) | Finished::Canceled(job) => job,
        other => panic!("{code}: {other:?}"),
    }
}

async fn every_way_to_fail_is_told_once_with_its_code(bench: Bench) {
    with_broker(&bench).await;
    for code in FailureCode::ALL {
        let job = fail(&bench, code).await;
        let (message, export) = match code {
            FailureCode::Canceled => (code.meaning(), "export.canceled"),
            FailureCode::WorkerLost => ("The worker that ran the job was lost.", "export.failed"),
            _ => ("[redacted] says no", "export.failed"),
        };
        let expected = format!(
            r#"{{"jobId":"{}","status":"failed","metadata":{{"source":"order","b":1,"a":2,"error":{{"message":"{message}","code":"{code}"}}}}}}"#,
            job.id
        );
        assert_eq!(told(&bench, &job).await, expected);
        assert_eq!(bench.told(&job).await, [export, "job.failed"]);
        let of_job = format!("WHERE job_id = '{}'", job.id);
        if bench.store.engine() == Engine::Postgres {
            let together = bench
                .count(&format!(
                    "SELECT COUNT(*) FROM events e JOIN jobs j ON j.id = e.job_id \
                     JOIN deliveries d ON d.event_id = e.id {} \
                     AND e.xmin = j.xmin AND d.xmin = j.xmin",
                    of_job.replace("job_id", "e.job_id")
                ))
                .await;
            assert_eq!(together, 1, "{code}: one transaction");
            let deliveries = format!("SELECT COUNT(*) FROM deliveries {of_job}");
            assert_eq!(bench.count(&deliveries).await, 1, "{code}");
        }
    }
    let all = FailureCode::ALL.len() as i64;
    assert_eq!(bench.count("SELECT COUNT(*) FROM deliveries").await, all);
}

async fn a_job_that_is_canceled_before_it_ran_is_told_too(bench: Bench) {
    with_broker(&bench).await;
    let job = bench.submit(&new_job(OrganizationId::new())).await;
    let outcome = bench.cancel(&job).await;
    let CancelOutcome::Canceled(job) = outcome else { panic!("{outcome:?}") };
    let error = r#""error":{"message":"The job was canceled by request.","code":"CANCELED"}}}"#;
    let body = told(&bench, &job).await;
    assert!(body.ends_with(error), "{body}");
    bench.cancel(&job).await;
    assert_eq!(bench.told(&job).await, ["export.canceled", "job.failed"], "asked twice");
    assert_eq!(bench.count("SELECT COUNT(*) FROM deliveries").await, 1);
}

async fn what_does_not_end_a_job_is_not_told(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    bench.finish(&claim.fence, &failed()).await;
    let claim = bench.claim().await.expect("again");
    bench.finish(&claim.fence, &RunEnd::HandedBack).await;
    let claim = bench.claim().await.expect("again");
    bench.expire_leases().await;
    assert!(matches!(bench.rescue(&claim.fence).await, Finished::Requeued(_)));
    assert_eq!(bench.told(&claim.job).await, [""; 0]);
}

async fn an_end_that_is_rolled_back_tells_nothing(bench: Bench) {
    with_broker(&bench).await;
    let claim = bench.running(OrganizationId::new()).await;
    let failure = Failure::new(FailureCode::LimitExceeded, "too many rows");
    for end in [RunEnd::Completed(file_of(&claim)), RunEnd::Failed(failure)] {
        let mut tx = bench.store.begin().await.expect("a transaction");
        let account = Account::default();
        let ended = jobs::finish(&mut tx, &claim.fence, &end, &finish_policy(), &account).await;
        ended.expect("an end");
        drop(tx);
        assert_eq!(bench.find(&claim.job).await.status, JobStatus::Processing);
        assert_eq!(bench.count("SELECT COUNT(*) FROM events").await, 0);
        assert_eq!(bench.count("SELECT COUNT(*) FROM deliveries").await, 0);
    }
}

async fn metadata_comes_back_as_it_was_sent(bench: Bench) {
    for (sent, expected) in [
        (None, r#"{"source":"order"}"#),
        (Some("{}"), r#"{"source":"order"}"#),
        (
            Some(r#"{"b":1.10,"a":12345678901234567890123,"c":{"error": 1e5}}"#),
            r#"{"source":"order","b":1.10,"a":12345678901234567890123,"c":{"error": 1e5}}"#,
        ),
        (Some(r#"{"z":"\u00e9é","source":"me"}"#), r#"{"z":"\u00e9é","source":"me"}"#),
    ] {
        let claim = running_with(&bench, sent).await;
        let job = complete(&bench, &claim, file_of(&claim)).await;
        let body = told(&bench, &job).await;
        assert!(body.contains(&format!(r#""metadata":{expected},"result""#)), "{body}");

        let claim = running_with(&bench, sent).await;
        let failure = Failure::new(FailureCode::LimitExceeded, "too many rows");
        bench.finish(&claim.fence, &RunEnd::Failed(failure)).await;
        let body = told(&bench, &bench.find(&claim.job).await).await;
        let members = expected.strip_suffix('}').expect("an object");
        assert!(body.contains(&format!(r#""metadata":{members},"error""#)), "{body}");
    }
}

async fn nothing_at_all_is_told_as_zero(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let file = FinishedFile { size_bytes: 0, total_rows: 0, ..file_of(&claim) };
    let job = complete(&bench, &claim, file).await;
    let body = told(&bench, &job).await;
    assert!(body.contains(r#""sizeBytes":0,"rowCount":0,"format":"csv""#), "{body}");
}

async fn a_later_key_and_what_was_encrypted_are_told(bench: Bench) {
    for (protection, said) in [
        (
            Protection::Sealed,
            r#"{"encrypted":true,"appliedBy":"adapter","mode":"outport-sealed-v1"}"#,
        ),
        (
            Protection::AdapterManaged,
            r#"{"encrypted":true,"appliedBy":"adapter","mode":"adapter-managed"}"#,
        ),
    ] {
        let claim = bench.running(OrganizationId::new()).await;
        let integrity = Some(Integrity::new("12".repeat(32), 3));
        let file = FinishedFile { integrity, protection, ..file_of(&claim) };
        let job = complete(&bench, &claim, file.clone()).await;
        assert_eq!(bench.find(&job).await.file, Some(file), "kept with the job");
        let body = told(&bench, &job).await;
        let signed = format!(r#""signature":"{}","keyVersion":3}}"#, "12".repeat(32));
        assert!(body.contains(&format!(r#"{signed},"protection":{said}}},"#)), "{body}");
    }
}

/// What the broker's handler is given to publish.
async fn claimed_body(bench: &Bench) -> String {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let claims = deliveries::claim(&mut tx, BROKER, Duration::from_secs(30), 10).await;
    tx.commit().await.expect("a commit");
    let [claim] = claims.expect("claimed").try_into().expect("one delivery");
    claim.event.body
}

async fn a_body_stays_whatever_becomes_of_its_job(bench: Bench) {
    with_broker(&bench).await;
    let job = bench.completed(OrganizationId::new()).await;
    let body = told(&bench, &job).await;
    bench
        .force(
            "UPDATE jobs SET metadata = '{}', size_bytes = 1, total_rows = 2, hmac = NULL, \
             hmac_key_version = NULL, protection = 'adapter-managed', status = 'FAILED', \
             failure_code = 'INTERNAL', file_key = NULL, updated_at = 1",
        )
        .await;
    assert_eq!(claimed_body(&bench).await, body, "changed");
    for table in ["requesters", "runs", "jobs"] {
        bench.force(&format!("DELETE FROM {table}")).await;
    }
    assert_eq!(told(&bench, &job).await, body, "gone");
    bench.make_all_due().await;
    assert_eq!(claimed_body(&bench).await, body, "emitted again without its job");
}

async fn a_job_whose_event_is_not_delivered_is_not_forgotten(bench: Bench) {
    with_broker(&bench).await;
    let claim = bench.running(OrganizationId::new()).await;
    bench.finish(&claim.fence, &crate::bench::abandoned()).await;
    let purge = async || {
        let mut tx = bench.store.begin().await.expect("a transaction");
        let purged = jobs::purge(&mut tx, Duration::ZERO, 100).await.expect("purged");
        tx.commit().await.expect("a commit");
        purged
    };
    assert_eq!(purge().await, 0);
    assert_eq!(bench.told(&claim.job).await, ["export.failed", "job.failed"]);
    bench.force("UPDATE deliveries SET status = 'DONE'").await;
    assert_eq!(purge().await, 1);
}

async fn a_file_of_before_signatures_is_still_a_file(bench: Bench) {
    let job = bench.completed(OrganizationId::new()).await;
    bench.force("UPDATE jobs SET hmac = NULL, hmac_key_version = NULL").await;
    let file = bench.find(&job).await.file.expect("a file");
    assert_eq!(file.integrity, None);
    assert_eq!(file.key, job.file.expect("a file").key);
}
