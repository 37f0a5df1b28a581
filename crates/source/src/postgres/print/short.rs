//! A text in the making that is mostly short. It goes to the batch as a whole: a call for each of
//! its pieces took longer than printing them.

use super::{NoValue, four};

/// Room for the longest time, and so much of a number as is gone before it is spilled.
const ROOM: usize = 48;

/// The longest piece.
const MOST_PIECE: usize = 8;

pub(super) struct Short {
    bytes: [u8; ROOM],
    len: usize,
}

impl Short {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; ROOM], len: 0 }
    }

    /// Appends a piece; there must be room for it.
    #[inline]
    pub(super) fn push<const N: usize>(&mut self, piece: [u8; N]) {
        const { assert!(N <= MOST_PIECE) };
        self.bytes[self.len..self.len + N].copy_from_slice(&piece);
        self.len += N;
    }

    /// Appends a number below 10,000 without zeros in front.
    pub(super) fn push_number(&mut self, number: u16) -> Result<(), NoValue> {
        let zeros = u8::from(number < 10) + u8::from(number < 100) + u8::from(number < 1_000);
        let digits = u32::from_be_bytes(four(number)?) << (8 * zeros);
        self.push(digits.to_be_bytes());
        self.take_back(usize::from(zeros));
        Ok(())
    }

    /// The byte at the end.
    pub(super) const fn last(&self) -> u8 {
        self.bytes[self.len - 1]
    }

    /// Takes so many bytes away from the end.
    pub(super) const fn take_back(&mut self, bytes: usize) {
        self.len -= bytes;
    }

    /// Makes room for further pieces.
    #[inline]
    pub(super) fn spill(&mut self, out: &mut Vec<u8>) {
        if self.len > ROOM - 2 * MOST_PIECE {
            out.extend_from_slice(&self.bytes[..self.len]);
            self.len = 0;
        }
    }

    /// Appends it to what it is part of.
    pub(super) fn end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[..self.len]);
    }
}
