//! A database of one's own, and the words that the tests are written in.

use std::{collections::BTreeSet, env, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use outport_contract::job_event::Integrity;
use outport_domain::{
    caller::Caller,
    failure::{Failure, FailureCode},
    id::{Fence, JobId, OrganizationId, TokenId, UserId},
    job::{
        Compression, ExportJob, FinishedFile, Format, JobScope, Protection, ScopeType, Warnings,
    },
    locale::Locale,
    object_key::ObjectKey,
};
use outport_store::{
    Engine, PageRequest, Store, StoreConfig, StoreError,
    deliveries::{self, HandlerRow},
    events,
    jobs::{self, Claim, ClaimPolicy, FinishPolicy, Finished, RunEnd},
    submit::{self, IdempotencyKey, NewJob, Submitted},
    telling::Account,
};
use sea_orm::{ConnectionTrait as _, Database, DatabaseConnection, DbBackend, Statement};
use tempfile::TempDir;

pub const HANDLER: &str = "send-export-completed-message";

/// A migrated database and a look behind the store's back.
#[derive(Clone)]
pub struct Bench {
    pub store: Store,
    pub config: StoreConfig,
    pub sql: DatabaseConnection,
    _folder: Arc<Option<TempDir>>,
}

/// Runs a test on a fresh, migrated database, which is dropped whatever the test comes to.
pub async fn run<F>(engine: Engine, test: impl FnOnce(Bench) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (config, folder) = fresh(engine).await;
    let store = Store::connect(&config).await.expect("the store connects");
    store.migrate().await.expect("the schema is made");
    let sql = Database::connect(&config.url).await.expect("a second connection");
    let bench = Bench {
        store: store.clone(),
        config: config.clone(),
        sql: sql.clone(),
        _folder: Arc::new(folder),
    };
    let outcome = tokio::spawn(test(bench)).await;
    store.close().await;
    sql.close().await.expect("the second connection closes");
    remove(engine, &config).await;
    if let Err(error) = outcome {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Where an empty database is.
pub async fn fresh(engine: Engine) -> (StoreConfig, Option<TempDir>) {
    let config =
        |url| StoreConfig { url, max_connections: 12, acquire_timeout: Duration::from_secs(20) };
    match engine {
        Engine::Sqlite => {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("state.db");
            (config(format!("sqlite://{}?mode=rwc", path.display())), Some(folder))
        }
        Engine::Postgres => {
            let name = format!("outport_store_{}", JobId::new().uuid().simple());
            admin(&format!("CREATE DATABASE {name}")).await;
            let server = server();
            let (before, _) = server.rsplit_once('/').expect("a URL with a database");
            (config(format!("{before}/{name}")), None)
        }
    }
}

/// Drops what `fresh` made.
pub async fn remove(engine: Engine, config: &StoreConfig) {
    if engine == Engine::Postgres {
        let (_, name) = config.url.rsplit_once('/').expect("a URL with a database");
        admin(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
    }
}

/// Makes a copy of a database that nobody is connected to.
pub async fn copy(from: &StoreConfig, to: &StoreConfig) {
    let name = |config: &StoreConfig| config.url.rsplit_once('/').map(|(_, name)| name.to_owned());
    let (from, to) = (name(from).expect("a name"), name(to).expect("a name"));
    admin(&format!("CREATE DATABASE {to} TEMPLATE {from}")).await;
}

fn server() -> String {
    env::var("OUTPORT_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned())
}

async fn admin(sql: &str) {
    let connection = Database::connect(server()).await.expect("PostgreSQL is reachable");
    connection.execute_unprepared(sql).await.expect("an administrative statement");
    connection.close().await.expect("the connection closes");
}

impl Bench {
    /// Runs a statement behind the store's back.
    pub async fn force(&self, sql: &str) -> u64 {
        self.sql.execute_unprepared(sql).await.expect("a forced statement").rows_affected()
    }

    /// A number read behind the store's back.
    pub async fn count(&self, sql: &str) -> i64 {
        let backend = match self.store.engine() {
            Engine::Sqlite => DbBackend::Sqlite,
            Engine::Postgres => DbBackend::Postgres,
        };
        let statement = Statement::from_string(backend, format!("SELECT ({sql}) AS number"));
        let row = self.sql.query_one_raw(statement).await.expect("a count").expect("a row");
        row.try_get("", "number").expect("a number")
    }

    /// Moves everything in time: what was due in an hour is due now.
    pub async fn make_all_due(&self) {
        self.force("UPDATE jobs SET due_at = 0 WHERE status = 'PENDING'").await;
        self.force("UPDATE deliveries SET due_at = 0 WHERE status IN ('PENDING', 'RUNNING')").await;
    }

    /// Lets all leases of jobs end.
    pub async fn expire_leases(&self) {
        self.force("UPDATE jobs SET lease_expires_at = 1 WHERE lease_expires_at IS NOT NULL").await;
    }

    pub async fn submit(&self, job: &NewJob) -> ExportJob {
        match self.try_submit(job, None).await.expect("a submission") {
            Submitted::Created(job) => job,
            other => panic!("not created: {other:?}"),
        }
    }

    pub async fn try_submit(
        &self,
        job: &NewJob,
        key: Option<&IdempotencyKey>,
    ) -> Result<Submitted, StoreError> {
        let mut tx = self.store.begin().await?;
        let submitted = submit::submit(&mut tx, job, key, 1_000).await?;
        tx.commit().await?;
        Ok(submitted)
    }

    pub async fn claim(&self) -> Option<Claim> {
        self.claim_with(&claim_policy()).await
    }

    pub async fn claim_with(&self, policy: &ClaimPolicy) -> Option<Claim> {
        let mut tx = self.store.begin().await.expect("a transaction");
        let claim = jobs::claim(&mut tx, policy).await.expect("a claim");
        tx.commit().await.expect("a commit");
        claim
    }

    /// A job of this organization that has been submitted and claimed.
    pub async fn running(&self, organization: OrganizationId) -> Claim {
        let job = self.submit(&new_job(organization)).await;
        let claim = self.claim().await.expect("a due job");
        assert_eq!(claim.job.id, job.id, "the queue was not empty");
        claim
    }

    pub async fn finish(&self, fence: &Fence, end: &RunEnd) -> Finished {
        self.finish_with(fence, end, &finish_policy()).await
    }

    pub async fn finish_with(
        &self,
        fence: &Fence,
        end: &RunEnd,
        policy: &FinishPolicy,
    ) -> Finished {
        let mut tx = self.store.begin().await.expect("a transaction");
        let finished = jobs::finish(&mut tx, fence, end, policy, &Account::default()).await;
        let finished = finished.expect("an end");
        tx.commit().await.expect("a commit");
        finished
    }

    /// A completed job of this organization.
    pub async fn completed(&self, organization: OrganizationId) -> ExportJob {
        let claim = self.running(organization).await;
        let file = file_of(&claim);
        jobs::record_object(&self.store, &claim.fence, &file.key, None).await.expect("recorded");
        match self.finish(&claim.fence, &RunEnd::Completed(file)).await {
            Finished::Completed(job) => job,
            other => panic!("not completed: {other:?}"),
        }
    }

    pub async fn rescue(&self, fence: &Fence) -> Finished {
        let mut tx = self.store.begin().await.expect("a transaction");
        let rescued = jobs::rescue(&mut tx, fence, &finish_policy()).await.expect("a rescue");
        tx.commit().await.expect("a commit");
        rescued
    }

    pub async fn cancel(&self, job: &ExportJob) -> jobs::CancelOutcome {
        let mut tx = self.store.begin().await.expect("a transaction");
        let organization = job.scope.organization;
        let outcome = jobs::request_cancel(&mut tx, organization, job.id).await.expect("an answer");
        tx.commit().await.expect("a commit");
        outcome
    }

    pub async fn register(&self, name: &str, event_types: &[&str]) {
        let mut tx = self.store.begin().await.expect("a transaction");
        deliveries::register(&mut tx, &[handler(name, event_types)]).await.expect("registered");
        tx.commit().await.expect("a commit");
    }

    /// The types of a job's events, in order.
    pub async fn told(&self, job: &ExportJob) -> Vec<String> {
        let told = events::of_job(&self.store, job.scope.organization, job.id).await;
        told.expect("events").into_iter().map(|event| event.event_type).collect()
    }

    pub async fn find(&self, job: &ExportJob) -> ExportJob {
        jobs::find(&self.store, job.scope.organization, job.id)
            .await
            .expect("a look")
            .expect("the job is there")
    }

    /// The numbers of every turn row are those of the jobs.
    pub async fn assert_counters(&self) {
        let wrong = self
            .count(
                "SELECT COUNT(*) FROM turns t WHERE \
                 queued <> (SELECT COUNT(*) FROM jobs j WHERE j.organization_id = t.organization_id \
                            AND status = 'PENDING') OR \
                 running <> (SELECT COUNT(*) FROM jobs j WHERE j.organization_id = t.organization_id \
                             AND status IN ('PROCESSING', 'CANCELING'))",
            )
            .await;
        assert_eq!(wrong, 0, "turn rows with wrong numbers");
    }
}

pub fn handler(name: &str, event_types: &[&str]) -> HandlerRow {
    HandlerRow {
        name: name.to_owned(),
        event_types: event_types.iter().map(|&name| name.to_owned()).collect(),
    }
}

pub fn caller(organization: OrganizationId) -> Caller {
    Caller {
        organization,
        companies: Some(vec![outport_domain::id::Id::new()]),
        cooperatives: None,
        user: UserId::new(),
        email: Some("ana@example.com".to_owned()),
        name: Some("Ana".to_owned()),
        locale: Some(Locale::PtBr),
        scopes: BTreeSet::from(["exports:write".to_owned()]),
        token: Some(TokenId::new()),
    }
}

pub fn new_job(organization: OrganizationId) -> NewJob {
    NewJob {
        id: JobId::new(),
        kind: outport_domain::job::JobKind::Export,
        schedule: None,
        caller: caller(organization),
        scope: JobScope {
            scope_type: ScopeType::Organization,
            organization,
            company: None,
            cooperative: None,
        },
        resource: "order".to_owned(),
        application: "shop".to_owned(),
        format: Format::Csv,
        compression: Compression::None,
        split: false,
        columns: vec!["id".to_owned(), "total".to_owned()],
        products: std::collections::BTreeMap::new(),
        connection_ids: None,
        filters: r#"{"total":{"operator":"GTE","value":10.10}}"#.to_owned(),
        resolved_filters: None,
        request: r#"{"resource":"order"}"#.to_owned(),
        metadata: Some(r#"{"b":1,"a":2}"#.to_owned()),
        locale: Locale::PtBr,
        notify_email: None,
        file_name: "Relatório.csv".to_owned(),
        requested_at: Utc::now(),
    }
}

pub fn claim_policy() -> ClaimPolicy {
    ClaimPolicy {
        worker: "worker-1".to_owned(),
        lease: Duration::from_secs(30),
        running_per_organization: 2,
    }
}

pub fn finish_policy() -> FinishPolicy {
    FinishPolicy {
        job_failures: 3,
        backoff: Duration::ZERO,
        backoff_most: Duration::ZERO,
        file_retention: Duration::from_hours(168),
    }
}

pub fn key_of(claim: &Claim) -> ObjectKey {
    ObjectKey::of_export(claim.job.id, claim.fence.run, "orders", "csv").expect("a key")
}

pub fn file_of(claim: &Claim) -> FinishedFile {
    FinishedFile {
        key: key_of(claim),
        size_bytes: 1_000,
        stored_bytes: 1_056,
        total_rows: 12,
        sha256: "ab".repeat(32),
        integrity: Some(integrity("cd")),
        protection: Protection::None,
        warnings: Warnings { replaced_cells: 1, guarded_cells: 2 },
        snapshot_at: DateTime::from_timestamp_millis(1_751_631_600_123).expect("an instant"),
    }
}

/// A signature of these digits, again and again.
pub fn integrity(digits: &str) -> Integrity {
    Integrity::new(digits.repeat(32), 1)
}

pub fn failed() -> RunEnd {
    RunEnd::Failed(Failure::new(FailureCode::SourceUnreachable, "The source is away."))
}

pub fn abandoned() -> RunEnd {
    RunEnd::Failed(Failure::new(FailureCode::SchemaMismatch, "No such column."))
}

pub fn key(text: &str, fingerprint: u8) -> IdempotencyKey {
    IdempotencyKey {
        key: text.to_owned(),
        fingerprint: [fingerprint; 32],
        life: Duration::from_hours(1),
    }
}

pub fn first_page(limit: u32) -> PageRequest {
    PageRequest { limit, after: None }
}
