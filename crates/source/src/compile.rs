//! A [`Selection`] as SQL. What the engines share is here: names, the shape of the statement,
//! and what a negated test means. How a value is compared is each engine's own.
//!
//! The relation is always called `r` and every column is qualified by it: SQLite would take an
//! unknown `"name"` on its own for a text.

pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::borrow::Cow;

use chrono::{DateTime, Timelike, Utc};
use outport_domain::{
    failure::FailureCode,
    selection::{Bound, ColumnRef, Place, Predicate, Relation, Selection, Test, Value},
};

use crate::SourceError;

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Comparison {
    const fn sql(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
        }
    }

    /// Whether values below a bound are left out.
    const fn has_floor(self) -> bool {
        matches!(self, Self::Equal | Self::Greater | Self::AtLeast)
    }

    /// Whether values above a bound are left out.
    const fn has_ceiling(self) -> bool {
        matches!(self, Self::Equal | Self::Less | Self::AtMost)
    }
}

/// What an engine does its own way. Every answer is one SQL expression.
pub(crate) trait Dialect {
    /// What encloses an identifier, and is doubled within.
    const QUOTE: char = '"';

    /// A constant that every row begins with, before its cells.
    const MARK: Option<&'static str> = None;

    /// What is selected for a column of the file.
    fn cell(&self, column: &ColumnRef) -> String;

    /// Whether a column is NULL, or is not.
    fn null(&self, column: &ColumnRef, negated: bool) -> String {
        let name = qualified_by(Self::QUOTE, &column.name);
        format!("{name} IS {}NULL", if negated { "NOT " } else { "" })
    }

    /// Compares a column with a value.
    fn compare(
        &mut self,
        column: &ColumnRef,
        comparison: Comparison,
        value: &Value,
    ) -> Result<String, SourceError>;

    /// Whether a column has one of the values, of which there is at least one.
    fn among(&mut self, column: &ColumnRef, values: &[Value]) -> Result<String, SourceError>;

    /// Whether a column holds a text, taken literally.
    fn like(
        &mut self,
        column: &ColumnRef,
        place: Place,
        text: &str,
        ignore_case: bool,
    ) -> Result<String, SourceError>;
}

/// The statement of a selection.
pub(crate) fn select<D: Dialect>(
    dialect: &mut D,
    selection: &Selection,
) -> Result<String, SourceError> {
    if selection.columns.is_empty() {
        return Err(SourceError::new(FailureCode::SchemaMismatch, "no column is selected"));
    }
    let cells = selection.columns.iter().map(|column| dialect.cell(column));
    let cells: Vec<String> = D::MARK.map(str::to_owned).into_iter().chain(cells).collect();
    let mut sql = format!(
        "SELECT {} FROM {} AS r WHERE {}",
        cells.join(", "),
        relation_by(D::QUOTE, &selection.relation),
        predicate(dialect, &selection.predicate)?
    );
    for (index, order) in selection.order.iter().enumerate() {
        sql.push_str(if index == 0 { " ORDER BY " } else { ", " });
        sql.push_str(&qualified_by(D::QUOTE, &order.column.name));
        if order.descending {
            sql.push_str(" DESC");
        }
    }
    // Engines end a statement at a NUL, silently.
    if sql.contains('\0') {
        return Err(SourceError::new(FailureCode::SchemaMismatch, "a name or query holds a NUL"));
    }
    Ok(sql)
}

/// A name as an identifier.
pub(crate) fn quoted_by(quote: char, name: &str) -> String {
    let mut identifier = String::with_capacity(name.len() + 2);
    identifier.push(quote);
    for c in name.chars() {
        if c == quote {
            identifier.push(quote);
        }
        identifier.push(c);
    }
    identifier.push(quote);
    identifier
}

/// A column of the relation, in standard SQL.
pub(crate) fn qualified(name: &str) -> String {
    qualified_by('"', name)
}

/// A column of the relation.
pub(crate) fn qualified_by(quote: char, name: &str) -> String {
    format!("r.{}", quoted_by(quote, name))
}

/// What stands after FROM, in standard SQL.
pub(crate) fn relation(relation: &Relation) -> String {
    relation_by('"', relation)
}

/// What stands after FROM.
pub(crate) fn relation_by(quote: char, relation: &Relation) -> String {
    match relation {
        Relation::Table(parts) => {
            parts.iter().map(|part| quoted_by(quote, part)).collect::<Vec<_>>().join(".")
        }
        // The line break ends a comment that the query may end with.
        Relation::Query(query) => format!("({query}\n)"),
    }
}

