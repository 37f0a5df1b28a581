//! Channels over plain requests: pages, cursors, snapshots, and who may see them.

use outport_contract::stream::Channel;
use outport_domain::id::OrganizationId;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json as j};

use crate::{
    api_world::{World, id, json, on_both_stores},
    stream_world::quiet,
};

on_both_stores!(
    a_channel_is_replayed_in_contiguous_pages: quiet,
    a_cursor_that_cannot_be_trusted_is_told_to_resync: quiet,
    a_malformed_cursor_is_refused,
    a_page_of_large_events_ends_early: quiet,
    a_snapshot_says_where_to_go_on_from: quiet,
    a_channel_is_for_those_who_may_see_all_that_it_is_about: quiet,
);

fn sequences(page: &Value) -> Vec<u64> {
    let events = page["events"].as_array().expect("events").iter();
    events.map(|event| event["sequence"].as_u64().expect("a sequence")).collect()
}

async fn a_channel_is_replayed_in_contiguous_pages(world: &World) {
    let (status, empty) = world.events("").await;
    assert_eq!(status, 200, "{empty}");
    assert_eq!((&empty["floor"], &empty["head"], &empty["events"]), (&j!(0), &j!(0), &j!([])));
    assert_eq!(empty["protocol"], "beyond-cdn-events/1");
    assert_eq!(empty["channel"], world.channel().to_string());
    assert_eq!(empty["epoch"], world.epoch().await);
    world.append_some(250).await;
    let (_, page) = world.events("").await;
    assert_eq!(sequences(&page), (1..=100).collect::<Vec<_>>(), "a hundred when nothing is said");
    let event = &page["events"][0];
    assert!(event["id"].as_str().is_some_and(|id| id.starts_with("evt_")), "{event}");
    assert_eq!(event["stream"], j!({"organization": world.organization.to_string()}));
    assert_eq!((&event["type"], &event["data"]["note"]), (&j!("plan.changed"), &j!("0")));
    let mut after = 0;
    loop {
        let (_, page) = world.events(&format!("?after={after}&limit=99")).await;
        assert_eq!(page["head"], 250);
        let seen = sequences(&page);
        let Some(last) = seen.last() else { break };
        assert_eq!(seen, (after + 1..=*last).collect::<Vec<_>>());
        after = *last;
    }
    assert_eq!(after, 250);
    let (_, whole) = world.events("?after=0&limit=1000").await;
    assert_eq!(sequences(&whole).len(), 250);
}

async fn a_cursor_that_cannot_be_trusted_is_told_to_resync(world: &World) {
    world.append_some(5).await;
    world
        .force("UPDATE channels SET floor = 2; DELETE FROM channel_events WHERE sequence <= 2")
        .await;
    let epoch = world.epoch().await;
    for (query, expected) in [
        ("?after=0".to_owned(), None),
        ("?after=1".to_owned(), None),
        ("?after=2".to_owned(), Some(3)),
        ("?after=5".to_owned(), Some(0)),
        (format!("?after=5&epoch={epoch}"), Some(0)),
        ("?after=6".to_owned(), None),
        ("?after=18446744073709551615".to_owned(), None),
        ("?after=5&epoch=another".to_owned(), None),
    ] {
        let (status, answer) = world.events(&query).await;
        if let Some(events) = expected {
            assert_eq!((status.as_u16(), sequences(&answer).len()), (200, events), "{query}");
            continue;
        }
        assert_eq!(status, 410, "{query}: {answer}");
        assert_eq!(answer["code"], "resync.required", "{query}");
        let place = [&answer["floor"], &answer["head"], &answer["epoch"]];
        assert_eq!(place, [&j!(2), &j!(5), &j!(epoch)], "{query}");
        assert!(answer.get("events").is_none(), "never a part of it");
    }
    let mut tx = world.store.begin().await.expect("a transaction");
    let next = outport_store::channels::new_epoch(&mut tx).await.expect("an epoch");
    tx.commit().await.expect("a commit");
    let (status, answer) = world.events(&format!("?after=5&epoch={epoch}")).await;
    assert_eq!((status.as_u16(), &answer["epoch"]), (410, &j!(next)));
}

async fn a_malformed_cursor_is_refused(world: &World) {
    for query in [
        "?after=-1",
        "?after=%2B1",
        "?after=01",
        "?after=1.5",
        "?after=",
        "?after=x",
        "?after=18446744073709551616",
        "?limit=0",
        "?limit=1001",
        "?limit=-1",
        "?limit=x",
        "?epoch=",
        "?cursor=1",
        "?after=1&after=1",
    ] {
        let (status, problem) = world.events(query).await;
        assert_eq!(
            (status.as_u16(), problem["code"].as_str()),
            (400, Some("INVALID_PARAMETER")),
            "{query}"
        );
        assert!(problem.get("head").is_none(), "{problem}");
    }
}

