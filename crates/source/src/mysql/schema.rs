//! What a database holds, from `information_schema`: tables, views, columns, keys. What MariaDB
//! calls JSON is a text with a check, and is told by that.

use async_trait::async_trait;
use outport_domain::{
    column::ColumnType::{
        self, Binary, Boolean, Date, Decimal, Float, Integer, Json, LocalTimestamp, Text, Time,
        Timestamp, Uuid,
    },
    selection::{ColumnRef, Predicate, Relation, Selection},
};
use sqlx::{AssertSqlSafe, Column, Connection, MySqlConnection, Statement, mysql::MySqlRow};

use super::{
    MySqlSource,
    failure::{Stage, failure},
    relation::{QUOTE, checked, prepared, real_types},
    session::{self, text},
};
use crate::{
    SourceError, compile,
    compile::mysql::{Family, RealType},
    schema::{self, Description, RealColumn, Schema, TableName},
};

/// What can be read: no sequences, and none of the server's own views.
const KINDS: &str = "('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED')";

/// What whole numbers of 64 bits without a sign may be declared as, and the digits they have.
const WIDE: [ColumnType; 5] = [Decimal, Integer, Float, Boolean, Text];
const WIDE_DIGITS: i64 = 20;

#[async_trait]
impl Schema for MySqlSource {
    async fn tables(&self) -> Result<Vec<TableName>, SourceError> {
        let mut connection = self.server.connect().await?;
        let sql = format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES \
             WHERE TABLE_TYPE IN {KINDS} AND TABLE_SCHEMA NOT IN \
               ('information_schema', 'mysql', 'performance_schema', 'sys') \
             ORDER BY 1, 2"
        );
        let rows = session::rows(&mut connection, sql).await?;
        connection.close().await.map_err(|error| failure(error, Stage::Query))?;
        rows.iter()
            .map(|row| Ok(TableName { schema: cell(row, 0)?, name: cell(row, 1)? }))
            .collect()
    }

    async fn describe(&self, relation: &Relation) -> Result<Option<Description>, SourceError> {
        let mut connection = self.server.connect().await?;
        session::pin(&mut connection).await?;
        let described = match relation {
            Relation::Table(parts) => match find(&mut connection, parts).await? {
                Some(table) => Some(describe(&mut connection, relation, Some(&table)).await?),
                None => None,
            },
            Relation::Query(_) => Some(describe(&mut connection, relation, None).await?),
        };
        connection.close().await.map_err(|error| failure(error, Stage::Query))?;
        Ok(described)
    }
}

/// A table or view as `information_schema` spells it.
struct Table {
    schema: String,
    name: String,
    is_view: bool,
}

/// The table or view of this name, which is that of another case where the server says so.
async fn find(
    connection: &mut MySqlConnection,
    parts: &[String],
) -> Result<Option<Table>, SourceError> {
    let (schema, name) = match parts {
        [name] => (None, name),
        [schema, name] => (Some(schema), name),
        _ => return Ok(None),
    };
    let sql = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND TABLE_TYPE IN {KINDS} \
           AND (@@lower_case_table_names <> 0 OR BINARY TABLE_NAME = BINARY ?)"
    );
    let values = [schema.map(String::as_str), Some(name), Some(name)];
    let rows = rows(connection, sql, &values).await?;
    let table = |row| {
        Ok(Table { schema: cell(row, 0)?, name: cell(row, 1)?, is_view: cell(row, 2)? == "VIEW" })
    };
    rows.first().map(table).transpose()
}

