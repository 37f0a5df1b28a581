//! A world for runs: a fresh state database, objects in memory with planned faults, and a
//! source whose rows and faults the test decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_contract::{key::DerivedKey, key_ring::KeyRing, signature::ResultSigner};
use outport_domain::{
    caller::Caller,
    crash::CrashPlan,
    failure::{Disposition, FailureCode},
    id::{JobId, OrganizationId, UserId},
    job::{ExportJob, Protection},
    limits::Limits,
    locale::Locale,
    resource::Resource,
    selection::Selection,
    spec::{self, Catalogue, RequestContext},
};
use outport_objects::{ObjectStore, memory::MemoryStore};
use outport_pipeline::{
    Pipeline,
    connections::{Connections, Parts},
    fetcher::Facade,
};
use outport_source::{Batch, Next, RowStream, Source, SourceError};
use outport_store::{
    Store, StoreConfig, deliveries, events,
    jobs::{self, Claim, ClaimPolicy, Finished},
    submit::{NewJob, Submitted, submit},
};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

const RESOURCE: &str = r#"
    name = "order"
    connection = "shop"
    from = "orders"
    [scope]
    organization = "organization_id"
    [[columns]]
    key = "code"
    type = "text"
    [[columns]]
    key = "note"
    type = "text"
"#;

/// What the source does, batch by batch.
#[derive(Clone, Debug)]
pub enum Act {
    /// Gives so many rows of two short cells.
    Rows(u64),
    /// Gives one row whose note has so many bytes: `a` in the first such row, `b` in the second.
    Wide(usize),
    /// Gives these rows.
    Cells(Vec<[String; 2]>),
    /// Says that the result is complete, with this count.
    End(u64),
    /// Fails with this code.
    Fail(FailureCode),
    /// Fails so, with these words.
    FailSaying(FailureCode, &'static str),
    /// Never answers.
    Hang,
    /// Panics.
    Panic,
}

/// A source that plays a script; every opened stream starts it anew.
#[derive(Clone, Default)]
pub struct Scripted {
    script: Arc<Mutex<Vec<Act>>>,
    pub canceled: Arc<Mutex<u32>>,
    /// Is told when the source has said that the result is complete.
    pub ended: Arc<Notify>,
}

impl Scripted {
    pub fn plays(&self, acts: impl IntoIterator<Item = Act>) {
        *self.script.lock().expect("not poisoned") = acts.into_iter().collect();
    }
}

#[async_trait]
impl Source for Scripted {
    async fn open(&self, _selection: &Selection) -> Result<Box<dyn RowStream>, SourceError> {
        let mut acts = self.script.lock().expect("not poisoned").clone();
        acts.reverse();
        let (canceled, ended) = (Arc::clone(&self.canceled), Arc::clone(&self.ended));
        Ok(Box::new(ScriptedRows { acts, wide: 0, canceled, ended }))
    }

    async fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }
}

struct ScriptedRows {
    acts: Vec<Act>,
    wide: u8,
    canceled: Arc<Mutex<u32>>,
    ended: Arc<Notify>,
}

#[async_trait]
impl RowStream for ScriptedRows {
    fn snapshot_at(&self) -> DateTime<Utc> {
        Utc::now()
    }

    async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        batch.clear();
        match self.acts.pop() {
            Some(Act::Rows(rows)) => {
                for row in 0..rows {
                    batch.push(format!("ORD-{row}").as_bytes());
                    batch.push(b"a note");
                }
                Ok(Next::Rows)
            }
            Some(Act::Wide(bytes)) => {
                batch.push(b"wide");
                batch.push(&vec![b'a' + self.wide % 26; bytes]);
                self.wide += 1;
                Ok(Next::Rows)
            }
            Some(Act::Cells(rows)) => {
                rows.iter().flatten().for_each(|cell| batch.push(cell.as_bytes()));
                Ok(Next::Rows)
            }
            Some(Act::End(rows)) => {
                self.ended.notify_one();
                Ok(Next::End { rows })
            }
            Some(Act::Fail(code)) => Err(failure(code, "the source failed as planned")),
            Some(Act::FailSaying(code, words)) => Err(failure(code, words)),
            Some(Act::Panic) => panic!("the source panics as planned"),
            Some(Act::Hang) | None => std::future::pending().await,
        }
    }

    async fn cancel(self: Box<Self>) {
        *self.canceled.lock().expect("not poisoned") += 1;
    }
}

