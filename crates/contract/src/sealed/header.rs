//! What a sealed object begins with.

use rand::RngCore as _;

use super::NotOpened;

/// The length of the header.
pub const HEADER_BYTES: usize = 48;
/// Plaintext of one chunk, as it is written here: 1 MiB.
pub const CHUNK_BYTES: usize = 1024 * 1024;
/// Plaintext of one chunk that a reader makes room for, at most.
const MOST_CHUNK_BYTES: u32 = 16 * 1024 * 1024;

/// No text in UTF-8 and no file of another kind that is written here begins so.
const MAGIC: [u8; 8] = *b"\x93OUTSEAL";
const FORM: u16 = 1;

/// Whether an object that begins with these bytes is sealed. Eight are enough.
pub fn is_sealed(beginning: &[u8]) -> bool {
    beginning.starts_with(&MAGIC)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) key_version: u16,
    pub(super) chunk_bytes: u32,
    pub(super) salt: [u8; 32],
}

impl Header {
    pub(super) fn generate(key_version: u16) -> Self {
        let mut salt = [0; 32];
        rand::rng().fill_bytes(&mut salt);
        Self { key_version, chunk_bytes: CHUNK_BYTES as u32, salt }
    }

    pub(super) fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&FORM.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.key_version.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.chunk_bytes.to_be_bytes());
        bytes[16..].copy_from_slice(&self.salt);
        bytes
    }

    /// Reads the first bytes of an object; what follows the header does not matter. Of an object
    /// cut short within the header, `expected` is the length of the header.
    pub(super) fn parse(beginning: &[u8]) -> Result<Self, NotOpened> {
        let magic = &beginning[..beginning.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            return Err(NotOpened::NotSealed);
        }
        let Some(bytes) = beginning.first_chunk::<HEADER_BYTES>() else {
            let (expected, found) = (HEADER_BYTES as u64, beginning.len() as u64);
            return Err(NotOpened::Truncated { expected, found });
        };
        let form = u16::from_be_bytes([bytes[8], bytes[9]]);
        if form != FORM {
            return Err(NotOpened::UnknownForm { form });
        }
        let chunk_bytes = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        if !(1..=MOST_CHUNK_BYTES).contains(&chunk_bytes) {
            return Err(NotOpened::ImpossibleChunks { chunk_bytes });
        }
        let mut salt = [0; 32];
        salt.copy_from_slice(&bytes[16..]);
        Ok(Self { key_version: u16::from_be_bytes([bytes[10], bytes[11]]), chunk_bytes, salt })
    }
}
