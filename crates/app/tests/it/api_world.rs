//! A running API over a state of its own, and the words of its tests.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{TimeDelta, Utc};
use futures::FutureExt as _;
use outport::{
    api::{
        self, ApiState,
        fetcher::Facade,
        health::{Check, Readiness},
        metrics::Metrics,
        stream::{StreamConfig, Streams},
    },
    auth::{
        Authenticator,
        jwt::{JwtConfig, JwtVerifier},
        token,
    },
};
use outport_contract::{
    digest::Sha256Digest,
    job_event::Integrity,
    key::{CREDENTIALS, MasterKey, STORAGE_ENCRYPTION},
    key_ring::KeyRing,
    link::{LinkKeys, LinkToken, Recipient},
};
use outport_domain::{
    caller::{Caller, Permission},
    failure::{Failure, FailureCode},
    id::{Id, JobId, OrganizationId, TokenId, UserId},
    job::{ExportJob, FinishedFile, Protection, Warnings},
    limits::Limits,
    object_key::ObjectKey,
    resource::Resource,
    spec::Catalogue,
};
use outport_objects::{
    DownloadHeaders, ObjectError, ObjectMeta, ObjectStore, ObjectStream, Upload,
    memory::MemoryStore,
};
use outport_pipeline::{
    connections::{Connections, IpNet, Parts},
    foresight::Foresight,
};
use outport_source::{RowStream, Source, SourceError};
use outport_store::{
    PageRequest, Store, StoreConfig,
    access::{self, TokenRow},
    jobs::{self, ClaimPolicy, FinishPolicy, JobFilter, RunEnd},
    submit::Submitter,
    telling::Account,
};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

const ORDER: &str = r#"
name = "order"
connection = "shop"
from = "orders"
keyStem = "orders"
timeZone = "America/Sao_Paulo"
notifyDomains = ["partner.example"]
[scope]
organization = "organization_id"
company = "company_id"
cooperative = "cooperative_id"
[[columns]]
key = "code"
type = "text"
label = { en = "Code", pt-BR = "Código" }
[[columns]]
key = "createdAt"
source = "created_at"
type = "timestamp"
[[columns]]
key = "quantity"
type = "integer"
[[columns]]
key = "paid"
type = "boolean"
[[columns]]
key = "margin"
type = "decimal"
requiresScope = "orders:margin"
"#;

const PLAN: &str = r#"
name = "plan"
connection = "shop"
from = "plans"
[scope]
organization = "organization_id"
[[columns]]
key = "name"
type = "text"
"#;

/// What a test may set.
#[derive(Default)]
pub struct Options {
    pub limits: Limits,
    pub jwt: Option<JwtConfig>,
    pub presigned: bool,
    pub behind_proxy: bool,
    pub source: Option<Arc<dyn Source>>,
    /// The networks that stored connections may not lead into, where there is a facade.
    pub facade: Option<Vec<IpNet>>,
    pub stream: StreamConfig,
}

/// A running API.
pub struct World {
    pub store: Store,
    pub objects: Arc<MemoryStore>,
    pub keys: Arc<LinkKeys>,
    pub client: reqwest::Client,
    pub address: SocketAddr,
    /// Makes live streams leave.
    pub stop: CancellationToken,
    /// Whether the source and the extra check answer.
    pub sick: Arc<Mutex<Option<&'static str>>>,
    pub organization: OrganizationId,
    /// The owner of [`World::token`].
    pub user: UserId,
    /// Every scope, all companies.
    pub token: String,
    /// Where its state is.
    pub database_url: String,
}

/// A page request for everything that a small test has.
pub const ALL: PageRequest = PageRequest { limit: 200, after: None };

