//! `WebSocket`s: what a client says, what it is told, and what ends its connection.

use std::time::Duration;

use outport_domain::id::OrganizationId;
use serde_json::json as j;
use tokio_tungstenite::tungstenite::Message;

use crate::{
    api_world::{Options, World, on_both_stores},
    stream_world::{Socket, advanced, quick, quiet, within},
};

on_both_stores!(
    a_socket_follows_many_channels: quiet,
    a_socket_by_a_header_needs_no_word: quiet,
    a_socket_without_a_valid_credential_is_refused: hurried,
    a_bad_frame_ends_the_connection: quiet,
    what_is_not_for_a_caller_is_told_as_an_error: quiet,
    a_bad_cursor_is_told_to_resync: quiet,
    too_many_channels_end_the_connection: two_channels,
    a_quiet_socket_is_told_where_it_is_and_that_we_live: quick,
    a_client_that_does_not_read_ends_alone: stalling,
    what_comes_live_during_a_replay_is_bounded: cramped,
    whoever_joins_while_others_write_misses_nothing: quiet,
    a_process_that_stops_sends_everybody_away: quiet,
    subscribing_counts_as_a_request: three_requests,
    who_has_not_said_who_it_is_takes_one_place_of_four: four_places,
);

fn three_requests() -> Options {
    let mut options = quiet();
    options.limits.requests_per_minute = 3;
    options
}

fn four_places() -> Options {
    let mut options = quiet();
    options.stream.connections = 4;
    options
}

fn two_channels() -> Options {
    let mut options = quiet();
    options.stream.channels = 2;
    options
}

fn hurried() -> Options {
    let mut options = quiet();
    options.stream.auth_time = Duration::from_millis(300);
    options
}

fn stalling() -> Options {
    let mut options = quiet();
    options.stream.stall = Duration::from_secs(3);
    options
}

/// Less than one message of these tests may wait.
fn cramped() -> Options {
    let mut options = quiet();
    options.stream.stall = Duration::from_mins(10);
    options.stream.queue_bytes = 100_000;
    options
}

async fn a_socket_follows_many_channels(world: &World) {
    let mut socket = world.socket().await;
    world.append_some(700).await;
    let own = world.channel();
    let answer = socket.subscribe(&own, Some(0)).await;
    assert_eq!((&answer["head"], &answer["epoch"]), (&j!(700), &j!(world.epoch().await)));
    socket.follow(0, 700).await;
    let job = outport_contract::stream::Channel::Job(world.create().await.uuid());
    let (_, page) = world.events("").await;
    assert_eq!(page["head"], 700);
    let at = socket.subscribe(&job, Some(0)).await["head"].as_u64().expect("a head");
    socket.say(&j!({"action": "subscribe", "channel": own})).await;
    let again = loop {
        let text = socket.hear().await;
        if text["event"] == "outport-control/1" {
            break text["data"].clone();
        }
        assert_eq!(text["data"]["channel"], job.to_string());
        assert!(at > 0, "{text}");
    };
    assert_eq!((&again["kind"], &again["code"]), (&j!("error"), &j!("ALREADY_SUBSCRIBED")));
    world.append_some(2).await;
    socket.follow(700, 702).await;
    socket.say(&j!({"action": "unsubscribe", "channel": own})).await;
    let answer = socket.control().await;
    let expected = j!({"kind": "unsubscribed", "channel": own.to_string()});
    assert_eq!(answer, expected);
    socket.say(&j!({"action": "unsubscribe", "channel": own})).await;
    assert_eq!(socket.control().await["code"], "NOT_SUBSCRIBED");
    world.append_some(1).await;
    let answer = socket.subscribe(&own, Some(702)).await;
    assert_eq!(answer["kind"], "subscribed");
    socket.follow(702, 703).await;
    socket.say(&j!({"action": "ping"})).await;
    assert_eq!(socket.control().await, j!({"kind": "pong"}));
}

