//! Job events are a contract: a worker that could not keep it does not start, and says why.

use crate::harness::{PATIENCE, World, until};

/// Exit code of a wrong configuration.
const WRONG: Option<i32> = Some(2);

#[tokio::test]
async fn a_worker_that_could_not_tell_of_its_jobs_does_not_start() {
    let world = World::postgres().await;
    for (name, value) in [
        ("OUTPORT_BROKER_URL", ""),
        ("STREAMING_ENABLED", "false"),
        ("STREAMING_ENABLED", ""),
        ("STREAMING_ENABLED", "yes"),
        ("RABBITMQ_JOB_EVENTS_EXCHANGE", ""),
        ("RABBITMQ_JOB_EVENTS_EXCHANGE", " "),
        ("STREAMING_CLOUDEVENTS_SOURCE", ""),
    ] {
        let mut worker = world.worker_with((name, value.to_owned()));
        assert_eq!(worker.end(PATIENCE).await.code(), WRONG, "{name}='{value}'");
        assert!(worker.log().contains(name), "{name}='{value}': {}", worker.log());
    }
}

#[tokio::test]
async fn a_worker_with_nothing_of_a_broker_names_all_that_it_needs() {
    let mut world = World::postgres().await;
    let names = [
        "OUTPORT_BROKER_URL",
        "STREAMING_ENABLED",
        "RABBITMQ_JOB_EVENTS_EXCHANGE",
        "STREAMING_CLOUDEVENTS_SOURCE",
    ];
    for name in names {
        world.env.remove(name);
    }
    let mut worker = world.worker();
    assert_eq!(worker.end(PATIENCE).await.code(), WRONG);
    for name in names {
        assert!(worker.log().contains(name), "{name}: {}", worker.log());
    }
    // The API tells nobody anything.
    world.api().await;
}

#[tokio::test]
async fn the_embedded_profile_runs_without_a_broker_and_says_so() {
    let world = World::sqlite();
    let mut api = world.all_in_one().await;
    until("it says so", PATIENCE, async || api.process.log().contains("no broker").then_some(()))
        .await;
    let job = api.export("order").await;
    api.job_is(&job, "COMPLETED").await;
    world.settled().await;
    let sql = "SELECT count(*) FROM deliveries WHERE handler = 'publish-job-event'";
    assert_eq!(world.state.value(sql).await, "0", "nothing piles up");
    assert!(api.process.ended().is_none());
}
