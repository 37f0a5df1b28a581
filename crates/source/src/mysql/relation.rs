//! What the columns of a selection's relation really are.

use std::{collections::HashMap, sync::Arc};

use outport_domain::{failure::FailureCode, selection::Selection};
use sqlx::{
    AssertSqlSafe, Column, Executor, MySqlConnection, SqlSafeStr, Statement, Type, TypeInfo,
    mysql::{MySql, MySqlRow, MySqlStatement, MySqlTypeInfo},
};

use super::{
    failure::{Stage, failure},
    session::{rows, text},
};
use crate::{
    SourceError, compile,
    compile::{
        Dialect,
        mysql::{Family, LEAST_MOST_FRACTION, RealType},
    },
};

pub(super) const QUOTE: char = <compile::mysql::MySql as Dialect>::QUOTE;

/// Digits that a DECIMAL has after the point, told by the server: the comment is an instruction
/// to MariaDB.
const MOST_FRACTION: &str = "30 /*M!100201 + 8 */";

/// What sqlx says of a column's type that it does not know. After that it cannot go on.
const UNKNOWN_TYPE: &str = "unknown column type";

/// Has the server read a statement, which must be a single one, without running it.
pub(super) async fn prepare(
    connection: &mut MySqlConnection,
    sql: &str,
) -> Result<Vec<MySqlTypeInfo>, SourceError> {
    let statement = prepared(connection, sql).await?;
    Ok(statement.columns().iter().map(|column| column.type_info().clone()).collect())
}

pub(super) async fn prepared(
    connection: &mut MySqlConnection,
    sql: &str,
) -> Result<MySqlStatement, SourceError> {
    connection.prepare(AssertSqlSafe(sql).into_sql_str()).await.map_err(|error| match &error {
        sqlx::Error::Protocol(told) if told.contains(UNKNOWN_TYPE) => SourceError::new(
            FailureCode::SchemaMismatch,
            "a column is of a type that cannot be read, such as VECTOR: leave it out, or read it \
             with a query that makes a text of it",
        )
        .with_cause(error),
        _ => failure(error, Stage::Query),
    })
}

/// The real type of every column that the selection names. A table or column that is not there
/// is a `SCHEMA_MISMATCH` that names it.
pub(super) async fn real_types(
    connection: &mut MySqlConnection,
    selection: &Selection,
) -> Result<HashMap<Arc<str>, RealType>, SourceError> {
    let columns = compile::named_columns(selection);
    if columns.is_empty() {
        return Ok(HashMap::new());
    }
    let relation = compile::relation_by(QUOTE, &selection.relation);
    let list = |of: fn(&str) -> String| {
        let names = columns.iter().map(|column| of(&compile::qualified_by(QUOTE, &column.name)));
        names.collect::<Vec<_>>().join(", ")
    };
    let sql = format!("SELECT {} FROM {relation} AS r", list(str::to_owned));
    let infos = prepare(connection, checked(&sql)?).await?;
    // One row of NULLs of the right types; the relation itself is not read.
    let sql = format!(
        "SELECT {MOST_FRACTION}, {} \
         FROM (SELECT 1) AS one LEFT JOIN (SELECT {} FROM {relation} AS r LIMIT 0) AS r ON TRUE",
        list(|name| format!("CHARSET({name}), COLLATION({name})")),
        compile::all_of(QUOTE, selection)
    );
    let rows = rows(connection, sql).await?;
    let unknown = || {
        let message = "the source did not say what types its columns have";
        SourceError::new(FailureCode::SourceQueryFailed, message)
    };
    let row = rows.first().ok_or_else(unknown)?;
    if infos.len() != columns.len() {
        return Err(unknown());
    }
    let mut types = HashMap::with_capacity(columns.len());
    for (index, (column, info)) in columns.iter().zip(&infos).enumerate() {
        let family = family(info, row, index)?;
        let real = RealType { name: info.name().to_owned(), family };
        types.insert(Arc::clone(&column.name), real);
    }
    Ok(types)
}

fn family(info: &MySqlTypeInfo, row: &MySqlRow, index: usize) -> Result<Family, SourceError> {
    let name = info.name();
    Ok(match name.trim_end_matches(" UNSIGNED") {
        "BOOLEAN" | "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" => Family::Integer,
        "DECIMAL" => {
            let digits = text(row, 0)?.and_then(|digits| digits.parse().ok());
            Family::Decimal { most_fraction: digits.unwrap_or(LEAST_MOST_FRACTION) }
        }
        "FLOAT" => Family::Float,
        "DOUBLE" => Family::Double,
        "BIT" => Family::Bit,
        "YEAR" => Family::Year,
        "DATE" => Family::Date,
        "DATETIME" => Family::DateTime,
        "TIMESTAMP" => Family::Timestamp,
        "TIME" => Family::Time,
        "GEOMETRY" => Family::Geometry,
        "JSON" | "NULL" => Family::Other,
        // Not by the name: sqlx calls a text of a `_bin` collation a BLOB.
        _ if <str as Type<MySql>>::compatible(info) => {
            let charset = text(row, 2 * index + 1)?.unwrap_or_default();
            let collation = text(row, 2 * index + 2)?.unwrap_or_default();
            if is_word(&charset) && is_word(&collation) && charset != "binary" {
                Family::Text { charset, collation }
            } else {
                Family::Other
            }
        }
        _ => Family::Binary,
    })
}

/// Whether a name may stand in a statement as it is.
fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A statement of quoted identifiers and the resource file's own query.
pub(super) fn checked(sql: &str) -> Result<&str, SourceError> {
    if sql.contains('\0') {
        return Err(SourceError::new(FailureCode::SchemaMismatch, "a name or query holds a NUL"));
    }
    Ok(sql)
}
