//! The tables behind a relation, and whether they have snapshots at all.
//!
//! The server names those in what it made of a statement, but for what it has already read, what is
//! in a CTE or behind a view that it does not merge into the statement. The query itself and the
//! definitions of views are therefore read as well; and what the server traces while it prepares the
//! statement says which of all these names are tables, and whether one was missed.

mod tables;
mod trace;
mod words;

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use outport_domain::{
    failure::FailureCode,
    selection::{Relation, Selection},
};
use sqlx::{AssertSqlSafe, MySqlConnection, mysql::MySqlRow};

use super::{
    failure::{self, Stage, failure},
    relation::{QUOTE, checked},
    session::{explain, rows, text},
    snapshot,
};
use crate::{SourceError, compile};
use tables::{Found, Name, Schema};
use trace::Traced;

/// The number of the note that has what the server made of a statement.
const MADE_OF_IT: &str = "1003";

/// The one storage engine that gives a consistent snapshot.
const TRANSACTIONAL: &str = "InnoDB";

/// The server's own schemas have tables of many names, `users` and `files` among them.
const NOT_ITS_OWN: &str = "AND TABLE_SCHEMA NOT IN \
    ('information_schema', 'performance_schema', 'mysql', 'sys')";

/// Names that are looked up at once.
const AT_ONCE: usize = 500;

/// What stands behind a relation.
#[derive(Default)]
pub(super) struct Behind {
    /// A table, if there is any.
    pub(super) table: Option<Relation>,
    /// Whether the server may look for rows when it only plans to read the relation.
    pub(super) is_read_by_planning: bool,
    /// When we made the server look for rows, of its own, to find the table: where it keeps what it
    /// knows of tables in tables that have snapshots too, as MySQL does from 8.0 on.
    pub(super) looked_at: Option<DateTime<Utc>>,
}

/// Refuses what has no snapshot: tables of any storage engine but `InnoDB`, also behind a view or
/// in a query.
pub(super) async fn check_snapshots(
    connection: &mut MySqlConnection,
    selection: &Selection,
) -> Result<Behind, SourceError> {
    let mut found = Found::default();
    let (plan, traced) = explained(connection, selection, &mut found).await?;
    match &selection.relation {
        Relation::Table(parts) => {
            if let Some((name, schema)) = parts.split_last() {
                let schema = schema.first().map_or(Schema::Default, |one| Schema::Of(one.clone()));
                found.tables.insert((schema, name.clone()));
            }
        }
        Relation::Query(query) => found.in_query(query),
    }
    let mut behind = Behind { is_read_by_planning: plan.len() > 1, ..Behind::default() };
    look_behind(connection, found, traced.as_ref(), &mut behind).await?;
    Ok(behind)
}

/// The plan of a statement that reads the relation; what the server made of it is searched for
/// names.
async fn explained(
    connection: &mut MySqlConnection,
    selection: &Selection,
    found: &mut Found,
) -> Result<(Vec<MySqlRow>, Option<Traced>), SourceError> {
    let relation = compile::relation_by(QUOTE, &selection.relation);
    // Of a SELECT without rows the optimizer reads nothing before it names its tables.
    let sql = format!("SELECT {} FROM {relation} AS r LIMIT 0", compile::all_of(QUOTE, selection));
    let is_traced = trace::begin(connection).await;
    let plan = rows(connection, explain(checked(&sql)?)).await.map_err(|error| {
        if failure::is_view_hidden(&error) { hidden().with_cause(error) } else { error }
    })?;
    let mut is_told = false;
    for warning in rows(connection, "SHOW WARNINGS").await? {
        if text(&warning, 1)?.as_deref() == Some(MADE_OF_IT) {
            found.by_server(&text(&warning, 2)?.unwrap_or_default());
            is_told = true;
        }
    }
    if !is_told {
        let message = "the server does not tell which tables it reads: its max_error_count is too \
                       small";
        return Err(SourceError::new(FailureCode::SourceQueryFailed, message));
    }
    let traced = if is_traced { trace::end(connection).await? } else { None };
    Ok((plan, traced))
}

/// Looks at what has these names, and at what is behind those of them that are views.
async fn look_behind(
    connection: &mut MySqlConnection,
    mut found: Found,
    traced: Option<&Traced>,
    behind: &mut Behind,
) -> Result<(), SourceError> {
    let mut known = BTreeSet::new();
    loop {
        if found.locks_rows {
            return Err(locking());
        }
        let is_read = |name: &&Name| traced.is_none_or(|traced| traced.has(&name.1));
        let mut fresh: Vec<Name> =
            found.tables.difference(&known).filter(is_read).cloned().collect();
        if fresh.is_empty() {
            // Wherever they may be: better one refused than one read that has no snapshot.
            let beyond = traced.into_iter().flat_map(|traced| traced.beyond(&found));
            fresh = beyond.map(|name| (Schema::Unknown, name.clone())).collect();
            found.tables.extend(fresh.iter().cloned());
        }
        if fresh.is_empty() {
            return Ok(());
        }
        known.extend(fresh.iter().cloned());
        for chunk in fresh.chunks(AT_ONCE) {
            for (schema, view) in look(connection, chunk, behind).await? {
                let definition = definition(connection, &schema, &view).await?;
                found.by_server(&definition);
                found.in_query(&definition);
            }
        }
    }
}

