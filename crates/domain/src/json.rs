//! Reading a request's JSON without losing a digit, and reporting everything that is wrong.

use std::{collections::HashSet, fmt};

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

/// One wrong field of a request: where, which rule (a stable code), and in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// A path as in `columns[2].label` or `filters.createdAt.value`; empty for the body itself.
    pub field: String,
    /// The stable code of the rule.
    pub code: FieldCode,
    /// One sentence.
    pub message: String,
}

/// The stable codes of [`FieldError`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldCode {
    /// A member that must be there is not.
    Required,
    /// A member that nobody knows.
    UnknownMember,
    /// The wrong JSON type.
    InvalidType,
    /// The right type with a wrong value.
    InvalidValue,
    /// More than a limit allows.
    LimitExceeded,
    /// The same name twice where it may stand once.
    Duplicate,
    /// No such column in the resource.
    UnknownColumn,
    /// The column exists and this caller may not read it.
    ForbiddenColumn,
    /// No such operator, or not for this type of column.
    UnknownOperator,
    /// What it names does not exist, or not for this caller.
    NotFound,
    /// The caller may not ask for this.
    NotAllowed,
    /// A right request that this resource or version cannot serve.
    NotSupported,
}

impl FieldCode {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Required,
        Self::UnknownMember,
        Self::InvalidType,
        Self::InvalidValue,
        Self::LimitExceeded,
        Self::Duplicate,
        Self::UnknownColumn,
        Self::ForbiddenColumn,
        Self::UnknownOperator,
        Self::NotFound,
        Self::NotAllowed,
        Self::NotSupported,
    ];

    /// The code on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Required => "REQUIRED",
            Self::UnknownMember => "UNKNOWN_MEMBER",
            Self::InvalidType => "INVALID_TYPE",
            Self::InvalidValue => "INVALID_VALUE",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::Duplicate => "DUPLICATE",
            Self::UnknownColumn => "UNKNOWN_COLUMN",
            Self::ForbiddenColumn => "FORBIDDEN_COLUMN",
            Self::UnknownOperator => "UNKNOWN_OPERATOR",
            Self::NotFound => "NOT_FOUND",
            Self::NotAllowed => "NOT_ALLOWED",
            Self::NotSupported => "NOT_SUPPORTED",
        }
    }

    /// What the code means, for the reference page.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Required => "A required member is missing.",
            Self::UnknownMember => "The member is not part of this request; check its spelling.",
            Self::InvalidType => "The member has the wrong JSON type.",
            Self::InvalidValue => "The member's value breaks its rule; the message says which.",
            Self::LimitExceeded => "The member is longer, larger or more numerous than allowed.",
            Self::Duplicate => "The same member or key stands twice where it may stand once.",
            Self::UnknownColumn => "The resource has no such column.",
            Self::ForbiddenColumn => "The caller may not read this column.",
            Self::UnknownOperator => "There is no such operator, or not for this column's type.",
            Self::NotFound => "What the member names does not exist, or not for this caller.",
            Self::NotAllowed => "The caller may not ask for this.",
            Self::NotSupported => "The request is well-formed and cannot be served here.",
        }
    }
}

/// Collects everything that is wrong with a request.
#[derive(Debug, Default)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// Notes one wrong field.
    pub fn push(&mut self, field: impl Into<String>, code: FieldCode, message: impl Into<String>) {
        self.0.push(FieldError { field: field.into(), code, message: message.into() });
    }

    /// Whether nothing is wrong so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in the order found.
    pub fn into_vec(self) -> Vec<FieldError> {
        self.0
    }
}

/// The members of a JSON object in the order written, values unparsed, doubles kept.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Visitor).map(Members)
    }
}

/// What a raw JSON value is, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// The type of a raw value, which is valid JSON by construction.
pub fn type_of(raw: &RawValue) -> JsonType {
    match raw.get().as_bytes().first() {
        Some(b'{') => JsonType::Object,
        Some(b'[') => JsonType::Array,
        Some(b'"') => JsonType::String,
        Some(b't' | b'f') => JsonType::Boolean,
        Some(b'n') => JsonType::Null,
        _ => JsonType::Number,
    }
}

