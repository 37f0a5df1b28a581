//! Rule 19: NDJSON and JSON, read back by Python and by properties.

use outport_domain::failure::FailureCode;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::file::{Cell, TYPES, encode, read_back, some, spec};

/// One row with a value of each type, and what Python sees of it.
const VALUES: [(&str, &str); 12] = [
    ("é\"\\\n\t\u{1}\u{2028}", "str:é\"\\\n\t\u{1}\u{2028}"),
    ("-9007199254740991", "int:-9007199254740991"),
    (
        "1234567890123456789012345678901234567890.10",
        "str:1234567890123456789012345678901234567890.10",
    ),
    ("1e+20", "float:1e+20"),
    ("t", "bool:True"),
    ("0044-03-15 BC", "str:0044-03-15 BC"),
    ("infinity", "str:infinity"),
    ("2026-07-01 13:45:00.123456-03", "str:2026-07-01 13:45:00.123456-03"),
    ("24:00:00", "str:24:00:00"),
    ("0197f604-49fe-7b73-bb81-df2e93a7e47d", "str:0197f604-49fe-7b73-bb81-df2e93a7e47d"),
    ("{\"a\":\n [1, null]}", "dict:{\"a\": [1, null]}"),
    ("\\x00ff10", "str:AP8Q"),
];

#[test]
fn every_type_is_read_back_by_python() {
    for format in ["NDJSON", "JSON"] {
        let spec = spec(&TYPES, "", &json!({"format": format}));
        let row = VALUES.iter().map(|(cell, _)| some(cell)).collect();
        let encoded = encode(&spec, &[row, vec![None; TYPES.len()]]).expect("encodable");
        assert_eq!(encoded.rows, 2);
        let seen = read_back(&spec, &encoded.bytes);
        let keys: Vec<String> = (0..TYPES.len()).map(|index| format!("c{index}")).collect();
        assert_eq!(seen.columns, keys, "in the order of the columns");
        assert_eq!(seen.rows[0], VALUES.map(|(_, expected)| expected.to_owned()), "{format}");
        assert_eq!(seen.rows[1], vec!["NoneType:None"; TYPES.len()]);
    }
}

/// What one cell of a column becomes.
fn value(column_type: &str, cell: &str) -> String {
    let spec = spec(&[column_type], "", &json!({"format": "NDJSON"}));
    let encoded = encode(&spec, &[vec![some(cell)]]).expect("encodable");
    let line = String::from_utf8(encoded.bytes).expect("UTF-8");
    let value = line.strip_prefix("{\"c0\":").and_then(|line| line.strip_suffix("}\n"));
    value.expect("one member on one line").to_owned()
}

#[test]
fn numbers_that_a_double_would_spoil_are_strings() {
    for (column_type, cell, expected) in [
        ("integer", "0", "0"),
        ("integer", "9007199254740991", "9007199254740991"),
        ("integer", "9007199254740992", "\"9007199254740992\""),
        ("integer", "-9007199254740993", "\"-9007199254740993\""),
        ("integer", "18446744073709551615", "\"18446744073709551615\""),
        ("decimal", "1.50", "\"1.50\""),
        ("decimal", "NaN", "\"NaN\""),
        ("float", "0.1", "0.1"),
        ("float", "-0", "-0"),
        ("float", "NaN", "\"NaN\""),
        ("float", "-Infinity", "\"-Infinity\""),
    ] {
        assert_eq!(value(column_type, cell), expected, "{column_type}");
    }
}

#[test]
fn what_is_not_of_its_columns_type_is_a_string() {
    for (column_type, cell, expected) in [
        ("integer", "007", "\"007\""),
        ("integer", "1.5", "\"1.5\""),
        ("integer", "about 7", "\"about 7\""),
        ("float", "1.", "\"1.\""),
        ("boolean", "yes", "\"yes\""),
        ("boolean", "0", "false"),
        ("json", "{broken", "\"{broken\""),
        ("binary", "plain", "\"cGxhaW4=\""),
        ("text", "=1+1", "\"=1+1\""),
        ("text", "", "\"\""),
    ] {
        assert_eq!(value(column_type, cell), expected, "{column_type}");
    }
}

