//! Taste that can be checked: the house's rules, each with a message that says what to do.
//!
//! A *ratchet* is a list of what broke a rule before the rule was written down. It may shrink;
//! an entry that is not needed any more must go.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use crate::harness::servers::ROOT;

/// Lines of a file of Rust, tests apart.
const FILE_LINES: usize = 400;
/// Lines of a function.
const FUNCTION_LINES: usize = 70;

/// Longer files, each one idea: a table of problems, tables of cases.
const LONG_FILES: &[&str] = &[
    "crates/app/src/api/problem.rs",
    "crates/app/tests/it/api_refusals.rs",
    "crates/app/tests/it/api_world.rs",
    "crates/source/tests/it/predicates.rs",
];
/// Longer functions: a match, a struct or a table of cases, member by member.
const LONG_FUNCTIONS: &[&str] = &[
    "crates/app/src/api/export_view.rs: new",
    "crates/app/tests/it/api_files.rs: a_file_is_streamed_whole_or_in_one_part_and_every_download_is_audited",
    "crates/app/tests/it/api_refusals.rs: every_bad_body_is_refused_by_field_and_leaves_nothing",
    "crates/domain/src/filter/operand.rs: operand",
    "crates/domain/src/resource/declared.rs: check",
    "crates/relay/src/mail/reason.rs: sentence",
    "crates/source/tests/it/names.rs: a_value_never_becomes_part_of_the_statement",
    "crates/source/tests/it/values.rs: postgres_prints_its_own_text",
    "crates/source/tests/it/wire.rs: kinds",
];

/// Our crates and which of ours each may use; nothing may use `outport`, the process.
const HOUSE: &[(&str, &[&str])] = &[
    ("outport-contract", &[]),
    ("outport-domain", &["outport-contract"]),
    ("outport-migrations", &[]),
    ("outport-store", &["outport-contract", "outport-domain", "outport-migrations"]),
    ("outport-source", &["outport-contract", "outport-domain"]),
    ("outport-objects", &["outport-contract", "outport-domain"]),
    (
        "outport-pipeline",
        &[
            "outport-contract",
            "outport-domain",
            "outport-objects",
            "outport-source",
            "outport-store",
        ],
    ),
    ("outport-relay", &["outport-contract", "outport-domain", "outport-objects", "outport-store"]),
    ("outport-client", &["outport-contract"]),
    (
        "outport",
        &[
            "outport-client",
            "outport-contract",
            "outport-domain",
            "outport-objects",
            "outport-pipeline",
            "outport-relay",
            "outport-source",
            "outport-store",
        ],
    ),
];

/// Libraries with one owner: nobody else may depend on them. Tests may, to look from outside.
const OWNERS: &[(&str, &[&str])] = &[
    ("hmac", &["outport-contract"]),
    ("hkdf", &["outport-contract"]),
    ("sha2", &["outport-contract"]),
    ("aws-lc-rs", &["outport-contract"]),
    ("sea-orm", &["outport-store"]),
    ("sea-orm-migration", &["outport-migrations"]),
    ("sqlx", &["outport-source"]),
    ("rusqlite", &["outport-source"]),
    ("aws-config", &["outport-objects"]),
    ("aws-credential-types", &["outport-objects"]),
    ("aws-sdk-s3", &["outport-objects"]),
    // Results, and the pages of the API.
    ("flate2", &["outport-pipeline", "outport"]),
    ("parquet", &["outport-pipeline"]),
    ("zip", &["outport-pipeline"]),
    ("zstd", &["outport-pipeline"]),
    ("lettre", &["outport-relay"]),
    ("lapin", &["outport-relay"]),
    ("apalis", &["outport"]),
    ("apalis-core", &["outport"]),
    ("axum", &["outport"]),
    ("clap", &["outport"]),
];

fn root() -> &'static Path {
    Path::new(ROOT)
}

/// The files that git knows and that are there, by their path from the root.
fn tracked() -> Vec<String> {
    let output = Command::new("git")
        .args(["-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .expect("git");
    assert!(output.status.success(), "git knows the repository");
    let listed = String::from_utf8(output.stdout).expect("UTF-8");
    listed.lines().filter(|path| root().join(path).is_file()).map(str::to_owned).collect()
}

pub fn with_extension(extension: &str) -> Vec<String> {
    let is = |path: &String| Path::new(path).extension().is_some_and(|found| found == extension);
    tracked().into_iter().filter(is).collect()
}

pub fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/")
        || path.contains("/tests/")
        || path.contains("/examples/")
        || path.contains("/benches/")
        || is_module_of_tests(path)
}

/// Whether the file beside or above says `#[cfg(test)] mod …;` of this one.
fn is_module_of_tests(path: &str) -> bool {
    let path = Path::new(path);
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else { return false };
    let declaration = format!("#[cfg(test)]\nmod {};", stem.display());
    let parents = ["lib.rs", "main.rs", "mod.rs"].map(|name| folder.join(name));
    let parents = parents.into_iter().chain([folder.with_extension("rs")]);
    parents
        .filter_map(|parent| std::fs::read_to_string(root().join(parent)).ok())
        .any(|text| text.contains(&declaration))
}

/// The lines of a file before its unit tests.
fn product_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| *line != "#[cfg(test)]")
}

