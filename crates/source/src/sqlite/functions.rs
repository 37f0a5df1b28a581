//! Functions that our queries of an SQLite file use, because its own comparisons are by storage
//! class: `outport_number`, `outport_instant`, `outport_day`, `outport_time`, `outport_fold`.
//! All are NULL for what is not of their kind.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike};
use rusqlite::{
    Connection,
    functions::{Context, FunctionFlags},
    types::ValueRef,
};

/// A number as a text that sorts like the number.
pub(crate) const NUMBER: &str = "outport_number";
/// An ISO instant as microseconds since 1970.
pub(crate) const INSTANT: &str = "outport_instant";
/// The day that an ISO day or time stamp starts with, as its number.
pub(crate) const DAY: &str = "outport_day";
/// An ISO time of day as microseconds since midnight.
pub(crate) const TIME: &str = "outport_time";
/// A text with upper case made lower, in all of Unicode.
pub(crate) const FOLD: &str = "outport_fold";

/// Makes the functions known to a connection.
pub(crate) fn register(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function(NUMBER, 1, flags, |context| {
        Ok(match context.get_raw(0) {
            ValueRef::Integer(integer) => number_key(&integer.to_string()),
            ValueRef::Real(real) => float_key(real),
            ValueRef::Text(text) => std::str::from_utf8(text).ok().and_then(number_key),
            ValueRef::Null | ValueRef::Blob(_) => None,
        })
    })?;
    connection.create_scalar_function(INSTANT, 1, flags, |context| {
        Ok(text(context).and_then(parse_instant))
    })?;
    connection.create_scalar_function(DAY, 1, flags, |context| {
        Ok(text(context).and_then(parse_day).map(day_number))
    })?;
    connection.create_scalar_function(TIME, 1, flags, |context| {
        Ok(text(context).and_then(parse_time).map(microseconds_of_day))
    })?;
    connection.create_scalar_function(FOLD, 1, flags, |context| {
        Ok(match context.get_raw(0) {
            ValueRef::Text(text) => Some(fold(&String::from_utf8_lossy(text))),
            _ => None,
        })
    })
}

