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

use super::{S3Store, body, etag::Taken, failure::of_sdk};
use crate::{
    ObjectError, ObjectMeta, Upload,
    parts::{invalid_part, refused, total_bytes},
};

/// Completing joins all parts, which takes large objects minutes in some stores. The caller's
/// own limit is shorter where it must be.
const COMPLETE_TIMEOUT: Duration = Duration::from_mins(10);

/// S3's own limit.
const MAX_PARTS: u32 = 10_000;

/// An upload in the making.
pub(super) struct S3Upload {
    store: S3Store,
    name: String,
    id: String,
    parts: Mutex<BTreeMap<u32, Part>>,
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

    fn parts(&self) -> MutexGuard<'_, BTreeMap<u32, Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn complete(&self) -> Result<(), ObjectError> {
        let parts = self
            .parts()
            .iter()
            .map(|(&number, part)| {
                CompletedPart::builder().part_number(number as i32).e_tag(&part.etag).build()
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
        completed.map(|_| ()).map_err(of_sdk)
    }

    /// Whether the object is there as these parts make it. An answer to completing can be lost
    /// on the way; the client then asks again and hears of an upload that is no more.
    async fn is_complete(&self, size: u64) -> Result<bool, ObjectError> {
        let Some(found) = self.store.head_name(&self.name).await? else { return Ok(false) };
        let count = self.parts().len();
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
        if number == 0 || number > MAX_PARTS {
            return Err(invalid_part("parts are numbered from 1 to 10,000"));
        }
        let size = bytes.len() as u64;
        let client = &self.store.client;
        let request = client.upload_part().bucket(&self.store.bucket).key(&self.name);
        let request = request.upload_id(&self.id).part_number(number as i32);
        let answer = request.body(body(bytes.clone())).send().await.map_err(of_sdk)?;
        let encryption = answer.server_side_encryption.as_ref();
        let taken = Taken { etag: answer.e_tag.as_deref(), encryption };
        self.store.compare(&self.name, &taken, &bytes).await?;
        let etag = answer.e_tag.ok_or_else(|| refused("NoETag", "no etag in the answer"))?;
        self.parts().insert(number, Part { etag, size });
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<ObjectMeta, ObjectError> {
        // S3 wants at least one part, which may be empty.
        if self.parts().is_empty() {
            self.part(1, Bytes::new()).await?;
        }
        let sizes = self.parts().iter().map(|(&number, part)| (number, part.size)).collect();
        let size = total_bytes(&sizes)?;
        if let Err(error) = self.complete().await {
            let is_gone =
                matches!(&error, ObjectError::Refused { code, .. } if code == "NoSuchUpload");
            if !is_gone || !self.is_complete(size).await? {
                return Err(error);
            }
        }
        self.store.head_of_new(&self.name).await
    }

    async fn abort(self: Box<Self>) -> Result<(), ObjectError> {
        self.store.abort_upload(&self.name, &self.id).await
    }
}
