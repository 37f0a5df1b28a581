//! Connections that an organization stores, read by real processes: with credentials that are
//! encrypted, by resources and by the facade, and after the key was replaced.

use std::process::Command;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use outport_contract::{
    adapter_managed,
    key::{MasterKey, STORAGE_ENCRYPTION},
    key_ring::KeyRing,
};
use serde_json::{Value, json};

use crate::{
    harness::{
        Api, PATIENCE, World,
        process::{Env, Program, output},
        shop, until,
        world::{KEY, ORDERS},
    },
    resource_files::Place,
};

/// Where clients manage connections.
pub const CONNECTIONS: &str = "/v1/management/connections";
const PASSWORD: &str = "canary-p%40ss/?#";

/// A world whose databases may lie on this machine, with a resource over a connection that is yet
/// to be stored.
pub async fn world() -> World {
    let mut world = World::postgres().await;
    world.set("OUTPORT_FACADE_DENIED_NETWORKS", "192.0.2.0/24");
    world.set("OUTPORT_FACADE_STORED_CONNECTIONS", "ledger");
    let resource = shop::resource("entry", "shop.orders", "\"code\"");
    world.declare_file("entry", &resource.replace("\"shop\"", "\"ledger\""));
    world
}

/// What a client stores of the database of a world.
pub fn ledger(world: &World) -> Value {
    let url = url::Url::parse(&world.env["OUTPORT_CONNECTIONS_SHOP"]).expect("a URL");
    json!({"configName": "ledger", "type": "POSTGRESQL", "host": url.host_str(),
           "port": url.port().unwrap_or(5432), "databaseName": url.path().trim_start_matches('/'),
           "userName": url.username(), "password": PASSWORD, "schema": "shop",
           "ssl": {"mode": "disable"}})
}

/// Stores a connection and returns its path.
pub async fn stored(api: &Api, connection: &Value) -> String {
    let (status, answer) = api.try_post(CONNECTIONS, connection).await.expect("an answer");
    assert_eq!(status, 201, "{answer}");
    format!("{CONNECTIONS}/{}", answer["id"].as_str().expect("an id"))
}

/// Asks the facade for all orders; the job's id.
pub async fn asked(api: &Api, number: u32) -> String {
    let body = json!({"dataRequest": {"mappedFields": {"ledger": {"orders": ["*"]}}},
                      "metadata": {"source": "payments", "n": number}});
    let (status, answer) = api.try_post("/v1/fetcher", &body).await.expect("an answer");
    assert_eq!(status, 202, "{answer}");
    answer["jobId"].as_str().expect("an id").to_owned()
}

/// The job of the facade once it has ended so.
pub async fn ended(api: &Api, id: &str, status: &str) -> Value {
    until(&format!("job {id} is {status}"), PATIENCE, async || {
        let job = api.get(&format!("/v1/fetcher/{id}")).await;
        let is = job["status"].as_str().expect("a status");
        assert!(is == status || !matches!(is, "completed" | "failed"), "{job}");
        (is == status).then_some(job)
    })
    .await
}

/// Exports the resource over the stored connection.
async fn exports(api: &Api) {
    let job = api.export("entry").await;
    api.job_is(&job, "COMPLETED").await;
    assert_eq!(String::from_utf8(api.file(&job).await).expect("UTF-8"), shop::expected(ORDERS));
}

