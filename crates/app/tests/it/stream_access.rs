//! Access as long as a stream lasts: whose has ended is told so and nothing else, and nobody else
//! notices. Two processes on one state are one service.

use std::time::Duration;

use chrono::TimeDelta;
use outport_contract::stream::Channel;
use outport_domain::id::UserId;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json as j};

use crate::{
    api_world::{Options, World, json, on_both_stores},
    stream_world::{Socket, SseReader, quiet, until_followed, within},
};

on_both_stores!(
    a_user_who_loses_access_is_told_and_nobody_else: quiet,
    a_revoked_token_ends_its_streams: quiet,
    one_who_acts_for_another_takes_its_streams_along: quiet,
    a_revoked_channel_ends_and_no_other_one: quiet,
    an_organization_that_loses_access_loses_all_of_it: quiet,
    a_credential_that_ends_ends_its_streams: quiet,
    a_replay_ends_between_its_pages_when_access_does: quiet,
    streams_end_when_nobody_can_tell_who_lost_access: impatient,
    a_revocation_has_one_member: quiet,
);

fn impatient() -> Options {
    let mut options = quiet();
    options.stream.access_blind = Duration::from_millis(400);
    options
}

async fn revoke(world: &World, body: Value) -> StatusCode {
    let request = world
        .post("/v1/revocations")
        .header("content-type", "application/json")
        .body(body.to_string());
    request.send().await.expect("an answer").status()
}

/// Whether these are the notices of these channels, and nothing else.
fn assert_revoked(said: &[Value], channels: &[&Channel]) {
    let mut told: Vec<_> = said
        .iter()
        .map(|text| {
            assert_eq!(text["event"], "beyond-cdn-events/1");
            let events = text["data"]["events"].as_array().expect("events");
            assert_eq!(events.len(), 1);
            assert_eq!(events[0]["type"], "access.revoked");
            assert!(events[0].get("sequence").is_none(), "{text}");
            text["data"]["channel"].as_str().expect("a channel").to_owned()
        })
        .collect();
    told.sort();
    let mut expected: Vec<_> = channels.iter().map(ToString::to_string).collect();
    expected.sort();
    assert_eq!(told, expected);
}

async fn a_user_who_loses_access_is_told_and_nobody_else(world: &World) {
    let user = UserId::new();
    let theirs = world.token_for(|caller| caller.user = user).await;
    let channel = world.channel();
    let mut ours = world.socket().await;
    ours.subscribe(&channel, None).await;
    let mut lost = world.socket_of(&theirs).await;
    lost.subscribe(&channel, None).await;
    let path = format!("/v1/channels/{channel}/stream");
    let request = world.client.request(Method::GET, world.url(&path)).bearer_auth(&theirs);
    let mut stream = SseReader::open(request).await;
    stream.hear().await;
    world.append_some(1).await;
    lost.follow(0, 1).await;
    stream.follow(0, 1).await;
    assert_eq!(revoke(world, j!({"userId": user.to_string()})).await, 204);
    let (code, said) = lost.closed().await;
    assert_eq!(code, 4403);
    assert_revoked(&said, &[&channel]);
    let notice = stream.hear().await;
    assert_eq!(notice.data["events"][0]["type"], "access.revoked");
    assert_eq!(notice.id, None);
    assert_eq!(stream.next().await, None);
    for what in ["events", "snapshot", "stream"] {
        let path = format!("/v1/channels/{channel}/{what}");
        let answer = world.client.get(world.url(&path)).bearer_auth(&theirs).send().await;
        assert_eq!(answer.expect("an answer").status(), 401, "{what}");
    }
    let mut again = world.anonymous().await;
    again.say(&j!({"action": "auth", "token": theirs})).await;
    assert_eq!(again.closed().await.0, 4401);
    world.append_some(2).await;
    ours.follow(0, 3).await;
    let (_, page) = world.events("").await;
    assert_eq!(page["head"], 3, "it is nobody else's event");
}

async fn a_revoked_token_ends_its_streams(world: &World) {
    let (theirs, id) = world.make_token(world.caller(), None).await;
    let mut lost = world.socket_of(&theirs).await;
    lost.subscribe(&world.channel(), None).await;
    let mut ours = world.socket().await;
    ours.subscribe(&world.channel(), None).await;
    assert_eq!(revoke(world, j!({"tokenId": id.to_string()})).await, 204);
    let (code, said) = lost.closed().await;
    assert_eq!(code, 4403);
    assert_revoked(&said, &[&world.channel()]);
    world.append_some(1).await;
    ours.follow(0, 1).await;
}

