//! The stream's client for browsers, by what checks JavaScript: its own tests in Node, and the
//! compiler of TypeScript, of which the committed declarations are what it makes.

use std::{path::Path, process::Command};

use crate::harness::{
    process::output,
    servers::{ROOT, node_modules},
};

const CLIENT: &str = "crates/client/browser";

#[tokio::test]
async fn the_client_for_browsers_passes_the_table_of_consumers_and_its_other_tests() {
    let mut command = Command::new("node");
    let tests = ["consumer.test.js", "stream.test.js"];
    command.current_dir(Path::new(ROOT).join(CLIENT).join("tests")).arg("--test").args(tests);
    let said = output(command).await;
    for line in ["# fail 0", "# skipped 0", "# todo 0"] {
        assert!(said.contains(line), "{line} in:\n{said}");
    }
}

fn compiler(project: &str) -> Command {
    let modules = node_modules();
    let mut command = Command::new("node");
    command
        .arg(modules.join("typescript/bin/tsc"))
        .arg("--project")
        .arg(Path::new(ROOT).join(project))
        .arg("--typeRoots")
        .arg(modules.join("@types"));
    command
}

#[tokio::test]
async fn every_script_has_sound_types_and_the_declarations_are_those_of_the_client() {
    let made = tempfile::tempdir().expect("a folder");
    let mut command = compiler(CLIENT);
    command.arg("--outDir").arg(made.path());
    output(command).await;
    for name in ["consumer.d.ts", "stream.d.ts"] {
        let text = |folder: &Path| std::fs::read_to_string(folder.join(name)).expect(name);
        let committed = text(&Path::new(ROOT).join(CLIENT));
        assert_eq!(
            committed,
            text(made.path()),
            "{name}: copy what `tsc -p {CLIENT} --outDir …` makes"
        );
    }
    output(compiler(&format!("{CLIENT}/tests"))).await;
    output(compiler("templates/console")).await;
}
