//! How a value is written for a column of a certain real type, and what it is cast to.

use std::borrow::Cow;

use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime};
use outport_domain::selection::Value;

use super::{Family, RealType, literal};

/// Values made ready for a column.
pub(super) struct Operand {
    /// The column, cast where it must be.
    pub(super) column: String,
    /// What the values are cast to.
    pub(super) cast: Cow<'static, str>,
    pub(super) values: Vec<String>,
}

/// The values as constants, where equality needs them so. Labels that an enum does not have
/// are left out.
pub(super) fn constants(real: &RealType, values: &[Value]) -> Option<Vec<String>> {
    match &real.family {
        Family::Boolean => values
            .iter()
            .map(|value| match value {
                Value::Boolean(true) => Some("TRUE".to_owned()),
                Value::Boolean(false) => Some("FALSE".to_owned()),
                _ => None,
            })
            .collect(),
        Family::Enum { labels } => {
            let mut constants = Vec::with_capacity(values.len());
            for value in values {
                let Value::Text(text) = value else { return None };
                if labels.contains(text) {
                    // A label holds no NUL.
                    constants.push(format!("{}::{}", literal(text).ok()?, real.name));
                }
            }
            Some(constants)
        }
        _ => None,
    }
}

/// A column as text. A cast would print an address with its `/32`, which its file does not show.
pub(super) fn text(column: &str, real: &RealType) -> String {
    match real.name.as_str() {
        "inet" => format!("pg_catalog.textin(pg_catalog.inet_out({column}))"),
        _ => format!("{column}::text"),
    }
}

/// `None` when such values cannot be compared with such a column.
pub(super) fn operand(column: &str, real: &RealType, values: &[Value]) -> Option<Operand> {
    let of = |column: String, cast: &'static str, values: Vec<String>| Operand {
        column,
        cast: cast.into(),
        values,
    };
    let plain = |cast, values| of(column.to_owned(), cast, values);
    let cast_column = |to, cast, values| of(format!("{column}::{to}"), cast, values);
    let all = |f: fn(&Value) -> Option<String>| values.iter().map(f).collect::<Option<Vec<_>>>();
    Some(match (values.first()?, &real.family) {
        (Value::Text(_), Family::Text | Family::OtherText) => Operand {
            column: column.to_owned(),
            cast: real.name.clone().into(),
            values: all(plain_text)?,
        },
        (Value::Text(_), _) => of(text(column, real), "text", all(plain_text)?),
        (Value::Integer(_) | Value::Decimal(_), family) => {
            let digits = all(digits)?;
            match family {
                Family::Integer if digits.iter().all(|text| text.parse::<i64>().is_ok()) => {
                    plain("bigint", digits)
                }
                Family::Integer | Family::Numeric => plain("numeric", digits),
                Family::Float4 | Family::Float8 => {
                    let narrow = *family == Family::Float4;
                    let (cast, texts) = floats(&digits, narrow)?;
                    plain(cast, texts)
                }
                Family::Money => cast_column("numeric", "numeric", digits),
                _ => return None,
            }
        }
        (Value::Date(_), family) => match family {
            Family::Date => plain("date", all(day)?),
            Family::LocalTimestamp | Family::Timestamp => cast_column("date", "date", all(day)?),
            _ => return None,
        },
        (Value::LocalTimestamp(_), Family::Date | Family::LocalTimestamp | Family::Timestamp) => {
            plain("timestamp", all(local)?)
        }
        (Value::Timestamp(_), family) => match family {
            // A column without a zone that is declared an instant is taken to be in UTC.
            Family::LocalTimestamp => plain("timestamp", all(utc)?),
            Family::Timestamp | Family::Date => {
                plain("timestamptz", all(utc)?.iter().map(|text| in_utc(text)).collect())
            }
            _ => return None,
        },
        (Value::Time(_), family) => match family {
            Family::Time => plain("time", all(time)?),
            Family::ZonedTime => cast_column("time", "time", all(time)?),
            _ => return None,
        },
        (Value::Uuid(_), family) => match family {
            Family::Uuid => plain("uuid", all(uuid)?),
            Family::Text | Family::OtherText => Operand {
                column: column.to_owned(),
                cast: real.name.clone().into(),
                values: all(uuid)?,
            },
            _ => return None,
        },
        // Booleans are constants; a column that is none cannot be compared with one.
        (Value::Boolean(_) | Value::LocalTimestamp(_), _) => return None,
    })
}

fn plain_text(value: &Value) -> Option<String> {
    if let Value::Text(text) = value { Some(text.clone()) } else { None }
}

fn digits(value: &Value) -> Option<String> {
    match value {
        Value::Integer(digits) | Value::Decimal(digits) => Some(digits.clone()),
        _ => None,
    }
}

/// Numbers as the nearest float of the column's width, so that what is printed as 0.1 equals
/// 0.1; a number beyond the narrow width stays wide.
fn floats(digits: &[String], narrow: bool) -> Option<(&'static str, Vec<String>)> {
    if narrow {
        let near: Vec<f32> =
            digits.iter().map(|text| text.parse()).collect::<Result<_, _>>().ok()?;
        if near.iter().all(|float| float.is_finite()) {
            return Some(("real", near.iter().map(|float| format!("{float:e}")).collect()));
        }
    }
    let near: Vec<f64> = digits.iter().map(|text| text.parse()).collect::<Result<_, _>>().ok()?;
    let text = |float: &f64| {
        if float.is_finite() {
            format!("{float:e}")
        } else if *float > 0.0 {
            "Infinity".to_owned()
        } else {
            "-Infinity".to_owned()
        }
    };
    Some(("double precision", near.iter().map(text).collect()))
}

/// ISO, with the year before 1 AD as PostgreSQL writes it.
fn iso(date: NaiveDate, time: Option<NaiveTime>) -> String {
    let (year, era) = if date.year() > 0 { (date.year(), "") } else { (1 - date.year(), " BC") };
    let time = time.map(|time| time.format(" %H:%M:%S%.f").to_string()).unwrap_or_default();
    format!("{year:04}-{:02}-{:02}{time}{era}", date.month(), date.day())
}

fn day(value: &Value) -> Option<String> {
    if let Value::Date(date) = value { Some(iso(*date, None)) } else { None }
}

fn moment(moment: NaiveDateTime) -> String {
    iso(moment.date(), Some(moment.time()))
}

fn local(value: &Value) -> Option<String> {
    if let Value::LocalTimestamp(local) = value { Some(moment(*local)) } else { None }
}

fn utc(value: &Value) -> Option<String> {
    if let Value::Timestamp(instant) = value { Some(moment(instant.naive_utc())) } else { None }
}

fn in_utc(text: &str) -> String {
    match text.strip_suffix(" BC") {
        Some(text) => format!("{text}+00 BC"),
        None => format!("{text}+00"),
    }
}

fn time(value: &Value) -> Option<String> {
    if let Value::Time(time) = value { Some(time.format("%H:%M:%S%.f").to_string()) } else { None }
}

fn uuid(value: &Value) -> Option<String> {
    if let Value::Uuid(uuid) = value { Some(uuid.to_string()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::iso;

    #[test]
    fn years_before_the_first_are_before_christ() {
        let day = |year| chrono::NaiveDate::from_ymd_opt(year, 3, 15).expect("a day");
        assert_eq!(iso(day(2026), None), "2026-03-15");
        assert_eq!(iso(day(0), None), "0001-03-15 BC");
        assert_eq!(iso(day(-43), None), "0044-03-15 BC");
        assert_eq!(iso(day(10_000), None), "10000-03-15");
    }
}
