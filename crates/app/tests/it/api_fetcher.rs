//! The Fetcher facade, as an existing client sees it: requests and answers, runs and results, on
//! PostgreSQL and MariaDB.

use std::{collections::BTreeMap, sync::Arc};

use outport_contract::{
    adapter_managed,
    key::DerivedKey,
    key_ring::KeyRing,
    signature::{ResultSigner, ResultVerifier},
};
use outport_domain::{
    crash::CrashPlan, id::JobId, job::Protection, limits::Limits, spec::Catalogue,
};
use outport_pipeline::{Pipeline, fetcher::Facade};
use outport_store::jobs::{ClaimPolicy, Finished};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, PgConnection};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use crate::api_world::{Options, World, facade_connections, json, storage_keys};

const SOURCE: &str = r#"
CREATE TABLE orders (id {moment}, code {text}, "Odd ""name" {text}, amount {decimal}, note {text}, paid BOOLEAN);
INSERT INTO orders VALUES ('2026-07-01 10:00:00', 'A', 'x', 12345678901234567890.10, 'São "1"', TRUE),
                          ('2026-07-02 10:00:00', 'B', 'y', 0.50, NULL, FALSE);
CREATE TABLE nothing (id INT);
"#;

/// A database that is read.
enum Database {
    Postgres(String),
    MariaDb(String),
}

impl Database {
    async fn postgres() -> Self {
        let name = format!("outport_facade_{}", Uuid::now_v7().simple());
        let database = Self::Postgres(name);
        database.administer("CREATE DATABASE {}").await;
        database
            .fill(
                &SOURCE
                    .replace("{moment}", "timestamptz")
                    .replace("{text}", "text")
                    .replace("{decimal}", "numeric"),
            )
            .await;
        database
    }

