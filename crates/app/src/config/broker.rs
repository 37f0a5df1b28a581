//! The broker that job events go to. Job events are a contract: whoever has a broker says all of
//! it or does not start.

use outport_domain::limits::Limits;
use outport_relay::broker::{BrokerConfig, BrokerUrl, Tenancy, Topology, Unroutable};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::Settings;

/// Bytes of an AMQP short string, at most.
const SHORT_STRING: usize = 255;
/// What makes the events of a configured broker a contract that is kept.
const CONTRACT: [&str; 3] = ["streaming.enabled", "broker.exchange", "streaming.cloudeventsSource"];

/// The broker, when there is one. Everything that is missing for it is told by its variable.
pub(super) fn read(s: &mut Settings, limits: &Limits) -> Option<BrokerConfig> {
    let tenancy = match s.one_of("tenancy", &["single", "multi"]).as_str() {
        "multi" => Tenancy::Multi,
        _ => Tenancy::Single,
    };
    let topology = match s.one_of("broker.topology", &["declare", "check"]).as_str() {
        "check" => Topology::Check,
        _ => Topology::Declare,
    };
    let unroutable = match s.one_of("broker.unroutable", &["retry", "accept"]).as_str() {
        "accept" => Unroutable::Accept,
        _ => Unroutable::Retry,
    };
    let confirm_time = s.seconds("broker.confirmSeconds");
    if confirm_time >= limits.handler_time {
        s.wrong("broker.confirmSeconds", "must be less than limits.handlerSeconds");
    }
    let is_enabled = s.text("streaming.enabled") == "true";
    let Some(text) = s.optional("broker.url") else {
        if is_enabled {
            s.wrong("streaming.enabled", "means nothing without broker.url (OUTPORT_BROKER_URL)");
        }
        return None;
    };
    if !is_enabled {
        s.wrong(
            "streaming.enabled",
            "must be true where broker.url is set: job events are a contract, not an option",
        );
    }
    let exchange = line(s, "broker.exchange");
    let source = line(s, "streaming.cloudeventsSource");
    if !source.contains(char::is_control) && !source.bytes().all(is_of_uri) {
        s.wrong("streaming.cloudeventsSource", "must be a URI or a part of one, such as //outport");
    }
    let type_prefix = line(s, "broker.typePrefix");
    if exchange.len() > SHORT_STRING {
        s.wrong("broker.exchange", "must be at most 255 bytes long");
    }
    let url = BrokerUrl::parse(&text);
    if let Err(error) = &url {
        s.wrong_secret("broker.url", &format!("cannot be used: {error}"));
    }
    let authorities = authorities(s, url.as_ref().map_or(true, BrokerUrl::is_secure));
    Some(BrokerConfig {
        url: url.ok()?,
        authorities,
        exchange,
        topology,
        unroutable,
        tenancy,
        source,
        type_prefix,
        confirm_time,
    })
}

/// The certificates of `broker.caFile`. They are read once, here: what is wrong with them is told
/// before anything runs.
fn authorities(s: &mut Settings, is_secure: bool) -> Option<String> {
    const FILE: &str = "broker.caFile";
    let path = s.optional(FILE)?;
    if !is_secure {
        s.wrong(FILE, "means nothing unless broker.url begins with amqps://");
        return None;
    }
    let pem = match std::fs::read_to_string(path) {
        Ok(pem) => pem,
        Err(error) => {
            s.wrong(FILE, &format!("cannot be read: {error}"));
            return None;
        }
    };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    if certificates.map_or(true, |certificates| certificates.is_empty()) {
        s.wrong(FILE, "must hold certificates in PEM");
    }
    Some(pem)
}

/// RFC 3986, and the `%` of what is escaped; CloudEvents has a URI reference here.
fn is_of_uri(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte)
}

/// A text that is there, and of one line: signatures tell their parts apart by line feeds.
fn line(s: &mut Settings, name: &str) -> String {
    let text = s.text(name);
    if text.is_empty() || s.is_blank(name) {
        s.wrong_secret(name, "must not be empty where broker.url is set");
    }
    if text.contains(char::is_control) {
        s.wrong_secret(name, "must be of one line, without control characters");
    }
    text
}

/// Why a worker with this state must not run without a broker; `None` when it may.
pub(super) fn missing(broker: Option<&BrokerConfig>, embedded: bool) -> Option<String> {
    if broker.is_some() || embedded {
        return None;
    }
    let contract = CONTRACT.map(super::variables::environment_name).join(", ");
    Some(format!(
        "broker.url (OUTPORT_BROKER_URL) must be set for a worker unless the state is an SQLite \
         file, and with it {contract}"
    ))
}
