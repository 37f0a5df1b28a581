//! From the server's text to the file's: most of it as it is.

use std::{io::Write, ops::Range};

use chrono::{Datelike, NaiveDate, NaiveDateTime, Offset, TimeZone, Timelike};
use chrono_tz::Tz;
use outport_domain::{column::ColumnType, selection::ColumnRef};
use sqlx::{
    Decode, Row, ValueRef,
    mysql::{MySql, MySqlRow},
};

use crate::compile::mysql::{Family, RealType};

/// Floats from here on are printed with an exponent, and those below the next.
const LARGE: f32 = 1e15;
const SMALL: f32 = 1e-5;

/// How the cells of a column are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As the server does.
    Same,
    /// A DOUBLE that holds a FLOAT: the shortest text that reads back as the same FLOAT.
    Float,
    /// Bits as their number.
    Bits,
    /// `\x` and hex digits.
    Hex,
    /// Sixteen bytes in canonical form, else as hex digits.
    Uuid,
    /// A UTC time in a zone, with its offset.
    Instant(Tz),
}

impl Form {
    pub(super) fn of(column: &ColumnRef, real: &RealType, zone: Tz) -> Self {
        match real.family {
            Family::Float => Self::Float,
            Family::Bit => Self::Bits,
            Family::Binary if column.column_type == ColumnType::Uuid => Self::Uuid,
            Family::Binary | Family::Geometry => Self::Hex,
            Family::Timestamp => Self::Instant(zone),
            _ => Self::Same,
        }
    }

    /// Appends a cell's text.
    pub(super) fn print(self, cell: &[u8], text: &mut Vec<u8>) {
        match self {
            Self::Same => text.extend_from_slice(cell),
            Self::Float => print_float(cell, text),
            Self::Bits => {
                let number = cell.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
                text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
            Self::Hex => print_hex(cell, text),
            Self::Uuid => match uuid::Uuid::from_slice(cell) {
                Ok(uuid) => {
                    let mut buffer = uuid::Uuid::encode_buffer();
                    text.extend_from_slice(uuid.hyphenated().encode_lower(&mut buffer).as_bytes());
                }
                Err(_) => print_hex(cell, text),
            },
            Self::Instant(zone) => print_instant(cell, zone, text),
        }
    }
}

/// The bytes of a cell; NULL is `None`.
pub(super) fn bytes(row: &MySqlRow, index: usize) -> Result<Option<&[u8]>, sqlx::Error> {
    let value = row.try_get_raw(index)?;
    if value.is_null() {
        return Ok(None);
    }
    <&[u8] as Decode<MySql>>::decode(value).map(Some).map_err(sqlx::Error::Decode)
}

fn print_hex(cell: &[u8], text: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.extend_from_slice(b"\\x");
    text.reserve(cell.len() * 2);
    for byte in cell {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 0xf)]);
    }
}

fn print_float(cell: &[u8], text: &mut Vec<u8>) {
    let wide = str::from_utf8(cell).ok().and_then(|cell| cell.parse::<f64>().ok());
    let Some(wide) = wide else {
        text.extend_from_slice(cell);
        return;
    };
    let float = wide as f32;
    let size = float.abs();
    let written = if size != 0.0 && !(SMALL..LARGE).contains(&size) {
        write!(text, "{float:e}")
    } else {
        write!(text, "{float}")
    };
    written.expect("memory takes every text");
}

