//! The manifest of a split export: what `fileKey` names when a request bounds its files
//! (`maxRowsPerFile`, `maxBytesPerFile`). It is written last, so all that it lists is there.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Instant;

/// The form that this program writes. Members may join it; a change of those that are here
/// would be another one.
pub const VERSION: u32 = 1;

/// A manifest: one JSON object, its members in this order, always all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// The job.
    pub export_job_id: Uuid,
    /// The resource's name.
    pub resource: String,
    /// `CSV`, …: of every file.
    pub format: String,
    /// `none`, `gzip` or `zstd`: of every file.
    pub compression: String,
    /// The media type of every file.
    pub content_type: String,
    /// The column keys, in the order of the files.
    pub columns: Vec<String>,
    /// The moment that all rows were seen at.
    pub snapshot_at: Instant,
    /// Data rows of all files.
    pub total_rows: u64,
    /// Bytes of all files.
    pub size_bytes: u64,
    /// At least one, by their numbers: all rows in the order of the export.
    pub files: Vec<ManifestFile>,
}

/// One file of a manifest: whole by itself, with a header where its format has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestFile {
    /// Counted from 1, without a gap.
    pub number: u32,
    /// What people see: may be localised and non-ASCII.
    pub name: String,
    /// The object key.
    pub key: String,
    /// Data rows, the header not counted.
    pub rows: u64,
    /// Bytes as delivered.
    pub size_bytes: u64,
    /// SHA-256 of these bytes, lower-case hex.
    pub sha256: String,
    /// HMAC-SHA256 of these bytes, lower-case hex, with the key that the manifest is signed with.
    /// Not there in manifests of before files were signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hmac: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_written_as_consumers_know_it() {
        let text = r#"{"version":1,"exportJobId":"0197f604-49fe-7b73-bb81-df2e93a7e47d","resource":"order","format":"CSV","compression":"gzip","contentType":"application/gzip","columns":["code","note"],"snapshotAt":"2026-07-04T12:20:00.000Z","totalRows":12,"sizeBytes":345,"files":[{"number":1,"name":"Março-0001.csv.gz","key":"data-transfer/exports/0197f604-49fe-7b73-bb81-df2e93a7e47d/orders-0001.csv.gz","rows":12,"sizeBytes":345,"sha256":"abab","hmac":"cdcd"}]}"#;
        let manifest: Manifest = serde_json::from_str(text).expect("a manifest");
        assert_eq!(manifest.version, VERSION);
        assert_eq!(serde_json::to_string(&manifest).expect("JSON"), text);
    }

    #[test]
    fn members_of_a_later_day_are_passed_over() {
        let text =
            r#"{"number":1,"name":"a","key":"b","rows":0,"sizeBytes":1,"sha256":"","later":"x"}"#;
        let file: ManifestFile = serde_json::from_str(text).expect("a file");
        assert_eq!((file.size_bytes, file.hmac), (1, None), "of an earlier day, too");
    }
}
