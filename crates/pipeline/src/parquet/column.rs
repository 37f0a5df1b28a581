//! A column of a Parquet file: its type, and the values of the row group at hand.

use bytes::Bytes;
use chrono::{NaiveDate, NaiveDateTime};
use outport_domain::{
    column::{ColumnType, Digits},
    failure::Failure,
};
use parquet::{
    basic::{LogicalType, TimeUnit, Type as Physical},
    data_type::{
        BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType,
        Int32Type, Int64Type,
    },
    errors::Result,
    file::writer::SerializedColumnWriter,
    schema::types::Type,
};
use serde::de::IgnoredAny;

use super::number::{float, integer, unscaled};
use crate::{
    cell::{self, TextRule},
    moment,
};

/// Values handed to the writer at once.
const AT_ONCE: usize = 4096;
/// Digits that 32 and 64 bits hold.
const DIGITS_OF_INT32: u8 = 9;
const DIGITS_OF_INT64: u8 = 18;
/// Bytes of a larger decimal.
const WIDE: usize = 16;

/// One column.
pub(super) struct Column {
    key: String,
    kind: Kind,
    values: Values,
    /// For each row: 1 for a value, 0 for NULL.
    levels: Vec<i16>,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Boolean,
    Integer,
    Float,
    Decimal(Digits),
    Date,
    LocalTimestamp,
    Instant,
    Json,
    Binary,
    Text,
}

enum Values {
    Boolean(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Double(Vec<f64>),
    Wide(Vec<[u8; WIDE]>),
    Bytes { bytes: Vec<u8>, ends: Vec<u32> },
}

impl Column {
    pub(super) fn new(key: &str, column_type: ColumnType, digits: Option<Digits>) -> Self {
        let kind = match (column_type, digits) {
            (ColumnType::Boolean, _) => Kind::Boolean,
            (ColumnType::Integer, _) => Kind::Integer,
            (ColumnType::Float, _) => Kind::Float,
            (ColumnType::Decimal, Some(digits)) => Kind::Decimal(digits),
            (ColumnType::Date, _) => Kind::Date,
            (ColumnType::LocalTimestamp, _) => Kind::LocalTimestamp,
            (ColumnType::Timestamp, _) => Kind::Instant,
            (ColumnType::Json, _) => Kind::Json,
            (ColumnType::Binary, _) => Kind::Binary,
            (ColumnType::Text | ColumnType::Uuid | ColumnType::Time | ColumnType::Decimal, _) => {
                Kind::Text
            }
        };
        Self { key: key.to_owned(), kind, values: kind.no_values(), levels: Vec::new() }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The column in the file's schema.
    pub(super) fn field(&self) -> Result<Type> {
        let physical = match self.values {
            Values::Boolean(_) => Physical::BOOLEAN,
            Values::Int32(_) => Physical::INT32,
            Values::Int64(_) => Physical::INT64,
            Values::Double(_) => Physical::DOUBLE,
            Values::Wide(_) => Physical::FIXED_LEN_BYTE_ARRAY,
            Values::Bytes { .. } => Physical::BYTE_ARRAY,
        };
        let logical = match self.kind {
            Kind::Boolean | Kind::Integer | Kind::Float | Kind::Binary => None,
            Kind::Decimal(digits) => {
                Some(LogicalType::decimal(digits.scale.into(), digits.precision.into()))
            }
            Kind::Date => Some(LogicalType::Date),
            Kind::LocalTimestamp => Some(LogicalType::timestamp(false, TimeUnit::MICROS)),
            Kind::Instant => Some(LogicalType::timestamp(true, TimeUnit::MICROS)),
            Kind::Json => Some(LogicalType::Json),
            Kind::Text => Some(LogicalType::String),
        };
        let mut builder =
            Type::primitive_type_builder(&self.key, physical).with_logical_type(logical);
        if let Kind::Decimal(digits) = self.kind {
            builder =
                builder.with_precision(digits.precision.into()).with_scale(digits.scale.into());
            if matches!(self.values, Values::Wide(_)) {
                builder = builder.with_length(WIDE as i32);
            }
        }
        builder.build()
    }

    /// Takes a cell, or says why the column cannot hold it.
    pub(super) fn push(
        &mut self,
        cell: Option<&[u8]>,
        text: &mut TextRule,
    ) -> std::result::Result<std::result::Result<(), &'static str>, Failure> {
        let Some(cell) = cell else {
            self.levels.push(0);
            return Ok(Ok(()));
        };
        self.levels.push(1);
        Ok(match (self.kind, &mut self.values) {
            (Kind::Text, Values::Bytes { bytes, ends }) => {
                append(text.text(cell, &self.key)?.as_bytes(), bytes, ends);
                Ok(())
            }
            (Kind::Json, Values::Bytes { bytes, ends }) => {
                let document = text.text(cell, &self.key)?;
                if serde_json::from_str::<IgnoredAny>(&document).is_err() {
                    return Ok(Err("holds a value that is no JSON"));
                }
                append(document.as_bytes(), bytes, ends);
                Ok(())
            }
            (Kind::Binary, Values::Bytes { bytes, ends }) => {
                append(&cell::bytes(cell), bytes, ends);
                Ok(())
            }
            (Kind::Decimal(digits), values) => push_decimal(cell, digits, values),
            (kind, values) => push_plain(cell, kind, values),
        })
    }