/// Reads an object: notes members that stand twice or are not in `known`, returns the rest.
/// `None` (and a note) when it is no object.
pub fn object<'a>(
    raw: &'a RawValue,
    path: &str,
    known: Option<&[&str]>,
    errors: &mut FieldErrors,
) -> Option<Vec<(String, &'a RawValue)>> {
    let Ok(Members(members)) = serde_json::from_str::<Members<'a>>(raw.get()) else {
        errors.push(path, FieldCode::InvalidType, "must be an object");
        return None;
    };
    let mut kept: Vec<(String, &RawValue)> = Vec::with_capacity(members.len());
    for (name, value) in members {
        let field = join(path, &name);
        if known.is_some_and(|known| !known.contains(&name.as_str())) {
            errors.push(field, FieldCode::UnknownMember, "is not a member of this object");
        } else if kept.iter().any(|(earlier, _)| *earlier == name) {
            errors.push(field, FieldCode::Duplicate, "stands twice");
        } else {
            kept.push((name, value));
        }
    }
    Some(kept)
}

/// The elements of an array, unparsed. `None` (and a note) when it is no array.
pub fn array<'a>(
    raw: &'a RawValue,
    path: &str,
    errors: &mut FieldErrors,
) -> Option<Vec<&'a RawValue>> {
    let elements = serde_json::from_str(raw.get()).ok();
    if elements.is_none() {
        errors.push(path, FieldCode::InvalidType, "must be an array");
    }
    elements
}

/// The text of a string without NUL. `None` (and a note) otherwise.
pub fn string(raw: &RawValue, path: &str, errors: &mut FieldErrors) -> Option<String> {
    match serde_json::from_str::<String>(raw.get()) {
        Ok(text) if text.contains('\0') => {
            errors.push(path, FieldCode::InvalidValue, "must not contain the NUL character");
            None
        }
        Ok(text) => Some(text),
        Err(_) => {
            errors.push(path, FieldCode::InvalidType, "must be a string");
            None
        }
    }
}

/// A boolean. `None` (and a note) otherwise.
pub fn boolean(raw: &RawValue, path: &str, errors: &mut FieldErrors) -> Option<bool> {
    let value = serde_json::from_str(raw.get()).ok();
    if value.is_none() {
        errors.push(path, FieldCode::InvalidType, "must be true or false");
    }
    value
}

/// The path of a member.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether every reader of JSON takes a value in, and as the same one: no half of a surrogate pair
/// in a text, no number beyond what is counted with, no member that stands twice, of which some
/// believe the first and some the last (RFC 8259, 4, 6 and 8.2). What is kept as it was sent is
/// asked this.
pub fn is_interoperable(raw: &RawValue, field: &str, errors: &mut FieldErrors) -> bool {
    if serde_json::from_str::<serde_json::Value>(raw.get()).is_err() {
        let rule = "must have whole characters in its texts and numbers of at most 1.8e308";
        errors.push(field, FieldCode::InvalidValue, rule);
        return false;
    }
    let repeated = repeated(raw);
    if let Some(place) = &repeated {
        errors.push(format!("{field}{place}"), FieldCode::Duplicate, "stands twice");
    }
    repeated.is_none()
}

/// Where the first member is that stands twice in its object: `.a[0].b`. Read from the inside out,
/// so that a long name is not copied for each one below it.
fn repeated(raw: &RawValue) -> Option<String> {
    match type_of(raw) {
        JsonType::Object => {
            let Members(members) = serde_json::from_str(raw.get()).ok()?;
            let mut names = HashSet::new();
            members.iter().find_map(|(name, value)| {
                let is_new = names.insert(name);
                let inner = if is_new { repeated(value)? } else { String::new() };
                Some(format!(".{name}{inner}"))
            })
        }
        JsonType::Array => {
            let elements: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
            let mut elements = elements.into_iter().enumerate();
            elements.find_map(|(index, value)| Some(format!("[{index}]{}", repeated(value)?)))
        }
        _ => None,
    }
}
