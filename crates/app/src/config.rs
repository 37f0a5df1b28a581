//! Configuration: defaults, then `outport.toml`, then the environment. Read once,
//! typed, with the unit in the name; a wrong value names the variable, the value and the rule,
//! and all of them at once.
//!
//! **Invariants.** This module alone reads the environment. Secrets live in types without
//! `Debug`. A variable that nobody knows is an error: a misspelt one would be ignored silently.

mod broker;
mod facade;
pub(crate) mod keys;
mod limits;
mod notices;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod variables;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use outport_contract::{key::MasterKey, key_ring::KeyRing, stream::Channel};
use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    job::Protection,
    limits::Limits,
};
use outport_objects::s3::{ChecksumMode, S3Config, S3Credentials, SecretAccessKey};
use outport_relay::{
    broker::BrokerConfig,
    mail::{MailUrl, Sender},
};
use outport_source::SourceConfig;
use outport_store::StoreConfig;
use url::Url;

pub use facade::FacadeConfig;
pub use settings::{ConfigError, Settings};
pub use variables::{VARIABLES, Variable};

use crate::{
    api::stream::StreamConfig,
    auth::{
        jwks::KeySource,
        jwt::{ClaimNames, JwtConfig},
    },
};

/// Everything one process is told. Holds secrets, so it has no `Debug`.
pub struct Config {
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Where people reach the API: the base of links in mails.
    pub public_url: Url,
    /// Whether `X-Forwarded-For` is written by a proxy of ours.
    pub behind_proxy: bool,
    /// Where the embedded profile keeps its files.
    pub data_dir: PathBuf,
    /// Where resource files are.
    pub resources_dir: PathBuf,
    /// What is logged, as a `tracing` filter.
    pub log_filter: String,
    /// Whether the log is JSON, a line each.
    pub log_json: bool,
    /// Our own state.
    pub state: StoreConfig,
    /// Where files go.
    pub objects: ObjectsConfig,
    /// Where a worker's temporary files are.
    pub spool_dir: PathBuf,
    /// Where mails go: an SMTP server or a folder.
    pub mail_url: MailUrl,
    /// Who mails come from.
    pub mail_from: Sender,
    /// The keys that everything is derived from.
    pub keys: KeyRing<MasterKey>,
    /// How files are stored where their resource does not say.
    pub protection: Protection,
    /// Where job events go, when there is a broker.
    pub broker: Option<BrokerConfig>,
    /// This worker's name, for people.
    pub worker_name: String,
    /// The application of jobs in the live stream where their resource names none.
    pub stream_application: String,
    /// The databases that resources are read from, by name.
    pub connections: BTreeMap<String, SourceConfig>,
    /// The Fetcher facade, and the connections that organizations store.
    pub facade: FacadeConfig,
    /// How JWTs are verified, when they are accepted.
    pub jwt: Option<JwtConfig>,
    /// Every bound.
    pub limits: Limits,
    /// The live stream.
    pub stream: StreamConfig,
    /// Where this process dies in tests.
    pub crash: CrashPlan,
    /// What an operator should know about this configuration, a sentence each.
    pub notices: Vec<String>,
}

/// Where files go.
pub enum ObjectsConfig {
    /// A local folder.
    Folder(PathBuf),
    /// An S3-compatible store.
    S3(Box<S3Config>),
}

