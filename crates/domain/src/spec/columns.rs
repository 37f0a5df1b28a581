//! The entries of `columns` and of `sort`.

use serde_json::value::RawValue;

use super::Body;
use crate::{
    column::{ColumnType, Digits},
    json::{FieldCode, FieldErrors, JsonType, array, join, object, string, type_of},
    limits::fixed,
    locale::Locale,
    resource::{Column, Resource},
    selection::{ColumnRef, Order},
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

impl Body<'_> {
    pub(super) fn columns(
        &self,
        resource: &Resource,
        locale: Locale,
        errors: &mut FieldErrors,
    ) -> Vec<(OutputColumn, ColumnRef)> {
        let scopes = &self.context.caller.scopes;
        let visible = |column: &Column| {
            column.requires_scope.as_ref().is_none_or(|scope| scopes.contains(scope))
        };
        let output = |column: &Column, label: Option<String>| {
            let label = label.unwrap_or_else(|| column.label(locale).to_owned());
            let (key, digits) = (column.key.clone(), column.digits);
            (OutputColumn { key, label, digits }, column.reference())
        };
        let Some(raw) = self.member("columns") else {
            return resource
                .columns
                .iter()
                .filter(|column| column.default && visible(column))
                .map(|c| output(c, None))
                .collect();
        };
        let elements = array(raw, "columns", errors).unwrap_or_default();
        if elements.is_empty() && type_of(raw) == JsonType::Array {
            errors.push("columns", FieldCode::InvalidValue, "must name at least one column");
        }
        if elements.len() > fixed::COLUMNS_PER_EXPORT {
            let message = format!("names more than {} columns", fixed::COLUMNS_PER_EXPORT);
            errors.push("columns", FieldCode::LimitExceeded, message);
            return Vec::new();
        }
        let mut columns: Vec<(OutputColumn, ColumnRef)> = Vec::with_capacity(elements.len());
        for (index, element) in elements.into_iter().enumerate() {
            let path = format!("columns[{index}]");
            let Some((key, label)) = column_entry(element, &path, errors) else { continue };
            match resource.column(&key) {
                None => {
                    let message =
                        format!("resource '{}' has no column '{}'", resource.name, shown(&key));
                    errors.push(path, FieldCode::UnknownColumn, message);
                }
                Some(column) if !visible(column) => {
                    errors.push(
                        path,
                        FieldCode::ForbiddenColumn,
                        format!("column '{key}' may not be read"),
                    );
                }
                Some(_) if columns.iter().any(|(earlier, _)| earlier.key == key) => {
                    errors.push(path, FieldCode::Duplicate, format!("column '{key}' stands twice"));
                }
                Some(column) => columns.push(output(column, label)),
            }
        }
        columns
    }

    pub(super) fn order(&self, resource: &Resource, errors: &mut FieldErrors) -> Vec<Order> {
        let Some(raw) = self.member("sort") else { return resource.order.clone() };
        let scopes = &self.context.caller.scopes;
        let mut order = Vec::new();
        for (index, element) in
            array(raw, "sort", errors).unwrap_or_default().into_iter().enumerate()
        {
            let path = format!("sort[{index}]");
            let Some(entry) = string(element, &path, errors) else { continue };
            let (key, descending) =
                entry.strip_prefix('-').map_or((entry.as_str(), false), |key| (key, true));
            match resource.column(key) {
                None => errors.push(
                    path,
                    FieldCode::UnknownColumn,
                    format!("there is no column '{}'", shown(key)),
                ),
                Some(column)
                    if column
                        .requires_scope
                        .as_ref()
                        .is_some_and(|scope| !scopes.contains(scope)) =>
                {
                    errors.push(
                        path,
                        FieldCode::ForbiddenColumn,
                        format!("column '{key}' may not be read"),
                    );
                }
                Some(column)
                    if matches!(column.column_type, ColumnType::Json | ColumnType::Binary) =>
                {
                    let message = format!(
                        "column '{key}' is of type {} and has no order",
                        column.column_type.name()
                    );
                    errors.push(path, FieldCode::NotSupported, message);
                }
                Some(column) => order.push(Order { column: column.reference(), descending }),
            }
        }
        if order.len() > 16 {
            errors.push("sort", FieldCode::LimitExceeded, "names more than 16 columns");
        }
        order
    }
}

/// A key, or `{"key": …, "label": …}`.
fn column_entry(
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
fn shown(text: &str) -> String {
    text.chars().take(100).filter(|c| !c.is_control()).collect()
}
