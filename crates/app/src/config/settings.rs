//! Settings before they are typed: names and texts, where they came from, and all that is wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt, io,
    io::Write as _,
    path::Path,
    str::FromStr,
    time::Duration,
};

use outport_contract::key::MasterKey;
use url::Url;

use super::variables::{VARIABLES, environment_name};

const CONNECTIONS: &str = "connections.";
/// What commands that ask a running server read by themselves.
const OF_CLIENTS: [&str; 2] = ["OUTPORT_URL", "OUTPORT_TOKEN"];

/// Everything that is wrong with a configuration, a sentence each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError(pub Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration cannot be used:")?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

/// Names and texts. Holds secrets, so it has no `Debug`.
#[derive(Default)]
pub struct Settings {
    values: BTreeMap<String, String>,
    blank: BTreeSet<String>,
    faults: Vec<String>,
}

impl Settings {
    /// Settings that a test can build on: the embedded profile with a fixed key.
    #[doc(hidden)]
    pub fn for_tests() -> Self {
        let mut settings = Self::default();
        settings.set("encKey", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
        settings
    }

    /// Reads a TOML file; its tables become dotted names.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let fault = |error: String| ConfigError(vec![format!("{}: {error}", path.display())]);
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        // The error's own rendering would quote the line, which may hold a secret.
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| format!("line {}: ", before.split('\n').count()));
            fault(format!("{}{}", line.unwrap_or_default(), error.message()))
        })?;
        self.flatten("", &table);
        Ok(())
    }

    fn flatten(&mut self, prefix: &str, table: &toml::Table) {
        for (key, value) in table {
            let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            match value {
                toml::Value::Table(table) => self.flatten(&name, table),
                toml::Value::String(text) => self.set(&name, text),
                toml::Value::Integer(number) => self.set(&name, &number.to_string()),
                toml::Value::Boolean(flag) => self.set(&name, &flag.to_string()),
                _ => self.faults.push(format!(
                    "{}: must be a text, a whole number or true/false",
                    shown(&name)
                )),
            }
        }
    }

    /// Reads `OUTPORT_…` and the contract's own names.
    pub fn read_environment<T: Into<OsString>>(&mut self, variables: impl Iterator<Item = (T, T)>) {
        let known: BTreeMap<String, &str> =
            VARIABLES.iter().map(|variable| (variable.environment(), variable.name)).collect();
        let connections = environment_name(CONNECTIONS);
        for (key, value) in variables {
            // What is no text is the name of somebody else's.
            let Ok(key) = key.into().into_string() else { continue };
            let of_connection = key.strip_prefix(&connections);
            let of_connection =
                of_connection.map(|name| format!("{CONNECTIONS}{}", name.to_ascii_lowercase()));
            if let Some(name) = known.get(&key).map(|name| (*name).to_owned()).or(of_connection) {
                match value.into().into_string() {
                    Ok(value) => self.set(&name, &value),
                    Err(_) => self.faults.push(format!("{}: must be text in UTF-8", shown(&key))),
                }
            } else if key.starts_with("OUTPORT_")
                && !key.starts_with("OUTPORT_TEST_")
                && !OF_CLIENTS.contains(&key.as_str())
            {
                self.faults.push(format!("{}: is not a variable that Outport knows", shown(&key)));
            }
        }
    }

    /// Sets one by its dotted name; an empty text is as good as absent.
    pub fn set(&mut self, name: &str, value: &str) {
        if !name.starts_with(CONNECTIONS) && !VARIABLES.iter().any(|variable| variable.name == name)
        {
            self.faults.push(format!("{}: is not a variable that Outport knows", shown(name)));
        } else if name.starts_with(CONNECTIONS) && is_like_url(name) {
            self.faults.push(format!(
                "{}: the name of a connection must not have ':', '/' or '@'; its URL is the value",
                shown(name)
            ));
        } else if value.trim().is_empty() {
            self.values.remove(name);
            self.blank.insert(name.to_owned());
        } else {
            self.blank.remove(name);
            self.values.insert(name.to_owned(), value.trim().to_owned());
        }
    }

    /// Whether it was set, to nothing: where its default would hide that.
    pub(super) fn is_blank(&self, name: &str) -> bool {
        self.blank.contains(name)
    }

    pub(super) fn optional(&self, name: &str) -> Option<String> {
        self.values.get(name).cloned().or_else(|| {
            let variable = VARIABLES.iter().find(|variable| variable.name == name);
            variable
                .map(|variable| variable.default)
                .filter(|default| !default.is_empty())
                .map(str::to_owned)
        })
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.optional(name).unwrap_or_default()
    }

    pub(super) fn parsed<T: FromStr>(&mut self, name: &str, expected: &str) -> Option<T> {
        let text = self.text(name);
        let value = text.parse().ok();
        if value.is_none() {
            self.wrong(name, &format!("must be {expected}"));
        }
        value
    }

    pub(super) fn optional_parsed<T: FromStr>(&mut self, name: &str, expected: &str) -> Option<T> {
        self.optional(name)?;
        self.parsed(name, expected)
    }

    /// A URL that is asked over HTTP.
    pub(super) fn optional_url(&mut self, name: &str) -> Option<Url> {
        const EXPECTED: &str = "an http or https URL";
        let url: Url = self.optional_parsed(name, EXPECTED)?;
        if !matches!(url.scheme(), "http" | "https") {
            // `user:password@host` is a URL, too, of the scheme `user`.
            self.wrong(name, &format!("must be {EXPECTED}"));
            return None;
        }
        Some(url)
    }

    pub(super) fn number(&mut self, name: &str) -> u64 {
        const MAY_BE_ZERO: [&str; 7] = [
            "limits.spoolBytesPerExport",
            "limits.requestsPerMinute",
            "limits.drainSeconds",
            "limits.jobBackoffMilliseconds",
            "limits.jobBackoffMostSeconds",
            "limits.deliveryBackoffMilliseconds",
            "limits.deliveryBackoffMostSeconds",
        ];
        let Some(number) = self.parsed::<u64>(name, "a whole number below 2^64") else { return 1 };
        if number == 0 && !MAY_BE_ZERO.contains(&name) {
            self.wrong(name, "must be at least 1");
        }
        // Every limit fits the smallest type that one is kept in, or is a count of rows or bytes.
        if number > u64::from(u32::MAX) && !name.ends_with("PerExport") {
            self.wrong(name, "must be below 4,294,967,296");
        }
        number
    }

    pub(super) fn seconds(&mut self, name: &str) -> Duration {
        Duration::from_secs(self.number(name))
    }

    pub(super) fn milliseconds(&mut self, name: &str) -> Duration {
        Duration::from_millis(self.number(name))
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.one_of(name, &["true", "false"]) == "true"
    }

    pub(super) fn one_of(&mut self, name: &str, choices: &[&str]) -> String {
        let text = self.text(name);
        if !choices.contains(&text.as_str()) {
            self.wrong(name, &format!("must be one of {}", choices.join(", ")));
        }
        text
    }

    pub(super) fn connections(&self) -> Vec<(String, String)> {
        self.values
            .iter()
            .filter_map(|(name, url)| {
                Some((name.strip_prefix(CONNECTIONS)?.to_owned(), url.clone()))
            })
            .collect()
    }

    /// Notes a wrong value, and shows it unless it may hold credentials.
    pub(super) fn wrong(&mut self, name: &str, rule: &str) {
        let value = self.text(name);
        if value.is_empty() || may_hold_credentials(name, &value) {
            self.wrong_secret(name, rule);
            return;
        }
        self.faults.push(format!("{name} ({}) is '{value}' and {rule}", environment_name(name)));
    }

    /// Notes a wrong value that must not be shown.
    pub(super) fn wrong_secret(&mut self, name: &str, rule: &str) {
        self.faults.push(format!("{name} ({}) {rule}", environment_name(name)));
    }

    /// Notes a URL that its parser refuses, without what the parser quotes of it.
    pub(super) fn wrong_url(&mut self, name: &str, error: &str) {
        let told = match (error.find('"'), error.rfind('"')) {
            (Some(from), Some(to)) => format!("{}…{}", &error[..from], &error[to + 1..]),
            _ => error.to_owned(),
        };
        self.wrong_secret(name, &format!("is not a valid URL: {told}"));
    }

    /// Whether nothing was wrong so far, so that rules between values can be judged.
    pub(super) fn are_all_right(&self) -> bool {
        self.faults.is_empty()
    }

    pub(super) fn conflict(&mut self, rule: &str) {
        let told = rule.split(' ').map(|word| {
            let name = word.trim_end_matches(',');
            let is_it = VARIABLES.iter().any(|variable| variable.name == name);
            let variable = is_it.then(|| format!("{name} ({})", environment_name(name)));
            variable.map_or_else(|| word.to_owned(), |variable| word.replace(name, &variable))
        });
        self.faults.push(told.collect::<Vec<_>>().join(" "));
    }

    /// Everything that was wrong, each once.
    pub(super) fn finish(self) -> Result<(), ConfigError> {
        let mut seen = BTreeSet::new();
        let faults: Vec<String> =
            self.faults.into_iter().filter(|fault| seen.insert(fault.clone())).collect();
        if faults.is_empty() { Ok(()) } else { Err(ConfigError(faults)) }
    }
}

