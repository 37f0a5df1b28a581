//! A store of its own for every test, on both engines, and jobs that end in it.

use std::{panic::AssertUnwindSafe, time::Duration};

use chrono::{DateTime, Utc};
use futures::FutureExt as _;
use outport_contract::job_event::Integrity;
use outport_domain::{
    caller::Caller,
    crash::CrashPlan,
    failure::{Disposition, Failure, FailureCode},
    id::{JobId, OrganizationId, UserId},
    job::{
        Compression, ExportJob, FinishedFile, Format, JobScope, Protection, ScopeType, Warnings,
    },
    limits::Limits,
    locale::Locale,
    object_key::ObjectKey,
};
use outport_relay::{Outcome, Registry, Relay};
use outport_store::{
    PageRequest, Store, StoreConfig,
    deliveries::{self, DeliveryFilter, DeliveryView},
    jobs::{self, ClaimPolicy, FinishPolicy, Finished, RunEnd},
    submit::{self, NewJob, Submitted},
    telling::Account,
};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A store of its own.
pub struct World {
    pub store: Store,
    pub organization: OrganizationId,
    url: String,
    database: Option<String>,
    _folder: tempfile::TempDir,
}

/// What a test may want to say of a job.
pub struct Asked {
    pub locale: Locale,
    pub email: Option<&'static str>,
    pub name: Option<&'static str>,
    pub notify_email: Option<&'static str>,
    pub request: &'static str,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            locale: Locale::En,
            email: Some("ana@example.org"),
            name: Some("Ana"),
            notify_email: None,
            request: r#"{"resource":"order"}"#,
        }
    }
}

/// Limits in which nothing takes long.
pub fn quick() -> Limits {
    Limits {
        lease: Duration::from_secs(3),
        heartbeat: Duration::from_millis(100),
        delivery_attempts: 3,
        delivery_backoff: Duration::from_millis(1),
        delivery_backoff_most: Duration::from_millis(10),
        handler_time: Duration::from_secs(20),
        drain: Duration::from_secs(20),
        ..Limits::default()
    }
}

