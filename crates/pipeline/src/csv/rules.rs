//! What may stand in a CSV file as it is, what must be quoted, and what is guarded or repaired.

use memchr::{memchr, memchr3};
use outport_domain::{
    column::ColumnType,
    dialect::{CsvDialect, FormulaGuard, InvalidText},
    failure::{Failure, FailureCode},
    job::Warnings,
    spec::ExportSpec,
};

/// What PostgreSQL's COPY FROM takes for the end of the data where it is a whole line.
const COPY_END: &[u8] = b"\\.";

/// The rules of one file.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) dialect: CsvDialect,
    guard: FormulaGuard,
    invalid_text: InvalidText,
    /// For each byte: whether a cell that starts or ends with it must be looked at closely.
    edges: [bool; 256],
}

#[derive(Clone, Debug)]
pub(super) struct ColumnStyle {
    pub(super) key: String,
    pub(super) column_type: ColumnType,
    pub(super) quote: Quote,
    /// What stands after its cells: the delimiter or the line's end.
    pub(super) after: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quote {
    Always,
    WhenNeeded,
}

impl Rules {
    pub(super) fn new(spec: &ExportSpec) -> Self {
        let edge = |byte: u8| {
            // What may begin a formula is among them.
            byte.is_ascii_whitespace()
                || !byte.is_ascii()
                || matches!(byte, b'=' | b'+' | b'-' | b'@' | b'\\')
        };
        Self {
            dialect: spec.csv.clone(),
            guard: spec.resource.formula_guard,
            invalid_text: spec.resource.invalid_text,
            edges: std::array::from_fn(|byte| edge(byte as u8)),
        }
    }

    /// Whether a cell without special bytes certainly needs neither quotes nor a guard. Most
    /// cells are plain.
    pub(super) fn is_plain(&self, cell: &[u8]) -> bool {
        let (Some(&first), Some(&last)) = (cell.first(), cell.last()) else { return false };
        !self.edges[usize::from(first)]
            && !self.edges[usize::from(last)]
            && cell.len() != self.dialect.null_text.len()
    }

    /// Writes a cell and what stands after it.
    pub(super) fn write(
        &self,
        cell: Option<&[u8]>,
        column: &ColumnStyle,
        warnings: &mut Warnings,
        out: &mut Vec<u8>,
    ) {
        match cell {
            None => out.extend_from_slice(self.dialect.null_text.as_bytes()),
            Some(cell) => {
                let guarded = self.guard == FormulaGuard::Text
                    && looks_like_formula(cell, column.column_type);
                warnings.guarded_cells += u64::from(guarded);
                if guarded || column.quote == Quote::Always || self.must_be_quoted(cell) {
                    quoted(cell, guarded, out);
                } else {
                    out.extend_from_slice(cell);
                }
            }
        }
        out.extend_from_slice(&column.after);
    }

    fn must_be_quoted(&self, cell: &[u8]) -> bool {
        let delimiter = self.dialect.delimiter.byte();
        let (Some(first), Some(last)) = (cell.first(), cell.last()) else {
            // Empty text is `""`, so that it differs from NULL.
            return true;
        };
        // A delimiter that is white space counts as special already.
        first.is_ascii_whitespace()
            || last.is_ascii_whitespace()
            || cell.iter().any(|&byte| matches!(byte, b'"' | b'\r' | b'\n') || byte == delimiter)
            || (!self.dialect.null_text.is_empty() && cell == self.dialect.null_text.as_bytes())
            || edge_is_unicode_space(cell)
            || cell == COPY_END
    }

    /// The text of a cell that has bytes of none.
    pub(super) fn repair(
        &self,
        cell: &[u8],
        column: &ColumnStyle,
        warnings: &mut Warnings,
    ) -> Result<String, Failure> {
        if self.invalid_text == InvalidText::Fail {
            let message =
                format!("column {} holds a text that is no valid UTF-8 or has a NUL", column.key);
            return Err(Failure::new(FailureCode::ValueNotEncodable, message));
        }
        warnings.replaced_cells += 1;
        Ok(String::from_utf8_lossy(cell).replace('\0', "\u{FFFD}"))
    }
}

fn quoted(cell: &[u8], guarded: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if guarded { b"\"'" } else { b"\"" });
    let mut rest = cell;
    while let Some(at) = memchr(b'"', rest) {
        out.extend_from_slice(&rest[..=at]);
        out.push(b'"');
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Where the bytes are that must not stand in a cell without quotes. Found one ahead, as most
/// cells have none.
pub(super) struct SpecialBytes<'a> {
    bytes: &'a [u8],
    delimiter: u8,
    /// The next of all; the end of the bytes when there is none.
    next: usize,
    /// The next carriage return, likewise: hardly any text has one.
    next_return: usize,
}

impl<'a> SpecialBytes<'a> {
    pub(super) fn new(bytes: &'a [u8], delimiter: u8) -> Self {
        let next_return = memchr(b'\r', bytes).unwrap_or(bytes.len());
        let mut special = Self { bytes, delimiter, next: 0, next_return };
        special.look_from(0);
        special
    }

