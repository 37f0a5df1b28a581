//! `outport token`: what names its commands take, and how they show them; and what is refused of
//! any command line.

use std::path::Path;

use serde_json::json;

use crate::harness::{
    PATIENCE, Process, World,
    process::Program,
    shop::{ORGANIZATION, USER},
};

async fn token(world: &World, arguments: &[&str]) -> (Option<i32>, Process) {
    let folder: &Path = &world.path("");
    let arguments = [&["token"], arguments, &["--organization", ORGANIZATION]].concat();
    let mut command = Process::spawn(Program::Outport, &arguments, folder, &world.env);
    (command.end(PATIENCE).await.code(), command)
}

#[tokio::test]
async fn a_token_is_called_as_the_api_would_have_it_and_moves_no_terminal() {
    let world = World::sqlite();
    let api = world.all_in_one().await;
    for (name, word) in [
        ("\u{202e}\u{1b}[2Jn", "control character"),
        ("two\nlines", "control character"),
        ("", "1 to 100"),
        (" \u{2003}\u{a0}", "not all blanks"),
    ] {
        let (code, command) = token(&world, &["create", "--name", name]).await;
        assert_eq!((code, command.said().as_str()), (Some(2), ""), "{name:?}");
        assert!(command.log().contains(word), "{}", command.log());
        let body = json!({ "name": name, "scopes": ["exports:read"] });
        let (status, refused) = api.try_post("/v1/tokens", &body).await.expect("an answer");
        assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("name")), "{refused}");
    }
    let new = ["create", "--name", "x", "--email", "a@b.c\u{1b}[2J"];
    assert_eq!(token(&world, &new).await.0, Some(2), "an address has none either");

    let name = "\u{202e}\u{2028}\u{61c}né";
    let body = json!({ "name": name, "scopes": ["exports:read"] });
    let (status, made) = api.try_post("/v1/tokens", &body).await.expect("an answer");
    assert_eq!(status, 201, "{made}");
    assert_eq!(token(&world, &["create", "--name", name, "--user", USER]).await.0, Some(0));
    let (code, list) = token(&world, &["list"]).await;
    assert_eq!(code, Some(0), "{}", list.log());
    let said = list.said();
    assert_eq!(said.matches(r"  \u{202e}\u{2028}\u{61c}né  ").count(), 2, "{said}");
    let acted_on =
        |it: char| it.is_control() && it != '\n' || "\u{202e}\u{2028}\u{61c}".contains(it);
    assert!(!said.contains(acted_on), "{said:?}");
}

#[tokio::test]
async fn what_is_refused_of_a_command_line_moves_no_terminal() {
    let world = World::sqlite();
    let text = "a\u{1b}[31mb\u{7}\u{1b}]0;x\u{7}\u{202e}\u{9b}";
    let shown = r"a\u{1b}[31mb\u{7}\u{1b}]0;x\u{7}\u{202e}\u{9b}";
    let option = format!("--{text}");
    for (program, arguments) in [
        (Program::Outport, &["token", "create", "--name", text][..]),
        (Program::Outport, &["token", "create", "--name", "x", "--email", text]),
        (Program::Outport, &["token", "list", "--organization", text]),
        (Program::Outport, &["watch", text]),
        (Program::Outport, &["events", "tail", text]),
        (Program::Outport, &[text]),
        (Program::Api, &[text]),
        (Program::Worker, &[&option]),
    ] {
        let mut command = Process::spawn(program, arguments, &world.path(""), &world.env);
        assert_eq!(command.end(PATIENCE).await.code(), Some(2), "{arguments:?}");
        let (said, told) = (command.said(), command.log());
        assert_eq!(said, "", "{arguments:?}");
        assert!(told.starts_with("error: ") && told.contains(shown), "{told:?}");
        let acted_on = |it: char| it.is_control() && it != '\n' || it == '\u{202e}';
        assert!(!told.contains(acted_on), "{told:?}");
    }
    for (program, word) in [(Program::Outport, "Commands:"), (Program::Worker, "--config")] {
        let mut help = Process::spawn(program, &["--help"], &world.path(""), &world.env);
        assert_eq!(help.end(PATIENCE).await.code(), Some(0));
        assert!(help.said().contains(word) && help.log().is_empty(), "{}", help.said());
    }
}

#[tokio::test]
async fn a_number_that_becomes_a_time_is_one_that_a_calendar_has() {
    let world = World::sqlite();
    for days in ["0", "36501", "99999999", "4294967296", "-1", "1.5"] {
        let days = format!("--days={days}");
        let (code, command) = token(&world, &["create", "--name", "x", &days]).await;
        assert_eq!((code, command.said().as_str()), (Some(2), ""), "{days}");
        assert!(command.log().contains("'--days <DAYS>'"), "{}", command.log());
    }
    for days in ["1", "36500"] {
        let (code, command) = token(&world, &["create", "--name", days, "--days", days]).await;
        assert_eq!(code, Some(0), "{}", command.log());
    }
    let (_, list) = token(&world, &["list"]).await;
    assert_eq!(list.said().matches("  active  ").count(), 2, "{}", list.said());
    for (name, number) in [
        ("--heartbeat", "0"),
        ("--heartbeat", "18446744073709551615"),
        ("--message-bytes", "99"),
        ("--message-bytes", "18446744073709551615"),
    ] {
        let kit = ["conformance", "stream", "--url=http://x", "--token=x", name, number];
        let mut kit = Process::spawn(Program::Outport, &kit, &world.path(""), &world.env);
        assert_eq!(kit.end(PATIENCE).await.code(), Some(2), "{name} {number}");
        assert!(kit.log().contains(&format!("invalid value '{number}'")), "{}", kit.log());
    }
}