async fn a_socket_by_a_header_needs_no_word(world: &World) {
    let url = world.url("/v1/stream");
    let mut socket = Socket::open(&url, Some(&world.token)).await.expect("a socket");
    assert_eq!(socket.control().await, j!({"kind": "authenticated"}));
    socket.subscribe(&world.channel(), None).await;
    world.append_some(1).await;
    socket.follow(0, 1).await;
    // Ping frames of the protocol itself are answered, too.
    socket.send(Message::Ping("x".into())).await;
    socket.say(&j!({"action": "ping"})).await;
    assert_eq!(socket.control().await, j!({"kind": "pong"}));
    let answer = world.get("/v1/stream").send().await.expect("an answer");
    assert_eq!(answer.status(), 400, "no WebSocket was asked for");
}

async fn a_socket_without_a_valid_credential_is_refused(world: &World) {
    let mut silent = world.anonymous().await;
    assert_eq!(silent.closed().await, (4401, Vec::new()));
    let mut rash = world.anonymous().await;
    rash.say(&j!({"action": "subscribe", "channel": world.channel()})).await;
    assert_eq!(rash.closed().await.0, 4401);
    let life = chrono::TimeDelta::milliseconds(-1);
    let (expired, _) = world.make_token(world.caller(), Some(life)).await;
    let forged = outport::auth::token::mint().secret;
    let url = world.url("/v1/stream");
    for token in [&expired, &forged, "opt_x", "eyJ.x.y", ""] {
        let mut socket = world.anonymous().await;
        socket.say(&j!({"action": "auth", "token": token})).await;
        assert_eq!(socket.closed().await, (4401, Vec::new()), "{token}");
        if !token.is_empty() {
            let refused = Socket::open(&url, Some(token)).await;
            assert_eq!(refused.err().map(|(status, _)| status), Some(401), "{token}");
        }
    }
    let scopeless = world.token_for(|caller| caller.scopes.clear()).await;
    let mut socket = world.anonymous().await;
    socket.say(&j!({"action": "auth", "token": scopeless})).await;
    assert_eq!(socket.closed().await.0, 4403);
}

async fn a_bad_frame_ends_the_connection(world: &World) {
    let texts = [
        "",
        "ping",
        "[]",
        "{\"action\":\"ping\"",
        r#"{"action":"shout"}"#,
        r#"{"action":"ping","more":1}"#,
        r#"{"action":"subscribe"}"#,
        r#"{"action":"subscribe","channel":"job:1","after":-1}"#,
        r#"{"action":"subscribe","channel":"job:1","after":"1"}"#,
        r#"{"action":"subscribe","channel":"job:1","channel":"job:1"}"#,
        r#"{"action":"auth","token":"again"}"#,
    ];
    let large = format!("{{\"action\":\"ping\"{}}}", " ".repeat(70_000));
    let frames = texts.iter().map(|text| Message::text(*text));
    for frame in frames.chain([Message::binary("{}"), Message::text(large)]) {
        let mut socket = world.socket().await;
        let shown = format!("{frame:?}").chars().take(80).collect::<String>();
        socket.send(frame).await;
        assert_eq!(socket.closed().await, (4400, Vec::new()), "{shown}");
    }
}

async fn what_is_not_for_a_caller_is_told_as_an_error(world: &World) {
    world.append_some(1).await;
    let job = world.create().await;
    let stranger = world.stranger(OrganizationId::new()).await;
    let mut socket = world.socket_of(&stranger).await;
    let organization = world.organization;
    for channel in [
        world.channel().to_string(),
        format!("job:{job}"),
        format!("application:{organization}.outport"),
        format!("job:{}", uuid::Uuid::now_v7()),
        "job".to_owned(),
    ] {
        socket.say(&j!({"action": "subscribe", "channel": channel, "after": 0})).await;
        let answer = socket.control().await;
        let detail = "There is nothing at this address.";
        let expected =
            j!({"kind": "error", "channel": channel, "code": "NOT_FOUND", "detail": detail});
        assert_eq!(answer, expected);
    }
    world.append_some(1).await;
    socket.say(&j!({"action": "ping"})).await;
    assert_eq!(socket.hear().await["data"]["kind"], "pong", "nothing of theirs came");
}