/// Every column that a selection names, each name once.
pub(crate) fn named_columns(selection: &Selection) -> Vec<&ColumnRef> {
    fn collect<'a>(predicate: &'a Predicate, columns: &mut Vec<&'a ColumnRef>) {
        match predicate {
            Predicate::All(parts) | Predicate::Any(parts) => {
                for part in parts {
                    collect(part, columns);
                }
            }
            Predicate::Column { column, .. } => columns.push(column),
        }
    }
    let mut columns: Vec<&ColumnRef> = selection.columns.iter().collect();
    columns.extend(selection.order.iter().map(|order| &order.column));
    collect(&selection.predicate, &mut columns);
    let mut seen = std::collections::HashSet::new();
    columns.retain(|column| seen.insert(&column.name));
    columns
}

/// All of a query, and of a table what is named, for its user may have no right to more.
pub(crate) fn all_of(quote: char, selection: &Selection) -> String {
    match selection.relation {
        Relation::Query(_) => "*".to_owned(),
        Relation::Table(_) => {
            let columns = named_columns(selection);
            let names: Vec<_> =
                columns.iter().map(|column| qualified_by(quote, &column.name)).collect();
            if names.is_empty() { "1".to_owned() } else { names.join(", ") }
        }
    }
}

fn predicate<D: Dialect>(dialect: &mut D, whole: &Predicate) -> Result<String, SourceError> {
    let (parts, operator, empty) = match whole {
        Predicate::All(parts) => (parts, " AND ", "TRUE"),
        Predicate::Any(parts) => (parts, " OR ", "FALSE"),
        Predicate::Column { column, test, negated } => {
            return column_test(dialect, column, test, *negated);
        }
    };
    let parts = parts.iter().map(|part| predicate(dialect, part)).collect::<Result<Vec<_>, _>>()?;
    Ok(match parts.as_slice() {
        [] => empty.to_owned(),
        [only] => only.clone(),
        many => format!("({})", many.join(operator)),
    })
}

fn column_test<D: Dialect>(
    dialect: &mut D,
    column: &ColumnRef,
    test: &Test,
    negated: bool,
) -> Result<String, SourceError> {
    let sql = match test {
        Test::Null => return Ok(dialect.null(column, negated)),
        Test::Equal(value) => match in_microseconds(value) {
            (_, true) => "FALSE".to_owned(),
            (value, false) => dialect.compare(column, Comparison::Equal, &value)?,
        },
        Test::Range { from, to } => {
            let mut ends = Vec::with_capacity(2);
            if let Some(Bound { value, inclusive }) = from {
                let (value, and_more) = in_microseconds(value);
                let own = *inclusive && !and_more;
                let comparison = if own { Comparison::AtLeast } else { Comparison::Greater };
                ends.push(dialect.compare(column, comparison, &value)?);
            }
            if let Some(Bound { value, inclusive }) = to {
                let (value, and_more) = in_microseconds(value);
                let own = *inclusive || and_more;
                let comparison = if own { Comparison::AtMost } else { Comparison::Less };
                ends.push(dialect.compare(column, comparison, &value)?);
            }
            if ends.is_empty() {
                ends.push(dialect.null(column, true));
            }
            ends.join(" AND ")
        }
        Test::In(values) => {
            let values = values.iter().map(in_microseconds);
            let values: Vec<Value> = values
                .filter(|(_, and_more)| !and_more)
                .map(|(value, _)| value.into_owned())
                .collect();
            if values.is_empty() { "FALSE".to_owned() } else { dialect.among(column, &values)? }
        }
        Test::Like { place, text, ignore_case } => {
            dialect.like(column, *place, text, *ignore_case)?
        }
    };
    // A test of NULL is NULL, which a negated test must let pass: rule 28.
    Ok(if negated { format!("(({sql}) IS NOT TRUE)") } else { format!("({sql})") })
}

/// A moment in whole microseconds, and whether it is a little later: no engine knows finer ones,
/// and each would round in its own way. All else is as it is.
fn in_microseconds(value: &Value) -> (Cow<'_, Value>, bool) {
    const NANOSECONDS: u32 = 1_000;
    let of = |instant: DateTime<Utc>| DateTime::from_timestamp_micros(instant.timestamp_micros());
    let (whole, rest) = match value {
        Value::Timestamp(at) => (of(*at).map(Value::Timestamp), at.nanosecond() % NANOSECONDS),
        Value::LocalTimestamp(local) => (
            of(local.and_utc()).map(|at| Value::LocalTimestamp(at.naive_utc())),
            local.nanosecond() % NANOSECONDS,
        ),
        Value::Time(time) => {
            let rest = time.nanosecond() % NANOSECONDS;
            (time.with_nanosecond(time.nanosecond() - rest).map(Value::Time), rest)
        }
        _ => (None, 0),
    };
    (whole.map_or(Cow::Borrowed(value), Cow::Owned), rest != 0)
}

fn not_comparable(column: &ColumnRef, real: &str) -> SourceError {
    SourceError::new(
        FailureCode::SchemaMismatch,
        format!(
            "column '{}' is declared {}, but is of type {real} in the source and cannot be compared so",
            column.name,
            column.column_type.name()
        ),
    )
}