impl World {
    pub async fn on_sqlite(options: Options, test: impl AsyncFnOnce(&Self)) {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("outport.db").display());
        Self::run(&url, options, test).await;
    }

    pub async fn on_postgres(options: Options, test: impl AsyncFnOnce(&Self)) {
        let database = format!("outport_api_{}", Uuid::now_v7().simple());
        administer(&format!("CREATE DATABASE {database}")).await;
        let mut url = Url::parse(&server()).expect("OUTPORT_TEST_POSTGRES is a URL");
        url.set_path(&database);
        let outcome = AssertUnwindSafe(Self::run(url.as_str(), options, test)).catch_unwind().await;
        administer(&format!("DROP DATABASE {database} WITH (FORCE)")).await;
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    }

    async fn run(url: &str, options: Options, test: impl AsyncFnOnce(&Self)) {
        let config = StoreConfig {
            url: url.to_owned(),
            max_connections: 5,
            acquire_timeout: Duration::from_secs(10),
        };
        let store = Store::connect(&config).await.expect("a store");
        store.migrate().await.expect("the schema");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let objects = Arc::new(MemoryStore::new());
        let keys = Arc::new(LinkKeys::new(1, &MasterKey::generate()));
        let sick = Arc::new(Mutex::new(None));
        let state = Arc::new(state(&options, &store, &objects, &keys, &sick, address));
        let (stream, stop) = (Arc::clone(&state.stream), CancellationToken::new());
        let stopped = stop.clone();
        let streams = tokio::spawn(async move { stream.run(stopped).await });
        let app = api::router(state).into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        let mut world = Self {
            store,
            objects,
            keys,
            client: client(),
            address,
            stop,
            sick,
            organization: OrganizationId::new(),
            user: UserId::new(),
            token: String::new(),
            database_url: url.to_owned(),
        };
        world.token = world.token_for(|_| {}).await;
        let outcome = AssertUnwindSafe(test(&world)).catch_unwind().await;
        server.abort();
        streams.abort();
        world.store.close().await;
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    }

    /// The world's own caller: every scope, all of its organization.
    pub fn caller(&self) -> Caller {
        Caller {
            organization: self.organization,
            companies: None,
            cooperatives: None,
            user: self.user,
            email: Some("ana@example.com".to_owned()),
            name: Some("Ana".to_owned()),
            locale: None,
            scopes: Permission::ALL.into_iter().map(|right| right.name().to_owned()).collect(),
            token: None,
        }
    }

    /// A token for the world's caller, changed.
    pub async fn token_for(&self, change: impl FnOnce(&mut Caller)) -> String {
        let mut caller = self.caller();
        change(&mut caller);
        self.make_token(caller, None).await.0
    }

    /// A token of somebody else, of another tenant.
    pub async fn stranger(&self, organization: OrganizationId) -> String {
        self.token_for(|caller| {
            caller.organization = organization;
            caller.user = UserId::new();
        })
        .await
    }

    pub async fn make_token(
        &self,
        mut caller: Caller,
        life: Option<TimeDelta>,
    ) -> (String, TokenId) {
        let id = TokenId::new();
        caller.token = Some(id);
        let now = Utc::now();
        let row = TokenRow {
            id,
            name: "test".to_owned(),
            caller,
            created_at: now,
            expires_at: life.map(|life| now + life),
            revoked_at: None,
        };
        let minted = token::mint();
        let mut tx = self.store.begin().await.expect("a transaction");
        access::create_token(&mut tx, &row, &minted.sha256).await.expect("a token");
        tx.commit().await.expect("a commit");
        (minted.secret, id)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request by the world's token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path)).bearer_auth(&self.token)
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    pub fn post(&self, path: &str) -> RequestBuilder {
        self.request(Method::POST, path)
    }

    /// Requests an export of orders and returns its id.
    pub async fn create(&self) -> JobId {
        self.create_with(&self.token, r#"{"resource":"order"}"#).await
    }

    pub async fn create_with(&self, token: &str, body: &'static str) -> JobId {
        let answer = self
            .client
            .post(self.url("/v1/exports"))
            .bearer_auth(token)
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .expect("an answer");
        let (status, job) = json(answer).await;
        assert_eq!(status, 202, "{job}");
        id_of(&job)
    }

    /// Runs the oldest due job to a file with these bytes, as a worker would.
    pub async fn complete_next(&self, bytes: &'static [u8]) -> ExportJob {
        self.complete_next_for(bytes, Duration::from_hours(1)).await
    }

    /// The same, with a file that is kept for so long.
    pub async fn complete_next_for(&self, bytes: &'static [u8], retention: Duration) -> ExportJob {
        let claim = self.claim().await;
        let key =
            ObjectKey::of_export(claim.job.id, claim.job.run, "orders", "csv").expect("a key");
        self.objects.put(&key, "text/csv", Bytes::from_static(bytes)).await.expect("an object");
        let file = FinishedFile {
            key,
            size_bytes: bytes.len() as u64,
            stored_bytes: bytes.len() as u64,
            total_rows: 2,
            sha256: Sha256Digest::of(bytes).hex(),
            integrity: Some(Integrity::new("0".repeat(64), 1)),
            protection: Protection::None,
            warnings: Warnings { replaced_cells: 1, guarded_cells: 2 },
            snapshot_at: Utc::now(),
        };
        self.finish(&claim, RunEnd::Completed(file), retention).await
    }

    /// Runs the oldest due job to a failure for good.
    pub async fn fail_next(&self) -> ExportJob {
        let claim = self.claim().await;
        let failure = Failure::new(FailureCode::LimitExceeded, "too many rows");
        self.finish(&claim, RunEnd::Failed(failure), Duration::from_hours(1)).await
    }

    pub async fn claim(&self) -> jobs::Claim {
        let policy = ClaimPolicy {
            worker: "test".to_owned(),
            lease: Duration::from_mins(1),
            running_per_organization: 100,
        };
        let mut tx = self.store.begin().await.expect("a transaction");
        let claim = jobs::claim(&mut tx, &policy).await.expect("a claim").expect("a due job");
        tx.commit().await.expect("a commit");
        claim
    }

    pub async fn finish(&self, claim: &jobs::Claim, end: RunEnd, retention: Duration) -> ExportJob {
        let policy = FinishPolicy {
            job_failures: 3,
            backoff: Duration::from_secs(1),
            backoff_most: Duration::from_secs(1),
            file_retention: retention,
        };
        let mut tx = self.store.begin().await.expect("a transaction");
        let finished =
            jobs::finish(&mut tx, &claim.fence, &end, &policy, &Account::default()).await;
        let finished = finished.expect("an end");
        tx.commit().await.expect("a commit");
        match finished {
            jobs::Finished::Completed(job) | jobs::Finished::Failed(job) => job,
            other => panic!("{other:?}"),
        }
    }

    /// A job with a file.
    pub async fn completed(&self) -> ExportJob {
        self.create().await;
        self.complete_next(FILE).await
    }

    /// A job whose file has reached its end; `swept` says whether the row says so already.
    pub async fn expired(&self, swept: bool) -> ExportJob {
        self.create().await;
        let job = self.complete_next_for(FILE, Duration::ZERO).await;
        if swept {
            let mut tx = self.store.begin().await.expect("a transaction");
            jobs::expire_due(&mut tx, 10).await.expect("an expiry");
            tx.commit().await.expect("a commit");
        }
        job
    }

    /// All jobs of the world's organization.
    pub async fn jobs(&self) -> Vec<ExportJob> {
        let filter = JobFilter::default();
        jobs::list(&self.store, self.organization, &filter, ALL).await.expect("jobs").items
    }

    pub async fn downloads(&self, job: JobId) -> Vec<access::Download> {
        let page = access::list_downloads(&self.store, self.organization, job, ALL).await;
        page.expect("downloads").items
    }

    pub async fn revoke_user(&self, user: UserId) {
        let mut tx = self.store.begin().await.expect("a transaction");
        let what = access::Revoked::User(self.organization, user);
        access::revoke(&mut tx, what).await.expect("a revocation");
        tx.commit().await.expect("a commit");
    }

    /// The text of a link to a job for its requester.
    pub fn link(&self, job: &ExportJob, life_seconds: i64) -> String {
        self.link_for(job.id, job.caller.user, life_seconds)
    }

    pub fn link_for(&self, job: JobId, user: UserId, life_seconds: i64) -> String {
        let link = LinkToken {
            job: job.uuid(),
            user: user.uuid(),
            recipient: Recipient::of_email("ana@example.com"),
            expires_at: Utc::now().timestamp() + life_seconds,
        };
        link.sign(&self.keys)
    }

    /// Changes the state behind the API's back.
    pub async fn force(&self, sql: &str) {
        if let Some(path) = self.database_url.strip_prefix("sqlite://") {
            let state = rusqlite::Connection::open(path).expect("the state");
            state.busy_timeout(Duration::from_secs(10)).expect("a time limit");
            state.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        } else {
            let mut state = PgConnection::connect(&self.database_url).await.expect("the state");
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut state).await.expect("it ran");
        }
    }

    pub async fn assert_alive(&self) {
        let answer = self.client.get(self.url("/livez")).send().await.expect("the server lives");
        assert_eq!(answer.status(), 200);
    }
}

