//! One process: everything a role needs is put together here, and runs until it is told to stop.

mod parts;

use std::{collections::BTreeMap, sync::Arc};

use outport_contract::{
    key,
    link::LinkKeys,
    redaction::{Chain, redact, told},
    signature::ResultSigner,
};
use outport_domain::{limits::Limits, spec::Catalogue};
use outport_objects::ObjectStore;
use outport_pipeline::{
    Pipeline,
    connections::{Connections, Parts},
    fetcher::Facade,
    foresight::Foresight,
};
use outport_relay::{
    DuplicateHandler, Reconciler, Registry, Relay, broker::Figures, handlers::Correspondence,
};
use outport_source::Source;
use outport_store::{Engine, Store, submit::Submitter};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{
        self, ApiState,
        health::{Check, Readiness},
        metrics::Metrics,
        stream::Streams,
    },
    auth::{Authenticator, jwt::JwtVerifier},
    config::{Config, ConfigError},
    http::{self, HttpLimits},
    worker,
};

pub(crate) use parts::{
    catalogue, correspondence, make_private, objects, privately, sound_resources, state,
};
use parts::{register, registry};

/// Which parts of the product a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// HTTP: the API, its documents, the link pages.
    pub api: bool,
    /// Pipeline, handlers, reconciler, sweeper.
    pub worker: bool,
}

impl Roles {
    /// One process that is everything.
    pub const ALL: Self = Self { api: true, worker: true };
    /// HTTP alone.
    pub const API: Self = Self { api: true, worker: false };
    /// Work alone. It still answers `/livez`, `/readyz` and `/metrics`.
    pub const WORKER: Self = Self { api: false, worker: true };
}

/// Why a process does not start, secrets apart.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A resource file is wrong.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// One sentence about anything else.
    #[error("{0}")]
    Failed(String),
}

impl From<DuplicateHandler> for StartError {
    fn from(error: DuplicateHandler) -> Self {
        Self::new("handlers", &error)
    }
}

impl StartError {
    fn new(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Failed(redact(&format!("{what}: {}", Chain(error))))
    }
}

/// Checks that mails can be handed over; the error is safe to show.
pub(crate) async fn check_mailer(correspondence: &Correspondence) -> Result<(), String> {
    correspondence.mailer.check().await.map_err(|error| error.to_string())
}

/// Everything that a role needs, checked and put together.
pub struct Process {
    /// Our own state, migrated.
    pub store: Store,
    /// Where files go.
    pub objects: Arc<dyn ObjectStore>,
    /// What may be exported.
    pub catalogue: Arc<Catalogue>,
    /// The configured connections.
    pub sources: Arc<BTreeMap<String, Arc<dyn Source>>>,
    facade: Facade,
    config: Config,
    link_keys: Arc<LinkKeys>,
    limits: Arc<Limits>,
    registry: Registry,
    correspondence: Arc<Correspondence>,
    broker: Arc<Figures>,
}

/// Runs the roles until `stop`, answering HTTP on the listener.
pub async fn run(
    config: Config,
    roles: Roles,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), StartError> {
    if roles.worker {
        config.check_worker()?;
        trusts_broker(&config).await?;
    }
    Process::build(config).await?.run(roles, listener, stop).await
}

/// A broker that is away is waited for. One whose certificate is not trusted would be for ever.
async fn trusts_broker(config: &Config) -> Result<(), ConfigError> {
    let Some(broker) = &config.broker else { return Ok(()) };
    match outport_relay::broker::untrusted(broker).await {
        Some(why) => Err(ConfigError(vec![certificate_fault(&why)])),
        None => Ok(()),
    }
}

/// What is said of a broker's certificate that is not trusted.
pub(crate) fn certificate_fault(why: &str) -> String {
    format!("broker.caFile (OUTPORT_BROKER_CA_FILE): the broker's certificate {why}")
}

impl Process {
    /// Connects to the state, migrates it, reads resources and templates, registers handlers.
    /// Whatever is wrong stops here, before anything is served.
    pub async fn build(config: Config) -> Result<Self, StartError> {
        for notice in &config.notices {
            tracing::info!("{notice}");
        }
        let catalogue = Arc::new(catalogue(&config)?);
        let sources: BTreeMap<String, Arc<dyn Source>> = config
            .connections
            .iter()
            .map(|(name, source)| (name.clone(), outport_source::connect(source)))
            .collect();
        make_private(&config.data_dir)
            .map_err(|error| StartError::new("dataDir cannot be made", &error))?;
        make_private(&config.spool_dir)
            .map_err(|error| StartError::new("spoolDir cannot be made", &error))?;
        let store = state(&config).await?;
        let objects = objects(&config).await?;
        let link_keys = LinkKeys::from(&config.keys);
        let correspondence = Arc::new(correspondence(&config, &catalogue, link_keys.clone())?);
        let broker = Arc::new(Figures::default());
        let registry = registry(&config, &correspondence, &broker)?;
        register(&store, &registry)
            .await
            .map_err(|error| StartError::new("handlers cannot be registered", &error))?;
        let facade = facade(&config, &store);
        Ok(Self {
            store,
            facade,
            objects,
            catalogue,
            sources: Arc::new(sources),
            limits: Arc::new(config.limits.clone()),
            link_keys: Arc::new(link_keys),
            registry,
            correspondence,
            broker,
            config,
        })
    }

