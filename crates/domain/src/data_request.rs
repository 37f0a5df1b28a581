//! What is asked for as of a Fetcher: fields of tables of several connections, with filters, and
//! metadata that comes back with the result.
//!
//! A request is read in two steps: [`parse`] takes it apart without knowing any database, and
//! [`TableRequest::selection`] reads a table's part against the columns that the table really
//! has, at the request and again when it runs.

mod filter;

use std::collections::BTreeMap;

use outport_contract::{
    digest::Sha256Digest,
    job_event::{InvalidMetadata, Metadata},
};
use serde_json::{Value, json, value::RawValue};

use crate::{
    canonical,
    column::ColumnType,
    connection::Connection,
    json::{
        FieldCode, FieldErrors, JsonType, array, is_interoperable, join, object, string, type_of,
    },
    limits::fixed,
    selection::{ColumnRef, Predicate, Relation, Selection},
};
pub use filter::Operator;
use filter::{Condition, conditions};

/// Connections of one request.
pub const CONNECTIONS: usize = 10;
/// Tables of one connection.
pub const TABLES: usize = 20;
/// Fields of one table, unless all are asked for.
pub const FIELDS: usize = 50;
/// Where a body names fields.
pub const MAPPED_FIELDS: &str = "dataRequest.mappedFields";
/// Where a body names filters.
const FILTERS: &str = "dataRequest.filters";
/// The word for all fields of a table.
pub const ALL_FIELDS: &str = "*";

/// A request, taken apart.
#[derive(Debug)]
pub struct DataRequest {
    /// What is read of each connection, by its name.
    pub connections: Connections,
    /// The `mappedFields` member as sent.
    pub mapped_fields: String,
    /// The `filters` member as sent.
    pub filters: Option<String>,
    /// The `metadata` member as sent.
    pub metadata: String,
    /// What the request is: the same for every spelling of it, with its metadata.
    pub identity: Sha256Digest,
}

impl DataRequest {
    /// The identity together with where the request's stored connections lead now: another one
    /// once a connection is another, of another product, or no longer
    /// [reads like](Connection::reads_like) before.
    pub fn identity_with(&self, stored: &[Connection]) -> Sha256Digest {
        let mut stored: Vec<&Connection> = stored.iter().collect();
        stored.sort_by(|one, other| one.name.cmp(&other.name));
        let places: Value = stored.iter().map(|one| json!([one.place(), one.product])).collect();
        Sha256Digest::of(format!("{}{places}", self.identity).as_bytes())
    }
}

/// What is read of one table.
#[derive(Debug, Default)]
pub struct TableRequest {
    /// `None` is all of them.
    fields: Option<Vec<String>>,
    filters: Vec<(String, Vec<Condition>)>,
}

/// A table as it really is.
#[derive(Clone, Debug)]
pub struct RealTable {
    /// Where it is.
    pub relation: Relation,
    /// Its columns.
    pub columns: Vec<ColumnRef>,
    /// Whether a column's name is the same in upper and lower case.
    pub ignores_case: bool,
}

impl RealTable {
    fn column(&self, name: &str) -> Option<&ColumnRef> {
        let exact = self.columns.iter().find(|column| *column.name == *name);
        exact.or_else(|| {
            let same = |column: &&ColumnRef| column.name.eq_ignore_ascii_case(name);
            self.columns.iter().find(same).filter(|_| self.ignores_case)
        })
    }
}

/// Takes a body apart. Everything that is wrong is told at once.
pub fn parse(body: &str) -> Result<DataRequest, FieldErrors> {
    let mut errors = FieldErrors::default();
    let parsed = read(body, &mut errors);
    match parsed {
        Some(request) if errors.is_empty() => Ok(request),
        _ => Err(errors),
    }
}

/// What is read of each connection, by its name.
pub type Connections = BTreeMap<String, BTreeMap<String, TableRequest>>;

/// Takes a body apart that names nothing but fields: `{"mappedFields": …}`.
pub fn parse_mapped_fields(body: &str) -> Result<Connections, FieldErrors> {
    let mut errors = FieldErrors::default();
    let read = |errors: &mut FieldErrors| {
        let body: &RawValue = serde_json::from_str(body).ok()?;
        let members = object(body, "", Some(&["mappedFields"]), errors)?;
        let raw = required(&members, "mappedFields", "mappedFields", errors)?;
        Some(connections(raw, "mappedFields", errors))
    };
    match read(&mut errors) {
        Some(connections) if errors.is_empty() => Ok(connections),
        _ => Err(errors),
    }
}

