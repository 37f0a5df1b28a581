//! A batch of rows: one buffer of bytes, and where each cell ends.

use std::ops::Range;

/// The bit of a cell's end that says NULL. Cells end below 2 GiB.
const NULL: u32 = 1 << 31;

/// Rows as bytes with offsets, row by row.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    columns: usize,
}

/// A place in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Bytes before it.
    pub(crate) bytes: usize,
    cells: usize,
}

/// One cell: its text, or NULL.
pub type Cell<'a> = Option<&'a [u8]>;

impl Batch {
    /// An empty batch for rows of so many columns (at least one).
    pub fn new(columns: usize) -> Self {
        assert!(columns > 0, "a row has at least one column");
        Self { bytes: Vec::new(), ends: Vec::new(), columns }
    }

    /// An empty batch with room for so many bytes, so that filling it does not grow it by doubling.
    pub(crate) fn with_room(columns: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::new(columns) }
    }

    /// Drops all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Makes this batch a copy of some rows of another, of as many columns.
    pub fn copy_rows(&mut self, from: &Self, rows: Range<usize>) {
        self.clear();
        self.columns = from.columns;
        let cells = rows.start * from.columns..rows.end * from.columns;
        let end_of = |end: u32| end & !NULL;
        let start = cells.start.checked_sub(1).map_or(0, |before| end_of(from.ends[before]));
        let ends = &from.ends[cells];
        let end = ends.last().map_or(start, |last| end_of(*last));
        self.bytes.extend_from_slice(&from.bytes[start as usize..end as usize]);
        // The bit stays as it is: every end is at least as large as the start.
        self.ends.extend(ends.iter().map(|end| end - start));
    }

    /// Appends a cell with a value.
    pub fn push(&mut self, cell: &[u8]) {
        self.bytes.extend_from_slice(cell);
        self.end_cell();
    }

    /// Appends a NULL cell.
    pub fn push_null(&mut self) {
        let end = self.end();
        self.ends.push(end | NULL);
    }

    /// The buffer, to write a cell into piece by piece; [`Batch::end_cell`] ends it.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the cell whose bytes were written into [`Batch::buffer`].
    pub fn end_cell(&mut self) {
        let end = self.end();
        self.ends.push(end);
    }

    /// What is in the batch now, to go back to when a row turns out not to be whole.
    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), cells: self.ends.len() }
    }

    /// Forgets the cells that came after the mark.
    pub(crate) fn back_to(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.ends.truncate(mark.cells);
    }

    fn end(&self) -> u32 {
        u32::try_from(self.bytes.len())
            .ok()
            .filter(|end| end & NULL == 0)
            .expect("a batch is far smaller than 2 GiB")
    }

    /// The bytes of all cells, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of all cells.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that fit without growing.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Cells of each row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Whole rows.
    pub fn rows(&self) -> usize {
        self.ends.len() / self.columns
    }

    /// Whether it holds no cell.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All cells, row by row, [`Batch::rows`] × columns of them.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let until = (end & !NULL) as usize;
            let cell = (end & NULL == 0).then(|| &self.bytes[start..until]);
            start = until;
            cell
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Batch;

    #[test]
    fn null_and_empty_are_different_cells() {
        let mut batch = Batch::new(3);
        batch.push(b"a");
        batch.push_null();
        batch.push(b"");
        assert_eq!(batch.rows(), 1);
        assert_eq!(batch.cells().collect::<Vec<_>>(), [Some(&b"a"[..]), None, Some(&b""[..])]);
    }

    #[test]
    fn rows_are_copied_with_their_nulls_and_nothing_else() {
        let mut batch = Batch::new(2);
        for row in 0..4_usize {
            batch.push(&b"xxxxxxx"[..row]);
            if row == 2 { batch.push_null() } else { batch.push(b"y") }
        }
        let all: Vec<_> = batch.cells().collect();
        let mut copy = Batch::new(7);
        copy.push(b"what was in it");
        for from in 0..=4 {
            for to in from..=4 {
                copy.copy_rows(&batch, from..to);
                assert_eq!((copy.rows(), copy.columns()), (to - from, 2));
                assert_eq!(copy.cells().collect::<Vec<_>>(), all[from * 2..to * 2]);
            }
        }
    }

    #[test]
    fn a_row_that_is_not_whole_can_be_forgotten() {
        let mut batch = Batch::new(2);
        batch.push(b"a");
        batch.push(b"b");
        let mark = batch.mark();
        batch.push_null();
        batch.buffer().extend_from_slice(b"half a cell");
        batch.back_to(mark);
        batch.push(b"c");
        batch.push(b"d");
        let cells: Vec<_> = batch.cells().map(|cell| cell.expect("a value")).collect();
        assert_eq!(cells, [b"a", b"b", b"c", b"d"]);
    }
}