#[tokio::test]
async fn a_resource_exports_through_a_connection_that_its_organization_stored() {
    let world = world().await;
    let api = world.all_in_one().await;
    let lacking = api.export("entry").await;
    let lacking = api.job_is(&lacking, "FAILED").await;
    assert_eq!(lacking["failure"]["code"], "SOURCE_UNREACHABLE", "{lacking}");
    let path = stored(&api, &ledger(&world)).await;
    let (status, tested) = api.post(&format!("{path}/test")).await;
    assert_eq!((status, &tested["status"]), (200, &json!("success")), "{tested}");
    exports(&api).await;
    world.settled().await;
    let kept = world.state.rows("SELECT connections::text FROM connections").await;
    assert!(!format!("{kept:?}").contains("canary"), "the password lies in the open: {kept:?}");
    let log = api.process.log();
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test]
async fn a_connection_that_is_stored_after_an_export_was_asked_for_is_not_read_by_it() {
    let world = world().await;
    let api = world.api().await;
    let early = api.export("entry").await;
    stored(&api, &ledger(&world)).await;
    let _worker = world.worker();
    let early = api.job_is(&early, "FAILED").await;
    assert_eq!(early["failure"]["code"], "SOURCE_UNREACHABLE", "{early}");
    exports(&api).await;
    world.settled().await;
}

#[tokio::test]
async fn of_many_tenants_keys_of_results_and_messages_name_each() {
    let mut world = world().await;
    world.set("OUTPORT_TENANCY", "multi");
    world.set("OUTPORT_PROTECTION", "sealed");
    let api = world.all_in_one().await;
    stored(&api, &ledger(&world)).await;
    let id = asked(&api, 1).await;
    let job = ended(&api, &id, "completed").await;
    let path = format!("{}/external-data/{id}.json", shop::ORGANIZATION);
    assert_eq!(job["resultPath"], path);
    let keys = KeyRing::new(1, MasterKey::parse(KEY).expect("a key")).derive(STORAGE_ENCRYPTION);
    let plain = adapter_managed::open(&keys, &world.stored(&path)).expect("it opens");
    let result: Value = serde_json::from_slice(&plain).expect("JSON");
    let rows = result["ledger"]["orders"].as_array().map(Vec::len);
    assert_eq!(rows, Some(ORDERS as usize + 1), "whole tables, past the scopes of resources");
    exports(&api).await;
    world.settled().await;
    let messages = world.messages().await;
    assert_eq!(messages.len(), 2);
    for message in &messages {
        assert_eq!(message.routing_key, "job.completed");
        for header in ["X-Tenant-ID", "ce-tenantid"] {
            assert_eq!(message.header(header), shop::ORGANIZATION);
        }
    }
    let event: Value = serde_json::from_slice(&messages[0].body).expect("JSON");
    assert_eq!(event["result"]["path"], path, "{event}");
}

/// Runs `outport` with this environment and returns what it said.
async fn outport(world: &World, arguments: &[&str], env: &Env) -> String {
    let mut command = Command::new(Program::Outport.path());
    command.args(arguments).current_dir(world.path("")).env_clear().envs(env);
    output(command).await
}

#[tokio::test]
async fn a_message_of_the_broker_is_verified_on_the_command_line() {
    let world = World::postgres().await;
    let api = world.all_in_one().await;
    let job = api.export("order").await;
    api.job_is(&job, "COMPLETED").await;
    world.settled().await;
    let message = world.messages().await.remove(0);
    let key = outport(&world, &["keys", "external-hmac"], &world.env).await;
    let env = Env::from([("EXTERNAL_HMAC_KEY".to_owned(), key)]);
    let captured = json!({
        "exchange": message.exchange, "routingKey": message.routing_key,
        "headers": message.headers, "body": STANDARD.encode(&message.body),
    });
    std::fs::write(world.path("captured.json"), captured.to_string()).expect("a file");
    let said = outport(&world, &["verify", "message", "captured.json"], &env).await;
    let valid = format!("valid: fetcher.job.completed.{job} of single-tenant, signed at ");
    assert!(said.starts_with(&valid), "{said}");
}