    async fn mariadb() -> Self {
        let name = format!("outport_facade_{}", Uuid::now_v7().simple());
        let database = Self::MariaDb(name);
        database.administer("CREATE DATABASE {} CHARACTER SET utf8mb4").await;
        database.administer("CREATE USER {}@'%' IDENTIFIED BY 'p%40ss'").await;
        database.administer("GRANT SELECT ON {}.* TO {}@'%'").await;
        let sql = SOURCE.replace("{moment}", "DATETIME").replace("{text}", "VARCHAR(100)");
        let sql =
            sql.replace("{decimal}", "DECIMAL(30,2)").replace(r#""Odd ""name""#, "`Odd \"name`");
        database.fill(&sql).await;
        database
    }

    fn name(&self) -> &str {
        match self {
            Self::Postgres(name) | Self::MariaDb(name) => name,
        }
    }

    async fn administer(&self, sql: &str) {
        self.run(&self.server(), &sql.replace("{}", self.name())).await;
    }

    async fn fill(&self, sql: &str) {
        let mut url = self.server();
        url.set_path(self.name());
        self.run(&url, sql).await;
    }

    fn server(&self) -> Url {
        let (variable, default) = match self {
            Self::Postgres(_) => {
                ("OUTPORT_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/postgres")
            }
            Self::MariaDb(_) => ("OUTPORT_TEST_MARIADB", "mysql://root@127.0.0.1:3306/test"),
        };
        let url = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        Url::parse(&url).expect("a URL")
    }

    async fn run(&self, url: &Url, sql: &str) {
        match self {
            Self::Postgres(_) => {
                let mut connection = PgConnection::connect(url.as_str()).await.expect("PostgreSQL");
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect(sql);
                connection.close().await.expect("a goodbye");
            }
            Self::MariaDb(_) => {
                let mut connection = MySqlConnection::connect(url.as_str()).await.expect("MariaDB");
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect(sql);
                connection.close().await.expect("a goodbye");
            }
        }
    }

    /// What a client stores to reach it.
    fn connection(&self, name: &str) -> Value {
        let server = self.server();
        let (kind, user) = match self {
            Self::Postgres(_) => ("POSTGRESQL", server.username()),
            Self::MariaDb(_) => ("MYSQL", self.name()),
        };
        json!({"configName": name, "type": kind, "host": server.host_str(), "port": server.port(),
               "databaseName": self.name(), "userName": user, "password": "p%40ss"})
    }

    async fn gone(self) {
        match self {
            Self::Postgres(_) => self.administer("DROP DATABASE {} WITH (FORCE)").await,
            Self::MariaDb(_) => {
                self.administer("DROP DATABASE {}").await;
                self.administer("DROP USER {}@'%'").await;
            }
        }
    }
}

async fn said(request: RequestBuilder) -> (u16, Value) {
    let (status, value) = json(request.send().await.expect("an answer")).await;
    (status.as_u16(), value)
}

async fn post(world: &World, path: &str, body: &Value) -> (u16, Value) {
    let request = world.request(Method::POST, path).header("content-type", "application/json");
    said(request.body(body.to_string())).await
}

async fn store(world: &World, connection: &Value) -> String {
    let (status, answer) = post(world, "/v1/management/connections", connection).await;
    assert_eq!(status, 201, "{answer}");
    answer["id"].as_str().expect("an id").to_owned()
}

fn request(mapped_fields: Value, filters: Value) -> Value {
    json!({"dataRequest": {"mappedFields": mapped_fields, "filters": filters},
           "metadata": {"source": "payments", "n": 1}})
}

fn all_of(table: &str) -> Value {
    request(json!({"shop": {table: ["*"]}}), json!({}))
}

/// Asks, and returns the job's id.
async fn asked(world: &World, body: &Value) -> String {
    let (status, answer) = post(world, "/v1/fetcher", body).await;
    assert_eq!(status, 202, "{answer}");
    assert_eq!(answer["status"], "pending");
    assert!(answer["createdAt"].is_string() && answer["message"].is_string(), "{answer}");
    answer["jobId"].as_str().expect("an id").to_owned()
}

fn external() -> KeyRing {
    KeyRing::new(1, DerivedKey::from_bytes([7; 32]))
}

fn pipeline(world: &World, protection: Protection, limits: Limits) -> Pipeline {
    Pipeline {
        store: world.store.clone(),
        objects: world.objects.clone(),
        catalogue: Arc::new(Catalogue::default()),
        sources: Arc::new(BTreeMap::new()),
        facade: Facade {
            connections: facade_connections(&world.store, Vec::new()),
            tenant_in_key: false,
            memory: Arc::new(Semaphore::new(1)),
        },
        signer: ResultSigner::new(&external()),
        storage: storage_keys(),
        protection,
        limits: Arc::new(limits),
        spool_dir: std::env::temp_dir(),
        crash: CrashPlan::none(),
    }
}

fn policy() -> ClaimPolicy {
    ClaimPolicy {
        worker: "test".to_owned(),
        lease: std::time::Duration::from_mins(1),
        running_per_organization: 100,
    }
}

/// Runs the oldest due job.
async fn run(pipeline: &Pipeline) -> Finished {
    let claim = pipeline.claim(&policy()).await.expect("a claim").expect("a due job");
    pipeline.run_one(claim, CancellationToken::new()).await
}

async fn shown(world: &World, id: &str) -> Value {
    let (status, job) = said(world.get(&format!("/v1/fetcher/{id}"))).await;
    assert_eq!(status, 200, "{job}");
    job
}

/// The events of a job: their names and bodies.
async fn events(world: &World, id: &str) -> Vec<(String, Value)> {
    let id: JobId = id.parse().expect("an id");
    let events = outport_store::events::of_job(&world.store, world.organization, id).await;
    let events = events.expect("events").into_iter();
    events
        .map(|event| (event.event_type, serde_json::from_str(&event.body).expect("JSON")))
        .collect()
}

/// The one event of a failed job, and what it says of the error.
async fn failure(world: &World, id: &str) -> (String, String) {
    let events = events(world, id).await;
    let [(name, body)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((name.as_str(), &body["status"]), ("job.failed", &json!("failed")));
    assert_eq!(body["metadata"]["source"], "payments", "{body}");
    assert!(body.get("result").is_none() && body.get("completedAt").is_none(), "{body}");
    let error = &body["metadata"]["error"];
    let text = |member: &str| error[member].as_str().expect("a text").to_owned();
    (text("code"), text("message"))
}

fn options() -> Options {
    Options { facade: Some(Vec::new()), ..Options::default() }
}

#[tokio::test]
async fn rows_of_two_databases_come_as_one_result_that_a_consumer_can_verify() {
    World::on_sqlite(options(), two_databases).await;
    World::on_postgres(options(), two_databases).await;
}

async fn two_databases(world: &World) {
    let (shop, ledger) = (Database::postgres().await, Database::mariadb().await);
    store(world, &shop.connection("shop")).await;
    store(world, &ledger.connection("ledger")).await;
    let fields = json!({"shop": {"orders": ["id", "note", "amount", "Odd \"name"], "nothing": ["*"]},
                        "ledger": {"orders": ["*"]}});
    let filters = json!({"shop": {"orders": {"id": {"gte": ["2026-07-02"]}}},
                         "ledger": {"orders": {"code": {"in": ["A"]}, "paid": {"eq": [1]}}}});
    let asked_for = request(fields.clone(), filters.clone());
    let id = asked(world, &asked_for).await;
    let pending = shown(world, &id).await;
    assert_eq!((&pending["status"], &pending["completedAt"]), (&json!("pending"), &Value::Null));
    assert_eq!((&pending["mappedFields"], &pending["filters"]), (&fields, &filters));

    let pipeline = pipeline(world, Protection::Sealed, Limits::default());
    let finished = run(&pipeline).await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    shop.gone().await;
    ledger.gone().await;

    let job = shown(world, &id).await;
    let path = format!("external-data/{id}.json");
    assert_eq!((&job["status"], &job["resultPath"]), (&json!("completed"), &json!(path)));
    assert_eq!(job["metadata"], json!({"source": "payments", "n": 1}), "unchanged");
    let bytes = world.objects.bytes(&path).expect("the result");
    let plain = adapter_managed::open(&storage_keys(), &bytes).expect("it opens");
    assert_eq!(String::from_utf8(plain.clone()).expect("text"), EXPECTED);

    let events = events(world, &id).await;
    let [(name, body)] = events.as_slice() else { panic!("only job.*: {events:?}") };
    assert_eq!(name, "job.completed");
    let result = &body["result"];
    assert_eq!((&result["path"], &result["format"]), (&json!(path), &json!("json")));
    assert_eq!((&result["rowCount"], &result["sizeBytes"]), (&json!(2), &json!(plain.len())));
    let protection = json!({"encrypted": true, "appliedBy": "adapter", "mode": "adapter-managed"});
    assert_eq!(result["protection"], protection);
    assert_eq!(
        (&result["hmac"], &result["hmac"]),
        (&job["resultHmac"], &result["integrity"]["signature"])
    );
    let integrity = serde_json::from_value(result["integrity"].clone()).expect("an integrity");
    let mut verifier = ResultVerifier::new(&external(), &integrity).expect("a known key");
    verifier.update(&plain);
    verifier.finish().expect("what was signed");
}

/// Names sorted, two spaces, every digit, text as text, an empty table as an empty array.
const EXPECTED: &str = r#"{
  "ledger": {
    "orders": [
      {
        "Odd \"name": "x",
        "amount": 12345678901234567890.10,
        "code": "A",
        "id": "2026-07-01T10:00:00",
        "note": "São \"1\"",
        "paid": true
      }
    ]
  },
  "shop": {
    "nothing": [],
    "orders": [
      {
        "Odd \"name": "y",
        "amount": 0.50,
        "id": "2026-07-02T10:00:00Z",
        "note": null
      }
    ]
  }
}"#;

#[tokio::test]
async fn the_same_request_is_the_same_job_on_both_stores() {
    World::on_sqlite(options(), same_job).await;
    World::on_postgres(options(), same_job).await;
}

async fn same_job(world: &World) {
    let shop = Database::postgres().await;
    store(world, &shop.connection("shop")).await;
    let body = all_of("nothing");
    let id = asked(world, &body).await;
    let again = async |body: &Value| {
        let (status, answer) = post(world, "/v1/fetcher", body).await;
        (status, answer["jobId"].as_str().unwrap_or_default() == id)
    };
    assert_eq!(again(&body).await, (200, true));
    let mut other = body.clone();
    other["metadata"]["n"] = json!(2);
    assert_eq!(again(&other).await, (202, false));
    let pipeline = pipeline(world, Protection::None, Limits::default());
    for _ in 0..2 {
        run(&pipeline).await;
    }
    let result = world.objects.bytes(&format!("external-data/{id}.json")).expect("the result");
    assert_eq!(result, "{\n  \"shop\": {\n    \"nothing\": []\n  }\n}");
    let events = events(world, &id).await;
    let result = &events[0].1["result"];
    assert_eq!(
        (&result["rowCount"], &result["protection"]),
        (&json!(0), &json!({"encrypted": false}))
    );
    assert_eq!(again(&body).await, (200, true), "it ended less than five minutes ago");
    // Also when its source has gone: nothing is asked of it.
    shop.gone().await;
    assert_eq!(again(&body).await, (200, true));
    world.force("UPDATE jobs SET created_at = created_at - 301000").await;
    let (status, answer) = post(world, "/v1/fetcher", &body).await;
    assert_eq!((status, &answer["code"]), (503, &json!("FET-1040")), "a new one: {answer}");
}

#[tokio::test]
async fn requests_of_one_identity_at_once_make_one_job() {
    World::on_postgres(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        let body = all_of("nothing");
        let answers =
            futures::future::join_all((0..8).map(|_| post(world, "/v1/fetcher", &body))).await;
        let created = answers.iter().filter(|(status, _)| *status == 202).count();
        assert_eq!(created, 1, "{answers:?}");
        assert!(answers.iter().all(|(_, answer)| answer["jobId"] == answers[0].1["jobId"]));
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn what_does_not_fit_is_refused_at_the_request_and_leaves_nothing() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        let orders = |fields: Value, filters: Value| {
            request(json!({"shop": {"orders": fields}}), json!({"shop": {"orders": filters}}))
        };
        let mut reserved = all_of("orders");
        reserved["metadata"]["error"] = json!("mine");
        let mut without_source = all_of("orders");
        without_source["metadata"] = json!({});
        let many = (0..51).map(|n| format!("f{n}")).collect::<Vec<_>>();
        let path = "dataRequest.mappedFields.shop.orders";
        for (body, code, field) in [
            (all_of("ordres"), "FET-0401", "dataRequest.mappedFields.shop.ordres".to_owned()),
            (all_of("ORDERS"), "FET-0401", "dataRequest.mappedFields.shop.ORDERS".to_owned()),
            (orders(json!(["cod"]), json!({})), "FET-0401", format!("{path}.cod")),
            (
                orders(json!(["code"]), json!({"cod": {"eq": ["A"]}})),
                "FET-0401",
                format!("{path}.cod"),
            ),
            (
                orders(json!(["code"]), json!({"amount": {"eq": ["A"]}})),
                "FET-0401",
                format!("{path}.amount.eq[0]"),
            ),
            (
                orders(json!(["code"]), json!({"code": {"eq": "A"}})),
                "FET-0401",
                "dataRequest.filters.shop.orders.code.eq".to_owned(),
            ),
            (orders(json!(many), json!({})), "FET-0401", path.to_owned()),
            (orders(json!([]), json!({})), "FET-0402", path.to_owned()),
            (
                request(json!({"shap": {"orders": ["*"]}}), json!({})),
                "FET-1020",
                "dataRequest.mappedFields.shap".to_owned(),
            ),
            (reserved, "FET-0401", "metadata.error".to_owned()),
            (without_source, "FET-0402", "metadata.source".to_owned()),
            (json!({}), "FET-0402", "dataRequest".to_owned()),
        ] {
            let (status, answer) = post(world, "/v1/fetcher", &body).await;
            assert_eq!(answer["code"], code, "{body}: {answer}");
            assert_eq!(status, if code == "FET-1020" { 422 } else { 400 }, "{answer}");
            assert!(answer["fields"].get(&field).is_some(), "{field}: {answer}");
        }
        let raw = world.post("/v1/fetcher").header("content-type", "application/json").body("{");
        let (status, answer) = said(raw).await;
        assert_eq!((status, &answer["code"]), (400, &json!("FET-0001")), "{answer}");
        shop.gone().await;
        let (status, answer) = post(world, "/v1/fetcher", &all_of("orders")).await;
        assert_eq!((status, &answer["code"]), (503, &json!("FET-1040")), "{answer}");
        let pipeline = pipeline(world, Protection::None, Limits::default());
        assert!(pipeline.claim(&policy()).await.expect("a claim").is_none(), "no job was made");
    })
    .await;
}

