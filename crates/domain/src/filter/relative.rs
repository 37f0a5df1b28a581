//! Relative date operators: a range of whole calendar units around the moment of the request, in
//! the job's zone. Weeks start on Monday (ISO 8601).
//!
//! | Operator | Value | Range |
//! |---|---|---|
//! | `IN_LAST` | `{amount, unit, includeCurrent?}` | the `amount` whole units before the current one, and that one too if asked |
//! | `IN_NEXT` | `{amount, unit, includeCurrent?}` | the `amount` whole units after the current one, and that one too if asked |
//! | `IN_CURRENT` | `{unit}` | the current unit |
//! | `IN_PREVIOUS` | `{unit}` | the one whole unit before the current one |

use chrono::{
    DateTime, Datelike as _, Days, Months, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta,
    Timelike as _, Utc,
};
use chrono_tz::Tz;
use serde_json::value::RawValue;

use super::{operand::instant_of, operator::Operator};
use crate::{
    column::ColumnType,
    json::{FieldCode, FieldErrors, boolean, join, object, string},
    selection::{Bound, Test, Value},
};

const MOST_UNITS: u32 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

impl Unit {
    const ALL: [(&str, Self); 7] = [
        ("minute", Self::Minute),
        ("hour", Self::Hour),
        ("day", Self::Day),
        ("week", Self::Week),
        ("month", Self::Month),
        ("quarter", Self::Quarter),
        ("year", Self::Year),
    ];

    /// Where the unit that holds this moment starts.
    fn start(self, at: NaiveDateTime) -> Option<NaiveDateTime> {
        let midnight = |day: NaiveDate| day.and_time(NaiveTime::MIN);
        let day = at.date();
        Some(match self {
            Self::Minute => day.and_hms_opt(at.hour(), at.minute(), 0)?,
            Self::Hour => day.and_hms_opt(at.hour(), 0, 0)?,
            Self::Day => midnight(day),
            Self::Week => midnight(
                day.checked_sub_days(Days::new(u64::from(day.weekday().num_days_from_monday())))?,
            ),
            Self::Month => midnight(day.with_day(1)?),
            Self::Quarter => midnight(day.with_day(1)?.with_month0(day.month0() / 3 * 3)?),
            Self::Year => midnight(day.with_day(1)?.with_month(1)?),
        })
    }

    /// A start of a unit, moved by whole units.
    fn moved(self, start: NaiveDateTime, by: i32) -> Option<NaiveDateTime> {
        let months = |count: u32| {
            let months = Months::new(by.unsigned_abs().checked_mul(count)?);
            if by < 0 { start.checked_sub_months(months) } else { start.checked_add_months(months) }
        };
        match self {
            Self::Minute => start.checked_add_signed(TimeDelta::minutes(i64::from(by))),
            Self::Hour => start.checked_add_signed(TimeDelta::hours(i64::from(by))),
            Self::Day => start.checked_add_signed(TimeDelta::days(i64::from(by))),
            Self::Week => start.checked_add_signed(TimeDelta::weeks(i64::from(by))),
            Self::Month => months(1),
            Self::Quarter => months(3),
            Self::Year => months(12),
        }
    }
}

/// A range of units, counted from the current one (0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relative {
    unit: Unit,
    first: i32,
    after_last: i32,
}

impl Relative {
    /// Reads the value of a relative operator; what is wrong is noted.
    pub(super) fn read(
        operator: Operator,
        raw: &RawValue,
        path: &str,
        errors: &mut FieldErrors,
    ) -> Option<Self> {
        let counted = matches!(operator, Operator::InLast | Operator::InNext);
        let known: &[&str] =
            if counted { &["amount", "unit", "includeCurrent"] } else { &["unit"] };
        let members = object(raw, path, Some(known), errors)?;
        let member =
            |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
        let unit = required(member("unit"), &join(path, "unit"), errors)
            .and_then(|raw| read_unit(raw, path, errors));
        if !counted {
            let first = if operator == Operator::InPrevious { -1 } else { 0 };
            return Some(Self { unit: unit?, first, after_last: first + 1 });
        }
        let amount = required(member("amount"), &join(path, "amount"), errors)
            .and_then(|raw| read_amount(raw, path, errors));
        let current = match member("includeCurrent") {
            Some(raw) => boolean(raw, &join(path, "includeCurrent"), errors)?,
            None => false,
        };
        let (unit, amount) = (unit?, amount?);
        Some(if operator == Operator::InLast {
            Self { unit, first: -amount, after_last: i32::from(current) }
        } else {
            Self { unit, first: i32::from(!current), after_last: amount + 1 }
        })
    }

    /// The half-open range for a column of this type; `None` beyond the years that every engine
    /// and every text of a time stamp knows.
    pub(super) fn range(
        self,
        column_type: ColumnType,
        now: DateTime<Utc>,
        zone: Tz,
    ) -> Option<Test> {
        let current = self.unit.start(now.with_timezone(&zone).naive_local())?;
        let value = |by: i32| {
            let local = self.unit.moved(current, by)?;
            let instant = instant_of(local, zone);
            let known = |year: i32| (1..=9999).contains(&year);
            (known(local.year()) && known(instant.year())).then_some(match column_type {
                ColumnType::Date => Value::Date(local.date()),
                ColumnType::LocalTimestamp => Value::LocalTimestamp(local),
                _ => Value::Timestamp(instant),
            })
        };
        let (from, to) = (value(self.first)?, value(self.after_last)?);
        Some(Test::Range {
            from: Some(Bound { value: from, inclusive: true }),
            to: Some(Bound { value: to, inclusive: false }),
        })
    }
}