impl World {
    /// Runs a test in an `SQLite` world.
    pub async fn on_sqlite(test: impl AsyncFnOnce(&Self)) {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("outport.db").display());
        Self::run(url, None, folder, test).await;
    }

    /// Runs a test in a `PostgreSQL` world, a database of its own.
    pub async fn on_postgres(test: impl AsyncFnOnce(&Self)) {
        let server = server();
        let database = format!("outport_relay_{}", Uuid::now_v7().simple());
        administer(&format!("CREATE DATABASE {database}")).await;
        let mut url = url::Url::parse(&server).expect("OUTPORT_TEST_POSTGRES is a URL");
        url.set_path(&database);
        let folder = tempfile::tempdir().expect("a folder");
        Self::run(url.into(), Some(database), folder, test).await;
    }

    async fn run(
        url: String,
        database: Option<String>,
        folder: tempfile::TempDir,
        test: impl AsyncFnOnce(&Self),
    ) {
        let store = connect(&url).await;
        store.migrate().await.expect("the schema");
        let organization = OrganizationId::new();
        let world = Self { store, organization, url, database, _folder: folder };
        let outcome = AssertUnwindSafe(test(&world)).catch_unwind().await;
        world.store.close().await;
        if let Some(database) = &world.database {
            administer(&format!("DROP DATABASE {database} WITH (FORCE)")).await;
        }
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    }

    /// A second connection to the same state, as another process has it.
    pub async fn connect_again(&self) -> Store {
        connect(&self.url).await
    }

    /// Breaks every connection to the state. `SQLite` has none that could break.
    pub async fn cut_connections(&self) {
        let Some(database) = &self.database else { return };
        administer(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
        ))
        .await;
    }

    /// The same over a wire to the server. On `PostgreSQL` only.
    pub async fn connect_over(&self, port: u16) -> Store {
        let mut url = url::Url::parse(&self.url).expect("a URL");
        url.set_port(Some(port)).expect("a URL with a host");
        let acquire_timeout = Duration::from_secs(1);
        let config = StoreConfig { url: url.into(), max_connections: 5, acquire_timeout };
        Store::connect(&config).await.expect("a store")
    }

    /// Where the server listens. On `PostgreSQL` only.
    pub fn port(&self) -> u16 {
        url::Url::parse(&self.url).expect("a URL").port().unwrap_or(5432)
    }

    /// Runs statements that no code of ours runs.
    pub async fn force(&self, sql: &str) {
        if let Some(path) = self.url.strip_prefix("sqlite://") {
            let connection = rusqlite::Connection::open(path).expect("a connection");
            connection.busy_timeout(PATIENCE).expect("a time limit");
            return connection.execute_batch(sql).expect("statements");
        }
        let mut connection = PgConnection::connect(&self.url).await.expect("a connection");
        connection.execute(sqlx::AssertSqlSafe(sql)).await.expect("statements");
        connection.close().await.expect("a goodbye");
    }

    /// Deletes all deliveries, as no code of ours does. On `PostgreSQL` only.
    pub async fn lose_deliveries(&self) {
        let mut connection = PgConnection::connect(&self.url).await.expect("a connection");
        connection.execute("DELETE FROM deliveries").await.expect("a deletion");
        connection.close().await.expect("a goodbye");
    }

    /// Purges what may be purged, as if its retention had passed. Returns how many jobs went.
    pub async fn purge(&self) -> u64 {
        let mut tx = self.store.begin().await.expect("a transaction");
        let purged = jobs::purge(&mut tx, Duration::ZERO, 100).await.expect("a purge");
        tx.commit().await.expect("a commit");
        purged
    }

    /// A relay over these handlers, which are registered.
    pub async fn relay(&self, registry: Registry, limits: Limits) -> Relay {
        self.crashing_relay(registry, limits, CrashPlan::none()).await
    }

    pub async fn crashing_relay(
        &self,
        registry: Registry,
        limits: Limits,
        crash: CrashPlan,
    ) -> Relay {
        self.register(&registry).await;
        Relay::new(self.store.clone(), registry, limits, crash)
    }

    pub async fn register(&self, registry: &Registry) {
        let mut tx = self.store.begin().await.expect("a transaction");
        deliveries::register(&mut tx, &registry.rows()).await.expect("registration");
        tx.commit().await.expect("a commit");
    }

    /// A job that ends as COMPLETED with 1,234 rows.
    pub async fn completed(&self, asked: &Asked) -> ExportJob {
        let job = self.submit(asked).await;
        match self.end(job, completed_file).await {
            Finished::Completed(job) => job,
            other => panic!("not completed: {other:?}"),
        }
    }

    /// A job that ends as FAILED.
    pub async fn failed(&self, asked: &Asked) -> ExportJob {
        let job = self.submit(asked).await;
        let failure = Failure::new(FailureCode::LimitExceeded, "more than 10 rows")
            .with_disposition(Disposition::Abandon);
        match self.end(job, |_| RunEnd::Failed(failure)).await {
            Finished::Failed(job) => job,
            other => panic!("not failed: {other:?}"),
        }
    }

    async fn submit(&self, asked: &Asked) -> JobId {
        let new = NewJob {
            id: JobId::new(),
            kind: outport_domain::job::JobKind::Export,
            schedule: None,
            caller: Caller {
                organization: self.organization,
                companies: None,
                cooperatives: None,
                user: UserId::new(),
                email: asked.email.map(str::to_owned),
                name: asked.name.map(str::to_owned),
                locale: Some(asked.locale),
                scopes: std::collections::BTreeSet::new(),
                token: None,
            },
            scope: JobScope {
                scope_type: ScopeType::Organization,
                organization: self.organization,
                company: None,
                cooperative: None,
            },
            resource: "order".to_owned(),
            application: "outport".to_owned(),
            format: Format::Csv,
            compression: Compression::None,
            split: false,
            columns: vec!["code".to_owned()],
            products: std::collections::BTreeMap::new(),
            connection_ids: None,
            filters: "{}".to_owned(),
            resolved_filters: None,
            request: asked.request.to_owned(),
            metadata: None,
            locale: asked.locale,
            notify_email: asked.notify_email.map(str::to_owned),
            file_name: "março.csv".to_owned(),
            requested_at: Utc::now(),
        };
        let mut tx = self.store.begin().await.expect("a transaction");
        let submitted = submit::submit(&mut tx, &new, None, 1_000).await.expect("a submission");
        tx.commit().await.expect("a commit");
        match submitted {
            Submitted::Created(job) => job.id,
            other => panic!("not created: {other:?}"),
        }
    }

    async fn end(&self, job: JobId, end: impl FnOnce(&ExportJob) -> RunEnd) -> Finished {
        let policy = ClaimPolicy {
            worker: "test".to_owned(),
            lease: PATIENCE,
            running_per_organization: 1_000,
        };
        let mut tx = self.store.begin().await.expect("a transaction");
        let claim = jobs::claim(&mut tx, &policy).await.expect("a claim").expect("a due job");
        tx.commit().await.expect("a commit");
        assert_eq!(claim.job.id, job, "only one job is due at a time");
        let policy = FinishPolicy {
            job_failures: 1,
            backoff: Duration::from_secs(1),
            backoff_most: Duration::from_secs(1),
            file_retention: Duration::from_hours(168),
        };
        let mut tx = self.store.begin().await.expect("a transaction");
        let end = end(&claim.job);
        let finished =
            jobs::finish(&mut tx, &claim.fence, &end, &policy, &Account::default()).await;
        let finished = finished.expect("an end");
        tx.commit().await.expect("a commit");
        finished
    }

    /// All deliveries of a job, or of all jobs.
    pub async fn deliveries(&self, job: Option<JobId>) -> Vec<DeliveryView> {
        let filter = DeliveryFilter { job, ..DeliveryFilter::default() };
        let page = PageRequest { limit: 200, after: None };
        deliveries::list(&self.store, self.organization, &filter, page).await.expect("a list").items
    }

    /// The one delivery of this handler for this job.
    pub async fn delivery(&self, job: JobId, handler: &str) -> DeliveryView {
        let mut found = self.deliveries(Some(job)).await;
        found.retain(|delivery| delivery.handler == handler);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    pub async fn job(&self, job: JobId) -> ExportJob {
        let found = jobs::find(&self.store, self.organization, job).await.expect("an answer");
        found.expect("the job")
    }
}

