//! Parquet (rule 21): real types, every column optional, in row groups of bounded size. A column
//! whose type cannot hold all that its declaration allows (a decimal without a precision, a
//! time of day, which may be 24:00:00) is text. A value that its column's type cannot hold fails
//! the job and names the column.

mod column;
mod number;

use std::{fmt::Display, mem, sync::Arc};

use outport_domain::{
    failure::{Failure, FailureCode},
    job::Warnings,
    spec::ExportSpec,
};
use outport_source::Batch;
use parquet::{
    basic::{Compression, ZstdLevel},
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::types::Type,
};

use crate::{
    cell::{TextRule, not_encodable},
    encoder::Encoder,
};
use column::Column;

/// Bytes of values held back for a row group: readers like them large, and the memory of one
/// export is bounded.
const GROUP_BYTES: usize = 6 * 1024 * 1024;

/// Bytes of the distinct values of a column in a row group. A column with more of them is hardly
/// worth a dictionary, which takes several times as much memory.
const DICTIONARY_BYTES: usize = 256 * 1024;

/// Encodes one file.
pub struct ParquetEncoder {
    writer: SerializedFileWriter<Vec<u8>>,
    columns: Vec<Column>,
    text: TextRule,
    /// Rows of the row group at hand.
    held_rows: u64,
    rows: u64,
}

impl ParquetEncoder {
    /// An encoder for the columns of a request.
    pub fn new(spec: &ExportSpec) -> Result<Self, Failure> {
        let columns: Vec<Column> = spec
            .columns
            .iter()
            .zip(&spec.selection.columns)
            .map(|(output, reference)| {
                Column::new(&output.key, reference.column_type, output.digits)
            })
            .collect();
        let fields = columns.iter().map(|column| column.field().map(Arc::new));
        let fields = fields.collect::<Result<_, _>>().map_err(failed)?;
        let schema =
            Type::group_type_builder("schema").with_fields(fields).build().map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_created_by("outport".to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).map_err(failed)?))
            .set_dictionary_page_size_limit(DICTIONARY_BYTES)
            // Of each row group, not of each page: what the footer holds stays small.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .build();
        let writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))
            .map_err(failed)?;
        let text = TextRule::new(spec.resource.invalid_text);
        Ok(Self { writer, columns, text, held_rows: 0, rows: 0 })
    }

    /// Writes the rows at hand as a row group.
    fn end_group(&mut self) -> Result<(), Failure> {
        if self.held_rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(failed)?;
        for column in &mut self.columns {
            let chunk = group
                .next_column()
                .map_err(failed)?
                .ok_or_else(|| failed("a column is missing"))?;
            column.write(chunk).map_err(failed)?;
        }
        group.close().map_err(failed)?;
        self.held_rows = 0;
        Ok(())
    }

    fn take_into(&mut self, out: &mut Vec<u8>) {
        let ready = self.writer.inner_mut();
        if out.is_empty() {
            // A row group need not be in memory twice.
            mem::swap(out, ready);
        } else {
            out.append(ready);
        }
    }
}

impl Encoder for ParquetEncoder {
    fn start(&mut self, _out: &mut Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }

    fn rows_of(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), Failure> {
        let width = self.columns.len();
        for (at, cell) in batch.cells().enumerate() {
            let column = &mut self.columns[at % width];
            if let Err(what) = column.push(cell, &mut self.text)? {
                return Err(not_encodable(column.key(), what));
            }
        }
        self.rows += batch.rows() as u64;
        self.held_rows += batch.rows() as u64;
        if self.columns.iter().map(Column::held_bytes).sum::<usize>() >= GROUP_BYTES {
            self.end_group()?;
            self.take_into(out);
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.end_group()?;
        self.writer.finish().map_err(failed)?;
        self.take_into(out);
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn warnings(&self) -> Warnings {
        Warnings { replaced_cells: self.text.replaced(), guarded_cells: 0 }
    }
}

fn failed(error: impl Display) -> Failure {
    Failure::new(FailureCode::Internal, format!("the Parquet file could not be written: {error}"))
}
