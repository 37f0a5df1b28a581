//! Encodes rows for a request, and reads files with libraries that are not ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use chrono::Utc;
use outport_domain::{
    caller::Caller,
    failure::Failure,
    id::{OrganizationId, UserId},
    job::Warnings,
    locale::Locale,
    resource::Resource,
    spec::{self, Catalogue, ExportSpec, RequestContext},
};
use outport_pipeline::encoder::encoder_of;
use outport_source::Batch;
use serde::Deserialize;
use serde_json::{Value, json};

pub type Cell<'a> = Option<&'a [u8]>;

/// Every type that a column can be declared as.
pub const TYPES: [&str; 12] = [
    "text",
    "integer",
    "decimal",
    "float",
    "boolean",
    "date",
    "localTimestamp",
    "timestamp",
    "time",
    "uuid",
    "json",
    "binary",
];

/// A cell with a value.
#[expect(clippy::unnecessary_wraps, reason = "a cell of the source may be NULL")]
pub fn some(text: &str) -> Cell<'_> {
    Some(text.as_bytes())
}

/// A request for columns named c0, c1, … of these types; `decimal(12,2)` declares its digits.
pub fn spec(types: &[&str], resource_options: &str, members: &Value) -> ExportSpec {
    let column = |(index, declared): (usize, &&str)| {
        let (column_type, digits) = declared.split_once('(').unwrap_or((declared, ""));
        let digits = digits.strip_suffix(')').and_then(|digits| digits.split_once(','));
        let digits = digits.map_or_else(String::new, |(precision, scale)| {
            format!("precision = {precision}\nscale = {scale}\n")
        });
        format!("[[columns]]\nkey = \"c{index}\"\ntype = \"{column_type}\"\n{digits}")
    };
    let columns = types.iter().enumerate().map(column).collect::<Vec<_>>().concat();
    let resource = Resource::from_toml(&format!(
        "name = \"r\"\nconnection = \"c\"\nfrom = \"t\"\n{resource_options}\n[scope]\norganization = \"o\"\n{columns}"
    ))
    .expect("a valid resource");
    let catalogue = Catalogue(BTreeMap::from([("r".to_owned(), resource.into())]));
    let caller = Caller {
        organization: OrganizationId::new(),
        companies: None,
        cooperatives: None,
        user: UserId::new(),
        email: None,
        name: None,
        locale: None,
        scopes: BTreeSet::new(),
        token: None,
    };
    let context = RequestContext {
        caller: &caller,
        locale: Locale::En,
        requested_at: Utc::now(),
        resolved_filters: None,
    };
    let mut body = members.clone();
    body["resource"] = json!("r");
    spec::parse(&body.to_string(), &catalogue, context).expect("a valid request")
}

/// What an encoder made of some rows.
#[derive(Debug)]
pub struct Encoded {
    pub bytes: Vec<u8>,
    pub rows: u64,
    pub warnings: Warnings,
}

/// The file of some rows, each a batch of its own.
pub fn encode(spec: &ExportSpec, rows: &[Vec<Cell<'_>>]) -> Result<Encoded, Failure> {
    let batches = rows.iter().map(|row| batch_of(spec, row));
    encode_batches(spec, batches)
}

/// These cells, row by row, as one batch.
pub fn batch_of<'a>(spec: &ExportSpec, cells: impl IntoIterator<Item = &'a Cell<'a>>) -> Batch {
    let mut batch = Batch::new(spec.columns.len());
    for cell in cells {
        match cell {
            Some(cell) => batch.push(cell),
            None => batch.push_null(),
        }
    }
    batch
}

/// The file of some batches.
pub fn encode_batches(
    spec: &ExportSpec,
    batches: impl IntoIterator<Item = Batch>,
) -> Result<Encoded, Failure> {
    let mut encoder = encoder_of(spec)?;
    let mut bytes = Vec::new();
    encoder.start(&mut bytes)?;
    for batch in batches {
        encoder.rows_of(&batch, &mut bytes)?;
    }
    encoder.finish(&mut bytes)?;
    Ok(Encoded { bytes, rows: encoder.rows(), warnings: encoder.warnings() })
}

/// What the other library saw; each cell as `type:value`.
#[derive(Debug, Deserialize)]
pub struct Seen {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub about: Value,
}

/// Reads a file of this request with a library of Python.
pub fn read_back(spec: &ExportSpec, bytes: &[u8]) -> Seen {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file");
    std::fs::write(&path, bytes).expect("the file is written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/read_back.py");
    let output = Command::new(python())
        .arg(script)
        .arg(spec.format.name())
        .arg(&path)
        .arg(spec.compression.name())
        .output()
        .expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the script prints JSON")
}

/// The Python that has the packages of `tests/requirements.txt`.
pub fn python() -> PathBuf {
    let installed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/venv/bin/python");
    let python = std::env::var_os("OUTPORT_TEST_PYTHON").map_or(installed, PathBuf::from);
    assert!(python.is_file(), "{} is missing: run `tests/run` once", python.display());
    python
}
