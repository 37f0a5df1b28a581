//! The pages in `crates/app/docs` where the code has the last word: tables are compared with the
//! code, examples are read by it, and links must lead somewhere. `UPDATE_DOCS=1` rewrites tables.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use outport_contract::{
    job_event::JobEvent,
    manifest::Manifest,
    stream::{Batch, Pointer},
};
use outport_domain::{
    caller::{Caller, Permission},
    column::ColumnType,
    failure::FailureCode,
    filter::Operator,
    id::{OrganizationId, UserId},
    json::FieldCode,
    locale::Locale,
    resource::Resource,
    spec::{self, Catalogue, RequestContext},
};

use crate::{
    api::{fetcher::FetCode, problem::ProblemCode},
    config::{Config, Settings, VARIABLES},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(text, "| {} |", cells.join(" | ")).expect("a string takes all");
    }
    text
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

/// Compares what stands between the markers of `name` with what the code says.
fn check(path: &str, name: &str, expected: &str) {
    let text = page(path);
    let start = format!("<!-- from the code: {name} -->\n");
    let before = text.find(&start).unwrap_or_else(|| panic!("{path} has no '{}'", start.trim()));
    let from = before + start.len();
    let length = text[from..].find("<!-- end -->").expect("the table's end is marked");
    let actual = &text[from..from + length];
    if actual == expected {
        return;
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{}{expected}{}", &text[..from], &text[from + length..]);
        fs::write(root().join(path), text).expect("the page can be written");
        return;
    }
    panic!(
        "{path}: the table '{name}' differs from the code; run \
         `UPDATE_DOCS=1 cargo test -p outport --lib docs` and read the difference"
    );
}

#[test]
fn every_variable_is_described_as_the_code_reads_it() {
    let rows = VARIABLES.iter().filter(|variable| variable.name != "crashPoint").map(|variable| {
        let meaning = variable.meaning.to_owned();
        let names = [code(variable.name), code(&variable.environment())];
        let [file, environment] = names;
        vec![file, environment, code(variable.default), meaning]
    });
    let head = ["In `outport.toml`", "In the environment", "Default", "Meaning"];
    check("crates/app/docs/configuration.md", "variables", &table(&head, rows));
}

#[test]
fn every_scope_is_listed() {
    let names: Vec<String> =
        Permission::ALL.into_iter().map(|permission| code(permission.name())).collect();
    let text = format!("{}\n", names.join(" "));
    check("crates/app/docs/configuration.md", "scopes", &text);
}

#[test]
fn every_code_is_described_as_the_code_means_it() {
    const PAGE: &str = "crates/app/docs/errors.md";
    let failures = FailureCode::ALL.into_iter();
    let failures = failures.map(|failure| vec![code(failure.name()), failure.meaning().to_owned()]);
    check(PAGE, "failures", &table(&["Code", "Meaning"], failures));
    let problems = ProblemCode::ALL.into_iter().map(|problem| {
        let status = problem.status().as_u16().to_string();
        vec![status, code(problem.name()), problem.meaning().to_owned()]
    });
    check(PAGE, "problems", &table(&["Status", "Code", "Meaning"], problems));
    let fields = FieldCode::ALL.into_iter();
    let fields = fields.map(|field| vec![code(field.name()), field.meaning().to_owned()]);
    check(PAGE, "fields", &table(&["Code", "Meaning"], fields));
}

#[test]
fn every_code_of_the_facade_is_described_as_the_code_means_it() {
    let rows = FetCode::ALL.into_iter().map(|fet| {
        let status = fet.problem().status().as_u16().to_string();
        vec![code(fet.name()), status, fet.title().to_owned(), fet.meaning().to_owned()]
    });
    let expected = table(&["Code", "Status", "Title", "Meaning"], rows);
    check("crates/app/docs/fetcher.md", "facade codes", &expected);
}

#[test]
fn the_requests_in_the_documents_are_ones_that_the_facade_takes() {
    let examples = blocks(&page("crates/app/docs/fetcher.md"), "json");
    assert_eq!(examples.len(), 1);
    for example in examples {
        if let Err(errors) = outport_domain::data_request::parse(&example) {
            panic!("{example}{errors:?}");
        }
    }
}

#[test]
fn every_column_type_has_its_operators_listed() {
    let rows = ColumnType::ALL.into_iter().map(|column_type| {
        let operators: Vec<String> = Operator::ALL
            .into_iter()
            .filter(|operator| operator.suits(column_type))
            .map(|operator| code(operator.name()))
            .collect();
        vec![code(column_type.name()), operators.join(" ")]
    });
    let expected = table(&["Type", "Filter operators"], rows);
    check("crates/app/docs/your-own-database.md", "operators", &expected);
}

#[test]
fn every_operator_is_described_as_the_code_reads_it() {
    let rows = Operator::ALL.into_iter().map(|operator| {
        let types: Vec<String> = ColumnType::ALL
            .into_iter()
            .filter(|column_type| operator.suits(*column_type))
            .map(|column_type| code(column_type.name()))
            .collect();
        let types =
            if types.len() == ColumnType::ALL.len() { "all".to_owned() } else { types.join(" ") };
        let value = match operator {
            Operator::Eq
            | Operator::Ne
            | Operator::Gt
            | Operator::Gte
            | Operator::Lt
            | Operator::Lte => "a value",
            Operator::Between | Operator::NotBetween => "`[from, to]`",
            Operator::In | Operator::NotIn => "`[value, …]`",
            Operator::Contains
            | Operator::NotContains
            | Operator::StartsWith
            | Operator::EndsWith => "a text that is not empty; with `ignoreCase`",
            Operator::IsNull | Operator::IsNotNull => "absent",
            Operator::InLast | Operator::InNext => "`{amount, unit, includeCurrent}`",
            Operator::InCurrent | Operator::InPrevious => "`{unit}`",
        };
        vec![code(operator.name()), types, value.to_owned()]
    });
    let expected = table(&["Operator", "Columns of type", "Value"], rows);
    check("crates/app/docs/filters.md", "operator values", &expected);
}

