//! The spool of one run: parts that a slow object store does not take yet wait on disk, so that
//! the source is read on.
//!
//! One temporary file, divided into slots of one part each. It is made when a first part must
//! wait and closed when nothing waits any more. It has no name, so whatever ends the run or the
//! process gives its room back.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use outport_domain::limits::fixed;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{JoinError, spawn_blocking},
};

/// Bytes that are written at once: larger writes make the kernel keep the file in larger pages,
/// which cost more than they save.
const PIECE_BYTES: usize = 64 * 1024;

/// Parts of one run on disk.
pub(crate) struct Spool {
    folder: PathBuf,
    slots: usize,
    /// The numbers of the slots that are free.
    free: UnboundedReceiver<u64>,
    freed: UnboundedSender<u64>,
    /// Lives as long as a part is in it.
    file: Weak<File>,
}

/// Room for one part, free again when it is dropped.
pub(crate) struct Slot {
    number: u64,
    freed: UnboundedSender<u64>,
}

/// A part on disk.
pub(crate) struct Spooled {
    file: Arc<File>,
    slot: Slot,
    size: usize,
}

impl Spool {
    /// A spool of at most so many bytes; none when they do not hold a part. Nothing is made yet.
    pub(crate) fn new(most_bytes: u64, folder: &Path) -> Option<Self> {
        let slots = most_bytes / fixed::PART_BYTES as u64;
        let (freed, free) = unbounded_channel();
        for number in 0..slots {
            freed.send(number).expect("the other end is here");
        }
        let (folder, file) = (folder.to_owned(), Weak::new());
        (slots > 0).then_some(Self { folder, slots: slots as usize, free, freed, file })
    }

    /// Whether no part waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots
    }

    /// Waits for room for a part. Cancel-safe.
    pub(crate) async fn slot(&mut self) -> Slot {
        let number = self.free.recv().await.expect("the other end is here");
        Slot { number, freed: self.freed.clone() }
    }

    /// Writes a part. Its bytes come back, for their memory, or because they could not be
    /// written.
    pub(crate) async fn write(
        &mut self,
        slot: Slot,
        bytes: Vec<u8>,
    ) -> Result<(Vec<u8>, io::Result<Spooled>), JoinError> {
        let (file, folder) = (self.file.upgrade(), self.folder.clone());
        let (bytes, written) = spawn_blocking(move || {
            let written = write(file, &folder, slot, &bytes);
            (bytes, written)
        })
        .await?;
        if let Ok(spooled) = &written {
            self.file = Arc::downgrade(&spooled.file);
        }
        Ok((bytes, written))
    }
}

fn write(file: Option<Arc<File>>, folder: &Path, slot: Slot, bytes: &[u8]) -> io::Result<Spooled> {
    let file = match file {
        Some(file) => file,
        None => Arc::new(tempfile::tempfile_in(folder)?),
    };
    let mut offset = slot.offset();
    for piece in bytes.chunks(PIECE_BYTES) {
        file.write_all_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(Spooled { file, slot, size: bytes.len() })
}

impl Slot {
    fn offset(&self) -> u64 {
        self.number * fixed::PART_BYTES as u64
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Without a spool nobody needs the room.
        self.freed.send(self.number).ok();
    }
}

impl Spooled {
    /// Reads the part back, into memory that is empty, and frees its room.
    pub(crate) async fn read(self, mut memory: Vec<u8>) -> Result<io::Result<Vec<u8>>, JoinError> {
        spawn_blocking(move || {
            memory.reserve_exact(self.size);
            memory.resize(self.size, 0);
            self.file.read_exact_at(&mut memory, self.slot.offset())?;
            Ok(memory)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const PART: u64 = fixed::PART_BYTES as u64;

    #[tokio::test]
    async fn parts_come_back_in_any_order_and_give_their_room_to_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spool = Spool::new(3 * PART - 1, folder.path()).expect("two slots");
        for round in 0..3_u8 {
            let mut waiting = Vec::new();
            for part in 0..2 {
                let slot = spool.slot().await;
                let bytes = vec![round * 2 + part; fixed::PART_BYTES - usize::from(part)];
                let (bytes, written) = spool.write(slot, bytes).await.expect("no panic");
                waiting.push((bytes, written.expect("written")));
            }
            assert!(spool.slot().now_or_never().is_none(), "full");
            while let Some((bytes, spooled)) = waiting.pop() {
                assert!(!spool.is_empty());
                let read = spooled.read(Vec::new()).await.expect("no panic").expect("read");
                assert!(read == bytes, "round {round} came back as something else");
            }
            assert!(spool.is_empty());
            assert!(spool.file.upgrade().is_none(), "the file is closed");
        }
    }

    #[tokio::test]
    async fn a_part_that_cannot_be_written_comes_back_and_so_does_its_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spool = Spool::new(PART, &folder.path().join("missing")).expect("a slot");
        let slot = spool.slot().await;
        let (bytes, written) = spool.write(slot, vec![7; 5]).await.expect("no panic");
        assert_eq!(bytes, [7; 5]);
        assert!(written.is_err());
        assert!(spool.is_empty());
    }

    #[tokio::test]
    async fn a_part_that_is_not_all_there_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spool = Spool::new(PART, folder.path()).expect("a slot");
        let slot = spool.slot().await;
        let (_, written) = spool.write(slot, vec![7; 5]).await.expect("no panic");
        let spooled = written.expect("written");
        spooled.file.set_len(4).expect("cut");
        assert!(spooled.read(Vec::new()).await.expect("no panic").is_err());
    }

    #[test]
    fn room_for_less_than_a_part_is_no_spool() {
        assert!(Spool::new(PART - 1, Path::new("/")).is_none());
    }
}
