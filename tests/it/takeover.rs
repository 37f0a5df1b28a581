//! Workers that are lost, stopped or too late.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outport_domain::crash::CrashPoint;
use outport_store::jobs::Finished;

use crate::harness::{
    Api, PATIENCE, World, for_each,
    frozen::Twin,
    shop::{self, expected, expected_slow},
    until,
    world::{LEASE, ORDERS},
};

/// Rows of a slow export and how long each takes: about four seconds in all.
const SLOW: (u32, u32) = (400, 10);

async fn slow_world() -> (World, Api) {
    let world = World::postgres().await;
    shop::add_slow(world.state.postgres(), SLOW.0, SLOW.1).await;
    let api = world.api().await;
    (world, api)
}

async fn is_complete(world: &World, api: &Api, job: &str) {
    let job = api.job_is(job, "COMPLETED").await;
    let key = job["fileKey"].as_str().expect("a key");
    world.settled().await;
    assert_eq!(world.objects(), [key], "one object, the one that the job names");
    assert_eq!(String::from_utf8(world.object(key)).expect("UTF-8"), expected_slow(SLOW.0));
    assert_eq!(world.scratch(), [""; 0], "nothing is left of unfinished uploads");
}

#[tokio::test]
async fn a_killed_workers_job_is_taken_over_within_two_leases() {
    let (world, api) = slow_world().await;
    let mut first = world.worker();
    let job = api.export("slow").await;
    api.rows_have_come(&job).await;
    let second = world.worker();
    until("the second worker is up", PATIENCE, async || {
        second.log().contains("starting").then_some(())
    })
    .await;
    first.kill();
    let killed = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_millis();
    is_complete(&world, &api, &job).await;
    let started = world.state.value("SELECT started_at FROM runs WHERE run = 2").await;
    let started: u128 = started.parse().expect("milliseconds");
    // Slack for a machine that is busy with other tests.
    let limit = (2 * LEASE + Duration::from_millis(1_500)).as_millis();
    assert!(started > killed, "the first one had it until it died");
    assert!(started - killed <= limit, "taken over after {} ms", started - killed);
    let text = world.describe().await;
    assert!(text.starts_with("job: COMPLETED, run 2, failures 1, rows 400"), "{text}");
}

#[tokio::test]
async fn a_stopped_worker_that_wakes_up_too_late_writes_nothing() {
    let (world, api) = slow_world().await;
    let mut late = world.worker();
    let job = api.export("slow").await;
    api.rows_have_come(&job).await;
    late.signal("STOP");
    let _second = world.worker();
    is_complete(&world, &api, &job).await;
    let before = world.describe().await;
    late.signal("CONT");
    until("the late one has noticed", PATIENCE, async || {
        assert!(late.ended().is_none(), "it lives on:\n{}", late.log());
        // By its lease; or at its end, where it first finds that nothing came for too long.
        let words = ["the lease is lost", r#"outcome="LOST""#];
        words.iter().any(|word| late.log().contains(word)).then_some(())
    })
    .await;
    world.settled().await;
    assert_eq!(world.describe().await, before);
    is_complete(&world, &api, &job).await;
}

/// The first worker is frozen at the point, loses its lease, and goes on when the job is done.
async fn a_late_twin_goes_on_from(point: CrashPoint) {
    let world = World::postgres().await;
    let api = world.api().await;
    let job = api.export("order").await;
    let late = Twin::start(&world, point).await.freeze().await;
    let _second = world.worker();
    let done = api.job_is(&job, "COMPLETED").await;
    let key = done["fileKey"].as_str().expect("a key");
    assert!(key.ends_with("orders.2.csv"), "the second run's: {key}");
    world.settled().await;
    let (before, row) = (world.describe().await, row(&world).await);

    assert_eq!(late.thaw().await, Finished::Lost, "it went on from {point}");
    until("nothing but the committed file is left", PATIENCE, async || {
        (world.objects() == [key]).then_some(())
    })
    .await;
    world.settled().await;
    assert_eq!(world.describe().await, before, "it went on from {point}");
    assert_eq!(self::row(&world).await, row, "the job's row is the same to the millisecond");
    assert_eq!(String::from_utf8(world.object(key)).expect("UTF-8"), expected(ORDERS));
}

/// All that a job's row says.
async fn row(world: &World) -> String {
    world.state.value("SELECT CAST(row_to_json(jobs) AS text) FROM jobs").await
}

#[tokio::test]
async fn a_late_twin_writes_nothing_wherever_it_was_frozen() {
    let points = [
        CrashPoint::AfterClaim,
        CrashPoint::MidRows,
        CrashPoint::MidUpload,
        CrashPoint::AfterUpload,
        CrashPoint::AfterVerify,
    ];
    for_each(points, a_late_twin_goes_on_from).await;
}

#[tokio::test]
async fn a_twin_frozen_in_its_commit_holds_the_row_so_nobody_runs_beside_it() {
    let world = World::postgres().await;
    let api = world.api().await;
    let job = api.export("order").await;
    let frozen = Twin::start(&world, CrashPoint::BeforeCommit).await.freeze().await;
    let _second = world.worker();
    until("its lease has ended", PATIENCE, async || {
        let ended = "SELECT count(*) FROM jobs WHERE lease_expires_at < \
                     EXTRACT(EPOCH FROM clock_timestamp()) * 1000 - 1000";
        (world.state.value(ended).await == "1").then_some(())
    })
    .await;
    assert!(matches!(frozen.thaw().await, Finished::Completed(_)), "it had it all the time");
    api.job_is(&job, "COMPLETED").await;
    world.settled().await;
    let text = world.describe().await;
    assert!(text.starts_with("job: COMPLETED, run 1, failures 0"), "{text}");
    assert_eq!(text.matches("event:").count(), 2, "of one end: {text}");
}

#[tokio::test]
async fn a_stopping_worker_hands_its_job_back_and_another_completes_it() {
    let (world, api) = slow_world().await;
    let mut first = world.worker();
    let job = api.export("slow").await;
    api.rows_have_come(&job).await;
    first.signal("TERM");
    // A second of drain time, then the query is ended and the job handed back.
    let status = first.end(Duration::from_secs(6)).await;
    assert_eq!(status.code(), Some(0), "{}", first.log());
    let text = world.describe().await;
    assert!(text.starts_with("job: PENDING, run 1, failures 0"), "{text}");
    assert!(text.contains("turn: queued 1, running 0"), "{text}");
    let _second = world.worker();
    is_complete(&world, &api, &job).await;
    let text = world.describe().await;
    assert!(text.starts_with("job: COMPLETED, run 2, failures 0"), "{text}");
}