fn required<'a>(
    raw: Option<&'a RawValue>,
    path: &str,
    errors: &mut FieldErrors,
) -> Option<&'a RawValue> {
    if raw.is_none() {
        errors.push(path, FieldCode::Required, "is required");
    }
    raw
}

fn read_unit(raw: &RawValue, path: &str, errors: &mut FieldErrors) -> Option<Unit> {
    let path = join(path, "unit");
    let name = string(raw, &path, errors)?;
    let unit = Unit::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, unit)| unit);
    if unit.is_none() {
        let known: Vec<&str> = Unit::ALL.into_iter().map(|(name, _)| name).collect();
        errors.push(path, FieldCode::InvalidValue, format!("must be one of {}", known.join(", ")));
    }
    unit
}

fn read_amount(raw: &RawValue, path: &str, errors: &mut FieldErrors) -> Option<i32> {
    let amount = serde_json::from_str::<u32>(raw.get())
        .ok()
        .filter(|amount| (1..=MOST_UNITS).contains(amount));
    if amount.is_none() {
        let message = format!("must be a whole number from 1 to {MOST_UNITS}");
        errors.push(join(path, "amount"), FieldCode::InvalidValue, message);
    }
    amount.and_then(|amount| i32::try_from(amount).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(operator: Operator, value: &str, now: &str, zone: Tz) -> (String, String) {
        let raw = RawValue::from_string(value.to_owned()).expect("JSON");
        let mut errors = FieldErrors::default();
        let relative = Relative::read(operator, &raw, "value", &mut errors).expect("well-formed");
        let now = DateTime::parse_from_rfc3339(now).expect("an instant").with_timezone(&Utc);
        let Some(Test::Range { from: Some(from), to: Some(to) }) =
            relative.range(ColumnType::Timestamp, now, zone)
        else {
            panic!("a range");
        };
        let text = |bound: Bound| match bound.value {
            Value::Timestamp(at) => at.format("%FT%RZ").to_string(),
            other => panic!("{other:?}"),
        };
        assert!(from.inclusive && !to.inclusive);
        (text(from), text(to))
    }

    #[test]
    fn units_are_whole_and_of_the_zone() {
        let zone = Tz::America__Sao_Paulo;
        // A Sunday evening in São Paulo, a Monday in UTC.
        let now = "2026-07-06T01:30:00Z";
        let cases = [
            (
                Operator::InLast,
                r#"{"amount":3,"unit":"day"}"#,
                "2026-07-02T03:00Z",
                "2026-07-05T03:00Z",
            ),
            (
                Operator::InLast,
                r#"{"amount":3,"unit":"day","includeCurrent":true}"#,
                "2026-07-02T03:00Z",
                "2026-07-06T03:00Z",
            ),
            (
                Operator::InNext,
                r#"{"amount":1,"unit":"month"}"#,
                "2026-08-01T03:00Z",
                "2026-09-01T03:00Z",
            ),
            (
                Operator::InNext,
                r#"{"amount":1,"unit":"day","includeCurrent":true}"#,
                "2026-07-05T03:00Z",
                "2026-07-07T03:00Z",
            ),
            (Operator::InCurrent, r#"{"unit":"week"}"#, "2026-06-29T03:00Z", "2026-07-06T03:00Z"),
            (
                Operator::InCurrent,
                r#"{"unit":"quarter"}"#,
                "2026-07-01T03:00Z",
                "2026-10-01T03:00Z",
            ),
            (Operator::InPrevious, r#"{"unit":"year"}"#, "2025-01-01T03:00Z", "2026-01-01T03:00Z"),
            (Operator::InPrevious, r#"{"unit":"hour"}"#, "2026-07-06T00:00Z", "2026-07-06T01:00Z"),
        ];
        for (operator, value, from, to) in cases {
            assert_eq!(
                range(operator, value, now, zone),
                (from.to_owned(), to.to_owned()),
                "{} {value}",
                operator.name()
            );
        }
    }

    #[test]
    fn a_day_of_a_clock_change_is_as_long_as_it_is() {
        let (from, to) = range(
            Operator::InCurrent,
            r#"{"unit":"day"}"#,
            "2026-03-29T12:00:00Z",
            Tz::Europe__Berlin,
        );
        assert_eq!((from.as_str(), to.as_str()), ("2026-03-28T23:00Z", "2026-03-29T22:00Z"));
    }

    #[test]
    fn wrong_values_are_named() {
        let cases = [
            (Operator::InLast, r#"{"unit":"day"}"#, "value.amount"),
            (Operator::InLast, r#"{"amount":0,"unit":"day"}"#, "value.amount"),
            (Operator::InLast, r#"{"amount":1.5,"unit":"day"}"#, "value.amount"),
            (Operator::InLast, r#"{"amount":1,"unit":"fortnight"}"#, "value.unit"),
            (Operator::InCurrent, r#"{"unit":"day","amount":1}"#, "value.amount"),
            (Operator::InCurrent, r#""day""#, "value"),
        ];
        for (operator, value, field) in cases {
            let raw = RawValue::from_string(value.to_owned()).expect("JSON");
            let mut errors = FieldErrors::default();
            let read = Relative::read(operator, &raw, "value", &mut errors);
            let errors = errors.into_vec();
            assert!(
                errors.first().is_some_and(|error| error.field == field),
                "{value}: {read:?} {errors:?}"
            );
        }
    }
}
