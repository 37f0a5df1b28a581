//! What the live stream is told of every way that a job goes.

use outport_domain::{
    failure::{Failure, FailureCode},
    id::OrganizationId,
    job::{ExportJob, Progress, Stage},
};
use outport_store::{
    jobs::{self, CancelOutcome, Claim, FinishPolicy, Finished, Hold, RunEnd},
    telling::{Account, Level, StageStep},
};
use serde_json::json;

use crate::{
    bench::{Bench, abandoned, failed, file_of, finish_policy, new_job},
    stream::{OF_APPLICATION, application_of, channel_of, data_of, heard, organization_of, types},
};

on_both_engines!(
    a_job_that_succeeds_is_told_step_by_step,
    a_retry_is_scheduled_and_the_job_goes_on,
    a_failure_says_why_and_no_more,
    a_limit_is_an_end_of_its_own,
    a_job_that_is_canceled_while_it_waits_had_no_turn,
    a_run_that_is_canceled_ends_its_turn,
    a_lost_worker_is_told_by_who_takes_over,
    a_job_that_is_handed_back_is_scheduled_again,
    what_may_have_been_told_is_told_once,
    an_end_that_is_rolled_back_is_not_told,
    every_end_of_a_job_is_told_once,
    a_tenant_hears_nothing_of_another,
);

const BEGIN: [&str; 3] = ["job.queued", "turn.started", "job.running"];
const SUCCESS: [&str; 3] = ["job.succeeded", "usage.recorded", "turn.ended"];
const FAILURE: [&str; 3] = ["job.failed", "usage.recorded", "turn.ended"];
const RETRY: [&str; 2] = ["retry.scheduled", "turn.ended"];

/// What a job's channel has, and what its application's has of it.
async fn assert_told(bench: &Bench, job: &ExportJob, expected: &[&[&str]]) {
    let expected = expected.concat();
    assert_eq!(types(&heard(&bench.store, &channel_of(job)).await), expected);
    let wanted: Vec<_> =
        expected.iter().filter(|name| OF_APPLICATION.contains(name)).copied().collect();
    let application = heard(&bench.store, &application_of(job)).await;
    let own: Vec<_> =
        application.into_iter().filter(|event| event.stream.job == Some(job.id.uuid())).collect();
    assert_eq!(types(&own), wanted);
    let usage = expected.iter().filter(|name| **name == "usage.recorded").count();
    let organization = heard(&bench.store, &organization_of(job)).await;
    assert_eq!(organization.len(), usage, "the organization hears of usage alone");
}

async fn finish_with(bench: &Bench, claim: &Claim, end: &RunEnd, account: &Account) -> Finished {
    let mut tx = bench.store.begin().await.expect("a transaction");
    let finished = jobs::finish(&mut tx, &claim.fence, end, &finish_policy(), account).await;
    tx.commit().await.expect("a commit");
    finished.expect("an end")
}

fn in_stage(stage: Stage) -> Progress {
    Progress { stage: Some(stage), ..Progress::default() }
}

async fn a_job_that_succeeds_is_told_step_by_step(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let mut account = Account::default();
    account.stage(StageStep::Started, &in_stage(Stage::Prepare));
    account.line(Level::Info, Some(Stage::Prepare), "postgres://ana:secret@10.0.0.7/db is open");
    let generate =
        Progress { done: 7, total: Some(10), total_is_estimate: true, ..in_stage(Stage::Generate) };
    account.stage(StageStep::Progress, &generate);
    let outgoing = account.outgoing();
    let hold = jobs::record_progress(&bench.store, &claim.fence, &generate, &outgoing).await;
    assert_eq!(hold.expect("an answer"), Hold::Held);
    account.told(&outgoing);
    assert!(account.is_empty());
    account.stage(StageStep::Succeeded, &in_stage(Stage::Validate));
    let end = RunEnd::Completed(file_of(&claim));
    finish_with(&bench, &claim, &end, &account.outgoing()).await;
    let run = ["stage.started", "stage.progress", "log.batch", "stage.succeeded"];
    assert_told(&bench, &claim.job, &[&BEGIN, &run, &SUCCESS]).await;

    let events = heard(&bench.store, &channel_of(&claim.job)).await;
    assert_eq!(data_of(&events, "job.queued"), json!({"state": "queued"}));
    assert_eq!(data_of(&events, "turn.started"), json!({}));
    assert_eq!(data_of(&events, "job.running"), json!({"state": "running", "attempt": 1}));
    let started = json!({"stage": "prepare", "done": null, "total": null});
    assert_eq!(data_of(&events, "stage.started"), started);
    let progress = json!({"stage": "generate", "done": 7, "total": 10, "totalIsEstimate": true});
    assert_eq!(data_of(&events, "stage.progress"), progress);
    let line = &data_of(&events, "log.batch")["lines"][0];
    assert_eq!((&line["level"], &line["stage"]), (&json!("info"), &json!("prepare")));
    assert_eq!(line["message"], "[redacted] is open");
    assert_eq!(data_of(&events, "job.succeeded"), json!({"state": "succeeded"}));
    assert_eq!(data_of(&events, "usage.recorded"), json!({"rows": 12, "bytes": 1000}));
    assert_eq!(data_of(&events, "turn.ended"), json!({}));
}

