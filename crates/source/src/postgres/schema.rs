//! What a database holds, from `pg_catalog`: tables, partitioned and foreign ones too, views and
//! materialized views. Domains are looked through to the type below them.

use async_trait::async_trait;
use outport_domain::{
    column::{
        ColumnType::{
            Binary, Boolean, Date, Decimal, Float, Integer, Json, LocalTimestamp, Text, Time,
            Timestamp, Uuid,
        },
        Digits,
    },
    selection::Relation,
};
use sqlx::{
    AssertSqlSafe, Column, Connection, Executor, PgConnection, Row, SqlSafeStr, Statement,
    postgres::PgRow,
};

use super::{
    PostgresSource,
    failure::{Stage, failure},
    relation::{checked, real_type},
    session::{self, Pins},
};
use crate::{
    SourceError, compile,
    compile::postgres::{Family, RealType},
    schema::{self, Description, RealColumn, Schema, TableName},
};

#[async_trait]
impl Schema for PostgresSource {
    async fn tables(&self) -> Result<Vec<TableName>, SourceError> {
        let mut connection = self.looking().await?;
        let tables = tables(&mut connection).await.map_err(|error| failure(error, Stage::Query))?;
        looked(connection).await?;
        Ok(tables)
    }

    async fn describe(&self, relation: &Relation) -> Result<Option<Description>, SourceError> {
        let mut connection = self.looking().await?;
        let described = match relation {
            Relation::Table(_) => table(&mut connection, relation).await?,
            Relation::Query(_) => Some(query(&mut connection, relation).await?),
        };
        looked(connection).await?;
        Ok(described)
    }
}

impl PostgresSource {
    async fn looking(&self) -> Result<PgConnection, SourceError> {
        let mut connection = self.server.connect().await?;
        let mut pins = Pins::new(chrono_tz::UTC);
        session::begin_to_look(&mut connection, &mut pins, &self.server).await?;
        Ok(connection)
    }
}

async fn looked(mut connection: PgConnection) -> Result<(), SourceError> {
    session::run(&mut connection, "COMMIT".to_owned()).await?;
    connection.close().await.map_err(|error| failure(error, Stage::Query))
}

async fn tables(connection: &mut PgConnection) -> Result<Vec<TableName>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT n.nspname::text, c.relname::text \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition \
           AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' \
           AND has_schema_privilege(n.oid, 'USAGE') \
         ORDER BY 1, 2",
    )
    .persistent(false)
    .fetch_all(connection)
    .await?;
    let name = |row: &PgRow| Ok(TableName { schema: row.try_get(0)?, name: row.try_get(1)? });
    rows.iter().map(name).collect()
}

/// A column before its type is looked up.
struct Declared {
    name: String,
    type_oid: i64,
    /// What the type is limited to, such as the digits of a decimal; -1 is nothing.
    type_limit: i32,
    nullable: bool,
}

