//! A request against what its connections really hold: at the request, so that nothing misspelt
//! is ever ignored, and once more when it runs.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt as _, stream};
use outport_domain::{
    data_request::{self, MAPPED_FIELDS, RealTable, TableRequest},
    failure::{Failure, FailureCode},
    json::{FieldCode, FieldError, FieldErrors},
    selection::Selection,
};
use outport_source::{Source, SourceError, schema::Schema};

use super::CONNECTIONS_AT_ONCE;
use crate::{
    connections::{Connections, Found, Unusable},
    run::{Ended, unusable},
};

/// What is read of one connection.
pub struct Part {
    /// The connection's name.
    pub name: String,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) tables: Vec<Table>,
}

/// What is read of one table.
pub struct Table {
    /// What the request calls it.
    pub name: String,
    /// What its columns are called in the result, in the order of the selection's.
    pub(crate) columns: Vec<String>,
    pub(crate) selection: Selection,
}

/// Why a request cannot be served.
#[derive(Debug)]
pub enum Refused {
    /// Connections cannot be used, by name: because of themselves, or of their databases.
    Connections(Vec<(String, Fault)>),
    /// Tables, fields or filters are not what the databases hold.
    Fields(Vec<FieldError>),
}

/// What is wrong with a connection.
#[derive(Debug)]
pub enum Fault {
    /// It cannot be used.
    Unusable(Unusable),
    /// Its database does not say what it holds.
    Source(SourceError),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unusable(error) => error.fmt(f),
            Self::Source(error) => error.fmt(f),
        }
    }
}

impl From<Refused> for Ended {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Fields(errors) => {
                Self::Failed(Failure::new(FailureCode::SchemaMismatch, sentence(&errors)), None)
            }
            Refused::Connections(faults) => {
                // There is at least one.
                let Some((name, fault)) = faults.into_iter().next() else {
                    let message = "a connection cannot be used";
                    return Self::Failed(Failure::new(FailureCode::Internal, message), None);
                };
                match fault {
                    Fault::Unusable(error) => unusable(error),
                    Fault::Source(error) => super::of(&name, error),
                }
            }
        }
    }
}

/// All that is wrong, as one sentence.
pub(super) fn sentence(errors: &[FieldError]) -> String {
    let faults: Vec<String> =
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
    format!("the request does not fit its connections: {}", faults.join("; "))
}

/// What one connection's part of a request came to.
enum Looked {
    Part(Part),
    Fields(Vec<FieldError>),
    Fault(String, Fault),
}

/// Refuses a request that names connections which are not there. No database is asked.
pub fn all_there(found: &Found) -> Result<(), Refused> {
    let unknown = |name: &String| (name.clone(), Fault::Unusable(Unusable::Unknown(name.clone())));
    match found.missing.as_slice() {
        [] => Ok(()),
        missing => Err(Refused::Connections(missing.iter().map(unknown).collect())),
    }
}

/// Reads every part of a request against its database, a few at once: against those of the
/// connections that were found, whatever their names stand for by now. What is wrong with a
/// connection goes before what is wrong with fields.
pub async fn prepare(
    connections: &Connections,
    found: &Found,
    request: &data_request::Connections,
) -> Result<Vec<Part>, Refused> {
    let looks = request.iter().map(|(name, tables)| look(connections, found, name, tables));
    let looks: Vec<_> = looks.collect();
    let looked: Vec<Looked> = stream::iter(looks).buffered(CONNECTIONS_AT_ONCE).collect().await;
    let (mut parts, mut errors, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for one in looked {
        match one {
            Looked::Part(part) => parts.push(part),
            Looked::Fields(wrong) => errors.extend(wrong),
            Looked::Fault(name, fault) => faults.push((name, fault)),
        }
    }
    match (faults.is_empty(), errors.is_empty()) {
        (true, true) => Ok(parts),
        (true, false) => Err(Refused::Fields(errors)),
        (false, _) => Err(Refused::Connections(faults)),
    }
}

async fn look(
    connections: &Connections,
    found: &Found,
    name: &str,
    request: &BTreeMap<String, TableRequest>,
) -> Looked {
    let looked = look_at_all(connections, found, name, request).await;
    looked.unwrap_or_else(|fault| Looked::Fault(name.to_owned(), fault))
}

async fn look_at_all(
    connections: &Connections,
    found: &Found,
    name: &str,
    request: &BTreeMap<String, TableRequest>,
) -> Result<Looked, Fault> {
    let usable = connections.usable(found, name).await.map_err(Fault::Unusable)?;
    let (schema, default_schema) = (usable.schema(), usable.default_schema.as_deref());
    let mut errors = FieldErrors::default();
    let mut tables = Vec::with_capacity(request.len());
    for (table, request) in request {
        let place = format!("{name}.{table}");
        let real = real_table(&*schema, table, default_schema).await.map_err(Fault::Source)?;
        let Some(real) = real else {
            let path = format!("{MAPPED_FIELDS}.{place}");
            errors.push(path, FieldCode::NotFound, not_found(default_schema));
            continue;
        };
        let (columns, selection) = request.selection(&real, &place, &mut errors);
        tables.push(Table { name: table.clone(), columns, selection });
    }
    if !errors.is_empty() {
        return Ok(Looked::Fields(errors.into_vec()));
    }
    Ok(Looked::Part(Part { name: name.to_owned(), source: usable.source(), tables }))
}

fn not_found(default_schema: Option<&str>) -> String {
    match default_schema {
        None => "is no table or view of this connection".to_owned(),
        Some(schema) => format!(
            "is no table or view of the connection's schema '{schema}'; one of another schema is \
             named with it"
        ),
    }
}

/// The table of this name, if there is one.
async fn real_table(
    schema: &dyn Schema,
    name: &str,
    default_schema: Option<&str>,
) -> Result<Option<RealTable>, SourceError> {
    for relation in data_request::relations(name, default_schema) {
        if let Some(found) = schema.describe(&relation).await? {
            let columns = found.columns.iter();
            let columns = columns.map(|column| data_request::column(&column.name, &column.suits));
            return Ok(Some(RealTable {
                relation,
                columns: columns.collect(),
                ignores_case: found.ignores_case,
            }));
        }
    }
    Ok(None)
}
