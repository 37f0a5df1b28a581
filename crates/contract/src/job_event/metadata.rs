//! What a client sends along with a job and gets back in the event, to the digit.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::JobError;

/// Member names that a client may not use: the service writes them itself.
pub const RESERVED_METADATA: [&str; 4] =
    ["error", "terminalEventPending", "terminalEventStatus", "terminalEventPayload"];

/// A client's metadata: a JSON object whose text is kept as sent.
#[derive(Clone, Debug)]
pub struct Metadata(Box<RawValue>);

/// Why a text is not a client's metadata.
#[derive(Debug, thiserror::Error)]
pub enum InvalidMetadata {
    /// Not JSON, or not an object.
    #[error("metadata must be a JSON object")]
    NotAnObject(#[source] serde_json::Error),
    /// A member has a name that the service writes itself.
    #[error("metadata.{name} is a name that the service reserves; use another")]
    Reserved {
        /// The name.
        name: &'static str,
    },
}

impl Metadata {
    /// Of a job that came without.
    pub fn empty() -> Self {
        Self::of_members("")
    }

    /// Reads an object without reserved names. Names are compared as they are meant, however
    /// they are escaped; only members of the object itself matter, not deeper ones.
    pub fn parse(text: &str) -> Result<Self, InvalidMetadata> {
        let Names(names) = serde_json::from_str(text).map_err(InvalidMetadata::NotAnObject)?;
        let is_used = |reserved: &&str| names.iter().any(|name| name == reserved);
        if let Some(name) = RESERVED_METADATA.into_iter().find(is_used) {
            return Err(InvalidMetadata::Reserved { name });
        }
        let raw = RawValue::from_string(text.to_owned()).map_err(InvalidMetadata::NotAnObject)?;
        Ok(Self(raw))
    }

    /// With a first member `source`, unless the client sent one.
    #[must_use]
    pub fn or_source(self, source: &str) -> Self {
        let Names(names) = serde_json::from_str(self.0.get()).expect("read before");
        if names.iter().any(|name| name == "source") {
            return self;
        }
        Self::of_members(&joined(&member("source", &source), self.members()))
    }

    /// With a last member `error`.
    pub(super) fn with_error(self, error: &JobError) -> Self {
        Self::of_members(&joined(self.members(), &member("error", error)))
    }

    /// The object, as it is written.
    pub fn into_raw(self) -> Box<RawValue> {
        self.0
    }

    /// What is between the braces.
    fn members(&self) -> &str {
        let object = self.0.get();
        object[1..object.len() - 1].trim_ascii()
    }

    fn of_members(members: &str) -> Self {
        let raw = RawValue::from_string(format!("{{{members}}}"));
        Self(raw.expect("members between braces are an object"))
    }
}

fn member(name: &str, value: &impl serde::Serialize) -> String {
    let value = serde_json::to_string(value).expect("texts have no failure");
    format!("\"{name}\":{value}")
}

fn joined(before: &str, after: &str) -> String {
    let comma = if before.is_empty() || after.is_empty() { "" } else { "," };
    format!("{before}{comma}{after}")
}

/// The names of an object's members, unescaped, repeated ones too.
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = members.next_entry()? {
                    names.push(name);
                }
                Ok(Names(names))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};

    use super::*;

    fn parse(text: &str) -> Metadata {
        Metadata::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_text_is_kept_as_sent() {
        let text = r#"{ "b" : 1.10, "a":12345678901234567890123, "a":[{}], "é":"é\u00e9" }"#;
        assert_eq!(parse(text).into_raw().get(), text);
        assert_eq!(parse(" {} \n").into_raw().get(), "{}");
    }

    #[test]
    fn a_reserved_name_is_refused_however_it_is_written_but_not_deeper_in() {
        for (text, expected) in [
            (r#"{"a":1,"error":null}"#, "error"),
            (r#"{"\u0065rror":1}"#, "error"),
            (r#"{"error":1,"error":2}"#, "error"),
            (r#"{"terminalEventPending":1}"#, "terminalEventPending"),
            (r#"{"terminalEventStatus":{}}"#, "terminalEventStatus"),
            (r#"{"terminalEventPayload":[]}"#, "terminalEventPayload"),
        ] {
            let refusal = Metadata::parse(text).expect_err(text);
            assert!(matches!(refusal, InvalidMetadata::Reserved { name } if name == expected));
            assert!(refusal.to_string().contains(&format!("metadata.{expected} ")), "{refusal}");
        }
        parse(r#"{"a":{"error":1},"b":"error","Error":1}"#);
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        for text in ["", "1", "[]", "\"a\"", "null", "{", "{}}", "{\"a\":}", "{'a':1}", "{1:1}"] {
            let refusal = Metadata::parse(text).expect_err(text);
            assert!(matches!(refusal, InvalidMetadata::NotAnObject(_)), "{text}");
        }
    }

    #[test]
    fn the_source_is_the_clients_or_else_the_first_member() {
        let own = r#"{"a":1,"source":null}"#;
        assert_eq!(parse(own).or_source("order").into_raw().get(), own);
        let escaped = r#"{"s\u006furce":1}"#;
        assert_eq!(parse(escaped).or_source("order").into_raw().get(), escaped);
        assert_eq!(
            parse("{ \"a\":1.50 }").or_source("or\"der").into_raw().get(),
            r#"{"source":"or\"der","a":1.50}"#
        );
        assert_eq!(Metadata::empty().or_source("order").into_raw().get(), r#"{"source":"order"}"#);
    }

    #[test]
    fn deep_metadata_needs_no_deep_stack() {
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(parse(&deep).into_raw().get(), deep);
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(512) })]

        #[test]
        fn whatever_is_accepted_stays_an_object(
            text in prop_oneof![
                any::<String>(),
                "[{]( ?\"[as\\\\u0061é]{0,6}\"\t?:[0-9nul\\[{}\" ]{0,4},?){0,3} ?[}]",
                "[{] ?(\"[a-z]{1,3}\":(1|-0.50|null|[{][}]|\"[}]\") ?)?[}]",
            ],
        ) {
            if let Ok(metadata) = Metadata::parse(&text) {
                let error = JobError::new("CODE", "message");
                let object = metadata.or_source("order").with_error(&error).into_raw();
                let object: serde_json::Value = serde_json::from_str(object.get()).expect("JSON");
                prop_assert!(object.get("source").is_some());
                prop_assert_eq!(object["error"]["code"].as_str(), Some("CODE"));
            }
        }
    }
}
