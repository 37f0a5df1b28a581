//! What is read from a source: one relation, its columns, one predicate, an order. Compiled to
//! SQL by each engine; every name here comes from a declared resource and every value is bound.

use std::sync::Arc;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use chrono_tz::Tz;
use uuid::Uuid;

use crate::column::ColumnType;

/// One read-only query.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// Where rows come from.
    pub relation: Relation,
    /// What is read of each row, in the order of the file.
    pub columns: Vec<ColumnRef>,
    /// Which rows: scope and filters.
    pub predicate: Predicate,
    /// In which order; empty means any.
    pub order: Vec<Order>,
    /// The zone that instants are printed in.
    pub time_zone: Tz,
}

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// A table or view: the parts of its possibly qualified name, unquoted.
    Table(Vec<String>),
    /// One read-only query of the resource file, used as a derived table.
    Query(String),
}

impl Relation {
    /// The same relation, where an unqualified table is in this schema. Queries name the schemas
    /// of their tables themselves.
    #[must_use]
    pub fn within(self, schema: Option<&str>) -> Self {
        match (self, schema) {
            (Self::Table(mut parts), Some(schema)) if parts.len() == 1 => {
                parts.insert(0, schema.to_owned());
                Self::Table(parts)
            }
            (relation, _) => relation,
        }
    }
}

/// A column of the relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRef {
    /// Its name in the relation, unquoted.
    pub name: Arc<str>,
    /// What it holds.
    pub column_type: ColumnType,
}

/// One part of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// By which column.
    pub column: ColumnRef,
    /// Largest first.
    pub descending: bool,
}

/// Which rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// Every one of these; an empty list is true.
    All(Vec<Predicate>),
    /// At least one of these; an empty list is false.
    Any(Vec<Predicate>),
    /// A test of one column. Rows where the column is NULL pass a negated test and fail a plain
    /// one (rule 28), [`Test::Null`] apart.
    Column {
        /// The column tested.
        column: ColumnRef,
        /// The test.
        test: Test,
        /// Whether the test must fail instead.
        negated: bool,
    },
}

/// A test of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// It has this value.
    Equal(Value),
    /// It lies in this range.
    Range {
        /// Where the range starts; open when absent.
        from: Option<Bound>,
        /// Where the range ends; open when absent.
        to: Option<Bound>,
    },
    /// It has one of these values; never empty.
    In(Vec<Value>),
    /// It holds this text, taken literally.
    Like {
        /// Where in the text.
        place: Place,
        /// The text, never empty.
        text: String,
        /// Whether upper and lower case are the same.
        ignore_case: bool,
    },
    /// It is NULL.
    Null,
}

/// One end of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The end itself.
    pub value: Value,
    /// Whether the end belongs to the range.
    pub inclusive: bool,
}

/// Where a text must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Anywhere.
    Anywhere,
    /// At the start.
    Start,
    /// At the end.
    End,
}

/// A value to compare with. Numbers stay text: no digit is lost and no float is involved.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// Decimal digits with an optional sign.
    Integer(String),
    /// Decimal digits with an optional sign, point and exponent.
    Decimal(String),
    /// True or false.
    Boolean(bool),
    /// A day.
    Date(NaiveDate),
    /// A day and time without a zone.
    LocalTimestamp(NaiveDateTime),
    /// An instant.
    Timestamp(DateTime<Utc>),
    /// A time of day.
    Time(NaiveTime),
    /// A UUID.
    Uuid(Uuid),
}
