//! Values of COPY's binary form, printed to the byte as the server's own output functions print
//! them under the settings of `session`.
//!
//! Only types whose text follows from their bytes alone are here. What depends on the server's
//! own knowledge (zones other than UTC) or is not worth doing twice (floats, intervals) the
//! server prints itself: [`form`] names the function that does.

use outport_domain::column::ColumnType;

use crate::compile::postgres::{Family, RealType};

/// How the bytes of a column's values become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// They are the text.
    Text,
    Boolean,
    /// Of 2, 4 or 8 bytes.
    Integer,
    Numeric,
    Date,
    Time,
    LocalTimestamp,
    /// An instant in UTC.
    Timestamp,
    Uuid,
    /// Hex digits.
    Bytes,
    /// A text behind the number of its form.
    Jsonb,
}

/// How a column travels, or `None` when its type is not known to print the same both ways. The
/// name is that of the server's own function to print it with, if that is to be used.
pub(super) fn form(
    real: &RealType,
    column_type: ColumnType,
    in_utc: bool,
) -> Option<(Form, Option<&'static str>)> {
    let by_server = |function| Some((Form::Text, Some(function)));
    let by_us = |form| Some((form, None));
    match &real.family {
        Family::Text | Family::Enum { .. } => by_us(Form::Text),
        Family::Boolean => by_us(Form::Boolean),
        Family::Integer => by_us(Form::Integer),
        Family::Numeric => by_us(Form::Numeric),
        Family::Date => by_us(Form::Date),
        Family::Time => by_us(Form::Time),
        Family::LocalTimestamp => by_us(Form::LocalTimestamp),
        Family::Timestamp if in_utc => by_us(Form::Timestamp),
        Family::Timestamp => by_server("timestamptz_out"),
        Family::Uuid => by_us(Form::Uuid),
        Family::Float4 => by_server("float4out"),
        Family::Float8 => by_server("float8out"),
        Family::Money => by_server("cash_out"),
        Family::ZonedTime => by_server("timetz_out"),
        // The compiled statement makes JSON of it.
        Family::Nested if column_type == ColumnType::Json => by_us(Form::Text),
        Family::OtherText | Family::Other => match real.name.as_str() {
            "character" | "name" | "json" => by_us(Form::Text),
            "jsonb" => by_us(Form::Jsonb),
            "bytea" => by_us(Form::Bytes),
            "interval" => by_server("interval_out"),
            _ => None,
        },
        Family::Nested => None,
    }
}

/// The bytes are no value of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoValue;

/// Appends the text of a value.
#[inline]
pub(super) fn print(form: Form, value: &[u8], out: &mut Vec<u8>) -> Result<(), NoValue> {
    match form {
        Form::Text => out.extend_from_slice(value),
        Form::Integer => integer(value, out)?,
        Form::Numeric => numeric(value, out)?,
        Form::Timestamp => timestamp(i64_of(value)?, b"+00", out),
        Form::Uuid => uuid(value, out)?,
        Form::Boolean => out.push(match value {
            [0] => b'f',
            [_] => b't',
            _ => return Err(NoValue),
        }),
        Form::Date => date(i32_of(value)?, out),
        Form::Time => {
            time(u64::try_from(i64_of(value)?).map_err(|_| NoValue)?, out);
        }
        Form::LocalTimestamp => timestamp(i64_of(value)?, b"", out),
        Form::Bytes => {
            out.extend_from_slice(b"\\x");
            for &byte in value {
                out.extend_from_slice(&HEX[usize::from(byte)]);
            }
        }
        Form::Jsonb => match value {
            [1, text @ ..] => out.extend_from_slice(text),
            _ => return Err(NoValue),
        },
    }
    Ok(())
}

