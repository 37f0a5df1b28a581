//! A client of a Fetcher asks the real process, which may die on the way.

use outport_contract::{
    adapter_managed,
    key::{MasterKey, STORAGE_ENCRYPTION},
    key_ring::KeyRing,
};
use outport_domain::crash::CrashPoint;
use serde_json::{Value, json};

use crate::harness::{
    Api, PATIENCE, World, for_each, until,
    world::{KEY, ORDERS, dying_at},
};

/// A world whose one configured connection may be read whole.
fn world() -> World {
    let mut world = World::sqlite();
    world.set("OUTPORT_FACADE_CONNECTIONS", "shop");
    world.set("OUTPORT_PROTECTION", "sealed");
    world
}

/// The job's id, unless the process died before its answer.
async fn ask(api: &Api) -> Option<String> {
    let body = json!({
        "dataRequest": {
            "mappedFields": {"shop": {"orders": ["code", "amount"]}},
            "filters": {"shop": {"orders": {"code": {"like": ["ORD-00000%"]}}}},
        },
        "metadata": {"source": "payments"},
    });
    let (status, answer) = api.try_post("/v1/fetcher", &body).await?;
    assert!(matches!(status, 200 | 202), "{status}: {answer}");
    Some(answer["jobId"].as_str().expect("an id").to_owned())
}

async fn completed(api: &Api, id: &str) -> Value {
    until("the job is completed", PATIENCE, async || {
        let job = api.get(&format!("/v1/fetcher/{id}")).await;
        assert_ne!(job["status"], "failed", "{job}");
        (job["status"] == "completed").then_some(job)
    })
    .await
}

/// The rows of the one object that there is, which is the one that the job names.
fn rows(world: &World, job: &Value) -> Value {
    let path = job["resultPath"].as_str().expect("a path");
    assert_eq!(world.objects(), [path]);
    let keys = KeyRing::new(1, MasterKey::parse(KEY).expect("a key")).derive(STORAGE_ENCRYPTION);
    let plain = adapter_managed::open(&keys, &world.stored(path)).expect("it opens");
    let result: Value = serde_json::from_slice(&plain).expect("JSON");
    result["shop"]["orders"].clone()
}

#[tokio::test]
async fn a_job_whose_process_died_is_taken_over_and_ends_once() {
    use CrashPoint::{
        AfterClaim, AfterCommit, AfterUpload, AfterVerify, BeforeClaimCommit, BeforeCommit,
        MidRows, MidUpload,
    };
    let points = [
        BeforeClaimCommit,
        AfterClaim,
        MidRows,
        MidUpload,
        AfterUpload,
        AfterVerify,
        BeforeCommit,
        AfterCommit,
    ];
    for_each(points, async |point| {
        let world = world();
        let mut api = world.all_in_one_with(dying_at(point)).await;
        let answered = ask(&api).await;
        api.process.death(PATIENCE).await;
        let api = world.all_in_one().await;
        let id = ask(&api).await.expect("an answer");
        assert!(answered.is_none_or(|first| first == id), "the same request is the same job");
        let job = completed(&api, &id).await;
        world.settled().await;
        assert_eq!(
            rows(&world, &job).as_array().map(Vec::len),
            Some(9),
            "{point}: {ORDERS} orders"
        );
        let events = world.state.rows("SELECT event_type FROM events").await;
        assert_eq!(events, [["job.completed"]], "{point}");
        let is_first = matches!(point, BeforeClaimCommit | AfterCommit);
        let number = if is_first { "" } else { ".2" };
        assert_eq!(job["resultPath"], format!("external-data/{id}{number}.json"), "{point}");
    })
    .await;
}

#[tokio::test]
async fn a_facade_that_is_off_is_not_there() {
    let mut world = World::sqlite();
    world.set("OUTPORT_FACADE_ENABLED", "false");
    let api = world.all_in_one().await;
    let export = api.export("order").await;
    let answer = api.answer(&format!("/v1/fetcher/{export}")).await;
    assert_eq!(answer.status(), 404);
    let (status, _) = api.try_post("/v1/fetcher", &json!({})).await.expect("an answer");
    assert_eq!(status, 404);
    world.settled().await;
}