#[tokio::test]
async fn an_export_is_of_the_product_that_its_connection_was_stored_for() {
    let world = world().await;
    let (api, _worker) = (world.api().await, world.worker());
    let (url, token) = api.access();
    let client = reqwest::Client::new();
    let call = |method: reqwest::Method, path: &str, product: &str| {
        let request = client.request(method, format!("{url}{path}")).bearer_auth(token);
        request.header("x-product-name", product)
    };
    let stored = call(reqwest::Method::POST, CONNECTIONS, "shop").json(&ledger(&world));
    let (status, answer) = api.json(stored).await;
    assert_eq!(status, 201, "{answer}");
    let job = api.export("entry").await;
    api.job_is(&job, "COMPLETED").await;
    let connection = format!("{CONNECTIONS}/{}", answer["id"].as_str().expect("an id"));
    let deleted = call(reqwest::Method::DELETE, &connection, "shop").send().await;
    assert_eq!(deleted.expect("an answer").status(), 204);
    for (product, expected) in [("shop", 200), ("ledger", 422)] {
        let shown = call(reqwest::Method::GET, &format!("/v1/fetcher/{job}"), product);
        let (status, answer) = api.json(shown).await;
        assert_eq!(status, expected, "{product}: {answer}");
    }
}

#[tokio::test]
async fn a_stored_connection_is_read_after_its_key_was_replaced_and_taken_away() {
    let mut world = world().await;
    let api = world.all_in_one().await;
    stored(&api, &ledger(&world)).await;
    exports(&api).await;
    stop(api).await;

    let old = world.env["APP_ENC_KEY"].clone();
    let new = outport(&world, &["keys", "generate"], &Env::new()).await;
    world.set("APP_ENC_KEY", new.trim());
    world.set("APP_ENC_KEY_VERSION", "2");
    world.set("OUTPORT_OLD_ENC_KEYS", &format!("1:{old}"));
    let api = world.all_in_one().await;
    exports(&api).await;
    stop(api).await;

    // Taken away too early, the old key is missed.
    world.env.remove("OUTPORT_OLD_ENC_KEYS");
    let api = world.all_in_one().await;
    let job = api.export("entry").await;
    let failed = api.job_is(&job, "FAILED").await;
    assert_eq!(failed["failure"]["code"], "SOURCE_UNREACHABLE", "{failed}");
    let message = failed["failure"]["message"].to_string();
    assert!(message.contains("'ledger'") && message.contains("key 1,"), "{failed}");
    stop(api).await;

    world.set("OUTPORT_OLD_ENC_KEYS", &format!("1:{old}"));
    let rotate = ["keys", "rotate"];
    let said = outport(&world, &rotate, &world.env).await;
    assert_eq!(said, "1 encrypted with key 2; 0 were already\n");
    let said = outport(&world, &rotate, &world.env).await;
    assert_eq!(said, "0 encrypted with key 2; 1 were already\n");
    world.env.remove("OUTPORT_OLD_ENC_KEYS");
    let api = world.all_in_one().await;
    exports(&api).await;
    world.settled().await;
}

#[tokio::test]
async fn credentials_of_another_key_under_the_version_in_use_are_named_by_rotate() {
    let world = world().await;
    let api = world.all_in_one().await;
    let path = stored(&api, &ledger(&world)).await;
    stop(api).await;
    let mut place = Place::with("");
    place.env = world.env.clone();
    let rotate = ["keys", "rotate"];
    place.outport(&rotate).await.is(0, "0 encrypted with key 1; 1 were already\n");

    let other = outport(&world, &["keys", "generate"], &Env::new()).await;
    place.env.insert("APP_ENC_KEY".to_owned(), other.trim().to_owned());
    let came = place.outport(&rotate).await;
    came.is(1, "0 encrypted with key 1; 0 were already\n");
    came.is(1, "1 cannot be decrypted and stay as they are");
    let id = path.rsplit('/').next().expect("an id");
    came.is(1, &format!("connection {id}: the credentials were changed, or "));
    came.is(1, "of another key of the same version\n");
}

async fn stop(mut api: Api) {
    api.process.signal("TERM");
    api.process.end(PATIENCE).await;
}
