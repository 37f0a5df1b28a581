//! The CSV encoder: RFC 4180 in the request's dialect, with NULL and empty text kept apart, the
//! formula guard, and the rule for invalid text. One function writes header and rows alike; what
//! certainly needs none of it is copied row by row.

mod rules;

use memchr::memchr;
use outport_domain::{
    column::ColumnType, dialect::QuotePolicy, failure::Failure, job::Warnings, spec::ExportSpec,
};
use outport_source::Batch;

use rules::{ColumnStyle, Quote, Rules, SpecialBytes};

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Encodes one file.
#[derive(Debug)]
pub struct CsvEncoder {
    rules: Rules,
    columns: Vec<ColumnStyle>,
    labels: Vec<String>,
    rows: u64,
    warnings: Warnings,
}

impl CsvEncoder {
    /// An encoder for the columns and the dialect of a request.
    pub fn new(spec: &ExportSpec) -> Self {
        let quote = |column_type: ColumnType| match spec.csv.quote {
            QuotePolicy::All => Quote::Always,
            QuotePolicy::NonNumeric if !column_type.is_numeric() => Quote::Always,
            QuotePolicy::NonNumeric | QuotePolicy::Necessary => Quote::WhenNeeded,
        };
        let mut columns: Vec<_> = spec
            .columns
            .iter()
            .zip(&spec.selection.columns)
            .map(|(output, reference)| ColumnStyle {
                key: output.key.clone(),
                column_type: reference.column_type,
                quote: quote(reference.column_type),
                after: vec![spec.csv.delimiter.byte()],
            })
            .collect();
        if let Some(last) = columns.last_mut() {
            last.after = spec.csv.line_ending.bytes().to_vec();
        }
        Self {
            rules: Rules::new(spec),
            columns,
            labels: spec.columns.iter().map(|column| column.label.clone()).collect(),
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
        if self.rules.dialect.bom {
            out.extend_from_slice(BOM);
        }
        let quote = match self.rules.dialect.quote {
            QuotePolicy::Necessary => Quote::WhenNeeded,
            QuotePolicy::All | QuotePolicy::NonNumeric => Quote::Always,
        };
        for (label, column) in self.labels.iter().zip(&self.columns) {
            let text = ColumnStyle { column_type: ColumnType::Text, quote, ..column.clone() };
            self.rules.write(Some(label.as_bytes()), &text, &mut self.warnings, out);
        }
    }

    /// Writes the rows of a batch.
    pub fn rows_of(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), Failure> {
        out.reserve(batch.bytes().len() + batch.bytes().len() / 8);
        // What is valid as a whole is so cell by cell.
        if is_valid(batch.bytes()) {
            self.clean_rows(batch, out);
        } else {
            self.unclean_rows(batch, out)?;
        }
        self.rows += batch.rows() as u64;
        Ok(())
    }

    /// Rows whose cells are all valid. Most cells need neither quotes nor a guard: they are copied
    /// row by row, and only get what stands after them.
    fn clean_rows(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        let Self { rules, columns, warnings, .. } = self;
        let bytes = batch.bytes();
        let mut special = SpecialBytes::new(bytes, rules.dialect.delimiter.byte());
        let mut start = 0;
        for ends in batch.ends_of_rows() {
            let row_end = ends.last().map_or(start, |last| last.at() + 1);
            let (mut from, mut copy) = (start, out.len());
            out.extend_from_slice(&bytes[from..row_end]);
            for (end, column) in ends.iter().zip(&*columns) {
                let cell = &bytes[start..end.at()];
                let is_plain = if end.is_null() {
                    rules.dialect.null_text.is_empty()
                } else {
                    column.quote == Quote::WhenNeeded
                        && rules.is_plain(cell)
                        && !special.is_within(start, end.at())
                };
                match column.after[..] {
                    [after] if is_plain => out[copy + end.at() - from] = after,
                    _ => {
                        out.truncate(copy + start - from);
                        rules.write((!end.is_null()).then_some(cell), column, warnings, out);
                        (from, copy) = (end.at() + 1, out.len());
                        out.extend_from_slice(&bytes[from..row_end]);
                    }
                }
                start = end.at() + 1;
            }
        }
    }

    /// Rows some of whose cells need repair.
    fn unclean_rows(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), Failure> {
        let Self { rules, columns, warnings, .. } = self;
        for (cell, column) in batch.cells().zip(columns.iter().cycle()) {
            match cell {
                Some(cell) if !is_valid(cell) => {
                    let repaired = rules.repair(cell, column, warnings)?;
                    rules.write(Some(repaired.as_bytes()), column, warnings, out);
                }
                cell => rules.write(cell, column, warnings, out),
            }
        }
        Ok(())
    }
}

fn is_valid(cell: &[u8]) -> bool {
    memchr(0, cell).is_none() && std::str::from_utf8(cell).is_ok()
}
