//! What the relation of a selection really is: its columns' types, and the tables to lock.

use std::{collections::HashMap, sync::Arc};

use outport_domain::{
    failure::FailureCode,
    selection::{Relation, Selection},
};
use sqlx::{AssertSqlSafe, PgConnection, Row, postgres::PgRow};

use super::failure::{Stage, failure};
use crate::{
    SourceError, compile,
    compile::postgres::{Family, RealType},
};

/// The real type of every column that the selection names. A table or column that is not there
/// is a `SCHEMA_MISMATCH` that names it.
pub(super) async fn real_types(
    connection: &mut PgConnection,
    selection: &Selection,
) -> Result<HashMap<Arc<str>, RealType>, SourceError> {
    let columns = compile::named_columns(selection);
    if columns.is_empty() {
        return Ok(HashMap::new());
    }
    let asked: Vec<String> = columns
        .iter()
        .map(|column| format!("pg_typeof({})::oid", compile::qualified(&column.name)))
        .collect();
    // One row of NULLs of the right types; the relation itself is not read.
    let sql = format!(
        "SELECT t.oid::bigint, format_type(t.oid, -1), t.typtype::text, t.typcategory::text, \
                (SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid) \
         FROM (SELECT ARRAY[{}] AS oids \
               FROM (SELECT 1) AS one LEFT JOIN (SELECT * FROM {} AS r LIMIT 0) AS r ON true) AS asked \
         CROSS JOIN LATERAL unnest(asked.oids) WITH ORDINALITY AS declared(oid, n) \
         JOIN LATERAL ( \
             WITH RECURSIVE base(oid, typtype, typbasetype) AS ( \
                 SELECT oid, typtype, typbasetype FROM pg_type WHERE oid = declared.oid \
                 UNION ALL \
                 SELECT t.oid, t.typtype, t.typbasetype \
                 FROM base JOIN pg_type t ON t.oid = base.typbasetype WHERE base.typtype = 'd') \
             SELECT oid FROM base WHERE typtype <> 'd') AS base ON true \
         JOIN pg_type t ON t.oid = base.oid \
         ORDER BY declared.n",
        asked.join(", "),
        compile::relation(&selection.relation)
    );
    let rows = sqlx::query(checked(sql)?)
        .persistent(false)
        .fetch_all(connection)
        .await
        .map_err(|error| failure(error, Stage::Query))?;
    let types = rows
        .iter()
        .map(real_type)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failure(error, Stage::Query))?;
    if types.len() != columns.len() {
        let message = "the source did not say what types its columns have";
        return Err(SourceError::new(FailureCode::SourceQueryFailed, message));
    }
    Ok(columns.iter().map(|column| Arc::clone(&column.name)).zip(types).collect())
}

/// A type, from a row that begins with its oid, name, kind, category and labels.
pub(super) fn real_type(row: &PgRow) -> Result<RealType, sqlx::Error> {
    let oid: i64 = row.try_get(0)?;
    let name: String = row.try_get(1)?;
    let kind: String = row.try_get(2)?;
    let category: String = row.try_get(3)?;
    let labels: Option<Vec<String>> = row.try_get(4)?;
    // The numbers of built-in types are part of the protocol and never change.
    let family = match (oid, kind.as_str(), category.as_str()) {
        (16, ..) => Family::Boolean,
        (20 | 21 | 23, ..) => Family::Integer,
        (25 | 1043, ..) => Family::Text,
        (700, ..) => Family::Float4,
        (701, ..) => Family::Float8,
        (790, ..) => Family::Money,
        (1082, ..) => Family::Date,
        (1083, ..) => Family::Time,
        (1114, ..) => Family::LocalTimestamp,
        (1184, ..) => Family::Timestamp,
        (1266, ..) => Family::ZonedTime,
        (1700, ..) => Family::Numeric,
        (2950, ..) => Family::Uuid,
        (_, "e", _) => Family::Enum { labels: labels.unwrap_or_default() },
        (_, "c", _) | (_, _, "A") => Family::Nested,
        (_, _, "S") => Family::OtherText,
        _ => Family::Other,
    };
    Ok(RealType { name, family })
}

/// The tables behind a relation.
pub(super) struct Tables {
    /// Those that are read, as SQL: the one that is named, or all in the plan of a query.
    pub(super) read: Vec<String>,
    locks: Vec<Lock>,
}

/// A table to lock. The order is that of locking.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lock {
    /// How many generations of parents it has. Whoever alters a table of several partitions locks
    /// parents before their children.
    depth: i64,
    oid: i64,
    /// Without its children.
    alone: bool,
    name: String,
}

