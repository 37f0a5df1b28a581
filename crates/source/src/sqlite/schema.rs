//! What a file holds, from `sqlite_schema` and the pragmas about tables. A declared type is any
//! text and a hint; ours is guessed from it as SQLite guesses a column's affinity.

use std::path::Path;

use async_trait::async_trait;
use outport_domain::{
    column::ColumnType::{
        self, Binary, Boolean, Date, Decimal, Float, Integer, Json, LocalTimestamp, Text, Time,
        Timestamp, Uuid,
    },
    selection::Relation,
};
use rusqlite::{Connection, OptionalExtension};

use super::{
    SqliteSource,
    reader::{failure, open},
};
use crate::{
    SourceError, compile,
    schema::{Description, RealColumn, Schema, TableName},
};

/// The one database of a connection.
const MAIN: &str = "main";

#[async_trait]
impl Schema for SqliteSource {
    async fn tables(&self) -> Result<Vec<TableName>, SourceError> {
        self.asked(|connection| {
            let mut statement = connection.prepare(
                "SELECT name FROM sqlite_schema \
                 WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
                 ORDER BY name",
            )?;
            let name = |row: &rusqlite::Row<'_>| {
                Ok(TableName { schema: MAIN.to_owned(), name: row.get(0)? })
            };
            statement.query_map([], name)?.collect()
        })
        .await
    }

    async fn describe(&self, relation: &Relation) -> Result<Option<Description>, SourceError> {
        let relation = relation.clone();
        self.asked(move |connection| {
            let name = match &relation {
                Relation::Query(_) => return query(connection, &relation).map(Some),
                Relation::Table(parts) => match parts.as_slice() {
                    [name] => name,
                    [schema, name] if schema.eq_ignore_ascii_case(MAIN) => name,
                    _ => return Ok(None),
                },
            };
            let kind: Option<String> = connection
                .query_row(
                    "SELECT type FROM sqlite_schema \
                     WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE",
                    [name],
                    |row| row.get(0),
                )
                .optional()?;
            kind.map(|kind| table(connection, &relation, name, kind == "table")).transpose()
        })
        .await
    }
}

impl SqliteSource {
    /// Asks the file something, on a blocking thread.
    async fn asked<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, SourceError> {
        let path = self.path.clone();
        let asked = move || asked(&path, ask);
        tokio::task::spawn_blocking(asked).await.map_err(|_| SourceError::reader_lost())?
    }
}

fn asked<T>(
    path: &Path,
    ask: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
) -> Result<T, SourceError> {
    let connection = open(path)?;
    // What is asked in several statements is of one moment.
    connection
        .execute_batch("BEGIN")
        .and_then(|()| ask(&connection))
        .map_err(|error| failure(error, 0))
}

fn query(connection: &Connection, relation: &Relation) -> Result<Description, rusqlite::Error> {
    let sql = compile::relation(relation);
    let statement = connection.prepare(&format!("SELECT * FROM {sql} AS r"))?;
    let columns = statement.columns();
    let columns = columns
        .iter()
        .map(|column| real_column(column.name(), column.decl_type().unwrap_or_default(), true));
    Ok(Description {
        columns: columns.collect(),
        primary_key: Vec::new(),
        indexes: None,
        sql,
        is_loosely_typed: true,
        ignores_case: true,
    })
}

fn table(
    connection: &Connection,
    relation: &Relation,
    name: &str,
    is_table: bool,
) -> Result<Description, rusqlite::Error> {
    let mut described = query(connection, relation)?;
    let mut statement =
        connection.prepare("SELECT name, pk, \"notnull\" FROM pragma_table_xinfo(?1, ?2)")?;
    let mut rows = statement.query([name, MAIN])?;
    let mut key: Vec<(i64, String)> = Vec::new();
    while let Some(row) = rows.next()? {
        let (name, position, required): (String, i64, bool) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        if position > 0 {
            key.push((position, name.clone()));
        }
        if let Some(column) = described.columns.iter_mut().find(|column| column.name == name) {
            column.nullable = !required;
        }
    }
    key.sort();
    described.primary_key = key.into_iter().map(|(_, name)| name).collect();
    if let [only] = described.primary_key.as_slice() {
        let column = described.columns.iter_mut().find(|column| column.name == *only);
        // The one key that is the row's own number, and never NULL.
        if let Some(column) = column
            && column.type_name.eq_ignore_ascii_case("INTEGER")
        {
            column.nullable = false;
        }
    }
    if is_table {
        described.indexes = Some(indexes(connection, name, &described.primary_key)?);
    }
    Ok(described)
}

