//! What is told to the world: the mail that had to wait, and the event as it was committed.

use serde_json::Value;

use crate::harness::{
    PATIENCE, World,
    proxy::Proxy,
    servers::{ROOT, Smtp},
    until,
    world::text_of,
};

#[tokio::test]
async fn a_mail_server_that_is_down_delays_the_mail_and_nothing_else() {
    let mut world = World::postgres().await;
    let mut proxy = Proxy::down();
    world.use_smtp(proxy.port());
    world.set("OUTPORT_LIMITS_DELIVERY_ATTEMPTS", "2");
    let api = world.api().await;
    let _worker = world.worker();
    let job = api.export("order").await;
    api.job_is(&job, "COMPLETED").await;
    let dead = until("the delivery is dead", PATIENCE, async || {
        let mut page = api.get("/v1/deliveries?status=DEAD").await;
        page["items"].as_array_mut().expect("a page").pop()
    })
    .await;
    assert_eq!((&dead["exportJobId"], &dead["attempts"]), (&job.clone().into(), &2.into()));
    let error = dead["lastError"].as_str().expect("a reason");
    assert!(!error.is_empty() && !error.contains("localhost"), "{error}");
    assert_eq!(api.job(&job).await["status"], "COMPLETED", "the job has nothing to do with it");

    let smtp = Smtp::start();
    proxy.lead_to(smtp.port).await;
    let delivery = dead["id"].as_str().expect("an id");
    assert_eq!(api.post(&format!("/v1/deliveries/{delivery}/retry")).await.0, 202);
    let mail = until("the mail arrives", PATIENCE, async || smtp.taken(&world.email).pop()).await;
    assert!(text_of(&mail).contains("Rows: 40"), "{}", text_of(&mail));
    world.settled().await;
    let text = world.describe().await;
    assert!(text.contains("delivery: send-export-completed-message, DONE"), "{text}");
    assert_eq!(smtp.taken(&world.email).len(), 1, "once");
}

#[tokio::test]
async fn the_committed_event_has_the_contracts_members_in_their_order() {
    let world = World::postgres().await;
    let api = world.api().await;
    let _worker = world.worker();
    let job = api.export("order").await;
    let job = api.job_is(&job, "COMPLETED").await;
    let body = world.state.value("SELECT body FROM events").await;
    let event: Value = serde_json::from_str(&body).expect("JSON");
    let golden = std::fs::read_to_string(format!("{ROOT}/tests/golden/export-completed.json"));
    let golden: Value = serde_json::from_str(&golden.expect("the sample")).expect("JSON");
    assert_eq!(members(&event), members(&golden));
    assert_eq!(members(&event["data"]), members(&golden["data"]));
    for (name, value) in event["data"].as_object().expect("an object") {
        assert_eq!(value, &job[name], "the API and the event agree on {name}");
    }
    for name in ["startedAt", "finishedAt", "createdAt", "updatedAt", "expiresAt"] {
        let instant = event["data"][name].as_str().expect("an instant");
        assert_eq!((instant.len(), &instant[19..20], &instant[23..]), (24, ".", "Z"), "{instant}");
    }
}

/// The names of an object's members, in their order.
pub fn members(value: &Value) -> Vec<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}
