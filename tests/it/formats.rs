//! Every format and compression through the whole, from both sources, read back by libraries of
//! other makes.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use crate::harness::{
    Api, World,
    process::output,
    servers::{ROOT, python},
    world::ORDERS,
};

/// Format, compression, how a file's name ends, its media type.
const FILES: [(&str, &str, &str, &str); 9] = [
    ("CSV", "none", ".csv", "text/csv"),
    ("CSV", "gzip", ".csv.gz", "application/gzip"),
    ("CSV", "zstd", ".csv.zst", "application/zstd"),
    ("NDJSON", "none", ".ndjson", "application/x-ndjson"),
    ("NDJSON", "gzip", ".ndjson.gz", "application/gzip"),
    ("JSON", "none", ".json", "application/json"),
    ("JSON", "zstd", ".json.zst", "application/zstd"),
    ("XLSX", "none", ".xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("PARQUET", "none", ".parquet", "application/vnd.apache.parquet"),
];

/// The row of an order as a reader of the format sees it.
fn expected(format: &str, number: u32) -> [String; 3] {
    let amount = format!("{}.{:02}", number * 25 / 100, number * 25 % 100);
    let amount = match format {
        // A cell is a double; Python prints its shortest digits.
        "XLSX" => format!("float:{:?}", f64::from(number) * 0.25),
        _ => format!("str:{amount}"),
    };
    let note = match (number % 4, format) {
        (0, "CSV") | (1, _) => "str:",
        (0, _) => "NoneType:None",
        (2, _) => "str:a,\"b\"",
        (_, "CSV") => "str:'=1+1",
        _ => "str:=1+1",
    };
    [format!("str:ORD-{number:06}"), amount, note.to_owned()]
}

/// Exports, downloads and reads back one file.
async fn one(world: &World, api: &Api, file: (&str, &str, &str, &str)) {
    let (format, compression, ending, content_type) = file;
    let body = json!({"resource": "order", "format": format, "compression": compression});
    let id = api.export_as(&body).await;
    let job = api.job_is(&id, "COMPLETED").await;
    assert_eq!(job["totalRows"], ORDERS);
    assert_eq!((&job["format"], &job["compression"]), (&format.into(), &compression.into()));
    assert_eq!(job["contentType"], content_type);
    for name in ["fileName", "fileKey"] {
        let name = job[name].as_str().expect("a name");
        assert!(name.ends_with(ending), "{name}");
    }

    let answer = api.download(&id).await;
    let headers = answer.headers().clone();
    let served = headers["content-type"].to_str().expect("text");
    assert_eq!(served.split(';').next(), Some(content_type));
    assert!(!headers.contains_key("content-encoding"), "the bytes are the file");
    let bytes = answer.bytes().await.expect("a whole file");
    assert_eq!(job["sizeBytes"], bytes.len());

    let path = world.path(&format!("seen{ending}"));
    std::fs::write(&path, &bytes).expect("the file is written");
    let mut command = Command::new(python());
    command.arg(Path::new(ROOT).join("crates/pipeline/tests/it/read_back.py"));
    command.arg(format).arg(&path).arg(compression);
    let seen: Value = serde_json::from_str(&output(command).await).expect("JSON");
    assert_eq!(seen["columns"], json!(["code", "amount", "note"]), "{ending}");
    let rows: Vec<[String; 3]> = (1..=ORDERS).map(|number| expected(format, number)).collect();
    assert_eq!(seen["rows"], json!(rows), "{ending}");
}

#[tokio::test]
async fn every_file_from_postgres_holds_what_the_source_holds() {
    let world = World::postgres().await;
    let api = world.api().await;
    let _worker = world.worker();
    for file in FILES {
        one(&world, &api, file).await;
    }
}

#[tokio::test]
async fn every_file_from_sqlite_holds_what_the_source_holds() {
    let world = World::sqlite();
    let api = world.all_in_one().await;
    for file in FILES {
        one(&world, &api, file).await;
    }
}
