//! Reading a connection's body: every wrong field is told at once.

use std::net::Ipv6Addr;

use outport_contract::key_ring::KeyRing;
use outport_domain::{
    connection::{Connection, ConnectionKind, TlsMode},
    json::{FieldCode, FieldErrors, JsonType, is_interoperable, join, object, string, type_of},
    limits::fixed,
};
use outport_pipeline::connections::{Secrets, Unusable};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use crate::api::fetcher::Refusal;

/// A connection; when it is changed, only what changes.
#[derive(ToSchema)]
#[schema(as = Connection, rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body in the OpenAPI document")]
pub struct ConnectionBody {
    /// 3 to 100 characters, unique in its organization.
    config_name: String,
    /// `POSTGRESQL` or `MYSQL`, which is MariaDB too.
    #[schema(rename = "type")]
    kind: String,
    /// A host name or an IP address, without scheme, user, port or path.
    host: String,
    port: u16,
    database_name: String,
    user_name: String,
    /// Never comes out again.
    #[schema(write_only)]
    password: String,
    /// The only schema that unqualified tables are looked for in.
    schema: Option<String>,
    /// `mode`: `disable`, `prefer` (when absent), `require`, `verify-ca` or `verify-full`. `ca`,
    /// `cert` and `key` are PEM; the key never comes out again.
    #[schema(value_type = Option<Object>)]
    ssl: Option<serde_json::Value>,
    /// Anything.
    #[schema(value_type = Option<Object>)]
    metadata: Option<serde_json::Value>,
}

/// What is to be there.
#[derive(ToSchema)]
#[schema(as = MappedFields, rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body in the OpenAPI document")]
pub struct MappedFieldsBody {
    /// Connection → table → array of fields.
    #[schema(value_type = Object)]
    mapped_fields: serde_json::Value,
}

const MEMBERS: [&str; 10] = [
    "configName",
    "type",
    "host",
    "port",
    "databaseName",
    "userName",
    "password",
    "schema",
    "ssl",
    "metadata",
];
/// What a new connection must have.
const REQUIRED: [&str; 7] =
    ["configName", "type", "host", "port", "databaseName", "userName", "password"];
const PEM_BYTES: usize = 64 * 1024;

/// The secrets that a body names; the others stay as they are stored.
#[derive(Default)]
pub struct NamedSecrets {
    password: Option<Zeroizing<String>>,
    /// The client's TLS key, or that there is none.
    #[expect(clippy::option_option, reason = "not named, none, and a new one")]
    tls_key: Option<Option<Zeroizing<String>>>,
}

impl NamedSecrets {
    /// The credentials of a connection with these. What is stored is opened only for a secret
    /// that stays beside one that changes: the key that it needs may be gone.
    pub fn seal(self, keys: &KeyRing, before: &Connection) -> Result<String, Unusable> {
        // A key has a certificate beside it: `read` sees to that.
        let had_key = before.tls_certificate.is_some();
        let tls_key = self.tls_key.or_else(|| (!had_key).then_some(None));
        let secrets = match (self.password, tls_key) {
            (Some(password), Some(tls_key)) => Secrets { password, tls_key },
            (None, None) => return Ok(before.credentials.clone()),
            (None, Some(None)) if !had_key => return Ok(before.credentials.clone()),
            (password, tls_key) => {
                let stored = Secrets::of(keys, before)?;
                Secrets {
                    password: password.unwrap_or(stored.password),
                    tls_key: tls_key.unwrap_or(stored.tls_key),
                }
            }
        };
        Ok(secrets.seal(keys, before.id))
    }
}

/// Reads a body into a connection, a blank one that is new or the one that is changed, and the
/// secrets that the body names.
pub fn read(
    body: &str,
    connection: Connection,
    is_new: bool,
) -> Result<(Connection, NamedSecrets), Refusal> {
    let mut errors = FieldErrors::default();
    let key_is_stored = connection.tls_certificate.is_some();
    let raw: Option<&RawValue> = serde_json::from_str(body).ok();
    let members = raw.and_then(|raw| object(raw, "", Some(&MEMBERS), &mut errors));
    let members = members.unwrap_or_default();
    let missing = |name: &&&str| {
        !members.iter().any(|(own, raw)| own == *name && type_of(raw) != JsonType::Null)
    };
    for name in REQUIRED.iter().filter(missing).filter(|_| is_new) {
        errors.push(*name, FieldCode::Required, "is required");
    }
    let mut reader = Reader { connection, secrets: NamedSecrets::default(), errors };
    for (name, raw) in &members {
        reader.member(name, raw);
    }
    let Reader { connection, secrets, mut errors } = reader;
    let has_key = secrets.tls_key.as_ref().map_or(key_is_stored, Option::is_some);
    if connection.tls_certificate.is_some() != has_key {
        errors.push("ssl", FieldCode::InvalidValue, "must have cert and key, or neither");
    }
    if errors.is_empty() { Ok((connection, secrets)) } else { Err(Refusal::fields(errors)) }
}

/// Whether a text is a host name, an IPv4 address, or an IPv6 address with or without brackets.
fn is_host(text: &str) -> bool {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if bracketed.unwrap_or(text).parse::<Ipv6Addr>().is_ok() {
        return true;
    }
    // The dot at the end says that a name is whole.
    text.strip_suffix('.').unwrap_or(text).split('.').all(|label| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            && !label.starts_with('-')
    })
}

struct Reader {
    connection: Connection,
    secrets: NamedSecrets,
    errors: FieldErrors,
}

