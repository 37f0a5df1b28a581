//! The values of conditions: read without losing a digit, days widened to all their instants.

use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, Utc};
use chrono_tz::Tz;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{
    column::ColumnType,
    json::{JsonType, type_of},
    selection::{Bound, Test, Value},
};

/// One value of a condition: as it is, or a day that stands for all its instants.
pub(crate) enum Operand {
    Exact(Value),
    Day { start: Value, next: Value },
}

impl Operand {
    pub(crate) fn range(self, from: bool, to: bool) -> Test {
        let bound = |value, inclusive| Some(Bound { value, inclusive });
        match self {
            Self::Exact(value) => Test::Range {
                from: if from { bound(value.clone(), true) } else { None },
                to: if to { bound(value, true) } else { None },
            },
            Self::Day { start, next } => Test::Range {
                from: if from { bound(start, true) } else { None },
                to: if to { bound(next, false) } else { None },
            },
        }
    }

    /// `>=` when `own` is in, `>` when it is not: after a day means from the next day on.
    pub(crate) fn above(self, own: bool) -> Test {
        let (value, inclusive) = match self {
            Self::Exact(value) => (value, own),
            Self::Day { start, next } => (if own { start } else { next }, true),
        };
        Test::Range { from: Some(Bound { value, inclusive }), to: None }
    }

    /// `<=` when `own` is in, `<` when it is not: up to a day means to its end.
    pub(crate) fn below(self, own: bool) -> Test {
        let (value, inclusive) = match self {
            Self::Exact(value) => (value, own),
            Self::Day { start, next } => (if own { next } else { start }, false),
        };
        Test::Range { from: None, to: Some(Bound { value, inclusive }) }
    }
}

pub(crate) enum Wrong {
    Type(&'static str),
    Value(&'static str),
}

/// Reads one value as a column of this type takes it.
pub(crate) fn operand(raw: &RawValue, column_type: ColumnType, zone: Tz) -> Result<Operand, Wrong> {
    let text = match type_of(raw) {
        JsonType::String => {
            let text: String =
                serde_json::from_str(raw.get()).map_err(|_| Wrong::Type("a string"))?;
            if text.contains('\0') {
                return Err(Wrong::Value("free of the NUL character"));
            }
            Some(text)
        }
        JsonType::Null => return Err(Wrong::Value("a value; IS_NULL tests for NULL")),
        _ => None,
    };
    let number = (type_of(raw) == JsonType::Number).then(|| raw.get());
    let exact = |value| Ok(Operand::Exact(value));
    match column_type {
        ColumnType::Text => exact(Value::Text(text.ok_or(Wrong::Type("a string"))?)),
        ColumnType::Integer => {
            let digits = number
                .or(text.as_deref())
                .ok_or(Wrong::Type("a whole number, or one as a string"))?;
            exact(Value::Integer(
                whole_number(digits)
                    .ok_or(Wrong::Value("a whole number of at most 1,000 digits"))?,
            ))
        }
        ColumnType::Decimal | ColumnType::Float => {
            let digits =
                number.or(text.as_deref()).ok_or(Wrong::Type("a number, or one as a string"))?;
            exact(Value::Decimal(
                decimal_number(digits)
                    .ok_or(Wrong::Value("a decimal number of at most 1,000 digits"))?,
            ))
        }
        ColumnType::Boolean => exact(Value::Boolean(
            serde_json::from_str(raw.get()).map_err(|_| Wrong::Type("true or false"))?,
        )),
        ColumnType::Uuid => {
            let text = text.ok_or(Wrong::Type("a UUID string"))?;
            let uuid = Uuid::try_parse(&text).ok().filter(|_| text.len() == 36);
            exact(Value::Uuid(uuid.ok_or(Wrong::Value("a UUID in its hyphenated form"))?))
        }
        ColumnType::Date => {
            let day = text.as_deref().ok_or(Wrong::Type("a day as a string"))?;
            exact(Value::Date(parse_day(day).ok_or(Wrong::Value("a day such as 2026-07-01"))?))
        }
        ColumnType::Time => {
            let time = text.as_deref().ok_or(Wrong::Type("a time of day as a string"))?;
            let parsed = NaiveTime::parse_from_str(time, "%H:%M:%S%.f")
                .or_else(|_| NaiveTime::parse_from_str(time, "%H:%M"));
            exact(Value::Time(parsed.map_err(|_| Wrong::Value("a time such as 13:45:00"))?))
        }
        ColumnType::LocalTimestamp => {
            let text = text.as_deref().ok_or(Wrong::Type("a day or a time stamp as a string"))?;
            if let Some(day) = parse_day(text) {
                let next = day
                    .checked_add_days(Days::new(1))
                    .ok_or(Wrong::Value("a day that has a next one"))?;
                return Ok(Operand::Day {
                    start: Value::LocalTimestamp(day.and_time(NaiveTime::MIN)),
                    next: Value::LocalTimestamp(next.and_time(NaiveTime::MIN)),
                });
            }
            exact(Value::LocalTimestamp(parse_local(text).ok_or(Wrong::Value(
                "a day, or a time stamp without a zone such as 2026-07-01T13:45:00",
            ))?))
        }
        ColumnType::Timestamp => {
            let text = text.as_deref().ok_or(Wrong::Type("a day or an instant as a string"))?;
            if let Some(day) = parse_day(text) {
                let next = day
                    .checked_add_days(Days::new(1))
                    .ok_or(Wrong::Value("a day that has a next one"))?;
                return Ok(Operand::Day {
                    start: Value::Timestamp(day_start(day, zone)),
                    next: Value::Timestamp(day_start(next, zone)),
                });
            }
            let instant = DateTime::parse_from_rfc3339(text).map_err(|_| {
                Wrong::Value("a day, or an instant with a zone such as 2026-07-01T13:45:00Z")
            })?;
            exact(Value::Timestamp(instant.with_timezone(&Utc)))
        }
        ColumnType::Json | ColumnType::Binary => {
            Err(Wrong::Value("absent: this type has no values to compare"))
        }
    }
}

/// The first valid instant of a day in a zone: where midnight is skipped, the day starts later;
/// where it comes twice, with the earlier one.
pub fn day_start(day: NaiveDate, zone: Tz) -> DateTime<Utc> {
    instant_of(day.and_time(NaiveTime::MIN), zone)
}

/// The instant of a local time: the earlier one of two, the next valid one of none.
pub(super) fn instant_of(wanted: NaiveDateTime, zone: Tz) -> DateTime<Utc> {
    let mut local = wanted;
    // Gaps are at most some hours long, but for days skipped whole (Samoa, 2011-12-30).
    for _ in 0..=(26 * 60) {
        if let Some(instant) = zone.from_local_datetime(&local).earliest() {
            return instant.with_timezone(&Utc);
        }
        local += chrono::TimeDelta::minutes(1);
    }
    Utc.from_utc_datetime(&wanted)
}

fn parse_day(text: &str) -> Option<NaiveDate> {
    (text.len() == 10).then(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()).flatten()
}

fn parse_local(text: &str) -> Option<NaiveDateTime> {
    ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M"]
        .into_iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
}

const MOST_DIGITS: usize = 1_000;

fn whole_number(text: &str) -> Option<String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let valid = (1..=MOST_DIGITS).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| text.to_owned())
}