impl Config {
    /// Reads `outport.toml` (or the file named) and the environment.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut settings = Settings::default();
        match file {
            Some(file) => settings.read_file(file)?,
            None if Path::new("outport.toml").is_file() => {
                settings.read_file(Path::new("outport.toml"))?;
            }
            None => {}
        }
        settings.read_environment(std::env::vars_os());
        Self::from_settings(settings)
    }

    /// Checks settings and types them.
    pub fn from_settings(mut settings: Settings) -> Result<Self, ConfigError> {
        let s = &mut settings;
        let listen = s.parsed("listen", "an address and port such as 127.0.0.1:8080");
        let listen = listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let public_url = public_url(s, listen);
        let data_dir = PathBuf::from(s.text("dataDir"));
        let state = state(s, &data_dir);
        let embedded = state.url.starts_with("sqlite:");
        let objects = objects(s, &data_dir);
        let mail_url = mail_url(s, &data_dir);
        let mail_from = mail_from(s);
        let log_filter = s.text("log.filter");
        if tracing_subscriber::EnvFilter::try_new(&log_filter).is_err() {
            s.wrong("log.filter", "must be a filter such as info,outport=debug");
        }
        let keys = keys::ring(s, &data_dir, embedded);
        let protection = keys::protection(s, embedded);
        let limits = limits::read(s);
        let broker = broker::read(s, &limits);
        let stream = stream::read(s, &limits);
        let connections = connections(s, &limits);
        let facade = facade::read(s, &connections);
        let jwt = jwt(s);
        let crash = crash(s);
        let mut config = Self {
            listen,
            public_url,
            behind_proxy: s.flag("behindProxy"),
            resources_dir: PathBuf::from(s.text("resourcesDir")),
            log_filter,
            log_json: s.one_of("log.format", &["text", "json"]) == "json",
            state,
            objects,
            spool_dir: s.optional("spoolDir").map_or_else(|| data_dir.clone(), PathBuf::from),
            mail_url,
            mail_from,
            broker,
            worker_name: s
                .optional("worker.name")
                .unwrap_or_else(|| format!("worker-{}", std::process::id())),
            stream_application: stream_application(s),
            connections,
            facade,
            jwt,
            limits,
            stream,
            crash,
            notices: Vec::new(),
            data_dir,
            keys,
            protection,
        };
        config.notices = notices::of(&config);
        settings.finish()?;
        Ok(config)
    }

    /// What a worker lacks that other commands can do without.
    pub fn check_worker(&self) -> Result<(), ConfigError> {
        let embedded = self.state.url.starts_with("sqlite:");
        match broker::missing(self.broker.as_ref(), embedded) {
            Some(fault) => Err(ConfigError(vec![fault])),
            None => Ok(()),
        }
    }
}

fn public_url(s: &mut Settings, listen: SocketAddr) -> Url {
    let default = Url::parse(&format!("http://{listen}")).expect("an address makes a URL");
    let Some(text) = s.optional("publicUrl") else {
        if !listen.ip().is_loopback() {
            s.wrong(
                "publicUrl",
                "must be set when listen is not a loopback address: links in mails start with it",
            );
        }
        return default;
    };
    match Url::parse(&text) {
        Ok(url)
            if matches!(url.scheme(), "http" | "https")
                && url.query().is_none()
                && url.fragment().is_none()
                && url.username().is_empty()
                && url.password().is_none() =>
        {
            url
        }
        _ => {
            let rule = "must be an http or https URL without credentials, query or fragment";
            s.wrong("publicUrl", rule);
            default
        }
    }
}

fn state(s: &mut Settings, data_dir: &Path) -> StoreConfig {
    let url = s.optional("state.url").unwrap_or_else(|| {
        format!("sqlite://{}", absolute(&data_dir.join("outport.db")).display())
    });
    if !["sqlite:", "postgres:", "postgresql:"].iter().any(|scheme| url.starts_with(scheme)) {
        s.wrong_secret("state.url", "must start with sqlite:// or postgres://");
    }
    let config = StoreConfig {
        url,
        max_connections: s
            .parsed("state.maxConnections", "a whole number of connections")
            .unwrap_or(1),
        acquire_timeout: Duration::from_secs(10),
    };
    if let Err(error) = config.check_url() {
        s.wrong_url("state.url", &error);
    }
    config
}

fn mail_url(s: &mut Settings, data_dir: &Path) -> MailUrl {
    let folder = format!("file://{}", absolute(&data_dir.join("mail")).display());
    let text = s.optional("mail.url").unwrap_or(folder);
    MailUrl::parse(&text).unwrap_or_else(|error| {
        // It may hold a password.
        s.wrong_secret("mail.url", &format!("cannot be used: {error}"));
        MailUrl::parse("file:///").expect("the root is a folder")
    })
}

fn mail_from(s: &mut Settings) -> Sender {
    Sender::parse(&s.text("mail.from")).unwrap_or_else(|error| {
        s.wrong("mail.from", &format!("cannot be used: {error}"));
        Sender::parse("outport@localhost").expect("an address")
    })
}