/// `00` to `99`.
const TWO: [[u8; 2]; 100] = {
    let mut all = [[b'0'; 2]; 100];
    let mut n = 0;
    while n < 100 {
        all[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    all
};

/// `00` to `ff`.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut all = [[b'0'; 2]; 256];
    let mut n = 0;
    while n < 256 {
        all[n] = [digits[n >> 4], digits[n & 15]];
        n += 1;
    }
    all
};

fn i64_of(value: &[u8]) -> Result<i64, NoValue> {
    value.try_into().map(i64::from_be_bytes).map_err(|_| NoValue)
}

fn i32_of(value: &[u8]) -> Result<i32, NoValue> {
    value.try_into().map(i32::from_be_bytes).map_err(|_| NoValue)
}

fn integer(value: &[u8], out: &mut Vec<u8>) -> Result<(), NoValue> {
    let value = match value.len() {
        8 => i64_of(value)?,
        4 => i64::from(i32_of(value)?),
        2 => i64::from(value.try_into().map(i16::from_be_bytes).map_err(|_| NoValue)?),
        _ => return Err(NoValue),
    };
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    Ok(())
}

/// Digits to base 10,000 with the weight of the first, a sign, and how many decimals are shown.
fn numeric(value: &[u8], out: &mut Vec<u8>) -> Result<(), NoValue> {
    let ([count, weight, sign, scale], digits) = words::<4>(value).ok_or(NoValue)?;
    if digits.len() != usize::from(count) * 2 {
        return Err(NoValue);
    }
    let weight = i32::from(weight.cast_signed());
    let (front, is_finite): (&[u8], bool) = match sign {
        0x0000 => (b"", true),
        0x4000 => (b"-", true),
        0xC000 => (b"NaN", false),
        0xD000 => (b"Infinity", false),
        0xF000 => (b"-Infinity", false),
        _ => return Err(NoValue),
    };
    out.extend_from_slice(front);
    if !is_finite {
        return Ok(());
    }
    let digit = |position: i32| {
        let at = usize::try_from(position).ok().and_then(|position| position.checked_mul(2));
        match at.and_then(|at| digits.get(at..at + 2)) {
            Some(&[high, low]) => u16::from_be_bytes([high, low]),
            _ => 0,
        }
    };
    if weight < 0 {
        out.push(b'0');
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(digit(0)).as_bytes());
        for position in 1..=weight {
            out.extend_from_slice(&four(digit(position))?);
        }
    }
    let mut scale = usize::from(scale & 0x3FFF);
    if scale > 0 {
        out.push(b'.');
        let mut position = weight + 1;
        while scale > 0 {
            let shown = scale.min(4);
            out.extend_from_slice(&four(digit(position))?[..shown]);
            scale -= shown;
            position += 1;
        }
    }
    Ok(())
}

/// The numbers of 16 bits in front.
fn words<const COUNT: usize>(bytes: &[u8]) -> Option<([u16; COUNT], &[u8])> {
    let mut all = [0; COUNT];
    let mut rest = bytes;
    for word in &mut all {
        let (front, behind) = rest.split_first_chunk::<2>()?;
        *word = u16::from_be_bytes(*front);
        rest = behind;
    }
    Some((all, rest))
}

fn four(digit: u16) -> Result<[u8; 4], NoValue> {
    let [a, b] = *TWO.get(usize::from(digit / 100)).ok_or(NoValue)?;
    let [c, d] = TWO[usize::from(digit % 100)];
    Ok([a, b, c, d])
}

fn uuid(value: &[u8], out: &mut Vec<u8>) -> Result<(), NoValue> {
    let value: &[u8; 16] = value.try_into().map_err(|_| NoValue)?;
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (index, &byte) in value.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        [text[at], text[at + 1]] = HEX[usize::from(byte)];
        at += 2;
    }
    out.extend_from_slice(&text);
    Ok(())
}

const DAY_MICROSECONDS: i64 = 86_400_000_000;

/// Days since 2000-01-01.
fn date(days: i32, out: &mut Vec<u8>) {
    match days {
        i32::MAX => out.extend_from_slice(b"infinity"),
        i32::MIN => out.extend_from_slice(b"-infinity"),
        _ => {
            let bc = year_month_day(i64::from(days), out);
            out.extend_from_slice(if bc { b" BC" } else { b"" });
        }
    }
}