async fn table(
    connection: &mut PgConnection,
    relation: &Relation,
) -> Result<Option<Description>, SourceError> {
    let sql = compile::relation(relation);
    let read = async {
        let found: Option<i64> = sqlx::query(
            "SELECT c.oid::bigint FROM pg_class c \
             WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')",
        )
        .bind(&sql)
        .persistent(false)
        .fetch_optional(&mut *connection)
        .await?
        .map(|row| row.try_get(0))
        .transpose()?;
        let Some(oid) = found else { return Ok(None) };
        let rows = sqlx::query(
            "SELECT attname::text, atttypid::bigint, atttypmod, NOT attnotnull FROM pg_attribute \
             WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        )
        .bind(oid)
        .persistent(false)
        .fetch_all(&mut *connection)
        .await?;
        let declared = rows
            .iter()
            .map(|row| {
                Ok(Declared {
                    name: row.try_get(0)?,
                    type_oid: row.try_get(1)?,
                    type_limit: row.try_get(2)?,
                    nullable: row.try_get(3)?,
                })
            })
            .collect::<Result<_, sqlx::Error>>()?;
        let columns = columns(connection, declared).await?;
        let (primary_key, indexes) = indexes(connection, oid).await?;
        Ok(Some((columns, primary_key, indexes)))
    };
    let read: Result<_, sqlx::Error> = read.await;
    let described = read.map_err(|error| failure(error, Stage::Query))?;
    Ok(described.map(|(columns, primary_key, indexes)| Description {
        columns,
        primary_key,
        indexes,
        sql,
        is_loosely_typed: false,
        ignores_case: false,
    }))
}

async fn query(
    connection: &mut PgConnection,
    relation: &Relation,
) -> Result<Description, SourceError> {
    let sql = compile::relation(relation);
    // To prepare is to allow a single statement, and to run none.
    let prepared = connection
        .prepare(checked(format!("SELECT * FROM {sql} AS r"))?.into_sql_str())
        .await
        .map_err(|error| failure(error, Stage::Query))?;
    let declared = prepared.columns().iter().map(|column| Declared {
        name: column.name().to_owned(),
        type_oid: column.type_info().oid().map_or(0, |oid| oid.0.into()),
        type_limit: -1,
        nullable: true,
    });
    let columns = columns(connection, declared.collect()).await;
    Ok(Description {
        columns: columns.map_err(|error| failure(error, Stage::Query))?,
        primary_key: Vec::new(),
        indexes: None,
        sql,
        is_loosely_typed: false,
        ignores_case: false,
    })
}

/// Looks the types of columns up, through domains.
async fn columns(
    connection: &mut PgConnection,
    declared: Vec<Declared>,
) -> Result<Vec<RealColumn>, sqlx::Error> {
    let (oids, limits): (Vec<i64>, Vec<i32>) =
        declared.iter().map(|column| (column.type_oid, column.type_limit)).unzip();
    let rows = sqlx::query(AssertSqlSafe(
        "WITH RECURSIVE \
           declared(oid, typmod, n) AS ( \
             SELECT oid::oid, typmod, n \
             FROM unnest($1::bigint[], $2::int[]) WITH ORDINALITY AS declared(oid, typmod, n)), \
           base(n, oid, typmod, required) AS ( \
             SELECT n, oid, typmod, false FROM declared \
             UNION ALL \
             SELECT n, t.typbasetype, t.typtypmod, required OR t.typnotnull \
             FROM base JOIN pg_type t ON t.oid = base.oid WHERE t.typtype = 'd') \
         SELECT t.oid::bigint, format_type(t.oid, -1), t.typtype::text, t.typcategory::text, \
                (SELECT array_agg(e.enumlabel::text) FROM pg_enum e WHERE e.enumtypid = t.oid), \
                declared.n, format_type(declared.oid, declared.typmod), \
                format_type(base.oid, base.typmod), base.typmod, base.required \
         FROM declared JOIN base ON base.n = declared.n JOIN pg_type t ON t.oid = base.oid \
         WHERE t.typtype <> 'd' ORDER BY declared.n",
    ))
    .bind(oids)
    .bind(limits)
    .persistent(false)
    .fetch_all(connection)
    .await?;
    let mut declared: Vec<Option<Declared>> = declared.into_iter().map(Some).collect();
    let mut columns = Vec::with_capacity(rows.len());
    for row in &rows {
        let n: i64 = row.try_get(5)?;
        let at = usize::try_from(n - 1).unwrap_or(usize::MAX);
        // A column whose type is gone by now is gone itself.
        let Some(declared) = declared.get_mut(at).and_then(Option::take) else { continue };
        columns.push(column(row, declared)?);
    }
    Ok(columns)
}

fn column(row: &PgRow, declared: Declared) -> Result<RealColumn, sqlx::Error> {
    let real = real_type(row)?;
    let (own, base): (String, String) = (row.try_get(6)?, row.try_get(7)?);
    let type_name = if own == base { own } else { format!("{own} ({base})") };
    let limit: i32 = row.try_get(8)?;
    let required: bool = row.try_get(9)?;
    Ok(RealColumn {
        name: declared.name,
        type_name,
        digits: if real.family == Family::Numeric { digits(limit) } else { None },
        suits: suits(&real),
        nullable: declared.nullable && !required,
    })
}

/// The digits that a `numeric` is limited to, from the server's packed form of them.
fn digits(limit: i32) -> Option<Digits> {
    let packed = u32::try_from(limit.checked_sub(4)?).ok()?;
    // Eleven bits with a sign; up to version 14 sixteen without, and never that many.
    let scale = i64::from((packed & 0x7ff) ^ 1024) - 1024;
    schema::digits((packed >> 16).into(), scale)
}

/// What a column of this type may be declared as.
fn suits(real: &RealType) -> Vec<outport_domain::column::ColumnType> {
    match &real.family {
        Family::Text | Family::OtherText => vec![Text, Uuid, Json],
        Family::Integer => vec![Integer, Decimal, Float, Text],
        Family::Numeric => vec![Decimal, Integer, Float, Text],
        Family::Float4 | Family::Float8 => vec![Float, Decimal, Text],
        Family::Money => vec![Decimal, Text],
        Family::Boolean => vec![Boolean, Text],
        Family::Date => vec![Date, LocalTimestamp, Timestamp, Text],
        Family::LocalTimestamp => vec![LocalTimestamp, Timestamp, Text],
        Family::Timestamp => vec![Timestamp, Text],
        Family::Time | Family::ZonedTime => vec![Time, Text],
        Family::Uuid => vec![Uuid, Text],
        Family::Nested => vec![Json, Text],
        Family::Other if matches!(real.name.as_str(), "json" | "jsonb") => vec![Json, Text],
        Family::Other if real.name == "bytea" => vec![Binary, Text],
        Family::Enum { .. } | Family::Other => vec![Text],
    }
}

/// The columns of the primary key, and of every index that finds equal values.
async fn indexes(
    connection: &mut PgConnection,
    table: i64,
) -> Result<(Vec<String>, Option<Vec<Vec<String>>>), sqlx::Error> {
    let rows = sqlx::query(
        "SELECT i.indisprimary, ARRAY( \
             SELECT a.attname::text FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k(attnum, n) \
             LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
             WHERE k.n <= i.indnkeyatts ORDER BY k.n), \
           t.relkind IN ('v', 'f') \
         FROM pg_class t \
         LEFT JOIN (pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
                    JOIN pg_am am ON am.oid = c.relam AND am.amname IN ('btree', 'hash')) \
           ON i.indrelid = t.oid AND i.indisvalid \
         WHERE t.oid = $1::oid ORDER BY i.indexrelid",
    )
    .bind(table)
    .persistent(false)
    .fetch_all(connection)
    .await?;
    let mut primary_key = Vec::new();
    let mut indexes = Vec::new();
    let mut is_no_table = false;
    for row in &rows {
        let primary: Option<bool> = row.try_get(0)?;
        is_no_table = row.try_get(2)?;
        let Some(primary) = primary else { continue };
        let names: Vec<Option<String>> = row.try_get(1)?;
        let names: Vec<String> = names.into_iter().map_while(|name| name).collect();
        if primary {
            primary_key.clone_from(&names);
        }
        indexes.push(names);
    }
    Ok((primary_key, (!is_no_table).then_some(indexes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_unpacked_as_the_server_packs_them() {
        let packed = |precision: i32, scale: i32| ((precision << 16) | (scale & 0x7ff)) + 4;
        let of = |precision, scale| Some(Digits { precision, scale });
        assert_eq!(digits(packed(12, 2)), of(12, 2));
        assert_eq!(digits(packed(38, 38)), of(38, 38));
        assert_eq!(digits(packed(39, 2)), None, "more than may be declared");
        assert_eq!(digits(packed(5, -2)), None, "rounded to hundreds");
        assert_eq!(digits(packed(3, 5)), None, "only the third to fifth digit after the point");
        assert_eq!(digits(-1), None, "without a limit");
    }
}