fn objects(s: &mut Settings, data_dir: &Path) -> ObjectsConfig {
    let Some(bucket) = s.optional("s3.bucket") else {
        for name in ["s3.prefix", "s3.region", "s3.endpoint", "s3.publicEndpoint", "s3.accessKeyId"]
        {
            if s.optional(name).is_some() {
                s.wrong(name, "means nothing without s3.bucket");
            }
        }
        let folder =
            s.optional("objects.dir").map_or_else(|| data_dir.join("objects"), PathBuf::from);
        return ObjectsConfig::Folder(folder);
    };
    if s.optional("objects.dir").is_some() {
        s.wrong("objects.dir", "must not be set together with s3.bucket");
    }
    let credentials = match (s.optional("s3.accessKeyId"), s.optional("s3.secretAccessKey")) {
        (Some(access_key_id), Some(secret)) => {
            S3Credentials::Static { access_key_id, secret: SecretAccessKey::new(secret) }
        }
        (None, None) => S3Credentials::DefaultChain,
        _ => {
            s.wrong(
                "s3.accessKeyId",
                "must be set together with s3.secretAccessKey, or neither for the default chain",
            );
            S3Credentials::DefaultChain
        }
    };
    ObjectsConfig::S3(Box::new(S3Config {
        prefix: s.optional("s3.prefix"),
        region: s.optional("s3.region"),
        endpoint: s.optional_url("s3.endpoint"),
        public_endpoint: s.optional_url("s3.publicEndpoint"),
        path_style: s.flag("s3.pathStyle"),
        checksum: match s.one_of("s3.checksums", &["when_required", "when_supported"]).as_str() {
            "when_supported" => ChecksumMode::WhenSupported,
            _ => ChecksumMode::WhenRequired,
        },
        credentials,
        ..S3Config::new(bucket)
    }))
}

fn stream_application(s: &mut Settings) -> String {
    let name = s.text("stream.application");
    if !Channel::is_application_name(&name) {
        let rule = "must be 1 to 100 letters (a-z, A-Z), digits, '-' or '_'";
        s.wrong("stream.application", rule);
    }
    name
}

fn connections(s: &mut Settings, limits: &Limits) -> BTreeMap<String, SourceConfig> {
    let mut connections = BTreeMap::new();
    for (name, url) in s.connections() {
        let variable = format!("connections.{name}");
        let connect_timeout = limits.source_connect;
        let source = if let Some(path) = url.strip_prefix("sqlite://") {
            SourceConfig::Sqlite { path: PathBuf::from(path) }
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            SourceConfig::Postgres { url, connect_timeout }
        } else if url.starts_with("mysql://") || url.starts_with("mariadb://") {
            SourceConfig::MySql { url, connect_timeout }
        } else {
            s.wrong_secret(
                &variable,
                "must start with sqlite://, postgres://, mysql:// or mariadb://",
            );
            continue;
        };
        if let Err(error) = source.check() {
            s.wrong_url(&variable, &error);
        }
        connections.insert(name, source);
    }
    connections
}

fn jwt(s: &mut Settings) -> Option<JwtConfig> {
    let secret = s.optional("jwt.hs256Secret").map(|text| KeySource::Secret(text.into_bytes()));
    let file = s.optional("jwt.jwksFile").map(|path| KeySource::File(PathBuf::from(path)));
    let url = s.optional_url("jwt.jwksUrl").map(KeySource::Url);
    let claim = |s: &mut Settings, name: &str| s.text(&format!("jwt.claims.{name}"));
    let claims = ClaimNames {
        user: claim(s, "user"),
        organization: claim(s, "organization"),
        companies: claim(s, "companies"),
        cooperatives: claim(s, "cooperatives"),
        email: claim(s, "email"),
        name: claim(s, "name"),
        locale: claim(s, "locale"),
        scope: claim(s, "scope"),
    };
    let (issuer, audience) = (s.optional("jwt.issuer"), s.optional("jwt.audience"));
    let id_namespace = s.optional_parsed("jwt.idNamespace", "a UUID");
    let mut sources: Vec<KeySource> = [secret, file, url].into_iter().flatten().collect();
    if sources.len() > 1 {
        s.wrong(
            "jwt.jwksUrl",
            "only one of jwt.hs256Secret, jwt.jwksFile and jwt.jwksUrl may be set",
        );
    }
    let keys = sources.pop()?;
    match &keys {
        KeySource::Secret(secret) if secret.len() < 32 => {
            s.wrong_secret("jwt.hs256Secret", "must be at least 32 bytes long (RFC 7518)");
        }
        KeySource::File(path) if !path.is_file() => s.wrong("jwt.jwksFile", "must be a file"),
        _ => {}
    }
    Some(JwtConfig { keys, issuer, audience, claims, id_namespace })
}

fn crash(s: &mut Settings) -> CrashPlan {
    let Some(name) = s.optional("crashPoint") else { return CrashPlan::none() };
    if let Some(point) = CrashPoint::from_name(&name) {
        return CrashPlan::aborting(point);
    }
    s.wrong("crashPoint", "must be the name of a crash point; it is meant for tests alone");
    CrashPlan::none()
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
