//! Rule 21: Parquet, read back by Arrow.

use outport_domain::failure::FailureCode;
use outport_source::Batch;
use serde_json::json;

use crate::file::{encode, encode_batches, read_back, some, spec};

/// A declared type, a cell, the type and the value that Arrow sees.
const VALUES: [(&str, &str, &str, &str); 16] = [
    ("text", "é\n=1", "string", "str:é\n=1"),
    ("integer", "-9223372036854775808", "int64", "int:-9223372036854775808"),
    (
        "decimal",
        "1234567890123456789012345678901234567890.10",
        "string",
        "str:1234567890123456789012345678901234567890.10",
    ),
    ("decimal(5,2)", "-999.99", "decimal128(5, 2)", "Decimal:-999.99"),
    ("decimal(18,6)", "123456789012.345678", "decimal128(18, 6)", "Decimal:123456789012.345678"),
    (
        "decimal(38,10)",
        "-1234567890123456789012345678.0123456789",
        "decimal128(38, 10)",
        "Decimal:-1234567890123456789012345678.0123456789",
    ),
    ("float", "-Infinity", "double", "float:-inf"),
    ("boolean", "t", "bool", "bool:True"),
    ("date", "1582-10-15", "date32[day]", "date:1582-10-15"),
    (
        "localTimestamp",
        "2026-07-01 13:45:00.123456",
        "timestamp[us]",
        "datetime:2026-07-01T13:45:00.123456",
    ),
    (
        "timestamp",
        "2026-07-01 13:45:00.123456-03",
        "timestamp[us, tz=UTC]",
        "datetime:2026-07-01T16:45:00.123456+00:00",
    ),
    ("time", "24:00:00", "string", "str:24:00:00"),
    (
        "uuid",
        "0197f604-49fe-7b73-bb81-df2e93a7e47d",
        "string",
        "str:0197f604-49fe-7b73-bb81-df2e93a7e47d",
    ),
    ("json", "{\"a\": 1.50}", "extension<arrow.json>", "str:{\"a\": 1.50}"),
    ("binary", "\\x00ff", "binary", "bytes:00ff"),
    ("text", "", "string", "str:"),
];

#[test]
fn every_type_is_read_back_by_arrow() {
    let types = VALUES.map(|(column_type, ..)| column_type);
    let spec = spec(&types, "", &json!({"format": "PARQUET"}));
    let row = VALUES.iter().map(|(_, cell, ..)| some(cell)).collect();
    let encoded = encode(&spec, &[vec![None; types.len()], row]).expect("encodable");
    let seen = read_back(&spec, &encoded.bytes);
    let seen_types: Vec<String> =
        serde_json::from_value(seen.about["types"].clone()).expect("a list of types");
    for (index, (_, _, expected_type, expected)) in VALUES.into_iter().enumerate() {
        assert_eq!(seen.rows[0][index], "NoneType:None");
        assert_eq!(seen.rows[1][index], expected);
        assert_eq!(seen_types[index], expected_type, "{expected}");
    }
}

#[test]
fn a_value_that_its_column_cannot_hold_fails_and_names_the_column() {
    for (column_type, cell) in [
        ("integer", "9223372036854775808"),
        ("integer", "1.5"),
        ("decimal(5,2)", "1000"),
        ("decimal(5,2)", "0.001"),
        ("decimal(5,2)", "NaN"),
        ("float", "about 7"),
        ("boolean", "yes"),
        ("date", "infinity"),
        ("localTimestamp", "infinity"),
        ("timestamp", "2026-07-01 13:45:00.1234567Z"),
        ("json", "{broken"),
    ] {
        let spec = spec(&["text", column_type], "", &json!({"format": "PARQUET"}));
        let failure = encode(&spec, &[vec![None, some(cell)]]).expect_err(cell);
        assert_eq!(failure.code, FailureCode::ValueNotEncodable, "{cell}");
        assert!(failure.message.contains("column c1 "), "{}", failure.message);
        assert!(!failure.message.contains(cell), "a message holds no value");
    }
}

#[test]
fn many_rows_are_several_row_groups_in_their_order() {
    let spec = spec(&["integer", "text"], "", &json!({"format": "PARQUET"}));
    let batches = (0..40).map(|number| {
        let mut batch = Batch::new(2);
        for row in 0..10_000 {
            batch.push((number * 10_000 + row).to_string().as_bytes());
            if row % 7 == 0 {
                batch.push_null();
            } else {
                batch.push(format!("{row:040}").as_bytes());
            }
        }
        batch
    });
    let encoded = encode_batches(&spec, batches).expect("encodable");
    let seen = read_back(&spec, &encoded.bytes);
    assert_eq!(seen.about["groups"], 4);
    assert_eq!(seen.rows.len(), 400_000);
    for (at, row) in seen.rows.iter().enumerate() {
        assert_eq!(row[0], format!("int:{at}"));
        let text = at % 10_000;
        let expected =
            if text % 7 == 0 { "NoneType:None".to_owned() } else { format!("str:{text:040}") };
        assert_eq!(row[1], expected);
    }
}

#[test]
fn no_rows_are_a_file_with_a_schema() {
    let spec = spec(&["integer", "decimal(12,2)"], "", &json!({"format": "PARQUET"}));
    let encoded = encode(&spec, &[]).expect("encodable");
    let seen = read_back(&spec, &encoded.bytes);
    assert_eq!((seen.columns.len(), seen.rows.len()), (2, 0));
    assert_eq!(seen.about["types"], json!(["int64", "decimal128(12, 2)"]));
}
