//! The binary form of COPY, printed as text: a head, then rows, each with its number of cells and
//! each cell behind its length, then a last word. The server formats nothing, which is most of
//! what the text form costs it.

use super::print::{Form, print};
use crate::{Batch, MOST_ROW_BYTES, batch::Mark};

use super::copy_text::Malformed;

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// Bytes of the head before what may be added to it.
const HEAD: usize = SIGNATURE.len() + 8;

/// Cells' lengths come on top of their bytes.
const MOST_BEGUN_BYTES: usize = MOST_ROW_BYTES + 64 * 1024;

/// Takes the pieces of a stream as they come; it may be cut anywhere.
pub(super) struct CopyBinary {
    forms: Vec<Form>,
    at: At,
    /// The beginning of what has not come as a whole.
    begun: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Head,
    Rows,
    End,
}

impl CopyBinary {
    pub(super) const fn new(forms: Vec<Form>) -> Self {
        Self { forms, at: At::Head, begun: Vec::new() }
    }

    /// Appends the rows that end in this piece.
    pub(super) fn take(&mut self, piece: &[u8], batch: &mut Batch) -> Result<(), Malformed> {
        if self.begun.is_empty() {
            let taken = self.take_whole(piece, batch)?;
            self.begun.extend_from_slice(&piece[taken..]);
        } else {
            let mut begun = std::mem::take(&mut self.begun);
            begun.extend_from_slice(piece);
            let taken = self.take_whole(&begun, batch)?;
            begun.drain(..taken);
            begun.shrink_to(64 * 1024);
            self.begun = begun;
        }
        if self.begun.len() > MOST_BEGUN_BYTES { Err(Malformed::TooLarge) } else { Ok(()) }
    }

    /// Whether the last word has come and nothing after it. The next stream may follow.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.begun.is_empty() && std::mem::replace(&mut self.at, At::Head) == At::End
    }

    /// Takes what is there as a whole, and says how many bytes that were.
    fn take_whole(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<usize, Malformed> {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            let size = match self.at {
                At::Head => head(rest)?,
                At::Rows => {
                    if let Some((&[0xFF, 0xFF], rest)) = rest.split_first_chunk::<2>() {
                        self.at = At::End;
                        if !rest.is_empty() {
                            return Err(Malformed::Cells);
                        }
                        return Ok(bytes.len());
                    }
                    row(rest, &self.forms, batch)?
                }
                At::End if rest.is_empty() => None,
                At::End => return Err(Malformed::Cells),
            };
            let Some(size) = size else { return Ok(taken) };
            self.at = At::Rows;
            taken += size;
        }
    }
}

/// The size of the head, if it is there as a whole.
fn head(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(front) = bytes.get(..HEAD) else { return Ok(None) };
    let (signature, fields) = front.split_at(SIGNATURE.len());
    let (Some(flags), Some(added)) = (number(fields), number(&fields[4..])) else {
        return Ok(None);
    };
    // The upper half of the flags is for what must be understood.
    if signature != SIGNATURE || flags >> 16 != 0 {
        return Err(Malformed::Cells);
    }
    let size = usize::try_from(added).map_err(|_| Malformed::Cells)? + HEAD;
    Ok((bytes.len() >= size).then_some(size))
}

/// Appends a row and gives its size, if it is there as a whole.
fn row(bytes: &[u8], forms: &[Form], batch: &mut Batch) -> Result<Option<usize>, Malformed> {
    let Some((count, mut rest)) = bytes.split_first_chunk::<2>() else { return Ok(None) };
    if usize::from(u16::from_be_bytes(*count)) != forms.len() {
        return Err(Malformed::Cells);
    }
    let mark: Mark = batch.mark();
    for &form in forms {
        let Some((size, behind)) = rest.split_first_chunk::<4>() else {
            batch.back_to(mark);
            return Ok(None);
        };
        let size = i32::from_be_bytes(*size);
        rest = behind;
        if size == -1 {
            batch.push_null();
            continue;
        }
        let size = usize::try_from(size).map_err(|_| Malformed::Cells)?;
        let Some((value, behind)) = rest.split_at_checked(size) else {
            batch.back_to(mark);
            return if size > MOST_ROW_BYTES { Err(Malformed::TooLarge) } else { Ok(None) };
        };
        print(form, value, batch.buffer()).map_err(|_| Malformed::Cells)?;
        batch.end_cell();
        rest = behind;
    }
    if batch.bytes_since(mark) > MOST_ROW_BYTES {
        return Err(Malformed::TooLarge);
    }
    Ok(Some(bytes.len() - rest.len()))
}

