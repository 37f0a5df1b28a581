//! What a download gives, and what is said of it before its bytes.

use std::ops::Range;

use axum::{
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use outport_contract::sealed;
use outport_domain::{
    file_name,
    job::{ExportJob, FinishedFile, FinishedPart, Protection},
    object_key::ObjectKey,
};
use outport_objects::disposition::content_disposition;
use outport_store::StoreError;

use crate::api::problem::{Outcome, Problem};

/// What a download gives: the file, the manifest of a split export, or one of its files.
pub(super) struct Served {
    /// Its number among the files of a split export.
    pub(super) part: Option<u32>,
    pub(super) key: ObjectKey,
    pub(super) name: String,
    /// The media type as a header.
    pub(super) content_type: String,
    /// Bytes as delivered.
    pub(super) size_bytes: u64,
    /// Bytes as stored.
    pub(super) stored_bytes: u64,
    pub(super) sha256: String,
    pub(super) protection: Protection,
}

impl Served {
    /// The file, or the manifest of a split export.
    pub(super) fn file(job: &ExportJob, file: &FinishedFile) -> Result<Self, Problem> {
        let (name, size_bytes) = if job.split {
            let name = file_name::of_manifest(&job.file_name, job.compression.suffix());
            (name, manifest_bytes(file)?)
        } else {
            (job.file_name.clone(), file.size_bytes)
        };
        Ok(Self {
            part: None,
            key: file.key.clone(),
            name,
            content_type: header_of(job.content_type()),
            size_bytes,
            stored_bytes: file.stored_bytes,
            sha256: file.sha256.clone(),
            protection: file.protection,
        })
    }

    /// One of the files of a split export.
    pub(super) fn part(job: &ExportJob, file: &FinishedFile, part: FinishedPart) -> Self {
        Self {
            part: Some(part.number),
            key: part.key,
            name: file_name::of_part(&job.file_name, job.compression.suffix(), part.number),
            content_type: header_of(job.part_content_type()),
            size_bytes: part.size_bytes,
            stored_bytes: part.stored_bytes,
            sha256: part.sha256,
            protection: file.protection,
        }
    }

    /// The answer to a HEAD, and the beginning of that to a GET.
    pub(super) fn head(&self, etag: &str, range: Option<&Range<u64>>) -> Response {
        let outcome = if range.is_some() { Outcome::Partial } else { Outcome::Ok };
        let mut response = outcome.into_response();
        let headers = response.headers_mut();
        let mut set = |name: HeaderName, value: String| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        };
        set(header::CONTENT_TYPE, self.content_type.clone());
        set(header::CONTENT_DISPOSITION, content_disposition(&self.name));
        set(header::ACCEPT_RANGES, "bytes".to_owned());
        set(header::ETAG, etag.to_owned());
        let length = range.map_or(self.size_bytes, |range| range.end - range.start);
        set(header::CONTENT_LENGTH, length.to_string());
        if let Some(range) = range {
            let value = format!("bytes {}-{}/{}", range.start, range.end - 1, self.size_bytes);
            set(header::CONTENT_RANGE, value);
        }
        response
    }
}

/// Bytes of the manifest of a split export as delivered; its job says how many are stored.
fn manifest_bytes(file: &FinishedFile) -> Result<u64, Problem> {
    let bytes = match file.protection {
        Protection::Sealed => sealed::plain_bytes(file.stored_bytes),
        Protection::None | Protection::AdapterManaged => Some(file.stored_bytes),
    };
    bytes.ok_or_else(|| StoreError::Corrupt("no sealed file is so long".to_owned()).into())
}

/// A media type as a header: texts say their character set.
fn header_of(content_type: &str) -> String {
    let charset = if content_type.starts_with("text/") { "; charset=utf-8" } else { "" };
    format!("{content_type}{charset}")
}