impl Reader {
    fn member(&mut self, name: &str, raw: &RawValue) {
        let is_null = type_of(raw) == JsonType::Null;
        match name {
            "schema" if is_null => self.connection.schema = None,
            "metadata" if is_null => self.connection.metadata = None,
            "ssl" if is_null => self.no_tls(),
            // Told as missing, or as good as not sent.
            _ if is_null => {}
            "configName" => {
                let name = self.text(raw, name, 3, 100);
                self.connection.name = name;
            }
            "type" => self.kind(raw),
            "host" => {
                let host = self.text(raw, name, 1, 253);
                if !is_host(&host) {
                    let rule = "must be a host name or an IP address and nothing else: no scheme, \
                                user, port or path";
                    self.errors.push(name, FieldCode::InvalidValue, rule);
                }
                self.connection.host = host;
            }
            "port" => {
                if let Ok(port @ 1..) = raw.get().parse::<u16>() {
                    self.connection.port = port;
                } else {
                    let rule = "must be a whole number from 1 to 65535";
                    self.errors.push(name, FieldCode::InvalidValue, rule);
                }
            }
            "databaseName" => self.connection.database = self.text(raw, name, 1, 255),
            "userName" => self.connection.username = self.text(raw, name, 1, 255),
            "password" => {
                self.secrets.password = Some(Zeroizing::new(self.text(raw, name, 1, 1024)));
            }
            "schema" => self.connection.schema = Some(self.text(raw, name, 1, 255)),
            "ssl" => self.tls(raw),
            _ => self.metadata(raw),
        }
    }

    fn text(&mut self, raw: &RawValue, path: &str, least: usize, most: usize) -> String {
        let Some(text) = string(raw, path, &mut self.errors) else { return String::new() };
        let fits = (least..=most).contains(&text.chars().count());
        if !fits || text.chars().any(char::is_control) {
            let rule =
                format!("must have {least} to {most} characters, none of them a control character");
            self.errors.push(path, FieldCode::InvalidValue, rule);
        }
        text
    }

    fn kind(&mut self, raw: &RawValue) {
        let Some(name) = string(raw, "type", &mut self.errors) else { return };
        if let Some(kind) = ConnectionKind::from_name(&name) {
            self.connection.kind = kind;
        } else {
            let names = ConnectionKind::ALL.map(ConnectionKind::name).join(" or ");
            let rule = format!("must be {names}; other databases are not read here");
            self.errors.push("type", FieldCode::NotSupported, rule);
        }
    }

    fn no_tls(&mut self) {
        self.connection.tls_mode = TlsMode::Prefer;
        self.connection.tls_ca = None;
        self.connection.tls_certificate = None;
        self.secrets.tls_key = Some(None);
    }

    fn tls(&mut self, raw: &RawValue) {
        let known = ["mode", "ca", "cert", "key"];
        let Some(members) = object(raw, "ssl", Some(&known), &mut self.errors) else { return };
        for (name, raw) in members {
            let path = join("ssl", &name);
            let is_null = type_of(raw) == JsonType::Null;
            match name.as_str() {
                "mode" if is_null => self.connection.tls_mode = TlsMode::Prefer,
                "mode" => self.tls_mode(raw, &path),
                "ca" => self.connection.tls_ca = self.pem(raw, &path),
                "cert" => self.connection.tls_certificate = self.pem(raw, &path),
                _ => self.secrets.tls_key = Some(self.pem(raw, &path).map(Zeroizing::new)),
            }
        }
    }

    fn tls_mode(&mut self, raw: &RawValue, path: &str) {
        let Some(name) = string(raw, path, &mut self.errors) else { return };
        if let Some(mode) = TlsMode::from_name(&name) {
            self.connection.tls_mode = mode;
        } else {
            let names = TlsMode::ALL.map(TlsMode::name).join(", ");
            self.errors.push(path, FieldCode::InvalidValue, format!("must be one of {names}"));
        }
    }

    fn pem(&mut self, raw: &RawValue, path: &str) -> Option<String> {
        if type_of(raw) == JsonType::Null {
            return None;
        }
        let text = string(raw, path, &mut self.errors)?;
        let is_pem = text.len() <= PEM_BYTES && text.trim().starts_with("-----BEGIN ");
        if !is_pem {
            let rule = "must be PEM of at most 64 KiB";
            self.errors.push(path, FieldCode::InvalidValue, rule);
        }
        is_pem.then_some(text)
    }

    fn metadata(&mut self, raw: &RawValue) {
        if type_of(raw) != JsonType::Object {
            self.errors.push("metadata", FieldCode::InvalidType, "must be an object");
        } else if raw.get().len() > fixed::METADATA_BYTES {
            let rule = format!("has more than {} bytes", fixed::METADATA_BYTES);
            self.errors.push("metadata", FieldCode::LimitExceeded, rule);
        } else if is_interoperable(raw, "metadata", &mut self.errors) {
            self.connection.metadata = Some(raw.get().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_host;

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_else() {
        for host in [
            "db",
            "db.internal",
            "db.internal.",
            "my_db-1.example.com",
            "10.0.0.1",
            "::1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "2001:db8::1",
        ] {
            assert!(is_host(host), "{host}");
        }
        let long = "a".repeat(64);
        for other in [
            "",
            ".",
            "a..b",
            "127.0.0.1:5432",
            "db:5432",
            "[::1]:5432",
            "[::1",
            "::1]",
            "[[::1]]",
            "[db]",
            "fe80::1%eth0",
            "postgres://db",
            "db/path",
            "user@db",
            "a b",
            " db",
            "-db",
            "db?x=1",
            "d\u{e9}pot",
            &long,
        ] {
            assert!(!is_host(other), "{other}");
        }
    }
}
