//! Numbers of a Parquet file from the engines' texts. A column of MySQL may be filled with zeros,
//! as `000042`: they are no part of the number.

use std::borrow::Cow;

use outport_domain::column::Digits;

use crate::cell::{self, is_integer};

/// A whole number of 64 bits.
pub(super) fn integer(cell: &[u8]) -> Option<i64> {
    text(&unfilled(cell)).filter(|text| is_integer(text.as_bytes()))?.parse().ok()
}

/// A double.
pub(super) fn float(cell: &[u8]) -> Option<f64> {
    match cell {
        b"NaN" => Some(f64::NAN),
        b"Infinity" => Some(f64::INFINITY),
        b"-Infinity" => Some(f64::NEG_INFINITY),
        _ => cell::number(&unfilled(cell)).map(|number| number.value),
    }
}

/// The decimal times ten to its scale, if that is a whole number of at most its precision.
pub(super) fn unscaled(cell: &[u8], digits: Digits) -> Option<i128> {
    let cell = unfilled(cell);
    cell::number(&cell)?;
    let text = text(&cell)?;
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let unit: i128 = [whole, fraction].concat().parse().ok()?;
    let shift = exponent.parse::<i32>().ok()? + i32::from(digits.scale) - fraction.len() as i32;
    let value = if shift >= 0 {
        unit.checked_mul(10_i128.checked_pow(shift as u32)?)?
    } else {
        let divisor = 10_i128.checked_pow(shift.unsigned_abs())?;
        (unit % divisor == 0).then_some(unit / divisor)?
    };
    (value.unsigned_abs() < 10_u128.pow(digits.precision.into())).then_some(value)
}

/// A number without the zeros that it is filled with.
fn unfilled(cell: &[u8]) -> Cow<'_, [u8]> {
    let (sign, digits) = cell.split_at(usize::from(cell.starts_with(b"-")));
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    // The last one may be a digit of its own.
    let filling = match digits.get(zeros) {
        Some(byte) if byte.is_ascii_digit() => zeros,
        _ => zeros.saturating_sub(1),
    };
    match (filling, sign) {
        (0, _) => Cow::Borrowed(cell),
        (_, []) => Cow::Borrowed(&digits[filling..]),
        _ => Cow::Owned([sign, &digits[filling..]].concat()),
    }
}

fn text(cell: &[u8]) -> Option<&str> {
    std::str::from_utf8(cell).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_whole_numbers_of_their_last_place() {
        let digits = |precision, scale| Digits { precision, scale };
        for (text, digits, expected) in [
            ("12.5", digits(5, 2), Some(1250)),
            ("-0.01", digits(5, 2), Some(-1)),
            ("999.99", digits(5, 2), Some(99_999)),
            ("1000.00", digits(5, 2), None),
            ("0.001", digits(5, 2), None),
            ("1.500", digits(5, 1), Some(15)),
            ("1.5e2", digits(5, 1), Some(1500)),
            ("150e-1", digits(5, 0), Some(15)),
            ("NaN", digits(5, 0), None),
            ("000001.50", digits(8, 2), Some(150)),
            ("-007", digits(5, 0), Some(-7)),
            ("00", digits(5, 0), Some(0)),
            ("000123456", digits(5, 0), None),
            ("0", digits(38, 38), Some(0)),
        ] {
            assert_eq!(unscaled(text.as_bytes(), digits), expected, "{text} {digits:?}");
        }
        let nines = "9".repeat(38);
        assert!(unscaled(nines.as_bytes(), digits(38, 0)).is_some());
    }

    #[test]
    fn floats_are_what_engines_print() {
        assert_eq!(float(b"-Infinity"), Some(f64::NEG_INFINITY));
        assert_eq!(float(b"1e+20"), Some(1e20));
        assert_eq!(float(b"inf"), None);
    }

    #[test]
    fn numbers_may_be_filled_with_zeros() {
        for (text, expected) in [
            ("000042", Some(42)),
            ("0000", Some(0)),
            ("-0042", Some(-42)),
            ("00000000000000000000009223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("+42", None),
            ("-", None),
            ("", None),
            ("00x", None),
            ("0 1", None),
        ] {
            assert_eq!(integer(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(float(b"0000001.5"), Some(1.5));
        assert_eq!(float(b"-00.25"), Some(-0.25));
        assert_eq!(float(b"000"), Some(0.0));
        assert_eq!(float(b"00x"), None);
    }
}