async fn describe(
    connection: &mut MySqlConnection,
    relation: &Relation,
    table: Option<&Table>,
) -> Result<Description, SourceError> {
    let sql = compile::relation_by(QUOTE, relation);
    let details = match table {
        Some(table) => details(connection, table).await?,
        None => Vec::new(),
    };
    let named = |name: &str| ColumnRef { name: name.into(), column_type: Text };
    let columns = if table.is_some() {
        details.iter().map(|detail| named(&detail.name)).collect()
    } else {
        // To prepare is to allow a single statement, and to run none.
        let statement = format!("SELECT * FROM {sql} AS r");
        let prepared = prepared(connection, checked(&statement)?).await?;
        prepared.columns().iter().map(|column| named(column.name())).collect()
    };
    let selection = Selection {
        relation: relation.clone(),
        columns,
        predicate: Predicate::All(Vec::new()),
        order: Vec::new(),
        time_zone: chrono_tz::UTC,
    };
    let types = real_types(connection, &selection).await?;
    let columns = selection.columns.iter().filter_map(|column| {
        let detail = details.iter().find(|detail| *detail.name == *column.name);
        Some(real_column(&column.name, types.get(&column.name)?, detail))
    });
    let (primary_key, indexes) = match table {
        Some(table) if !table.is_view => indexes(connection, table).await?,
        _ => (Vec::new(), None),
    };
    let columns = columns.collect();
    Ok(Description {
        columns,
        primary_key,
        indexes,
        sql,
        is_loosely_typed: false,
        ignores_case: true,
    })
}

/// What `information_schema` knows of a column that `SELECT *` would give.
struct Detail {
    name: String,
    type_name: String,
    precision: Option<i64>,
    scale: Option<i64>,
    nullable: bool,
    is_json: bool,
}

async fn details(
    connection: &mut MySqlConnection,
    table: &Table,
) -> Result<Vec<Detail>, SourceError> {
    // The comments are instructions to one of MariaDB and MySQL, whose VECTOR cannot be read.
    let sql = "SELECT c.COLUMN_NAME, c.COLUMN_TYPE, CAST(c.NUMERIC_PRECISION AS CHAR), \
                 CAST(c.NUMERIC_SCALE AS CHAR), c.IS_NULLABLE, \
                 IF(c.DATA_TYPE = 'json' /*M!100310 OR EXISTS ( \
                     SELECT 1 FROM information_schema.CHECK_CONSTRAINTS k \
                     WHERE k.CONSTRAINT_SCHEMA = c.TABLE_SCHEMA AND k.TABLE_NAME = c.TABLE_NAME \
                       AND k.CHECK_CLAUSE = CONCAT('json_valid(`', REPLACE(c.COLUMN_NAME, '`', '``'), '`)')) */, \
                   'json', NULL) \
               FROM information_schema.COLUMNS c \
               WHERE c.TABLE_SCHEMA = ? AND BINARY c.TABLE_NAME = BINARY ? \
                 AND c.EXTRA NOT LIKE '%INVISIBLE%' /*!90000 AND c.DATA_TYPE <> 'vector' */ \
               ORDER BY c.ORDINAL_POSITION";
    let values = [Some(table.schema.as_str()), Some(&table.name)];
    let rows = rows(connection, sql.to_owned(), &values).await?;
    rows.iter()
        .map(|row| {
            let number = |index| Ok(text(row, index)?.and_then(|digits| digits.parse().ok()));
            Ok(Detail {
                name: cell(row, 0)?,
                type_name: cell(row, 1)?,
                precision: number(2)?,
                scale: number(3)?,
                nullable: cell(row, 4)? != "NO",
                is_json: text(row, 5)?.is_some(),
            })
        })
        .collect()
}

fn real_column(name: &str, real: &RealType, detail: Option<&Detail>) -> RealColumn {
    let type_name = detail.map_or_else(
        || real.name.to_ascii_lowercase(),
        |detail| {
            let is_text = matches!(real.family, Family::Text { .. });
            let alias = if detail.is_json && is_text { " (json)" } else { "" };
            format!("{}{alias}", detail.type_name)
        },
    );
    let is_json = detail.map_or(real.name == "JSON", |detail| detail.is_json);
    let is_wide = is_wide(&real.family, &type_name);
    let digits = match detail {
        _ if is_wide => schema::digits(WIDE_DIGITS, 0),
        Some(detail) if matches!(real.family, Family::Decimal { .. }) => {
            detail.precision.zip(detail.scale).and_then(|(all, scale)| schema::digits(all, scale))
        }
        _ => None,
    };
    RealColumn {
        name: name.to_owned(),
        suits: if is_wide { WIDE.to_vec() } else { suits(&real.family, &type_name, is_json) },
        digits,
        type_name,
        nullable: detail.is_none_or(|detail| detail.nullable),
    }
}