async fn one_who_acts_for_another_takes_its_streams_along(world: &World) {
    let owner = UserId::new();
    let theirs = world.token_for(|caller| caller.user = owner).await;
    let acting = |request: reqwest::RequestBuilder| {
        request.bearer_auth(&theirs).header("x-outport-user", UserId::new().to_string())
    };
    let path = format!("/v1/channels/{}/stream", world.channel());
    let mut stream = SseReader::open(acting(world.client.get(world.url(&path)))).await;
    stream.hear().await;
    let tickets = acting(world.client.post(world.url("/v1/stream/tickets")));
    let (_, ticket) = json(tickets.send().await.expect("an answer")).await;
    let path = format!("{path}?ticket={}", ticket["ticket"].as_str().expect("a ticket"));
    let mut by_ticket = SseReader::open(world.client.get(world.url(&path))).await;
    by_ticket.hear().await;
    assert_eq!(revoke(world, j!({"userId": owner.to_string()})).await, 204);
    for stream in [&mut stream, &mut by_ticket] {
        assert_eq!(stream.hear().await.data["events"][0]["type"], "access.revoked");
        assert_eq!(stream.next().await, None);
    }
}

async fn a_revoked_channel_ends_and_no_other_one(world: &World) {
    let (all, one) =
        (world.channel(), Channel::Application(world.organization.uuid(), "shop".to_owned()));
    let mut socket = world.socket().await;
    socket.subscribe(&all, None).await;
    socket.subscribe(&one, None).await;
    assert_eq!(revoke(world, j!({"channel": one})).await, 204);
    assert_revoked(&[socket.hear().await], &[&one]);
    world.append_some(1).await;
    socket.follow(0, 1).await;
    socket.say(&j!({"action": "subscribe", "channel": one})).await;
    assert_eq!(socket.control().await["code"], "FORBIDDEN");
    for what in ["events", "snapshot", "stream"] {
        let path = format!("/v1/channels/{one}/{what}");
        let (status, problem) = json(world.get(&path).send().await.expect("an answer")).await;
        assert_eq!((status.as_u16(), &problem["code"]), (403, &j!("FORBIDDEN")), "{what}");
    }
    // The last one takes the connection with it.
    assert_eq!(revoke(world, j!({"channel": all})).await, 204);
    let (code, said) = socket.closed().await;
    assert_eq!(code, 4403);
    assert_revoked(&said, &[&all]);
}

async fn an_organization_that_loses_access_loses_all_of_it(world: &World) {
    let one = Channel::Application(world.organization.uuid(), "shop".to_owned());
    let mut socket = world.socket().await;
    socket.subscribe(&world.channel(), None).await;
    socket.subscribe(&one, None).await;
    assert_eq!(revoke(world, j!({"everybody": true})).await, 204);
    let (code, said) = socket.closed().await;
    assert_eq!(code, 4403);
    assert_revoked(&said, &[&world.channel(), &one]);
}

async fn a_credential_that_ends_ends_its_streams(world: &World) {
    let life = TimeDelta::milliseconds(1500);
    let (theirs, _) = world.make_token(world.caller(), Some(life)).await;
    let mut socket = world.socket_of(&theirs).await;
    socket.subscribe(&world.channel(), None).await;
    let path = format!("/v1/channels/{}/stream", world.channel());
    let request = world.client.request(Method::GET, world.url(&path)).bearer_auth(&theirs);
    let mut stream = SseReader::open(request).await;
    stream.hear().await;
    let (code, said) = socket.closed().await;
    assert_eq!(code, 4401);
    assert_revoked(&said, &[&world.channel()]);
    assert_eq!(stream.hear().await.data["events"][0]["type"], "access.revoked");
    assert_eq!(stream.next().await, None);
}

async fn a_replay_ends_between_its_pages_when_access_does(world: &World) {
    let user = UserId::new();
    let theirs = world.token_for(|caller| caller.user = user).await;
    let large = "x".repeat(60_000);
    for _ in 0..10 {
        world.append((0..40).map(|_| large.clone())).await;
    }
    // By requests.
    let page = async |after: u64| {
        let path = format!("/v1/channels/{}/events?after={after}&limit=2", world.channel());
        let answer = world.client.get(world.url(&path)).bearer_auth(&theirs).send().await;
        json(answer.expect("an answer")).await
    };
    assert_eq!(page(0).await.0, 200);
    // And by a stream that is in the middle of its replay: it reads no more than it must.
    let mut socket = world.socket_of(&theirs).await;
    socket.subscribe(&world.channel(), Some(0)).await;
    assert_eq!(revoke(world, j!({"userId": user.to_string()})).await, 204);
    let closed = r#"outport_stream_closed_total{transport="websocket",code="4403"} 1"#;
    within(async {
        loop {
            let answer = world.client.get(world.url("/metrics")).send().await.expect("an answer");
            if answer.text().await.expect("a page").contains(closed) {
                break;
            }
        }
    })
    .await;
    let (code, mut said) = socket.closed().await;
    assert_eq!(code, 4403);
    let last = said.pop().expect("a notice");
    assert_revoked(&[last], &[&world.channel()]);
    assert!(said.len() < 400, "the rest of the replay was not sent: {}", said.len());
    assert_eq!(page(2).await.0, 401);
}

