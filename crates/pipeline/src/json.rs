//! NDJSON and JSON (rule 19): one object a row, its members in column order under the columns'
//! keys. A value is of one JSON type for its whole column, but for values that a JSON number
//! would spoil: those are strings.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use outport_domain::{column::ColumnType, failure::Failure, job::Warnings, spec::ExportSpec};
use outport_source::Batch;
use serde::de::IgnoredAny;

use crate::{
    cell::{self, TextRule},
    encoder::Encoder,
};

/// Programs that read JSON numbers as doubles hold every whole number up to this one.
const LARGEST_EXACT: u64 = (1 << 53) - 1;

/// What stands around the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// NDJSON: each on a line of its own.
    Lines,
    /// JSON: all in one array.
    Array,
}

/// Encodes one file.
#[derive(Debug)]
pub struct JsonEncoder {
    layout: Layout,
    members: Vec<Member>,
    text: TextRule,
    rows: u64,
}

#[derive(Debug)]
struct Member {
    key: String,
    /// All that stands before the value, e.g. `,"code":`.
    lead: Vec<u8>,
    column_type: ColumnType,
}

impl JsonEncoder {
    /// An encoder for the columns of a request.
    pub fn new(spec: &ExportSpec, layout: Layout) -> Self {
        let member = |(index, key, column_type): (usize, &String, ColumnType)| {
            let mut lead = vec![if index == 0 { b'{' } else { b',' }];
            string(key, &mut lead);
            lead.push(b':');
            Member { key: key.clone(), lead, column_type }
        };
        let columns = spec.columns.iter().zip(&spec.selection.columns).enumerate();
        let members = columns
            .map(|(index, (output, reference))| (index, &output.key, reference.column_type))
            .map(member)
            .collect();
        Self { layout, members, text: TextRule::new(spec.resource.invalid_text), rows: 0 }
    }

    fn value(&mut self, index: usize, cell: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let Member { key, column_type, .. } = &self.members[index];
        match column_type {
            ColumnType::Integer if is_exact(cell) => out.extend_from_slice(cell),
            ColumnType::Float if cell::number(cell).is_some() => out.extend_from_slice(cell),
            ColumnType::Boolean => match cell::boolean(cell) {
                Some(true) => out.extend_from_slice(b"true"),
                Some(false) => out.extend_from_slice(b"false"),
                None => string(&self.text.text(cell, key)?, out),
            },
            ColumnType::Binary => string(&STANDARD.encode(cell::bytes(cell)), out),
            ColumnType::Json => {
                let text = self.text.text(cell, key)?;
                if serde_json::from_str::<IgnoredAny>(&text).is_ok() {
                    // Between the tokens of a document a line break is as good as a space, and
                    // within them there is none.
                    let on_one_line =
                        |byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte };
                    out.extend(text.bytes().map(on_one_line));
                } else {
                    string(&text, out);
                }
            }
            _ => string(&self.text.text(cell, key)?, out),
        }
        Ok(())
    }
}

impl Encoder for JsonEncoder {
    fn start(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        if self.layout == Layout::Array {
            out.push(b'[');
        }
        Ok(())
    }

    fn rows_of(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), Failure> {
        let around: usize = self.members.iter().map(|member| member.lead.len() + 2).sum();
        out.reserve(batch.len_bytes() + batch.len_bytes() / 8 + batch.rows() * (around + 2));
        let last = self.members.len() - 1;
        let mut index = 0;
        for cell in batch.cells() {
            if index == 0 && self.layout == Layout::Array {
                out.extend_from_slice(if self.rows == 0 { b"\n" } else { b",\n" });
            }
            out.extend_from_slice(&self.members[index].lead);
            match cell {
                None => out.extend_from_slice(b"null"),
                Some(cell) => self.value(index, cell, out)?,
            }
            if index < last {
                index += 1;
                continue;
            }
            index = 0;
            self.rows += 1;
            out.extend_from_slice(if self.layout == Layout::Array { b"}" } else { b"}\n" });
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        if self.layout == Layout::Array {
            out.extend_from_slice(if self.rows == 0 { b"]\n" } else { b"\n]\n" });
        }
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn warnings(&self) -> Warnings {
        Warnings { replaced_cells: self.text.replaced(), guarded_cells: 0 }
    }
}

fn string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a text becomes JSON, and a buffer takes all");
}

fn is_exact(cell: &[u8]) -> bool {
    let value = std::str::from_utf8(cell).ok().and_then(|text| text.parse::<i64>().ok());
    cell::is_integer(cell) && value.is_some_and(|value| value.unsigned_abs() <= LARGEST_EXACT)
}