/// Whether a whole number may be beyond what an integer is in every format: Parquet's has 63
/// bits and a sign.
fn is_wide(family: &Family, type_name: &str) -> bool {
    match family {
        Family::Integer => type_name.starts_with("bigint") && type_name.contains("unsigned"),
        Family::Bit => type_name == "bit(64)",
        _ => false,
    }
}

/// What a column of this type may be declared as.
fn suits(family: &Family, type_name: &str, is_json: bool) -> Vec<ColumnType> {
    match family {
        _ if is_json => vec![Json, Text],
        Family::Text { .. } if type_name == "uuid" => vec![Uuid, Text],
        Family::Text { .. } => vec![Text, Uuid, Json],
        Family::Binary => vec![Binary, Uuid, Text],
        Family::Geometry => vec![Binary],
        // What BOOLEAN is a name for.
        Family::Integer if type_name.starts_with("tinyint(1)") || type_name == "boolean" => {
            vec![Boolean, Integer, Decimal, Float, Text]
        }
        Family::Bit if type_name == "bit(1)" => vec![Boolean, Integer, Decimal, Float, Text],
        Family::Integer | Family::Bit => vec![Integer, Decimal, Float, Boolean, Text],
        Family::Year => vec![Integer, Decimal, Float, Text],
        Family::Decimal { .. } => vec![Decimal, Integer, Float, Text],
        Family::Float | Family::Double => vec![Float, Decimal, Text],
        Family::Date => vec![Date, LocalTimestamp, Timestamp, Text],
        Family::DateTime => vec![LocalTimestamp, Timestamp, Text],
        Family::Timestamp => vec![Timestamp, Text],
        Family::Time => vec![Time, Text],
        Family::Other => vec![Text],
    }
}

/// The columns of the primary key, and of every index that finds equal values.
async fn indexes(
    connection: &mut MySqlConnection,
    table: &Table,
) -> Result<(Vec<String>, Option<Vec<Vec<String>>>), SourceError> {
    let sql = "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS \
               WHERE TABLE_SCHEMA = ? AND BINARY TABLE_NAME = BINARY ? \
                 AND INDEX_TYPE IN ('BTREE', 'HASH') \
               ORDER BY INDEX_NAME, SEQ_IN_INDEX";
    let values = [Some(table.schema.as_str()), Some(&table.name)];
    let rows = rows(connection, sql.to_owned(), &values).await?;
    let mut found: Vec<(String, Vec<Option<String>>)> = Vec::new();
    for row in &rows {
        let (index, column) = (cell(row, 0)?, text(row, 1)?);
        match found.last_mut() {
            Some((last, columns)) if *last == index => columns.push(column),
            _ => found.push((index, vec![column])),
        }
    }
    // What has no name is an expression.
    let named = |columns: Vec<Option<String>>| columns.into_iter().map_while(|name| name).collect();
    let found: Vec<(String, Vec<String>)> =
        found.into_iter().map(|(index, columns)| (index, named(columns))).collect();
    let primary = found.iter().find(|(index, _)| index == "PRIMARY");
    let primary_key = primary.map(|(_, columns)| columns.clone()).unwrap_or_default();
    Ok((primary_key, Some(found.into_iter().map(|(_, columns)| columns).collect())))
}

async fn rows(
    connection: &mut MySqlConnection,
    sql: String,
    values: &[Option<&str>],
) -> Result<Vec<MySqlRow>, SourceError> {
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for value in values {
        query = query.bind(*value);
    }
    query.fetch_all(connection).await.map_err(|error| failure(error, Stage::Query))
}

/// The text of a cell that is never NULL.
fn cell(row: &MySqlRow, index: usize) -> Result<String, SourceError> {
    Ok(text(row, index)?.unwrap_or_default())
}
