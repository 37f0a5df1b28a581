//! An etag, where it is a digest of what the store took.
//!
//! By S3's own rules an etag of 32 hexadecimal digits is the MD5 of the bytes, unless they are
//! encrypted with a key that a service manages; any other etag says nothing about them. There are
//! compatible stores whose etags look like that and are none. So an etag that is not the MD5 of what
//! was sent is damage only where the store's etags are digests, which one small object shows.

use aws_sdk_s3::types::ServerSideEncryption;
use bytes::Bytes;
use md5::{Digest as _, Md5};
use outport_contract::digest::hex;
use tokio::sync::OnceCell;

use super::{S3Store, body, failure::of_sdk};
use crate::{ObjectError, parts::refused};

/// Whether the etags of a store are digests, as soon as there was a reason to ask.
pub(super) type AreDigests = OnceCell<bool>;

/// What a store says of bytes that it took.
pub(super) struct Taken<'a> {
    pub(super) etag: Option<&'a str>,
    pub(super) encryption: Option<&'a ServerSideEncryption>,
}

impl Taken<'_> {
    /// The etag, where it looks like a digest.
    fn digest(&self) -> Option<&str> {
        let has_digest = matches!(self.encryption, None | Some(ServerSideEncryption::Aes256));
        let etag = self.etag.filter(|_| has_digest)?.trim_matches('"');
        let is_digest = etag.len() == 32 && etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then_some(etag)
    }

    /// Whether the etag looks like a digest and is not the one of these bytes.
    fn differs(&self, sent: &[u8]) -> bool {
        self.digest().is_some_and(|etag| !is_of(etag, sent))
    }
}

fn is_of(etag: &str, sent: &[u8]) -> bool {
    etag.eq_ignore_ascii_case(&hex(&Md5::digest(sent)))
}

impl S3Store {
    /// Fails when the store has other bytes than were sent under this name.
    pub(super) async fn compare(
        &self,
        name: &str,
        taken: &Taken<'_>,
        sent: &[u8],
    ) -> Result<(), ObjectError> {
        if self.are_digests.get() == Some(&false) || !taken.differs(sent) {
            return Ok(());
        }
        if *self.are_digests.get_or_try_init(|| self.probe(name)).await? {
            return Err(refused("BadDigest", "the store has other bytes than were sent"));
        }
        Ok(())
    }

    /// Puts a small object beside the name, looks at its etag, and takes it away again.
    async fn probe(&self, name: &str) -> Result<bool, ObjectError> {
        let sent = Bytes::from_static(b"Outport looks at the etag of this and deletes it.\n");
        let (bucket, name) = (&self.bucket, format!("{name}.etag"));
        let request = self.client.put_object().bucket(bucket).key(&name).body(body(sent.clone()));
        let answer = request.send().await.map_err(of_sdk)?;
        let deleted = self.client.delete_object().bucket(bucket).key(&name).send().await;
        if let Err(error) = deleted.map_err(of_sdk) {
            tracing::warn!(name, %error, "a probe of the store's etags could not be deleted");
        }
        let encryption = answer.server_side_encryption.as_ref();
        let taken = Taken { etag: answer.e_tag.as_deref(), encryption };
        let are_digests = taken.digest().is_some_and(|etag| is_of(etag, &sent));
        if !are_digests {
            tracing::warn!(
                "the store's etags are no digests: what it takes is not compared by them"
            );
        }
        Ok(are_digests)
    }
}
