//! XLSX (rule 20): one sheet with a frozen header, streamed into its ZIP archive as rows come.
//! Nothing is spooled: texts stand in their cells, so no table of shared ones is needed.
//!
//! A text is a string cell, never a formula, so its bytes stay as they are: where CSV needs an
//! apostrophe in front, the cell's style has the apostrophe that spreadsheets keep beside the
//! value, so that editing the cell does not make it a formula either.

mod parts;

use std::{
    io::{self, Write},
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use chrono::{NaiveDate, NaiveDateTime, NaiveTime, Offset as _, TimeDelta, TimeZone as _};
use chrono_tz::Tz;
use outport_domain::{
    column::ColumnType,
    dialect::FormulaGuard,
    failure::{Failure, FailureCode},
    job::Warnings,
    limits::fixed,
    spec::ExportSpec,
};
use outport_source::Batch;
use zip::{
    DateTime, ZipWriter,
    write::{SimpleFileOptions, StreamWriter},
};

use crate::{
    cell::{self, TextRule, not_encodable},
    encoder::Encoder,
    moment,
};
use parts::Style;

/// UTF-16 units of a cell.
const MOST_UNITS: usize = 32_767;
/// Bytes of the sheet's XML: more would need a ZIP64 archive, which spreadsheets refuse.
const MOST_SHEET_BYTES: u64 = u32::MAX as u64 - 1024;
/// What a double holds for sure, and what spreadsheets show.
const MOST_DIGITS: usize = 15;

/// Encodes one workbook.
pub struct XlsxEncoder {
    archive: ZipWriter<StreamWriter<Pipe>>,
    pipe: Pipe,
    columns: Vec<SheetColumn>,
    title: String,
    zone: Tz,
    guard: FormulaGuard,
    text: TextRule,
    /// The XML of the batch at hand.
    xml: Vec<u8>,
    sheet_bytes: u64,
    rows: u64,
}

struct SheetColumn {
    key: String,
    label: String,
    /// `A` to `GR`.
    letters: String,
    column_type: ColumnType,
}

/// Where the archive writes to and the encoder takes from.
#[derive(Clone, Debug, Default)]
struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Pipe {
    fn take_into(&self, out: &mut Vec<u8>) {
        out.append(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl XlsxEncoder {
    /// An encoder for the columns of a request.
    pub fn new(spec: &ExportSpec) -> Self {
        let column = |(index, (output, reference)): (usize, (&_, &_))| {
            let output: &outport_domain::spec::OutputColumn = output;
            let reference: &outport_domain::selection::ColumnRef = reference;
            SheetColumn {
                key: output.key.clone(),
                label: output.label.clone(),
                letters: parts::letters(index),
                column_type: reference.column_type,
            }
        };
        let pipe = Pipe::default();
        Self {
            archive: ZipWriter::new_stream(pipe.clone()),
            pipe,
            columns: spec
                .columns
                .iter()
                .zip(&spec.selection.columns)
                .enumerate()
                .map(column)
                .collect(),
            title: parts::title(spec.resource.file_stem(spec.locale)),
            zone: spec.selection.time_zone,
            guard: spec.resource.formula_guard,
            text: TextRule::new(spec.resource.invalid_text),
            xml: Vec::new(),
            sheet_bytes: 0,
            rows: 0,
        }
    }

    fn begin(&mut self, name: &str) -> Result<(), Failure> {
        // The same moment in every archive, so that equal rows are equal bytes.
        let options = SimpleFileOptions::default().last_modified_time(DateTime::default());
        self.archive.start_file(name, options).map_err(failed)
    }

    fn header(&mut self) -> Result<(), Failure> {
        let widths =
            self.columns.iter().map(|column| parts::width(column.column_type, &column.label));
        parts::sheet_head(widths, &mut self.xml);
        self.xml.extend_from_slice(b"<row r=\"1\">");
        for column in &self.columns {
            let label = self.text.text(column.label.as_bytes(), &column.key)?;
            parts::text_cell(&column.letters, 1, Style::Header, &label, &mut self.xml);
        }
        self.xml.extend_from_slice(b"</row>");
        self.pass_on()
    }

    /// Puts the XML at hand into the archive.
    fn pass_on(&mut self) -> Result<(), Failure> {
        self.sheet_bytes += self.xml.len() as u64;
        if self.sheet_bytes > MOST_SHEET_BYTES {
            let message = "an XLSX sheet holds at most 4 GiB; narrow the filters, split the export, or choose another format";
            return Err(Failure::new(FailureCode::LimitExceeded, message));
        }
        self.archive.write_all(&self.xml).map_err(failed)?;
        self.xml.clear();
        Ok(())
    }

    fn cell(&mut self, index: usize, row: u64, cell: &[u8]) -> Result<(), Failure> {
        let column = &self.columns[index];
        let xml = &mut self.xml;
        match typed(cell, column.column_type, self.zone) {
            Some(Typed::Number) => {
                parts::number_cell(&column.letters, row, Style::Plain, cell, xml);
            }
            Some(Typed::Boolean(value)) => parts::boolean_cell(&column.letters, row, value, xml),
            Some(Typed::Moment(serial, style)) => {
                let serial = serial.to_string();
                parts::number_cell(&column.letters, row, style, serial.as_bytes(), xml);
            }
            None => {
                let text = self.text.text(cell, &column.key)?;
                if text.len() > MOST_UNITS && text.encode_utf16().count() > MOST_UNITS {
                    let message = "holds a text of more than 32,767 characters, and no cell does";
                    return Err(not_encodable(&column.key, message));
                }
                let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
                let quoted = formula && self.guard == FormulaGuard::Text;
                let style = if quoted { Style::Quoted } else { Style::Plain };
                parts::text_cell(&column.letters, row, style, &text, xml);
            }
        }
        Ok(())
    }
}

impl Encoder for XlsxEncoder {
    fn start(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        for (name, xml) in parts::around(&self.title) {
            self.begin(name)?;
            self.archive.write_all(xml.as_bytes()).map_err(failed)?;
        }
        self.begin(parts::SHEET)?;
        self.header()?;
        self.pipe.take_into(out);
        Ok(())
    }

    fn rows_of(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), Failure> {
        if self.rows + batch.rows() as u64 > fixed::SHEET_ROWS {
            let message = "an XLSX sheet holds 1,048,575 rows below its header; narrow the filters, split the export, or choose another format";
            return Err(Failure::new(FailureCode::LimitExceeded, message));
        }
        let last = self.columns.len() - 1;
        let mut index = 0;
        for cell in batch.cells() {
            // Counted from 1, below the header.
            let row = self.rows + 2;
            if index == 0 {
                parts::row_start(row, &mut self.xml);
            }
            // NULL is no cell at all, empty text is a cell without a character.
            if let Some(cell) = cell {
                self.cell(index, row, cell)?;
            }
            if index < last {
                index += 1;
                continue;
            }
            index = 0;
            self.xml.extend_from_slice(b"</row>");
            self.rows += 1;
        }
        self.pass_on()?;
        self.pipe.take_into(out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.xml.extend_from_slice(parts::SHEET_END.as_bytes());
        self.pass_on()?;
        let nothing = ZipWriter::new_stream(Pipe::default());
        mem::replace(&mut self.archive, nothing).finish().map_err(failed)?;
        self.pipe.take_into(out);
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn warnings(&self) -> Warnings {
        Warnings { replaced_cells: self.text.replaced(), guarded_cells: 0 }
    }
}

/// What a cell holds that is no text.
#[derive(Debug, PartialEq)]
enum Typed {
    /// The digits as they are.
    Number,
    Boolean(bool),
    /// Days since 1899-12-30.
    Moment(f64, Style),
}

fn typed(cell: &[u8], column_type: ColumnType, zone: Tz) -> Option<Typed> {
    match column_type {
        ColumnType::Integer | ColumnType::Decimal => cell::number(cell)
            .filter(|number| number.significant <= MOST_DIGITS && is_normal(number.value))
            .map(|_| Typed::Number),
        // A double is what a cell holds.
        ColumnType::Float => {
            cell::number(cell).filter(|number| is_normal(number.value)).map(|_| Typed::Number)
        }
        ColumnType::Boolean => cell::boolean(cell).map(Typed::Boolean),
        ColumnType::Date => {
            let day = moment::day(cell)?;
            Some(Typed::Moment(serial(day.and_time(NaiveTime::MIN))?, Style::Date))
        }
        ColumnType::LocalTimestamp => {
            Some(Typed::Moment(serial(moment::local(cell)?)?, Style::Timestamp))
        }
        // A cell knows no zone: it shows the clock of the job's zone, where that clock tells the
        // instant. In the hour that it shows twice, and for texts with another offset, it does not.
        ColumnType::Timestamp => {
            let (local, offset) = moment::instant(cell)?;
            let shown = zone.from_local_datetime(&local).single()?;
            let tells = shown.offset().fix().local_minus_utc() == offset;
            Some(Typed::Moment(serial(local).filter(|_| tells)?, Style::Timestamp))
        }
        ColumnType::Time => {
            let since_midnight = moment::time(cell)?.signed_duration_since(NaiveTime::MIN);
            Some(Typed::Moment(days(since_midnight), Style::Time))
        }
        ColumnType::Text | ColumnType::Uuid | ColumnType::Json | ColumnType::Binary => None,
    }
}

/// Spreadsheets take what is nearer to zero for zero.
fn is_normal(value: f64) -> bool {
    value == 0.0 || value.is_normal()
}

/// Days since 1899-12-30. Earlier than March 1900 programs disagree about what a number means,
/// because some have a 29 February 1900.
fn serial(local: NaiveDateTime) -> Option<f64> {
    let zero = NaiveDate::from_ymd_opt(1899, 12, 30)?;
    let first = NaiveDate::from_ymd_opt(1900, 3, 1)?;
    let last = NaiveDate::from_ymd_opt(9999, 12, 31)?;
    let whole = local.date().signed_duration_since(zero).num_days();
    let serial = whole as f64 + days(local.time().signed_duration_since(NaiveTime::MIN));
    // The last microseconds of a far day are those of the next one to a double.
    let within = (first..=last).contains(&local.date()) && serial < (whole + 1) as f64;
    within.then_some(serial)
}

fn days(time: TimeDelta) -> f64 {
    time.num_microseconds().unwrap_or_default() as f64 / 86_400_000_000.0
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureCode::Internal, format!("the workbook could not be written: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_the_numbers_that_spreadsheets_know() {
        let typed = |cell: &str, column_type| match typed(
            cell.as_bytes(),
            column_type,
            chrono_tz::America::Sao_Paulo,
        ) {
            Some(Typed::Moment(serial, _)) => Some(serial),
            other => {
                assert_eq!(other, None);
                None
            }
        };
        assert_eq!(typed("1900-03-01", ColumnType::Date), Some(61.0));
        assert_eq!(typed("2026-07-01", ColumnType::Date), Some(46_204.0));
        assert_eq!(typed("1900-02-28", ColumnType::Date), None);
        assert_eq!(typed("10000-01-01", ColumnType::Date), None);
        assert_eq!(typed("2026-07-01 12:00:00", ColumnType::LocalTimestamp), Some(46_204.5));
        assert_eq!(typed("2026-07-01 12:00:00-03", ColumnType::Timestamp), Some(46_204.5));
        assert_eq!(typed("2026-07-01 12:00:00Z", ColumnType::Timestamp), None, "another offset");
        // The clock was put back at midnight: 23:30 came twice.
        assert_eq!(typed("2019-02-16 23:30:00-03", ColumnType::Timestamp), None);
        let last = "9999-12-31 23:59:59.999999";
        assert_eq!(typed(last, ColumnType::LocalTimestamp), None, "it would be the next day");
        assert_eq!(typed("06:00:00", ColumnType::Time), Some(0.25));
        assert_eq!(typed("24:00:00", ColumnType::Time), None);
    }

    #[test]
    fn numbers_that_a_cell_would_round_are_texts() {
        let is_number =
            |cell: &str, column_type| typed(cell.as_bytes(), column_type, Tz::UTC).is_some();
        assert!(is_number("123456789012345", ColumnType::Integer));
        assert!(!is_number("1234567890123456", ColumnType::Integer));
        assert!(is_number("12345678.90000000000000", ColumnType::Decimal));
        assert!(!is_number("0.1234567890123456", ColumnType::Decimal));
        assert!(is_number("0.30000000000000004", ColumnType::Float), "a double is a double");
        assert!(!is_number("5e-324", ColumnType::Float));
        assert!(!is_number("NaN", ColumnType::Float));
    }
}