fn number(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk::<4>().copied().map(i32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::{CopyBinary, Form, Malformed, SIGNATURE};
    use crate::Batch;

    fn whole(rows: &[&[Option<&[u8]>]]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        // No flags, and an addition of three bytes that nobody asked for.
        bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 3, 7, 7, 7]);
        for row in rows {
            bytes.extend_from_slice(&(row.len() as u16).to_be_bytes());
            for cell in *row {
                match cell {
                    Some(cell) => {
                        bytes.extend_from_slice(&(cell.len() as i32).to_be_bytes());
                        bytes.extend_from_slice(cell);
                    }
                    None => bytes.extend_from_slice(&(-1_i32).to_be_bytes()),
                }
            }
        }
        bytes.extend_from_slice(&[0xFF, 0xFF]);
        bytes
    }

    type Cells = Vec<Option<Vec<u8>>>;

    fn read(pieces: &[&[u8]]) -> Result<(Cells, bool), Malformed> {
        let mut batch = Batch::new(2);
        let mut copy = CopyBinary::new(vec![Form::Integer, Form::Text]);
        for piece in pieces {
            copy.take(piece, &mut batch)?;
        }
        let cells = batch.cells().map(|cell| cell.map(<[u8]>::to_vec)).collect();
        Ok((cells, copy.is_at_end()))
    }

    #[test]
    fn the_stream_may_be_cut_anywhere() {
        let seven = 7_i64.to_be_bytes();
        let minus = (-1_i16).to_be_bytes();
        let bytes = whole(&[
            &[Some(&seven), Some("é\t\\N".as_bytes())],
            &[None, None],
            &[Some(&minus), Some(b"")],
        ]);
        let expected = [Some("7"), Some("é\t\\N"), None, None, Some("-1"), Some("")]
            .map(|cell| cell.map(|cell: &str| cell.as_bytes().to_vec()));
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let (cells, ended) = read(&pieces).expect("rows");
                assert_eq!(cells, expected, "{first} {second}");
                assert!(ended);
            }
            // Without its rest it is no end.
            if first < bytes.len() {
                assert!(!read(&[&bytes[..first]]).expect("a beginning").1, "{first}");
            }
        }
    }

    #[test]
    fn what_is_not_whole_or_not_asked_for_is_refused() {
        let one = 1_i32.to_be_bytes();
        let good = whole(&[&[Some(&one), Some(b"x")]]);
        let mut after_the_end = good.clone();
        after_the_end.push(0);
        let mut unknown_flag = good.clone();
        unknown_flag[SIGNATURE.len()] = 1;
        let mut negative_size = good.clone();
        let size_at = SIGNATURE.len() + 11 + 2;
        negative_size[size_at..size_at + 4].copy_from_slice(&(-2_i32).to_be_bytes());
        for bytes in [
            whole(&[&[Some(&one)]]),
            whole(&[&[Some(&one), Some(b"x"), None]]),
            whole(&[&[Some(b"abc"), Some(b"x")]]),
            after_the_end,
            unknown_flag,
            negative_size,
            b"no such signature at all".to_vec(),
        ] {
            assert_eq!(read(&[&bytes]).map(|(_, ended)| ended), Err(Malformed::Cells));
        }
    }

    #[test]
    fn a_cell_beyond_the_limit_is_refused_before_it_has_come() {
        let mut bytes = whole(&[]);
        bytes.truncate(bytes.len() - 2);
        bytes.extend_from_slice(&[0, 2, 0xFF, 0xFF, 0xFF, 0xFF]);
        bytes.extend_from_slice(&(65 * 1024 * 1024_i32).to_be_bytes());
        assert_eq!(read(&[&bytes]).map(|_| ()), Err(Malformed::TooLarge));
    }
}
