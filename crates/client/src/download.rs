//! The file of an export, verified as it comes.

use futures::StreamExt as _;
use outport_contract::{
    digest::{Sha256, Sha256Digest},
    signature::{IntegrityError, ResultVerifier},
};
use reqwest::{Method, header::LOCATION};
use serde::Deserialize;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use uuid::Uuid;

use crate::client::{Client, ClientError, answered};

/// A file that is whole, and what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Downloaded {
    /// Its bytes.
    pub size_bytes: u64,
    /// Their SHA-256.
    pub sha256: Sha256Digest,
}

/// Why a file is not to be used, whatever was written of it.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// There is none, or it broke off.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// It could not be written.
    #[error("it cannot be written: {0}")]
    Write(#[source] std::io::Error),
    /// The server led nowhere.
    #[error("the server does not say where the file is")]
    NoLocation,
    /// The export has no file.
    #[error("the export has no file")]
    NoFile,
    /// The bytes are not those that the export says.
    #[error("the bytes are not those that the export has")]
    Damaged,
    /// The bytes are not those that were signed.
    #[error("{0}")]
    Integrity(#[from] IntegrityError),
}

/// What is used of an export.
#[derive(Deserialize)]
struct Export {
    sha256: Option<String>,
}

impl Client {
    /// Writes the file of an export, or the manifest of a split one, and compares it with what
    /// the export says of it; with a verifier, also with what was signed. What was written before
    /// an error is not to be used.
    pub async fn download(
        &self,
        export: Uuid,
        into: &mut (impl AsyncWrite + Unpin + Send),
        mut verifier: Option<ResultVerifier>,
    ) -> Result<Downloaded, DownloadError> {
        let own = format!("/v1/exports/{export}");
        let Export { sha256 } = self.get(&own).await?;
        let expected: Sha256Digest =
            sha256.and_then(|hex| hex.parse().ok()).ok_or(DownloadError::NoFile)?;
        let mut response = answered(self.request(Method::GET, &format!("{own}/file"))).await?;
        if response.status().is_redirection() {
            let location = response.headers().get(LOCATION).and_then(|url| url.to_str().ok());
            let url = location.and_then(|url| self.join(url)).ok_or(DownloadError::NoLocation)?;
            response = answered(self.elsewhere(url)).await?;
        }
        let (mut digest, mut size_bytes) = (Sha256::new(), 0);
        let mut pieces = response.bytes_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(ClientError::Unreachable)?;
            digest.update(&piece);
            if let Some(verifier) = &mut verifier {
                verifier.update(&piece);
            }
            size_bytes += piece.len() as u64;
            into.write_all(&piece).await.map_err(DownloadError::Write)?;
        }
        into.flush().await.map_err(DownloadError::Write)?;
        let sha256 = digest.finish();
        if sha256 != expected {
            return Err(DownloadError::Damaged);
        }
        if let Some(verifier) = verifier {
            verifier.finish()?;
        }
        Ok(Downloaded { size_bytes, sha256 })
    }
}
