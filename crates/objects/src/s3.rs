//! S3 and what speaks its language (`MinIO`, Ceph, Garage, R2, …).
//!
//! Two endpoints may differ: the one this process talks to, and the public one that pre-signed
//! links name, because a signature holds for one host only.

mod config;
mod etag;
mod failure;
mod upload;

use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_sdk_s3::{
    Client,
    presigning::PresigningConfig,
    primitives::{ByteStream, SdkBody},
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use outport_domain::object_key::ObjectKey;
use url::Url;

pub use self::config::{ChecksumMode, S3Config, S3Credentials, SecretAccessKey};
use self::{
    etag::{AreDigests, Taken},
    failure::{is_passing, of_body, of_sdk},
    upload::S3Upload,
};
use crate::{
    DownloadHeaders, ObjectError, ObjectMeta, ObjectStore, ObjectStream, Upload, parts::refused,
};

/// A bucket, or the part of it below a prefix. Cheap to clone.
#[derive(Clone)]
pub struct S3Store {
    client: Client,
    /// Signs for the public endpoint; sends nothing.
    signer: Client,
    bucket: String,
    /// Empty, or ending in a slash.
    prefix: String,
    are_digests: Arc<AreDigests>,
}

impl S3Store {
    /// Prepares the clients. Nothing is sent; [`ObjectStore::check`] tells whether it works.
    pub async fn connect(config: S3Config) -> Self {
        let (client, signer) = config.clients().await;
        let prefix = match config.prefix.as_deref().map(|prefix| prefix.trim_matches('/')) {
            None | Some("") => String::new(),
            Some(prefix) => format!("{prefix}/"),
        };
        Self { client, signer, bucket: config.bucket, prefix, are_digests: Arc::default() }
    }

    fn name(&self, key: &ObjectKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// HEAD of a full name in the bucket.
    async fn head_name(&self, name: &str) -> Result<Option<ObjectMeta>, ObjectError> {
        let request = self.client.head_object().bucket(&self.bucket).key(name);
        match request.send().await.map_err(of_sdk) {
            Ok(answer) => Ok(Some(ObjectMeta {
                size: answer.content_length().unwrap_or(0).unsigned_abs(),
                etag: answer.e_tag,
            })),
            Err(ObjectError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the store says about an object it has just taken.
    async fn head_of_new(&self, name: &str) -> Result<ObjectMeta, ObjectError> {
        self.head_name(name).await?.ok_or(ObjectError::NotFound)
    }

    /// The ids of the uploads to exactly this name.
    async fn open_uploads(&self, name: &str) -> Result<Vec<String>, ObjectError> {
        let mut ids = Vec::new();
        let (mut key_marker, mut id_marker): (Option<String>, Option<String>) = (None, None);
        loop {
            let request = self.client.list_multipart_uploads().bucket(&self.bucket).prefix(name);
            let request = request.set_key_marker(key_marker).set_upload_id_marker(id_marker);
            let page = request.send().await.map_err(of_sdk)?;
            let uploads = page.uploads.unwrap_or_default().into_iter();
            // The prefix is also one of longer names.
            let of_name = uploads.filter(|upload| upload.key.as_deref() == Some(name));
            ids.extend(of_name.filter_map(|upload| upload.upload_id));
            // Without a marker the next page would be this one again.
            if page.is_truncated != Some(true) || page.next_key_marker.is_none() {
                return Ok(ids);
            }
            (key_marker, id_marker) = (page.next_key_marker, page.next_upload_id_marker);
        }
    }

    async fn abort_upload(&self, name: &str, upload_id: &str) -> Result<(), ObjectError> {
        let request = self
            .client
            .abort_multipart_upload()
            .bucket(&self.bucket)
            .key(name)
            .upload_id(upload_id);
        match request.send().await.map_err(of_sdk) {
            Err(ObjectError::Refused { code, .. }) if code == "NoSuchUpload" => Ok(()),
            Ok(_) | Err(ObjectError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl ObjectStore for S3Store {
    async fn put(
        &self,
        key: &ObjectKey,
        content_type: &str,
        bytes: Bytes,
    ) -> Result<ObjectMeta, ObjectError> {
        let name = self.name(key);
        let request = self.client.put_object().bucket(&self.bucket).key(&name);
        let sent = request.content_type(content_type).body(body(bytes.clone())).send().await;
        let answer = sent.map_err(of_sdk)?;
        let encryption = answer.server_side_encryption.as_ref();
        let taken = Taken { etag: answer.e_tag.as_deref(), encryption };
        self.compare(&name, &taken, &bytes).await?;
        self.head_of_new(&name).await
    }

    async fn begin(
        &self,
        key: &ObjectKey,
        content_type: &str,
    ) -> Result<Box<dyn Upload>, ObjectError> {
        let name = self.name(key);
        let request = self.client.create_multipart_upload().bucket(&self.bucket).key(&name);
        let answer = request.content_type(content_type).send().await;
        let answer = answer.map_err(of_sdk)?;
        let id =
            answer.upload_id.ok_or_else(|| refused("NoUploadId", "no upload id in the answer"))?;
        Ok(Box::new(S3Upload::new(self.clone(), name, id)))
    }

    async fn abort(&self, key: &ObjectKey, upload_id: &str) -> Result<(), ObjectError> {
        self.abort_upload(&self.name(key), upload_id).await
    }

    async fn abandon(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        let name = self.name(key);
        match self.open_uploads(&name).await {
            Ok(ids) => {
                for id in ids {
                    self.abort_upload(&name, &id).await?;
                }
                Ok(())
            }
            // Not every store has such lists, and not every user may read them. The bucket's own
            // lifecycle rule is the net under this one.
            Err(ObjectError::Refused { code, .. }) if !is_passing(&code) => Ok(()),
            Err(ObjectError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn head(&self, key: &ObjectKey) -> Result<Option<ObjectMeta>, ObjectError> {
        self.head_name(&self.name(key)).await
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> Result<ObjectStream, ObjectError> {
        let range = match range {
            // HTTP has no word for no bytes.
            Some(range) if range.is_empty() => {
                let found = self.head(key).await?.ok_or(ObjectError::NotFound)?;
                return nothing_within(&range, &found);
            }
            Some(range) => Some(format!("bytes={}-{}", range.start, range.end - 1)),
            None => None,
        };
        let request = self.client.get_object().bucket(&self.bucket).key(self.name(key));
        let answer = request.set_range(range).send().await;
        let answer = answer.map_err(of_sdk)?;
        Ok(stream::try_unfold(answer.body, next_bytes).boxed())
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        let request = self.client.delete_object().bucket(&self.bucket).key(self.name(key));
        match request.send().await.map_err(of_sdk) {
            Ok(_) | Err(ObjectError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn presign_get(
        &self,
        key: &ObjectKey,
        headers: &DownloadHeaders,
        expires_in: Duration,
    ) -> Result<Option<Url>, ObjectError> {
        let expiry = PresigningConfig::expires_in(expires_in)
            .map_err(|error| ObjectError::Failed(error.into()))?;
        let request = self.signer.get_object().bucket(&self.bucket).key(self.name(key));
        let signed = request
            .response_content_disposition(&headers.content_disposition)
            .response_content_type(&headers.content_type)
            .presigned(expiry)
            .await
            .map_err(of_sdk)?;
        let url = Url::parse(signed.uri()).map_err(|error| ObjectError::Failed(error.into()))?;
        Ok(Some(url))
    }

    /// Asks for the bucket. A bucket that is not there or not ours is `Refused`, with a code
    /// made from the status, since the answer to HEAD has no body to name one.
    async fn check(&self) -> Result<(), ObjectError> {
        let asked = self.client.head_bucket().bucket(&self.bucket).send().await;
        match asked.map_err(of_sdk) {
            Ok(_) => Ok(()),
            Err(ObjectError::NotFound) => Err(refused("NoSuchBucket", "the bucket does not exist")),
            Err(error) => Err(error),
        }
    }
}

/// A body that the client's own retries can send again.
fn body(bytes: Bytes) -> ByteStream {
    ByteStream::new(SdkBody::from(bytes))
}

/// The client checks the length of the body, so one cut short ends in an error.
async fn next_bytes(mut body: ByteStream) -> Result<Option<(Bytes, ByteStream)>, ObjectError> {
    let next = body.try_next().await.map_err(of_body)?;
    Ok(next.map(|bytes| (bytes, body)))
}

/// The stream of an empty range.
fn nothing_within(range: &Range<u64>, found: &ObjectMeta) -> Result<ObjectStream, ObjectError> {
    if range.start > range.end || range.end > found.size {
        return Err(refused("InvalidRange", "the range is not within the object"));
    }
    Ok(stream::empty().boxed())
}
