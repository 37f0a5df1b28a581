//! Real runs, and what the live stream is told of them.

use std::{sync::Arc, time::Duration};

use outport_contract::stream::{self, Channel, StreamEvent};
use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    failure::FailureCode,
    id::JobId,
};
use outport_store::{
    channels::{self, Replayed},
    jobs::{ExpiredLeases, Finished},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    runs::cancel,
    world::{Act, World, until},
};

const PATIENCE: Duration = Duration::from_secs(20);
const STAGES: [&str; 5] = ["resolve", "prepare", "analyze", "generate", "validate"];

/// All of a channel: without a gap, and as the catalogue says.
async fn heard(world: &World, channel: &Channel) -> Vec<StreamEvent> {
    let asked = channels::replay(&world.pipeline.store, channel, 0, None, 10_000).await;
    let Replayed::Page(page) = asked.expect("an answer") else { panic!("resync") };
    assert!(page.events.iter().filter_map(|event| event.sequence).eq(1..=page.head), "{page:?}");
    for event in &page.events {
        let known = stream::find(&event.event_type).expect("a type of the catalogue");
        assert_eq!(known.check(&event.data), Ok(()), "{event:?}");
    }
    page.events
}

fn data(event: &StreamEvent) -> Value {
    serde_json::from_str(event.data.get()).expect("JSON")
}

/// The types, stages with their names; without those that come by the clock.
fn in_short(events: &[StreamEvent]) -> Vec<String> {
    let by_the_clock = ["stage.progress", "log.batch"];
    let told = events.iter().filter(|event| !by_the_clock.contains(&event.event_type.as_str()));
    let short = |event: &StreamEvent| match data(event)["stage"].as_str() {
        Some(stage) => format!("{} {stage}", event.event_type),
        None => event.event_type.clone(),
    };
    told.map(short).collect()
}

async fn told(world: &World, job: JobId) -> Vec<String> {
    in_short(&heard(world, &Channel::Job(job.uuid())).await)
}

/// The beginning of a run, up to the stage that is named, which ends as said.
fn run_up_to(stage: &str, end: &str) -> Vec<String> {
    let mut told = vec!["turn.started".to_owned(), "job.running".to_owned()];
    for name in STAGES {
        told.push(format!("stage.started {name}"));
        let last = name == stage;
        told.push(format!("stage.{} {name}", if last { end } else { "succeeded" }));
        if last {
            break;
        }
    }
    told
}

fn with(begin: &[&str], run: Vec<String>, end: &[&str]) -> Vec<String> {
    let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    [text(begin), run, text(end)].concat()
}

/// What was said to people, with the stage it was said in.
async fn lines(world: &World, job: JobId) -> Vec<(String, String, Option<String>)> {
    let events = heard(world, &Channel::Job(job.uuid())).await;
    let batches = events.iter().filter(|event| event.event_type == "log.batch").map(data);
    let lines = batches.flat_map(|data| data["lines"].as_array().expect("lines").clone());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    lines
        .map(|line| {
            let level = text(&line["level"]).expect("a level");
            (level, text(&line["message"]).expect("a message"), text(&line["stage"]))
        })
        .collect()
}

#[tokio::test]
async fn a_run_tells_its_stages_and_its_end() {
    let world = World::new().await;
    world.source.plays([Act::Rows(3), Act::Rows(2), Act::End(5)]);
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    let end = ["job.succeeded", "usage.recorded", "turn.ended"];
    let expected = with(&["job.queued"], run_up_to("validate", "succeeded"), &end);
    assert_eq!(told(&world, job).await, expected);
    let events = heard(&world, &Channel::Job(job.uuid())).await;
    let of = |name: &str, stage: &str| {
        let found = events.iter().filter(|event| event.event_type == name).map(data);
        found.into_iter().find(|data| data["stage"] == stage).expect("the stage")
    };
    let empty = |stage: &str| json!({"stage": stage, "done": null, "total": null});
    assert_eq!(of("stage.started", "resolve"), empty("resolve"));
    assert_eq!(
        of("stage.started", "generate"),
        json!({"stage": "generate", "done": 0, "total": null})
    );
    let whole = json!({"stage": "generate", "done": 5, "total": 5});
    assert_eq!(of("stage.succeeded", "generate"), whole);
    let organization = world.caller.organization.uuid();
    let usage = heard(&world, &Channel::Organization(organization)).await;
    let bytes = world.stored(job).await.len();
    assert_eq!(usage.iter().map(data).collect::<Vec<_>>(), [json!({"rows": 5, "bytes": bytes})]);
    let application = Channel::Application(organization, "outport".to_owned());
    let application = in_short(&heard(&world, &application).await);
    assert_eq!(application, ["job.queued", "job.running", "job.succeeded"]);
}

