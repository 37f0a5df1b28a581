//! The commands that ask a running server: `watch`, `events tail`, `conformance stream`.

use std::{path::Path, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    process::Command,
};

use crate::harness::{
    Api, PATIENCE, Process, World,
    process::{Env, Program},
    until,
};

/// A command that asks servers, running.
fn ask(world: &World, urls: &[&str], token: &str, arguments: &[&str]) -> Process {
    let mut env = Env::new();
    env.insert("OUTPORT_URL".to_owned(), urls.join(","));
    env.insert("OUTPORT_TOKEN".to_owned(), token.to_owned());
    let folder: &Path = &world.path("");
    Process::spawn(Program::Outport, arguments, folder, &env)
}

/// The lines that it has said.
fn lines(command: &Process) -> Vec<Value> {
    let said = command.said();
    let whole = said.lines().filter(|_| said.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What it has said, when it has said so many lines.
async fn said(command: &Process, count: usize) -> Vec<Value> {
    until("it says so much", PATIENCE, async || {
        Some(lines(command)).filter(|lines| lines.len() >= count)
    })
    .await
}

async fn code(command: &mut Process) -> Option<i32> {
    command.end(PATIENCE).await.code()
}

async fn requested(world: &World) -> (Api, String) {
    let api = world.api().await;
    let job = api.export("order").await;
    (api, job)
}

#[tokio::test]
async fn an_export_is_watched_to_its_success() {
    let world = World::postgres().await;
    let (api, job) = requested(&world).await;
    let watch = |arguments: &[&str]| ask(&world, &[api.access().0], api.access().1, arguments);
    let mut as_json = watch(&["watch", &job, "--json"]);
    let mut as_text = watch(&["watch", &job]);
    let first = said(&as_json, 1).await.remove(0);
    assert_eq!(first["snapshot"]["jobs"][0]["status"], "PENDING", "{first}");
    until("the text begins", PATIENCE, async || as_text.said().contains("pending").then_some(()))
        .await;
    let _worker = world.worker();
    assert_eq!(code(&mut as_json).await, Some(0), "{}", as_json.log());
    assert_eq!(code(&mut as_text).await, Some(0), "{}", as_text.log());
    let lines = lines(&as_json);
    let events: Vec<_> = lines[1..].iter().map(|line| &line["event"]).collect();
    let types: Vec<_> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(types.last(), Some(&"job.succeeded"), "{types:?}");
    let from = first["snapshot"]["sequence"].as_u64().expect("a sequence");
    let sequences = events.iter().filter_map(|event| event["sequence"].as_u64());
    assert!(sequences.eq(from + 1..=from + events.len() as u64), "each once and in order");
    assert!(as_text.said().contains("succeeded"), "{}", as_text.said());
    // What is over already is told at once.
    let mut again = watch(&["watch", &job]);
    assert_eq!((code(&mut again).await, again.said().as_str()), (Some(0), "completed\n"));
    assert_eq!(unread(&api, &["watch", &job]).await, (Some(141), String::new()));
}

/// The exit code of a command whose output nobody reads, and what it complained of.
async fn unread(api: &Api, arguments: &[&str]) -> (Option<i32>, String) {
    let (url, token) = api.access();
    let mut command = Command::new(Program::Outport.path());
    command.args(arguments).env("OUTPORT_URL", url).env("OUTPORT_TOKEN", token);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    drop(child.stdout.take());
    let ended = child.wait_with_output().await.expect("it ends");
    (ended.status.code(), String::from_utf8(ended.stderr).expect("a text"))
}

#[tokio::test]
async fn an_export_that_does_not_succeed_is_another_exit_code() {
    let world = World::postgres().await;
    let (api, job) = requested(&world).await;
    let mut watch = ask(&world, &[api.access().0], api.access().1, &["watch", &job]);
    until("it watches", PATIENCE, async || watch.said().contains("pending").then_some(())).await;
    assert_eq!(api.post(&format!("/v1/exports/{job}/cancel")).await.0, 202);
    assert_eq!(code(&mut watch).await, Some(1), "{}", watch.said());
    for (token, job, word) in [
        (api.access().1, "0197a801-1690-7590-b3cf-19599b9be3e4", "no such channel"),
        ("opt_nobody", job.as_str(), "credential"),
    ] {
        let mut watch = ask(&world, &[api.access().0], token, &["watch", job]);
        assert_eq!(code(&mut watch).await, Some(1));
        assert!(watch.log().contains(word), "{}", watch.log());
    }
}

const ELSEWHERE: &str = "HTTP/1.1 302 Found\r\nlocation: /login\r\ncontent-length: 0\r\n\
                         connection: close\r\n\r\n";
const PAGE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 14\r\n\
                    connection: close\r\n\r\n<p>Sign in</p>";

/// A server that gives requests, or connections of the stream, this answer, and lets the others wait.
async fn answering(answer: &'static str, is_of_stream: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut waiting = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let read = socket.read(&mut head).await.expect("a request");
            if head[..read].starts_with(b"GET /v1/stream ") != is_of_stream {
                waiting.push(socket);
                continue;
            }
            socket.write_all(answer.as_bytes()).await.expect("it reads");
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn what_a_server_answers_that_is_asked_again_is_said() {
    let (world, url) = (World::sqlite(), answering(ELSEWHERE, false).await);
    let job = "0197a801-1690-7590-b3cf-19599b9be3e4";
    let watch = ask(&world, &[&url], "opt_token", &["watch", job]);
    let watch_json = ask(&world, &[&url], "opt_token", &["watch", job, "--json"]);
    let why = "302: it leads elsewhere";
    until("it is told", PATIENCE, async || watch.log().contains(why).then_some(())).await;
    assert!(watch.log().contains("again in "), "{}", watch.log());
    let line = said(&watch_json, 1).await.remove(0);
    assert_eq!(
        (&line["channel"], &line["retrying"]["why"]),
        (&json!(format!("job:{job}")), &json!(why))
    );
}

#[tokio::test]
async fn an_answer_that_is_no_connection_is_said_in_the_same_words() {
    let world = World::sqlite();
    for (answer, why) in [
        (ELSEWHERE, "302: it leads elsewhere"),
        (PAGE, "200: the answer cannot be read: it is no connection"),
    ] {
        let url = answering(answer, true).await;
        let channel = "job:0197a801-1690-7590-b3cf-19599b9be3e4";
        let tail = ask(&world, &[&url], "opt_token", &["events", "tail", channel]);
        until("it is told", PATIENCE, async || tail.log().contains(why).then_some(())).await;
        assert!(tail.log().contains("again in "), "{}", tail.log());
    }
}

#[tokio::test]
async fn an_end_that_another_producer_tells_of_is_not_believed() {
    let world = World::postgres().await;
    let (api, job) = requested(&world).await;
    let mut watch = ask(&world, &[api.access().0], api.access().1, &["watch", &job, "--json"]);
    said(&watch, 1).await;
    let told = json!({
        "scope": { "job": &job }, "type": "job.succeeded", "data": { "state": "succeeded" },
    });
    let (status, answer) = api.try_post("/v1/channels/events", &told).await.expect("an answer");
    assert_eq!(status, 201, "{answer}");
    let lines = said(&watch, 2).await;
    assert_eq!(lines[1]["event"]["id"], answer["id"], "it is shown");
    assert_eq!(api.post(&format!("/v1/exports/{job}/cancel")).await.0, 202);
    assert_eq!(code(&mut watch).await, Some(1), "{}", watch.said());
}

#[tokio::test]
async fn what_another_producer_tells_moves_no_terminal() {
    let world = World::postgres().await;
    let (api, job) = requested(&world).await;
    let channel = format!("job:{job}");
    let ask = |arguments: &[&str]| ask(&world, &[api.access().0], api.access().1, arguments);
    let (watch, watch_json) = (ask(&["watch", &job]), ask(&["watch", &job, "--json"]));
    for watch in [&watch, &watch_json] {
        until("it watches", PATIENCE, async || (!watch.said().is_empty()).then_some(())).await;
    }
    let data = json!({
        "state": "failed", "code": "\u{1b}[2J", "message": "a\r\nok\u{7f}\u{9b}31m\u{202e}\u{2066}é",
    });
    let told = json!({ "scope": { "job": &job }, "type": "job.failed", "data": &data });
    let (status, answer) = api.try_post("/v1/channels/events", &told).await.expect("an answer");
    assert_eq!(status, 201, "{answer}");
    let tail = ask(&["events", "tail", &channel, "--after", "0"]);
    let tail_json = ask(&["events", "tail", &channel, "--after", "0", "--json"]);
    for command in [&watch, &watch_json, &tail, &tail_json] {
        let line = until("it is told", PATIENCE, async || {
            let said = command.said();
            let line = said.lines().find(|line| line.contains("failed") && line.contains('é'));
            line.filter(|_| said.ends_with('\n')).map(str::to_owned)
        })
        .await;
        let acted_on = |it: char| it.is_control() || matches!(it, '\u{202e}' | '\u{2066}');
        assert!(!line.contains(acted_on), "{line:?}");
        let event: Option<Value> =
            line.find('{').and_then(|at| serde_json::from_str(&line[at..]).ok());
        match event {
            Some(event) => assert!(event == data || event["event"]["data"] == data, "{line}"),
            None => assert_eq!(
                line,
                r"failed: \u{1b}[2J (a\u{d}\u{a}ok\u{7f}\u{9b}31m\u{202e}\u{2066}é)"
            ),
        }
    }
}

#[tokio::test]
async fn a_channel_is_printed_as_it_grows() {
    let world = World::sqlite();
    let api = world.all_in_one().await;
    let job = api.export("order").await;
    let channel = format!("job:{job}");
    let tail = ["events", "tail", &channel, "--after", "0", "--json"];
    let tail = ask(&world, &[api.access().0], api.access().1, &tail);
    until("the export has ended", PATIENCE, async || {
        lines(&tail).iter().any(|line| line["event"]["type"] == "job.succeeded").then_some(())
    })
    .await;
    let lines = lines(&tail);
    assert_eq!(lines[0]["event"]["type"], "job.queued");
    let sequences = lines.iter().filter_map(|line| line["event"]["sequence"].as_u64());
    assert!(sequences.eq(1..=lines.len() as u64), "{lines:?}");
    let mut other = ask(&world, &[api.access().0], api.access().1, &["events", "tail", "moon:1"]);
    assert_eq!(code(&mut other).await, Some(2), "no channel is so called");
}

#[tokio::test]
async fn three_processes_on_one_database_pass_the_kit_together() {
    let world = World::postgres().await;
    let (api, job) = requested(&world).await;
    let (second, third) = (world.another_api().await, world.another_api().await);
    let urls = [api.access().0, second.access().0, third.access().0];
    let kit = ["conformance", "stream", "--json", "--job", &job];
    let mut kit = ask(&world, &urls, api.access().1, &kit);
    let code = kit.end(PATIENCE * 4).await.code();
    let failed: Vec<_> = lines(&kit).into_iter().filter(|line| line["verdict"] == "fail").collect();
    assert_eq!((code, failed), (Some(0), Vec::<Value>::new()), "{}", kit.log());
    let passed = lines(&kit).iter().filter(|line| line["verdict"] == "pass").count();
    assert!(passed > 40, "{passed}: {}", json!(lines(&kit)));
}
