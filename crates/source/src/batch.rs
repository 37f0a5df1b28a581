//! A batch of rows: one buffer of bytes, and where each cell ends.
//!
//! After each cell stands a byte of ours, [`AFTER_CELL`]. So an encoder can copy many cells at
//! once and put its own separators there; and as that byte is ASCII, text that is valid as a
//! whole is valid cell by cell: no character reaches from one cell into the next.

use std::ops::Range;

/// Where a cell ends in [`Batch::bytes`], and whether it is NULL.
#[derive(Clone, Copy, Debug)]
pub struct End(u32);

impl End {
    /// The bit that says NULL. Cells end below 2 GiB.
    const NULL: u32 = 1 << 31;

    /// The index behind the cell's last byte, where [`AFTER_CELL`] stands.
    pub const fn at(self) -> usize {
        (self.0 & !Self::NULL) as usize
    }

    /// Whether the cell is NULL; then it has no bytes.
    pub const fn is_null(self) -> bool {
        self.0 & Self::NULL != 0
    }

    fn new(at: usize) -> Self {
        let at = u32::try_from(at).ok().filter(|at| at & Self::NULL == 0);
        Self(at.expect("a batch is far smaller than 2 GiB"))
    }

    const fn of_null(self) -> Self {
        Self(self.0 | Self::NULL)
    }

    /// The same cell, so many bytes nearer to the front.
    const fn moved(self, bytes: usize) -> Self {
        // The bit stays as it is: no cell ends before the front.
        Self(self.0 - bytes as u32)
    }
}

/// What stands after each cell, also after a NULL: ASCII's own unit separator. A cell may hold
/// it too; only the ends tell where cells are.
pub const AFTER_CELL: u8 = 0x1F;

/// Rows as bytes with offsets, row by row.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    ends: Vec<End>,
    columns: usize,
}

/// A place in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Bytes before it, those after cells too.
    bytes: usize,
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
        let behind = |end: End| end.at() + 1;
        let start = cells.start.checked_sub(1).map_or(0, |before| behind(from.ends[before]));
        let ends = &from.ends[cells];
        let end = ends.last().map_or(start, |last| behind(*last));
        self.bytes.extend_from_slice(&from.bytes[start..end]);
        self.ends.extend(ends.iter().map(|end| end.moved(start)));
    }

    /// Appends a cell with a value.
    pub fn push(&mut self, cell: &[u8]) {
        self.bytes.extend_from_slice(cell);
        self.end_cell();
    }

    /// Appends a NULL cell.
    pub fn push_null(&mut self) {
        self.ends.push(End::new(self.bytes.len()).of_null());
        self.bytes.push(AFTER_CELL);
    }

    /// The buffer, to write a cell into piece by piece; [`Batch::end_cell`] ends it.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the cell whose bytes were written into [`Batch::buffer`].
    pub fn end_cell(&mut self) {
        self.ends.push(End::new(self.bytes.len()));
        self.bytes.push(AFTER_CELL);
    }

    /// What is in the batch now, to go back to when a row turns out not to be whole.
    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), cells: self.ends.len() }
    }

    /// Bytes that came after the mark, those after cells too.
    pub(crate) fn bytes_since(&self, mark: Mark) -> usize {
        self.bytes.len() - mark.bytes
    }

    /// Forgets the cells that came after the mark.
    pub(crate) fn back_to(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.ends.truncate(mark.cells);
    }

    /// The bytes of all cells, one after the other, [`AFTER_CELL`] after each.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of all cells alone.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() - self.ends.len()
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

    /// Where the cells end, row by row.
    pub fn ends_of_rows(&self) -> impl Iterator<Item = &[End]> {
        self.ends.chunks_exact(self.columns)
    }

    /// How many cells there are, also those of a row that is not whole.
    pub fn len_cells(&self) -> usize {
        self.ends.len()
    }

    /// All cells, row by row, [`Batch::rows`] × columns of them.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let cell = (!end.is_null()).then(|| &self.bytes[start..end.at()]);
            start = end.at() + 1;
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