fn completed_file(job: &ExportJob) -> RunEnd {
    RunEnd::Completed(FinishedFile {
        key: ObjectKey::parse(&format!("data-transfer/exports/{}/orders.csv", job.id))
            .expect("a key"),
        size_bytes: 56_789,
        stored_bytes: 56_789,
        total_rows: 1_234,
        sha256: "0".repeat(64),
        integrity: Some(Integrity::new("0".repeat(64), 1)),
        protection: Protection::None,
        warnings: Warnings::default(),
        snapshot_at: Utc::now(),
    })
}

/// Ticks and settles until nothing waits any more.
pub async fn work_off(relay: &mut Relay) {
    let patience = tokio::time::Instant::now() + PATIENCE;
    loop {
        assert!(tokio::time::Instant::now() < patience, "the work does not end");
        match relay.tick().await.expect("a look") {
            Outcome::Worked(_) => relay.settle().await,
            Outcome::Idle => return,
            Outcome::RetryAt(due) => until(due).await,
        }
    }
}

async fn until(due: DateTime<Utc>) {
    let pause = (due - Utc::now()).to_std().unwrap_or_default();
    tokio::time::sleep(pause.clamp(Duration::from_millis(5), PATIENCE)).await;
}

async fn connect(url: &str) -> Store {
    let config = StoreConfig {
        url: url.to_owned(),
        max_connections: 5,
        acquire_timeout: Duration::from_secs(10),
    };
    Store::connect(&config).await.expect("a store")
}

fn server() -> String {
    std::env::var("OUTPORT_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned())
}

async fn administer(statement: &str) {
    let mut connection = PgConnection::connect(&server())
        .await
        .expect("PostgreSQL answers where OUTPORT_TEST_POSTGRES says");
    connection.execute(sqlx::AssertSqlSafe(statement)).await.expect("an administrator's statement");
    connection.close().await.expect("a goodbye");
}

/// Makes of each `async fn(&World)` a test on `SQLite` and one on `PostgreSQL`.
macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                crate::world::World::on_sqlite(super::$test).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                crate::world::World::on_postgres(super::$test).await;
            })*
        }
    };
}
pub(crate) use on_both_stores;