    /// Runs the roles until `stop`.
    pub async fn run(
        self,
        roles: Roles,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> Result<(), StartError> {
        let store = self.store.clone();
        let _only_process = self.take_embedded_state()?;
        let streams = Arc::new(Streams::new(store.clone(), self.config.stream.clone()));
        let router = self.router(roles, Arc::clone(&streams))?;
        let http = tokio::spawn(http::serve(
            listener,
            router,
            HttpLimits::default(),
            stop.clone(),
            self.limits.drain,
        ));
        let mut tasks = Vec::new();
        if roles.api {
            let stop = stop.clone();
            tasks.push(tokio::spawn(async move { streams.run(stop).await }));
        }
        if roles.worker {
            let pipeline = self.pipeline();
            tasks.push(tokio::spawn(worker::run(
                pipeline.clone(),
                self.config.worker_name.clone(),
                stop.clone(),
            )));
            tasks.push(tokio::spawn(sweep(pipeline, stop.clone())));
            let reconciler = Reconciler::new(store.clone(), self.limits.reconcile_every);
            tasks.push(tokio::spawn(reconciler.run(stop.clone())));
            let relay = Relay::new(
                store.clone(),
                self.registry,
                (*self.limits).clone(),
                self.config.crash.clone(),
            );
            tasks.push(tokio::spawn(relay.run(stop.clone())));
        }
        let served = http.await;
        // Whatever ended the listener, the rest of the process ends with it.
        stop.cancel();
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a part of the process ended badly");
            }
        }
        store.close().await;
        match served {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(StartError::new("HTTP", &error)),
            Err(error) => Err(StartError::new("HTTP", &error)),
        }
    }

    /// On SQLite this must be the only process; the lock goes with it, however it ends.
    fn take_embedded_state(&self) -> Result<Option<std::fs::File>, StartError> {
        if self.store.engine() != Engine::Sqlite {
            return Ok(None);
        }
        let path = self.config.data_dir.join("outport.lock");
        let failed =
            |error: std::io::Error| StartError::new("the embedded state cannot be locked", &error);
        let file = privately().create(true).truncate(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(std::fs::TryLockError::WouldBlock) => Err(StartError::Failed(format!(
                "another process runs on {}: an SQLite state serves one process alone",
                self.config.data_dir.display()
            ))),
            Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// What runs of this process share.
    pub fn pipeline(&self) -> Pipeline {
        Pipeline {
            store: self.store.clone(),
            objects: Arc::clone(&self.objects),
            catalogue: Arc::clone(&self.catalogue),
            sources: Arc::clone(&self.sources),
            facade: self.facade.clone(),
            signer: ResultSigner::new(&self.config.keys.derive(key::EXTERNAL_HMAC)),
            storage: self.config.keys.derive(key::STORAGE_ENCRYPTION),
            protection: self.config.protection,
            limits: Arc::clone(&self.limits),
            spool_dir: self.config.spool_dir.clone(),
            crash: self.config.crash.clone(),
        }
    }

    fn mail_check(&self) -> Check {
        let correspondence = Arc::clone(&self.correspondence);
        Check::new("mail", move || {
            let correspondence = Arc::clone(&correspondence);
            async move { check_mailer(&correspondence).await }
        })
    }

    fn router(&self, roles: Roles, stream: Arc<Streams>) -> Result<axum::Router, StartError> {
        let jwt = self.config.jwt.clone().map(JwtVerifier::new).transpose();
        let jwt = jwt.map_err(|error| StartError::new("jwt", &error))?;
        let state = Arc::new(ApiState {
            submitter: Submitter::start(self.store.clone(), self.limits.queued_per_organization),
            authenticator: Authenticator::new(
                self.store.clone(),
                jwt,
                self.limits.requests_per_minute,
            ),
            store: self.store.clone(),
            objects: Arc::clone(&self.objects),
            catalogue: Arc::clone(&self.catalogue),
            sources: (*self.sources).clone(),
            facade: self
                .config
                .facade
                .enabled
                .then(|| Arc::new(api::fetcher::Facade::new(self.facade.connections.clone()))),
            foresight: Foresight::default(),
            link_keys: Arc::clone(&self.link_keys),
            storage_keys: self.config.keys.derive(key::STORAGE_ENCRYPTION),
            public_url: self.config.public_url.clone(),
            limits: Arc::clone(&self.limits),
            application: self.config.stream_application.clone(),
            metrics: Arc::new(Metrics::of_process(
                Arc::clone(&self.broker),
                stream.notifier().figures(),
            )),
            stream,
            readiness: Readiness::new(vec![self.mail_check()]),
            behind_proxy: self.config.behind_proxy,
        });
        Ok(if roles.api { api::router(state) } else { api::health_router(state) })
    }
}

/// What is read and made for the Fetcher facade.
fn facade(config: &Config, store: &Store) -> Facade {
    let connections = Connections::new(Parts {
        store: store.clone(),
        shared: config.facade.shared.clone(),
        credentials: config.keys.derive(key::CREDENTIALS),
        denied: config.facade.denied.clone(),
        connect_timeout: config.limits.source_connect,
    });
    Facade {
        connections,
        tenant_in_key: config.facade.tenant_in_key,
        memory: Arc::new(Semaphore::new(1)),
    }
}

async fn sweep(pipeline: Pipeline, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match pipeline.sweep().await {
            Ok(swept) if swept != outport_pipeline::sweeper::Swept::default() => {
                tracing::info!(?swept, "swept");
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(error = told(&error), "the sweep did not end");
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(pipeline.limits.sweep_every) => {}
        }
    }
}
