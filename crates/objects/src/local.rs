//! A folder of this machine as a store, for one process on one disk.
//!
//! Objects are files at `<root>/<key>`. What is not finished lives in a folder of its key below
//! `<root>/.uploads/`, where no key can point, because no segment of a key starts with a dot. An object appears by
//! a rename, after its bytes have reached the disk.
//!
//! What is made here is its user's alone: the rows in it are of all tenants.
//!
//! One thing is narrower than in S3: of the keys `a` and `a/b` only one can exist.

mod upload;

use std::{
    fs, io,
    ops::Range,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use outport_domain::object_key::ObjectKey;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use url::Url;
use uuid::Uuid;

use crate::{
    DownloadHeaders, ObjectError, ObjectMeta, ObjectStore, ObjectStream, Upload, parts::refused,
};
use upload::LocalUpload;

/// How much of a file is read at once.
const READ_BYTES: usize = 256 * 1024;
/// The folder of what is not finished.
const UPLOADS: &str = ".uploads";
/// Names the folder of a key: a key may be longer than a folder's name.
const OF_KEYS: Uuid = Uuid::from_u128(0x0b0c_5f0e_6c1f_4d0e_9a53_52d5_8a7f_31c4);
/// How old the scratch folder of a check must be to be a dead process's.
const SCRATCH_AGE: Duration = Duration::from_hours(1);
const SCRATCH_PREFIX: &str = "check-";
/// The modes of what is made here.
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Objects in a folder. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LocalFolder {
    root: PathBuf,
}

impl LocalFolder {
    /// Opens the folder and makes it where it is missing. Scratch of checks that a crash left
    /// behind is removed; what was begun at a key is not, it goes when the key is abandoned.
    pub async fn open(root: PathBuf) -> Result<Self, ObjectError> {
        let folder = Self { root };
        let uploads = folder.uploads();
        writing(move || {
            make_folder(&uploads)?;
            remove_old_scratch(&uploads)
        })
        .await?;
        Ok(folder)
    }

    fn uploads(&self) -> PathBuf {
        self.root.join(UPLOADS)
    }

    fn path(&self, key: &ObjectKey) -> PathBuf {
        self.root.join(key.as_str())
    }

    /// The folder of all that was begun at a key and is not finished.
    fn begun(&self, key: &ObjectKey) -> PathBuf {
        self.uploads().join(Uuid::new_v5(&OF_KEYS, key.as_str().as_bytes()).to_string())
    }

    /// The folder of an upload. Ids are UUIDs as we print them and nothing else, so none of them
    /// leads anywhere else.
    fn upload_folder(&self, key: &ObjectKey, upload_id: &str) -> Result<PathBuf, ObjectError> {
        match Uuid::parse_str(upload_id) {
            Ok(id) if id.to_string() == upload_id => Ok(self.begun(key).join(upload_id)),
            _ => Err(refused("InvalidUploadId", "upload ids of this store are UUIDs")),
        }
    }
}

#[async_trait]
impl ObjectStore for LocalFolder {
    async fn put(
        &self,
        key: &ObjectKey,
        _content_type: &str,
        bytes: Bytes,
    ) -> Result<ObjectMeta, ObjectError> {
        let scratch = self.begun(key).join(Uuid::now_v7().to_string());
        let place = Place { root: self.root.clone(), path: self.path(key) };
        writing(move || {
            make_folder(&scratch)?;
            let size = bytes.len() as u64;
            let written = write_synced(&scratch.join("data"), &bytes)
                .and_then(|()| place.fill_from(&scratch.join("data")));
            let removed = remove_begun(&scratch);
            written.and(removed).map(|()| ObjectMeta { size, etag: None })
        })
        .await
    }

    async fn begin(
        &self,
        key: &ObjectKey,
        _content_type: &str,
    ) -> Result<Box<dyn Upload>, ObjectError> {
        let id = Uuid::now_v7().to_string();
        let folder = self.upload_folder(key, &id)?;
        let place = Place { root: self.root.clone(), path: self.path(key) };
        Ok(Box::new(LocalUpload::create(id, folder, place).await?))
    }

    async fn abort(&self, key: &ObjectKey, upload_id: &str) -> Result<(), ObjectError> {
        let folder = self.upload_folder(key, upload_id)?;
        blocking(move || remove_begun(&folder)).await
    }

    async fn abandon(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        let folder = self.begun(key);
        blocking(move || remove_folder(&folder)).await
    }

    async fn head(&self, key: &ObjectKey) -> Result<Option<ObjectMeta>, ObjectError> {
        let (root, path) = (self.root.clone(), self.path(key));
        match blocking(move || fs::metadata(path).map_err(|error| within(&root, error))).await {
            Ok(metadata) if metadata.is_file() => {
                Ok(Some(ObjectMeta { size: metadata.len(), etag: None }))
            }
            Ok(_) | Err(ObjectError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> Result<ObjectStream, ObjectError> {
        let (root, path) = (self.root.clone(), self.path(key));
        let (file, size) = blocking(move || {
            let file = fs::File::open(path).map_err(|error| within(&root, error))?;
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok((file, metadata.len()))
        })
        .await?;
        let range = range.unwrap_or(0..size);
        if range.start > range.end || range.end > size {
            return Err(refused("InvalidRange", "the range is not within the object"));
        }
        let mut file = tokio::fs::File::from_std(file);
        file.seek(io::SeekFrom::Start(range.start)).await.map_err(of_io)?;
        Ok(stream::try_unfold((file, range.end - range.start), next_bytes).boxed())
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        let (root, path) = (self.root.clone(), self.path(key));
        blocking(move || {
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_file() => ignore_missing(fs::remove_file(&path))?,
                // A folder on the way to other objects is not an object.
                Ok(_) => return Ok(()),
                Err(error) => return ignore_missing(Err(within(&root, error))),
            }
            remove_empty_parents(&root, &path);
            Ok(())
        })
        .await
    }

    async fn presign_get(
        &self,
        _key: &ObjectKey,
        _headers: &DownloadHeaders,
        _expires_in: Duration,
    ) -> Result<Option<Url>, ObjectError> {
        Ok(None)
    }

    async fn check(&self) -> Result<(), ObjectError> {
        let probe = self.uploads().join(format!("{SCRATCH_PREFIX}{}", Uuid::now_v7()));
        writing(move || {
            // Not recursive: a root that is gone stays gone.
            fs::DirBuilder::new().mode(PRIVATE_FOLDER).create(&probe)?;
            let written = write_synced(&probe.join("probe"), b"probe");
            written.and(fs::remove_dir_all(&probe))
        })
        .await
    }
}

/// Where a finished file goes.
#[derive(Clone, Debug)]
struct Place {
    root: PathBuf,
    path: PathBuf,
}

impl Place {
    /// Moves a finished, synced file here and makes the move last.
    fn fill_from(&self, file: &Path) -> io::Result<()> {
        let parent = self.path.parent().unwrap_or(&self.root);
        // Deleting the last object of a folder removes the folder, perhaps right now.
        let mut attempts = 0;
        loop {
            make_folder(parent)?;
            match fs::rename(file, &self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < 10 => {
                    attempts += 1;
                }
                moved => break moved?,
            }
        }
        // The entries of folders made on the way must last as well.
        for folder in parent.ancestors() {
            fs::File::open(folder)?.sync_all()?;
            if folder == self.root {
                break;
            }
        }
        Ok(())
    }
}

/// The next piece of a file of which `left` bytes are still due.
async fn next_bytes(
    (mut file, left): (tokio::fs::File, u64),
) -> Result<Option<(Bytes, (tokio::fs::File, u64))>, ObjectError> {
    if left == 0 {
        return Ok(None);
    }
    let wanted = left.min(READ_BYTES as u64);
    let mut bytes = BytesMut::with_capacity(wanted as usize);
    let read = (&mut file).take(wanted).read_buf(&mut bytes).await.map_err(of_io)? as u64;
    if read == 0 {
        return Err(of_io(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(Some((bytes.freeze(), (file, left - read))))
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use io::Write as _;

    let mut file = new_file(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes a folder, and those on the way to it, for their owner alone; those that are there stay
/// as they are.
fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)
}

/// Makes a file for its owner alone.
fn new_file(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path)
}

/// Removes a folder and what is in it. A part that is just being written may put a file into it
/// meanwhile; the second look gets that one too.
fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            ignore_missing(fs::remove_dir_all(folder))
        }
        removed => ignore_missing(removed),
    }
}

/// Removes what was begun, and the folder of its key with the last of it.
fn remove_begun(folder: &Path) -> io::Result<()> {
    remove_folder(folder)?;
    if let Some(of_key) = folder.parent() {
        // Another upload to the key may be in it, which is no failure.
        fs::remove_dir(of_key).ok();
    }
    Ok(())
}

/// Tidies up to the root. Stops at the first folder that is in use, which is no failure.
fn remove_empty_parents(root: &Path, path: &Path) {
    for folder in path.ancestors().skip(1).take_while(|folder| *folder != root) {
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
}

fn remove_old_scratch(uploads: &Path) -> io::Result<()> {
    let now = SystemTime::now();
    for entry in fs::read_dir(uploads)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(SCRATCH_PREFIX) {
            continue;
        }
        let modified = entry.metadata().and_then(|metadata| metadata.modified())?;
        if now.duration_since(modified).is_ok_and(|age| age > SCRATCH_AGE) {
            remove_folder(&entry.path())?;
        }
    }
    Ok(())
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_missing(&error) => Ok(()),
        result => result,
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// An error at a path below the root. Where the root itself is away, nothing is known of what is
/// in it, and least that it is gone.
fn within(root: &Path, error: io::Error) -> io::Error {
    if is_missing(&error) && !root.is_dir() {
        return io::Error::other("the folder of the store is not there");
    }
    error
}

/// Runs file work on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ObjectError> {
    on_thread(work, of_io).await
}

/// The same, of what is to be written: what is missing then is no object.
async fn writing<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ObjectError> {
    on_thread(work, of_write).await
}

async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
    of_error: fn(io::Error) -> ObjectError,
) -> Result<T, ObjectError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(of_error),
        Err(stopped) => Err(ObjectError::Failed(stopped.into())),
    }
}

fn of_write(error: io::Error) -> ObjectError {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ObjectError::NotWritable(error.into())
        }
        _ if is_missing(&error) => ObjectError::NotWritable(error.into()),
        _ => of_io(error),
    }
}

fn of_io(error: io::Error) -> ObjectError {
    match error.kind() {
        _ if is_missing(&error) => ObjectError::NotFound,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ObjectError::Full(error.into())
        }
        _ => ObjectError::Failed(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_full_and_a_full_quota_too() {
        // ENOSPC and EDQUOT on Linux.
        for code in [28, 122] {
            let error = of_io(io::Error::from_raw_os_error(code));
            assert!(matches!(error, ObjectError::Full(_)), "{error:?}");
        }
    }

    #[test]
    fn a_full_device_is_reported_as_full() {
        use io::Write as _;

        let mut device = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let error = device.write_all(b"x").expect_err("it takes nothing");
        assert!(matches!(of_io(error), ObjectError::Full(_)));
    }
}