async fn a_bad_cursor_is_told_to_resync(world: &World) {
    world.append_some(5).await;
    world
        .force("UPDATE channels SET floor = 2; DELETE FROM channel_events WHERE sequence <= 2")
        .await;
    let channel = world.channel();
    let mut socket = world.socket().await;
    for frame in [
        j!({"action": "subscribe", "channel": channel, "after": 1}),
        j!({"action": "subscribe", "channel": channel, "after": 6}),
        j!({"action": "subscribe", "channel": channel, "after": 5, "epoch": "another"}),
    ] {
        socket.say(&frame).await;
        let told = socket.hear().await;
        assert_eq!(told["event"], "beyond-cdn-events/1", "{frame}");
        let event = &told["data"]["events"][0];
        assert_eq!(event["type"], "resync.required", "{frame}");
        assert!(event.get("sequence").is_none(), "{event}");
        assert_eq!((&event["data"]["floor"], &event["data"]["head"]), (&j!(2), &j!(5)));
        let answer = socket.control().await;
        let channel = channel.to_string();
        let expected = j!({"kind": "unsubscribed", "channel": channel, "code": "resync.required"});
        assert_eq!(answer, expected);
    }
    for (after, from) in [(2, 2), (5, 5)] {
        socket.subscribe(&channel, Some(after)).await;
        socket.follow(from, 5).await;
        socket.say(&j!({"action": "unsubscribe", "channel": channel})).await;
        assert_eq!(socket.control().await["kind"], "unsubscribed");
    }
}

async fn too_many_channels_end_the_connection(world: &World) {
    let organization = world.organization.uuid();
    let channel =
        |name: &str| outport_contract::stream::Channel::Application(organization, name.to_owned());
    let mut socket = world.socket().await;
    socket.subscribe(&channel("a"), None).await;
    socket.subscribe(&channel("b"), None).await;
    socket.say(&j!({"action": "unsubscribe", "channel": channel("a")})).await;
    assert_eq!(socket.control().await["kind"], "unsubscribed");
    socket.subscribe(&channel("c"), None).await;
    socket.say(&j!({"action": "subscribe", "channel": channel("d")})).await;
    assert_eq!(socket.closed().await.0, 4429);
}

async fn a_quiet_socket_is_told_where_it_is_and_that_we_live(world: &World) {
    world.append_some(3).await;
    let mut socket = world.socket().await;
    socket.subscribe(&world.channel(), Some(0)).await;
    socket.follow(0, 3).await;
    for _ in 0..2 {
        let told = socket.hear().await;
        assert_eq!(told["event"], "beyond-cdn-pointer/1");
        assert_eq!((&told["data"]["reason"], &told["data"]["sequence"]), (&j!("head"), &j!(3)));
    }
}

/// When so many of them have ended with this code.
async fn closed(world: &World, code: u16) {
    let closed =
        format!("outport_stream_closed_total{{transport=\"websocket\",code=\"{code}\"}} 1");
    within(async {
        loop {
            let answer = world.get("/metrics").send().await.expect("an answer");
            if answer.text().await.expect("a page").contains(&closed) {
                break;
            }
        }
    })
    .await;
}

/// 24 MB: more than the buffers of the machine's own network take.
async fn append_much(world: &World) {
    let large = "x".repeat(60_000);
    for _ in 0..10 {
        world.append((0..40).map(|_| large.clone())).await;
    }
}

async fn a_client_that_does_not_read_ends_alone(world: &World) {
    let mut reader = world.socket().await;
    reader.subscribe(&world.channel(), None).await;
    tokio::join!(append_much(world), has_come_to(&mut reader, 400));
    let mut stalled = world.socket().await;
    stalled.subscribe(&world.channel(), Some(0)).await;
    closed(world, 4408).await;
    world.append_some(1).await;
    has_come_to(&mut reader, 401).await;
    let (code, said) = stalled.closed().await;
    assert_eq!(code, 4408);
    let told = said.iter().fold(0, |cursor, text| advanced(cursor, &text["event"], &text["data"]));
    assert!((1..400).contains(&told), "what it had taken, in order, and no more: {told}");
}