#[tokio::test]
async fn validate_schema_says_what_is_missing() {
    World::on_sqlite(options(), async |world| {
        let ledger = Database::mariadb().await;
        let id = store(world, &ledger.connection("ledger")).await;
        let path = "/v1/management/connections";
        let validate = async |fields: Value| {
            post(world, &format!("{path}/validate-schema"), &json!({"mappedFields": fields})).await
        };
        let (status, answer) = validate(json!({"ledger": {"orders": ["code", "paid"]}})).await;
        assert_eq!(
            (status, &answer["status"], &answer["errors"]),
            (200, &json!("success"), &json!([]))
        );
        for (fields, field) in [
            (json!({"ledger": {"orders": ["coed"]}}), "mappedFields.ledger.orders.coed"),
            (json!({"ledger": {"ordres": ["code"]}}), "mappedFields.ledger.ordres"),
            (json!({"ledgre": {"orders": ["code"]}}), "mappedFields.ledgre"),
        ] {
            let (status, answer) = validate(fields).await;
            assert_eq!((status, &answer["status"]), (422, &json!("failure")), "{answer}");
            assert_eq!(answer["errors"][0]["field"], field, "{answer}");
        }
        let (status, answer) = validate(json!({})).await;
        assert_eq!((status, &answer["code"]), (400, &json!("FET-0402")), "{answer}");
        let (status, schema) = said(world.get(&format!("{path}/{id}/schema"))).await;
        assert_eq!((status, &schema["configName"]), (200, &json!("ledger")), "{schema}");
        let tables = schema["tables"].as_array().expect("tables");
        let name = |table: &Value| table["name"].as_str().expect("a name").to_owned();
        let orders = tables.iter().find(|table| name(table).ends_with(".orders")).expect("orders");
        let fields = json!(["id", "code", "Odd \"name", "amount", "note", "paid"]);
        assert_eq!(orders["fields"], fields);
        // What the schema calls a table is what a request may call it.
        let (status, _) = validate(json!({"ledger": {name(orders): ["code"]}})).await;
        assert_eq!(status, 200);
        ledger.gone().await;
    })
    .await;
}