async fn a_retry_is_scheduled_and_the_job_goes_on(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let Finished::Requeued(job) = bench.finish(&claim.fence, &failed()).await else {
        panic!("not requeued")
    };
    assert_told(&bench, &job, &[&BEGIN, &RETRY]).await;
    let events = heard(&bench.store, &channel_of(&job)).await;
    let at = job.due_at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
    let retry = json!({"module": "export", "attempt": 2, "at": at, "code": "SOURCE_UNREACHABLE"});
    assert_eq!(data_of(&events, "retry.scheduled"), retry);
    let again = bench.claim().await.expect("the second run");
    bench.finish(&again.fence, &RunEnd::Completed(file_of(&again))).await;
    assert_told(&bench, &job, &[&BEGIN, &RETRY, &BEGIN[1..], &SUCCESS]).await;
    let events = heard(&bench.store, &channel_of(&job)).await;
    let second = json!({"state": "running", "attempt": 2}).to_string();
    assert_eq!(events[6].data.get(), second);
}

async fn a_failure_says_why_and_no_more(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let failure = Failure::new(
        FailureCode::SourceQueryFailed,
        "password=hunter2 Key (email)=(ana@example.com) already exists at 10.0.0.7:5432",
    );
    bench.finish(&claim.fence, &RunEnd::Failed(failure)).await;
    assert_told(&bench, &claim.job, &[&BEGIN, &FAILURE]).await;
    let events = heard(&bench.store, &channel_of(&claim.job)).await;
    let data = data_of(&events, "job.failed");
    assert_eq!((&data["state"], &data["code"]), (&json!("failed"), &json!("SOURCE_QUERY_FAILED")));
    let message = data["message"].as_str().expect("a message");
    for secret in ["hunter2", "ana@example.com", "10.0.0.7"] {
        assert!(!message.contains(secret), "{message}");
    }
    assert!(message.contains("already exists"), "{message}");
    assert_eq!(data_of(&events, "usage.recorded"), json!({"rows": 0, "bytes": 0}));
}

async fn a_limit_is_an_end_of_its_own(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let failure = Failure::new(FailureCode::LimitExceeded, "too many rows");
    bench.finish(&claim.fence, &RunEnd::Failed(failure)).await;
    let end = ["job.limit_exceeded", "usage.recorded", "turn.ended"];
    assert_told(&bench, &claim.job, &[&BEGIN, &end]).await;
    let events = heard(&bench.store, &channel_of(&claim.job)).await;
    let data =
        json!({"state": "limit_exceeded", "code": "LIMIT_EXCEEDED", "message": "too many rows"});
    assert_eq!(data_of(&events, "job.limit_exceeded"), data);
}

async fn a_job_that_is_canceled_while_it_waits_had_no_turn(bench: Bench) {
    let job = bench.submit(&new_job(OrganizationId::new())).await;
    for _ in 0..2 {
        assert!(matches!(bench.cancel(&job).await, CancelOutcome::Canceled(_)));
        assert_told(&bench, &job, &[&["job.queued", "job.cancelled"]]).await;
    }
}

async fn a_run_that_is_canceled_ends_its_turn(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    bench.cancel(&claim.job).await;
    assert_told(&bench, &claim.job, &[&BEGIN]).await;
    // Whatever it came to meanwhile.
    bench.finish(&claim.fence, &RunEnd::Completed(file_of(&claim))).await;
    let end = ["job.cancelled", "usage.recorded", "turn.ended"];
    assert_told(&bench, &claim.job, &[&BEGIN, &end]).await;
    let events = heard(&bench.store, &channel_of(&claim.job)).await;
    assert_eq!(data_of(&events, "job.cancelled"), json!({"state": "cancelled"}));
    assert_eq!(data_of(&events, "usage.recorded"), json!({"rows": 0, "bytes": 0}));
}

