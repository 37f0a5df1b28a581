//! Cells as JSON values: numbers as numbers with every digit they came with, moments as ISO 8601,
//! bytes as base64, documents as themselves, everything else as text.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{NaiveDateTime, TimeDelta};
use outport_domain::{
    canonical::{indented, quoted},
    column::ColumnType,
    failure::Failure,
};
use serde_json::value::RawValue;

use crate::{
    cell::{self, TextRule},
    moment,
};

/// How deep in the result a value is.
const VALUE: usize = 4;

pub fn push(
    cell: &[u8],
    column_type: ColumnType,
    column: &str,
    text: &mut TextRule,
    out: &mut String,
) -> Result<(), Failure> {
    let found = match column_type {
        ColumnType::Integer | ColumnType::Decimal | ColumnType::Float => number(cell),
        ColumnType::Boolean => cell::boolean(cell).map(|value| value.to_string()),
        ColumnType::Binary => Some(in_quotes(&STANDARD.encode(cell::bytes(cell)))),
        ColumnType::Timestamp => moment::instant(cell).and_then(|(local, offset)| {
            let instant = local.checked_sub_signed(TimeDelta::seconds(offset.into()))?;
            Some(in_quotes(&format!("{}Z", iso(instant))))
        }),
        ColumnType::LocalTimestamp => moment::local(cell).map(|local| in_quotes(&iso(local))),
        ColumnType::Json => document(cell),
        ColumnType::Text | ColumnType::Date | ColumnType::Time | ColumnType::Uuid => None,
    };
    match found {
        Some(value) => out.push_str(&value),
        // Also what is not of its column's type: nothing is left out.
        None => quoted(&text.text(cell, column)?, out),
    }
    Ok(())
}

fn in_quotes(text: &str) -> String {
    format!("\"{text}\"")
}

/// A text that is a number of JSON; `NaN` and `Infinity` are not.
fn number(cell: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(cell).ok()?;
    let number: &RawValue = serde_json::from_str(text).ok()?;
    let starts = text.as_bytes().first()?;
    (starts.is_ascii_digit() || *starts == b'-').then(|| number.get().to_owned())
}

fn document(cell: &[u8]) -> Option<String> {
    let raw: &RawValue = serde_json::from_slice(cell).ok()?;
    let mut text = String::with_capacity(cell.len());
    indented(raw, VALUE, &mut text);
    Some(text)
}

/// With as many digits of a second as there are, up to microseconds.
fn iso(local: NaiveDateTime) -> String {
    local.format("%Y-%m-%dT%H:%M:%S%.f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use outport_domain::dialect::InvalidText;

    #[test]
    fn values_are_what_their_columns_say_and_lose_nothing() {
        use ColumnType::{
            Binary, Boolean, Date, Decimal, Float, Integer, Json, LocalTimestamp, Text, Timestamp,
            Uuid,
        };
        for (column_type, cell, expected) in [
            (Integer, "18446744073709551616", "18446744073709551616"),
            (Decimal, "12345678901234567890.10", "12345678901234567890.10"),
            (Decimal, "NaN", "\"NaN\""),
            (Float, "1e+20", "1e+20"),
            (Float, "-Infinity", "\"-Infinity\""),
            (Integer, "007", "\"007\""),
            (Integer, "true", "\"true\""),
            (Boolean, "t", "true"),
            (Boolean, "2", "\"2\""),
            (Text, "a\"<b>\n", "\"a\\\"<b>\\n\""),
            (Date, "2026-07-01", "\"2026-07-01\""),
            (Timestamp, "2026-07-01 09:00:00.25-03", "\"2026-07-01T12:00:00.250Z\""),
            (Timestamp, "infinity", "\"infinity\""),
            (LocalTimestamp, "2026-07-01 09:00:00", "\"2026-07-01T09:00:00\""),
            (
                Uuid,
                "0197f604-49fe-7b73-bb81-df2e93a7e47d",
                "\"0197f604-49fe-7b73-bb81-df2e93a7e47d\"",
            ),
            (Binary, "\\x00ff", "\"AP8=\""),
            (Json, "[1.50]", "[\n          1.50\n        ]"),
            (Json, "no JSON", "\"no JSON\""),
        ] {
            let (mut out, mut text) = (String::new(), TextRule::new(InvalidText::Replace));
            push(cell.as_bytes(), column_type, "c", &mut text, &mut out).expect("a value");
            assert_eq!(out, expected, "{column_type:?} {cell}");
        }
    }
}
