//! The entries of `columns`.

use serde_json::value::RawValue;

use crate::{
    column::Digits,
    json::{FieldCode, FieldErrors, JsonType, join, object, string, type_of},
    limits::fixed,
};

/// One column of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Its key.
    pub key: String,
    /// Its header.
    pub label: String,
    /// Of a decimal, where declared.
    pub digits: Option<Digits>,
}

/// A key, or `{"key": …, "label": …}`.
pub(super) fn column_entry(
    raw: &RawValue,
    path: &str,
    errors: &mut FieldErrors,
) -> Option<(String, Option<String>)> {
    if type_of(raw) == JsonType::String {
        return Some((string(raw, path, errors)?, None));
    }
    if type_of(raw) != JsonType::Object {
        errors.push(
            path,
            FieldCode::InvalidType,
            "must be a column's key, or an object with key and label",
        );
        return None;
    }
    let members = object(raw, path, Some(&["key", "label"]), errors)?;
    let mut key = None;
    let mut label = None;
    for (name, value) in members {
        let path = join(path, &name);
        let text = string(value, &path, errors)?;
        if name == "key" {
            key = Some(text);
        } else if text.is_empty() || text.chars().any(char::is_control) {
            errors.push(
                path,
                FieldCode::InvalidValue,
                "must not be empty or hold control characters such as line breaks",
            );
        } else if text.chars().count() > fixed::LABEL_CHARS {
            errors.push(
                path,
                FieldCode::LimitExceeded,
                format!("is longer than {} characters", fixed::LABEL_CHARS),
            );
        } else {
            label = Some(text);
        }
    }
    if key.is_none() {
        errors.push(join(path, "key"), FieldCode::Required, "is required");
    }
    key.map(|key| (key, label))
}

/// A caller's text in an error message, of bearable length.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(100).filter(|c| !c.is_control()).collect()
}
