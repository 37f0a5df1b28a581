//! Any table of texts, in any format, dialect and compression, is what Python's own readers see.
//! One process reads many files.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use proptest::prelude::*;
use serde_json::json;

use crate::{
    csv_rules::hard_cell,
    file::{Cell, Seen, encode, python, spec},
};

/// A table of texts and what is asked for.
#[derive(Clone, Debug)]
struct Asked {
    rows: Vec<Vec<Option<String>>>,
    format: &'static str,
    compression: &'static str,
    delimiter: &'static str,
    quote: &'static str,
    line_ending: &'static str,
    bom: bool,
}

fn asked() -> impl Strategy<Value = Asked> {
    (
        prop::collection::vec(prop::collection::vec(hard_cell(), 3), 1..8),
        prop::sample::select(vec!["CSV", "CSV", "NDJSON", "JSON"]),
        prop::sample::select(vec!["none", "gzip", "zstd"]),
        prop::sample::select(vec![",", ";", "\t", "|"]),
        prop::sample::select(vec!["necessary", "all", "non_numeric"]),
        prop::sample::select(vec!["LF", "CRLF"]),
        any::<bool>(),
    )
        .prop_map(|(rows, format, compression, delimiter, quote, line_ending, bom)| Asked {
            rows,
            format,
            compression,
            delimiter,
            quote,
            line_ending,
            bom,
        })
}

/// The table as its file, written where the script finds it.
fn write(asked: &Asked, path: &Path) {
    let mut members = json!({"format": asked.format, "compression": asked.compression});
    if asked.format == "CSV" {
        members["csv"] = json!({
            "delimiter": asked.delimiter, "quote": asked.quote, "lineEnding": asked.line_ending,
            "bom": asked.bom, "nullText": "NULL",
        });
    }
    let spec = spec(&["text", "text", "text"], "formulaGuard = \"off\"", &members);
    let row = |row: &Vec<Option<String>>| -> Vec<Vec<u8>> {
        row.iter().map(|cell| cell.clone().unwrap_or_default().into_bytes()).collect()
    };
    let bytes: Vec<Vec<Vec<u8>>> = asked.rows.iter().map(row).collect();
    let cells: Vec<Vec<Cell<'_>>> = asked
        .rows
        .iter()
        .zip(&bytes)
        .map(|(row, bytes)| {
            row.iter().zip(bytes).map(|(cell, bytes)| cell.as_ref().map(|_| &**bytes)).collect()
        })
        .collect();
    let encoded = encode(&spec, &cells).expect("encodable");
    std::fs::write(path, encoded.bytes).expect("the file is written");
}

/// What one Python process reads in all of the files.
fn read_all(folder: &Path, tables: &[Asked]) -> Vec<Seen> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/read_back.py");
    let mut child = Command::new(python())
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts");
    let mut lines = Vec::new();
    for (number, table) in tables.iter().enumerate() {
        let path = folder.join(number.to_string());
        let asked = json!([table.format, path, table.compression, table.delimiter]);
        writeln!(lines, "{asked}").expect("memory takes all");
    }
    let mut stdin = child.stdin.take().expect("a pipe");
    let writing = std::thread::spawn(move || stdin.write_all(&lines));
    let output = child.wait_with_output().expect("Python ends");
    writing.join().expect("no panic").expect("all lines are taken");
    assert!(output.status.success(), "Python failed");
    let seen = String::from_utf8(output.stdout).expect("UTF-8");
    seen.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A cell as the script shows it: CSV knows texts alone.
fn shown(cell: Option<&str>, format: &str) -> String {
    match (cell, format) {
        (None, "CSV") => "str:NULL".to_owned(),
        (None, _) => "NoneType:None".to_owned(),
        (Some(text), _) => format!("str:{text}"),
    }
}

proptest! {
    // Few cases of many tables: Python starts once for each.
    #![proptest_config(ProptestConfig { cases: 4, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn any_tables_of_text_are_what_python_reads(
        tables in prop::collection::vec(asked(), 250),
    ) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (number, table) in tables.iter().enumerate() {
            write(table, &folder.path().join(number.to_string()));
        }
        let seen = read_all(folder.path(), &tables);
        prop_assert_eq!(seen.len(), tables.len());
        for (seen, table) in seen.iter().zip(&tables) {
            prop_assert_eq!(&seen.columns, &["c0", "c1", "c2"]);
            let expected: Vec<Vec<String>> = table
                .rows
                .iter()
                .map(|row| row.iter().map(|cell| shown(cell.as_deref(), table.format)).collect())
                .collect();
            prop_assert_eq!(&seen.rows, &expected, "{:?}", table);
        }
    }
}
