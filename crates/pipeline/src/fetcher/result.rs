//! The result: `{connection: {table: [{column: value}]}}`, names sorted, indented by two spaces.

use chrono::{DateTime, Utc};
use outport_domain::{
    canonical::{new_line, quoted},
    dialect::InvalidText,
    failure::Failure,
    selection::ColumnRef,
};
use outport_source::Batch;

use super::{Table, value};
use crate::cell::TextRule;

/// How deep in the result a row is.
const ROW: usize = 3;

/// The rows of one table as they stand in the result.
pub struct Rows {
    /// The moment that they were seen at.
    pub snapshot_at: DateTime<Utc>,
    columns: Vec<Column>,
    text: TextRule,
    count: u64,
    out: String,
}

struct Column {
    name: String,
    /// All that stands before its value.
    lead: String,
    reference: ColumnRef,
}

impl Rows {
    pub fn new(snapshot_at: DateTime<Utc>, table: &Table) -> Self {
        let columns = table.columns.iter().zip(&table.selection.columns);
        let columns = columns.enumerate().map(|(index, (name, reference))| {
            let mut lead = if index == 0 { "{" } else { "," }.to_owned();
            new_line(ROW + 1, &mut lead);
            quoted(name, &mut lead);
            lead.push_str(": ");
            Column { name: name.clone(), lead, reference: reference.clone() }
        });
        Self {
            snapshot_at,
            columns: columns.collect(),
            text: TextRule::new(InvalidText::Replace),
            count: 0,
            out: String::new(),
        }
    }

    /// Cells of each row.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Rows so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Appends rows.
    pub fn take(&mut self, batch: &Batch) -> Result<(), Failure> {
        let last = self.columns.len() - 1;
        for (at, cell) in batch.cells().enumerate() {
            let index = at % self.columns.len();
            if index == 0 {
                if self.count > 0 {
                    self.out.push(',');
                }
                new_line(ROW, &mut self.out);
            }
            let column = &self.columns[index];
            self.out.push_str(&column.lead);
            match cell {
                None => self.out.push_str("null"),
                Some(cell) => {
                    let column_type = column.reference.column_type;
                    value::push(cell, column_type, &column.name, &mut self.text, &mut self.out)?;
                }
            }
            if index == last {
                new_line(ROW, &mut self.out);
                self.out.push('}');
                self.count += 1;
            }
        }
        Ok(())
    }
}

/// Everything that was read as one document. A table without rows is an empty array.
pub fn whole(mut read: Vec<(String, Vec<(String, Rows)>)>) -> Vec<u8> {
    read.sort_by(|one, other| one.0.cmp(&other.0));
    let bytes: usize =
        read.iter().flat_map(|(_, tables)| tables).map(|(_, rows)| rows.bytes()).sum();
    let mut out = String::with_capacity(bytes + bytes / 64 + 1024);
    out.push('{');
    for (index, (connection, mut tables)) in read.into_iter().enumerate() {
        member(index, 1, &connection, &mut out);
        out.push('{');
        tables.sort_by(|one, other| one.0.cmp(&other.0));
        for (index, (table, rows)) in tables.into_iter().enumerate() {
            member(index, 2, &table, &mut out);
            out.push('[');
            out.push_str(&rows.out);
            if rows.count > 0 {
                new_line(2, &mut out);
            }
            out.push(']');
        }
        new_line(1, &mut out);
        out.push('}');
    }
    new_line(0, &mut out);
    out.push('}');
    out.into_bytes()
}

fn member(index: usize, level: usize, name: &str, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
    new_line(level, out);
    quoted(name, out);
    out.push_str(": ");
}
