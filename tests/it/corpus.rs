//! Hard values of every engine through the whole to every format, compared cell by cell with what
//! the database's own client prints. The values and the allowed differences are in `tests/corpus`.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::harness::{
    Api, MariaDb, World,
    process::output,
    servers::{ROOT, python},
    shop::ORGANIZATION,
};

/// Where clocks are put forward and back at midnight, and once showed odd seconds.
const ZONE: &str = "America/Sao_Paulo";
/// Cells with a value that each engine has at least.
const FEWEST_VALUES: u64 = 150;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Corpus {
    setup: String,
    columns: Vec<Column>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Column {
    key: String,
    sql: String,
    #[serde(rename = "type")]
    declared: String,
    precision: Option<u8>,
    scale: Option<u8>,
    #[serde(default)]
    bytes: bool,
    #[serde(default)]
    refused_by: BTreeSet<String>,
    /// The one engine of those that share the file.
    only: Option<String>,
    values: Vec<String>,
}

fn path_of(engine: &str) -> PathBuf {
    let name = if engine == "mysql" { "mariadb" } else { engine };
    Path::new(ROOT).join(format!("tests/corpus/{name}.toml"))
}

impl Corpus {
    fn of(engine: &str) -> Self {
        let text = std::fs::read_to_string(path_of(engine)).expect("a corpus");
        let mut all: Self = toml::from_str(&text).unwrap_or_else(|e| panic!("{engine}: {e}"));
        all.columns.retain(|column| column.only.as_ref().is_none_or(|only| only == engine));
        all
    }

    /// Makes and fills the table; the values of a column stand in its first rows.
    fn statements(&self, table: &str, organization: &str) -> String {
        let mut sql = self.setup.clone();
        let mut say = |text: std::fmt::Arguments<'_>| sql.write_fmt(text).expect("a text grows");
        say(format_args!("CREATE TABLE {table} (id integer, o {organization}"));
        for column in &self.columns {
            say(format_args!(", \"{}\" {}", column.key, column.sql));
        }
        say(format_args!(");"));
        let rows = self.columns.iter().map(|column| column.values.len()).max().unwrap_or_default();
        for row in 0..rows {
            let given = || self.columns.iter().filter(|column| row < column.values.len());
            say(format_args!("INSERT INTO {table} (id, o"));
            given().for_each(|column| say(format_args!(", \"{}\"", column.key)));
            say(format_args!(") VALUES ({}, '{ORGANIZATION}'", row + 1));
            given().for_each(|column| say(format_args!(", {}", column.values[row])));
            say(format_args!(");"));
        }
        sql
    }

    fn resource(&self, name: &str, table: &str, organization: &str, guard: &str) -> String {
        let mut text = format!(
            "name = \"{name}\"\nconnection = \"hard\"\nfrom = \"{table}\"\nsort = [\"id\"]\n\
             timeZone = \"{ZONE}\"\nformulaGuard = \"{guard}\"\n\
             [scope]\norganization = {{ column = \"o\", type = \"{organization}\" }}\n\
             [[columns]]\nkey = \"id\"\ntype = \"integer\"\n"
        );
        let mut say = |line: std::fmt::Arguments<'_>| text.write_fmt(line).expect("a text grows");
        for Column { key, declared, precision, scale, .. } in &self.columns {
            say(format_args!("[[columns]]\nkey = \"{key}\"\ntype = \"{declared}\"\n"));
            if let (Some(precision), Some(scale)) = (precision, scale) {
                say(format_args!("precision = {precision}\nscale = {scale}\n"));
            }
        }
        text
    }

    /// The columns that a format can hold, of all or of those that travel as bytes.
    fn held_by(&self, format: &str, bytes: bool) -> Vec<&str> {
        let held = |c: &&Column| (c.bytes || !bytes) && !c.refused_by.contains(format);
        self.columns.iter().filter(held).map(|column| column.key.as_str()).collect()
    }
}

/// What is asked for, but for the columns.
fn requests() -> Vec<Value> {
    let request = |resource: &str, format: &str, compression: &str, zone: &str| {
        json!({
            "resource": resource, "format": format, "compression": compression, "timeZone": zone,
        })
    };
    let mut requests = Vec::new();
    for compression in ["none", "gzip", "zstd"] {
        for format in ["CSV", "NDJSON", "JSON"] {
            requests.push(request("guarded", format, compression, ZONE));
        }
        let mut other = request("plain", "CSV", compression, ZONE);
        other["csv"] = json!({
            "delimiter": ";", "quote": "all", "lineEnding": "CRLF", "bom": true, "nullText": "NULL",
        });
        requests.push(other);
    }
    for format in ["XLSX", "PARQUET"] {
        requests.push(request("guarded", format, "none", ZONE));
    }
    // Instants in UTC are printed by other code.
    for format in ["CSV", "NDJSON", "XLSX", "PARQUET"] {
        requests.push(request("guarded", format, "none", "UTC"));
    }
    requests
}

/// Exports everything and describes the files for the script that compares them: what was asked
/// for, where the file is, and what the job says of it.
async fn export(world: &World, api: &Api, corpus: &Corpus, of_bytes: &[bool]) -> Vec<Value> {
    let mut asked = Vec::new();
    for &bytes in of_bytes {
        for mut request in requests() {
            let format = request["format"].as_str().expect("a format");
            let columns = corpus.held_by(format, bytes);
            request["columns"] = ["id"].into_iter().chain(columns).collect();
            asked.push((api.export_as(&request).await, request));
        }
    }
    let mut files = Vec::new();
    for (id, mut file) in asked {
        let job = api.job_is(&id, "COMPLETED").await;
        let path = world.path(&format!("{id}.file"));
        std::fs::write(&path, api.file(&id).await).expect("the file is written");
        file["path"] = path.display().to_string().into();
        file["warnings"] = job["warnings"].clone();
        files.push(file);
    }
    files
}

/// Every value that a format cannot hold fails the export that has it, by its column's name.
async fn refusals(api: &Api, corpus: &Corpus) -> usize {
    let mut asked = Vec::new();
    for column in &corpus.columns {
        for (format, row) in column
            .refused_by
            .iter()
            .flat_map(|f| (1..=column.values.len()).map(move |row| (f, row)))
        {
            let body = json!({
                "resource": "guarded", "format": format, "columns": [&column.key],
                "filters": {"id": {"operator": "EQ", "value": row}},
            });
            asked.push((api.export_as(&body).await, format, &column.key, row));
        }
    }
    for (id, format, key, row) in &asked {
        let job = api.job_is(id, "FAILED").await;
        let what = format!("{key} {row} in {format}: {job}");
        assert_eq!(job["failure"]["code"], "VALUE_NOT_ENCODABLE", "{what}");
        let message = job["failure"]["message"].as_str().expect("a message");
        assert!(message.contains(&format!("column {key} ")), "{what}");
    }
    asked.len()
}

/// Exports, reads back and compares. The table must be there already.
#[expect(clippy::print_stdout, reason = "the numbers are worth a look")]
async fn holds(
    world: &World,
    api: &Api,
    corpus: &Corpus,
    engine: &str,
    url: &str,
    of_bytes: &[bool],
) {
    let files = export(world, api, corpus, of_bytes).await;
    let refused = refusals(api, corpus).await;
    let plan = json!({
        "engine": engine, "url": url, "corpus": path_of(engine), "files": files,
    });
    let path = world.path("plan.json");
    std::fs::write(&path, plan.to_string()).expect("the plan is written");
    let mut command = Command::new(python());
    command.arg(Path::new(ROOT).join("tests/corpus/check.py")).arg(&path);
    let seen: Value = serde_json::from_str(&output(command).await).expect("JSON");
    for file in seen["files"].as_array().expect("files") {
        println!("{}: {} cells, {}", file["file"], file["cells"], file["differences"]);
    }
    println!("{engine}: {} values, {refused} refused", seen["values"]);
    let wrong = seen["wrong"].as_array().expect("a list");
    assert!(wrong.is_empty(), "{} cells differ: {wrong:#?}", wrong.len());
    assert!(seen["values"].as_u64().is_some_and(|values| values >= FEWEST_VALUES), "too few");
}

fn declare(world: &World, corpus: &Corpus, table: &str, organization: &str) {
    for (name, guard) in [("guarded", "text"), ("plain", "off")] {
        world.declare_file(name, &corpus.resource(name, table, organization, guard));
    }
}

#[tokio::test]
async fn every_value_of_postgres_is_in_every_file_as_psql_prints_it() {
    let corpus = Corpus::of("postgres");
    let mut world = World::postgres().await;
    let url = world.state.postgres().url();
    let statements = corpus.statements("hard.cells", "uuid");
    world.state.postgres().run(&format!("CREATE SCHEMA hard; {statements}")).await;
    world.set("OUTPORT_CONNECTIONS_HARD", &url);
    declare(&world, &corpus, "hard.cells", "uuid");
    let api = world.api().await;
    let _worker = world.worker();
    // Rows travel as the server's text, or as bytes where every column can.
    holds(&world, &api, &corpus, "postgres", &url, &[false, true]).await;
}

#[tokio::test]
async fn every_value_of_mariadb_is_in_every_file_as_its_client_prints_it() {
    let mariadb = MariaDb::create().await;
    let engine = if mariadb.is_mysql().await { "mysql" } else { "mariadb" };
    let corpus = Corpus::of(engine);
    // Zero dates, and instants written in UTC.
    mariadb
        .run(&format!(
            "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,ALLOW_INVALID_DATES', \
             time_zone = '+00:00'; {}",
            corpus.statements("cells", "char(36)")
        ))
        .await;
    let mut world = World::sqlite();
    world.set("OUTPORT_CONNECTIONS_HARD", &mariadb.url());
    declare(&world, &corpus, "cells", "uuid");
    let api = world.all_in_one().await;
    holds(&world, &api, &corpus, engine, &mariadb.url(), &[false]).await;
}

#[tokio::test]
async fn every_value_of_sqlite_is_in_every_file_as_python_reads_it() {
    let corpus = Corpus::of("sqlite");
    let mut world = World::sqlite();
    let path = world.path("hard.db");
    let file = rusqlite::Connection::open(&path).expect("a file");
    file.execute_batch(&corpus.statements("cells", "TEXT")).expect("a table");
    let path = path.display().to_string();
    world.set("OUTPORT_CONNECTIONS_HARD", &format!("sqlite://{path}"));
    declare(&world, &corpus, "cells", "uuid");
    let api = world.all_in_one().await;
    holds(&world, &api, &corpus, "sqlite", &path, &[false]).await;
}