fn decimal_number(text: &str) -> Option<String> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let exponent_fits = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        unsigned.len() <= 4 && digits(unsigned)
    });
    let valid =
        text.len() <= MOST_DIGITS && digits(whole) && fraction.is_none_or(digits) && exponent_fits;
    valid.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).expect("an instant").with_timezone(&Utc)
    }

    fn day(text: &str) -> NaiveDate {
        parse_day(text).expect("a day")
    }

    #[test]
    fn a_day_starts_at_its_first_valid_instant() {
        let cases = [
            ("2026-07-01", Tz::America__Sao_Paulo, "2026-07-01T03:00:00Z"),
            // Midnight was skipped: the clock went from 23:59:59 to 01:00:00.
            ("2018-11-04", Tz::America__Sao_Paulo, "2018-11-04T03:00:00Z"),
            // Midnight came twice: the earlier one counts.
            ("2018-02-18", Tz::America__Sao_Paulo, "2018-02-18T03:00:00Z"),
            ("2026-03-29", Tz::Europe__Berlin, "2026-03-28T23:00:00Z"),
            // The whole day was skipped, so it starts where the next one does.
            ("2011-12-30", Tz::Pacific__Apia, "2011-12-30T10:00:00Z"),
        ];
        for (text, zone, expected) in cases {
            assert_eq!(day_start(day(text), zone), instant(expected), "{text} in {zone}");
        }
    }

    #[test]
    fn numbers_keep_every_digit_and_nothing_else_passes() {
        for good in ["0", "-1", "18446744073709551616", "000123"] {
            assert_eq!(whole_number(good).as_deref(), Some(good));
        }
        for bad in ["", "-", "1.0", "1e3", "+1", " 1", "1 ", "0x1", "١"] {
            assert_eq!(whole_number(bad), None, "{bad:?}");
        }
        for good in ["0.10", "-1.50e10", "1E-7", "12345678901234567890.12345678901234567890"] {
            assert_eq!(decimal_number(good).as_deref(), Some(good));
        }
        for bad in ["", ".", "1.", ".5", "NaN", "Infinity", "1e", "1e99999", "--1", "1;DROP"] {
            assert_eq!(decimal_number(bad), None, "{bad:?}");
        }
    }
}
