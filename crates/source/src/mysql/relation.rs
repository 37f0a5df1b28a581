//! What the relation of a selection really is: its columns' types, and whether the tables
//! behind it have snapshots at all.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use outport_domain::{
    failure::FailureCode,
    selection::{Relation, Selection},
};
use sqlx::{
    AssertSqlSafe, Column, Executor, MySqlConnection, SqlSafeStr, Statement, Type, TypeInfo,
    mysql::{MySql, MySqlRow, MySqlStatement, MySqlTypeInfo},
};

use super::{
    failure::{Stage, failure},
    session::{rows, text},
    snapshot,
};
use crate::{
    SourceError, compile,
    compile::{
        Dialect,
        mysql::{Family, LEAST_MOST_FRACTION, RealType},
    },
};

pub(super) const QUOTE: char = <compile::mysql::MySql as Dialect>::QUOTE;

/// The number of the note that has what the server made of a statement.
const MADE_OF_IT: &str = "1003";

/// What encloses texts in what the server made of a statement.
const TEXT_QUOTE: char = '\'';

/// The one storage engine that gives a consistent snapshot.
const TRANSACTIONAL: &str = "InnoDB";

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
         FROM (SELECT 1) AS one LEFT JOIN (SELECT * FROM {relation} AS r LIMIT 0) AS r ON TRUE",
        list(|name| format!("CHARSET({name}), COLLATION({name})"))
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

/// What stands behind a relation.
pub(super) struct Behind {
    /// A table, if there is any.
    pub(super) table: Option<Relation>,
    /// Whether the server may look for rows when it only plans to read the relation.
    pub(super) is_read_by_planning: bool,
    /// When we made the server look for rows, of its own, to find the table.
    pub(super) looked_at: Option<DateTime<Utc>>,
}

/// Refuses what has no snapshot: tables of any storage engine but `InnoDB`, also behind a view or
/// in a query.
pub(super) async fn check_snapshots(
    connection: &mut MySqlConnection,
    relation: &Relation,
) -> Result<Behind, SourceError> {
    // Of a SELECT without rows the optimizer reads nothing before it names its tables.
    let sql = format!("SELECT * FROM {} AS r LIMIT 0", compile::relation_by(QUOTE, relation));
    // MariaDB shows what it made of the statement only when asked; MySQL always does.
    let explain =
        format!("EXPLAIN /*M! EXTENDED */ /*!50700 FORMAT=TRADITIONAL */ {}", checked(&sql)?);
    let plan = rows(connection, explain).await.map_err(|error| {
        if super::failure::is_view_hidden(&error) {
            let message = "the tables behind a view cannot be told, nor whether they have \
                           snapshots: grant SHOW VIEW to the connection's user, and SELECT on \
                           the tables";
            return SourceError { message: message.to_owned(), ..error };
        }
        error
    })?;
    // What it read already of the inner ones is left out of what it made of the statement. Only
    // engines without snapshots know so exactly that a table has one row.
    for row in &plan {
        let cell = |name: &str| -> Result<Option<String>, SourceError> {
            sqlx::Row::columns(row)
                .iter()
                .position(|column| column.name().eq_ignore_ascii_case(name))
                .map_or(Ok(None), |index| text(row, index))
        };
        if let (Some(table), Some("system")) = (cell("table")?, cell("type")?.as_deref())
            && !table.starts_with('<')
        {
            let named = format!("'{table}' (as the view or query names it)");
            return Err(without_snapshot(&named, "one that is not transactional"));
        }
    }
    let mut named = BTreeSet::new();
    let mut is_told = false;
    for warning in rows(connection, "SHOW WARNINGS").await? {
        if text(&warning, 1)?.as_deref() == Some(MADE_OF_IT) {
            pairs(&text(&warning, 2)?.unwrap_or_default(), &mut named);
            is_told = true;
        }
    }
    if !is_told {
        let message = "the server does not tell which tables it reads: its max_error_count is too \
                       small";
        return Err(SourceError::new(FailureCode::SourceQueryFailed, message));
    }
    let named: Vec<_> = named.into_iter().collect();
    let (table, looked_at) = transactional(connection, &named).await?;
    Ok(Behind { table, is_read_by_planning: plan.len() > 1, looked_at })
}