/// Whether a name may be a URL, as when a name and its value were exchanged.
fn is_like_url(name: &str) -> bool {
    name.contains([':', '/', '@'])
}

/// A name as it may be shown: of what may be a URL, and hold a password, its table alone.
fn shown(name: &str) -> String {
    if !is_like_url(name) {
        return name.to_owned();
    }
    let table = name.split_once('.').map(|(table, _)| format!("{table}."));
    let table = table.filter(|table| {
        table == CONNECTIONS || VARIABLES.iter().any(|variable| variable.name.starts_with(table))
    });
    format!("{}…", table.unwrap_or_default())
}

/// Whether a value may hold a user and a password. Of what should be a URL, and is mistyped, nobody
/// can say where they stand: it is shown only when it can be read, and has no place for them.
fn may_hold_credentials(name: &str, value: &str) -> bool {
    let is_to_be_url = name.starts_with(CONNECTIONS)
        || ["url", "Url", "endpoint", "Endpoint"].iter().any(|end| name.ends_with(end));
    if is_to_be_url {
        value.contains(['@', '?', '#']) || Url::parse(value).is_err()
    } else {
        value.contains("://") && value.contains('@')
    }
}

/// The key of the embedded profile: read from the data folder, or made there, mode 0600.
pub(super) fn key_file(data_dir: &Path) -> io::Result<MasterKey> {
    let path = data_dir.join("master.key");
    if !path.exists() {
        crate::process::make_private(data_dir)?;
        let new = data_dir.join(format!("master.key.{}", uuid::Uuid::new_v4()));
        let mut file = crate::process::privately().create_new(true).open(&new)?;
        file.write_all(MasterKey::generate().base64().as_bytes())?;
        file.sync_all()?;
        // Whole or not at all; when another process was first, its key stays.
        let linked = std::fs::hard_link(&new, &path);
        std::fs::remove_file(&new)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let text = std::fs::read_to_string(&path)?;
    MasterKey::parse(text.trim())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}
