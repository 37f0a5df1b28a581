//! What the publisher is told.

use std::time::Duration;

use lapin::uri::{AMQPScheme, AMQPUri};
use outport_contract::job_event::SINGLE_TENANT;
use outport_domain::id::OrganizationId;
use url::Url;

/// Everything that the publisher is told. Holds credentials, so it has no `Debug`.
#[derive(Clone)]
pub struct BrokerConfig {
    /// Where the broker is.
    pub url: BrokerUrl,
    /// Certificate authorities in PEM that TLS trusts besides those of the system.
    pub authorities: Option<String>,
    /// The durable topic exchange; not empty, at most 255 bytes, of one line.
    pub exchange: String,
    /// Whether the exchange is made or only looked for.
    pub topology: Topology,
    /// What becomes of a message that no queue takes.
    pub unroutable: Unroutable,
    /// Whose name messages carry.
    pub tenancy: Tenancy,
    /// `ce-source`, of one line.
    pub source: String,
    /// What `ce-type` begins with, of one line.
    pub type_prefix: String,
    /// Time limit of a confirm, from the sending of its message.
    pub confirm_time: Duration,
}

/// Whether the exchange is made by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Declared with every new connection, durable, of type topic.
    Declare,
    /// Looked for with every new connection; somebody else makes it.
    Check,
}

/// What becomes of a message that no queue takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unroutable {
    /// It is tried again until a queue takes it.
    Retry,
    /// It is recorded as accepted though nobody got it.
    Accept,
}

/// How many tenants share the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenancy {
    /// One, which has no name of its own on the broker.
    Single,
    /// Each organization is one.
    Multi,
}

impl Tenancy {
    /// The tenant that owns this organization's jobs, as messages name it.
    pub(super) fn tenant(self, organization: OrganizationId) -> String {
        match self {
            Self::Single => SINGLE_TENANT.to_owned(),
            Self::Multi => organization.to_string(),
        }
    }
}

/// `amqp://user:password@host:port/vhost`, or `amqps`. Holds a password, so it has no `Debug`.
#[derive(Clone)]
pub struct BrokerUrl(pub(super) AMQPUri);

impl BrokerUrl {
    /// Reads a URL. Without a path, or with `/` alone, the virtual host is the default one, `/`.
    /// The error quotes nothing of it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| error.to_string())?;
        if !matches!(url.scheme(), "amqp" | "amqps") {
            return Err("it must start with amqp:// or amqps://".to_owned());
        }
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err("it names no host".to_owned());
        };
        let unreadable = |_| "its user, password, virtual host or a parameter cannot be read";
        let mut uri: AMQPUri = text.parse().map_err(unreadable)?;
        // The library takes an IPv6 address for no host at all, and `/` for a host without a name.
        host.trim_matches(['[', ']']).clone_into(&mut uri.authority.host);
        if uri.vhost.is_empty() {
            "/".clone_into(&mut uri.vhost);
        }
        Ok(Self(uri))
    }

    /// Whether it is spoken to over TLS.
    pub fn is_secure(&self) -> bool {
        self.0.scheme == AMQPScheme::AMQPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_host_and_virtual_host() {
        for (text, host, port, vhost) in [
            ("amqp://guest:guest@127.0.0.1:5672", "127.0.0.1", 5672, "/"),
            ("amqp://broker/", "broker", 5672, "/"),
            ("amqp://broker/%2f", "broker", 5672, "/"),
            ("amqps://broker.example/events?heartbeat=10", "broker.example", 5671, "events"),
            ("amqp://u:p%40@[::1]:5673/a%2Fb", "::1", 5673, "a/b"),
        ] {
            let BrokerUrl(uri) = BrokerUrl::parse(text).unwrap_or_else(|error| panic!("{error}"));
            let seen = (uri.authority.host.as_str(), uri.authority.port, uri.vhost.as_str());
            assert_eq!(seen, (host, port, vhost), "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_told_without_its_password() {
        for text in [
            "hunter2",
            "http://u:hunter2@broker",
            "amqp://u:hunter2@broker:99999",
            "amqp://u:hunter2@broker?heartbeat=often",
            "amqp:hunter2",
            "amqp:///hunter2",
        ] {
            let error = BrokerUrl::parse(text).err().unwrap_or_else(|| panic!("{text} is taken"));
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_tenant_has_a_name_where_there_are_several() {
        let organization = OrganizationId::new();
        assert_eq!(Tenancy::Single.tenant(organization), "single-tenant");
        assert_eq!(Tenancy::Multi.tenant(organization), organization.to_string());
    }
}
