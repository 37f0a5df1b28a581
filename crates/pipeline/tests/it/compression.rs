//! Rule 22: files compressed as a whole.

use serde_json::json;

use crate::file::{encode, read_back, some, spec};

#[test]
fn every_text_format_is_read_back_from_every_compression() {
    for format in ["CSV", "NDJSON", "JSON"] {
        for compression in ["none", "gzip", "zstd"] {
            let spec = spec(
                &["text", "integer"],
                "",
                &json!({"format": format, "compression": compression}),
            );
            let names: Vec<String> = (0..5_000).map(|row| format!("é{row}")).collect();
            let rows: Vec<_> = names.iter().map(|name| vec![some(name), some("7")]).collect();
            let encoded = encode(&spec, &rows).expect("encodable");
            assert_eq!(encoded.rows, 5_000);
            let seen = read_back(&spec, &encoded.bytes);
            let read: Vec<&str> =
                seen.rows.iter().filter_map(|row| row[0].strip_prefix("str:")).collect();
            assert_eq!(read, names, "{format} in {compression}");
            let again = encode(&spec, &rows).expect("encodable");
            assert_eq!(again.bytes, encoded.bytes, "a retry makes the same bytes");
        }
    }
}

#[test]
fn a_file_without_rows_is_a_whole_compressed_file() {
    for compression in ["gzip", "zstd"] {
        let spec = spec(&["text"], "", &json!({"compression": compression}));
        let encoded = encode(&spec, &[]).expect("encodable");
        let seen = read_back(&spec, &encoded.bytes);
        assert_eq!((seen.columns, seen.rows.len()), (vec!["c0".to_owned()], 0));
    }
}

#[test]
fn names_and_types_say_how_a_file_is_compressed() {
    for (members, name, content_type) in [
        (json!({"fileName": "a.csv"}), "a.csv", "text/csv"),
        (json!({"compression": "gzip", "fileName": "a.csv"}), "a.csv.gz", "application/gzip"),
        (json!({"compression": "gzip", "fileName": "a.csv.GZ"}), "a.csv.GZ", "application/gzip"),
        (json!({"compression": "zstd", "fileName": "a"}), "a.zst", "application/zstd"),
        (json!({"format": "NDJSON", "fileName": "a"}), "a", "application/x-ndjson"),
    ] {
        let spec = spec(&["text"], "", &members);
        assert_eq!(spec.file_name, name);
        assert_eq!(spec.compression.content_type(spec.format), content_type);
    }
    let by_default = spec(&["text"], "", &json!({"format": "NDJSON", "compression": "zstd"}));
    assert!(by_default.file_name.ends_with(".ndjson.zst"), "{}", by_default.file_name);
}