/// What to lock of the tables that are named, with those parents of theirs that this transaction
/// has locked. The transaction must have looked at the relation.
const LOCKS: &str = "WITH RECURSIVE \
     named(oid, kind, name) AS ( \
         SELECT c.oid, c.relkind, named.name \
         FROM unnest($1::text[]) AS named(name) JOIN pg_class c ON c.oid = to_regclass(named.name)), \
     up(child, oid) AS ( \
         SELECT oid, oid FROM named \
         UNION SELECT up.child, i.inhparent FROM up JOIN pg_inherits i ON i.inhrelid = up.oid), \
     above(oid, top, height) AS ( \
         SELECT DISTINCT oid, oid, 0 FROM up \
         UNION SELECT above.oid, i.inhparent, above.height + 1 \
         FROM above JOIN pg_inherits i ON i.inhrelid = above.top), \
     parents(oid, alone) AS ( \
         SELECT up.oid, bool_and(has_table_privilege(up.child, 'SELECT')) \
         FROM up JOIN pg_class c ON c.oid = up.oid \
         WHERE c.relkind = 'p' AND up.child <> up.oid \
           AND up.oid NOT IN (SELECT oid FROM named) \
           AND up.oid IN (SELECT l.relation FROM pg_locks l \
                          WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation') \
           AND has_table_privilege(up.oid, 'SELECT') \
         GROUP BY up.oid), \
     locks(oid, alone, name) AS ( \
         SELECT n.oid, false, n.name FROM named n \
         LEFT JOIN (SELECT DISTINCT up.child FROM up JOIN parents USING (oid)) AS taken \
                ON taken.child = n.oid \
         WHERE n.kind IN ('r', 'p', 'v') \
           AND (taken.child IS NULL OR has_table_privilege(n.oid, 'SELECT')) \
         UNION ALL \
         SELECT p.oid, p.alone, format('%I.%I', s.nspname, c.relname) \
         FROM parents p JOIN pg_class c USING (oid) JOIN pg_namespace s ON s.oid = c.relnamespace) \
     SELECT d.depth::bigint, l.oid::bigint, l.alone, l.name \
     FROM locks l \
     JOIN (SELECT oid, max(height) AS depth FROM above GROUP BY oid) AS d USING (oid)";

/// What is read, and what to lock for it: only tables and views can be locked, and a view takes
/// its tables along. Partitions are locked after those parents that the look at the relation has
/// locked, as reading will. A plan does not name them, and a DETACH or DROP that has the parent
/// and waits for a partition must not meet an export that has the partition and waits for the
/// parent. Where the rights are those of a parent alone, it takes its partitions along.
pub(super) async fn base_tables(
    connection: &mut PgConnection,
    relation: &Relation,
) -> Result<Tables, SourceError> {
    let read = match relation {
        Relation::Table(_) => vec![compile::relation(relation)],
        Relation::Query(_) => read_tables(connection, relation).await?,
    };
    let rows = sqlx::query(LOCKS)
        .bind(&read)
        .persistent(false)
        .fetch_all(connection)
        .await
        .map_err(|error| failure(error, Stage::Query))?;
    let locks = rows
        .iter()
        .map(lock)
        .collect::<Result<_, _>>()
        .map_err(|error| failure(error, Stage::Query))?;
    Ok(Tables { read, locks })
}

fn lock(row: &PgRow) -> Result<Lock, sqlx::Error> {
    Ok(Lock {
        depth: row.try_get(0)?,
        oid: row.try_get(1)?,
        alone: row.try_get(2)?,
        name: row.try_get(3)?,
    })
}

/// What to lock for all of them, in this order, as `LOCK TABLE` takes it.
pub(super) fn to_lock<'a>(tables: impl IntoIterator<Item = &'a Tables>) -> Vec<String> {
    let mut locks: Vec<&Lock> = tables.into_iter().flat_map(|tables| &tables.locks).collect();
    locks.sort_unstable();
    // With its children comes before without them, and is enough.
    locks.dedup_by_key(|lock| lock.oid);
    let sql = |lock: &Lock| {
        if lock.alone { format!("ONLY {}", lock.name) } else { lock.name.clone() }
    };
    locks.into_iter().map(sql).collect()
}

/// The tables in the plan of a query.
async fn read_tables(
    connection: &mut PgConnection,
    relation: &Relation,
) -> Result<Vec<String>, SourceError> {
    let sql = format!(
        "EXPLAIN (VERBOSE, FORMAT JSON) SELECT * FROM {} AS r",
        compile::relation(relation)
    );
    let row = sqlx::raw_sql(checked(sql)?)
        .fetch_one(connection)
        .await
        .map_err(|error| failure(error, Stage::Query))?;
    let plan = row
        .try_get_raw(0)
        .map_err(|error| failure(error, Stage::Query))?
        .as_str()
        .ok()
        .and_then(|plan| serde_json::from_str(plan).ok());
    let mut tables = Vec::new();
    if let Some(plan) = plan {
        collect_tables(&plan, &mut tables);
    }
    tables.sort();
    tables.dedup();
    Ok(tables)
}

fn collect_tables(plan: &serde_json::Value, tables: &mut Vec<String>) {
    match plan {
        serde_json::Value::Array(elements) => {
            for element in elements {
                collect_tables(element, tables);
            }
        }
        serde_json::Value::Object(members) => {
            let text = |name: &str| members.get(name).and_then(serde_json::Value::as_str);
            if let (Some(schema), Some(table)) = (text("Schema"), text("Relation Name")) {
                tables.push(format!("{}.{}", compile::quoted(schema), compile::quoted(table)));
            }
            for member in members.values() {
                collect_tables(member, tables);
            }
        }
        _ => {}
    }
}

/// A statement of quoted identifiers and the resource file's own query.
pub(super) fn checked(sql: String) -> Result<AssertSqlSafe<String>, SourceError> {
    if sql.contains('\0') {
        return Err(SourceError::new(FailureCode::SchemaMismatch, "a name or query holds a NUL"));
    }
    Ok(AssertSqlSafe(sql))
}
