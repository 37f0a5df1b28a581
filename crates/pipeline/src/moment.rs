//! Days, times and instants as the engines print them: ISO 8601 with a space or a `T`, fractions
//! of a second, ` BC`, and offsets down to the second. What is finer than a microsecond, or no
//! such text (`infinity`, `24:00:00`), is `None`.

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

/// A day, e.g. `2026-07-01`, `12026-07-01` or `0044-03-15 BC`.
pub(crate) fn day(cell: &[u8]) -> Option<NaiveDate> {
    let (text, before_christ) = era(std::str::from_utf8(cell).ok()?);
    parse_day(text, before_christ)
}

/// A time of day, e.g. `13:45` or `13:45:00.5`.
pub(crate) fn time(cell: &[u8]) -> Option<NaiveTime> {
    parse_time(std::str::from_utf8(cell).ok()?)
}

/// A day and a time without a zone.
pub(crate) fn local(cell: &[u8]) -> Option<NaiveDateTime> {
    match stamp(cell)? {
        (local, None) => Some(local),
        (_, Some(_)) => None,
    }
}

/// A day and a time as a clock showed them, and its offset in seconds, east positive.
pub(crate) fn instant(cell: &[u8]) -> Option<(NaiveDateTime, i32)> {
    match stamp(cell)? {
        (local, Some(offset)) => Some((local, offset)),
        // Where SQLite's texts name no zone they mean UTC, as for filters.
        (local, None) => Some((local, 0)),
    }
}

fn era(text: &str) -> (&str, bool) {
    text.strip_suffix(" BC").map_or((text, false), |text| (text, true))
}

fn stamp(cell: &[u8]) -> Option<(NaiveDateTime, Option<i32>)> {
    let (text, before_christ) = era(std::str::from_utf8(cell).ok()?);
    let Some((date, rest)) = text.split_once([' ', 'T']) else {
        return Some((parse_day(text, before_christ)?.and_time(NaiveTime::MIN), None));
    };
    let (time, offset) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => (&rest[..at], Some(parse_offset(&rest[at..])?)),
        None => (rest, None),
    };
    Some((parse_day(date, before_christ)?.and_time(parse_time(time)?), offset))
}

fn parse_day(text: &str, before_christ: bool) -> Option<NaiveDate> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || year.len() < 4 {
        return None;
    }
    let year = i32::try_from(digits(year)?).ok()?;
    // The year before 1 is 1 BC.
    let year = if before_christ { 1 - year } else { year };
    NaiveDate::from_ymd_opt(year, two_digits(month)?, two_digits(day)?)
}

fn parse_time(text: &str) -> Option<NaiveTime> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = whole.split(':');
    let (hour, minute) = (two_digits(parts.next()?)?, two_digits(parts.next()?)?);
    let second = parts.next().map_or(Some(0), two_digits)?;
    let fraction = match fraction.trim_end_matches('0') {
        "" => "0",
        fraction => fraction,
    };
    if parts.next().is_some() || fraction.len() > 6 {
        return None;
    }
    let micros = digits(fraction)? * 10_u32.pow(6 - fraction.len() as u32);
    NaiveTime::from_hms_micro_opt(hour, minute, second, micros)
}

fn parse_offset(text: &str) -> Option<i32> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let (sign, text) = (if text.starts_with('-') { -1 } else { 1 }, &text[1..]);
    let mut seconds = 0;
    let mut unit = 3600;
    for part in text.split(':') {
        seconds += i32::try_from(two_digits(part)?).ok()? * unit;
        unit /= 60;
    }
    Some(sign * seconds)
}

fn two_digits(text: &str) -> Option<u32> {
    (text.len() == 2).then(|| digits(text)).flatten()
}

fn digits(text: &str) -> Option<u32> {
    // `parse` would take a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<i64> {
        instant(text.as_bytes())
            .map(|(local, offset)| local.and_utc().timestamp() - i64::from(offset))
    }

    #[test]
    fn the_forms_of_an_instant_are_one_instant() {
        for text in [
            "2026-07-01 13:45:00+00",
            "2026-07-01 10:45:00-03",
            "2026-07-01T19:15:00+05:30",
            "2026-07-01T13:45:00Z",
            "2026-07-01 13:45:00.000000",
            "2026-07-01 13:08:30-00:36:30",
        ] {
            assert_eq!(seconds(text), Some(1_782_913_500), "{text}");
        }
    }

    #[test]
    fn days_far_away_are_days() {
        assert_eq!(day(b"0044-03-15 BC"), NaiveDate::from_ymd_opt(-43, 3, 15));
        assert_eq!(day(b"12026-07-01"), NaiveDate::from_ymd_opt(12026, 7, 1));
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for text in
            ["", "infinity", "2026-02-30", "2026-7-1", "26-07-01", "2026-07-01 24:00:00", "é"]
        {
            assert_eq!(instant(text.as_bytes()), None, "{text:?}");
        }
        for text in ["13:45:60", "13", "1:45", "13:45:00.1234567", "13:45+02", "+1:00"] {
            assert_eq!(time(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(time(b"13:45:00.1234560"), NaiveTime::from_hms_micro_opt(13, 45, 0, 123_456));
        assert_eq!(local(b"2026-07-01 13:45:00+00"), None, "it has an offset");
    }
}