/// The keys that sealed files of these tests are opened with.
pub fn storage_keys() -> KeyRing {
    let master = MasterKey::parse("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a key");
    KeyRing::new(7, master).derive(STORAGE_ENCRYPTION)
}

/// What completed jobs of these tests hold.
pub const FILE: &[u8] = b"code,quantity\nA,1\nB,2\n";

pub fn state(
    options: &Options,
    store: &Store,
    objects: &Arc<MemoryStore>,
    keys: &Arc<LinkKeys>,
    sick: &Arc<Mutex<Option<&'static str>>>,
    address: SocketAddr,
) -> ApiState {
    let limits = Arc::new(options.limits.clone());
    let jwt = options.jwt.clone().map(|jwt| JwtVerifier::new(jwt).expect("a JWT configuration"));
    let resources = [ORDER, PLAN].map(|text| Resource::from_toml(text).expect("a resource"));
    let catalogue = resources
        .into_iter()
        .map(|one| (one.name.clone(), Arc::new(one)))
        .collect::<BTreeMap<_, _>>();
    let sick_source = || Arc::new(SickSource(Arc::clone(sick))) as Arc<dyn Source>;
    let source = options.source.clone().unwrap_or_else(sick_source);
    let word = Arc::clone(sick);
    let mail = Check::new("mail", move || {
        let word = *word.lock().expect("no poison");
        async move {
            match word {
                Some("hang") => std::future::pending().await,
                Some("mail") => Err("the mail server cannot be reached".to_owned()),
                _ => Ok(()),
            }
        }
    });
    ApiState {
        store: store.clone(),
        submitter: Submitter::start(store.clone(), limits.queued_per_organization),
        objects: if options.presigned {
            Arc::new(Presigning(Arc::clone(objects)))
        } else {
            Arc::clone(objects) as Arc<dyn ObjectStore>
        },
        catalogue: Arc::new(Catalogue(catalogue)),
        sources: BTreeMap::from([("shop".to_owned(), source)]),
        facade: options
            .facade
            .clone()
            .map(|denied| Arc::new(Facade::new(facade_connections(store, denied)))),
        // Nothing here waits for time.
        foresight: Foresight::within(Duration::from_mins(10), Duration::from_mins(10)),
        authenticator: Authenticator::new(store.clone(), jwt, limits.requests_per_minute),
        link_keys: Arc::clone(keys),
        storage_keys: storage_keys(),
        public_url: Url::parse(&format!("http://{address}/")).expect("a URL"),
        limits,
        application: "outport".to_owned(),
        metrics: Arc::new(Metrics::new()),
        readiness: Readiness::new(vec![mail]),
        behind_proxy: options.behind_proxy,
        stream: Arc::new(Streams::new(store.clone(), options.stream.clone())),
    }
}