/// It has all up to here, or is told of what it does not have.
async fn has_come_to(reader: &mut Socket, last: u64) {
    let mut cursor = 0;
    while cursor < last {
        let text = reader.hear().await;
        let events = text["data"]["events"].as_array();
        let newest = events.and_then(|events| events.last()).unwrap_or(&text["data"]);
        cursor = newest["sequence"].as_u64().expect("a sequence");
    }
}

async fn what_comes_live_during_a_replay_is_bounded(world: &World) {
    append_much(world).await;
    let mut socket = world.socket().await;
    socket.subscribe(&world.channel(), Some(0)).await;
    // It reads nothing: the replay cannot end, and what comes live waits for it.
    for _ in 0..4 {
        world.append(["x".repeat(60_000)]).await;
    }
    closed(world, 4409).await;
    let (code, said) = socket.closed().await;
    assert_eq!(code, 4409);
    said.iter().fold(0, |cursor, text| advanced(cursor, &text["event"], &text["data"]));
}

async fn whoever_joins_while_others_write_misses_nothing(world: &World) {
    const EACH: u64 = 60;
    let write = async {
        for _ in 0..EACH {
            world.append_some(3).await;
        }
    };
    let join = async {
        for _ in 0..12 {
            let (_, page) = world.events("?limit=1").await;
            let after = page["head"].as_u64().expect("a head") / 2;
            let mut socket = world.socket().await;
            socket.subscribe(&world.channel(), Some(after)).await;
            let mut cursor = after;
            let goal = after + 40;
            while cursor < goal.min(3 * EACH) {
                let text = socket.hear().await;
                cursor = advanced(cursor, &text["event"], &text["data"]);
            }
        }
    };
    let whole = async {
        let mut socket = world.socket().await;
        socket.subscribe(&world.channel(), Some(0)).await;
        socket.follow(0, 3 * EACH).await;
    };
    tokio::join!(write, join, whole);
}

async fn a_process_that_stops_sends_everybody_away(world: &World) {
    let mut sockets = Vec::new();
    for _ in 0..5 {
        let mut socket = world.socket().await;
        socket.subscribe(&world.channel(), None).await;
        sockets.push(socket);
    }
    let mut stream = crate::stream_world::SseReader::open(world.sse("")).await;
    stream.hear().await;
    world.stop.cancel();
    for socket in &mut sockets {
        assert_eq!(socket.closed().await, (1013, Vec::new()));
    }
    assert_eq!(stream.next().await, None);
    let refused = Socket::open(&world.url("/v1/stream"), Some(&world.token)).await;
    assert_eq!(refused.err().map(|(status, _)| status), Some(503));
}

async fn subscribing_counts_as_a_request(world: &World) {
    // The first of the three was the credential.
    let mut socket = world.socket().await;
    let mut codes = Vec::new();
    for _ in 0..4 {
        let channel = format!("job:{}", uuid::Uuid::now_v7());
        socket.say(&j!({"action": "subscribe", "channel": channel})).await;
        codes.push(socket.control().await["code"].clone());
    }
    assert_eq!(codes[..2], ["NOT_FOUND", "NOT_FOUND"]);
    assert!(codes.contains(&j!("RATE_LIMITED")), "{codes:?}");
    socket.say(&j!({"action": "ping"})).await;
    assert_eq!(socket.control().await["kind"], "pong", "the connection goes on");
}

async fn who_has_not_said_who_it_is_takes_one_place_of_four(world: &World) {
    let silent = world.anonymous().await;
    let refused = Socket::open(&world.url("/v1/stream"), None).await;
    assert!(refused.is_err(), "a second one is refused");
    // Who says it with the first request has places left.
    let stream = world.sse("").send().await.expect("an answer");
    assert_eq!(stream.status(), 200);
    drop(silent);
    // And whoever has said it makes room for the next.
    let mut known = Vec::new();
    while known.len() < 2 {
        match Socket::open(&world.url("/v1/stream"), None).await {
            Ok(mut socket) => {
                socket.say(&j!({"action": "auth", "token": world.token})).await;
                assert_eq!(socket.control().await["kind"], "authenticated");
                known.push(socket);
            }
            // The silent one is not gone yet.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}
