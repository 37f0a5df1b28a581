//! What every format has in common: bytes for the start of a file, for the rows of each batch,
//! and for its end; and how many rows and changed values they hold.

use outport_domain::{
    failure::Failure,
    job::{Compression, Format, Warnings},
    spec::ExportSpec,
};
use outport_source::Batch;

use crate::{
    compressed::Compressed,
    csv::CsvEncoder,
    json::{JsonEncoder, Layout},
    parquet::ParquetEncoder,
    xlsx::XlsxEncoder,
};

/// Makes one file. All its bytes are appended to `out` as they come to be; what an encoder holds
/// back is bounded.
pub trait Encoder: Send {
    /// What stands before the first row. Called once.
    fn start(&mut self, out: &mut Vec<u8>) -> Result<(), Failure>;

    /// The rows of a batch.
    fn rows_of(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), Failure>;

    /// What stands after the last row, also when there was none. Called once.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Failure>;

    /// Data rows taken so far.
    fn rows(&self) -> u64;

    /// What was changed so far.
    fn warnings(&self) -> Warnings;
}

/// The encoder of a request's format and compression.
pub fn encoder_of(spec: &ExportSpec) -> Result<Box<dyn Encoder>, Failure> {
    let plain = plain_encoder_of(spec)?;
    Ok(match spec.compression {
        Compression::None => plain,
        Compression::Gzip => Box::new(Compressed::gzip(plain)),
        Compression::Zstd => Box::new(Compressed::zstd(plain)?),
    })
}

/// The encoder of a request's format alone.
pub(crate) fn plain_encoder_of(spec: &ExportSpec) -> Result<Box<dyn Encoder>, Failure> {
    Ok(match spec.format {
        Format::Csv => Box::new(CsvEncoder::new(spec)),
        Format::Ndjson => Box::new(JsonEncoder::new(spec, Layout::Lines)),
        Format::Json => Box::new(JsonEncoder::new(spec, Layout::Array)),
        Format::Xlsx => Box::new(XlsxEncoder::new(spec)),
        Format::Parquet => Box::new(ParquetEncoder::new(spec)?),
    })
}

impl Encoder for CsvEncoder {
    fn start(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.header(out);
        Ok(())
    }

    fn rows_of(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), Failure> {
        Self::rows_of(self, batch, out)
    }

    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }

    fn rows(&self) -> u64 {
        Self::rows(self)
    }

    fn warnings(&self) -> Warnings {
        Self::warnings(self)
    }
}
