//! The CSV encoder: RFC 4180 in the request's dialect, with NULL and empty text kept apart, the
//! formula guard, and the rule for invalid text. One function writes header and rows alike.

use outport_domain::{
    column::ColumnType,
    dialect::{CsvDialect, FormulaGuard, InvalidText, QuotePolicy},
    failure::{Failure, FailureCode},
    job::Warnings,
    spec::ExportSpec,
};
use outport_source::Batch;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// What PostgreSQL's COPY FROM takes for the end of the data where it is a whole line.
const COPY_END: &[u8] = b"\\.";

/// Encodes one file.
#[derive(Debug)]
pub struct CsvEncoder {
    dialect: CsvDialect,
    columns: Vec<ColumnStyle>,
    guard: FormulaGuard,
    invalid_text: InvalidText,
    /// What makes a cell be quoted.
    special: Special,
    /// For each byte: whether a cell that starts or ends with it must be looked at closely.
    edges: [bool; 256],
    rows: u64,
    warnings: Warnings,
}

#[derive(Debug)]
struct ColumnStyle {
    key: String,
    label: String,
    column_type: ColumnType,
    quote: Quote,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quote {
    Always,
    WhenNeeded,
}

impl CsvEncoder {
    /// An encoder for the columns and the dialect of a request.
    pub fn new(spec: &ExportSpec) -> Self {
        let quote = |column_type: ColumnType| match spec.csv.quote {
            QuotePolicy::All => Quote::Always,
            QuotePolicy::NonNumeric if !column_type.is_numeric() => Quote::Always,
            QuotePolicy::NonNumeric | QuotePolicy::Necessary => Quote::WhenNeeded,
        };
        let columns = spec
            .columns
            .iter()
            .zip(&spec.selection.columns)
            .map(|(output, reference)| ColumnStyle {
                key: output.key.clone(),
                label: output.label.clone(),
                column_type: reference.column_type,
                quote: quote(reference.column_type),
            })
            .collect();
        let edge = |byte: u8| {
            // What may begin a formula is among them.
            byte.is_ascii_whitespace()
                || !byte.is_ascii()
                || matches!(byte, b'=' | b'+' | b'-' | b'@' | b'\\')
        };
        Self {
            dialect: spec.csv.clone(),
            columns,
            guard: spec.resource.formula_guard,
            invalid_text: spec.resource.invalid_text,
            special: Special::new(spec.csv.delimiter.byte()),
            edges: std::array::from_fn(|byte| edge(byte as u8)),
            rows: 0,
            warnings: Warnings::default(),
        }
    }

    /// Data rows encoded so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// What was changed so far.
    pub fn warnings(&self) -> Warnings {
        self.warnings
    }

    /// Writes the byte order mark, if asked for, and the header.
    pub fn header(&mut self, out: &mut Vec<u8>) {
        if self.dialect.bom {
            out.extend_from_slice(BOM);
        }
        let policy = match self.dialect.quote {
            QuotePolicy::Necessary => Quote::WhenNeeded,
            QuotePolicy::All | QuotePolicy::NonNumeric => Quote::Always,
        };
        for index in 0..self.columns.len() {
            if index > 0 {
                out.push(self.dialect.delimiter.byte());
            }
            let label = std::mem::take(&mut self.columns[index].label);
            self.cell(label.as_bytes(), ColumnType::Text, policy, out);
            self.columns[index].label = label;
        }
        out.extend_from_slice(self.dialect.line_ending.bytes());
    }

    /// Writes the rows of a batch.
    pub fn rows_of(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), Failure> {
        out.reserve(batch.len_bytes() + batch.len_bytes() / 8 + batch.rows() * self.columns.len());
        let clean = is_clean(batch);
        let last = self.columns.len() - 1;
        let mut index = 0;
        for cell in batch.cells() {
            let (column_type, quote) = (self.columns[index].column_type, self.columns[index].quote);
            match cell {
                None => out.extend_from_slice(self.dialect.null_text.as_bytes()),
                Some(cell) if clean || is_valid(cell) => self.cell(cell, column_type, quote, out),
                Some(cell) => {
                    let repaired = self.repair(cell, index)?;
                    self.cell(repaired.as_bytes(), column_type, quote, out);
                }
            }
            if index == last {
                out.extend_from_slice(self.dialect.line_ending.bytes());
                index = 0;
            } else {
                out.push(self.dialect.delimiter.byte());
                index += 1;
            }
        }
        self.rows += batch.rows() as u64;
        Ok(())
    }

    #[inline]
    fn cell(&mut self, cell: &[u8], column_type: ColumnType, quote: Quote, out: &mut Vec<u8>) {
        if quote == Quote::WhenNeeded && self.is_plain(cell) {
            out.extend_from_slice(cell);
        } else {
            self.hard_cell(cell, column_type, quote, out);
        }
    }

    /// Whether a cell certainly needs neither quotes nor a guard. Most cells are plain, and this
    /// is decided without looking at their bytes one by one.
    #[inline]
    fn is_plain(&self, cell: &[u8]) -> bool {
        let (Some(&first), Some(&last)) = (cell.first(), cell.last()) else { return false };
        !self.edges[usize::from(first)]
            && !self.edges[usize::from(last)]
            && cell.len() != self.dialect.null_text.len()
            && !self.special.may_be_in(cell)
    }

