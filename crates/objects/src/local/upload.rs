//! A multipart upload into one file.
//!
//! All parts but the last have one size, so each has its place in the file and is written there
//! whenever it comes, without a second copy. The size is known once the first part is here; a
//! part that comes before it waits in a file of its own and is copied into place at the end.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    PRIVATE_FILE, Place, blocking, ignore_missing, make_folder, new_file, remove_begun, writing,
};
use crate::{
    ObjectError, ObjectMeta, Upload,
    parts::{invalid_part, total_bytes},
};

/// An upload in the making; its folder is `<root>/.uploads/<of its key>/<id>/`.
pub(super) struct LocalUpload {
    id: String,
    folder: PathBuf,
    place: Place,
    file: Arc<fs::File>,
    parts: Mutex<Parts>,
}

/// What has arrived.
#[derive(Default)]
struct Parts {
    /// The size of the first part, hence of all but the last.
    part_bytes: Option<u64>,
    /// The sizes of the parts that are written, by number.
    written: BTreeMap<u32, u64>,
}

/// Where a part is written.
enum Target {
    /// At its offset in the file.
    Offset(u64),
    /// In a file of its own, until the part size is known.
    Waiting,
}

/// Bytes that are written at once. Larger writes make the kernel keep the file in larger pages,
/// and on a virtual machine whose host takes back what is free, each of those must first be got
/// from the host again: that took four times as long as all the rest (measured: 1.0 s instead of
/// 0.25 s for 1 GB).
const PIECE_BYTES: usize = 64 * 1024;

fn write_pieces(file: &fs::File, bytes: &[u8], mut offset: u64) -> io::Result<()> {
    for piece in bytes.chunks(PIECE_BYTES) {
        file.write_all_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// How much of a file stays in the machine's memory behind where it is written: a file up to this
/// size is read from there when it is downloaded at once.
const KEPT_BYTES: u64 = 256 * 1024 * 1024;

/// Lets the kernel begin to write a part to the disk, without waiting for it: it would begin after
/// half a minute, and the sync at the end would wait for all of the file (measured: 0.7 of 5.6 s
/// for 448 MB).
///
/// What is on the disk and far behind is given back: a large file would push out what the
/// machine's other programs, its database foremost, have there, and new memory for every page of
/// it costs more than the rest of writing (measured for 4.5 GB: 0.17 instead of 0.5 µs of system
/// time a row, 18 instead of 23 s in all).
fn write_behind(file: &fs::File, offset: u64, size: u64) {
    not_needed(file, offset, size);
    not_needed(file, 0, offset.saturating_sub(KEPT_BYTES));
}

/// Begins to write what is not on the disk yet and gives back the memory of what is. Advice alone:
/// the sync is what counts, so a refusal is none of ours.
fn not_needed(file: &fs::File, offset: u64, size: u64) {
    #[cfg(target_os = "linux")]
    if let Some(size) = std::num::NonZero::new(size) {
        let _ = rustix::fs::fadvise(file, offset, Some(size), rustix::fs::Advice::DontNeed);
    }
}

impl LocalUpload {
    pub(super) async fn create(
        id: String,
        folder: PathBuf,
        place: Place,
    ) -> Result<Self, ObjectError> {
        let made = folder.clone();
        let file = writing(move || {
            make_folder(&made)?;
            new_file(&made.join("data"))
        })
        .await?;
        Ok(Self { id, folder, place, file: Arc::new(file), parts: Mutex::default() })
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        // Nothing panics while holding it; even then the map is whole.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    /// Where a part of this size belongs. The first part fixes the size of the others, before
    /// it is written itself.
    fn target(&mut self, number: u32, size: u64) -> Result<Target, ObjectError> {
        if number == 0 {
            return Err(invalid_part("parts are numbered from 1"));
        }
        if number == 1 && *self.part_bytes.get_or_insert(size) != size {
            return Err(invalid_part("the first part came again in another size"));
        }
        match self.part_bytes {
            Some(part_bytes) if size > part_bytes => {
                Err(invalid_part("a part is larger than the first"))
            }
            Some(part_bytes) => Ok(Target::Offset(u64::from(number - 1) * part_bytes)),
            None => Ok(Target::Waiting),
        }
    }
}

#[async_trait]
impl Upload for LocalUpload {
    fn id(&self) -> &str {
        &self.id
    }

    async fn part(&self, number: u32, bytes: Bytes) -> Result<(), ObjectError> {
        let size = bytes.len() as u64;
        let target = self.parts().target(number, size)?;
        let file = Arc::clone(&self.file);
        let waiting = waiting_path(&self.folder, number);
        writing(move || match target {
            Target::Offset(offset) => {
                // A repetition of a part that waited must not be overwritten by it later.
                ignore_missing(fs::remove_file(&waiting))?;
                write_pieces(&file, &bytes, offset)?;
                write_behind(&file, offset, size);
                Ok(())
            }
            Target::Waiting => {
                // It may have come before.
                let mut options = fs::OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
                io::Write::write_all(&mut options.open(&waiting)?, &bytes)
            }
        })
        .await?;
        self.parts().written.insert(number, size);
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<ObjectMeta, ObjectError> {
        let total = total_bytes(&self.parts().written)?;
        let part_bytes = self.parts().part_bytes.unwrap_or(0);
        let numbers: Vec<u32> = self.parts().written.keys().copied().collect();
        let Self { folder, place, file, .. } = *self;
        writing(move || {
            for number in numbers {
                let offset = u64::from(number - 1) * part_bytes;
                copy_into(&file, offset, &waiting_path(&folder, number))?;
            }
            // Cuts what a longer repetition of the last part may have left.
            file.set_len(total)?;
            file.sync_all()?;
            place.fill_from(&folder.join("data"))?;
            remove_begun(&folder)
        })
        .await?;
        Ok(ObjectMeta { size: total, etag: None })
    }

    async fn abort(self: Box<Self>) -> Result<(), ObjectError> {
        let folder = self.folder;
        blocking(move || remove_begun(&folder)).await
    }
}

fn waiting_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("part-{number}"))
}

/// Copies a part that waited to its place; nothing to do for one that did not wait.
fn copy_into(file: &fs::File, offset: u64, waiting: &Path) -> io::Result<()> {
    match fs::File::open(waiting) {
        Ok(mut part) => {
            let mut target = file;
            io::Seek::seek(&mut target, io::SeekFrom::Start(offset))?;
            io::copy(&mut part, &mut target).map(|_| ())
        }
        Err(error) => ignore_missing(Err(error)),
    }
}
