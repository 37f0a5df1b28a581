//! Rules 8 to 18 of a correct CSV file, checked byte for byte and by an independent reader.

use outport_domain::{failure::FailureCode, spec::ExportSpec};
use outport_pipeline::csv::CsvEncoder;
use outport_source::Batch;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::file::{Cell, Encoded, batch_of, encode_batches};

const TYPES: [&str; 4] = ["text", "decimal", "timestamp", "binary"];

/// A spec with one column of each of these types, named c0, c1, …
fn spec(types: &[&str], resource_options: &str, csv: &Value) -> ExportSpec {
    crate::file::spec(types, resource_options, &json!({ "csv": csv }))
}

/// The file of some rows in one batch.
fn encode(spec: &ExportSpec, rows: &[Vec<Cell<'_>>]) -> Encoded {
    encode_batches(spec, [batch_of(spec, rows.iter().flatten())]).expect("encodable")
}

/// The line that one text cell (and a plain neighbour) becomes in a dialect.
fn line(cell: Cell<'_>, csv: &Value) -> String {
    let spec = spec(&["text", "text"], "", csv);
    let Encoded { bytes: out, .. } = encode(&spec, &[vec![cell, Some(b"x")]]);
    let text = String::from_utf8(out).expect("UTF-8");
    let (_, line) = text.split_once('\n').expect("a header");
    line.to_owned()
}

#[test]
fn cells_are_quoted_when_and_only_when_they_must_be() {
    let cases: [(Cell<'_>, Value, &str); 23] = [
        (Some(b"plain"), json!({}), "plain,x\n"),
        (None, json!({}), ",x\n"),
        (Some(b""), json!({}), "\"\",x\n"),
        (Some(b"a,b"), json!({}), "\"a,b\",x\n"),
        (Some(b"a;b"), json!({}), "a;b,x\n"),
        (Some(b"a;b"), json!({"delimiter": ";"}), "\"a;b\";x\n"),
        (Some(b"1,5"), json!({"delimiter": ";"}), "1,5;x\n"),
        (Some(b"a\tb"), json!({"delimiter": "\t"}), "\"a\tb\"\tx\n"),
        (Some(b"a|b"), json!({"delimiter": "|"}), "\"a|b\"|x\n"),
        (Some(b"say \"hi\""), json!({}), "\"say \"\"hi\"\"\",x\n"),
        (Some(b"\""), json!({}), "\"\"\"\",x\n"),
        (Some(b"a\nb"), json!({}), "\"a\nb\",x\n"),
        (Some(b"a\rb"), json!({}), "\"a\rb\",x\n"),
        (Some(b" a"), json!({}), "\" a\",x\n"),
        (Some(b"a "), json!({}), "\"a \",x\n"),
        (Some("\u{a0}a".as_bytes()), json!({}), "\"\u{a0}a\",x\n"),
        // Alone on a line PostgreSQL's COPY would take it for the end of the data.
        (Some(b"\\."), json!({}), "\"\\.\",x\n"),
        (Some(b"\\.x"), json!({}), "\\.x,x\n"),
        (Some(b"plain"), json!({"quote": "all"}), "\"plain\",\"x\"\n"),
        (None, json!({"quote": "all"}), ",\"x\"\n"),
        (None, json!({"nullText": "NULL"}), "NULL,x\n"),
        (Some(b"NULL"), json!({"nullText": "NULL"}), "\"NULL\",x\n"),
        (Some(b""), json!({"nullText": "NULL"}), "\"\",x\n"),
    ];
    for (cell, csv, expected) in cases {
        assert_eq!(line(cell, &csv), expected, "{cell:?} in {csv}");
    }
}

#[test]
fn line_endings_are_those_of_the_request_and_never_touch_cells() {
    let spec = spec(&["text"], "", &json!({"lineEnding": "CRLF"}));
    let Encoded { bytes: out, .. } = encode(&spec, &[vec![Some(b"a\nb")], vec![Some(b"c")]]);
    assert_eq!(out, b"c0\r\n\"a\nb\"\r\nc\r\n");
}

#[test]
fn numbers_are_not_quoted_by_the_non_numeric_policy() {
    let spec = spec(&TYPES, "", &json!({"quote": "non_numeric"}));
    let Encoded { bytes: out, .. } =
        encode(&spec, &[vec![Some(b"1"), Some(b"1.50"), Some(b"2026-07-01"), None]]);
    assert_eq!(
        String::from_utf8_lossy(&out),
        "\"c0\",\"c1\",\"c2\",\"c3\"\n\"1\",1.50,\"2026-07-01\",\n"
    );
}

#[test]
fn the_byte_order_mark_stands_once_also_in_a_file_without_rows() {
    let spec = spec(&["text"], "", &json!({"bom": true}));
    let Encoded { bytes: out, rows: counted, .. } = encode(&spec, &[]);
    assert_eq!(out, b"\xEF\xBB\xBFc0\n");
    assert_eq!(counted, 0);
}

#[test]
fn formulas_are_guarded_counted_and_quoted() {
    let spec = spec(&["text", "decimal"], "", &json!({}));
    let rows = [
        vec![Some(&b"=1+1"[..]), Some(&b"-1.5"[..])],
        vec![Some(b"-12.50"), Some(b"-Infinity")],
        vec![Some(b"+1 (555) 010"), Some(b"=1")],
        vec![Some(b"@a\"b"), None],
    ];
    let Encoded { bytes: out, warnings, .. } = encode(&spec, &rows);
    let expected =
        "c0,c1\n\"'=1+1\",-1.5\n-12.50,-Infinity\n\"'+1 (555) 010\",\"'=1\"\n\"'@a\"\"b\",\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
    assert_eq!(warnings.guarded_cells, 4);
}

#[test]
fn the_guard_can_be_turned_off_for_a_resource() {
    let spec = spec(&["text"], "formulaGuard = \"off\"", &json!({}));
    let Encoded { bytes: out, warnings, .. } = encode(&spec, &[vec![Some(b"=1+1")]]);
    assert_eq!(out, b"c0\n=1+1\n");
    assert_eq!(warnings.guarded_cells, 0);
}

#[test]
fn invalid_text_is_replaced_and_counted_cell_by_cell() {
    let spec = spec(&["text", "text"], "", &json!({}));
    // The two cells of the last row are valid together and invalid apart.
    let rows = [
        vec![Some(&b"a\xFFb"[..]), Some(&b"ok"[..])],
        vec![Some(b"nul\0"), None],
        vec![Some(b"\xC3"), Some(b"\xA9")],
    ];
    let Encoded { bytes: out, warnings, .. } = encode(&spec, &rows);
    assert_eq!(
        String::from_utf8(out).expect("UTF-8"),
        "c0,c1\na\u{FFFD}b,ok\nnul\u{FFFD},\n\u{FFFD},\u{FFFD}\n"
    );
    assert_eq!(warnings.replaced_cells, 4);
}

#[test]
fn invalid_text_can_fail_the_job_and_then_names_the_column() {
    let spec = spec(&["text", "text"], "invalidText = \"fail\"", &json!({}));
    let mut encoder = CsvEncoder::new(&spec);
    let mut batch = Batch::new(2);
    batch.push(b"fine");
    batch.push(b"\xFF");
    let failure = encoder.rows_of(&batch, &mut Vec::new()).expect_err("it fails");
    assert_eq!(failure.code, FailureCode::ValueNotEncodable);
    assert!(failure.message.contains("c1"), "{}", failure.message);
}

#[test]
fn labels_go_through_the_same_writer_as_cells() {
    let mut spec = spec(&["text", "text"], "", &json!({}));
    spec.columns[0].label = "=cmd, \"x\"".to_owned();
    spec.columns[1].label = "=cmd, \"x\"".to_owned();
    let Encoded { bytes: out, .. } = encode(&spec, &[]);
    assert_eq!(out, b"\"'=cmd, \"\"x\"\"\",\"'=cmd, \"\"x\"\"\"\n");
}

/// Cells as an adversary would choose them.
pub fn hard_cell() -> impl Strategy<Value = Option<String>> {
    let piece = prop_oneof![
        Just("\"".to_owned()),
        Just(",".to_owned()),
        Just(";".to_owned()),
        Just("|".to_owned()),
        Just("\t".to_owned()),
        Just("\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("\r".to_owned()),
        Just(" ".to_owned()),
        Just("=".to_owned()),
        Just("'".to_owned()),
        Just("NULL".to_owned()),
        Just("\\N".to_owned()),
        "[a-z0-9]{0,3}",
        any::<char>().prop_filter("NUL is replaced", |c| *c != '\0').prop_map(String::from),
    ];
    prop::option::weighted(
        0.8,
        prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat()),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_table_of_text_reads_back_equal_in_any_dialect(
        rows in prop::collection::vec(prop::collection::vec(hard_cell(), 3), 0..8),
        delimiter in prop::sample::select(vec![",", ";", "\t", "|"]),
        quote in prop::sample::select(vec!["necessary", "all", "non_numeric"]),
        line_ending in prop::sample::select(vec!["LF", "CRLF"]),
    ) {
        let csv = json!({"delimiter": delimiter, "quote": quote, "lineEnding": line_ending, "nullText": "NULL"});
        let spec = spec(&["text", "text", "text"], "formulaGuard = \"off\"", &csv);
        let cells: Vec<Vec<Cell<'_>>> =
            rows.iter().map(|row| row.iter().map(|cell| cell.as_deref().map(str::as_bytes)).collect()).collect();
        let Encoded { bytes: out, rows: counted, .. } = encode(&spec, &cells);
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter.as_bytes()[0]).from_reader(out.as_slice());
        let read: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("well-formed");
        prop_assert_eq!(read.len() as u64, counted);
        for (record, row) in read.iter().zip(&rows) {
            let expected: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or("NULL")).collect();
            prop_assert_eq!(record.iter().collect::<Vec<_>>(), expected);
        }
    }
    /// Cells that need nothing are copied many at once; a batch that needs repair somewhere is
    /// written cell by cell, and so is a row alone in its batch nearly so.
    #[test]
    fn what_stands_next_to_a_cell_changes_nothing_about_it(
        rows in prop::collection::vec(prop::collection::vec(hard_cell(), 3), 1..8),
        delimiter in prop::sample::select(vec![",", ";", "\t", "|"]),
        quote in prop::sample::select(vec!["necessary", "all", "non_numeric"]),
        line_ending in prop::sample::select(vec!["LF", "CRLF"]),
        null_text in prop::sample::select(vec!["", "NULL"]),
    ) {
        let csv = json!({"delimiter": delimiter, "quote": quote, "lineEnding": line_ending, "nullText": null_text});
        let spec = spec(&["text", "decimal", "text"], "", &csv);
        let mut cells: Vec<Vec<Cell<'_>>> =
            rows.iter().map(|row| row.iter().map(|cell| cell.as_deref().map(str::as_bytes)).collect()).collect();
        let alone = encode_batches(&spec, cells.iter().map(|row| batch_of(&spec, row))).expect("encodable");
        let together = encode(&spec, &cells);
        prop_assert_eq!(&together.bytes, &alone.bytes);
        prop_assert_eq!(together.warnings, alone.warnings);
        cells.push(vec![Some(b"\xFF"); 3]);
        let with_repair = encode(&spec, &cells);
        prop_assert!(with_repair.bytes.starts_with(&alone.bytes));
        prop_assert_eq!(with_repair.warnings.guarded_cells, alone.warnings.guarded_cells);
    }
}