/// As PostgreSQL writes instants, with as many digits of a second as the column has.
fn print_instant(cell: &[u8], zone: Tz, text: &mut Vec<u8>) {
    let Some((utc, fraction)) = read_moment(cell) else {
        // The zero timestamp, which is no moment in any zone.
        text.extend_from_slice(cell);
        return;
    };
    let offset = zone.offset_from_utc_datetime(&utc).fix();
    let seconds = offset.local_minus_utc();
    if seconds == 0 {
        text.extend_from_slice(cell);
        text.extend_from_slice(b"+00");
        return;
    }
    let local = utc + offset;
    let year = local.year().unsigned_abs();
    text.extend_from_slice(&two(year / 100));
    text.extend_from_slice(&two(year % 100));
    for (mark, number) in [
        (b'-', local.month()),
        (b'-', local.day()),
        (b' ', local.hour()),
        (b':', local.minute()),
        (b':', local.second()),
    ] {
        text.push(mark);
        text.extend_from_slice(&two(number));
    }
    text.extend_from_slice(fraction);
    let away = seconds.unsigned_abs();
    let (hours, minutes, rest) = (away / 3600, away / 60 % 60, away % 60);
    text.push(if seconds < 0 { b'-' } else { b'+' });
    text.extend_from_slice(&two(hours));
    if minutes != 0 || rest != 0 {
        text.push(b':');
        text.extend_from_slice(&two(minutes));
    }
    if rest != 0 {
        text.push(b':');
        text.extend_from_slice(&two(rest));
    }
}

/// A number below a hundred as two digits.
fn two(number: u32) -> [u8; 2] {
    [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8]
}

/// A moment to the second, and the fraction's text with its point. The server writes the moment
/// in nineteen characters, with years of four digits.
fn read_moment(cell: &[u8]) -> Option<(NaiveDateTime, &[u8])> {
    let (moment, fraction) = cell.split_at_checked(19)?;
    let number = |digits: Range<usize>| {
        moment[digits].iter().try_fold(0, |number, byte| {
            byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0'))
        })
    };
    let year = i32::try_from(number(0..4)?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, number(5..7)?, number(8..10)?)?;
    Some((date.and_hms_opt(number(11..13)?, number(14..16)?, number(17..19)?)?, fraction))
}

#[cfg(test)]
mod tests {
    use super::Form;

    fn printed(form: Form, cell: &[u8]) -> String {
        let mut text = Vec::new();
        form.print(cell, &mut text);
        String::from_utf8(text).expect("ASCII")
    }

    #[test]
    fn floats_are_the_shortest_text_of_their_width() {
        let cases = [
            ("0.10000000149011612", "0.1"),
            ("1", "1"),
            ("-7.25", "-7.25"),
            ("16777216", "16777216"),
            ("9.999999933815813e35", "1e36"),
            ("1.401298464324817e-45", "1e-45"),
            ("0", "0"),
        ];
        for (server, expected) in cases {
            assert_eq!(printed(Form::Float, server.as_bytes()), expected);
        }
    }

    #[test]
    fn bits_are_a_number_and_bytes_hex_digits() {
        assert_eq!(printed(Form::Bits, &[0x02, 0x01]), "513");
        assert_eq!(printed(Form::Bits, &[0xff; 8]), "18446744073709551615");
        assert_eq!(printed(Form::Hex, &[0, 0xff, 0x5c]), "\\x00ff5c");
        assert_eq!(printed(Form::Hex, &[]), "\\x");
        assert_eq!(printed(Form::Uuid, &[0xab; 16]), "abababab-abab-abab-abab-abababababab");
        assert_eq!(printed(Form::Uuid, &[0xab; 2]), "\\xabab");
    }

    #[test]
    fn instants_are_in_their_zone_with_the_columns_own_digits() {
        use chrono_tz::{Africa, America, Asia, UTC};
        let cases = [
            (UTC, "2026-07-01 12:00:00", "2026-07-01 12:00:00+00"),
            (America::Sao_Paulo, "2026-07-01 02:00:00.500", "2026-06-30 23:00:00.500-03"),
            (Asia::Kathmandu, "2026-07-01 12:00:00", "2026-07-01 17:45:00+05:45"),
            (Africa::Monrovia, "1970-01-01 12:00:00", "1970-01-01 11:15:30-00:44:30"),
            (America::Sao_Paulo, "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        ];
        for (zone, server, expected) in cases {
            assert_eq!(printed(Form::Instant(zone), server.as_bytes()), expected);
        }
    }
}
