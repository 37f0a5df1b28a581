//! Sealed objects: encrypted files of any length, written and read in constant memory, and read
//! from any place.
//!
//! ```text
//! object = header ‖ chunk 0 ‖ … ‖ chunk n-1
//! header = magic(8) ‖ form(2) ‖ key version(2) ‖ chunk bytes(4) ‖ salt(32)
//! chunk  = ciphertext ‖ tag(16)
//! ```
//!
//! Numbers are big-endian. Every object has a key of its own, HKDF-SHA256 of the storage key with
//! the random salt and the info `outport-sealed-v1`. Chunks are AES-256-GCM in the STREAM
//! construction: the nonce is the chunk's index in 11 bytes and then 1 for the last chunk, 0 for
//! the others. The associated data is the header and then the object's key in the store. All
//! chunks hold as much plaintext as the header says (1 MiB) but the last, which holds what is
//! left: at least one byte, or none if the object has none at all.
//!
//! So a changed, missing, repeated, moved or foreign chunk is found, as are another object's
//! header, and a whole object that was copied over another. A reader says beforehand how long the
//! plaintext is, from a place it trusts (the job, the event), and so tells an object that was cut
//! short from one that was forged. Who reads a range alone compares the length of the stored
//! object with [`stored_bytes`] first.

mod header;
mod layout;
mod opener;
mod sealer;

use self::header::Header;
pub use self::{
    header::{CHUNK_BYTES, HEADER_BYTES, is_sealed},
    layout::{Layout, plain_bytes, stored_bytes},
    opener::{Opener, RangeOpener, SealedObject},
    sealer::Sealer,
};
use crate::{
    aead::{Cipher, NONCE_BYTES},
    key::DerivedKey,
    key_ring::UnknownKey,
};

/// The word for this form in an event, and the info of the objects' keys.
pub const MODE: &str = "outport-sealed-v1";

/// Why bytes are not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// Another kind of file.
    #[error("the object is not sealed")]
    NotSealed,
    /// Sealed, in a form made up later.
    #[error("the object is sealed in form {form}, which is not known here")]
    UnknownForm {
        /// The form.
        form: u16,
    },
    /// The header promises chunks that no reader should make room for.
    #[error("the object's chunks are said to have {chunk_bytes} bytes, which no sealed object has")]
    ImpossibleChunks {
        /// What the header says.
        chunk_bytes: u32,
    },
    /// Sealed with a key that is not in the ring.
    #[error("the object cannot be opened: {0}")]
    UnknownKey(UnknownKey),
    /// A chunk was changed or moved, or is another object's; or the header is.
    #[error("chunk {chunk} of the object was changed, moved, or is another object's")]
    Forged {
        /// The index of the chunk.
        chunk: u64,
    },
    /// The object ends too early.
    #[error("the object is cut short: {found} of {expected} bytes")]
    Truncated {
        /// How many bytes it should have.
        expected: u64,
        /// How many there were.
        found: u64,
    },
    /// Something follows the last chunk.
    #[error("the object goes on after its end at {expected} bytes")]
    TrailingData {
        /// How many bytes it should have.
        expected: u64,
    },
}

/// What seals and opens the chunks of one object.
struct ChunkCipher {
    cipher: Cipher,
    associated: Vec<u8>,
}

impl ChunkCipher {
    fn new(storage: &DerivedKey, header: &Header, object_key: &str) -> Self {
        let cipher = Cipher::new(&storage.derive_salted(&header.salt, MODE));
        let associated = [header.bytes().as_slice(), object_key.as_bytes()].concat();
        Self { cipher, associated }
    }

    fn seal(&self, index: u64, is_last: bool, chunk: &mut [u8]) -> [u8; layout::TAG_BYTES] {
        self.cipher.seal(nonce(index, is_last), &self.associated, chunk)
    }

    fn open<'a>(
        &self,
        index: u64,
        is_last: bool,
        chunk: &'a mut [u8],
    ) -> Result<&'a mut [u8], NotOpened> {
        let opened = self.cipher.open(nonce(index, is_last), &self.associated, chunk);
        opened.ok_or(NotOpened::Forged { chunk: index })
    }
}

fn nonce(index: u64, is_last: bool) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[3..11].copy_from_slice(&index.to_be_bytes());
    nonce[11] = u8::from(is_last);
    nonce
}

#[cfg(test)]
mod tests;
