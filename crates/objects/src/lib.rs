//! The object port: where finished files live.
//!
//! **Words.** An *object* is a finished file under an [`ObjectKey`]. An *upload* is a multipart
//! transfer that becomes an object only when it is finished; until then nothing is visible at
//! the key. An *upload id* lets anybody abort it, after a crash included.
//!
//! **Invariants.** An object appears whole or not at all. Deleting and aborting are idempotent:
//! what is not there is gone already. The port never looks at the bytes; [`sealed`] does, above it.
//!
//! **Absent on purpose.** Listing: what must be cleaned up is known by its recorded key, and its
//! upload id where there was time to record one. Retrying: the caller knows the time limits (the S3 client's own retries apart).

pub mod disposition;
pub mod local;
pub mod memory;
mod parts;
pub mod s3;
pub mod sealed;

use std::{ops::Range, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use outport_contract::sealed::NotOpened;
use outport_domain::object_key::ObjectKey;
use url::Url;

/// What the store says about a finished object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Length in bytes, as the store reports it.
    pub size: u64,
    /// The store's own mark of the content, where it gives one.
    pub etag: Option<String>,
}

/// A stream of an object's bytes, in order. An error in the middle is an `Err` item, never a
/// clean end.
pub type ObjectStream = BoxStream<'static, Result<Bytes, ObjectError>>;

/// How a browser should treat a pre-signed download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadHeaders {
    /// The whole `Content-Disposition` value, RFC 6266.
    pub content_disposition: String,
    /// The `Content-Type` value.
    pub content_type: String,
}

/// What went wrong in the store. `Display` never prints addresses, credentials or the cause;
/// the cause chain is for the log.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Nothing is stored under this key.
    #[error("no such object")]
    NotFound,
    /// The store cannot be reached or did not answer in time.
    #[error("the object store cannot be reached")]
    Unreachable(#[source] Cause),
    /// The store answered and refused.
    #[error("the object store refused the request ({code})")]
    Refused {
        /// The store's own error code, e.g. `AccessDenied`.
        code: String,
        /// Everything else, for the log.
        #[source]
        cause: Cause,
    },
    /// There is no room left.
    #[error("the object store is full")]
    Full(#[source] Cause),
    /// The folder is not there any more, or not for this process to write to.
    #[error("the folder of the object store cannot be written")]
    NotWritable(#[source] Cause),
    /// Anything else, such as a local I/O error.
    #[error("the object store failed")]
    Failed(#[source] Cause),
    /// A sealed object is not the one that was stored, or its key is not known here.
    #[error("the stored object cannot be opened")]
    NotOpened(#[from] NotOpened),
    /// An object is sealed that should not be.
    #[error("the stored object is sealed, and its job says that it is not")]
    Sealed,
}

/// The cause of an [`ObjectError`].
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A store of objects. All implementations pass the same conformance suite.
#[async_trait]
pub trait ObjectStore: Send + Sync + 'static {
    /// Stores a small object in one request. Replaces what was there.
    async fn put(
        &self,
        key: &ObjectKey,
        content_type: &str,
        bytes: Bytes,
    ) -> Result<ObjectMeta, ObjectError>;

    /// Opens a multipart upload. Nothing is visible at the key before [`Upload::finish`].
    async fn begin(
        &self,
        key: &ObjectKey,
        content_type: &str,
    ) -> Result<Box<dyn Upload>, ObjectError>;

    /// Aborts an upload by its recorded id and frees its parts. Idempotent.
    async fn abort(&self, key: &ObjectKey, upload_id: &str) -> Result<(), ObjectError>;

    /// Ends all that was begun at exactly this key and never finished, whoever began it: uploads,
    /// and what a small object left on its way. For a writer that died before its upload id was
    /// recorded. Idempotent. As far as the store can tell what it holds: one that refuses to say
    /// keeps it, which is no error.
    async fn abandon(&self, key: &ObjectKey) -> Result<(), ObjectError>;

    /// What the store knows of an object; `None` when there is none.
    async fn head(&self, key: &ObjectKey) -> Result<Option<ObjectMeta>, ObjectError>;

    /// The bytes of an object, or of a range of it (end exclusive, within the object).
    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> Result<ObjectStream, ObjectError>;

    /// Deletes an object. Idempotent.
    async fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError>;

    /// A URL at the store's public endpoint that downloads the object until it expires;
    /// `None` when this store has no such thing.
    async fn presign_get(
        &self,
        key: &ObjectKey,
        headers: &DownloadHeaders,
        expires_in: Duration,
    ) -> Result<Option<Url>, ObjectError>;

    /// Checks that the store answers and that this process may use it.
    async fn check(&self) -> Result<(), ObjectError>;
}

/// One multipart upload. Parts are numbered from 1, all of one size but the last.
#[async_trait]
pub trait Upload: Send + Sync {
    /// The id by which anybody can abort it.
    fn id(&self) -> &str;

    /// Uploads one part. Several may be in flight at once; the order of arrival is free.
    async fn part(&self, number: u32, bytes: Bytes) -> Result<(), ObjectError>;

    /// Makes the object of all parts, in the order of their numbers, visible.
    async fn finish(self: Box<Self>) -> Result<ObjectMeta, ObjectError>;

    /// Drops the upload and its parts.
    async fn abort(self: Box<Self>) -> Result<(), ObjectError>;
}
