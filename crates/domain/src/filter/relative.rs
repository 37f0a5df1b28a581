//! Relative date operators: a range of whole calendar units around the moment of the request, in
//! the job's zone. Weeks start on Monday (ISO 8601).
//!
//! Minutes and hours of instants are lengths of time: they start where the zone's clock shows a
//! full one, and are counted in seconds from there, so that none is missing or double where the
//! clock changes. Those of time stamps without a zone are what the clock shows. Days have neither.
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
    /// From the shortest to the longest.
    const ALL: [(&str, Self); 7] = [
        ("minute", Self::Minute),
        ("hour", Self::Hour),
        ("day", Self::Day),
        ("week", Self::Week),
        ("month", Self::Month),
        ("quarter", Self::Quarter),
        ("year", Self::Year),
    ];

    /// The units that a column of this type is asked for.
    fn of(column_type: ColumnType) -> &'static [(&'static str, Self)] {
        match column_type {
            ColumnType::Date => &Self::ALL[2..],
            _ => &Self::ALL,
        }
    }

    /// How long it is, if it is always as long.
    fn length(self) -> Option<TimeDelta> {
        match self {
            Self::Minute => Some(TimeDelta::minutes(1)),
            Self::Hour => Some(TimeDelta::hours(1)),
            Self::Day | Self::Week | Self::Month | Self::Quarter | Self::Year => None,
        }
    }

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
    /// Reads the value of a relative operator on a column of this type; what is wrong is noted.
    pub(super) fn read(
        operator: Operator,
        column_type: ColumnType,
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
            .and_then(|raw| read_unit(raw, column_type, path, errors));
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
        let local_now = now.with_timezone(&zone).naive_local();
        let current = self.unit.start(local_now)?;
        let value = |by: i32| {
            let local = self.unit.moved(current, by)?;
            let instant = match self.unit.length() {
                Some(length) => now
                    .checked_sub_signed(local_now - current)?
                    .checked_add_signed(length.checked_mul(by)?)?,
                None => instant_of(local, zone),
            };
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

fn read_unit(
    raw: &RawValue,
    column_type: ColumnType,
    path: &str,
    errors: &mut FieldErrors,
) -> Option<Unit> {
    let path = join(path, "unit");
    let name = string(raw, &path, errors)?;
    let units = Unit::of(column_type);
    let unit = units.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit);
    if unit.is_none() {
        let known: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        let (known, of) = (known.join(", "), column_type.name());
        let message = format!("must be one of {known} for a column of type {of}");
        errors.push(path, FieldCode::InvalidValue, message);
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

    fn values(
        operator: Operator,
        column_type: ColumnType,
        value: &str,
        now: &str,
        zone: Tz,
    ) -> (Value, Value) {
        let raw = RawValue::from_string(value.to_owned()).expect("JSON");
        let mut errors = FieldErrors::default();
        let relative = Relative::read(operator, column_type, &raw, "value", &mut errors);
        let now = DateTime::parse_from_rfc3339(now).expect("an instant").with_timezone(&Utc);
        let Some(Test::Range { from: Some(from), to: Some(to) }) =
            relative.expect("well-formed").range(column_type, now, zone)
        else {
            panic!("a range");
        };
        assert!(from.inclusive && !to.inclusive);
        (from.value, to.value)
    }

    fn range(operator: Operator, value: &str, now: &str, zone: Tz) -> (String, String) {
        let text = |value: Value| match value {
            Value::Timestamp(at) => at.format("%FT%RZ").to_string(),
            other => panic!("{other:?}"),
        };
        let (from, to) = values(operator, ColumnType::Timestamp, value, now, zone);
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
    fn minutes_and_hours_are_as_long_as_ever_where_the_clock_changes() {
        use Operator::{InCurrent, InLast, InNext, InPrevious};
        // The clock shows 02:30:20 for the second time, and 03:30:20 half an hour after 02:00.
        let (twice, skipped) = ("2026-10-25T01:30:20Z", "2026-03-29T01:30:20Z");
        let (berlin, kathmandu) = (Tz::Europe__Berlin, Tz::Asia__Kathmandu);
        let cases = [
            (InLast, r#"{"amount":5,"unit":"minute"}"#, twice, berlin, "01:25Z", "01:30Z"),
            (InNext, r#"{"amount":5,"unit":"minute"}"#, twice, berlin, "01:31Z", "01:36Z"),
            (InCurrent, r#"{"unit":"minute"}"#, twice, berlin, "01:30Z", "01:31Z"),
            (InCurrent, r#"{"unit":"hour"}"#, twice, berlin, "01:00Z", "02:00Z"),
            (InPrevious, r#"{"unit":"hour"}"#, twice, berlin, "00:00Z", "01:00Z"),
            (InLast, r#"{"amount":2,"unit":"hour"}"#, twice, berlin, "23:00Z", "01:00Z"),
            (InLast, r#"{"amount":1,"unit":"hour"}"#, skipped, berlin, "00:00Z", "01:00Z"),
            (InLast, r#"{"amount":40,"unit":"minute"}"#, skipped, berlin, "00:50Z", "01:30Z"),
            (InCurrent, r#"{"unit":"hour"}"#, skipped, berlin, "01:00Z", "02:00Z"),
            (InCurrent, r#"{"unit":"hour"}"#, "2026-03-29T00:30:20Z", berlin, "00:00Z", "01:00Z"),
            (
                InNext,
                r#"{"amount":1,"unit":"hour"}"#,
                "2026-03-29T00:30:20Z",
                berlin,
                "01:00Z",
                "02:00Z",
            ),
            // 05:45 ahead of UTC: its hours start at a quarter past those of UTC.
            (
                InCurrent,
                r#"{"unit":"hour"}"#,
                "2026-07-06T10:10:00Z",
                kathmandu,
                "09:15Z",
                "10:15Z",
            ),
            (
                InLast,
                r#"{"amount":3,"unit":"hour"}"#,
                "2026-07-06T10:20:00Z",
                kathmandu,
                "07:15Z",
                "10:15Z",
            ),
        ];
        for (operator, value, now, zone, from, to) in cases {
            let found = range(operator, value, now, zone);
            let told = format!("{} {value} at {now}: {found:?}", operator.name());
            assert!(found.0.ends_with(from) && found.1.ends_with(to), "{told}");
        }
    }

    #[test]
    fn the_current_minute_and_hour_hold_the_moment_at_any_time_of_a_clock_change() {
        let zones = [Tz::Europe__Berlin, Tz::Australia__Lord_Howe, Tz::America__St_Johns, Tz::UTC];
        let days =
            ["2026-03-08", "2026-03-29", "2026-04-04", "2026-10-03", "2026-10-25", "2026-11-01"];
        for (zone, day) in zones.into_iter().flat_map(|zone| days.map(|day| (zone, day))) {
            let midnight: DateTime<Utc> = format!("{day}T00:00:07Z").parse().expect("an instant");
            for minute in 0..(24 * 60) {
                let now = midnight + TimeDelta::minutes(minute);
                for (unit, length) in [("minute", 60), ("hour", 3_600)] {
                    let (value, at) = (format!(r#"{{"unit":"{unit}"}}"#), now.to_rfc3339());
                    let column = ColumnType::Timestamp;
                    let found = values(Operator::InCurrent, column, &value, &at, zone);
                    let (Value::Timestamp(from), Value::Timestamp(to)) = found else {
                        panic!("{found:?}");
                    };
                    assert!(from <= now && now < to, "{unit} of {zone} at {at}: {from} to {to}");
                    assert_eq!((to - from).num_seconds(), length, "{unit} of {zone} at {at}");
                }
            }
        }
    }

    #[test]
    fn minutes_and_hours_without_a_zone_are_what_the_clock_shows() {
        let value = r#"{"amount":2,"unit":"hour"}"#;
        let (now, zone) = ("2026-10-25T01:30:20Z", Tz::Europe__Berlin);
        let local = |text: &str| Value::LocalTimestamp(text.parse().expect("a time stamp"));
        assert_eq!(
            values(Operator::InLast, ColumnType::LocalTimestamp, value, now, zone),
            (local("2026-10-25T00:00:00"), local("2026-10-25T02:00:00"))
        );
    }

    #[test]
    fn a_column_of_days_has_no_minutes_and_hours() {
        for unit in ["minute", "hour"] {
            let raw = RawValue::from_string(format!(r#"{{"unit":"{unit}"}}"#)).expect("JSON");
            let mut errors = FieldErrors::default();
            let column = ColumnType::Date;
            let read = Relative::read(Operator::InCurrent, column, &raw, "value", &mut errors);
            assert_eq!(read, None);
            let errors = errors.into_vec();
            let told: Vec<_> =
                errors.iter().map(|error| (error.field.as_str(), error.message.as_str())).collect();
            let rule = "must be one of day, week, month, quarter, year for a column of type date";
            assert_eq!(told, [("value.unit", rule)]);
        }
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
            let column = ColumnType::Timestamp;
            let read = Relative::read(operator, column, &raw, "value", &mut errors);
            let errors = errors.into_vec();
            assert!(
                errors.first().is_some_and(|error| error.field == field),
                "{value}: {read:?} {errors:?}"
            );
        }
    }
}