#[tokio::test]
async fn every_way_to_fail_is_told_by_one_job_failed_and_leaves_no_result() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        let connection = store(world, &shop.connection("shop")).await;
        let limits = Limits { job_failures: 1, ..Limits::default() };
        let pipeline = pipeline(world, Protection::Sealed, limits);
        let mut n = 0;
        let mut ask = async || {
            n += 1;
            let mut body = all_of("orders");
            body["metadata"]["n"] = json!(n);
            asked(world, &body).await
        };

        let id = ask().await;
        world.objects.fail(outport_objects::memory::Step::Put, outport_objects::memory::Fault::Full);
        assert!(matches!(run(&pipeline).await, Finished::Failed(_)));
        assert_eq!(failure(world, &id).await.0, "STORE_WRITE_FAILED");
        let job = shown(world, &id).await;
        assert_eq!((&job["status"], &job["resultPath"]), (&json!("failed"), &Value::Null));
        assert_eq!(job["metadata"]["error"]["code"], "STORE_WRITE_FAILED");

        let id = ask().await;
        let path = format!("/v1/fetcher/{id}/cancel");
        assert_eq!(post(world, &path, &json!({})).await.0, 202);
        assert_eq!(failure(world, &id).await.0, "CANCELED");
        assert_eq!(shown(world, &id).await["status"], "failed");
        let (status, answer) = post(world, "/v1/fetcher/0197f604-49fe-7b73-bb81-df2e93a7e47d/cancel", &json!({})).await;
        assert_eq!((status, &answer["code"]), (404, &json!("FET-1001")), "{answer}");

        let id = ask().await;
        let in_use = world.request(Method::DELETE, &format!("/v1/management/connections/{connection}"));
        let (status, answer) = said(in_use).await;
        assert_eq!((status, &answer["code"]), (409, &json!("FET-1021")), "{answer}");
        shop.fill("ALTER TABLE orders RENAME COLUMN code TO coed; DROP TABLE nothing; ALTER TABLE orders RENAME TO ordres").await;
        assert!(matches!(run(&pipeline).await, Finished::Failed(_)));
        let (code, message) = failure(world, &id).await;
        assert_eq!(code, "SCHEMA_MISMATCH");
        assert!(message.contains("shop.orders"), "{message}");
        shop.fill("ALTER TABLE ordres RENAME TO orders").await;

        let id = ask().await;
        shop.gone().await;
        assert!(matches!(run(&pipeline).await, Finished::Failed(_)));
        let (code, message) = failure(world, &id).await;
        assert_eq!(code, "SOURCE_UNREACHABLE");
        assert!(!message.contains("127.0.0.1") && !message.contains("p%40ss"), "{message}");

        assert_eq!(world.objects.keys(), Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn a_second_run_has_a_key_of_its_own() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        let limits = Limits { job_backoff: std::time::Duration::ZERO, ..Limits::default() };
        let pipeline = pipeline(world, Protection::Sealed, limits);
        let id = asked(world, &all_of("orders")).await;
        world
            .objects
            .fail(outport_objects::memory::Step::Put, outport_objects::memory::Fault::Full);
        assert!(matches!(run(&pipeline).await, Finished::Requeued(_)));
        assert!(matches!(run(&pipeline).await, Finished::Completed(_)));
        let path = format!("external-data/{id}.2.json");
        assert_eq!(shown(world, &id).await["resultPath"], path);
        assert_eq!(world.objects.keys(), [path]);
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn a_result_over_the_limit_fails_the_job() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        shop.fill("CREATE VIEW wide AS SELECT repeat('x', 8 * 1024 * 1024) AS text FROM generate_series(1, 33)").await;
        let id = asked(world, &all_of("wide")).await;
        let pipeline = pipeline(world, Protection::None, Limits::default());
        assert!(matches!(run(&pipeline).await, Finished::Failed(_)));
        let (code, message) = failure(world, &id).await;
        assert_eq!(code, "LIMIT_EXCEEDED");
        assert!(message.contains("256 MiB"), "{message}");
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn jobs_of_both_kinds_are_seen_here_and_only_exports_elsewhere() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        let id = asked(world, &all_of("orders")).await;
        shop.gone().await;
        let (status, list) = said(world.get("/v1/exports")).await;
        assert_eq!((status, &list["items"]), (200, &json!([])));
        for path in ["", "/file"] {
            let (status, _) = said(world.get(&format!("/v1/exports/{id}{path}"))).await;
            assert_eq!(status, 404, "{path}");
        }
        let other =
            world.token_for(|caller| caller.organization = outport_domain::id::Id::new()).await;
        let path = format!("/v1/fetcher/{id}");
        let stranger = world.client.get(world.url(&path)).bearer_auth(other);
        let (status, answer) = said(stranger).await;
        assert_eq!((status, &answer["code"]), (404, &json!("FET-1001")), "{answer}");

        let export = world.create().await.to_string();
        world.request(Method::POST, &format!("{path}/cancel")).send().await.expect("an answer");
        let finished = world.complete_next(b"code\nA\n").await;
        let job = shown(world, &export).await;
        assert_eq!(job["status"], "completed");
        assert_eq!(job["resultPath"], finished.file.expect("a file").key.as_str());
        assert!(job["mappedFields"]["shop"]["order"].is_array(), "{job}");
        assert_eq!(job["requestHash"].as_str().map(str::len), Some(64));
        let names = events(world, &export).await.into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["export.completed", "job.completed"]);
    })
    .await;
}

