//! What a database holds: its tables and views, and what each of their columns really is. For
//! writing resource files and for comparing them, not for reading rows.

use std::sync::Arc;

use async_trait::async_trait;
use outport_domain::{
    column::{ColumnType, Digits},
    selection::Relation,
};

use crate::{SourceConfig, SourceError, is_postgres, mysql, postgres, sqlite};

/// The schema of a configured database. Nothing is connected to before it is asked.
pub fn schema(config: &SourceConfig) -> Arc<dyn Schema> {
    match config {
        SourceConfig::Postgres { url, connect_timeout } => {
            Arc::new(postgres::PostgresSource::new(url, *connect_timeout))
        }
        SourceConfig::MySql { url, connect_timeout } => {
            Arc::new(mysql::MySqlSource::new(url.clone(), *connect_timeout))
        }
        SourceConfig::Sqlite { path } => Arc::new(sqlite::SqliteSource::new(path.clone())),
        SourceConfig::Stored { url, tls, connect_timeout } if is_postgres(url) => {
            Arc::new(postgres::PostgresSource::new(url, *connect_timeout).with_tls(Arc::clone(tls)))
        }
        SourceConfig::Stored { url, tls, connect_timeout } => Arc::new(
            mysql::MySqlSource::new(url.clone(), *connect_timeout).with_tls(Arc::clone(tls)),
        ),
    }
}

/// What a database holds.
#[async_trait]
pub trait Schema: Send + Sync {
    /// Every table and view, the engine's own apart, sorted.
    async fn tables(&self) -> Result<Vec<TableName>, SourceError>;

    /// What a relation is; `None` when there is no such table or view. A query that the
    /// database refuses is an error.
    async fn describe(&self, relation: &Relation) -> Result<Option<Description>, SourceError>;
}

/// The name of a table or view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableName {
    /// The schema that it is in; of MySQL the database, of SQLite `main`.
    pub schema: String,
    /// Its own name.
    pub name: String,
}

/// What a table, a view or a query is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// In their own order.
    pub columns: Vec<RealColumn>,
    /// The columns of the primary key in its order; empty where there is none.
    pub primary_key: Vec<String>,
    /// Of each index that finds equal values, the columns in its order, up to the first that is
    /// an expression. `None` of what is no table: its own tables may have some.
    pub indexes: Option<Vec<Vec<String>>>,
    /// The relation as the engine's SQL writes it after FROM.
    pub sql: String,
    /// Whether columns may hold values of other types than their own, as SQLite's do.
    pub is_loosely_typed: bool,
    /// Whether a column's name is the same in upper and lower case.
    pub ignores_case: bool,
}

impl Description {
    /// The column that SQL finds by this name.
    pub fn column(&self, name: &str) -> Option<&RealColumn> {
        let same = |column: &&RealColumn| {
            column.name == name || (self.ignores_case && column.name.eq_ignore_ascii_case(name))
        };
        self.columns.iter().find(same)
    }
}

/// A column as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealColumn {
    /// Its name, unquoted.
    pub name: String,
    /// Its type in the engine's own words, e.g. `numeric(12,2)`.
    pub type_name: String,
    /// What it may be declared as, what suits it best first. Its values can be read and filtered
    /// as each of these; never empty.
    pub suits: Vec<ColumnType>,
    /// Of a decimal, where the database limits them to what may be declared.
    pub digits: Option<Digits>,
    /// Whether it may hold NULL; also where the database does not say.
    pub nullable: bool,
}

impl RealColumn {
    /// What suits it best.
    pub fn best(&self) -> ColumnType {
        self.suits.first().copied().unwrap_or(ColumnType::Text)
    }
}

/// Digits that a resource file may declare, if these are.
pub(crate) fn digits(precision: i64, scale: i64) -> Option<Digits> {
    let digits = Digits { precision: precision.try_into().ok()?, scale: scale.try_into().ok()? };
    ((1..=38).contains(&digits.precision) && digits.scale <= digits.precision).then_some(digits)
}
