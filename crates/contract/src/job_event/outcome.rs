//! What a job made, or why it made nothing.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{key_ring::FIRST_VERSION, redaction::redact, sealed};

/// The one algorithm of `integrity`.
pub const HMAC_SHA256: &str = "HMAC-SHA256";

/// The stored object. Sizes and counts describe the plaintext, and are there when zero too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct JobResult {
    /// The object's key.
    pub path: String,
    /// Bytes before encryption.
    pub size_bytes: u64,
    /// Data rows. A Fetcher leaves the member out when it is zero.
    #[serde(default)]
    pub row_count: u64,
    /// `json`, …: lower case.
    pub format: String,
    /// The same value as the signature of `integrity`.
    pub hmac: String,
    /// How the plaintext is verified.
    pub integrity: Integrity,
    /// How the stored bytes are encrypted.
    pub protection: Protection,
}

impl JobResult {
    /// `hmac` is what `integrity` says; `format` is put in lower case.
    pub fn new(
        path: String,
        size_bytes: u64,
        row_count: u64,
        format: &str,
        integrity: Integrity,
        protection: Protection,
    ) -> Self {
        Self {
            path,
            size_bytes,
            row_count,
            format: format.to_ascii_lowercase(),
            hmac: integrity.signature.clone(),
            integrity,
            protection,
        }
    }
}

/// The signature over the plaintext of a result, before encryption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Integrity {
    /// [`HMAC_SHA256`].
    pub algorithm: Cow<'static, str>,
    /// 64 lower-case hex digits.
    pub signature: String,
    /// The version of the key; not written when it is the first.
    #[serde(default = "first_version", skip_serializing_if = "is_first_version")]
    pub key_version: u16,
}

impl Integrity {
    /// `signature` is 64 lower-case hex digits.
    pub const fn new(signature: String, key_version: u16) -> Self {
        Self { algorithm: Cow::Borrowed(HMAC_SHA256), signature, key_version }
    }
}

fn first_version() -> u16 {
    FIRST_VERSION
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_first_version(version: &u16) -> bool {
    *version == FIRST_VERSION
}

/// How the stored bytes are encrypted. It never speaks of the source's credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protection {
    /// Whether they are at all.
    pub encrypted: bool,
    /// Who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_by: Option<Cow<'static, str>>,
    /// In which form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Cow<'static, str>>,
}

impl Protection {
    /// Stored as it is.
    pub const NONE: Self = Self { encrypted: false, applied_by: None, mode: None };
    /// See [`adapter_managed`](crate::adapter_managed).
    pub const ADAPTER_MANAGED: Self = Self::by_adapter(crate::adapter_managed::MODE);
    /// See [`sealed`].
    pub const SEALED: Self = Self::by_adapter(sealed::MODE);

    const fn by_adapter(mode: &'static str) -> Self {
        Self {
            encrypted: true,
            applied_by: Some(Cow::Borrowed("adapter")),
            mode: Some(Cow::Borrowed(mode)),
        }
    }
}

/// Why a job failed, safe to show: the message is redacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobError {
    /// For an operator to read.
    pub message: String,
    /// A stable word such as `SOURCE_UNREACHABLE`. A Fetcher sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl JobError {
    /// Redacts the message.
    pub fn new(code: &str, message: &str) -> Self {
        Self { message: redact(message), code: Some(code.to_owned()) }
    }
}
