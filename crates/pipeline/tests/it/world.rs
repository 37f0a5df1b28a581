//! A world for runs: a fresh state database, objects in memory with planned faults, and a
//! source whose rows and faults the test decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_domain::{
    caller::Caller,
    crash::CrashPlan,
    failure::{Disposition, FailureCode},
    id::{JobId, OrganizationId, UserId},
    job::{Compression, ExportJob, Format},
    limits::Limits,
    locale::Locale,
    resource::Resource,
    selection::Selection,
    spec::{self, Catalogue, RequestContext},
};
use outport_objects::{ObjectStore, memory::MemoryStore};
use outport_pipeline::Pipeline;
use outport_source::{Batch, Next, RowStream, Source, SourceError};
use outport_store::{
    Store, StoreConfig, deliveries, events,
    jobs::{self, Claim, ClaimPolicy, Finished},
    submit::{NewJob, Submitted, submit},
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
    /// Gives one row whose note has so many bytes.
    Wide(usize),
    /// Says that the result is complete, with this count.
    End(u64),
    /// Fails with this code.
    Fail(FailureCode),
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
        Ok(Box::new(ScriptedRows { acts, canceled: Arc::clone(&self.canceled) }))
    }

    async fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }
}

struct ScriptedRows {
    acts: Vec<Act>,
    canceled: Arc<Mutex<u32>>,
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
                batch.push(&vec![b'x'; bytes]);
                Ok(Next::Rows)
            }
            Some(Act::End(rows)) => Ok(Next::End { rows }),
            Some(Act::Fail(code)) => Err(SourceError {
                code,
                message: "the source failed as planned".to_owned(),
                disposition: Disposition::Abandon,
                cause: None,
            }),
            Some(Act::Panic) => panic!("the source panics as planned"),
            Some(Act::Hang) | None => std::future::pending().await,
        }
    }

    async fn cancel(self: Box<Self>) {
        *self.canceled.lock().expect("not poisoned") += 1;
    }
}

pub struct World {
    pub pipeline: Pipeline,
    pub memory: MemoryStore,
    pub source: Scripted,
    pub caller: Caller,
    _dir: tempfile::TempDir,
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
        let source = Scripted::default();
        let resource = Resource::from_toml(RESOURCE).expect("a resource");
        let sources: BTreeMap<String, Arc<dyn Source>> =
            BTreeMap::from([("shop".to_owned(), Arc::new(source.clone()) as Arc<dyn Source>)]);
        let pipeline = Pipeline {
            store,
            objects: Arc::new(memory.clone()),
            catalogue: Arc::new(Catalogue(BTreeMap::from([("order".to_owned(), resource.into())]))),
            sources: Arc::new(sources),
            limits: Arc::new(limits),
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
        Self { pipeline, memory, source, caller, _dir: dir }
    }

    /// Enqueues an export of everything.
    pub async fn request(&self) -> JobId {
        let body = r#"{"resource":"order"}"#;
        let requested_at = Utc::now();
        let context = RequestContext { caller: &self.caller, locale: Locale::En, requested_at };
        let spec = spec::parse(body, &self.pipeline.catalogue, context).expect("a valid request");
        let job = NewJob {
            id: JobId::new(),
            schedule: None,
            caller: self.caller.clone(),
            scope: spec.scope,
            resource: spec.resource.name.clone(),
            format: Format::Csv,
            compression: Compression::None,
            split: false,
            columns: spec.columns.iter().map(|column| column.key.clone()).collect(),
            filters: spec.filters,
            request: body.to_owned(),
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
