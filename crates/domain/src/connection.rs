//! A connection that an organization stores: a database server, and how to get in.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::id::{ConnectionId, OrganizationId};

/// What kind of server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKind {
    /// PostgreSQL.
    Postgresql,
    /// MySQL or MariaDB.
    MySql,
}

impl ConnectionKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Postgresql, Self::MySql];

    /// The name on the wire, e.g. `POSTGRESQL`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgresql => "POSTGRESQL",
            Self::MySql => "MYSQL",
        }
    }

    /// The kind with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Whether the way to a server is encrypted, and how it must prove itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    Disable,
    /// Where the server offers it.
    Prefer,
    /// Always; any certificate will do.
    Require,
    /// Always, with a certificate of a known authority.
    VerifyCa,
    /// The same, made for the host's name.
    VerifyFull,
}

impl TlsMode {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Disable, Self::Prefer, Self::Require, Self::VerifyCa, Self::VerifyFull];

    /// The name on the wire, e.g. `verify-full`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    /// The mode with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// Stored connections by name, each with its product where it is of one.
pub type Products = BTreeMap<String, Option<String>>;

/// The products of these connections.
pub fn products(stored: &[Connection]) -> Products {
    stored.iter().map(|one| (one.name.clone(), one.product.clone())).collect()
}

/// Stored connections by name, each by its id.
pub type ConnectionIds = BTreeMap<String, ConnectionId>;

/// The ids of these connections.
pub fn ids(stored: &[Connection]) -> ConnectionIds {
    stored.iter().map(|one| (one.name.clone(), one.id)).collect()
}

/// A stored connection. Its secrets are here only as they are stored: encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its id; the secrets are bound to it.
    pub id: ConnectionId,
    /// Whose it is.
    pub organization: OrganizationId,
    /// What requests and resources call it, unique in its organization.
    pub name: String,
    /// The product that it was stored for, in lower case.
    pub product: Option<String>,
    /// What kind of server it is.
    pub kind: ConnectionKind,
    /// A host name or an IP address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// The database on the server.
    pub database: String,
    /// Whom to log in as.
    pub username: String,
    /// The schema that unqualified tables are in, where that is not the server's own default.
    pub schema: Option<String>,
    /// Whether the way is encrypted.
    pub tls_mode: TlsMode,
    /// PEM of the authority that the server's certificate must be of.
    pub tls_ca: Option<String>,
    /// PEM of the client's certificate.
    pub tls_certificate: Option<String>,
    /// The password and the client's key, encrypted.
    pub credentials: String,
    /// A JSON object as sent.
    pub metadata: Option<String>,
    /// When it was stored.
    pub created_at: DateTime<Utc>,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
}

impl Connection {
    /// Whether it is the same connection and leads to the same place, seen by the same user. A
    /// password, the encryption of the way and metadata change how it is reached, not which.
    pub fn reads_like(&self, other: &Self) -> bool {
        self.place() == other.place()
    }

    /// Which it is and where it leads, as a text that only the same has.
    pub(crate) fn place(&self) -> String {
        let Self { name, host, port, database, username, schema, .. } = self;
        let (id, kind) = (self.id.to_string(), self.kind.name());
        json!([name, id, kind, host, port, database, username, schema]).to_string()
    }

    /// One that is yet to be filled in.
    pub fn blank(id: ConnectionId, organization: OrganizationId, now: DateTime<Utc>) -> Self {
        Self {
            id,
            organization,
            name: String::new(),
            product: None,
            kind: ConnectionKind::Postgresql,
            host: String::new(),
            port: 0,
            database: String::new(),
            username: String::new(),
            schema: None,
            tls_mode: TlsMode::Prefer,
            tls_ca: None,
            tls_certificate: None,
            credentials: String::new(),
            metadata: None,
            created_at: now,
            updated_at: now,
        }
    }
}