fn indexes(
    connection: &Connection,
    table: &str,
    primary_key: &[String],
) -> Result<Vec<Vec<String>>, rusqlite::Error> {
    let mut statement = connection.prepare(
        "SELECT l.seq, i.name FROM pragma_index_list(?1, ?2) AS l, pragma_index_info(l.name, ?2) AS i \
         ORDER BY l.seq, i.seqno",
    )?;
    let mut rows = statement.query([table, MAIN])?;
    let mut found: Vec<(i64, Vec<Option<String>>)> = Vec::new();
    while let Some(row) = rows.next()? {
        let (index, column): (i64, Option<String>) = (row.get(0)?, row.get(1)?);
        match found.last_mut() {
            Some((last, columns)) if *last == index => columns.push(column),
            _ => found.push((index, vec![column])),
        }
    }
    // What has no name is an expression.
    let named = |(_, columns): (i64, Vec<Option<String>>)| {
        columns.into_iter().map_while(|name| name).collect::<Vec<_>>()
    };
    let mut indexes: Vec<Vec<String>> = found.into_iter().map(named).collect();
    // A key that is the row's own number has no index besides the table itself.
    if !primary_key.is_empty() && !indexes.iter().any(|index| index == primary_key) {
        indexes.push(primary_key.to_vec());
    }
    Ok(indexes)
}

fn real_column(name: &str, declared: &str, nullable: bool) -> RealColumn {
    RealColumn {
        name: name.to_owned(),
        type_name: declared.to_owned(),
        suits: suits(declared),
        // Nothing holds values to them here.
        digits: None,
        nullable,
    }
}

/// What a column of this declared type may be declared as.
fn suits(declared: &str) -> Vec<ColumnType> {
    let declared = declared.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    if has(&["BOOL"]) {
        vec![Boolean, Integer, Text]
    } else if has(&["DATETIME", "TIMESTAMP"]) {
        vec![Timestamp, LocalTimestamp, Text]
    } else if has(&["DATE"]) {
        vec![Date, LocalTimestamp, Timestamp, Text]
    } else if has(&["TIME"]) {
        vec![Time, Text]
    } else if has(&["UUID", "GUID"]) {
        vec![Uuid, Text]
    } else if has(&["JSON"]) {
        vec![Json, Text]
    } else if has(&["INTERVAL", "POINT"]) {
        vec![Text]
    } else if has(&["INT"]) {
        vec![Integer, Decimal, Float, Boolean, Text]
    } else if has(&["CHAR", "CLOB", "TEXT"]) || declared.is_empty() {
        // Texts are where everything is kept that SQLite has no type for.
        vec![Text, Uuid, Timestamp, LocalTimestamp, Date, Time, Decimal, Json]
    } else if has(&["BLOB", "BINARY"]) {
        vec![Binary, Uuid, Json, Text]
    } else if has(&["REAL", "FLOA", "DOUB"]) {
        vec![Float, Decimal, Text]
    } else if has(&["DEC", "NUM", "MONEY"]) {
        vec![Decimal, Integer, Float, Text]
    } else {
        vec![Text]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_type_is_read_as_people_write_them() {
        let cases = [
            ("INTEGER", Integer),
            ("bigint unsigned", Integer),
            ("varchar(20)", Text),
            ("", Text),
            ("DECIMAL(10,2)", Decimal),
            ("NUMERIC", Decimal),
            ("double precision", Float),
            ("BOOLEAN", Boolean),
            ("DATE", Date),
            ("DATETIME", Timestamp),
            ("TIMESTAMP WITH TIME ZONE", Timestamp),
            ("TIME", Time),
            ("UUID", Uuid),
            ("jsonb", Json),
            ("VARBINARY(16)", Binary),
            ("geometry", Text),
        ];
        for (declared, expected) in cases {
            assert_eq!(suits(declared)[0], expected, "{declared}");
        }
    }
}
