//! What the tests of the Fetcher facade share: databases that are read, requests, and one run.

use std::{collections::BTreeMap, sync::Arc};

use outport_contract::{key::DerivedKey, key_ring::KeyRing, signature::ResultSigner};
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

pub const SOURCE: &str = r#"
CREATE TABLE orders (id {moment}, code {text}, "Odd ""name" {text}, amount {decimal}, note {text}, paid BOOLEAN);
INSERT INTO orders VALUES ('2026-07-01 10:00:00', 'A', 'x', 12345678901234567890.10, 'São "1"', TRUE),
                          ('2026-07-02 10:00:00', 'B', 'y', 0.50, NULL, FALSE);
CREATE TABLE nothing (id INT);
"#;

/// A database that is read.
pub enum Database {
    Postgres(String),
    MariaDb(String),
}

impl Database {
    pub async fn postgres() -> Self {
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

    pub async fn mariadb() -> Self {
        // MySQL's users have names of 32 characters at most.
        let name = format!("outport_{}", &Uuid::now_v7().simple().to_string()[8..]);
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

    pub fn name(&self) -> &str {
        match self {
            Self::Postgres(name) | Self::MariaDb(name) => name,
        }
    }

    pub async fn administer(&self, sql: &str) {
        self.run(&self.server(), &sql.replace("{}", self.name())).await;
    }

    pub async fn fill(&self, sql: &str) {
        let mut url = self.server();
        url.set_path(self.name());
        self.run(&url, sql).await;
    }

    pub fn server(&self) -> Url {
        let (variable, default) = match self {
            Self::Postgres(_) => {
                ("OUTPORT_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/postgres")
            }
            Self::MariaDb(_) => ("OUTPORT_TEST_MARIADB", "mysql://root@127.0.0.1:3306/test"),
        };
        let url = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        Url::parse(&url).expect("a URL")
    }

    pub async fn run(&self, url: &Url, sql: &str) {
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
    pub fn connection(&self, name: &str) -> Value {
        let server = self.server();
        let (kind, user) = match self {
            Self::Postgres(_) => ("POSTGRESQL", server.username()),
            Self::MariaDb(_) => ("MYSQL", self.name()),
        };
        json!({"configName": name, "type": kind, "host": server.host_str(), "port": server.port(),
               "databaseName": self.name(), "userName": user, "password": "p%40ss"})
    }

    pub async fn gone(self) {
        match self {
            Self::Postgres(_) => self.administer("DROP DATABASE {} WITH (FORCE)").await,
            Self::MariaDb(_) => {
                self.administer("DROP DATABASE {}").await;
                self.administer("DROP USER {}@'%'").await;
            }
        }
    }
}

pub async fn said(request: RequestBuilder) -> (u16, Value) {
    let (status, value) = json(request.send().await.expect("an answer")).await;
    (status.as_u16(), value)
}

pub async fn post(world: &World, path: &str, body: &Value) -> (u16, Value) {
    let request = world.request(Method::POST, path).header("content-type", "application/json");
    said(request.body(body.to_string())).await
}

pub async fn store(world: &World, connection: &Value) -> String {
    let (status, answer) = post(world, "/v1/management/connections", connection).await;
    assert_eq!(status, 201, "{answer}");
    answer["id"].as_str().expect("an id").to_owned()
}

#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
pub fn request(mapped_fields: Value, filters: Value) -> Value {
    json!({"dataRequest": {"mappedFields": mapped_fields, "filters": filters},
           "metadata": {"source": "payments", "n": 1}})
}

pub fn all_of(table: &str) -> Value {
    request(json!({"shop": {table: ["*"]}}), json!({}))
}

/// Asks, and returns the job's id.
pub async fn asked(world: &World, body: &Value) -> String {
    let (status, answer) = post(world, "/v1/fetcher", body).await;
    assert_eq!(status, 202, "{answer}");
    assert_eq!(answer["status"], "pending");
    assert!(answer["createdAt"].is_string() && answer["message"].is_string(), "{answer}");
    answer["jobId"].as_str().expect("an id").to_owned()
}

pub fn external() -> KeyRing {
    KeyRing::new(1, DerivedKey::from_bytes([7; 32]))
}

pub fn pipeline(world: &World, protection: Protection, limits: Limits) -> Pipeline {
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

pub fn policy() -> ClaimPolicy {
    ClaimPolicy {
        worker: "test".to_owned(),
        lease: std::time::Duration::from_mins(1),
        running_per_organization: 100,
    }
}

/// Runs the oldest due job.
pub async fn run(pipeline: &Pipeline) -> Finished {
    let claim = pipeline.claim(&policy()).await.expect("a claim").expect("a due job");
    pipeline.run_one(claim, CancellationToken::new()).await
}

pub async fn shown(world: &World, id: &str) -> Value {
    let (status, job) = said(world.get(&format!("/v1/fetcher/{id}"))).await;
    assert_eq!(status, 200, "{job}");
    job
}

/// The events of a job: their names and bodies.
pub async fn events(world: &World, id: &str) -> Vec<(String, Value)> {
    let id: JobId = id.parse().expect("an id");
    let events = outport_store::events::of_job(&world.store, world.organization, id).await;
    let events = events.expect("events").into_iter();
    events
        .map(|event| (event.event_type, serde_json::from_str(&event.body).expect("JSON")))
        .collect()
}

/// The one event of a failed job, and what it says of the error.
pub async fn failure(world: &World, id: &str) -> (String, String) {
    let events = events(world, id).await;
    let [(name, body)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((name.as_str(), &body["status"]), ("job.failed", &json!("failed")));
    assert_eq!(body["metadata"]["source"], "payments", "{body}");
    assert!(body.get("result").is_none() && body.get("completedAt").is_none(), "{body}");
    let error = &body["metadata"]["error"];
    let text = |member: &str| error[member].as_str().expect("a text").to_owned();
    (text("code"), text("message"))
}

pub fn options() -> Options {
    Options { facade: Some(Vec::new()), ..Options::default() }
}