#[tokio::test]
async fn a_run_says_to_people_what_they_would_ask() {
    let world = World::new().await;
    world.source.plays([Act::Cells(vec![["=1+1".to_owned(), "b".to_owned()]]), Act::End(1)]);
    let (job, _) = world.export().await;
    let lines = lines(&world, job).await;
    let said = |level: &str, words: &str, stage: Option<&str>| {
        let found = lines.iter().find(|(_, message, _)| message.contains(words));
        let (found_level, _, found_stage) = found.unwrap_or_else(|| panic!("{words}: {lines:?}"));
        assert_eq!((found_level.as_str(), found_stage.as_deref()), (level, stage), "{words}");
    };
    said("info", "Attempt 1 begins.", None);
    said("info", "The snapshot of the source was taken at 20", Some("prepare"));
    said("info", "1 cells that look like formulas were guarded.", Some("validate"));
    said("info", "The file is whole: 1 rows, ", Some("validate"));
}

#[tokio::test]
async fn a_failure_ends_its_stage_and_keeps_the_secrets_of_the_source() {
    const CANARIES: [&str; 4] = ["hunter2", "db.internal", "10.9.8.7", "carla@example.com"];
    let world = World::new().await;
    let words = "connection to server at \"db.internal\" (10.9.8.7) failed: password=hunter2 \
                 Key (email)=(carla@example.com) already exists";
    world.source.plays([Act::Rows(1), Act::FailSaying(FailureCode::SourceQueryFailed, words)]);
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Failed(_)), "{finished:?}");
    let end = ["job.failed", "usage.recorded", "turn.ended"];
    let expected = with(&["job.queued"], run_up_to("generate", "failed"), &end);
    assert_eq!(told(&world, job).await, expected);
    let organization = world.caller.organization.uuid();
    for channel in [
        Channel::Job(job.uuid()),
        Channel::Application(organization, "outport".to_owned()),
        Channel::Organization(organization),
    ] {
        let text = serde_json::to_string(&heard(&world, &channel).await).expect("JSON");
        for canary in CANARIES {
            assert!(!text.contains(canary), "{canary} in {channel}: {text}");
        }
    }
    let (level, message, _) = lines(&world, job).await.pop().expect("a last line");
    assert_eq!(level, "error");
    assert!(message.starts_with("SOURCE_QUERY_FAILED: connection to server at"), "{message}");
}

#[tokio::test]
async fn a_retry_is_told_between_its_runs() {
    let world = World::with(CrashPlan::none(), |limits| limits.job_backoff = Duration::ZERO).await;
    // One row less than was counted: the source was cut off.
    world.source.plays([Act::Rows(2), Act::End(3)]);
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Requeued(_)), "{finished:?}");
    world.source.plays([Act::Rows(2), Act::End(2)]);
    let claim = world.claim().await;
    world.pipeline.run_one(claim, CancellationToken::new()).await;
    let first =
        with(&["job.queued"], run_up_to("generate", "failed"), &["retry.scheduled", "turn.ended"]);
    let end = ["job.succeeded", "usage.recorded", "turn.ended"];
    let second = with(&[], run_up_to("validate", "succeeded"), &end);
    assert_eq!(told(&world, job).await, [first, second].concat());
}

#[tokio::test]
async fn a_limit_is_told_as_such() {
    let world = World::with(CrashPlan::none(), |limits| limits.rows_per_export = 1).await;
    world.source.plays([Act::Rows(2), Act::End(2)]);
    let (job, _) = world.export().await;
    let end = ["job.limit_exceeded", "usage.recorded", "turn.ended"];
    let expected = with(&["job.queued"], run_up_to("generate", "failed"), &end);
    assert_eq!(told(&world, job).await, expected);
}