fn text<'a>(context: &'a Context<'_>) -> Option<&'a str> {
    match context.get_raw(0) {
        ValueRef::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

/// Character by character, so that a part of a text folds like the whole, and each to one, as
/// other engines do: `İ` is the only one whose lower case is longer.
pub(crate) fn fold(text: &str) -> String {
    text.chars().map(|c| c.to_lowercase().next().unwrap_or(c)).collect()
}

pub(crate) fn day_number(date: NaiveDate) -> i64 {
    date.num_days_from_ce().into()
}

pub(crate) fn microseconds_of_day(time: NaiveTime) -> i64 {
    i64::from(time.num_seconds_from_midnight()) * 1_000_000 + i64::from(time.nanosecond() / 1_000)
}

fn parse_day(text: &str) -> Option<NaiveDate> {
    let (day, rest) = text.split_at_checked(10)?;
    let own = rest.is_empty() || rest.starts_with(['T', 't', ' ']);
    own.then(|| NaiveDate::parse_from_str(day, "%Y-%m-%d").ok()).flatten()
}

fn parse_time(text: &str) -> Option<NaiveTime> {
    NaiveTime::parse_from_str(text, "%H:%M:%S%.f")
        .or_else(|_| NaiveTime::parse_from_str(text, "%H:%M"))
        .ok()
}

/// `2026-07-01`, `2026-07-01 13:45`, `2026-07-01T13:45:00.5Z`, `2026-07-01 13:45:00-03:00` and
/// their kin; UTC where no zone is given.
fn parse_instant(text: &str) -> Option<i64> {
    let day = parse_day(text)?;
    let rest = text.get(11..).unwrap_or_default();
    let (time, offset) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let time =
        if rest.is_empty() { NaiveTime::MIN } else { parse_time(time.trim_end_matches(' '))? };
    let local = NaiveDateTime::new(day, time).and_utc().timestamp_micros();
    local.checked_sub(parse_offset(offset)?)
}

/// In microseconds; east is positive.
fn parse_offset(text: &str) -> Option<i64> {
    if matches!(text, "" | "Z" | "z") {
        return Some(0);
    }
    // The parser of offsets is chrono's; any day will do.
    let instant =
        DateTime::parse_from_str(&format!("2000-01-01 00:00 {text}"), "%Y-%m-%d %H:%M %#z");
    instant.ok().map(|instant| i64::from(instant.offset().local_minus_utc()) * 1_000_000)
}

fn float_key(float: f64) -> Option<String> {
    if float.is_finite() {
        number_key(ryu::Buffer::new().format_finite(float))
    } else if float.is_nan() {
        None
    } else {
        // Beyond every number's key, whose second character is a digit.
        Some(if float > 0.0 { "2g" } else { "0 " }.to_owned())
    }
}

/// A text that sorts like the number: sign, power of ten, digits. Numbers that are equal have
/// the same key, whatever zeros they are written with.
pub(crate) fn number_key(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = !(whole.is_empty() && fraction.is_empty())
        && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !is_number {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    // The value is 0.d1d2d3… times ten to this power.
    let zeros = i32::try_from(digits.len() - significant.len()).ok()?;
    let power = exponent.checked_add(i32::try_from(whole.len()).ok()?)?.checked_sub(zeros)?;
    let significant = significant.trim_end_matches('0');
    if significant.is_empty() {
        return Some("1".to_owned());
    }
    // Shifted so that a lower power sorts first.
    let power = power.cast_unsigned() ^ (1 << 31);
    Some(if negative {
        let digits = significant.bytes().map(|digit| char::from(b'0' + (b'9' - digit)));
        // A shorter one is nearer to zero, hence larger: it ends above every digit.
        format!("0{:08x}{}~", !power, digits.collect::<String>())
    } else {
        format!("2{power:08x}{significant}")
    })
}

#[cfg(test)]
mod tests {
    use super::{float_key, fold, number_key, parse_instant};

    #[test]
    fn keys_sort_like_the_numbers() {
        let ascending = [
            "-1e400",
            "-99999999999999999999.5",
            "-99999999999999999999",
            "-123",
            "-12.5",
            "-12",
            "-0.123",
            "-0.12",
            "-1e-9",
            "0",
            "1e-9",
            "0.099",
            "0.1",
            "0.12",
            "9",
            "10",
            "10.000000000000000000000000000001",
            "99",
            "100",
            "9223372036854775807",
            "9223372036854775808",
            "1e30",
            "1e400",
        ];
        let mut keys = vec![float_key(f64::NEG_INFINITY).expect("a key")];
        keys.extend(ascending.iter().map(|text| number_key(text).expect("a number")));
        keys.push(float_key(f64::INFINITY).expect("a key"));
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
    }

    #[test]
    fn equal_numbers_have_one_key_and_other_texts_none() {
        for same in ["1.50", "+1.5", "01.5", "15e-1", " 1.5 ", "0.15E1", "1.5e0"] {
            assert_eq!(number_key(same), number_key("1.5"), "{same}");
        }
        for zero in ["0", "-0", "0.00", "0e5", "-0.0"] {
            assert_eq!(number_key(zero).as_deref(), Some("1"), "{zero}");
        }
        for other in ["", ".", "-", "abc", "1a", "0x10", "1e", "1.2.3", "NaN", "Infinity", "--1"] {
            assert_eq!(number_key(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_forms_of_an_instant_are_one_instant() {
        let expected = Some(1_782_913_500_500_000);
        for text in [
            "2026-07-01T13:45:00.5Z",
            "2026-07-01 13:45:00.5",
            "2026-07-01 13:45:00.500000+00:00",
            "2026-07-01T10:45:00.5-03:00",
            "2026-07-01 10:45:00.5 -03",
            "2026-07-02T03:45:00.5+1400",
        ] {
            assert_eq!(parse_instant(text), expected, "{text}");
        }
        assert_eq!(parse_instant("2026-07-01"), Some(1_782_864_000_000_000));
        assert_eq!(parse_instant("2026-07-01 13:45"), Some(1_782_913_500_000_000));
        for text in ["", "2026-07", "2026-13-01", "2026-07-01x", "1782913500", "2026-07-01Té"] {
            assert_eq!(parse_instant(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_part_folds_like_the_whole() {
        assert_eq!(fold("ÁÉÇ"), "áéç");
        assert_eq!(fold("İZMİR"), "izmir");
        assert!(fold("ΟΔΟΣ ΣΑΣ").contains(&fold("ΟΔΟΣ")));
    }
}