    /// Whether there is one in a cell. Cells must be asked for in their order.
    pub(super) fn is_within(&mut self, start: usize, end: usize) -> bool {
        if self.next < start {
            self.look_from(start);
        }
        self.next < end
    }

    fn look_from(&mut self, start: usize) {
        let rest = &self.bytes[start..];
        let found = |at: Option<usize>| at.map_or(self.bytes.len(), |at| start + at);
        if self.next_return < start {
            self.next_return = found(memchr(b'\r', rest));
        }
        self.next = found(memchr3(b'"', b'\n', self.delimiter, rest)).min(self.next_return);
    }
}

fn edge_is_unicode_space(cell: &[u8]) -> bool {
    let (Some(first), Some(last)) = (cell.first(), cell.last()) else { return false };
    if first.is_ascii() && last.is_ascii() {
        return false;
    }
    std::str::from_utf8(cell).is_ok_and(|text| text.trim().len() != text.len())
}

/// Whether a spreadsheet would run the cell (rule 16). Cells of numeric and temporal columns
/// pass when they are made of what numbers, times and PostgreSQL's money are made of; `SQLite` may
/// hold any text in them.
fn looks_like_formula(cell: &[u8], column_type: ColumnType) -> bool {
    let Some(first) = cell.first() else { return false };
    if !matches!(first, b'=' | b'+' | b'-' | b'@' | b'\t' | b'\r' | b'\n') {
        return false;
    }
    if column_type.is_numeric() || column_type.is_temporal() {
        let harmless = |byte: &u8| {
            byte.is_ascii_alphanumeric()
                || matches!(byte, b' ' | b'.' | b':' | b'+' | b'-' | b'$' | b',')
        };
        return !cell.iter().all(harmless);
    }
    !is_signed_number(cell)
}

fn is_signed_number(cell: &[u8]) -> bool {
    let [b'+' | b'-', unsigned @ ..] = cell else { return false };
    let mut parts = unsigned.splitn(2, |byte| *byte == b'.');
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    parts.next().is_some_and(digits) && parts.next().is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_be_quoted_is_found_in_the_cell_that_has_it_alone() {
        for delimiter in [b',', b';', b'\t', b'|'] {
            let mut bytes = vec![b'x'; 70];
            for at in 0..bytes.len() {
                for other in 0..bytes.len() {
                    for byte in [b'"', b'\r', b'\n', delimiter] {
                        (bytes[at], bytes[other]) = (byte, b'\r');
                        let mut special = SpecialBytes::new(&bytes, delimiter);
                        for start in (0..bytes.len()).step_by(7) {
                            let cell = start..start + 6;
                            assert_eq!(
                                special.is_within(cell.start, cell.end),
                                cell.contains(&at) || cell.contains(&other),
                                "{byte} at {at}, a return at {other}, looked for in {cell:?}"
                            );
                        }
                        (bytes[at], bytes[other]) = (b'x', b'x');
                    }
                }
            }
        }
    }

    #[test]
    fn formulas_are_told_from_signed_numbers() {
        for formula in [
            "=1+1", "+A1", "-2+3", "@SUM(A1)", "\t=1", "\r", "\n", "-", "+.5", "-1.2.3", "+1 ",
            "-1e5",
        ] {
            assert!(looks_like_formula(formula.as_bytes(), ColumnType::Text), "{formula:?}");
        }
        for plain in ["", "-1", "+1.50", "-0001", "a=1", " =1", "'=1", "\u{ff1d}1"] {
            assert!(!looks_like_formula(plain.as_bytes(), ColumnType::Text), "{plain:?}");
        }
        for number in ["-1e5", "-Infinity", "-1 days +02:00:00", "+1", "-$1,234.50"] {
            assert!(!looks_like_formula(number.as_bytes(), ColumnType::Decimal), "{number:?}");
        }
        assert!(
            looks_like_formula(b"-1+cmd|'/C calc'!A0", ColumnType::Integer),
            "SQLite holds any text anywhere"
        );
    }
}
