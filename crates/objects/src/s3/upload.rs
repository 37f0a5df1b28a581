//! A multipart upload to S3.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use aws_sdk_s3::{
    config::{Builder, timeout::TimeoutConfig},
    types::{CompletedMultipartUpload, CompletedPart},
};
use bytes::Bytes;

use super::{S3Store, body, failure::ObjectFailure as _};
use crate::{ObjectError, ObjectMeta, Upload};

/// Completing joins all parts, which takes large objects minutes in some stores. The caller's
/// own limit is shorter where it must be.
const COMPLETE_TIMEOUT: Duration = Duration::from_mins(10);

/// An upload in the making.
pub(super) struct S3Upload {
    store: S3Store,
    name: String,
    id: String,
    parts: Mutex<BTreeMap<i32, Part>>,
}

/// A part the store has taken.
struct Part {
    etag: String,
    size: u64,
}

impl S3Upload {
    pub(super) fn new(store: S3Store, name: String, id: String) -> Self {
        Self { store, name, id, parts: Mutex::default() }
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<i32, Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn complete(&self) -> Result<(), ObjectError> {
        let parts = self
            .parts()
            .iter()
            .map(|(&number, part)| {
                CompletedPart::builder().part_number(number).e_tag(&part.etag).build()
            })
            .collect();
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(COMPLETE_TIMEOUT).build();
        let client = &self.store.client;
        let request = client.complete_multipart_upload().bucket(&self.store.bucket).key(&self.name);
        let completed = request
            .upload_id(&self.id)
            .multipart_upload(CompletedMultipartUpload::builder().set_parts(Some(parts)).build())
            .customize()
            .config_override(Builder::default().timeout_config(timeouts))
            .send()
            .await;
        completed.map(|_| ()).map_err(|error| error.into_object_error())
    }

    /// Whether the object is there as these parts make it. An answer to completing can be lost
    /// on the way; the client then asks again and hears of an upload that is no more.
    async fn is_complete(&self) -> Result<bool, ObjectError> {
        let Some(found) = self.store.head_name(&self.name).await? else { return Ok(false) };
        let (count, size) = {
            let parts = self.parts();
            (parts.len(), parts.values().map(|part| part.size).sum::<u64>())
        };
        // The etag of a multipart object ends in the number of its parts.
        let of_parts = |etag: &str| etag.trim_matches('"').ends_with(&format!("-{count}"));
        Ok(found.size == size && found.etag.as_deref().is_some_and(of_parts))
    }
}

#[async_trait]
impl Upload for S3Upload {
    fn id(&self) -> &str {
        &self.id
    }

    async fn part(&self, number: u32, bytes: Bytes) -> Result<(), ObjectError> {
        let number = i32::try_from(number).map_err(|error| ObjectError::Refused {
            code: "InvalidPart".to_owned(),
            cause: error.into(),
        })?;
        let size = bytes.len() as u64;
        let client = &self.store.client;
        let request = client.upload_part().bucket(&self.store.bucket).key(&self.name);
        let sent = request.upload_id(&self.id).part_number(number).body(body(bytes)).send().await;
        let answer = sent.map_err(|error| error.into_object_error())?;
        let etag = answer.e_tag.ok_or_else(|| ObjectError::Refused {
            code: "NoETag".to_owned(),
            cause: "the answer to UploadPart has no etag".into(),
        })?;
        self.parts().insert(number, Part { etag, size });
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<ObjectMeta, ObjectError> {
        // S3 wants at least one part, which may be empty.
        if self.parts().is_empty() {
            self.part(1, Bytes::new()).await?;
        }
        match self.complete().await {
            Ok(()) => {}
            Err(ObjectError::Refused { code, .. })
                if code == "NoSuchUpload" && self.is_complete().await? => {}
            Err(error) => return Err(error),
        }
        self.store.head_of_new(&self.name).await
    }

    async fn abort(self: Box<Self>) -> Result<(), ObjectError> {
        self.store.abort_upload(&self.name, &self.id).await
    }
}