fn read(body: &str, errors: &mut FieldErrors) -> Option<DataRequest> {
    let Ok(body) = serde_json::from_str::<&RawValue>(body) else {
        errors.push("", FieldCode::InvalidType, "must be JSON");
        return None;
    };
    let members = object(body, "", Some(&["dataRequest", "metadata"]), errors)?;
    let data_request = required(&members, "dataRequest", "dataRequest", errors);
    let metadata = required(&members, "metadata", "metadata", errors);
    if let Some(raw) = metadata {
        check_metadata(raw, errors);
    }
    let data_request = data_request?;
    let parts = object(data_request, "dataRequest", Some(&["mappedFields", "filters"]), errors)?;
    let mapped_fields = required(&parts, "mappedFields", MAPPED_FIELDS, errors)?;
    let mut connections = connections(mapped_fields, MAPPED_FIELDS, errors);
    let filters = member(&parts, "filters");
    if let Some(raw) = filters {
        read_filters(raw, &mut connections, errors);
    }
    let metadata = metadata?;
    Some(DataRequest {
        connections,
        mapped_fields: mapped_fields.get().to_owned(),
        filters: filters.map(|raw| raw.get().to_owned()),
        metadata: metadata.get().to_owned(),
        identity: identity(mapped_fields, filters, metadata),
    })
}

/// SHA-256 over canonical JSON. Filters that are absent, `null` or empty are the same.
fn identity(
    mapped_fields: &RawValue,
    filters: Option<&RawValue>,
    metadata: &RawValue,
) -> Sha256Digest {
    let mut text = r#"{"dataRequest":{"filters":"#.to_owned();
    match filters {
        Some(filters) => canonical::compact(filters, &mut text),
        None => text.push_str("{}"),
    }
    text.push_str(r#","mappedFields":"#);
    canonical::compact(mapped_fields, &mut text);
    text.push_str(r#"},"metadata":"#);
    canonical::compact(metadata, &mut text);
    text.push('}');
    Sha256Digest::of(text.as_bytes())
}

/// A member that is there and not null.
fn member<'a>(members: &[(String, &'a RawValue)], name: &str) -> Option<&'a RawValue> {
    let found = members.iter().find(|(own, _)| own == name);
    found.map(|(_, raw)| *raw).filter(|raw| type_of(raw) != JsonType::Null)
}

fn required<'a>(
    members: &[(String, &'a RawValue)],
    name: &str,
    path: &str,
    errors: &mut FieldErrors,
) -> Option<&'a RawValue> {
    let found = member(members, name);
    if found.is_none() {
        errors.push(path, FieldCode::Required, "is required");
    }
    found
}

/// `metadata` goes into events as it is, hence nothing may stand in it that the service writes.
fn check_metadata(raw: &RawValue, errors: &mut FieldErrors) {
    if raw.get().len() > fixed::METADATA_BYTES {
        let rule = format!("has more than {} bytes", fixed::METADATA_BYTES);
        errors.push("metadata", FieldCode::LimitExceeded, rule);
    }
    is_interoperable(raw, "metadata", errors);
    match Metadata::parse(raw.get()) {
        Ok(_) => {}
        Err(InvalidMetadata::NotAnObject(_)) => {
            errors.push("metadata", FieldCode::InvalidType, "must be an object");
            return;
        }
        Err(InvalidMetadata::Reserved { name }) => {
            let rule = "is a name that the service reserves; use another";
            errors.push(join("metadata", name), FieldCode::NotAllowed, rule);
        }
    }
    let members = object(raw, "metadata", None, &mut FieldErrors::default()).unwrap_or_default();
    let path = "metadata.source";
    if let Some(source) = required(&members, "source", path, errors)
        && string(source, path, errors).is_some_and(|source| source.trim().is_empty())
    {
        errors.push(path, FieldCode::InvalidValue, "must not be empty");
    }
}

fn connections(raw: &RawValue, path: &str, errors: &mut FieldErrors) -> Connections {
    let members = named(raw, path, CONNECTIONS, "connections", errors);
    let read = |(name, tables): (String, &RawValue)| {
        let path = join(path, &name);
        let tables = named(tables, &path, TABLES, "tables", errors)
            .into_iter()
            .map(|(name, list)| {
                let fields = fields(list, &join(&path, &name), errors);
                (name, TableRequest { fields, filters: Vec::new() })
            })
            .collect();
        (name, tables)
    };
    members.into_iter().map(read).collect()
}

/// The members of an object that must have some and not too many.
fn named<'a>(
    raw: &'a RawValue,
    path: &str,
    most: usize,
    what: &str,
    errors: &mut FieldErrors,
) -> Vec<(String, &'a RawValue)> {
    let Some(members) = object(raw, path, None, errors) else { return Vec::new() };
    if members.is_empty() {
        errors.push(path, FieldCode::Required, format!("must name {what}"));
    }
    if members.len() > most {
        errors.push(path, FieldCode::LimitExceeded, format!("has more than {most} {what}"));
        return Vec::new();
    }
    for (name, _) in &members {
        if name.is_empty() || name.contains('\0') {
            let rule = "has an empty name, or one with the NUL character";
            errors.push(path, FieldCode::InvalidValue, rule);
        }
    }
    members
}