#[test]
fn the_requests_in_the_documents_are_ones_that_the_demo_takes() {
    let order = Resource::from_toml(include_str!("demo/order.toml")).expect("a resource");
    let catalogue = Catalogue([("order".to_owned(), Arc::new(order))].into());
    let caller = Caller {
        organization: OrganizationId::new(),
        companies: None,
        cooperatives: None,
        user: UserId::new(),
        email: None,
        name: None,
        locale: None,
        scopes: [].into(),
        token: None,
    };
    let requested_at = chrono::Utc::now();
    let context = RequestContext {
        caller: &caller,
        locale: Locale::En,
        requested_at,
        resolved_filters: None,
    };
    let examples = blocks(&page("crates/app/docs/filters.md"), "json");
    assert!(examples.len() >= 9, "{}", examples.len());
    for example in examples {
        if let Err(errors) = spec::parse(&example, &catalogue, context) {
            panic!("{example}{errors:?}");
        }
    }
}

/// The programs of the documents are files that are compiled and run by tests.
#[test]
fn the_consumers_in_the_documents_are_those_that_are_tested() {
    let languages =
        [("consumer.rs", "rust"), ("consumer.py", "python"), ("consumer.ts", "typescript")];
    for (name, language) in languages {
        let program = page(&format!("tests/consumers/{name}"));
        let expected = format!("```{language}\n{program}```\n");
        check("crates/app/docs/consuming.md", name, &expected);
    }
}

#[test]
fn the_messages_in_the_documents_are_ones_that_the_code_reads() {
    let examples = blocks(&page("crates/app/docs/live-stream.md"), "json");
    let [batch, pointer] = examples.try_into().expect("two");
    let read: Batch = serde_json::from_str(&batch).expect("a batch");
    let written = serde_json::to_value(&read).expect("JSON");
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(&batch).expect("JSON"));
    let read: Pointer = serde_json::from_str(&pointer).expect("a pointer");
    let written = serde_json::to_value(&read).expect("JSON");
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(&pointer).expect("JSON"));
}

/// The fenced blocks of a language, in their order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    page.split(&fence)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn the_examples_in_toml_are_read_by_the_code() {
    let mut resources = 0;
    let mut configurations = 0;
    for path in ["your-own-database.md", "deploying.md", "broker.md", "configuration.md"] {
        for block in blocks(&page(&format!("crates/app/docs/{path}")), "toml") {
            if block.contains("[[columns]]") {
                resources += 1;
                Resource::from_toml(&block).unwrap_or_else(|error| panic!("{path}: {error}"));
                continue;
            }
            configurations += 1;
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("outport.toml");
            fs::write(&file, &block).expect("the example can be written");
            let mut settings = Settings::for_tests();
            settings.read_file(&file).unwrap_or_else(|error| panic!("{path}: {error}"));
            if let Err(error) = Config::from_settings(settings) {
                panic!("{path}: {error}\n{block}");
            }
        }
    }
    assert!(resources >= 1 && configurations >= 2, "{resources} {configurations}");
}

#[test]
fn the_manifest_in_the_documents_is_one_that_the_code_writes() {
    let [example] =
        blocks(&page("crates/app/docs/split-exports.md"), "json").try_into().expect("one");
    let manifest: Manifest = serde_json::from_str(&example).expect("a manifest");
    let written = serde_json::to_value(&manifest).expect("JSON");
    let example: serde_json::Value = serde_json::from_str(&example).expect("JSON");
    assert_eq!(written, example, "every member, and no other");
    assert_eq!(manifest.version, outport_contract::manifest::VERSION);
    assert_eq!(manifest.total_rows, manifest.files.iter().map(|file| file.rows).sum::<u64>());
    assert_eq!(manifest.size_bytes, manifest.files.iter().map(|file| file.size_bytes).sum::<u64>());
}

#[test]
fn the_events_in_the_documents_are_ones_that_the_code_writes() {
    let examples = blocks(&page("crates/app/docs/events.md"), "json");
    assert_eq!(examples.len(), 2);
    for example in examples {
        let event = JobEvent::parse(example.as_bytes()).expect("an event");
        let written: serde_json::Value = serde_json::from_str(&event.body()).expect("JSON");
        let example: serde_json::Value = serde_json::from_str(&example).expect("JSON");
        assert_eq!(written, example, "every member, and no other");
    }
}

#[test]
fn every_link_leads_to_a_file() {
    let mut pages = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned()];
    pages.extend(["crates/README.md", "tests/bench/README.md"].map(str::to_owned));
    for entry in fs::read_dir(root().join("crates/app/docs")).expect("the docs folder") {
        let name = entry.expect("an entry").file_name();
        pages.push(format!("crates/app/docs/{}", name.to_string_lossy()));
    }
    for path in pages {
        let text = page(&path);
        let folder = root().join(&path);
        let folder = folder.parent().expect("a file has a folder");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            assert!(folder.join(target).exists(), "{path} links to {target}, which is not there");
        }
    }
}