async fn a_page_of_large_events_ends_early(world: &World) {
    let large = "x".repeat(60_000);
    world.append((0..40).map(|_| large.clone())).await;
    let (_, page) = world.events("?limit=1000").await;
    let first = sequences(&page);
    assert!((17..=19).contains(&first.len()), "about a mebibyte: {}", first.len());
    let (_, rest) = world.events(&format!("?limit=1000&after={}", first.len())).await;
    assert_eq!(sequences(&rest)[0], first.len() as u64 + 1);
    let huge = "x".repeat(3_000_000);
    world.append([huge.clone(), huge]).await;
    let (_, page) = world.events("?after=40").await;
    assert_eq!(sequences(&page), [41], "one at least");
}

async fn a_snapshot_says_where_to_go_on_from(world: &World) {
    let snapshot = async |channel: String| {
        let path = format!("/v1/channels/{channel}/snapshot");
        let (status, snapshot) = json(world.get(&path).send().await.expect("an answer")).await;
        assert_eq!(status, 200, "{snapshot}");
        snapshot
    };
    world.append_some(3).await;
    let done = world.completed().await;
    let waiting = world.create().await;
    let whole = snapshot(world.channel().to_string()).await;
    let ids: Vec<_> = whole["jobs"].as_array().expect("jobs").iter().collect();
    let ids: Vec<_> = ids.iter().map(|job| job["exportJobId"].as_str().unwrap_or("")).collect();
    assert_eq!(ids, [waiting.to_string(), done.id.to_string()]);
    assert_eq!(whole["sequence"], whole["head"]);
    let (_, page) = world.events(&format!("?after={}", whole["sequence"])).await;
    assert_eq!(page["events"], j!([]), "nothing has happened since");
    assert_eq!(whole["epoch"], world.epoch().await);

    for (name, jobs) in [("outport", 2), ("another", 0)] {
        let application = format!("application:{}.{name}", world.organization);
        let shown = snapshot(application).await["jobs"].as_array().map(Vec::len);
        assert_eq!(shown, Some(jobs), "{name}");
    }
    let job = Channel::Job(done.id.uuid()).to_string();
    let one = snapshot(job.clone()).await;
    assert_eq!(one["channel"], job);
    assert_eq!(one["jobs"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["jobs"][0]["status"], "COMPLETED");
}

async fn call(world: &World, token: &str, path: &str) -> (StatusCode, Value) {
    let request = world.client.request(Method::GET, world.url(path)).bearer_auth(token);
    json(request.send().await.expect("an answer")).await
}

async fn a_channel_is_for_those_who_may_see_all_that_it_is_about(world: &World) {
    world.append_some(1).await;
    let job = world.create().await;
    let stranger = world.stranger(OrganizationId::new()).await;
    let restricted = world.token_for(|caller| caller.companies = Some(vec![id(1)])).await;
    let scopeless = world.token_for(|caller| caller.scopes = ["exports:write".into()].into()).await;
    let own = world.token_for(|caller| caller.scopes = ["events:read".into()].into()).await;
    let organization = world.organization;
    let channels = [
        format!("job:{job}"),
        format!("organization:{organization}"),
        format!("application:{organization}.outport"),
    ];
    for what in ["events", "snapshot", "stream"] {
        let unknown = format!("/v1/channels/job:{}/{what}", uuid::Uuid::now_v7());
        let (_, nothing) = call(world, &stranger, &unknown).await;
        for channel in &channels {
            let path = format!("/v1/channels/{channel}/{what}");
            for token in [&stranger, &restricted] {
                let (status, problem) = call(world, token, &path).await;
                assert_eq!((status.as_u16(), &problem), (404, &nothing), "{path}");
            }
            let (status, problem) = call(world, &scopeless, &path).await;
            assert_eq!((status.as_u16(), &problem["code"]), (403, &j!("MISSING_SCOPE")), "{path}");
            let answer = world.client.get(world.url(&path)).send().await.expect("an answer");
            assert_eq!(answer.status(), 401, "{path}");
            let answer = world.client.get(world.url(&path)).bearer_auth(&own).send().await;
            assert_eq!(answer.expect("an answer").status(), 200, "{path}");
        }
        for channel in ["job:x", "jobs:1", &format!("job:{}", job.to_string().to_uppercase())] {
            let (status, _) = call(world, &own, &format!("/v1/channels/{channel}/{what}")).await;
            assert_eq!(status, 404, "{channel}");
        }
    }
    let theirs = world.token_for(|caller| caller.companies = Some(vec![id(1)])).await;
    let body = r#"{"resource":"order","companyId":"00000000-0000-0000-0000-000000000001"}"#;
    let job = world.create_with(&theirs, body).await;
    let (status, _) = call(world, &theirs, &format!("/v1/channels/job:{job}/events")).await;
    assert_eq!(status, 200, "a job that it may see");
}