/// One of the tables among these names, all of which must have snapshots; and when we first
/// looked, where the server keeps what it knows of tables in tables of its own that have snapshots
/// too, as MySQL does from 8.0 on.
async fn transactional(
    connection: &mut MySqlConnection,
    named: &[(String, String)],
) -> Result<(Option<Relation>, Option<DateTime<Utc>>), SourceError> {
    let (mut one, mut looked_at) = (None, None);
    for chunk in named.chunks(500) {
        let places = vec!["(?, ?)"; chunk.len()].join(", ");
        let sql = format!(
            "SELECT COALESCE(NULL /*!80000 , CAST(UTC_TIMESTAMP(6) AS CHAR) */), t.* \
             FROM (SELECT 1) AS one LEFT JOIN \
               (SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES \
                WHERE (TABLE_SCHEMA, TABLE_NAME) IN ({places}) AND ENGINE IS NOT NULL \
                ORDER BY ENGINE = '{TRANSACTIONAL}' LIMIT 1) AS t ON TRUE"
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for (schema, table) in chunk {
            query = query.bind(schema).bind(table);
        }
        let row = query
            .fetch_one(&mut *connection)
            .await
            .map_err(|error| failure(error, Stage::Query))?;
        if let (None, Some(now)) = (looked_at, text(&row, 0)?) {
            looked_at = Some(snapshot::moment(&now)?);
        }
        let (Some(schema), Some(table), Some(engine)) =
            (text(&row, 1)?, text(&row, 2)?, text(&row, 3)?)
        else {
            continue;
        };
        if engine != TRANSACTIONAL {
            return Err(without_snapshot(&format!("'{table}'"), &engine));
        }
        one = Some(Relation::Table(vec![schema, table]));
    }
    Ok((one, looked_at))
}

fn without_snapshot(table: &str, engine: &str) -> SourceError {
    SourceError::new(
        FailureCode::SchemaMismatch,
        format!(
            "table {table} cannot be read as of one moment: its storage engine is {engine}, \
             not {TRANSACTIONAL}; ALTER TABLE … ENGINE = {TRANSACTIONAL} changes it"
        ),
    )
}

/// The first two names of every dotted chain of quoted names in a statement: a table with its
/// schema wherever it is named in full, and other pairs, which are no tables. Texts, in which a
/// quote may stand, are passed over.
fn pairs(sql: &str, named: &mut BTreeSet<(String, String)>) {
    let mut rest = sql;
    let mut schema: Option<String> = None;
    let mut chained = 0;
    while let Some(start) = rest.find([QUOTE, TEXT_QUOTE]) {
        let is_text = rest[start..].starts_with(TEXT_QUOTE);
        let dotted = chained > 0 && &rest[..start] == ".";
        let Some((name, after)) = unquoted(&rest[start..]) else { return };
        rest = after;
        if is_text {
            chained = 0;
            continue;
        }
        chained = if dotted { chained + 1 } else { 1 };
        match (chained, schema.take()) {
            (2, Some(schema)) => {
                named.insert((schema, name));
            }
            (1, _) => schema = Some(name),
            _ => {}
        }
    }
}

/// What stands in quotes at the beginning, and what comes after it. A doubled quote is one of
/// the name or text; a backslash keeps the next character of a text from ending it.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut characters = quoted.chars();
    let quote = characters.next()?;
    let mut name = String::new();
    loop {
        match characters.next()? {
            '\\' if quote == TEXT_QUOTE => name.push(characters.next()?),
            c if c != quote => name.push(c),
            _ if characters.as_str().starts_with(quote) => name.extend(characters.next()),
            _ => return Some((name, characters.as_str())),
        }
    }
}

/// A statement of quoted identifiers and the resource file's own query.
pub(super) fn checked(sql: &str) -> Result<&str, SourceError> {
    if sql.contains('\0') {
        return Err(SourceError::new(FailureCode::SchemaMismatch, "a name or query holds a NUL"));
    }
    Ok(sql)
}

#[cfg(test)]
mod tests {
    use super::pairs;

    #[test]
    fn tables_are_found_in_what_the_server_made_of_a_statement() {
        let mut named = std::collections::BTreeSet::new();
        pairs(
            "select `s`.`t`.`id` AS `id`,`q`.`l` AS `l` from `s`.`t` join `s 2`.`a``b` `q` \
             where `s`.`t`.`id` = `q`.`id`",
            &mut named,
        );
        let named: Vec<(&str, &str)> =
            named.iter().map(|(s, t)| (s.as_str(), t.as_str())).collect();
        assert_eq!(named, [("q", "id"), ("q", "l"), ("s", "t"), ("s 2", "a`b")]);
    }

    #[test]
    fn a_quote_in_a_text_of_the_statement_hides_no_table() {
        for text in ["`", "it''s `", r"it\'s `", r"\\"] {
            let mut named = std::collections::BTreeSet::new();
            pairs(&format!("select 1 from `s`.`t` where ('{text}' <> `s`.`u`.`l`)"), &mut named);
            let pair = |table: &str| ("s".to_owned(), table.to_owned());
            assert_eq!(named, [pair("t"), pair("u")].into(), "{text}");
        }
    }
}
