//! Cells of formats with types: what the engines' texts stand for, and the rule for texts that
//! are no valid UTF-8 or have a NUL (rule 10). What is not of its column's type is `None` here:
//! `SQLite` may hold anything anywhere.

use std::borrow::Cow;

use outport_domain::{
    dialect::InvalidText,
    failure::{Failure, FailureCode},
};

/// The rule for invalid text, and how often it was applied.
#[derive(Debug)]
pub(crate) struct TextRule {
    invalid_text: InvalidText,
    replaced: u64,
}

impl TextRule {
    pub(crate) fn new(invalid_text: InvalidText) -> Self {
        Self { invalid_text, replaced: 0 }
    }

    /// Cells replaced so far.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced
    }

    /// The text of a cell of this column.
    pub(crate) fn text<'a>(
        &mut self,
        cell: &'a [u8],
        column: &str,
    ) -> Result<Cow<'a, str>, Failure> {
        if memchr::memchr(0, cell).is_none()
            && let Ok(text) = std::str::from_utf8(cell)
        {
            return Ok(Cow::Borrowed(text));
        }
        if self.invalid_text == InvalidText::Fail {
            let message = "holds a text that is no valid UTF-8 or has a NUL";
            return Err(not_encodable(column, message));
        }
        self.replaced += 1;
        Ok(Cow::Owned(String::from_utf8_lossy(cell).replace('\0', "\u{FFFD}")))
    }
}

/// A value that the format cannot hold; the message names the column and never the value.
pub(crate) fn not_encodable(column: &str, what: &str) -> Failure {
    Failure::new(FailureCode::ValueNotEncodable, format!("column {column} {what}"))
}

/// `t`, `true`, `1` and their opposites.
pub(crate) fn boolean(cell: &[u8]) -> Option<bool> {
    match cell {
        b"t" | b"true" | b"1" => Some(true),
        b"f" | b"false" | b"0" => Some(false),
        _ => None,
    }
}

/// A whole number as engines print it: a sign only when negative, no leading zeros.
pub(crate) fn is_integer(cell: &[u8]) -> bool {
    let digits = cell.strip_prefix(b"-").unwrap_or(cell);
    !digits.is_empty()
        && digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits[0] != b'0')
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number {
    /// The nearest double.
    pub(crate) value: f64,
    /// Digits between the first and the last that is not zero.
    pub(crate) significant: usize,
}

/// A number as JSON writes it, e.g. `-12.50` or `1e+20`; never one beyond the largest double.
pub(crate) fn number(cell: &[u8]) -> Option<Number> {
    let text = std::str::from_utf8(cell).ok()?;
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole)
        || !digits(fraction)
        || !digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
        || (whole.len() > 1 && whole.starts_with('0'))
    {
        return None;
    }
    let all = [whole, fraction].concat();
    let significant = all.trim_matches('0').len();
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite())?;
    Some(Number { value, significant })
}

/// The bytes of `\x` and hex digits; any other text of a binary column stands for itself.
pub(crate) fn bytes(cell: &[u8]) -> Cow<'_, [u8]> {
    decode_hex(cell).map_or(Cow::Borrowed(cell), Cow::Owned)
}

fn decode_hex(cell: &[u8]) -> Option<Vec<u8>> {
    let digits = cell.strip_prefix(b"\\x")?;
    if digits.len() % 2 != 0 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_decoded_and_other_texts_of_a_binary_column_are_themselves() {
        assert_eq!(*bytes(b"\\x00ffAB"), [0, 255, 0xab]);
        assert!(bytes(b"\\x").is_empty());
        for other in [&b"plain"[..], b"\\x0", b"\\xzz", b""] {
            assert_eq!(*bytes(other), *other);
        }
    }

    #[test]
    fn numbers_are_told_with_their_significant_digits() {
        for (text, value, significant) in [
            ("0", 0.0, 0),
            ("-12.50", -12.5, 3),
            ("0.00120", 0.0012, 2),
            ("1000", 1000.0, 1),
            ("1e+20", 1e20, 1),
            ("123456789012345678", 123_456_789_012_345_680.0, 18),
        ] {
            assert_eq!(number(text.as_bytes()), Some(Number { value, significant }), "{text}");
        }
        for no in ["", "-", "+1", "007", "1.", ".5", "1e", "NaN", "Infinity", "1e400", " 1", "1 "] {
            assert_eq!(number(no.as_bytes()), None, "{no:?}");
        }
    }

    #[test]
    fn integers_are_told_from_texts_that_look_like_them() {
        for yes in ["0", "-1", "9223372036854775808"] {
            assert!(is_integer(yes.as_bytes()), "{yes}");
        }
        for no in ["", "-", "+1", "007", "1.0", "1e3", " 1"] {
            assert!(!is_integer(no.as_bytes()), "{no:?}");
        }
    }
}