#[test]
fn documents_keep_their_digits_and_stand_on_one_line() {
    let document = "{\r\n \"b\": 1.50, \"a\": 12345678901234567890, \"s\": \"x\\ny\"}";
    let expected = "{   \"b\": 1.50, \"a\": 12345678901234567890, \"s\": \"x\\ny\"}";
    assert_eq!(value("json", document), expected);
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    assert_eq!(value("json", &deep), deep);
}

#[test]
fn labels_do_not_change_the_members() {
    let members = json!({"format": "NDJSON", "columns": [{"key": "c0", "label": "Código"}]});
    let spec = spec(&["text"], "", &members);
    let encoded = encode(&spec, &[vec![some("a")]]).expect("encodable");
    assert_eq!(encoded.bytes, b"{\"c0\":\"a\"}\n");
}

#[test]
fn no_rows_are_an_empty_file_and_an_empty_array() {
    for (format, expected) in [("NDJSON", ""), ("JSON", "[]\n")] {
        let spec = spec(&["text"], "", &json!({"format": format}));
        let encoded = encode(&spec, &[]).expect("encodable");
        assert_eq!((encoded.rows, encoded.bytes), (0, expected.as_bytes().to_vec()));
    }
}

#[test]
fn invalid_text_is_replaced_and_counted_or_fails_the_job() {
    let members = json!({"format": "NDJSON"});
    let row: Vec<Cell<'_>> = vec![Some(b"a\xFFb"), Some(b"\"nul\0\"")];
    let types = ["text", "json"];
    let encoded =
        encode(&spec(&types, "", &members), std::slice::from_ref(&row)).expect("replaced");
    assert_eq!(encoded.warnings.replaced_cells, 2);
    assert_eq!(
        String::from_utf8(encoded.bytes).expect("UTF-8"),
        "{\"c0\":\"a\u{FFFD}b\",\"c1\":\"nul\u{FFFD}\"}\n"
    );
    let failure =
        encode(&spec(&types, "invalidText = \"fail\"", &members), &[row]).expect_err("it fails");
    assert_eq!(failure.code, FailureCode::ValueNotEncodable);
    assert!(failure.message.contains("c0"), "{}", failure.message);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_table_of_text_reads_back_equal(
        rows in prop::collection::vec(prop::collection::vec(prop::option::weighted(0.8, any::<String>()), 3), 0..8),
        format in prop::sample::select(vec!["NDJSON", "JSON"]),
        compression in prop::sample::select(vec!["none", "gzip", "zstd"]),
    ) {
        let spec = spec(&["text", "time", "uuid"], "", &json!({"format": format, "compression": compression}));
        let cells: Vec<Vec<Cell<'_>>> =
            rows.iter().map(|row| row.iter().map(|cell| cell.as_deref().map(str::as_bytes)).collect()).collect();
        let encoded = encode(&spec, &cells).expect("encodable");
        let plain = match compression {
            "gzip" => {
                let mut plain = Vec::new();
                std::io::copy(&mut flate2::read::GzDecoder::new(encoded.bytes.as_slice()), &mut plain).expect("gzip");
                plain
            }
            "zstd" => zstd::decode_all(encoded.bytes.as_slice()).expect("zstd"),
            _ => encoded.bytes,
        };
        let objects: Vec<Map<String, Value>> = if format == "JSON" {
            serde_json::from_slice(&plain).expect("one document")
        } else {
            let text = String::from_utf8(plain).expect("UTF-8");
            text.lines().map(|line| serde_json::from_str(line).expect("one document a line")).collect()
        };
        let expected: Vec<Vec<Value>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| cell.as_ref().map_or(Value::Null, |cell| cell.replace('\0', "\u{FFFD}").into())).collect())
            .collect();
        let read: Vec<Vec<Value>> = objects.iter().map(|object| object.values().cloned().collect()).collect();
        prop_assert_eq!(read, expected);
    }
}