#[tokio::test]
async fn who_names_a_product_gets_the_connections_of_that_product() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        let ask = async |product: &str| {
            let request = world.post("/v1/fetcher").header("content-type", "application/json");
            said(request.header("x-product-name", product).body(all_of("nothing").to_string()))
                .await
        };
        let (status, answer) = ask("ledger").await;
        assert_eq!((status, &answer["code"]), (422, &json!("FET-1014")), "{answer}");
        world.force("UPDATE connections SET product = 'shop'").await;
        let (status, answer) = ask("ledger").await;
        assert_eq!((status, &answer["code"]), (422, &json!("FET-1016")), "{answer}");
        assert_eq!(ask("Shop").await.0, 202);
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn only_who_may_read_everything_may_ask() {
    World::on_sqlite(options(), async |world| {
        let ask = async |token: String| {
            let request = world.client.post(world.url("/v1/fetcher")).bearer_auth(token);
            said(request.header("content-type", "application/json").body("{}")).await
        };
        let weak = world.token_for(|caller| {
            caller.scopes.remove("fetcher:run");
        });
        let partial = world.token_for(|caller| caller.companies = Some(Vec::new()));
        for token in [weak.await, partial.await] {
            let (status, answer) = ask(token).await;
            assert_eq!((status, &answer["code"]), (403, &json!("FET-0403")), "{answer}");
        }
    })
    .await;
}
