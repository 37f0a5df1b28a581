//! The text form of COPY, read as bytes: rows end in LF, cells in a tab, `\N` is NULL, and a
//! backslash begins an escape. In UTF-8 no byte of a longer character is one of these.

use memchr::{memchr, memchr2};

use crate::{Batch, MOST_ROW_BYTES};

/// Why bytes are no rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// A row does not have the asked number of cells.
    Cells,
    /// A row ends within an escape.
    Escape,
    /// A row is larger than [`MOST_ROW_BYTES`].
    TooLarge,
}

/// Takes the pieces of a stream as they come; rows may be cut anywhere.
pub(super) struct CopyText {
    columns: usize,
    /// The beginning of a row whose end has not come.
    begun: Vec<u8>,
}

impl CopyText {
    pub(super) const fn new(columns: usize) -> Self {
        Self { columns, begun: Vec::new() }
    }

    /// Appends the rows that end in this piece.
    pub(super) fn take(&mut self, mut piece: &[u8], batch: &mut Batch) -> Result<(), Malformed> {
        while let Some(end) = memchr(b'\n', piece) {
            let (line, rest) = (&piece[..end], &piece[end + 1..]);
            if self.begun.len() + line.len() > MOST_ROW_BYTES {
                return Err(Malformed::TooLarge);
            }
            if self.begun.is_empty() {
                row(line, self.columns, batch)?;
            } else {
                self.begun.extend_from_slice(line);
                row(&self.begun, self.columns, batch)?;
                self.begun.clear();
                self.begun.shrink_to(64 * 1024);
            }
            piece = rest;
        }
        if self.begun.len() + piece.len() > MOST_ROW_BYTES {
            return Err(Malformed::TooLarge);
        }
        self.begun.extend_from_slice(piece);
        Ok(())
    }

    /// Whether no row is begun.
    pub(super) const fn is_at_row_end(&self) -> bool {
        self.begun.is_empty()
    }
}

fn row(line: &[u8], columns: usize, batch: &mut Batch) -> Result<(), Malformed> {
    let mut rest = line;
    let mut cells = 0;
    loop {
        cells += 1;
        if cells > columns {
            return Err(Malformed::Cells);
        }
        let (cell_end, escaped) = match memchr2(b'\t', b'\\', rest) {
            None => (rest.len(), false),
            Some(at) if rest[at] == b'\t' => (at, false),
            Some(at) => (at + memchr(b'\t', &rest[at..]).unwrap_or(rest.len() - at), true),
        };
        let cell = &rest[..cell_end];
        if !escaped {
            batch.push(cell);
        } else if cell == b"\\N" {
            batch.push_null();
        } else {
            unescape(cell, batch.buffer())?;
            batch.end_cell();
        }
        match rest.get(cell_end + 1..) {
            Some(next) if cell_end < rest.len() => rest = next,
            _ => break,
        }
    }
    if cells == columns { Ok(()) } else { Err(Malformed::Cells) }
}

fn unescape(mut cell: &[u8], text: &mut Vec<u8>) -> Result<(), Malformed> {
    while let Some(at) = memchr(b'\\', cell) {
        text.extend_from_slice(&cell[..at]);
        let (&escape, rest) = cell[at + 1..].split_first().ok_or(Malformed::Escape)?;
        cell = rest;
        match escape {
            b'b' => text.push(0x08),
            b'f' => text.push(0x0c),
            b'n' => text.push(b'\n'),
            b'r' => text.push(b'\r'),
            b't' => text.push(b'\t'),
            b'v' => text.push(0x0b),
            // The server writes no numeric escapes, but its documents know them.
            b'0'..=b'7' => {
                let more = digits(cell, 2, 8);
                let value = fold_digits(&[&[escape], &cell[..more]].concat(), 8);
                text.push(value);
                cell = &cell[more..];
            }
            b'x' if digits(cell, 2, 16) > 0 => {
                let count = digits(cell, 2, 16);
                text.push(fold_digits(&cell[..count], 16));
                cell = &cell[count..];
            }
            other => text.push(other),
        }
    }
    text.extend_from_slice(cell);
    Ok(())
}

/// How many digits stand in front, at most so many.
fn digits(bytes: &[u8], most: usize, radix: u32) -> usize {
    bytes.iter().take(most).take_while(|byte| char::from(**byte).is_digit(radix)).count()
}

/// The low byte of a number, as the server takes it.
fn fold_digits(digits: &[u8], radix: u32) -> u8 {
    let value = digits
        .iter()
        .fold(0, |value, digit| value * radix + char::from(*digit).to_digit(radix).unwrap_or(0));
    (value & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use super::{CopyText, Malformed};
    use crate::Batch;

    fn read(columns: usize, pieces: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Malformed> {
        let mut batch = Batch::new(columns);
        let mut copy = CopyText::new(columns);
        for piece in pieces {
            copy.take(piece, &mut batch)?;
        }
        assert!(copy.is_at_row_end());
        Ok(batch.cells().map(|cell| cell.map(<[u8]>::to_vec)).collect())
    }

    #[expect(clippy::unnecessary_wraps, reason = "a cell that is not NULL, as `read` gives it")]
    fn text(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn every_escape_is_read() {
        let line = b"\\b\\f\\n\\r\\t\\v\\\\\t\\\\N\t\\N\t\t\\101\\x41\\x4a\\q\\.\n";
        let expected = [text("\x08\x0c\n\r\t\x0b\\"), text("\\N"), None, text(""), text("AAJq.")];
        assert_eq!(read(5, &[line]).expect("rows"), expected);
    }

    #[test]
    fn rows_may_be_cut_anywhere() {
        let whole = "é\\ta\t\\N\nb\\\\N\t\n\\N\tx\\n\n".as_bytes();
        let expected = [text("é\ta"), None, text("b\\N"), text(""), None, text("x\n")];
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let pieces = [&whole[..first], &whole[first..second], &whole[second..]];
                assert_eq!(read(2, &pieces).expect("rows"), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn one_column_may_be_empty_or_null() {
        assert_eq!(read(1, &[b"\n\\N\na\n"]).expect("rows"), [text(""), None, text("a")]);
    }

    #[test]
    fn wrong_numbers_of_cells_and_cut_escapes_are_refused() {
        assert_eq!(read(2, &[b"a\n"]), Err(Malformed::Cells));
        assert_eq!(read(2, &[b"a\tb\tc\n"]), Err(Malformed::Cells));
        assert_eq!(read(1, &[b"a\\\n"]), Err(Malformed::Escape));
    }

    #[test]
    fn a_row_that_never_ends_is_refused_at_the_limit() {
        let mut batch = Batch::new(1);
        let mut copy = CopyText::new(1);
        let piece = vec![b'a'; 1024 * 1024];
        for _ in 0..64 {
            copy.take(&piece, &mut batch).expect("up to the limit");
        }
        assert_eq!(copy.take(b"a", &mut batch), Err(Malformed::TooLarge));
    }
}
