//! Reading a sealed object: one chunk, a range, or all of it.

use std::ops::Range;

use super::{
    ChunkCipher, NotOpened,
    header::{HEADER_BYTES, Header},
    layout::Layout,
};
use crate::key_ring::KeyRing;

/// An object whose header was read; opens its chunks in any order.
pub struct SealedObject {
    cipher: ChunkCipher,
    layout: Layout,
}

impl SealedObject {
    /// Reads the header. `object_key` is the key under which the object is stored, `plain_bytes`
    /// the length of its plaintext as the job or event says, and `beginning` at least the first
    /// [`HEADER_BYTES`] of what is stored. A forged header shows with the first chunk.
    pub fn new(
        storage: &KeyRing,
        object_key: &str,
        plain_bytes: u64,
        beginning: &[u8],
    ) -> Result<Self, NotOpened> {
        let header = Header::parse(beginning)?;
        let key = storage.get(header.key_version).map_err(NotOpened::UnknownKey)?;
        Ok(Self {
            cipher: ChunkCipher::new(key, &header, object_key),
            layout: Layout::new(plain_bytes, header.chunk_bytes.into()),
        })
    }

    /// Where things are.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Decrypts in place the stored bytes of a chunk, those of [`Layout::stored`], and gives its
    /// plaintext.
    pub fn open_chunk<'a>(
        &self,
        chunk: u64,
        stored: &'a mut [u8],
    ) -> Result<&'a mut [u8], NotOpened> {
        // Any other length is not the chunk's, or of a chunk that is none.
        let range = self.layout.stored(chunk);
        if chunk >= self.layout.chunks() || range.end - range.start != stored.len() as u64 {
            return Err(NotOpened::Forged { chunk });
        }
        self.cipher.open(chunk, self.layout.is_last(chunk), stored)
    }

    /// Opens a range of the plaintext; nothing if it does not lie within.
    pub fn range(self, plain: Range<u64>) -> Option<RangeOpener> {
        let chunks = self.layout.holding(&plain)?;
        Some(RangeOpener { object: self, plain, chunks, stored: Vec::new() })
    }
}

/// Opens a range of an object as its stored bytes pass by. It holds one chunk, and gives out
/// nothing of a chunk before all of it is verified.
pub struct RangeOpener {
    object: SealedObject,
    plain: Range<u64>,
    /// Those that are still to come.
    chunks: Range<u64>,
    stored: Vec<u8>,
}

impl RangeOpener {
    /// The stored bytes still to be given to [`update`](Self::update): all that the range needs
    /// if none was given yet.
    pub fn stored_range(&self) -> Range<u64> {
        let layout = self.object.layout;
        let start = layout.stored(self.chunks.start).start + self.stored.len() as u64;
        let end = self.chunks.clone().next_back().map_or(start, |last| layout.stored(last).end);
        start..end
    }

    /// Takes the next stored bytes and appends to `plain` what is ready of the range. After an
    /// error nothing more is to be given.
    pub fn update(&mut self, mut stored: &[u8], plain: &mut Vec<u8>) -> Result<(), NotOpened> {
        while let Some(chunk) = self.chunks.clone().next() {
            let range = self.object.layout.stored(chunk);
            let missing = (range.end - range.start) as usize - self.stored.len();
            self.stored.reserve_exact(missing);
            let (now, later) = stored.split_at(missing.min(stored.len()));
            self.stored.extend_from_slice(now);
            if now.len() < missing {
                return Ok(());
            }
            stored = later;
            let opened = self.object.open_chunk(chunk, &mut self.stored)?;
            let within = self.object.layout.plain(chunk);
            let start = self.plain.start.max(within.start) - within.start;
            let end = self.plain.end.min(within.end) - within.start;
            plain.extend_from_slice(&opened[start as usize..end as usize]);
            self.stored.clear();
            self.chunks.start += 1;
        }
        if stored.is_empty() {
            return Ok(());
        }
        Err(NotOpened::TrailingData { expected: self.stored_range().start })
    }

    /// Says whether the whole range was given.
    pub fn finish(self) -> Result<(), NotOpened> {
        let Range { start: found, end: expected } = self.stored_range();
        if found == expected { Ok(()) } else { Err(NotOpened::Truncated { expected, found }) }
    }
}

/// Opens a whole object as it passes by, from its header to its end.
pub struct Opener {
    state: State,
}

enum State {
    Header { storage: KeyRing, object_key: String, plain_bytes: u64, beginning: Vec<u8> },
    Chunks(RangeOpener),
}

impl Opener {
    /// For the object stored under this key, whose plaintext is so long as the job or event says.
    pub fn new(storage: &KeyRing, object_key: &str, plain_bytes: u64) -> Self {
        Self {
            state: State::Header {
                storage: storage.clone(),
                object_key: object_key.to_owned(),
                plain_bytes,
                beginning: Vec::with_capacity(HEADER_BYTES),
            },
        }
    }

    /// Takes the next stored bytes and appends to `plain` what is ready. After an error nothing
    /// more is to be given.
    pub fn update(&mut self, mut stored: &[u8], plain: &mut Vec<u8>) -> Result<(), NotOpened> {
        if let State::Header { storage, object_key, plain_bytes, beginning } = &mut self.state {
            let missing = HEADER_BYTES - beginning.len();
            let (now, later) = stored.split_at(missing.min(stored.len()));
            beginning.extend_from_slice(now);
            if now.len() < missing {
                return Ok(());
            }
            stored = later;
            let object = SealedObject::new(storage, object_key, *plain_bytes, beginning)?;
            let all = object.range(0..*plain_bytes).expect("all lies within");
            self.state = State::Chunks(all);
        }
        match &mut self.state {
            State::Header { .. } => Ok(()),
            State::Chunks(chunks) => chunks.update(stored, plain),
        }
    }

    /// Says whether the whole object was given.
    pub fn finish(self) -> Result<(), NotOpened> {
        match self.state {
            // Fewer bytes than a header has: not sealed, or cut short.
            State::Header { beginning, .. } => Header::parse(&beginning).map(|_| ()),
            State::Chunks(chunks) => chunks.finish(),
        }
    }
}