async fn streams_end_when_nobody_can_tell_who_lost_access(world: &World) {
    let mut socket = world.socket().await;
    socket.subscribe(&world.channel(), None).await;
    let mut stream = SseReader::open(world.sse("")).await;
    stream.hear().await;
    world.force("ALTER TABLE channel_revocations RENAME TO elsewhere").await;
    assert_eq!(socket.closed().await, (1013, Vec::new()), "nobody says that access ended");
    assert_eq!(stream.next().await, None);
    world.force("ALTER TABLE elsewhere RENAME TO channel_revocations").await;
    until_followed(world).await;
}

async fn a_revocation_has_one_member(world: &World) {
    for (body, expected) in [
        (j!({}), 422),
        (j!({"userId": "x"}), 422),
        (j!({"everybody": false}), 422),
        (j!({"channel": "x"}), 422),
        (j!({"userId": UserId::new().to_string(), "everybody": true}), 422),
        (j!({"tokenId": UserId::new().to_string()}), 404),
        (j!({"channel": format!("organization:{}", UserId::new())}), 404),
        (j!({"channel": format!("job:{}", UserId::new())}), 404),
    ] {
        assert_eq!(revoke(world, body.clone()).await, expected, "{body}");
    }
    let weak = world.token_for(|caller| _ = caller.scopes.remove("tokens:admin")).await;
    let answer = world
        .client
        .post(world.url("/v1/revocations"))
        .bearer_auth(&weak)
        .header("content-type", "application/json")
        .body(r#"{"everybody":true}"#)
        .send()
        .await;
    assert_eq!(answer.expect("an answer").status(), 403);
}

/// What is posted to one process comes from the other, and so do revocations and tickets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_one_state_are_one_service() {
    World::on_postgres(quiet(), async |world: &World| {
        let neighbour = world.neighbour(quiet()).await;
        let url = format!("{}/v1/stream", neighbour.base);
        let user = UserId::new();
        let theirs = world.token_for(|caller| caller.user = user).await;
        let mut there = Socket::open(&url, Some(&theirs)).await.expect("a socket");
        assert_eq!(there.control().await["kind"], "authenticated");
        there.subscribe(&world.channel(), None).await;
        let mut here = world.socket().await;
        here.subscribe(&world.channel(), None).await;
        let post = async |base: &str, note: u64| {
            let body = j!({"scope": {}, "type": "plan.changed", "data": {"note": note}});
            let request = world
                .client
                .post(format!("{base}/v1/channels/events"))
                .bearer_auth(&world.token)
                .header("content-type", "application/json")
                .body(body.to_string());
            let (status, made) = json(request.send().await.expect("an answer")).await;
            assert_eq!(status, 201, "{made}");
            assert_eq!(made["channels"][0]["sequence"], note);
        };
        let own = world.url("");
        for note in 1..=20 {
            post(if note % 2 == 0 { &own } else { &neighbour.base }, note).await;
        }
        there.follow(0, 20).await;
        here.follow(0, 20).await;

        let bought = world.post("/v1/stream/tickets").send().await.expect("an answer");
        let (_, ticket) = json(bought).await;
        let ticket = ticket["ticket"].as_str().expect("a ticket").to_owned();
        let path = format!("/v1/channels/{}/stream?after=0&ticket={ticket}", world.channel());
        let request = world.client.get(format!("{}{path}", neighbour.base));
        let mut stream = SseReader::open(request).await;
        stream.hear().await;
        stream.follow(0, 20).await;
        let answer = world.client.get(world.url(&path)).send().await.expect("an answer");
        assert_eq!(answer.status(), 401, "it was used elsewhere");

        assert_eq!(revoke(world, j!({"userId": user.to_string()})).await, 204);
        let (code, said) = there.closed().await;
        assert_eq!(code, 4403);
        assert_revoked(&said, &[&world.channel()]);
        post(&own, 21).await;
        stream.follow(20, 21).await;
        neighbour.end().await;
        assert_eq!(stream.next().await, None, "it leaves");
        here.follow(20, 21).await;
    })
    .await;
}
