//! Mails as files: for the embedded profile and for looking at what would have been sent.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::{MailError, MessageId};

pub(super) struct Folder(PathBuf);

impl Folder {
    pub fn new(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self(path.to_owned()))
    }

    /// Writes `<id>.eml`, whole or not at all. A copy overwrites its original.
    pub async fn put(&self, id: &MessageId, message: Vec<u8>) -> Result<(), MailError> {
        let path = self.0.join(format!("{}.eml", id.local()));
        self.blocking(move |folder| {
            let mut file = tempfile::Builder::new().suffix(".tmp").tempfile_in(folder)?;
            file.write_all(&message)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        })
        .await
    }

    pub async fn check(&self) -> Result<(), MailError> {
        self.blocking(|folder| tempfile::tempfile_in(folder).map(drop)).await
    }

    async fn blocking(
        &self,
        work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
    ) -> Result<(), MailError> {
        let folder = self.0.clone();
        tokio::task::spawn_blocking(move || work(&folder))
            .await
            .map_err(io::Error::other)
            .flatten()
            .map_err(MailError::Folder)
    }
}
