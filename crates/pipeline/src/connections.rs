//! Connections that organizations store, and configured ones that all of them may read whole.
//!
//! The secrets of a stored one are decrypted here, just before they are handed to the source, and
//! its host is looked up here, so that the address that was allowed is the one that is dialled.

mod denied;
mod found;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

pub use found::Found;
pub use ipnet::IpNet;
use outport_contract::{
    credentials,
    key_ring::{KeyRing, UnknownKey},
};
use outport_domain::{
    connection::{Connection, ConnectionKind, TlsMode},
    failure::{Disposition, Failure, FailureCode},
    id::ConnectionId,
    job::ExportJob,
};
use outport_source::{Source, SourceConfig, Tls, schema::Schema};
use outport_store::{Store, StoreError, connections};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The secrets of a stored connection. They have no `Debug`.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The password.
    pub password: Zeroizing<String>,
    /// PEM of the client's TLS key.
    pub tls_key: Option<Zeroizing<String>>,
}

/// Their JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretsText<T> {
    password: T,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls_key: Option<T>,
}

impl Secrets {
    /// As they are stored: encrypted, and bound to their connection.
    pub fn seal(&self, keys: &KeyRing, owner: ConnectionId) -> String {
        let tls_key = self.tls_key.as_ref().map(|key| key.as_str());
        let text = SecretsText { password: self.password.as_str(), tls_key };
        let text = Zeroizing::new(serde_json::to_vec(&text).expect("texts have no failure"));
        credentials::seal(keys, &owner.to_string(), &text)
    }

    /// What [`seal`](Self::seal) made.
    pub fn open(
        keys: &KeyRing,
        owner: ConnectionId,
        stored: &str,
    ) -> Result<Self, credentials::NotOpened> {
        let text = credentials::open(keys, &owner.to_string(), stored)?;
        let text: SecretsText<String> =
            serde_json::from_slice(&text).map_err(|_| credentials::NotOpened::Malformed)?;
        let tls_key = text.tls_key.map(Zeroizing::new);
        Ok(Self { password: Zeroizing::new(text.password), tls_key })
    }

    /// Those of a stored connection.
    pub fn of(keys: &KeyRing, connection: &Connection) -> Result<Self, Unusable> {
        let name = || connection.name.clone();
        Self::open(keys, connection.id, &connection.credentials).map_err(|error| match error {
            credentials::NotOpened::UnknownKey(UnknownKey { version }) => {
                Unusable::UnknownKey(name(), version)
            }
            error => Unusable::Credentials(name(), error),
        })
    }
}

