//! SQLite. A declared type is a hint there, so every comparison says what it means for values
//! of another storage class: a value that is no number, instant or day is none of the asked
//! ones, hence fails a plain test and passes a negated one.
//!
//! Numbers are compared natively where the column's affinity is numeric and the value is exact
//! there; else, and for instants, days and times, by the functions of
//! [`crate::sqlite::functions`]. Such a test of an instant or a day also bounds the column's
//! text coarsely, by whole days, so that an ordinary index on ISO texts is still used.

use std::collections::HashMap;

use chrono::{DateTime, Days, NaiveDate, NaiveDateTime};
use outport_domain::{
    column::ColumnType,
    failure::FailureCode,
    selection::{ColumnRef, Place, Value},
};
use rusqlite::types::Value as Parameter;

use super::{Comparison, Dialect, not_comparable, qualified};
use crate::{SourceError, sqlite::functions};

/// What a column makes of what is stored into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affinity {
    Text,
    /// INTEGER, REAL and NUMERIC.
    Numeric,
    None,
}

impl Affinity {
    /// By the declared type, in the order of SQLite's own rules.
    pub(crate) fn of(declared: Option<&str>) -> Self {
        let declared = declared.unwrap_or_default().to_ascii_uppercase();
        let has = |word: &str| declared.contains(word);
        if has("INT") {
            Self::Numeric
        } else if has("CHAR") || has("CLOB") || has("TEXT") {
            Self::Text
        } else if has("BLOB") || declared.is_empty() {
            Self::None
        } else {
            Self::Numeric
        }
    }
}

/// Compiles for one relation, whose columns' affinities are known by lower-case name.
pub(crate) struct Sqlite {
    affinities: HashMap<String, Affinity>,
    /// The values of `?1` and on.
    pub(crate) parameters: Vec<Parameter>,
}

/// Values made ready for a column.
struct Operand {
    /// What is compared, made of the column.
    left: String,
    values: Vec<Parameter>,
    /// What must hold besides, if anything.
    guard: Option<String>,
    /// The first and last day that the values are on, where the column's text starts with one.
    days: Option<(NaiveDate, NaiveDate)>,
}

impl Sqlite {
    pub(crate) fn new(affinities: HashMap<String, Affinity>) -> Self {
        Self { affinities, parameters: Vec::new() }
    }

    fn affinity(&self, column: &ColumnRef) -> Result<Affinity, SourceError> {
        self.affinities.get(&column.name.to_ascii_lowercase()).copied().ok_or_else(|| {
            let message = format!("the source has no column '{}'", column.name);
            SourceError::new(FailureCode::SchemaMismatch, message)
        })
    }

    pub(crate) fn has(&self, column: &ColumnRef) -> bool {
        self.affinities.contains_key(&column.name.to_ascii_lowercase())
    }

    fn bind(&mut self, value: Parameter) -> String {
        self.parameters.push(value);
        format!("?{}", self.parameters.len())
    }

    /// A list as a table of one column `value`: the number of parameters is limited.
    fn list(&mut self, values: &[Parameter]) -> String {
        let elements: Vec<serde_json::Value> = values
            .iter()
            .map(|value| match value {
                Parameter::Integer(integer) => (*integer).into(),
                Parameter::Real(real) => (*real).into(),
                Parameter::Text(text) => text.as_str().into(),
                Parameter::Null | Parameter::Blob(_) => serde_json::Value::Null,
            })
            .collect();
        let json = self.bind(Parameter::Text(serde_json::Value::from(elements).to_string()));
        format!("(SELECT value FROM json_each({json}))")
    }

    fn text(&self, column: &ColumnRef) -> Result<String, SourceError> {
        let name = qualified(&column.name);
        Ok(match self.affinity(column)? {
            Affinity::Text => name,
            Affinity::Numeric | Affinity::None => format!("CAST({name} AS TEXT)"),
        })
    }

