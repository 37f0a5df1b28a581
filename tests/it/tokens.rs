//! `outport token`: what names its commands take, and how they show them.

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
    ] {
        let (code, command) = token(&world, &["create", "--name", name]).await;
        assert_eq!((code, command.said().as_str()), (Some(2), ""), "{name:?}");
        assert!(command.log().contains(word), "{}", command.log());
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