fn failure(code: FailureCode, words: &str) -> SourceError {
    let disposition = Disposition::Abandon;
    SourceError { code, message: words.to_owned(), disposition, cause: None }
}

/// Nothing of a Fetcher's is asked for here.
fn facade(store: &Store) -> Facade {
    let connections = Connections::new(Parts {
        store: store.clone(),
        shared: BTreeMap::new(),
        credentials: external(),
        denied: Vec::new(),
        connect_timeout: Duration::from_secs(10),
    });
    Facade { connections, tenant_in_key: false, memory: Arc::new(Semaphore::new(1)) }
}

/// The keys that results are signed with.
pub fn external() -> KeyRing {
    KeyRing::new(1, DerivedKey::from_bytes([7; 32]))
}

pub struct World {
    pub pipeline: Pipeline,
    pub memory: MemoryStore,
    pub source: Scripted,
    pub caller: Caller,
    /// What is requested.
    pub body: Value,
    pub folder: tempfile::TempDir,
}

impl World {
    pub async fn new() -> Self {
        Self::with(CrashPlan::none(), |_| {}).await
    }

    /// A world on `SQLite` with these limits; one handler wants every event.
    pub async fn with(crash: CrashPlan, limit: impl FnOnce(&mut Limits)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let config = StoreConfig {
            url: format!("sqlite://{}", dir.path().join("state.db").display()),
            max_connections: 4,
            acquire_timeout: Duration::from_secs(10),
        };
        let store = Store::connect(&config).await.expect("a state database");
        store.migrate().await.expect("a schema");
        let mut tx = store.begin().await.expect("a transaction");
        let event_types =
            ["export.completed", "export.failed", "export.canceled"].map(str::to_owned);
        let handler =
            deliveries::HandlerRow { name: "probe".to_owned(), event_types: event_types.into() };
        deliveries::register(&mut tx, &[handler]).await.expect("registered");
        tx.commit().await.expect("committed");
        let mut limits = Limits { lease: Duration::from_secs(30), ..Limits::default() };
        limit(&mut limits);
        let memory = MemoryStore::new();
        let spool_dir = dir.path().join("spool");
        std::fs::create_dir(&spool_dir).expect("a folder");
        let source = Scripted::default();
        let resource = Resource::from_toml(RESOURCE).expect("a resource");
        let sources: BTreeMap<String, Arc<dyn Source>> =
            BTreeMap::from([("shop".to_owned(), Arc::new(source.clone()) as Arc<dyn Source>)]);
        let pipeline = Pipeline {
            store: store.clone(),
            objects: Arc::new(memory.clone()),
            catalogue: Arc::new(Catalogue(BTreeMap::from([("order".to_owned(), resource.into())]))),
            sources: Arc::new(sources),
            facade: facade(&store),
            signer: ResultSigner::new(&external()),
            storage: KeyRing::new(1, DerivedKey::from_bytes([8; 32])),
            protection: Protection::None,
            limits: Arc::new(limits),
            spool_dir,
            crash,
        };
        let caller = Caller {
            organization: OrganizationId::new(),
            companies: None,
            cooperatives: None,
            user: UserId::new(),
            email: Some("ana@example.com".to_owned()),
            name: None,
            locale: None,
            scopes: BTreeSet::new(),
            token: None,
        };
        let body = json!({"resource": "order"});
        Self { pipeline, memory, source, caller, body, folder: dir }
    }