    fn hard_cell(&mut self, cell: &[u8], column_type: ColumnType, quote: Quote, out: &mut Vec<u8>) {
        let guarded = self.guard == FormulaGuard::Text && looks_like_formula(cell, column_type);
        if guarded {
            self.warnings.guarded_cells += 1;
        }
        if guarded || quote == Quote::Always || self.must_be_quoted(cell) {
            out.push(b'"');
            if guarded {
                out.push(b'\'');
            }
            let mut rest = cell;
            while let Some(at) = memchr::memchr(b'"', rest) {
                out.extend_from_slice(&rest[..=at]);
                out.push(b'"');
                rest = &rest[at + 1..];
            }
            out.extend_from_slice(rest);
            out.push(b'"');
        } else {
            out.extend_from_slice(cell);
        }
    }

    fn must_be_quoted(&self, cell: &[u8]) -> bool {
        let (Some(first), Some(last)) = (cell.first(), cell.last()) else {
            // Empty text is `""`, so that it differs from NULL.
            return true;
        };
        // A delimiter that is white space counts as special already.
        first.is_ascii_whitespace()
            || last.is_ascii_whitespace()
            || self.special.is_in(cell)
            || (!self.dialect.null_text.is_empty() && cell == self.dialect.null_text.as_bytes())
            || edge_is_unicode_space(cell)
            || cell == COPY_END
    }

    fn repair(&mut self, cell: &[u8], index: usize) -> Result<String, Failure> {
        if self.invalid_text == InvalidText::Fail {
            let message = format!(
                "column {} holds a text that is no valid UTF-8 or has a NUL",
                self.columns[index].key
            );
            return Err(Failure::new(FailureCode::ValueNotEncodable, message));
        }
        self.warnings.replaced_cells += 1;
        Ok(String::from_utf8_lossy(cell).replace('\0', "\u{FFFD}"))
    }
}

/// The bytes that must not stand in a cell without quotes.
#[derive(Clone, Copy, Debug)]
struct Special {
    delimiter: u8,
}

/// A byte eight times.
const fn eight(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

impl Special {
    const fn new(delimiter: u8) -> Self {
        Self { delimiter }
    }

    fn is_in(self, cell: &[u8]) -> bool {
        let special = |byte: &u8| matches!(*byte, b'"' | b'\r' | b'\n') || *byte == self.delimiter;
        cell.iter().any(special)
    }

    /// Like [`Special::is_in`], but any control character counts, which makes it fast.
    #[inline]
    fn may_be_in(self, cell: &[u8]) -> bool {
        if cell.len() < 8 {
            return cell.iter().any(|&byte| byte < 0x20 || byte == b'"' || byte == self.delimiter);
        }
        let (words, _) = cell.as_chunks::<8>();
        // The last eight bytes overlap those before.
        let last = cell.last_chunk::<8>().copied().unwrap_or_default();
        words.iter().fold(self.found_in(u64::from_ne_bytes(last)), |found, word| {
            found | self.found_in(u64::from_ne_bytes(*word))
        }) != 0
    }

    /// Not zero when one of the eight bytes is what is looked for.
    #[inline]
    const fn found_in(self, word: u64) -> u64 {
        /// Not zero when a byte is below 1 to 128; the high bits of larger bytes never count.
        const fn below(word: u64, limit: u8) -> u64 {
            word.wrapping_sub(eight(limit)) & !word & eight(0x80)
        }
        below(word, 0x20) | below(word ^ eight(b'"'), 1) | below(word ^ eight(self.delimiter), 1)
    }
}

/// Whether no cell of a batch needs repair: the buffer as a whole is valid, holds no NUL, and no
/// cell starts in the middle of a character.
fn is_clean(batch: &Batch) -> bool {
    is_valid(batch.bytes())
        && batch
            .cells()
            .all(|cell| cell.and_then(<[u8]>::first).is_none_or(|first| first & 0xC0 != 0x80))
}

fn is_valid(cell: &[u8]) -> bool {
    memchr::memchr(0, cell).is_none() && std::str::from_utf8(cell).is_ok()
}

fn edge_is_unicode_space(cell: &[u8]) -> bool {
    let (Some(first), Some(last)) = (cell.first(), cell.last()) else { return false };
    if first.is_ascii() && last.is_ascii() {
        return false;
    }
    std::str::from_utf8(cell).is_ok_and(|text| text.trim().len() != text.len())
}

/// Whether a spreadsheet would run the cell (rule 16). Cells of numeric and temporal columns
/// pass when they are made of what numbers and times are made of; `SQLite` may hold any text
/// in them.
fn looks_like_formula(cell: &[u8], column_type: ColumnType) -> bool {
    let Some(first) = cell.first() else { return false };
    if !matches!(first, b'=' | b'+' | b'-' | b'@' | b'\t' | b'\r' | b'\n') {
        return false;
    }
    if column_type.is_numeric() || column_type.is_temporal() {
        let harmless = |byte: &u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'.' | b':' | b'+' | b'-')
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
    fn what_must_be_quoted_is_found_wherever_it_stands() {
        for delimiter in [b',', b';', b'\t', b'|'] {
            let special = Special::new(delimiter);
            for length in 1..40 {
                let mut cell = vec![b'x'; length];
                assert!(!special.may_be_in(&cell));
                for at in 0..length {
                    for byte in 0..=255 {
                        cell[at] = byte;
                        let expected = byte < 0x20 || byte == b'"' || byte == delimiter;
                        assert_eq!(
                            special.may_be_in(&cell),
                            expected,
                            "{byte} at {at} of {length}"
                        );
                        assert!(special.may_be_in(&cell) || !special.is_in(&cell));
                    }
                    cell[at] = 0xC3;
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
        for number in ["-1e5", "-Infinity", "-1 days +02:00:00", "+1"] {
            assert!(!looks_like_formula(number.as_bytes(), ColumnType::Decimal), "{number:?}");
        }
        assert!(
            looks_like_formula(b"-1+cmd|'/C calc'!A0", ColumnType::Integer),
            "SQLite holds any text anywhere"
        );
    }
}
