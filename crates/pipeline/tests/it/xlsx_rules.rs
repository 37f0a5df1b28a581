//! Rule 20: workbooks, read back by openpyxl.

use outport_domain::failure::FailureCode;
use outport_source::Batch;
use serde_json::json;

use crate::file::{Cell, TYPES, encode, encode_batches, read_back, some, spec};

#[test]
fn every_type_is_a_cell_of_its_kind() {
    let members = json!({"format": "XLSX", "timeZone": "America/Sao_Paulo"});
    let spec = spec(&TYPES, "", &members);
    let cells = [
        ("é<&>\"'\r\n_x0041_", "str:é<&>\"'\r\n_x005F_x0041_"),
        ("123456789012345", "int:123456789012345"),
        ("-12.50", "float:-12.5"),
        ("0.30000000000000004", "float:0.30000000000000004"),
        ("f", "bool:False"),
        ("2026-07-01", "datetime:2026-07-01T00:00:00"),
        ("2026-07-01 13:45:00.5", "datetime:2026-07-01T13:45:00.500000"),
        ("2026-07-01 13:45:00-03", "datetime:2026-07-01T13:45:00"),
        ("13:45:00", "time:13:45:00"),
        ("0197f604-49fe-7b73-bb81-df2e93a7e47d", "str:0197f604-49fe-7b73-bb81-df2e93a7e47d"),
        ("{\"a\": 1}", "str:{\"a\": 1}"),
        ("\\x00ff", "str:\\x00ff"),
    ];
    let row = cells.iter().map(|(cell, _)| some(cell)).collect();
    let encoded = encode(&spec, &[row, vec![None; TYPES.len()]]).expect("encodable");
    assert_eq!(encoded.rows, 2);
    let seen = read_back(&spec, &encoded.bytes);
    assert_eq!(seen.columns[0], "c0");
    assert_eq!(seen.rows[0], cells.map(|(_, expected)| expected.to_owned()));
    assert_eq!(seen.about["frozen"], "A2");
    assert_eq!(seen.about["title"], "rs");
}

#[test]
fn what_a_cell_cannot_hold_is_text() {
    let members = json!({"format": "XLSX", "timeZone": "America/Sao_Paulo"});
    for (column_type, cell) in [
        ("integer", "1234567890123456"),
        ("integer", "007"),
        ("decimal", "0.1234567890123456"),
        ("decimal", "NaN"),
        ("float", "-Infinity"),
        ("boolean", "yes"),
        ("date", "1899-12-31"),
        ("date", "0044-03-15 BC"),
        ("localTimestamp", "infinity"),
        ("timestamp", "2026-07-01 13:45:00+00"),
        // The clock was put back at midnight and showed this hour twice.
        ("timestamp", "2019-02-16 23:30:00-02"),
        ("time", "24:00:00"),
    ] {
        let spec = spec(&[column_type], "", &members);
        let encoded = encode(&spec, &[vec![some(cell)]]).expect("encodable");
        let seen = read_back(&spec, &encoded.bytes);
        assert_eq!(seen.rows, [[format!("str:{cell}")]], "{column_type}");
    }
}

#[test]
fn texts_are_never_formulas_and_stay_as_they_are() {
    let texts = ["=1+1", "+A1", "-1", "@x", "\t=1", "'=1", " spaced ", "1"];
    let rows: Vec<Vec<Cell<'_>>> = texts.iter().map(|text| vec![some(text)]).collect();
    for (options, quoted) in
        [("", json!(["A2", "A3", "A4", "A5", "A6"])), ("formulaGuard = \"off\"", json!([]))]
    {
        let spec = spec(
            &["text"],
            options,
            &json!({"format": "XLSX", "columns": [{"key": "c0", "label": "=cmd"}]}),
        );
        let encoded = encode(&spec, &rows).expect("encodable");
        let seen = read_back(&spec, &encoded.bytes);
        assert_eq!(seen.columns, ["=cmd"]);
        assert_eq!(seen.rows.concat(), texts.map(|text| format!("str:{text}")));
        assert_eq!(seen.about["formulas"], json!([]));
        assert_eq!(seen.about["quoted"], quoted, "{options:?}");
        assert_eq!(encoded.warnings.guarded_cells, 0, "nothing was changed");
    }
}

#[test]
fn no_rows_are_a_sheet_with_a_header() {
    let spec = spec(&["text", "date"], "", &json!({"format": "XLSX"}));
    let encoded = encode(&spec, &[]).expect("encodable");
    let seen = read_back(&spec, &encoded.bytes);
    assert_eq!((seen.columns.len(), seen.rows.len()), (2, 0));
    assert_eq!(encode(&spec, &[]).expect("encodable").bytes, encoded.bytes, "the same bytes");
}

#[test]
fn a_text_that_is_too_long_fails_and_names_its_column() {
    let spec = spec(&["text", "text"], "", &json!({"format": "XLSX"}));
    let longest = "é".repeat(32_767);
    encode(&spec, &[vec![some("a"), some(&longest)]]).expect("it fits");
    // Two UTF-16 units each.
    let longer = "😀".repeat(16_384);
    let failure = encode(&spec, &[vec![some("a"), some(&longer)]]).expect_err("too long");
    assert_eq!(failure.code, FailureCode::ValueNotEncodable);
    assert!(failure.message.contains("c1"), "{}", failure.message);
}

#[test]
fn more_rows_than_a_sheet_holds_fail() {
    let spec = spec(&["text"], "", &json!({"format": "XLSX"}));
    let of_nulls = |rows: u64| {
        let mut batch = Batch::new(1);
        (0..rows).for_each(|_| batch.push_null());
        batch
    };
    let full = encode_batches(&spec, [of_nulls(1_048_575)]).expect("a full sheet");
    assert_eq!(full.rows, 1_048_575);
    let failure =
        encode_batches(&spec, [of_nulls(1_048_000), of_nulls(576)]).expect_err("too many");
    assert_eq!(failure.code, FailureCode::LimitExceeded);
}
