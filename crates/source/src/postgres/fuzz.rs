//! Whatever bytes come as a stream of COPY: rows or an error, never a panic, and the same however
//! the stream is cut into pieces.

use super::{
    copy_binary::CopyBinary,
    copy_text::{CopyText, Malformed},
    print::{Form, print},
};
use crate::Batch;

/// Inputs in an ordinary run; `tests/run --soak` looks for new ones for minutes.
const INPUTS: usize = 20_000;
const COLUMNS: usize = 3;
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const FORMS: [Form; 11] = [
    Form::Text,
    Form::Boolean,
    Form::Integer,
    Form::Numeric,
    Form::Date,
    Form::Time,
    Form::LocalTimestamp,
    Form::Timestamp,
    Form::Uuid,
    Form::Bytes,
    Form::Jsonb,
];

type Cells = Vec<Option<Vec<u8>>>;

/// The cells, and whether the stream may end here.
fn read_text(pieces: &[&[u8]]) -> Result<(Cells, bool), Malformed> {
    let mut batch = Batch::new(COLUMNS);
    let mut copy = CopyText::new(COLUMNS);
    for piece in pieces {
        copy.take(piece, &mut batch)?;
    }
    Ok((cells(&batch), copy.is_at_row_end()))
}

fn read_binary(forms: &[Form], pieces: &[&[u8]]) -> Result<(Cells, bool), Malformed> {
    let mut batch = Batch::new(forms.len());
    let mut copy = CopyBinary::new(forms.to_vec());
    for piece in pieces {
        copy.take(piece, &mut batch)?;
    }
    Ok((cells(&batch), copy.is_at_end()))
}

fn cells(batch: &Batch) -> Cells {
    let cells: Cells = batch.cells().map(|cell| cell.map(<[u8]>::to_vec)).collect();
    assert_eq!(cells.len(), batch.rows() * batch.columns(), "no row is half in a batch");
    cells
}

/// Where to cut, by the first two bytes, and the rest as three pieces.
fn pieces(bytes: &[u8]) -> Option<[&[u8]; 3]> {
    let ([first, second], stream) = bytes.split_first_chunk::<2>()?;
    let at = |cut: &u8| usize::from(*cut) % (stream.len() + 1);
    let (first, second) = (at(first).min(at(second)), at(first).max(at(second)));
    Some([&stream[..first], &stream[first..second], &stream[second..]])
}

#[test]
fn fuzz_copy_text() {
    bolero::check!().with_iterations(INPUTS).for_each(|bytes: &[u8]| {
        let Some(pieces) = pieces(bytes) else { return };
        assert_eq!(read_text(&pieces), read_text(&[&pieces.concat()]));
        // What is written as the server writes it is what is read.
        let written: Vec<Option<&[u8]>> = bytes
            .split(|byte| *byte == 0xFF)
            .map(|cell| (cell != [0xFE]).then_some(cell))
            .collect();
        let rows = written.chunks_exact(COLUMNS);
        let stream: Vec<u8> = rows.clone().flat_map(as_text).collect();
        let expected: Cells = rows.flatten().map(|cell| cell.map(<[u8]>::to_vec)).collect();
        assert_eq!(read_text(&[&stream]), Ok((expected, true)));
    });
}

/// A row in the text form of COPY.
fn as_text(row: &[Option<&[u8]>]) -> Vec<u8> {
    let mut text = Vec::new();
    for cell in row {
        match cell {
            None => text.extend_from_slice(b"\\N"),
            Some(cell) => {
                for &byte in *cell {
                    match b"\x08\x0c\n\r\t\x0b\\".iter().position(|special| *special == byte) {
                        Some(at) => text.extend_from_slice(&[b'\\', b"bfnrtv\\"[at]]),
                        None => text.push(byte),
                    }
                }
            }
        }
        text.push(b'\t');
    }
    text.pop();
    text.push(b'\n');
    text
}

#[test]
fn fuzz_copy_binary() {
    bolero::check!().with_iterations(INPUTS).for_each(|bytes: &[u8]| {
        let Some(pieces) = pieces(bytes) else { return };
        let stream = pieces.concat();
        assert_eq!(read_binary(&FORMS, &pieces), read_binary(&FORMS, &[&stream]));
        // The same behind a head, of which one in a billion inputs has one.
        let after_head = [&[HEAD], &pieces[..]].concat();
        let forms = [Form::Text, Form::Integer, Form::Bytes];
        assert_eq!(read_binary(&forms, &after_head), read_binary(&forms, &[&after_head.concat()]));
        well_formed(&stream, &pieces);
    });
}

/// A stream of whole cells, made of the bytes: a length each, then so many bytes.
fn well_formed(bytes: &[u8], cuts: &[&[u8]; 3]) {
    let (mut written, mut rest): (Vec<Option<&[u8]>>, _) = (Vec::new(), bytes);
    while let Some((size, behind)) = rest.split_first() {
        let (cell, behind) = behind.split_at(usize::from(*size).min(behind.len()));
        written.push((*size != 0xFF).then_some(cell));
        rest = behind;
    }
    let rows = written.chunks_exact(COLUMNS);
    let mut stream = HEAD.to_vec();
    for row in rows.clone() {
        stream.extend_from_slice(&(COLUMNS as u16).to_be_bytes());
        for cell in row {
            let size = cell.map_or(-1, |cell| cell.len() as i32);
            stream.extend_from_slice(&size.to_be_bytes());
            stream.extend_from_slice(cell.unwrap_or_default());
        }
    }
    stream.extend_from_slice(&[0xFF, 0xFF]);
    let (first, rest) = stream.split_at(cuts[0].len().min(stream.len()));
    let (second, third) = rest.split_at(cuts[1].len().min(rest.len()));
    let expected: Cells = rows.flatten().map(|cell| cell.map(<[u8]>::to_vec)).collect();
    let read = read_binary(&[Form::Text; COLUMNS], &[first, second, third]);
    assert_eq!(read, Ok((expected, true)));
}

#[test]
fn fuzz_print() {
    bolero::check!().with_iterations(INPUTS).for_each(|bytes: &[u8]| {
        let Some((form, value)) = bytes.split_first() else { return };
        let form = FORMS[usize::from(*form) % FORMS.len()];
        let mut text = b"before".to_vec();
        let printed = print(form, value, &mut text);
        assert!(text.starts_with(b"before"), "it only appends");
        if printed.is_ok() && !matches!(form, Form::Text | Form::Jsonb) {
            assert!(text.is_ascii() && text.len() > b"before".len(), "{form:?} {value:?}");
        }
    });
}