/// Why a connection cannot be used. Safe to show.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Nobody knows one of this name.
    #[error("there is no connection '{0}'")]
    Unknown(String),
    /// Its host has an address that this deployment does not allow.
    #[error("the host of connection '{0}' is not allowed")]
    Forbidden(String),
    /// Its host has no address.
    #[error("the host of connection '{0}' cannot be found")]
    NoHost(String),
    /// Its secrets are encrypted with a key of this version, which is not in the ring.
    #[error(
        "the credentials of connection '{0}' are sealed with key {1}, which this service lacks"
    )]
    UnknownKey(String, u16),
    /// Its secrets cannot be decrypted.
    #[error("the credentials of connection '{0}' cannot be decrypted")]
    Credentials(String, #[source] credentials::NotOpened),
    /// Our own state does not answer.
    #[error("the stored connections cannot be read")]
    Store(#[from] StoreError),
}

impl From<&Unusable> for Failure {
    fn from(error: &Unusable) -> Self {
        let (code, disposition) = match error {
            Unusable::Unknown(_) | Unusable::Forbidden(_) => {
                (FailureCode::SourceUnreachable, Disposition::Abandon)
            }
            // The next run may be a worker's that has been given the key already.
            Unusable::NoHost(_) | Unusable::UnknownKey(..) => {
                (FailureCode::SourceUnreachable, Disposition::Retry)
            }
            Unusable::Credentials(..) => (FailureCode::Internal, Disposition::Abandon),
            Unusable::Store(_) => (FailureCode::Internal, Disposition::Retry),
        };
        Self::new(code, error.to_string()).with_disposition(disposition)
    }
}

/// A connection that can be used.
#[derive(Clone)]
pub struct Usable {
    config: SourceConfig,
    /// The schema that unqualified tables are in, where that is not the server's own default.
    pub default_schema: Option<String>,
}

impl Usable {
    /// For reading rows.
    pub fn source(&self) -> Arc<dyn Source> {
        outport_source::connect(&self.config)
    }

    /// For what there is to read.
    pub fn schema(&self) -> Arc<dyn Schema> {
        outport_source::schema::schema(&self.config)
    }
}

/// All connections. Cheap to clone.
#[derive(Clone)]
pub struct Connections(Arc<Parts>);

/// What connections are found by.
pub struct Parts {
    /// Where organizations' own are.
    pub store: Store,
    /// Configured ones that every organization may read whole.
    pub shared: BTreeMap<String, SourceConfig>,
    /// Opens and seals secrets.
    pub credentials: KeyRing,
    /// Networks that no stored connection may lead into, under no form of an address. With a
    /// loopback address among them, it is every address of this machine.
    pub denied: Vec<IpNet>,
    /// Time limit of looking a host up, and of connecting.
    pub connect_timeout: Duration,
}

impl Connections {
    /// All of them.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Opens and seals secrets.
    pub fn credentials(&self) -> &KeyRing {
        &self.0.credentials
    }

    /// One that the job's organization stores, of the product that it was of when the job was
    /// accepted: one that was stored since is not read.
    pub async fn stored(&self, job: &ExportJob, name: &str) -> Result<Usable, Unusable> {
        let organization = job.scope.organization;
        let found = connections::find_by_name(&self.0.store, organization, name).await?;
        let accepted = found.filter(|one| found::was_accepted(job, one));
        let connection = accepted.ok_or_else(|| Unusable::Unknown(name.to_owned()))?;
        self.open(&connection).await
    }

    /// A stored connection, ready to be dialled.
    pub async fn open(&self, connection: &Connection) -> Result<Usable, Unusable> {
        let secrets = Secrets::of(&self.0.credentials, connection)?;
        let address = self.allowed_address(connection).await?;
        // A certificate is made for a name, and proves it.
        let host = match connection.tls_mode {
            TlsMode::VerifyFull => connection.host.clone(),
            _ => address.ip().to_string(),
        };
        let tls = Tls {
            authority: connection.tls_ca.clone(),
            certificate: connection.tls_certificate.clone(),
            key: secrets.tls_key,
        };
        let config = SourceConfig::Stored {
            url: url(connection, &host, &secrets.password),
            tls: Arc::new(tls),
            connect_timeout: self.0.connect_timeout,
        };
        Ok(Usable { config, default_schema: connection.schema.clone() })
    }

    /// The first address of a connection's host. None of them may be forbidden: the next lookup
    /// might give another one first.
    pub async fn allowed_address(&self, connection: &Connection) -> Result<SocketAddr, Unusable> {
        let no_host = || Unusable::NoHost(connection.name.clone());
        let host = connection.host.trim_start_matches('[').trim_end_matches(']');
        let lookup = tokio::net::lookup_host((host, connection.port));
        let found = tokio::time::timeout(self.0.connect_timeout, lookup).await;
        let addresses: Vec<SocketAddr> =
            found.map_err(|_| no_host())?.map_err(|_| no_host())?.collect();
        if addresses.iter().any(|&address| denied::is_denied(&self.0.denied, address)) {
            return Err(Unusable::Forbidden(connection.name.clone()));
        }
        addresses.first().copied().ok_or_else(no_host)
    }
}

fn url(connection: &Connection, host: &str, password: &str) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let host = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
    let (scheme, mode, names) = match connection.kind {
        ConnectionKind::Postgresql => {
            ("postgres", "sslmode", ["disable", "prefer", "require", "verify-ca", "verify-full"])
        }
        ConnectionKind::MySql => (
            "mysql",
            "ssl-mode",
            ["DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"],
        ),
    };
    let [disable, prefer, require, verify_ca, verify_full] = names;
    let value = match connection.tls_mode {
        TlsMode::Disable => disable,
        TlsMode::Prefer => prefer,
        TlsMode::Require => require,
        TlsMode::VerifyCa => verify_ca,
        TlsMode::VerifyFull => verify_full,
    };
    format!(
        "{scheme}://{}:{}@{host}:{}/{}?{mode}={value}",
        encoded(&connection.username),
        encoded(password),
        connection.port,
        encoded(&connection.database),
    )
}