/// The connections of these tests' facade.
pub fn facade_connections(store: &Store, denied: Vec<IpNet>) -> Connections {
    let master = MasterKey::parse("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a key");
    Connections::new(Parts {
        store: store.clone(),
        shared: BTreeMap::new(),
        credentials: KeyRing::new(1, master).derive(CREDENTIALS),
        denied,
        connect_timeout: Duration::from_secs(5),
    })
}

struct SickSource(Arc<Mutex<Option<&'static str>>>);

#[async_trait]
impl Source for SickSource {
    async fn open(
        &self,
        _: &outport_domain::selection::Selection,
    ) -> Result<Box<dyn RowStream>, SourceError> {
        panic!("the API reads no rows")
    }

    async fn check(&self) -> Result<(), SourceError> {
        let word = *self.0.lock().expect("no poison");
        match word {
            Some("panic") => panic!("a source that panics"),
            Some("source") => Err(SourceError {
                code: FailureCode::SourceUnreachable,
                message: "the source cannot be reached".to_owned(),
                disposition: outport_domain::failure::Disposition::Retry,
                cause: Some("postgres://secret@10.0.0.1".into()),
            }),
            _ => Ok(()),
        }
    }
}

/// A store with pre-signed URLs, as S3 has them.
struct Presigning(Arc<MemoryStore>);

#[async_trait]
impl ObjectStore for Presigning {
    async fn put(
        &self,
        key: &ObjectKey,
        kind: &str,
        bytes: Bytes,
    ) -> Result<ObjectMeta, ObjectError> {
        self.0.put(key, kind, bytes).await
    }

    async fn begin(&self, key: &ObjectKey, kind: &str) -> Result<Box<dyn Upload>, ObjectError> {
        self.0.begin(key, kind).await
    }

    async fn abort(&self, key: &ObjectKey, upload_id: &str) -> Result<(), ObjectError> {
        self.0.abort(key, upload_id).await
    }

    async fn abandon(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        self.0.abandon(key).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<Option<ObjectMeta>, ObjectError> {
        self.0.head(key).await
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<std::ops::Range<u64>>,
    ) -> Result<ObjectStream, ObjectError> {
        self.0.get(key, range).await
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        self.0.delete(key).await
    }

    async fn presign_get(
        &self,
        key: &ObjectKey,
        headers: &DownloadHeaders,
        expires_in: Duration,
    ) -> Result<Option<Url>, ObjectError> {
        let mut url = Url::parse("https://store.example/").expect("a URL");
        url.set_path(key.as_str());
        url.query_pairs_mut()
            .append_pair("disposition", &headers.content_disposition)
            .append_pair("expires", &expires_in.as_secs().to_string());
        Ok(Some(url))
    }

    async fn check(&self) -> Result<(), ObjectError> {
        self.0.check().await
    }
}

fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(Duration::from_secs(30))
        .build()
        .expect("a client")
}

/// An answer's status and JSON body.
pub async fn json(answer: Response) -> (StatusCode, Value) {
    let status = answer.status();
    let text = answer.text().await.expect("a body");
    let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (status, value)
}

pub fn id_of(job: &Value) -> JobId {
    job["exportJobId"].as_str().expect("an id").parse().expect("an id")
}

pub fn id<T>(number: u128) -> Id<T> {
    Id::from_uuid(Uuid::from_u128(number))
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

/// Makes of each `async fn(&World)` a test on SQLite and one on PostgreSQL; `test: options` gives
/// it a world of its own kind, by a function beside it.
macro_rules! on_both_stores {
    ($($test:ident $(: $options:ident)?),* $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let options = crate::api_world::on_both_stores!(@ $($options)?);
                crate::api_world::World::on_sqlite(options, super::$test).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let options = crate::api_world::on_both_stores!(@ $($options)?);
                crate::api_world::World::on_postgres(options, super::$test).await;
            })*
        }
    };
    (@) => { crate::api_world::Options::default() };
    (@ $options:ident) => { super::$options() };
}
pub(crate) use on_both_stores;
