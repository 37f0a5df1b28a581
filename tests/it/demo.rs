//! `outport demo`, as a newcomer runs it, looked at with readers of other makes.

use std::{path::Path, process::Command};

use outport_contract::digest::Sha256Digest;
use serde_json::Value;

use crate::{
    harness::{
        PATIENCE, Process,
        broker::exchange::server,
        process::{Env, Program, output},
        servers::{ROOT, script},
        until,
    },
    telling::members,
};

/// Looks at what a demo made.
async fn look(dir: &Path, told: &Value) -> Value {
    let shop = dir.join("shop.db").display().to_string();
    let text = |value: &Value| value.as_str().expect("a path").to_owned();
    let (file, mail) = (text(&told["file"]["path"]), text(&told["mail"]["path"]));
    script("demo_look.py", &[&shop, &file, &mail]).await
}

#[tokio::test]
async fn the_demo_makes_the_file_the_event_and_the_mail_that_it_tells_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("demo");
    let mut command = Command::new(Program::Outport.path());
    command.args(["demo", "--once", "--json", "--dir"]).arg(&dir);
    let told: Value = serde_json::from_str(&output(command).await).expect("one JSON object");
    assert_eq!(members(&told), ["job", "file", "event", "mail"]);
    let seen = look(&dir, &told).await;

    assert_eq!(seen["different"], serde_json::json!([]), "file and shop");
    let job = &told["job"];
    assert_eq!(seen["header"], job["columns"]);
    assert_eq!((&seen["rows"], &told["file"]["rows"]), (&job["totalRows"], &job["totalRows"]));
    assert_eq!(seen["guarded"], job["warnings"]["guardedCells"], "every apostrophe is counted");
    for kind in ["rows", "guarded", "nulls", "empties"] {
        assert!(seen[kind].as_u64() > Some(0), "the sample has {kind}");
    }
    let path = told["file"]["path"].as_str().expect("a path");
    let bytes = std::fs::read(path).expect("the file");
    assert_eq!(Sha256Digest::of(&bytes).hex(), job["sha256"].as_str().expect("a digest"));

    let golden = std::fs::read_to_string(format!("{ROOT}/tests/golden/export-completed.json"));
    let golden: Value = serde_json::from_str(&golden.expect("the sample")).expect("JSON");
    assert_eq!(members(&told["event"]), members(&golden));
    assert_eq!(members(&told["event"]["data"]), members(&golden["data"]));
    assert_eq!(told["event"]["data"]["filters"], golden["data"]["filters"]);

    let mail = &seen["mail"];
    assert_eq!(mail["to"], "ana@example.com");
    assert_eq!(mail["parts"], serde_json::json!(["text/html", "text/plain"]));
    assert_eq!(mail["everyPartHasTheLink"], true, "{mail}");
    assert_eq!(mail["links"].as_array().map(Vec::len), Some(1), "one link: {mail}");
}

#[tokio::test]
async fn with_a_broker_the_demo_shows_what_its_queues_got() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(Program::Outport.path());
    command.args(["demo", "--once", "--json", "--dir"]).arg(folder.path().join("demo"));
    command.args(["--broker-url", &server()]);
    let told: Value = serde_json::from_str(&output(command).await).expect("one JSON object");
    assert_eq!(members(&told), ["job", "file", "event", "mail", "broker"]);
    let messages = told["broker"].as_array().expect("messages");
    let seen: Vec<_> = messages
        .iter()
        .map(|message| {
            let body: Value =
                serde_json::from_str(message["body"].as_str().expect("a body")).expect("JSON");
            (message["queue"].clone(), message["routingKey"].clone(), body["status"].clone())
        })
        .collect();
    let expected = [
        ("fetcher.job.completed.queue", "job.completed", "completed"),
        ("fetcher.job.failed.queue", "job.failed", "failed"),
    ]
    .map(|(queue, key, status)| (queue.into(), key.into(), status.into()));
    assert_eq!(seen, expected);
    assert_eq!(messages[0]["headers"]["ce-subject"], told["job"]["exportJobId"]);
    assert_eq!(messages[0]["headers"]["ce-source"], "//outport/demo");
}

/// The paths that a story on standard output tells.
fn paths(said: &str) -> Value {
    let mut found = said.lines().filter_map(|line| line.trim().strip_prefix("path    "));
    let (file, mail) = (found.next().expect("a file"), found.next().expect("a mail"));
    serde_json::json!({ "file": { "path": file }, "mail": { "path": mail } })
}

#[tokio::test]
async fn the_demo_stays_up_and_everything_that_it_prints_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["demo", "--dir", "demo"];
    let mut demo = Process::spawn(Program::Outport, &arguments, folder.path(), &Env::new());
    let said = until("the story is told", PATIENCE, async || {
        assert!(demo.ended().is_none(), "it ended:\n{}{}", demo.said(), demo.log());
        Some(demo.said()).filter(|said| said.contains("stop with Ctrl-C"))
    })
    .await;

    let curls: Vec<&str> = said.lines().map(str::trim).filter(|l| l.starts_with("curl")).collect();
    assert_eq!(curls.len(), 3, "{said}");
    let mut answers = Vec::new();
    for curl in curls {
        let mut command = Command::new("sh");
        command.args(["-c", curl]);
        let answer = output(command).await;
        answers.push(serde_json::from_str::<Value>(&answer).expect("JSON"));
    }
    assert_eq!(answers[0]["status"], "PENDING", "{}", answers[0]);
    assert_eq!(answers[1]["items"][0]["exportJobId"], answers[0]["exportJobId"]);
    assert_eq!(answers[2]["name"], "order", "{}", answers[2]);

    let told = paths(&said);
    let seen = look(&folder.path().join("demo"), &told).await;
    let link = seen["mail"]["links"][0].as_str().expect("a link");
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let page = client.get(link).send().await.expect("a page");
    assert!(page.status().is_success(), "{}", page.status());
    let page = page.text().await.expect("a page");
    let button = format!("{link}/file");
    assert!(page.contains(&button) || page.contains("/file"), "a button: {page}");
    let file = client.get(&button).send().await.expect("the file");
    assert!(file.status().is_success(), "{}", file.status());
    let path = told["file"]["path"].as_str().expect("a path");
    let stored = std::fs::read(path).expect("the file");
    assert_eq!(file.bytes().await.expect("the file"), stored);

    demo.signal("INT");
    assert_eq!(demo.end(PATIENCE).await.code(), Some(0), "{}", demo.log());
}