    /// Bytes of memory of the values at hand.
    pub(super) fn held_bytes(&self) -> usize {
        let values = match &self.values {
            Values::Boolean(values) => values.len(),
            Values::Int32(values) => values.len() * 4,
            Values::Int64(values) => values.len() * 8,
            Values::Double(values) => values.len() * 8,
            Values::Wide(values) => values.len() * WIDE,
            Values::Bytes { bytes, ends } => bytes.len() + ends.len() * 4,
        };
        values + self.levels.len() * 2
    }

    /// Writes the values at hand as a whole chunk and forgets them. Their memory stays, for the
    /// next: given back and asked for again, it would come to more than is ever in use.
    pub(super) fn write(&mut self, mut chunk: SerializedColumnWriter<'_>) -> Result<()> {
        let levels = &self.levels;
        match &mut self.values {
            Values::Boolean(values) => {
                chunk.typed::<BoolType>().write_batch(values, Some(levels), None)?;
                values.clear();
            }
            Values::Int32(values) => {
                chunk.typed::<Int32Type>().write_batch(values, Some(levels), None)?;
                values.clear();
            }
            Values::Int64(values) => {
                chunk.typed::<Int64Type>().write_batch(values, Some(levels), None)?;
                values.clear();
            }
            Values::Double(values) => {
                chunk.typed::<DoubleType>().write_batch(values, Some(levels), None)?;
                values.clear();
            }
            Values::Wide(values) => {
                let bytes = Bytes::from(values.concat());
                let value = |at: usize| {
                    FixedLenByteArray::from(ByteArray::from(
                        bytes.slice(at * WIDE..(at + 1) * WIDE),
                    ))
                };
                piecewise(levels, |levels, values| {
                    let values: Vec<_> = values.map(value).collect();
                    chunk.typed::<FixedLenByteArrayType>().write_batch(&values, Some(levels), None)
                })?;
                values.clear();
            }
            Values::Bytes { bytes, ends } => {
                let all = Bytes::from(std::mem::take(bytes));
                let value = |at: usize| {
                    let start = if at == 0 { 0 } else { ends[at - 1] as usize };
                    ByteArray::from(all.slice(start..ends[at] as usize))
                };
                piecewise(levels, |levels, values| {
                    let values: Vec<_> = values.map(value).collect();
                    chunk.typed::<ByteArrayType>().write_batch(&values, Some(levels), None)
                })?;
                ends.clear();
                self.levels.clear();
                chunk.close()?;
                // Nobody else holds a part of it any more, so it is not copied.
                *bytes = all.into();
                bytes.clear();
                return Ok(());
            }
        }
        self.levels.clear();
        chunk.close()
    }
}

impl Kind {
    fn no_values(self) -> Values {
        match self {
            Self::Boolean => Values::Boolean(Vec::new()),
            Self::Date => Values::Int32(Vec::new()),
            Self::Integer | Self::LocalTimestamp | Self::Instant => Values::Int64(Vec::new()),
            Self::Float => Values::Double(Vec::new()),
            Self::Decimal(digits) if digits.precision <= DIGITS_OF_INT32 => {
                Values::Int32(Vec::new())
            }
            Self::Decimal(digits) if digits.precision <= DIGITS_OF_INT64 => {
                Values::Int64(Vec::new())
            }
            Self::Decimal(_) => Values::Wide(Vec::new()),
            Self::Json | Self::Binary | Self::Text => {
                Values::Bytes { bytes: Vec::new(), ends: Vec::new() }
            }
        }
    }
}

/// Hands over a few rows at once, so that what the writer wants of each value stays small.
fn piecewise(
    levels: &[i16],
    mut write: impl FnMut(&[i16], std::ops::Range<usize>) -> Result<usize>,
) -> Result<()> {
    let mut start = 0;
    for levels in levels.chunks(AT_ONCE) {
        let end = start + levels.iter().filter(|level| **level == 1).count();
        write(levels, start..end)?;
        start = end;
    }
    Ok(())
}

fn append(value: &[u8], bytes: &mut Vec<u8>, ends: &mut Vec<u32>) {
    bytes.extend_from_slice(value);
    ends.push(u32::try_from(bytes.len()).expect("a row group is far smaller than 4 GiB"));
}

fn push_plain(
    cell: &[u8],
    kind: Kind,
    values: &mut Values,
) -> std::result::Result<(), &'static str> {
    match (kind, values) {
        (Kind::Boolean, Values::Boolean(values)) => {
            values.push(cell::boolean(cell).ok_or("holds a value that is neither true nor false")?);
        }
        (Kind::Integer, Values::Int64(values)) => {
            values.push(integer(cell).ok_or("holds a value that is no 64-bit integer")?);
        }
        (Kind::Float, Values::Double(values)) => {
            values.push(float(cell).ok_or("holds a value that is no number")?);
        }
        (Kind::Date, Values::Int32(values)) => {
            values.push(day(cell).ok_or("holds a value that is no day of the calendar")?);
        }
        (Kind::LocalTimestamp, Values::Int64(values)) => {
            let micros = moment::local(cell).map(|local| micros(local, 0));
            values.push(micros.ok_or("holds a value that is no time stamp in microseconds")?);
        }
        (Kind::Instant, Values::Int64(values)) => {
            let micros = moment::instant(cell).map(|(local, offset)| micros(local, offset));
            values.push(micros.ok_or("holds a value that is no instant in microseconds")?);
        }
        (kind, _) => unreachable!("{kind:?} has other values"),
    }
    Ok(())
}

fn push_decimal(
    cell: &[u8],
    digits: Digits,
    values: &mut Values,
) -> std::result::Result<(), &'static str> {
    let unscaled =
        unscaled(cell, digits).ok_or("holds a value beyond its declared precision and scale")?;
    match values {
        Values::Int32(values) => values.push(unscaled as i32),
        Values::Int64(values) => values.push(unscaled as i64),
        Values::Wide(values) => values.push(unscaled.to_be_bytes()),
        _ => unreachable!("decimals have other values"),
    }
    Ok(())
}

/// Days since 1970.
fn day(cell: &[u8]) -> Option<i32> {
    let since = moment::day(cell)?.signed_duration_since(NaiveDate::default());
    i32::try_from(since.num_days()).ok()
}

/// Microseconds since 1970.
fn micros(local: NaiveDateTime, offset: i32) -> i64 {
    local.and_utc().timestamp_micros() - i64::from(offset) * 1_000_000
}