fn fields(raw: &RawValue, path: &str, errors: &mut FieldErrors) -> Option<Vec<String>> {
    let elements = array(raw, path, errors)?;
    if elements.is_empty() {
        errors.push(path, FieldCode::Required, "must name fields, or be [\"*\"] for all of them");
    }
    if elements.len() > FIELDS {
        errors.push(path, FieldCode::LimitExceeded, format!("has more than {FIELDS} fields"));
        return None;
    }
    let mut fields: Vec<String> = Vec::with_capacity(elements.len());
    for (index, element) in elements.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(field) = string(element, &path, errors) else { continue };
        if field == ALL_FIELDS && elements.len() == 1 {
            return None;
        }
        if field.is_empty() || field == ALL_FIELDS {
            let rule = "must be the name of a field; \"*\" stands alone";
            errors.push(path, FieldCode::InvalidValue, rule);
        } else if fields.contains(&field) {
            errors.push(path, FieldCode::Duplicate, "stands twice");
        } else {
            fields.push(field);
        }
    }
    Some(fields)
}

/// Puts every filter to its table. One of a table that is not asked for would be ignored.
fn read_filters(raw: &RawValue, connections: &mut Connections, errors: &mut FieldErrors) {
    const NOT_ASKED: &str = "is not in mappedFields";
    for (connection, tables) in object(raw, FILTERS, None, errors).unwrap_or_default() {
        let path = join(FILTERS, &connection);
        let Some(asked) = connections.get_mut(&connection) else {
            errors.push(path, FieldCode::NotFound, NOT_ASKED);
            continue;
        };
        for (table, fields) in object(tables, &path, None, errors).unwrap_or_default() {
            let path = join(&path, &table);
            let Some(asked) = asked.get_mut(&table) else {
                errors.push(path, FieldCode::NotFound, NOT_ASKED);
                continue;
            };
            for (field, tests) in object(fields, &path, None, errors).unwrap_or_default() {
                let conditions = conditions(tests, &join(&path, &field), errors);
                asked.filters.push((field, conditions));
            }
        }
    }
}

impl TableRequest {
    /// The fields asked for; `None` is all of them.
    pub fn fields(&self) -> Option<&[String]> {
        self.fields.as_deref()
    }

    /// The query of this part, with the names that its columns have in the result, sorted. Fields
    /// and filters that do not fit the table are told where the body has them; `place` is the
    /// table's name after its connection's and a dot.
    pub fn selection(
        &self,
        table: &RealTable,
        place: &str,
        errors: &mut FieldErrors,
    ) -> (Vec<String>, Selection) {
        let (fields_path, filters_path) = (join(MAPPED_FIELDS, place), join(FILTERS, place));
        let mut chosen = BTreeMap::new();
        match &self.fields {
            None => {
                let all = table.columns.iter();
                chosen.extend(all.map(|column| (column.name.to_string(), column.clone())));
            }
            Some(fields) => {
                for field in fields {
                    match table.column(field) {
                        Some(column) => {
                            chosen.insert(field.clone(), column.clone());
                        }
                        None => unknown(&fields_path, field, errors),
                    }
                }
            }
        }
        let mut tests = Vec::new();
        for (field, conditions) in &self.filters {
            let Some(column) = table.column(field) else {
                unknown(&filters_path, field, errors);
                continue;
            };
            let path = join(&filters_path, field);
            tests.extend(conditions.iter().filter_map(|one| one.predicate(column, &path, errors)));
        }
        let (names, columns) = chosen.into_iter().unzip();
        let selection = Selection {
            relation: table.relation.clone(),
            columns,
            predicate: Predicate::All(tests),
            order: Vec::new(),
            time_zone: chrono_tz::UTC,
        };
        (names, selection)
    }
}

fn unknown(path: &str, field: &str, errors: &mut FieldErrors) {
    let rule = "is not a column of this table";
    errors.push(join(path, field), FieldCode::UnknownColumn, rule);
}

/// The names by which a table may be found, the likeliest first: its name as it is, which is in
/// this schema or else where the server looks, and its name after that of a schema.
pub fn relations(table: &str, schema: Option<&str>) -> Vec<Relation> {
    let mut found = vec![Relation::Table(vec![table.to_owned()]).within(schema)];
    if let Some((schema, table)) = table.split_once('.').filter(|(schema, _)| !schema.is_empty()) {
        found.push(Relation::Table(vec![schema.to_owned(), table.to_owned()]));
    }
    found
}

/// What a column of several possible types is read as: what suits it best.
pub fn column(name: &str, suits: &[ColumnType]) -> ColumnRef {
    let column_type = suits.first().copied().unwrap_or(ColumnType::Text);
    ColumnRef { name: name.into(), column_type }
}

#[cfg(test)]
mod tests;
