//! Server-sent events: replayed from a cursor, then live, until something ends them.

use std::time::Duration;

use outport_store::channels;
use reqwest::Method;
use serde_json::{Value, json as j};

use crate::{
    api_world::{Options, World, json, on_both_stores},
    stream_world::{SseReader, quick, quiet, until_followed, within},
};

on_both_stores!(
    a_stream_goes_on_from_its_cursor: quiet,
    a_stream_without_a_cursor_begins_now: quiet,
    a_quiet_stream_says_where_it_is: quick,
    a_cursor_that_cannot_be_trusted_is_refused_before_anything_is_sent: quiet,
    a_new_epoch_ends_a_stream_with_resync_required: quick,
    a_ticket_opens_one_stream: quiet,
    a_ticket_ends: no_time_for_tickets,
    a_full_process_refuses_and_evicts_nobody: two_at_once,
    a_large_event_is_pointed_at: quiet,
);

fn two_at_once() -> Options {
    let mut options = quiet();
    options.stream.connections = 2;
    options
}

fn no_time_for_tickets() -> Options {
    let mut options = quiet();
    options.stream.ticket = Duration::ZERO;
    options
}

async fn a_stream_goes_on_from_its_cursor(world: &World) {
    world.append_some(1200).await;
    let epoch = world.epoch().await;
    let mut stream = SseReader::open(world.sse(&format!("?after=3&epoch={epoch}"))).await;
    let first = stream.hear().await;
    assert_eq!(first.event, "beyond-cdn-pointer/1");
    assert_eq!((&first.data["reason"], &first.data["sequence"]), (&j!("head"), &j!(3)));
    assert_eq!(first.id, Some(format!("{epoch}:3")));
    let last = stream.follow(3, 1200).await;
    assert_eq!(last.id, Some(format!("{epoch}:1200")));
    assert_eq!(last.data["channel"], world.channel().to_string());
    assert_eq!(last.data["epoch"], epoch);
    world.append_some(2).await;
    stream.follow(1200, 1202).await;
    drop(stream);

    // The header says more than the address that a browser goes back to.
    let request = world.sse("?after=3").header("last-event-id", format!("{epoch}:1201"));
    let mut stream = SseReader::open(request).await;
    assert_eq!(stream.hear().await.data["sequence"], 1201);
    stream.follow(1201, 1202).await;
}

async fn a_stream_without_a_cursor_begins_now(world: &World) {
    world.append_some(7).await;
    let mut stream = SseReader::open(world.sse("")).await;
    let first = stream.hear().await;
    assert_eq!(first.data["sequence"], 7);
    world.append_some(1).await;
    stream.follow(7, 8).await;
}

async fn a_quiet_stream_says_where_it_is(world: &World) {
    world.append_some(2).await;
    let mut stream = SseReader::open(world.sse("?after=0")).await;
    stream.hear().await;
    stream.follow(0, 2).await;
    for _ in 0..2 {
        let beat = stream.hear().await;
        assert_eq!((beat.event.as_str(), &beat.id), ("beyond-cdn-pointer/1", &None));
        assert_eq!((&beat.data["reason"], &beat.data["sequence"]), (&j!("head"), &j!(2)));
    }
}

async fn a_cursor_that_cannot_be_trusted_is_refused_before_anything_is_sent(world: &World) {
    world.append_some(5).await;
    world
        .force("UPDATE channels SET floor = 2; DELETE FROM channel_events WHERE sequence <= 2")
        .await;
    let epoch = world.epoch().await;
    for (query, last_event, expected) in [
        ("?after=1", None, 410),
        ("?after=6", None, 410),
        ("?after=5&epoch=another", None, 410),
        ("?epoch=another", None, 410),
        ("", Some("another:5".to_owned()), 410),
        ("", Some(format!("{epoch}:1")), 410),
        ("", Some(format!("{epoch}:x")), 400),
        ("", Some("5".to_owned()), 400),
        ("", Some(":5".to_owned()), 400),
        ("?after=x", None, 400),
    ] {
        let mut request = world.sse(query);
        if let Some(id) = &last_event {
            request = request.header("last-event-id", id);
        }
        let (status, problem) = json(request.send().await.expect("an answer")).await;
        assert_eq!(status, expected, "{query} {last_event:?}: {problem}");
        if expected == 410 {
            assert_eq!((&problem["floor"], &problem["head"]), (&j!(2), &j!(5)));
        }
    }
    let mut stream = SseReader::open(world.sse("?after=2")).await;
    stream.hear().await;
    stream.follow(2, 5).await;
}