async fn a_lost_worker_is_told_by_who_takes_over(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let mut account = Account::default();
    account.stage(StageStep::Started, &in_stage(Stage::Generate));
    let (store, progress) = (&bench.store, in_stage(Stage::Generate));
    jobs::record_progress(store, &claim.fence, &progress, &account.outgoing()).await.expect("told");
    bench.expire_leases().await;
    assert!(matches!(bench.rescue(&claim.fence).await, Finished::Requeued(_)));
    let lost = ["stage.started", "stage.failed", "log.batch", "retry.scheduled", "turn.ended"];
    assert_told(&bench, &claim.job, &[&BEGIN, &lost]).await;
    let events = heard(&bench.store, &channel_of(&claim.job)).await;
    let retry = data_of(&events, "retry.scheduled");
    assert_eq!((&retry["attempt"], &retry["code"]), (&json!(2), &json!("WORKER_LOST")));

    let again = bench.claim().await.expect("the second run");
    bench.expire_leases().await;
    let policy = FinishPolicy { job_failures: 2, ..finish_policy() };
    let mut tx = bench.store.begin().await.expect("a transaction");
    let rescued = jobs::rescue(&mut tx, &again.fence, &policy).await.expect("a rescue");
    tx.commit().await.expect("a commit");
    assert!(matches!(rescued, Finished::Failed(_)), "{rescued:?}");
    // It had not come to a stage.
    let expected = [&BEGIN[..], &lost, &BEGIN[1..], &["log.batch"], &FAILURE];
    assert_told(&bench, &claim.job, &expected).await;
}

async fn a_job_that_is_handed_back_is_scheduled_again(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    bench.finish(&claim.fence, &RunEnd::HandedBack).await;
    assert_told(&bench, &claim.job, &[&BEGIN, &RETRY]).await;
    let events = heard(&bench.store, &channel_of(&claim.job)).await;
    assert_eq!(data_of(&events, "retry.scheduled")["code"], json!(null), "it is no failure");
}

async fn what_may_have_been_told_is_told_once(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let (mut account, progress) = (Account::default(), in_stage(Stage::Resolve));
    account.stage(StageStep::Started, &progress);
    let outgoing = account.outgoing();
    jobs::record_progress(&bench.store, &claim.fence, &progress, &outgoing).await.expect("told");
    // Its answer was lost on the way.
    account.stage(StageStep::Succeeded, &progress);
    let outgoing = account.outgoing();
    jobs::record_progress(&bench.store, &claim.fence, &progress, &outgoing).await.expect("told");
    account.line(Level::Info, None, "the end");
    finish_with(&bench, &claim, &RunEnd::Completed(file_of(&claim)), &account.outgoing()).await;
    let run = ["stage.started", "stage.succeeded", "log.batch"];
    assert_told(&bench, &claim.job, &[&BEGIN, &run, &SUCCESS]).await;
}

async fn an_end_that_is_rolled_back_is_not_told(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let end = RunEnd::Completed(file_of(&claim));
    let mut tx = bench.store.begin().await.expect("a transaction");
    let (policy, account) = (finish_policy(), Account::default());
    jobs::finish(&mut tx, &claim.fence, &end, &policy, &account).await.expect("an end");
    drop(tx);
    assert_told(&bench, &claim.job, &[&BEGIN]).await;
    bench.finish(&claim.fence, &end).await;
    assert_told(&bench, &claim.job, &[&BEGIN, &SUCCESS]).await;
}

async fn every_end_of_a_job_is_told_once(bench: Bench) {
    let claim = bench.running(OrganizationId::new()).await;
    let ends = (0..4).map(|_| {
        let (bench, claim) = (bench.clone(), claim.clone());
        tokio::spawn(async move { bench.finish(&claim.fence, &abandoned()).await })
    });
    for end in ends.collect::<Vec<_>>() {
        end.await.expect("no panic");
    }
    assert_told(&bench, &claim.job, &[&BEGIN, &FAILURE]).await;
}

async fn a_tenant_hears_nothing_of_another(bench: Bench) {
    let claims = [(); 2].map(|()| OrganizationId::new());
    let mut ended = Vec::new();
    for organization in claims {
        let claim = bench.running(organization).await;
        bench.finish(&claim.fence, &RunEnd::Completed(file_of(&claim))).await;
        ended.push(claim.job);
    }
    for (own, other) in [(&ended[0], &ended[1]), (&ended[1], &ended[0])] {
        for channel in [channel_of(own), application_of(own), organization_of(own)] {
            let text = serde_json::to_string(&heard(&bench.store, &channel).await).expect("JSON");
            assert!(text.contains(&own.scope.organization.to_string()));
            for foreign in [other.scope.organization.to_string(), other.id.to_string()] {
                assert!(!text.contains(&foreign), "{channel}: {text}");
            }
        }
    }
}