    fn operand(&self, column: &ColumnRef, values: &[Value]) -> Result<Operand, SourceError> {
        let name = qualified(&column.name);
        let affinity = self.affinity(column)?;
        let plain = |left: String, values: Vec<Parameter>| Operand {
            left,
            values,
            guard: None,
            days: None,
        };
        let function = |function: &str| format!("{function}({name})");
        let wrong = || not_comparable(column, "another");
        let all = |f: &dyn Fn(&Value) -> Option<Parameter>| {
            values.iter().map(f).collect::<Option<Vec<_>>>().ok_or_else(wrong)
        };
        Ok(match values.first() {
            Some(Value::Text(_)) => Operand {
                guard: Some(format!("typeof({name}) <> 'blob'")),
                ..plain(self.text(column)?, all(&text)?)
            },
            Some(Value::Integer(_) | Value::Decimal(_)) => {
                match values.iter().map(native_number).collect::<Option<Vec<_>>>() {
                    Some(numbers) if affinity == Affinity::Numeric => Operand {
                        guard: Some(format!("typeof({name}) IN ('integer', 'real')")),
                        ..plain(name.clone(), numbers)
                    },
                    _ => plain(function(functions::NUMBER), all(&number_key)?),
                }
            }
            Some(Value::Boolean(_)) => plain(name.clone(), all(&boolean)?),
            Some(Value::Uuid(_)) => plain(name.clone(), all(&uuid_text)?),
            Some(Value::Time(_)) => plain(function(functions::TIME), all(&time)?),
            Some(Value::Date(_)) => Operand {
                days: days(values, |value| match value {
                    Value::Date(date) => Some(*date),
                    _ => None,
                }),
                ..plain(function(functions::DAY), all(&day)?)
            },
            Some(Value::LocalTimestamp(_) | Value::Timestamp(_)) => Operand {
                days: days(values, |value| moment(value).map(|moment| moment.date())),
                ..plain(function(functions::INSTANT), all(&instant)?)
            },
            None => return Err(wrong()),
        })
    }

    /// Adds the guard and the coarse bounds of the column's text to a test.
    fn guarded(
        &mut self,
        test: String,
        column: &ColumnRef,
        operand: &Operand,
        floor: bool,
        ceiling: bool,
    ) -> String {
        let name = qualified(&column.name);
        let mut parts = vec![test];
        parts.extend(operand.guard.clone());
        if let Some((first, last)) = operand.days {
            // A text may carry an offset of up to a day, so its own day may be the next one.
            if floor && let Some(day) = first.checked_sub_days(Days::new(1)) {
                let bound = self.bind(Parameter::Text(day.to_string()));
                parts.push(format!("{name} >= {bound}"));
            }
            if ceiling && let Some(day) = last.checked_add_days(Days::new(2)) {
                let bound = self.bind(Parameter::Text(day.to_string()));
                parts.push(format!("{name} < {bound}"));
            }
        }
        parts.join(" AND ")
    }
}

impl Dialect for Sqlite {
    fn cell(&self, column: &ColumnRef) -> String {
        qualified(&column.name)
    }

    fn compare(
        &mut self,
        column: &ColumnRef,
        comparison: Comparison,
        value: &Value,
    ) -> Result<String, SourceError> {
        if comparison == Comparison::Equal && column.column_type == ColumnType::Uuid {
            return self.among(column, std::slice::from_ref(value));
        }
        let operand = self.operand(column, std::slice::from_ref(value))?;
        let value = self.bind(operand.values[0].clone());
        let test = format!("{} {} {value}", operand.left, comparison.sql());
        Ok(self.guarded(test, column, &operand, comparison.has_floor(), comparison.has_ceiling()))
    }

    fn among(&mut self, column: &ColumnRef, values: &[Value]) -> Result<String, SourceError> {
        let operand = self.operand(column, values)?;
        let list = if let Some(Value::Uuid(_)) = values.first() {
            // Text in canonical form, or the sixteen bytes themselves.
            let blobs = values.iter().filter_map(uuid_blob);
            let both: Vec<Parameter> = operand.values.iter().cloned().chain(blobs).collect();
            let both: Vec<String> = both.into_iter().map(|value| self.bind(value)).collect();
            format!("({})", both.join(", "))
        } else {
            self.list(&operand.values)
        };
        let test = format!("{} IN {list}", operand.left);
        Ok(self.guarded(test, column, &operand, true, true))
    }

