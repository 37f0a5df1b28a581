//! How a value is written for a column of a certain real type, what it is cast to, and what
//! becomes of values that no such column can hold.

use std::borrow::Cow;

use chrono::{Datelike, NaiveDate, NaiveDateTime};
use outport_domain::selection::Value;

use super::{Family, LEAST_MOST_FRACTION, number};

/// How the cast of a [`Constant::is_decimal`] begins.
pub(super) const DECIMAL: &str = "CAST(? AS DECIMAL";

/// A text and what it is cast to; the text's variable stands for the `?`.
pub(super) struct Constant {
    pub(super) text: String,
    pub(super) cast: Cow<'static, str>,
}

impl Constant {
    /// Whether it is a number with a point, or one of more than 64 bits.
    pub(super) fn is_decimal(&self) -> bool {
        self.cast.starts_with(DECIMAL)
    }
}

/// Where a value is among those that a column may hold.
pub(super) enum Placed {
    /// It may be one of them.
    At(Constant),
    /// It lies between the constant and the next one of them, above or below.
    Between { constant: Constant, above: bool },
    /// It is greater than all of them.
    Above,
    /// It is less than all of them.
    Below,
}

/// Values made ready for a column.
pub(super) struct Operand {
    /// The column, changed where it must be.
    pub(super) column: String,
    pub(super) values: Vec<Placed>,
}

/// `None` when such values cannot be compared with such a column.
pub(super) fn operand(column: &str, family: &Family, values: &[Value]) -> Option<Operand> {
    let placed = values.iter().map(|value| placed(family, value)).collect::<Option<Vec<_>>>()?;
    let column = match (family, values.first()?) {
        // A year would take numbers below 100 for years of this century or the last.
        (Family::Year, _) => format!("({column} + 0)"),
        (Family::DateTime, Value::Date(_)) => format!("CAST({column} AS DATE)"),
        _ => column.to_owned(),
    };
    Some(Operand { column, values: placed })
}

fn placed(family: &Family, value: &Value) -> Option<Placed> {
    match (value, family) {
        (Value::Integer(digits) | Value::Decimal(digits), Family::Decimal { most_fraction }) => {
            number::placed(digits, *most_fraction)
        }
        (
            Value::Integer(digits) | Value::Decimal(digits),
            Family::Integer | Family::Bit | Family::Year,
        ) => number::placed(digits, LEAST_MOST_FRACTION),
        (Value::Integer(digits) | Value::Decimal(digits), Family::Float | Family::Double) => {
            float(digits, *family == Family::Float)
        }
        (Value::Date(date), Family::Date | Family::DateTime) => Some(day(*date)),
        // A column without a zone that is declared an instant is taken to be in UTC.
        (Value::Timestamp(instant), Family::Date | Family::DateTime | Family::Timestamp) => {
            Some(moment(instant.naive_utc()))
        }
        (Value::LocalTimestamp(local), Family::Date | Family::DateTime) => Some(moment(*local)),
        (Value::Time(time), Family::Time) => {
            Some(at(time.format("%H:%M:%S%.6f").to_string(), "CAST(? AS TIME(6))"))
        }
        _ => None,
    }
}

fn at(text: String, cast: &'static str) -> Placed {
    Placed::At(Constant { text, cast: cast.into() })
}

/// The nearest float of the column's width, so that what is printed as 0.1 equals 0.1; a number
/// beyond the narrow width stays wide.
fn float(digits: &str, narrow: bool) -> Option<Placed> {
    let wide: f64 = digits.parse().ok()?;
    let near: f32 = digits.parse().ok()?;
    let near = if narrow && near.is_finite() { f64::from(near) } else { wide };
    Some(if near.is_finite() {
        at(format!("{near:e}"), "(? + 0e0)")
    } else if near > 0.0 {
        Placed::Above
    } else {
        Placed::Below
    })
}

fn day(date: NaiveDate) -> Placed {
    within_years(date).unwrap_or_else(|| at(date.to_string(), "CAST(? AS DATE)"))
}

fn moment(moment: NaiveDateTime) -> Placed {
    within_years(moment.date()).unwrap_or_else(|| {
        at(moment.format("%Y-%m-%d %H:%M:%S%.6f").to_string(), "CAST(? AS DATETIME(6))")
    })
}

/// Where a day is that the server has no name for.
fn within_years(date: NaiveDate) -> Option<Placed> {
    match date.year() {
        10_000.. => Some(Placed::Above),
        ..=0 => Some(Placed::Below),
        _ => None,
    }
}
