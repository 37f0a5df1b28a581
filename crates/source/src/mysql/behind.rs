//! The tables behind a relation, and whether they have snapshots at all.
//!
//! The server names those in what it made of a statement, but for what it has already read, what is
//! in a CTE or behind a view that it does not merge into the statement. The query itself and the
//! definitions of views are therefore read as well.

mod tables;

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use outport_domain::{
    failure::FailureCode,
    selection::{Relation, Selection},
};
use sqlx::{AssertSqlSafe, MySqlConnection, mysql::MySqlRow};

use super::{
    failure::{self, Stage, failure},
    relation::{QUOTE, all_of, checked},
    session::{explain, rows, text},
    snapshot,
};
use crate::{SourceError, compile};
use tables::Name;

/// The number of the note that has what the server made of a statement.
const MADE_OF_IT: &str = "1003";

/// The one storage engine that gives a consistent snapshot.
const TRANSACTIONAL: &str = "InnoDB";

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
    let mut named = BTreeSet::new();
    let plan = explained(connection, selection, &mut named).await?;
    match &selection.relation {
        Relation::Table(parts) => {
            if let Some((name, schema)) = parts.split_last() {
                named.insert((schema.first().cloned(), name.clone()));
            }
        }
        Relation::Query(query) => tables::of_query(query, &mut named),
    }
    let mut behind = Behind { is_read_by_planning: plan.len() > 1, ..Behind::default() };
    look_behind(connection, named, &mut behind).await?;
    Ok(behind)
}

/// The plan of a statement that reads the relation; what the server made of it is searched for
/// names.
async fn explained(
    connection: &mut MySqlConnection,
    selection: &Selection,
    named: &mut BTreeSet<Name>,
) -> Result<Vec<MySqlRow>, SourceError> {
    let relation = compile::relation_by(QUOTE, &selection.relation);
    // Of a SELECT without rows the optimizer reads nothing before it names its tables.
    let sql = format!("SELECT {} FROM {relation} AS r LIMIT 0", all_of(selection));
    let plan = rows(connection, explain(checked(&sql)?)).await.map_err(|error| {
        if failure::is_view_hidden(&error) { hidden().with_cause(error) } else { error }
    })?;
    let mut is_told = false;
    for warning in rows(connection, "SHOW WARNINGS").await? {
        if text(&warning, 1)?.as_deref() == Some(MADE_OF_IT) {
            tables::of_server(&text(&warning, 2)?.unwrap_or_default(), named);
            is_told = true;
        }
    }
    if !is_told {
        let message = "the server does not tell which tables it reads: its max_error_count is too \
                       small";
        return Err(SourceError::new(FailureCode::SourceQueryFailed, message));
    }
    Ok(plan)
}

/// Looks at what has these names, and at what is behind those of them that are views.
async fn look_behind(
    connection: &mut MySqlConnection,
    mut named: BTreeSet<Name>,
    behind: &mut Behind,
) -> Result<(), SourceError> {
    let mut known = BTreeSet::new();
    loop {
        let fresh: Vec<Name> = named.difference(&known).cloned().collect();
        if fresh.is_empty() {
            return Ok(());
        }
        known.append(&mut named);
        for chunk in fresh.chunks(AT_ONCE) {
            for (schema, view) in look(connection, chunk, behind).await? {
                let definition = definition(connection, &schema, &view).await?;
                tables::of_server(&definition, &mut named);
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
    let list = |place: &str| vec![place; named.len()].join(", ");
    let any = list("(COALESCE(?, DATABASE()), ?)");
    // The server's own comparison knows neither case nor accents, its names do.
    let exact = list("(CAST(COALESCE(?, DATABASE()) AS BINARY), CAST(? AS BINARY))");
    let sql = format!(
        "SELECT COALESCE(NULL /*!80000 , CAST(UTC_TIMESTAMP(6) AS CHAR) */), t.* \
         FROM (SELECT 1) AS one LEFT JOIN \
           (SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES \
            WHERE (TABLE_SCHEMA, TABLE_NAME) IN ({any}) \
              AND (@@lower_case_table_names <> 0 \
                OR (CAST(TABLE_SCHEMA AS BINARY), CAST(TABLE_NAME AS BINARY)) IN ({exact})) \
              AND (ENGINE IS NOT NULL OR TABLE_TYPE = 'VIEW')) AS t ON TRUE"
    );
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for (schema, name) in named.iter().chain(named) {
        query = query.bind(schema).bind(name);
    }
    let rows = query.fetch_all(connection).await.map_err(|error| failure(error, Stage::Query))?;
    let mut views = Vec::new();
    for row in rows {
        if let (None, Some(now)) = (behind.looked_at, text(&row, 0)?) {
            behind.looked_at = Some(snapshot::moment(&now)?);
        }
        let (Some(schema), Some(name)) = (text(&row, 1)?, text(&row, 2)?) else { continue };
        match text(&row, 3)? {
            None => views.push((schema, name)),
            Some(engine) if engine == TRANSACTIONAL => {
                behind.table = Some(Relation::Table(vec![schema, name]));
            }
            Some(engine) => return Err(without_snapshot(&name, &engine)),
        }
    }
    Ok(views)
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

fn without_snapshot(table: &str, engine: &str) -> SourceError {
    SourceError::new(
        FailureCode::SchemaMismatch,
        format!(
            "table '{table}' cannot be read as of one moment: its storage engine is {engine}, \
             not {TRANSACTIONAL}; ALTER TABLE … ENGINE = {TRANSACTIONAL} changes it"
        ),
    )
}
