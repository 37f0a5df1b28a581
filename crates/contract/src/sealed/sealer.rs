//! Writing a sealed object.

use super::{
    ChunkCipher,
    header::{HEADER_BYTES, Header},
    layout::TAG_BYTES,
};
use crate::key_ring::KeyRing;

/// Seals one object as its plaintext passes by. It holds one chunk.
pub struct Sealer {
    header: Header,
    cipher: ChunkCipher,
    /// Plaintext that is not sealed yet. The last chunk is known only at the end, so a full one
    /// waits for another byte.
    chunk: Vec<u8>,
    sealed_chunks: u64,
}

impl Sealer {
    /// For the object that will be stored under this key, with the current storage key.
    pub fn new(storage: &KeyRing, object_key: &str) -> Self {
        Self::with_header(storage, object_key, Header::generate(storage.current_version()))
    }

    pub(super) fn with_header(storage: &KeyRing, object_key: &str, header: Header) -> Self {
        let cipher = ChunkCipher::new(storage.current(), &header, object_key);
        Self { header, cipher, chunk: Vec::new(), sealed_chunks: 0 }
    }

    /// Takes the next plaintext and appends to `stored` what is ready: nothing, or chunks.
    pub fn update(&mut self, mut plain: &[u8], stored: &mut Vec<u8>) {
        let chunk_bytes = self.header.chunk_bytes as usize;
        while !plain.is_empty() {
            if self.chunk.len() == chunk_bytes {
                self.seal(false, stored);
            }
            let taken = plain.len().min(chunk_bytes - self.chunk.len());
            let (now, later) = plain.split_at(taken);
            self.chunk.extend_from_slice(now);
            plain = later;
        }
    }

    /// Appends the last chunk to `stored`.
    pub fn finish(mut self, stored: &mut Vec<u8>) {
        self.seal(true, stored);
    }

    fn seal(&mut self, is_last: bool, stored: &mut Vec<u8>) {
        stored.reserve(HEADER_BYTES + self.chunk.len() + TAG_BYTES);
        if self.sealed_chunks == 0 {
            stored.extend_from_slice(&self.header.bytes());
        }
        let tag = self.cipher.seal(self.sealed_chunks, is_last, &mut self.chunk);
        stored.extend_from_slice(&self.chunk);
        stored.extend_from_slice(&tag);
        self.chunk.clear();
        self.sealed_chunks += 1;
    }
}