    /// Declares the resource anew, changed.
    pub fn declare(&mut self, change: impl FnOnce(&mut Resource)) {
        let mut resource = Resource::from_toml(RESOURCE).expect("a resource");
        change(&mut resource);
        let catalogue = BTreeMap::from([("order".to_owned(), resource.into())]);
        self.pipeline.catalogue = Arc::new(Catalogue(catalogue));
    }

    /// Enqueues an export.
    pub async fn request(&self) -> JobId {
        self.request_at(Utc::now()).await
    }

    /// Enqueues an export that was asked for at this moment.
    pub async fn request_at(&self, requested_at: DateTime<Utc>) -> JobId {
        let body = self.body.to_string();
        let context = RequestContext {
            caller: &self.caller,
            locale: Locale::En,
            requested_at,
            resolved_filters: None,
        };
        let spec = spec::parse(&body, &self.pipeline.catalogue, context).expect("a valid request");
        let job = NewJob {
            id: JobId::new(),
            kind: outport_domain::job::JobKind::Export,
            schedule: None,
            caller: self.caller.clone(),
            scope: spec.scope,
            resource: spec.resource.name.clone(),
            application: "outport".to_owned(),
            format: spec.format,
            compression: spec.compression,
            split: spec.split.is_some(),
            columns: spec.columns.iter().map(|column| column.key.clone()).collect(),
            products: BTreeMap::new(),
            connection_ids: None,
            filters: spec.filters,
            resolved_filters: spec.resolved_filters,
            request: body,
            metadata: None,
            locale: spec.locale,
            notify_email: None,
            file_name: spec.file_name,
            requested_at,
        };
        let mut tx = self.pipeline.store.begin().await.expect("a transaction");
        let submitted = submit(&mut tx, &job, None, 100).await.expect("submitted");
        assert!(matches!(submitted, Submitted::Created(_)), "{submitted:?}");
        tx.commit().await.expect("committed");
        job.id
    }

    pub async fn claim(&self) -> Claim {
        let policy = ClaimPolicy {
            worker: "test".to_owned(),
            lease: self.pipeline.limits.lease,
            running_per_organization: 10,
        };
        self.pipeline.claim(&policy).await.expect("claimed").expect("a due job")
    }

    /// Requests and claims one export, and runs it beside the test.
    pub async fn start(&self) -> (JobId, JoinHandle<Finished>) {
        let job = self.request().await;
        let (claim, pipeline) = (self.claim().await, self.pipeline.clone());
        let run =
            tokio::spawn(async move { pipeline.run_one(claim, CancellationToken::new()).await });
        (job, run)
    }

    /// Requests, claims and runs one export to its end.
    pub async fn export(&self) -> (JobId, Finished) {
        let job = self.request().await;
        let claim = self.claim().await;
        (job, self.pipeline.run_one(claim, CancellationToken::new()).await)
    }

    pub async fn job(&self, job: JobId) -> ExportJob {
        jobs::find(&self.pipeline.store, self.caller.organization, job)
            .await
            .expect("read")
            .expect("a job")
    }

    /// The types of the job's events.
    pub async fn events(&self, job: JobId) -> Vec<String> {
        let events = events::of_job(&self.pipeline.store, self.caller.organization, job)
            .await
            .expect("read");
        events.into_iter().map(|event| event.event_type).collect()
    }

    /// Nothing is stored and no upload is open.
    pub fn assert_store_is_empty(&self) {
        assert_eq!(self.memory.keys(), Vec::<String>::new());
        assert!(self.memory.open_uploads().is_empty(), "an upload is left open");
    }

    /// The stored bytes of a job's file.
    pub async fn stored(&self, job: JobId) -> Vec<u8> {
        let key = self.job(job).await.file.expect("a file").key;
        assert!(self.memory.head(&key).await.expect("answered").is_some());
        self.memory.bytes(key.as_str()).expect("stored").to_vec()
    }
}

/// Asks again and again until it is so; fails after the limit.
pub async fn until(limit: Duration, what: &str, ask: impl AsyncFn() -> bool) {
    let asked = async {
        while !ask().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(limit, asked).await.is_ok(), "not within {limit:?}: {what}");
}
