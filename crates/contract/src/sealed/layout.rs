//! Where the plaintext of a sealed object is stored.

use std::ops::Range;

use super::header::{CHUNK_BYTES, HEADER_BYTES};
use crate::aead;

pub(super) const TAG_BYTES: usize = aead::TAG_BYTES;

/// The length that a store must report for a sealed object of so much plaintext.
pub fn stored_bytes(plain_bytes: u64) -> u64 {
    Layout::new(plain_bytes, CHUNK_BYTES as u64).stored_bytes()
}

/// The length of the plaintext of a sealed object of this length, or none if no sealed object has
/// it.
pub fn plain_bytes(stored_bytes: u64) -> Option<u64> {
    let sealed_chunk = (CHUNK_BYTES + TAG_BYTES) as u64;
    let chunks = stored_bytes.checked_sub(HEADER_BYTES as u64)?;
    let tags = chunks.div_ceil(sealed_chunk) * TAG_BYTES as u64;
    let plain = chunks.checked_sub(tags)?;
    (self::stored_bytes(plain) == stored_bytes).then_some(plain)
}

/// The chunks of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    plain_bytes: u64,
    chunk_bytes: u64,
}

impl Layout {
    pub(super) fn new(plain_bytes: u64, chunk_bytes: u64) -> Self {
        Self { plain_bytes, chunk_bytes }
    }

    /// The length of the plaintext.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// How many chunks there are, at least one.
    pub fn chunks(&self) -> u64 {
        self.plain_bytes.div_ceil(self.chunk_bytes).max(1)
    }

    /// The length of the stored object.
    pub fn stored_bytes(&self) -> u64 {
        let tags = self.chunks().saturating_mul(TAG_BYTES as u64);
        self.plain_bytes.saturating_add(tags).saturating_add(HEADER_BYTES as u64)
    }

    /// The plaintext of a chunk.
    pub fn plain(&self, chunk: u64) -> Range<u64> {
        let start = chunk.saturating_mul(self.chunk_bytes).min(self.plain_bytes);
        start..start.saturating_add(self.chunk_bytes).min(self.plain_bytes)
    }

    /// Where a chunk is stored, its tag included.
    pub fn stored(&self, chunk: u64) -> Range<u64> {
        let plain = self.plain(chunk);
        // Saturating, so that no length that somebody claims is worse than one that is wrong.
        let before = chunk.saturating_mul(TAG_BYTES as u64).saturating_add(HEADER_BYTES as u64);
        let end = plain.end.saturating_add(before).saturating_add(TAG_BYTES as u64);
        plain.start.saturating_add(before)..end
    }

    /// The chunks that hold a range of the plaintext; none if it does not lie within. An empty
    /// range has no chunk, but that an empty object has its only one.
    pub fn holding(&self, plain: &Range<u64>) -> Option<Range<u64>> {
        if plain.start > plain.end || plain.end > self.plain_bytes {
            return None;
        }
        if self.plain_bytes == 0 {
            return Some(0..1);
        }
        let first = plain.start / self.chunk_bytes;
        let end = if plain.is_empty() { first } else { plain.end.div_ceil(self.chunk_bytes) };
        Some(first..end)
    }

    pub(super) fn is_last(&self, chunk: u64) -> bool {
        chunk + 1 == self.chunks()
    }
}