async fn a_new_epoch_ends_a_stream_with_resync_required(world: &World) {
    world.append_some(2).await;
    let mut stream = SseReader::open(world.sse("?after=2")).await;
    stream.hear().await;
    let mut tx = world.store.begin().await.expect("a transaction");
    let epoch = channels::new_epoch(&mut tx).await.expect("an epoch");
    tx.commit().await.expect("a commit");
    let last = loop {
        let event = stream.hear().await;
        if event.event == "beyond-cdn-events/1" {
            break event.data["events"][0].clone();
        }
        assert_eq!(event.data["reason"], "head", "nothing else is told");
    };
    assert_eq!(last["type"], "resync.required");
    assert!(last.get("sequence").is_none(), "{last}");
    assert_eq!(last["data"], j!({"floor": 0, "head": 2, "epoch": epoch}));
    assert_eq!(stream.next().await, None);
}

async fn ticket(world: &World) -> Value {
    let answer = world.post("/v1/stream/tickets").send().await.expect("an answer");
    let (status, ticket) = json(answer).await;
    assert_eq!(status, 201, "{ticket}");
    ticket
}

async fn a_ticket_opens_one_stream(world: &World) {
    world.append_some(1).await;
    let text = ticket(world).await["ticket"].as_str().expect("a ticket").to_owned();
    let path = format!("/v1/channels/{}/stream?after=0&ticket={text}", world.channel());
    let request = || world.client.request(Method::GET, world.url(&path));
    let mut stream = SseReader::open(request()).await;
    stream.hear().await;
    stream.follow(0, 1).await;
    let (status, problem) = json(request().send().await.expect("an answer")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (401, &j!("UNAUTHENTICATED")));

    // It opens what its buyer may see, and no more.
    let text = ticket(world).await["ticket"].as_str().expect("a ticket").to_owned();
    let other = uuid::Uuid::now_v7();
    let path = format!("/v1/channels/organization:{other}/stream?ticket={text}");
    let answer = world.client.get(world.url(&path)).send().await.expect("an answer");
    assert_eq!(answer.status(), 404);
    // Nor is it an API token.
    let answer = world.client.get(world.url("/v1/exports")).bearer_auth(&text).send().await;
    assert_eq!(answer.expect("an answer").status(), 401);

    // One of a user who lost access since is worth nothing.
    let text = ticket(world).await["ticket"].as_str().expect("a ticket").to_owned();
    world.revoke_user(world.user).await;
    within(async { while world.events("").await.0 != 401 {} }).await;
    let path = format!("/v1/channels/{}/stream?ticket={text}", world.channel());
    let answer = world.client.get(world.url(&path)).send().await.expect("an answer");
    assert_eq!(answer.status(), 401);
}

async fn a_ticket_ends(world: &World) {
    let ticket = ticket(world).await;
    assert!(ticket["expiresAt"].is_string());
    let text = ticket["ticket"].as_str().expect("a ticket");
    for text in [text, "opk_x", ""] {
        let path = format!("/v1/channels/{}/stream?ticket={text}", world.channel());
        let answer = world.client.get(world.url(&path)).send().await.expect("an answer");
        assert_eq!(answer.status(), 401, "{text}");
    }
}

async fn a_full_process_refuses_and_evicts_nobody(world: &World) {
    let mut stream = SseReader::open(world.sse("")).await;
    stream.hear().await;
    let mut socket = world.socket().await;
    socket.subscribe(&world.channel(), None).await;
    let answer = world.sse("").send().await.expect("an answer");
    assert!(answer.headers().contains_key("retry-after"));
    let (status, problem) = json(answer).await;
    assert_eq!((status.as_u16(), &problem["code"]), (503, &j!("AT_CAPACITY")));
    let url = world.url("/v1/stream");
    let refused = crate::stream_world::Socket::open(&url, Some(&world.token)).await;
    assert_eq!(refused.err().map(|(status, _)| status), Some(503));
    world.append_some(3).await;
    stream.follow(0, 3).await;
    socket.follow(0, 3).await;
    drop(stream);
    // Its place is free once the server has noticed.
    until_followed(world).await;
}

async fn a_large_event_is_pointed_at(world: &World) {
    let mut stream = SseReader::open(world.sse("?after=0")).await;
    stream.hear().await;
    let large = "x".repeat(70_000);
    world.append(["small".to_owned(), large, "small".to_owned()]).await;
    let told = async |stream: &mut SseReader| {
        let mut told = Vec::new();
        while told.last().is_none_or(|(_, sequence)| *sequence < 3) {
            let event = stream.hear().await;
            let events = event.data["events"].as_array().cloned().unwrap_or_default();
            let last = events.last().map_or(&event.data["sequence"], |event| &event["sequence"]);
            let reason = event.data["reason"].as_str().unwrap_or("batch").to_owned();
            told.push((reason, last.as_u64().expect("a sequence")));
        }
        told
    };
    let expected = [("batch", 1), ("oversize", 2), ("batch", 3)].map(|(a, b)| (a.to_owned(), b));
    assert_eq!(told(&mut stream).await, expected, "live");
    let mut stream = SseReader::open(world.sse("?after=0")).await;
    stream.hear().await;
    assert_eq!(told(&mut stream).await, expected, "replayed");
    let (_, page) = world.events("?after=1&limit=1").await;
    assert_eq!(page["events"][0]["data"]["note"].as_str().map(str::len), Some(70_000));
}
