//! Values of COPY's binary form, printed to the byte as the server's own output functions print
//! them under the settings of `session`.
//!
//! Only types whose text follows from their bytes alone are here. What depends on the server's
//! own knowledge (zones other than UTC) or is not worth doing twice (floats, intervals) the
//! server prints itself: [`form`] names the function that does.

mod moment;
mod short;

use outport_domain::column::ColumnType;

use crate::compile::postgres::{Family, RealType};
use moment::{date, time, timestamp};
use short::Short;

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
        Form::Timestamp => timestamp(i64_of(value)?, true, out),
        Form::Uuid => uuid(value, out)?,
        Form::Boolean => out.push(match value {
            [0] => b'f',
            [_] => b't',
            _ => return Err(NoValue),
        }),
        Form::Date => date(i32_of(value)?, out),
        Form::Time => {
            let mut text = Short::new();
            time(u64::try_from(i64_of(value)?).map_err(|_| NoValue)?, &mut text);
            text.end(out);
        }
        Form::LocalTimestamp => timestamp(i64_of(value)?, false, out),
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
    let mut text = Short::new();
    match sign {
        0x0000 => {}
        0x4000 => text.push(*b"-"),
        _ => {
            out.extend_from_slice(match sign {
                0xC000 => b"NaN",
                0xD000 => b"Infinity",
                0xF000 => b"-Infinity",
                _ => return Err(NoValue),
            });
            return Ok(());
        }
    }
    let mut digits = digits.chunks_exact(2).map(|digit| u16::from_be_bytes([digit[0], digit[1]]));
    // Zeros before the first digit and after the last are not sent.
    let weight = i32::from(weight.cast_signed());
    if weight < 0 {
        text.push(*b"0");
    } else {
        text.push_number(digits.next().unwrap_or_default())?;
        for _ in 0..weight {
            text.push(four(digits.next().unwrap_or_default())?);
            text.spill(out);
        }
    }
    let mut scale = usize::from(scale & 0x3FFF);
    if scale > 0 {
        text.push(*b".");
    }
    let mut unsent = -1 - weight;
    while scale > 0 {
        let digit = if unsent > 0 { 0 } else { digits.next().unwrap_or_default() };
        unsent -= 1;
        text.push(four(digit)?);
        text.take_back(4 - scale.min(4));
        text.spill(out);
        scale -= scale.min(4);
    }
    text.end(out);
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

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, iter};

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
    fn numbers_of_any_length_keep_every_digit() {
        for groups in 1..40_i16 {
            for scale in [0, 1, 4, 7, 40, 200] {
                let mut value = Vec::new();
                for word in [groups, groups / 2, 0x4000, scale] {
                    value.extend_from_slice(&word.to_be_bytes());
                }
                let digits = (1..=groups).map(|group| group * 241);
                digits.clone().for_each(|digit| value.extend_from_slice(&digit.to_be_bytes()));
                let mut all = String::new();
                digits.for_each(|digit| write!(all, "{digit:04}").expect("memory"));
                let (whole, decimals) = all.split_at(4 * (usize::from(groups as u16) / 2 + 1));
                let mut expected = format!("-{}", whole.trim_start_matches('0'));
                if scale > 0 {
                    let decimals: String =
                        decimals.chars().chain(iter::repeat('0')).take(scale as usize).collect();
                    expected = format!("{expected}.{decimals}");
                }
                assert_eq!(printed(Form::Numeric, &value).as_deref(), Ok(&*expected));
            }
        }
    }
}