/// Looks at what has these names. Returns the views among it.
async fn look(
    connection: &mut MySqlConnection,
    named: &[Name],
    behind: &mut Behind,
) -> Result<Vec<(String, String)>, SourceError> {
    let mut views = Vec::new();
    for row in looked_up(connection, named).await? {
        if let (None, Some(now)) = (behind.looked_at, text(&row, 0)?) {
            behind.looked_at = Some(snapshot::moment(&now)?);
        }
        let (Some(schema), Some(name)) = (text(&row, 3)?, text(&row, 4)?) else { continue };
        let tells_case = text(&row, 2)?.as_deref() == Some("0");
        if tells_case && !is_among(named, text(&row, 1)?.as_deref(), &schema, &name) {
            continue;
        }
        match (text(&row, 5)?.as_deref(), text(&row, 6)?) {
            (Some("SEQUENCE"), _) => return Err(without_rows_of_old(&name, "it is a sequence")),
            (Some("SYSTEM VIEW"), _) => {
                return Err(without_rows_of_old(&name, "the server makes it up when it is read"));
            }
            (_, None) => views.push((schema, name)),
            (_, Some(engine)) if engine == TRANSACTIONAL => {
                behind.table = Some(Relation::Table(vec![schema, name]));
            }
            (_, Some(engine)) => return Err(without_snapshot(&name, &engine)),
        }
    }
    Ok(views)
}

/// What has these names, whose schemas are all known or none is, or something like them: the
/// server compares without case and accents. Of each, in this order: now, where the server is
/// asked for it; the session's schema; whether names tell case, as "0"; its own schema, name, type
/// and engine, or nothing where there is none at all.
async fn looked_up(
    connection: &mut MySqlConnection,
    named: &[Name],
) -> Result<Vec<MySqlRow>, SourceError> {
    let is_anywhere = named.iter().any(|(schema, _)| *schema == Schema::Unknown);
    let (columns, place, schemas) = if is_anywhere {
        ("TABLE_NAME", "(?)", NOT_ITS_OWN)
    } else {
        ("TABLE_NAME, TABLE_SCHEMA", "(?, COALESCE(?, DATABASE()))", "")
    };
    let places = vec![place; named.len()].join(", ");
    let sql = format!(
        "SELECT COALESCE(NULL /*!80000 , CAST(UTC_TIMESTAMP(6) AS CHAR) */), DATABASE(), \
                CAST(@@lower_case_table_names AS CHAR), t.* \
         FROM (SELECT 1) AS one LEFT JOIN \
           (SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES \
            WHERE ({columns}) IN ({places}) {schemas} \
              AND (ENGINE IS NOT NULL OR TABLE_TYPE IN ('VIEW', 'SYSTEM VIEW'))) AS t ON TRUE"
    );
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for (schema, name) in named {
        query = query.bind(name);
        query = match schema {
            Schema::Of(schema) => query.bind(Some(schema)),
            Schema::Default => query.bind(None::<&str>),
            Schema::Unknown => query,
        };
    }
    query.fetch_all(connection).await.map_err(|error| failure(error, Stage::Query))
}

/// Whether one of the names is exactly this one's. The names of `information_schema` have no case.
fn is_among(named: &[Name], default: Option<&str>, schema: &str, name: &str) -> bool {
    let is_it = |(of, named): &Name| {
        named == name
            && match of {
                Schema::Of(of) => of == schema,
                Schema::Default => default == Some(schema),
                Schema::Unknown => true,
            }
    };
    schema.eq_ignore_ascii_case("information_schema") || named.iter().any(is_it)
}

/// What a view selects, its tables named in full.
async fn definition(
    connection: &mut MySqlConnection,
    schema: &str,
    view: &str,
) -> Result<String, SourceError> {
    let row = sqlx::query(
        "SELECT VIEW_DEFINITION FROM information_schema.VIEWS \
         WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?",
    )
    .bind(schema)
    .bind(view)
    .fetch_optional(connection)
    .await
    .map_err(|error| failure(error, Stage::Query))?;
    let definition = row.map(|row| text(&row, 0)).transpose()?.flatten();
    definition.filter(|definition| !definition.is_empty()).ok_or_else(hidden)
}

fn hidden() -> SourceError {
    SourceError::new(
        FailureCode::SourceQueryFailed,
        "the tables behind a view cannot be told, nor whether they have snapshots: grant SHOW VIEW \
         to the connection's user, and SELECT on the tables",
    )
}

/// A `SELECT` that locks what it reads.
fn locking() -> SourceError {
    SourceError::new(
        FailureCode::SchemaMismatch,
        "the query, or a view that it reads, locks rows (LOCK IN SHARE MODE, FOR SHARE or FOR \
         UPDATE): locked rows are read as they are now, not as of the export's moment",
    )
}

/// What keeps no rows of old, whatever its storage engine.
fn without_rows_of_old(name: &str, why: &str) -> SourceError {
    let message = format!("'{name}' cannot be read as of one moment: {why}");
    SourceError::new(FailureCode::SchemaMismatch, message)
}

fn without_snapshot(table: &str, engine: &str) -> SourceError {
    SourceError::new(
        FailureCode::SchemaMismatch,
        format!(
            "table '{table}' cannot be read as of one moment: its storage engine is {engine}, \
             not {TRANSACTIONAL}; ALTER TABLE … ENGINE = {TRANSACTIONAL} changes it"
        ),
    )
}