/// Microseconds since 2000-01-01.
fn timestamp(microseconds: i64, zone: &[u8], out: &mut Vec<u8>) {
    match microseconds {
        i64::MAX => out.extend_from_slice(b"infinity"),
        i64::MIN => out.extend_from_slice(b"-infinity"),
        _ => {
            let bc = year_month_day(microseconds.div_euclid(DAY_MICROSECONDS), out);
            out.push(b' ');
            time(microseconds.rem_euclid(DAY_MICROSECONDS).cast_unsigned(), out);
            out.extend_from_slice(zone);
            out.extend_from_slice(if bc { b" BC" } else { b"" });
        }
    }
}

/// Prints the day and says whether its year is before Christ.
fn year_month_day(days: i64, out: &mut Vec<u8>) -> bool {
    // The Gregorian calendar for all time, in eras of 400 years that begin on the first of March
    // of the year 0.
    let day = days + 730_425;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);

    let bc = year <= 0;
    let shown = if bc { 1 - year } else { year }.cast_unsigned();
    if let Ok(Ok(digits)) = u16::try_from(shown).map(four) {
        out.extend_from_slice(&digits);
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(shown).as_bytes());
    }
    let ([m1, m2], [d1, d2]) = (TWO[month as usize], TWO[day_of_month as usize]);
    out.extend_from_slice(&[b'-', m1, m2, b'-', d1, d2]);
    bc
}

/// Microseconds since midnight, a whole day at most.
fn time(microseconds: u64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
    let two = |number: u64| TWO[(number % 100) as usize];
    let ([h1, h2], [m1, m2], [s1, s2]) =
        (two(seconds / 3_600), two(seconds / 60 % 60), two(seconds % 60));
    out.extend_from_slice(&[h1, h2, b':', m1, m2, b':', s1, s2]);
    if fraction > 0 {
        let (head, middle, tail) = (two(fraction / 10_000), two(fraction / 100), two(fraction));
        let digits = [b'.', head[0], head[1], middle[0], middle[1], tail[0], tail[1]];
        let shown = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        out.extend_from_slice(&digits[..shown]);
    }
}

#[cfg(test)]
mod tests {
    use super::{Form, NoValue, print};

    fn printed(form: Form, value: &[u8]) -> Result<String, NoValue> {
        let mut out = Vec::new();
        print(form, value, &mut out)?;
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn values_of_a_wrong_size_are_refused() {
        for form in [
            Form::Boolean,
            Form::Integer,
            Form::Numeric,
            Form::Date,
            Form::Time,
            Form::LocalTimestamp,
            Form::Timestamp,
            Form::Uuid,
            Form::Jsonb,
        ] {
            for size in [0, 3, 5, 7, 9, 15, 17] {
                assert_eq!(printed(form, &vec![0; size]), Err(NoValue), "{form:?} of {size} bytes");
            }
        }
    }

    #[test]
    fn digits_beyond_the_base_are_refused() {
        let value = [0, 1, 0, 1, 0, 0, 0, 0, 0, 5];
        assert_eq!(printed(Form::Numeric, &value).as_deref(), Ok("50000"));
        let value = [0, 2, 0, 1, 0, 0, 0, 0, 0, 5, 0xFF, 0xFF];
        assert_eq!(printed(Form::Numeric, &value), Err(NoValue));
    }

    #[test]
    fn days_are_counted_as_the_server_counts_them() {
        let days = |days: i32| printed(Form::Date, &days.to_be_bytes()).expect("a day");
        assert_eq!(days(0), "2000-01-01");
        assert_eq!(days(59), "2000-02-29");
        assert_eq!(days(-1), "1999-12-31");
        assert_eq!(days(-730_119), "0001-01-01");
        assert_eq!(days(-730_120), "0001-12-31 BC");
        assert_eq!(days(i32::MAX), "infinity");
        assert_eq!(days(i32::MIN), "-infinity");
    }
}