/// The members of the workspace: name, folder, dependencies without those of tests.
fn members() -> BTreeMap<String, (PathBuf, BTreeSet<String>)> {
    let manifests = with_extension("toml").into_iter().filter(|path| path.ends_with("/Cargo.toml"));
    manifests
        .filter_map(|path| {
            let table: toml::Table = text(&path).parse().expect("a manifest");
            let name = table.get("package")?.get("name")?.as_str()?.to_owned();
            let names = |section: &str| {
                let section = table.get(section).and_then(toml::Value::as_table).cloned();
                section.unwrap_or_default().into_iter().map(|(name, _)| name)
            };
            let uses = names("dependencies").chain(names("build-dependencies")).collect();
            Some((name, (Path::new(&path).parent()?.to_owned(), uses)))
        })
        .collect()
}

#[test]
fn every_crate_uses_only_the_crates_that_the_house_allows() {
    for (name, (_, uses)) in members() {
        let allowed = HOUSE.iter().find(|(known, _)| *known == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{name}: give it a place in HOUSE"));
        let ours = uses.iter().filter(|used| used.starts_with("outport"));
        let broken: Vec<_> = ours.filter(|used| !allowed.contains(&used.as_str())).collect();
        assert!(broken.is_empty(), "{name} must not use {broken:?}: see crates/README.md");
    }
}

#[test]
fn every_library_with_an_owner_is_used_by_its_owner_alone() {
    for (library, owners) in OWNERS {
        let users: Vec<_> = members()
            .into_iter()
            .filter(|(name, (_, uses))| uses.contains(*library) && !owners.contains(&name.as_str()))
            .map(|(name, _)| name)
            .collect();
        assert!(users.is_empty(), "{library} belongs to {owners:?}; ask it instead: {users:?}");
    }
}

/// The files of the product (no tests) in which a word occurs outside comments.
fn files_with(word: &str) -> Vec<String> {
    let says = |path: &String| {
        let text = text(path);
        product_lines(&text).any(|line| !line.trim_start().starts_with("//") && line.contains(word))
    };
    with_extension("rs").into_iter().filter(|path| !is_test(path)).filter(says).collect()
}

#[test]
fn apalis_is_known_in_one_file() {
    assert_eq!(files_with("apalis"), ["crates/app/src/worker.rs"]);
}

#[test]
fn the_environment_is_read_in_one_module() {
    for path in files_with("env::var") {
        assert!(path.starts_with("crates/app/src/config"), "{path}: take it from `Config` instead");
    }
}

#[test]
fn status_codes_are_known_in_one_file() {
    let elsewhere: Vec<_> = files_with("StatusCode::")
        .into_iter()
        .filter(|path| path != "crates/app/src/api/problem.rs")
        .collect();
    assert!(elsewhere.is_empty(), "say `Outcome` or `Problem` instead: {elsewhere:?}");
}

#[test]
fn every_crate_says_its_invariants_and_what_is_absent_on_purpose() {
    for (name, (folder, _)) in members() {
        let lib = folder.join("src/lib.rs").display().to_string();
        let text = text(&lib);
        assert!(text.starts_with("//!"), "{lib}: begin with what the crate is for");
        for heading in ["**Invariants", "**Absent on purpose"] {
            let head: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
            assert!(head.contains(heading), "{name}: its `//!` lacks {heading}");
        }
    }
}

#[test]
fn files_are_short_enough_to_be_one_idea() {
    let long: Vec<String> = with_extension("rs")
        .into_iter()
        .filter(|path| product_lines(&text(path)).count() > FILE_LINES)
        .collect();
    ratchet(&long, LONG_FILES, "split it by idea");
}

/// Nothing new breaks the rule, and nothing is excused that keeps it.
fn ratchet(found: &[String], excused: &[&str], advice: &str) {
    let new: Vec<_> = found.iter().filter(|one| !excused.contains(&one.as_str())).collect();
    assert!(new.is_empty(), "{advice}: {new:#?}");
    let old: Vec<_> = excused.iter().filter(|one| !found.iter().any(|f| f == *one)).collect();
    assert!(old.is_empty(), "these keep the rule now, take them off the list: {old:#?}");
}

/// The functions of a file that are too long, by name. A function ends at the first closing
/// brace as far in as its `fn`.
fn long_functions(path: &str) -> Vec<String> {
    let text = text(path);
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let name = |line: &str| {
        let (before, after) = line.split_once("fn ")?;
        let is_head = before
            .split_whitespace()
            .all(|word| matches!(word, "pub" | "async" | "const") || word.starts_with("pub("));
        let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        is_head.then(|| after[..end].to_owned())
    };
    let mut long = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        // A trait's declaration has no body.
        if lines[at..]
            .iter()
            .find(|line| line.ends_with(['{', ';', '}']))
            .is_some_and(|line| line.ends_with(';'))
        {
            continue;
        }
        let ends = |other: &&str| indent(other) == indent(line) && other.trim_start() == "}";
        let length = lines[at..].iter().position(ends).unwrap_or_default() + 1;
        if length > FUNCTION_LINES {
            long.push(format!("{path}: {name}"));
        }
    }
    long
}

