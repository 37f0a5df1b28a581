//! What the relation of a selection really is: its columns' types, and the tables to lock.

use std::{collections::HashMap, sync::Arc};

use outport_domain::{failure::FailureCode, selection::Selection};
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
               FROM (SELECT 1) AS one LEFT JOIN (SELECT {} FROM {} AS r LIMIT 0) AS r ON true) AS asked \
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
        compile::all_of('"', selection),
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

/// What a transaction has looked at: tables, views and the like, also those that only a view, a
/// policy or a parent leads to.
pub(super) struct Tables {
    oids: Vec<i64>,
    locks: Vec<Lock>,
    /// Whether one of them is not what the transaction's snapshot knows: it was made or written
    /// anew since.
    altered: bool,
}

/// A table to lock. The order is that of locking.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Lock {
    /// How many generations of parents it has. Whoever alters a table of several partitions locks
    /// parents before their children.
    depth: i64,
    oid: i64,
    /// As `LOCK TABLE` takes it.
    sql: String,
}

/// Planning locks all that reading will, and the transaction keeps these locks: they say what was
/// looked at, whatever its name has become meanwhile. Indexes are not among it, for a plan that
/// the server has kept locks fewer of them; nor is what the server itself is made of.
///
/// `pg_relation_filenode` knows the file of now, `pg_class` that of the snapshot. Some files of
/// the server's own are in neither, and views have none.
const LOOKED_AT: &str = "WITH RECURSIVE \
     held(oid, altered, lockable, name) AS ( \
         SELECT DISTINCT l.relation, \
                c.oid IS NULL OR (c.relfilenode <> 0 \
                    AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(l.relation)), \
                coalesce(c.relkind IN ('r', 'p', 'v') AND has_table_privilege(c.oid, 'SELECT') \
                    AND has_schema_privilege(c.relnamespace, 'USAGE'), false), \
                format('%I.%I', s.nspname, c.relname) \
         FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation \
         LEFT JOIN pg_namespace s ON s.oid = c.relnamespace \
         WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.relation >= 16384 \
           AND (c.relkind IS NULL OR c.relkind NOT IN ('i', 'I'))), \
     up(child, oid, height) AS ( \
         SELECT oid, oid, 0 FROM held \
         UNION SELECT up.child, i.inhparent, up.height + 1 \
         FROM up JOIN pg_inherits i ON i.inhrelid = up.oid), \
     parents(oid, alone) AS ( \
         SELECT up.oid, bool_and(h.lockable) FROM up JOIN held h ON h.oid = up.child \
         WHERE up.child <> up.oid GROUP BY up.oid) \
     SELECT h.oid::bigint, h.altered, h.lockable, d.depth::bigint, \
            CASE WHEN p.alone THEN 'ONLY ' ELSE '' END || h.name \
     FROM held h \
     JOIN (SELECT child, max(height) AS depth FROM up GROUP BY child) AS d ON d.child = h.oid \
     LEFT JOIN parents p ON p.oid = h.oid \
     ORDER BY h.oid";

/// What the transaction has looked at until now, and what of it can be locked: only tables and
/// views, where the rights are there; a view takes its tables along. Partitions are locked after
/// those parents that were looked at, as reading will: a DETACH or DROP that has the parent and
/// waits for a partition must not meet an export that has the partition and waits for the parent.
/// Where the rights are those of a parent alone, it takes its partitions along.
pub(super) async fn looked_at(connection: &mut PgConnection) -> Result<Tables, SourceError> {
    let rows = sqlx::query(LOOKED_AT)
        .persistent(false)
        .fetch_all(connection)
        .await
        .map_err(|error| failure(error, Stage::Query))?;
    tables(&rows).map_err(|error| failure(error, Stage::Query))
}

fn tables(rows: &[PgRow]) -> Result<Tables, sqlx::Error> {
    let mut tables = Tables { oids: Vec::new(), locks: Vec::new(), altered: false };
    for row in rows {
        let oid = row.try_get(0)?;
        tables.oids.push(oid);
        tables.altered |= row.try_get::<bool, _>(1)?;
        if row.try_get(2)? {
            tables.locks.push(Lock { depth: row.try_get(3)?, oid, sql: row.try_get(4)? });
        }
    }
    tables.locks.sort_unstable();
    Ok(tables)
}

impl Tables {
    /// What to lock, in this order, as `LOCK TABLE` takes it.
    pub(super) fn to_lock(&self) -> Vec<&str> {
        self.locks.iter().map(|lock| lock.sql.as_str()).collect()
    }

    /// Whether an older look came to the same tables, and the snapshot knows their files. In one
    /// that was written anew since, the snapshot has no row, as after a TRUNCATE, or each, as
    /// after a REFRESH. What was locked before the snapshot was taken is more than is looked at:
    /// a view takes partitions along that it never reads.
    pub(super) fn are_still(&self, seen: &Self, locked: &Self) -> bool {
        let known = |oid: &i64| seen.has(*oid) || locked.has(*oid);
        !self.altered && seen.oids.iter().all(|oid| self.has(*oid)) && self.oids.iter().all(known)
    }

    fn has(&self, oid: i64) -> bool {
        self.oids.binary_search(&oid).is_ok()
    }
}

/// A statement of quoted identifiers and the resource file's own query.
pub(super) fn checked(sql: String) -> Result<AssertSqlSafe<String>, SourceError> {
    if sql.contains('\0') {
        return Err(SourceError::new(FailureCode::SchemaMismatch, "a name or query holds a NUL"));
    }
    Ok(AssertSqlSafe(sql))
}
