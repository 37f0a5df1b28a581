//! The console in a real browser: a person signs in, requests an export, sees it move through an
//! outage of the network, and gets its file.

use std::path::{Path, PathBuf};

use outport_contract::digest::Sha256Digest;
use serde_json::{Value, json};

use crate::harness::{
    Api, World,
    process::Program,
    servers::{ROOT, script},
    shop,
};

/// Rows that come slowly, so that an outage of five seconds is in the middle.
const ROWS: u32 = 900;
const MILLISECONDS_EACH: u32 = 20;

/// Where `tests/run` finds the browser.
fn chromium() -> PathBuf {
    let path = std::env::var_os("OUTPORT_TEST_CHROMIUM");
    let path = path.map_or_else(|| PathBuf::from("/usr/bin/chromium"), PathBuf::from);
    assert!(path.is_file(), "{} is missing: run `tests/run` once, it installs it", path.display());
    path
}

async fn visit(world: &World, api: &Api, folder: &Path) -> Value {
    let (base, token) = api.access();
    let in_repository = |path: &str| Path::new(ROOT).join(path).display().to_string();
    let asked = json!({
        "chromium": chromium(),
        "api": base,
        "token": token,
        "folder": folder,
        "scripts": in_repository("crates/client/browser/tests/cases.js"),
        "table": in_repository("tests/golden/stream-consumer-cases.json"),
        "revoke": [
            Program::Outport.path(), "access", "revoke",
            "--organization", shop::ORGANIZATION, "--user", shop::USER,
        ],
        "env": world.env,
    });
    script("console_visit.py", &[&asked.to_string()]).await
}

#[tokio::test]
async fn a_person_follows_an_export_through_an_outage_and_gets_its_file() {
    let world = World::postgres().await;
    shop::add_slow(world.state.postgres(), ROWS, MILLISECONDS_EACH).await;
    let api = world.all_in_one().await;
    let pictures = std::env::var_os("OUTPORT_TEST_PICTURES").map(PathBuf::from);
    let folder = tempfile::tempdir().expect("a folder");
    let folder = pictures.unwrap_or_else(|| folder.path().to_owned());
    let seen = visit(&world, &api, &folder).await;

    let ids = |name: &str| {
        let ids = seen[name].as_array().expect("ids").iter();
        ids.map(|id| id.as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("shown"), ids("stored"), "every event once, and in its order");
    assert!(ids("shown").len() > 10, "{seen}");
    let bar: Vec<f64> = serde_json::from_value(seen["bar"].clone()).expect("values");
    assert!(bar.is_sorted_by(|one, next| one <= next) && bar[3] > bar[2], "{bar:?}");

    let path = seen["file"]["path"].as_str().expect("a path");
    let downloaded = std::fs::read(path).expect("the file");
    let job = &seen["job"];
    assert_eq!(Sha256Digest::of(&downloaded).hex(), job["sha256"].as_str().expect("a digest"));
    assert_eq!(String::from_utf8(downloaded).expect("a text"), shop::expected_slow(ROWS));
    assert_eq!(seen["file"]["name"], job["fileName"]);
    assert_eq!(seen["canceled"], "CANCELED");

    let complaint = seen["complaint"].as_str().expect("a text");
    assert!(complaint.starts_with("filters.amount"), "{complaint}");
    for nothing in ["messages", "violations", "nameless", "differences"] {
        assert_eq!(seen[nothing], json!([]), "{nothing}");
    }
    let [canceled, completed] = [&seen["other"], &seen["job"]["exportJobId"]];
    let after =
        json!({ "cards": [canceled, completed], "fileName": "", "news": "", "trouble": "" });
    assert_eq!(seen["after"], after, "nothing of the session before");
    assert_eq!(seen["left"], 0, "who has no access sees nothing");
    assert_eq!(seen["overflow"], 0, "a narrow window shows all of its width");
    let [url, cookie, local, session] = seen["kept"].as_array().expect("values").as_slice() else {
        panic!("{seen}")
    };
    assert!(!url.to_string().contains(api.access().1), "no token in the address");
    assert_eq!((cookie, local, session), (&json!(""), &json!(0), &json!(1)));
}

#[tokio::test]
async fn answers_that_come_seldom_leave_no_hole_and_no_dead_page() {
    let world = World::sqlite();
    let api = world.all_in_one().await;
    let job = api.export("order").await;
    let export = api.job_is(&job, "COMPLETED").await;
    let (base, token) = api.access();
    let asked = json!({ "chromium": chromium(), "api": base, "token": token, "export": export });
    let messages = script("console_answers.py", &[&asked.to_string()]).await;
    assert_eq!(messages, json!([]), "errors that nobody took");
}