#[tokio::test]
async fn a_cancel_is_told_whether_the_job_waits_or_runs() {
    let world = World::new().await;
    let waiting = world.request().await;
    cancel(&world, waiting).await;
    assert_eq!(told(&world, waiting).await, ["job.queued", "job.cancelled"]);
    world.source.plays([Act::Rows(2), Act::Hang]);
    let (job, run) = world.start().await;
    until(PATIENCE, "rows are told", async || world.job(job).await.progress.done == 2).await;
    cancel(&world, job).await;
    assert!(matches!(run.await.expect("the run ends"), Finished::Canceled(_)));
    let end = ["job.cancelled", "usage.recorded", "turn.ended"];
    let expected = with(&["job.queued"], run_up_to("generate", "failed"), &end);
    assert_eq!(told(&world, job).await, expected);
}

#[tokio::test]
async fn a_run_tells_where_it_is_while_it_goes_on() {
    let world = World::new().await;
    world.source.plays([Act::Rows(2), Act::Hang]);
    let (job, run) = world.start().await;
    let channel = Channel::Job(job.uuid());
    until(PATIENCE, "the rows are told", async || {
        heard(&world, &channel).await.iter().any(|event| event.event_type == "stage.progress")
    })
    .await;
    let events = heard(&world, &channel).await;
    let progress = events.iter().find(|event| event.event_type == "stage.progress");
    let expected = json!({"stage": "generate", "done": 2, "total": null});
    assert_eq!(data(progress.expect("it is there")), expected);
    let mut begun = with(&["job.queued"], run_up_to("generate", "failed"), &[]);
    begun.pop();
    assert_eq!(in_short(&events), begun);
    cancel(&world, job).await;
    run.await.expect("the run ends");
}

#[tokio::test]
async fn a_lost_workers_stage_is_ended_by_who_takes_over() {
    let (plan, gate) = CrashPlan::pausing(CrashPoint::MidRows);
    let world = World::with(plan, |limits| {
        limits.lease = Duration::ZERO;
        limits.heartbeat = Duration::from_mins(10);
        limits.job_backoff = Duration::ZERO;
    })
    .await;
    world.source.plays([Act::Rows(2), Act::End(2)]);
    let (job, run) = world.start().await;
    gate.reached(PATIENCE).await;
    let in_generate = async || world.job(job).await.progress.stage.is_some();
    until(PATIENCE, "its stage is recorded", in_generate).await;
    let mut leases = ExpiredLeases::default();
    world.pipeline.rescue(&mut leases).await.expect("seen once");
    assert_eq!(world.pipeline.rescue(&mut leases).await.expect("seen twice").len(), 1);
    gate.open();
    assert_eq!(run.await.expect("the run ends"), Finished::Lost);
    let end = ["retry.scheduled", "turn.ended"];
    let expected = with(&["job.queued"], run_up_to("generate", "failed"), &end);
    assert_eq!(told(&world, job).await, expected, "the late run tells nothing");
}

#[tokio::test]
async fn a_job_that_is_handed_back_goes_on_with_its_next_run() {
    let world = Arc::new(World::new().await);
    world.source.plays([Act::Rows(2), Act::Hang]);
    let job = world.request().await;
    let (claim, pipeline, stop) =
        (world.claim().await, world.pipeline.clone(), CancellationToken::new());
    let hand_back = stop.clone();
    let run = tokio::spawn(async move { pipeline.run_one(claim, hand_back).await });
    until(PATIENCE, "rows are told", async || world.job(job).await.progress.done == 2).await;
    stop.cancel();
    assert!(matches!(run.await.expect("the run ends"), Finished::Requeued(_)));
    let end = ["retry.scheduled", "turn.ended"];
    let expected = with(&["job.queued"], run_up_to("generate", "failed"), &end);
    assert_eq!(told(&world, job).await, expected);
    let said = lines(&world, job).await;
    assert!(said.iter().any(|(_, message, _)| message.contains("another one begins again")));
}