    fn like(
        &mut self,
        column: &ColumnRef,
        place: Place,
        text: &str,
        ignore_case: bool,
    ) -> Result<String, SourceError> {
        let mut left = self.text(column)?;
        let mut wanted = text.to_owned();
        if ignore_case {
            left = format!("{}({left})", functions::FOLD);
            wanted = functions::fold(&wanted);
        }
        let length = wanted.chars().count();
        let wanted = self.bind(Parameter::Text(wanted));
        // LIKE would ignore the case of ASCII letters, and of those alone.
        let found = match place {
            Place::Anywhere => format!("instr({left}, {wanted}) > 0"),
            Place::Start => format!("substr({left}, 1, {length}) = {wanted} COLLATE BINARY"),
            Place::End => format!("substr({left}, -{length}) = {wanted} COLLATE BINARY"),
        };
        Ok(format!("{found} AND typeof({}) <> 'blob'", qualified(&column.name)))
    }
}

fn text(value: &Value) -> Option<Parameter> {
    if let Value::Text(text) = value { Some(Parameter::Text(text.clone())) } else { None }
}

/// A number that SQLite itself holds exactly, or reads as the same float as it did when the
/// column's value was stored.
fn native_number(value: &Value) -> Option<Parameter> {
    match value {
        Value::Integer(digits) => digits.parse().ok().map(Parameter::Integer),
        Value::Decimal(digits) => {
            let significant = digits
                .split(['e', 'E'])
                .next()?
                .bytes()
                .filter(u8::is_ascii_digit)
                .skip_while(|digit| *digit == b'0')
                .count();
            let float: f64 = digits.parse().ok()?;
            // Fifteen digits are what a double tells apart.
            (significant <= 15 && (float == 0.0 || float.is_normal()))
                .then_some(Parameter::Real(float))
        }
        _ => None,
    }
}

fn number_key(value: &Value) -> Option<Parameter> {
    match value {
        Value::Integer(digits) | Value::Decimal(digits) => {
            functions::number_key(digits).map(Parameter::Text)
        }
        _ => None,
    }
}

fn boolean(value: &Value) -> Option<Parameter> {
    if let Value::Boolean(value) = value { Some(Parameter::Integer((*value).into())) } else { None }
}

fn uuid_text(value: &Value) -> Option<Parameter> {
    if let Value::Uuid(uuid) = value { Some(Parameter::Text(uuid.to_string())) } else { None }
}

fn uuid_blob(value: &Value) -> Option<Parameter> {
    if let Value::Uuid(uuid) = value {
        Some(Parameter::Blob(uuid.as_bytes().to_vec()))
    } else {
        None
    }
}

fn time(value: &Value) -> Option<Parameter> {
    if let Value::Time(time) = value {
        Some(Parameter::Integer(functions::microseconds_of_day(*time)))
    } else {
        None
    }
}

fn day(value: &Value) -> Option<Parameter> {
    if let Value::Date(date) = value {
        Some(Parameter::Integer(functions::day_number(*date)))
    } else {
        None
    }
}

fn moment(value: &Value) -> Option<NaiveDateTime> {
    match value {
        Value::LocalTimestamp(local) => Some(*local),
        Value::Timestamp(instant) => Some(DateTime::naive_utc(instant)),
        _ => None,
    }
}

fn instant(value: &Value) -> Option<Parameter> {
    moment(value).map(|moment| Parameter::Integer(moment.and_utc().timestamp_micros()))
}

/// The first and last day of some values, where texts of that time sort like their days.
fn days(
    values: &[Value],
    day: impl Fn(&Value) -> Option<NaiveDate>,
) -> Option<(NaiveDate, NaiveDate)> {
    let first = values.iter().filter_map(&day).min()?;
    let last = values.iter().filter_map(&day).max()?;
    let sortable = NaiveDate::from_ymd_opt(1, 1, 1)?..NaiveDate::from_ymd_opt(9999, 12, 1)?;
    (sortable.contains(&first) && sortable.contains(&last)).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::Affinity;

    #[test]
    fn affinity_follows_the_engines_rules_in_their_order() {
        let cases = [
            (Some("INTEGER"), Affinity::Numeric),
            (Some("CHARINT"), Affinity::Numeric),
            (Some("varchar(20)"), Affinity::Text),
            (Some("CLOB"), Affinity::Text),
            (Some("BLOB"), Affinity::None),
            (Some(""), Affinity::None),
            (None, Affinity::None),
            (Some("DOUBLE"), Affinity::Numeric),
            (Some("TIMESTAMP"), Affinity::Numeric),
            (Some("DECIMAL(10,2)"), Affinity::Numeric),
        ];
        for (declared, expected) in cases {
            assert_eq!(Affinity::of(declared), expected, "{declared:?}");
        }
    }
}
