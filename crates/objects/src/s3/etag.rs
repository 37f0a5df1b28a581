//! An etag, where it is a digest of what the store took.

use aws_sdk_s3::types::ServerSideEncryption;
use md5::{Digest as _, Md5};
use outport_contract::digest::hex;

use crate::{ObjectError, parts::refused};

/// What a store says of bytes that it took.
pub(super) struct Taken<'a> {
    pub(super) etag: Option<&'a str>,
    pub(super) encryption: Option<&'a ServerSideEncryption>,
}

impl Taken<'_> {
    /// Fails when the store has other bytes than were sent. An etag of 32 hexadecimal digits is the
    /// MD5 of the bytes, by S3's own rules unless they are encrypted with a key that a service
    /// manages; any other etag says nothing about them.
    pub(super) fn check(&self, sent: &[u8]) -> Result<(), ObjectError> {
        let has_digest = matches!(self.encryption, None | Some(ServerSideEncryption::Aes256));
        let Some(etag) = self.etag.filter(|_| has_digest).map(|etag| etag.trim_matches('"')) else {
            return Ok(());
        };
        let is_digest = etag.len() == 32 && etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_digest || etag.eq_ignore_ascii_case(&hex(&Md5::digest(sent))) {
            return Ok(());
        }
        Err(refused("BadDigest", "the store has other bytes than were sent"))
    }
}
