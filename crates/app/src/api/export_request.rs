//! The body of a request, for the reference; it is read by the domain, which tells every wrong
//! field at once.

/// What is to be exported, and how.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body in the OpenAPI document")]
pub struct ExportRequest {
    /// What to export, see `/v1/resources`.
    resource: String,
    /// Keys, or `{"key": …, "label": …}`, in the order of the file; the defaults when absent.
    columns: Option<Vec<serde_json::Value>>,
    /// Column → `{"operator": …, "value": …, "ignoreCase": …}` or an array of such, AND-ed; `_or`
    /// holds an array of alternatives. Operators: `EQ` `NE` `GT` `GTE` `LT` `LTE` `BETWEEN`
    /// `NOT_BETWEEN` `IN` `NOT_IN` `CONTAINS` `NOT_CONTAINS` `STARTS_WITH` `ENDS_WITH` `IS_NULL`
    /// `IS_NOT_NULL`, and with `{amount, unit, includeCurrent}` `IN_LAST` `IN_NEXT`, with `{unit}`
    /// `IN_CURRENT` `IN_PREVIOUS`; units are `minute` to `year`. `GET /v1/resources/{name}` lists
    /// the operators of each column. A day stands for all its instants in `timeZone`.
    #[schema(value_type = Option<Object>)]
    filters: Option<serde_json::Value>,
    /// Keys; a leading `-` sorts downwards.
    sort: Option<Vec<String>>,
    /// `ORGANIZATION`, `COMPANY` or `COOPERATIVE`.
    scope_type: Option<String>,
    company_id: Option<uuid::Uuid>,
    cooperative_id: Option<uuid::Uuid>,
    /// `CSV`, `NDJSON`, `JSON`, `XLSX` or `PARQUET`.
    format: Option<String>,
    /// With format `CSV` only: `delimiter` (`,` `;` `|` or a tab), `bom` (`true` or `false`),
    /// `quote` (`necessary`, `all` or `non_numeric`), `lineEnding` (`LF` or `CRLF`), `nullText`.
    #[schema(value_type = Option<Object>)]
    csv: Option<serde_json::Value>,
    /// `none`, `gzip` or `zstd`; with formats `XLSX` and `PARQUET` only `none`.
    compression: Option<String>,
    /// Splits the export: numbered files of at most so many data rows each, and a manifest. At
    /// least 1; with format `XLSX` at most 1,048,575.
    max_rows_per_file: Option<u64>,
    /// Splits the export: numbered files of at most so many bytes each, before any compression,
    /// unless one row alone is larger. At least 1,048,576.
    max_bytes_per_file: Option<u64>,
    /// An IANA zone.
    time_zone: Option<String>,
    /// `en`, `pt-BR` or `es`.
    locale: Option<String>,
    /// A bare file name.
    file_name: Option<String>,
    /// `{"email": …}`.
    #[schema(value_type = Option<Object>)]
    notify: Option<serde_json::Value>,
    /// Anything; it comes back with the job.
    #[schema(value_type = Option<Object>)]
    metadata: Option<serde_json::Value>,
}
