//! Decimal digits as the server's DECIMAL takes them: at most 65, and fewer after the point.

use super::operand::{Constant, DECIMAL, Placed};

/// Digits that a DECIMAL has.
const MOST_DIGITS: usize = 65;

/// Exponents beyond this are beyond every DECIMAL whatever the digits before them.
const FARTHEST_EXPONENT: i64 = 1_000;

/// A number where it is among those that a column may hold that has at most so many digits after
/// the point; `None` when it is none.
pub(super) fn placed(digits: &str, most_fraction: usize) -> Option<Placed> {
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (digits, 0),
    };
    let negative = mantissa.starts_with('-');
    let unsigned = mantissa.trim_start_matches(['-', '+']);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let all: String = [whole, fraction].concat();
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let zero = all.bytes().all(|byte| byte == b'0');
    let exponent = exponent.clamp(-FARTHEST_EXPONENT, FARTHEST_EXPONENT);
    // Where the point is, counted from the first digit.
    let point = whole.len() as i64 + if zero { 0 } else { exponent };
    let (whole, fraction) = split(&all, point);
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if whole.len() > MOST_DIGITS {
        return Some(if negative { Placed::Below } else { Placed::Above });
    }
    let kept = fraction.len().min(most_fraction).min(MOST_DIGITS - whole.len());
    let constant = decimal(negative, whole, &fraction[..kept]);
    Some(if kept == fraction.len() {
        Placed::At(constant)
    } else {
        Placed::Between { constant, above: !negative }
    })
}

fn split(all: &str, point: i64) -> (String, String) {
    match usize::try_from(point) {
        Ok(point) if point >= all.len() => {
            (format!("{all}{}", "0".repeat(point - all.len())), String::new())
        }
        Ok(point) => (all[..point].to_owned(), all[point..].to_owned()),
        Err(_) => (String::new(), format!("{}{all}", "0".repeat(point.unsigned_abs() as usize))),
    }
}

fn decimal(negative: bool, whole: &str, fraction: &str) -> Constant {
    let whole = if whole.is_empty() { "0" } else { whole };
    let sign = if negative { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    let text = format!("{sign}{whole}{point}{fraction}");
    let cast = if text.parse::<i64>().is_ok() {
        "CAST(? AS SIGNED)".to_owned()
    } else if text.parse::<u64>().is_ok() {
        "CAST(? AS UNSIGNED)".to_owned()
    } else {
        let scale = fraction.len();
        let precision = (whole.len() + scale).min(MOST_DIGITS);
        format!("{DECIMAL}({precision},{scale}))")
    };
    Constant { text, cast: cast.into() }
}

#[cfg(test)]
mod tests {
    use super::placed;
    use crate::compile::mysql::operand::Placed;

    fn shown(digits: &str) -> String {
        match placed(digits, 38) {
            Some(Placed::At(constant)) => format!("{} {}", constant.text, constant.cast),
            Some(Placed::Between { constant, above }) => {
                format!("{} {}", if above { "above" } else { "below" }, constant.text)
            }
            Some(Placed::Above) => "above all".to_owned(),
            Some(Placed::Below) => "below all".to_owned(),
            None => "none".to_owned(),
        }
    }

    #[test]
    fn numbers_are_written_plainly_and_keep_every_digit() {
        let long = format!("0.{}1", "0".repeat(40));
        let cases = [
            ("7", "7 CAST(? AS SIGNED)"),
            ("-7", "-7 CAST(? AS SIGNED)"),
            ("+007", "7 CAST(? AS SIGNED)"),
            ("1e3", "1000 CAST(? AS SIGNED)"),
            ("12.5e-3", "0.0125 CAST(? AS DECIMAL(5,4))"),
            ("18446744073709551615", "18446744073709551615 CAST(? AS UNSIGNED)"),
            ("18446744073709551616", "18446744073709551616 CAST(? AS DECIMAL(20,0))"),
            ("1.50", "1.5 CAST(? AS DECIMAL(2,1))"),
            ("0e999999999", "0 CAST(? AS SIGNED)"),
            ("1e999999999", "above all"),
            ("-1e66", "below all"),
            (&long, "above 0.00000000000000000000000000000000000000"),
            ("-1e-999999999", "below -0.00000000000000000000000000000000000000"),
            ("", "none"),
            ("1x", "none"),
        ];
        for (digits, expected) in cases {
            assert_eq!(shown(digits), expected, "{digits}");
        }
    }
}
