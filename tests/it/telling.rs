//! What is told to the world: the mail that had to wait, and the event as it was committed.

use serde_json::{Value, json};

use crate::harness::{
    PATIENCE, World,
    proxy::Proxy,
    servers::{ROOT, Smtp, script},
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
    let body = world.state.value("SELECT body FROM events WHERE event_type LIKE 'export.%'").await;
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

#[tokio::test]
async fn a_broker_is_told_what_python_computes_from_the_master_key() {
    let world = World::sqlite();
    let api = world.all_in_one().await;
    for body in [
        json!({"resource": "order", "compression": "gzip"}),
        json!({"resource": "order", "maxRowsPerFile": 15}),
    ] {
        let job = api.job_is(&api.export_as(&body).await, "COMPLETED").await;
        let event: Value = serde_json::from_str(&told(&world).await).expect("JSON");
        let result = &event["result"];
        assert_eq!((&event["jobId"], &result["path"]), (&job["exportJobId"], &job["fileKey"]));
        let key = job["fileKey"].as_str().expect("a key");
        assert_eq!(result["hmac"], signed_by_python(&world, key).await, "{body}");
        assert_eq!(result["integrity"]["signature"], result["hmac"]);
        if job["files"].is_array() {
            let manifest: Value = serde_json::from_slice(&world.object(key)).expect("a manifest");
            for file in manifest["files"].as_array().expect("files") {
                let key = file["key"].as_str().expect("a key");
                assert_eq!(file["hmac"], signed_by_python(&world, key).await);
            }
        }
    }
}

async fn signed_by_python(world: &World, key: &str) -> Value {
    let path = world.path("delivered");
    std::fs::write(&path, world.object(key)).expect("a file");
    let path = path.display().to_string();
    script("hmac_look.py", &[&world.env["APP_ENC_KEY"], &path]).await["hmac"].clone()
}

/// The body of the last event for a broker.
pub async fn told(world: &World) -> String {
    let sql = "SELECT body FROM events WHERE event_type LIKE 'job.%' \
               ORDER BY created_at DESC, id DESC LIMIT 1";
    world.state.value(sql).await
}

/// The names of an object's members, in their order.
pub fn members(value: &Value) -> Vec<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}
