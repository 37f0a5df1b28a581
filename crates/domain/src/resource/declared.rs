//! A resource file as written, and everything that can be wrong with it.

use std::collections::BTreeMap;

use chrono_tz::Tz;
use outport_contract::stream::Channel;
use serde::Deserialize;

use super::{Column, InvalidResource, Resource, Scope};
use crate::{
    column::{ColumnType, Digits},
    dialect::{FormulaGuard, InvalidText},
    job::Protection,
    locale::Locale,
    selection::{ColumnRef, Order, Relation},
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Declared {
    name: String,
    connection: String,
    from: Option<String>,
    query: Option<String>,
    scope: DeclaredScope,
    columns: Vec<DeclaredColumn>,
    #[serde(default)]
    sort: Vec<String>,
    key_stem: Option<String>,
    #[serde(default)]
    file_name: BTreeMap<String, String>,
    time_zone: Option<String>,
    formula_guard: Option<String>,
    invalid_text: Option<String>,
    protection: Option<String>,
    application: Option<String>,
    #[serde(default)]
    notify_domains: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeclaredScope {
    organization: DeclaredReference,
    company: Option<DeclaredReference>,
    cooperative: Option<DeclaredReference>,
    deleted_at: Option<String>,
}

/// A bare column name (a UUID column), or a name with its type.
#[derive(Deserialize)]
#[serde(untagged)]
enum DeclaredReference {
    Name(String),
    Typed {
        column: String,
        #[serde(rename = "type")]
        column_type: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeclaredColumn {
    key: String,
    source: Option<String>,
    #[serde(rename = "type")]
    column_type: String,
    precision: Option<u8>,
    scale: Option<u8>,
    #[serde(default)]
    label: BTreeMap<String, String>,
    requires_scope: Option<String>,
    default: Option<bool>,
}

impl Declared {
    /// The resource, or all its faults at once.
    pub(super) fn check(self) -> Result<Resource, InvalidResource> {
        let mut faults = Vec::new();
        if !is_word(&self.name) {
            faults.push(
                "name: must be 1 to 64 letters, digits, '-' or '_', starting with a letter"
                    .to_owned(),
            );
        }
        let relation = relation(self.from.as_deref(), self.query.as_deref(), &mut faults);
        let mut columns: Vec<Column> = Vec::new();
        for (index, declared) in self.columns.into_iter().enumerate() {
            let column = declared.check(index, &mut faults);
            if columns.iter().any(|earlier| earlier.key == column.key) {
                faults.push(format!("columns[{index}].key: '{}' stands twice", column.key));
            }
            columns.push(column);
        }
        if !columns.iter().any(|column| column.default) {
            faults.push("columns: at least one must be exported by default".to_owned());
        }
        let order = sort_order(&self.sort, &columns, &mut faults);
        let key_stem = self.key_stem.unwrap_or_else(|| format!("{}s", self.name));
        if !is_word(&key_stem) {
            faults.push(
                "keyStem: must be 1 to 64 letters, digits, '-' or '_', starting with a letter"
                    .to_owned(),
            );
        }
        let file_stems = by_locale(self.file_name, "fileName", &mut faults);
        for stem in file_stems.values() {
            if let Some(rule) = crate::file_name::refusal(stem) {
                faults.push(format!("fileName: {rule}"));
            }
        }
        let scope = Scope {
            organization: self.scope.organization.check("organization", &mut faults),
            company: self.scope.company.map(|declared| declared.check("company", &mut faults)),
            cooperative: self
                .scope
                .cooperative
                .map(|declared| declared.check("cooperative", &mut faults)),
            deleted_at: self
                .scope
                .deleted_at
                .map(|name| ColumnRef { name: name.into(), column_type: ColumnType::Timestamp }),
        };
        if self.application.as_deref().is_some_and(|name| !Channel::is_application_name(name)) {
            faults.push(
                "application: must be 1 to 100 letters (a-z, A-Z), digits, '-' or '_'".to_owned(),
            );
        }
        let zone = self.time_zone.as_deref().unwrap_or("UTC");
        let time_zone = zone.parse().unwrap_or_else(|_| {
            faults.push(format!("timeZone: '{zone}' is no IANA time zone"));
            Tz::UTC
        });
        let resource = Resource {
            name: self.name,
            connection: self.connection,
            relation,
            scope,
            columns,
            order,
            key_stem,
            file_stems,
            time_zone,
            formula_guard: choice(
                self.formula_guard.as_deref(),
                "formulaGuard",
                &[("text", FormulaGuard::Text), ("off", FormulaGuard::Off)],
                &mut faults,
            ),
            invalid_text: choice(
                self.invalid_text.as_deref(),
                "invalidText",
                &[("replace", InvalidText::Replace), ("fail", InvalidText::Fail)],
                &mut faults,
            ),
            protection: choice(
                self.protection.as_deref(),
                "protection",
                &[("none", Some(Protection::None)), ("sealed", Some(Protection::Sealed))],
                &mut faults,
            ),
            application: self.application,
            notify_domains: self
                .notify_domains
                .iter()
                .map(|domain| domain.to_ascii_lowercase())
                .collect(),
        };
        if faults.is_empty() { Ok(resource) } else { Err(InvalidResource(faults)) }
    }
}

/// What it reads: a table or one SELECT.
fn relation(from: Option<&str>, query: Option<&str>, faults: &mut Vec<String>) -> Relation {
    match (from, query) {
        (Some(table), None) if table.split('.').all(|part| !part.is_empty()) => {
            Relation::Table(table.split('.').map(str::to_owned).collect())
        }
        (None, Some(query)) if !query.trim().is_empty() => {
            Relation::Query(query.trim().trim_end_matches(';').to_owned())
        }
        _ => {
            faults.push(
                "exactly one of 'from' (a table) and 'query' (one SELECT) must be given".to_owned(),
            );
            Relation::Table(Vec::new())
        }
    }
}

impl DeclaredColumn {
    fn check(self, index: usize, faults: &mut Vec<String>) -> Column {
        if self.key.is_empty()
            || self.key.starts_with('_')
            || self.key.chars().any(char::is_control)
        {
            faults.push(format!(
                "columns[{index}].key: must not be empty, start with '_' or hold control characters"
            ));
        }
        let column_type = column_type(&self.column_type, &format!("columns[{index}].type"), faults);
        let digits = digits(self.precision, self.scale);
        if digits.is_some_and(|digits| column_type != ColumnType::Decimal || !is_possible(digits)) {
            faults.push(format!(
                "columns[{index}].precision: a decimal may have 1 to 38 digits, and at most as many of them after the point (scale)"
            ));
        }
        let labels = by_locale(self.label, &format!("columns[{index}].label"), faults);
        if labels.values().any(|label| label.chars().any(char::is_control)) {
            faults.push(format!("columns[{index}].label: must not hold control characters"));
        }
        Column {
            source: self.source.unwrap_or_else(|| self.key.clone()).into(),
            column_type,
            digits,
            labels,
            default: self.default.unwrap_or(self.requires_scope.is_none()),
            requires_scope: self.requires_scope,
            key: self.key,
        }
    }
}

impl DeclaredReference {
    fn check(self, name: &str, faults: &mut Vec<String>) -> ColumnRef {
        match self {
            Self::Name(column) => ColumnRef { name: column.into(), column_type: ColumnType::Uuid },
            Self::Typed { column, column_type: declared } => {
                let column_type = column_type(&declared, &format!("scope.{name}.type"), faults);
                if !matches!(column_type, ColumnType::Uuid | ColumnType::Text) {
                    faults.push(format!("scope.{name}.type: must be 'uuid' or 'text'"));
                }
                ColumnRef { name: column.into(), column_type }
            }
        }
    }
}

/// A scale without a precision is a fault, like a precision of 0.
fn digits(precision: Option<u8>, scale: Option<u8>) -> Option<Digits> {
    (precision.is_some() || scale.is_some()).then(|| Digits {
        precision: precision.unwrap_or_default(),
        scale: scale.unwrap_or_default(),
    })
}

fn is_possible(digits: Digits) -> bool {
    (1..=38).contains(&digits.precision) && digits.scale <= digits.precision
}

fn is_word(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

fn column_type(name: &str, field: &str, faults: &mut Vec<String>) -> ColumnType {
    ColumnType::from_name(name).unwrap_or_else(|| {
        let known: Vec<&str> = ColumnType::ALL.into_iter().map(ColumnType::name).collect();
        faults.push(format!("{field}: '{name}' is none of {}", known.join(", ")));
        ColumnType::Text
    })
}

fn by_locale(
    texts: BTreeMap<String, String>,
    field: &str,
    faults: &mut Vec<String>,
) -> BTreeMap<Locale, String> {
    texts
        .into_iter()
        .filter_map(|(tag, text)| {
            let locale = Locale::ALL.into_iter().find(|locale| locale.tag() == tag);
            if locale.is_none() {
                faults.push(format!("{field}: '{tag}' is none of en, pt-BR, es"));
            }
            locale.map(|locale| (locale, text))
        })
        .collect()
}

fn sort_order(sort: &[String], columns: &[Column], faults: &mut Vec<String>) -> Vec<Order> {
    sort.iter()
        .filter_map(|entry| {
            let (key, descending) =
                entry.strip_prefix('-').map_or((entry.as_str(), false), |key| (key, true));
            let column = columns.iter().find(|column| column.key == key);
            if column.is_none() {
                faults.push(format!("sort: there is no column '{key}'"));
            }
            column.map(|column| Order { column: column.reference(), descending })
        })
        .collect()
}

fn choice<T: Copy + Default>(
    text: Option<&str>,
    field: &str,
    choices: &[(&str, T)],
    faults: &mut Vec<String>,
) -> T {
    let Some(text) = text else { return T::default() };
    choices.iter().find(|(name, _)| *name == text).map_or_else(
        || {
            let known: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            faults.push(format!("{field}: '{text}' is none of {}", known.join(", ")));
            T::default()
        },
        |(_, value)| *value,
    )
}
