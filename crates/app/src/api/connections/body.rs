//! Reading a connection's body: every wrong field is told at once.

use outport_domain::{
    connection::{Connection, ConnectionKind, TlsMode},
    json::{FieldCode, FieldErrors, JsonType, join, object, string, type_of},
    limits::fixed,
};
use outport_pipeline::connections::Secrets;
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
    /// A host name or an IP address.
    host: String,
    port: u16,
    database_name: String,
    user_name: String,
    /// Never comes out again.
    #[schema(write_only)]
    password: String,
    /// The schema that unqualified tables are in.
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

/// Reads a body into a connection: a blank one, or the one that is changed, with its secrets.
pub fn read(
    body: &str,
    connection: Connection,
    secrets: Option<Secrets>,
) -> Result<(Connection, Secrets), Refusal> {
    let mut errors = FieldErrors::default();
    let is_new = secrets.is_none();
    let raw: Option<&RawValue> = serde_json::from_str(body).ok();
    let members = raw.and_then(|raw| object(raw, "", Some(&MEMBERS), &mut errors));
    let members = members.unwrap_or_default();
    let missing = |name: &&&str| {
        !members.iter().any(|(own, raw)| own == *name && type_of(raw) != JsonType::Null)
    };
    for name in REQUIRED.iter().filter(missing).filter(|_| is_new) {
        errors.push(*name, FieldCode::Required, "is required");
    }
    let mut reader = Reader { connection, secrets: secrets.unwrap_or_default(), errors };
    for (name, raw) in &members {
        reader.member(name, raw);
    }
    let Reader { connection, secrets, mut errors } = reader;
    if connection.tls_certificate.is_some() != secrets.tls_key.is_some() {
        errors.push("ssl", FieldCode::InvalidValue, "must have cert and key, or neither");
    }
    if errors.is_empty() { Ok((connection, secrets)) } else { Err(Refusal::fields(errors)) }
}

struct Reader {
    connection: Connection,
    secrets: Secrets,
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
                let fits = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
                if !host.chars().all(fits) {
                    self.errors.push(
                        name,
                        FieldCode::InvalidValue,
                        "must be a host name or address",
                    );
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
                self.secrets.password = Zeroizing::new(self.text(raw, name, 1, 1024));
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
        self.secrets.tls_key = None;
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
                _ => self.secrets.tls_key = self.pem(raw, &path).map(Zeroizing::new),
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
        } else {
            self.connection.metadata = Some(raw.get().to_owned());
        }
    }
}
