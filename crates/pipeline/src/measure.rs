//! Where a file of a split export ends (rule 23): before the row that would make it larger than
//! it may be, and never before its first one.

use outport_domain::{
    failure::Failure,
    job::Format,
    spec::{ExportSpec, Split},
};
use outport_source::Batch;

use crate::encoder::{Encoder, plain_encoder_of};

/// What a cell of a format that compresses within counts beyond its text. Such a file is smaller
/// than all its cells counted like this.
const CELL_BYTES: u64 = 16;

/// What is in the open file, measured against what may be.
pub(crate) struct Measure {
    most_rows: u64,
    most_bytes: Option<(u64, Scale)>,
    rows: u64,
    bytes: u64,
}

impl Measure {
    /// A measure of files of this request.
    pub(crate) fn new(spec: &ExportSpec, split: Split) -> Result<Self, Failure> {
        let scale = |bytes| Scale::new(spec).map(|scale| (bytes, scale));
        Ok(Self {
            most_rows: split.rows.unwrap_or(u64::MAX),
            most_bytes: split.bytes.map(scale).transpose()?,
            rows: 0,
            bytes: 0,
        })
    }

    /// How many rows of the batch, from one of them on, the open file still takes; they are
    /// counted as taken. None: the next row is for the next file.
    pub(crate) fn take(&mut self, batch: &Batch, from: usize) -> Result<usize, Failure> {
        let left = (self.most_rows - self.rows).min((batch.rows() - from) as u64);
        let mut taken = left;
        if let Some((most, scale)) = &mut self.most_bytes {
            taken = 0;
            while taken < left {
                let row = scale.weigh(batch, from + taken as usize)?;
                let before = if self.rows + taken == 0 { scale.frame } else { self.bytes };
                if before + row > *most && self.rows + taken > 0 {
                    break;
                }
                self.bytes = before + row;
                taken += 1;
            }
        }
        self.rows += taken;
        Ok(taken as usize)
    }

    /// Another file is open.
    pub(crate) fn restart(&mut self) {
        self.rows = 0;
    }
}

/// Says how many bytes rows are before any compression, without writing them.
struct Scale {
    /// Of a file without its rows.
    frame: u64,
    /// Of a format whose bytes can be told row by row.
    encoder: Option<Box<dyn Encoder>>,
    row: Batch,
    bytes: Vec<u8>,
}

impl Scale {
    fn new(spec: &ExportSpec) -> Result<Self, Failure> {
        let mut scale = Self {
            frame: 0,
            encoder: None,
            row: Batch::new(spec.columns.len()),
            bytes: Vec::new(),
        };
        if matches!(spec.format, Format::Xlsx | Format::Parquet) {
            return Ok(scale);
        }
        // What is no row stands around a first row as it does around any number of them; only
        // later rows are all alike.
        let mut row = Batch::new(spec.columns.len());
        spec.columns.iter().for_each(|_| row.push_null());
        let mut first = plain_encoder_of(spec)?;
        let mut whole = Vec::new();
        first.start(&mut whole)?;
        first.rows_of(&row, &mut whole)?;
        first.rows_of(&row, &mut whole)?;
        first.finish(&mut whole)?;
        let mut encoder = plain_encoder_of(spec)?;
        encoder.rows_of(&row, &mut Vec::new())?;
        scale.encoder = Some(encoder);
        scale.frame = whole.len() as u64 - 2 * scale.weigh(&row, 0)?;
        Ok(scale)
    }

    /// A row in bytes.
    fn weigh(&mut self, batch: &Batch, row: usize) -> Result<u64, Failure> {
        self.row.copy_rows(batch, row..row + 1);
        let Some(encoder) = &mut self.encoder else {
            return Ok(self.row.len_bytes() as u64 + self.row.columns() as u64 * CELL_BYTES);
        };
        self.bytes.clear();
        encoder.rows_of(&self.row, &mut self.bytes)?;
        Ok(self.bytes.len() as u64)
    }
}
