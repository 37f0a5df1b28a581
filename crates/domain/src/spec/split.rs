//! Whether a request wants numbered files, and where one of them ends (rule 23).

use super::Body;
use crate::{
    job::Format,
    json::{FieldCode, FieldErrors, JsonType, type_of},
    limits::fixed,
};

/// The largest whole number that every program reads from JSON as it is.
const LARGEST: u64 = (1 << 53) - 1;

/// Where one file of a split export ends and the next begins: always between two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Data rows of a file at most.
    pub rows: Option<u64>,
    /// Bytes of a file at most, before any compression.
    pub bytes: Option<u64>,
}

impl Body<'_> {
    pub(super) fn split(&self, format: Format, errors: &mut FieldErrors) -> Option<Split> {
        const ROWS: &str = "maxRowsPerFile";
        let rows = self.whole_number(ROWS, 1, errors);
        let bytes = self.whole_number("maxBytesPerFile", fixed::SPLIT_BYTES_LEAST, errors);
        let sheet = (format == Format::Xlsx).then_some(fixed::SHEET_ROWS);
        if let (Some(rows), Some(most)) = (rows, sheet)
            && rows > most
        {
            let message = format!("must be at most {most} with format XLSX: a sheet holds no more");
            errors.push(ROWS, FieldCode::InvalidValue, message);
        }
        // Also files that are split by their bytes alone end where a sheet is full.
        (rows.is_some() || bytes.is_some()).then_some(Split { rows: rows.or(sheet), bytes })
    }

    fn whole_number(&self, field: &str, least: u64, errors: &mut FieldErrors) -> Option<u64> {
        let raw = self.member(field)?;
        if type_of(raw) != JsonType::Number {
            errors.push(field, FieldCode::InvalidType, "must be a number");
            return None;
        }
        let number = raw.get().parse().ok().filter(|number| (least..=LARGEST).contains(number));
        if number.is_none() {
            let message = format!("must be a whole number from {least} to {LARGEST}, in digits");
            errors.push(field, FieldCode::InvalidValue, message);
        }
        number
    }
}