#[test]
fn functions_are_short_enough_to_be_read_at_once() {
    let long: Vec<String> =
        with_extension("rs").iter().flat_map(|path| long_functions(path)).collect();
    ratchet(&long, LONG_FUNCTIONS, "give its parts names");
}

#[test]
fn paths_that_documents_name_are_there() {
    let known: BTreeSet<String> = tracked().into_iter().collect();
    // From the root, or from where the document is.
    let is_there = |document: &str, path: &str| {
        let beside = Path::new(document).parent().unwrap_or(Path::new(""));
        [Path::new("").join(path), beside.join(path)].iter().any(|path| {
            let path = path.display().to_string();
            let path = path.trim_end_matches('/');
            known.contains(path) || known.iter().any(|file| file.starts_with(&format!("{path}/")))
        })
    };
    let roots =
        ["crates/", "migrations/", "templates/", "tests/", "docs/", "examples/", ".github/"];
    let mut missing = Vec::new();
    for document in with_extension("md") {
        let text = text(&document);
        let words = text.split(|c: char| c.is_whitespace() || "`()[]<>\"',;:*|".contains(c));
        let named = words
            .map(|word| word.trim_end_matches('.').split('#').next().unwrap_or_default())
            .filter(|word| roots.iter().any(|root| word.starts_with(root)))
            .filter(|word| !word.contains(['…', '{', '$']));
        missing.extend(
            named
                .filter(|path| !is_there(&document, path))
                .map(|path| format!("{document}: {path}")),
        );
    }
    assert_eq!(missing, [""; 0], "name what is there");
}

#[test]
fn no_test_is_skipped() {
    // Put together, so that this file does not say it.
    let word = ["#[", "ignore"].concat();
    let skipped: Vec<String> =
        with_extension("rs").into_iter().filter(|path| text(path).contains(&word)).collect();
    assert_eq!(skipped, [""; 0], "a test that cannot run must fail and say what it needs");
}

/// How often tests say `sleep`: each in a loop that looks for what it waits for, until a deadline,
/// or on a stopped clock, where it ends when nothing else can happen.
const LOOKS: &[(&str, usize)] = &[
    ("crates/app/tests/it/api_auth.rs", 2),
    ("crates/app/tests/it/api_links.rs", 1),
    ("crates/app/tests/it/api_operation.rs", 1),
    ("crates/objects/tests/it/s3.rs", 1),
    ("crates/objects/tests/it/s3_server.rs", 1),
    ("crates/pipeline/tests/it/spool.rs", 1),
    ("crates/pipeline/tests/it/world.rs", 1),
    ("crates/relay/tests/it/broker_node.rs", 1),
    ("crates/relay/tests/it/broker_outages.rs", 1),
    ("crates/relay/tests/it/publishing.rs", 1),
    ("crates/relay/tests/it/life.rs", 3),
    ("crates/relay/tests/it/rules.rs", 1),
    ("crates/relay/tests/it/windows.rs", 4),
    ("crates/relay/tests/it/world.rs", 1),
    ("crates/source/tests/it/ranges.rs", 1),
    ("crates/source/tests/it/world.rs", 1),
    ("tests/it/harness/wait.rs", 1),
];

#[test]
fn tests_wait_for_conditions_and_not_for_time() {
    let word = ["sleep", "("].concat();
    for path in with_extension("rs").into_iter().filter(|path| is_test(path)) {
        let sleeps = text(&path).replace("pg_sleep(", "").matches(&word).count();
        let known = LOOKS.iter().find(|(known, _)| *known == path).map_or(0, |(_, times)| *times);
        assert!(
            sleeps <= known,
            "{path}: look for what you wait for; if you do, count it in LOOKS"
        );
    }
}

#[test]
fn no_file_names_a_path_of_a_machine() {
    let folders = ["work", "root", "home"].map(|folder| format!("/{folder}/"));
    let mut found = Vec::new();
    for path in tracked() {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        for (number, line) in text.lines().enumerate() {
            let is_path = |folder: &String| {
                line.match_indices(folder.as_str()).any(|(at, _)| {
                    // A folder of that name below another one is no path of a machine.
                    let before = line[..at].chars().next_back();
                    before.is_none_or(|c| c.is_whitespace() || "\"'`(=:".contains(c))
                })
            };
            if folders.iter().any(is_path) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_eq!(found, [""; 0], "say it relative to the repository");
}
