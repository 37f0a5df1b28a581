//! Events of other producers.

use outport_domain::id::OrganizationId;
use reqwest::StatusCode;
use serde_json::{Value, json as j};

use crate::{
    api_world::{World, id, json, on_both_stores},
    stream_world::quiet,
};

on_both_stores!(
    a_posted_event_is_numbered_in_the_channels_of_its_type: quiet,
    a_client_that_repeats_itself_appends_once: quiet,
    clients_that_post_the_same_at_once_append_once: quiet,
    what_breaks_the_catalogue_is_refused_by_field: quiet,
    addresses_and_credentials_are_taken_out: quiet,
    the_key_of_a_module_is_no_secret: quiet,
    what_not_every_reader_takes_in_is_refused: quiet,
    a_scope_of_others_is_not_there: quiet,
);

async fn post_as(world: &World, token: &str, body: &Value) -> (StatusCode, Value) {
    let request = world
        .client
        .post(world.url("/v1/channels/events"))
        .bearer_auth(token)
        .header("content-type", "application/json")
        .body(body.to_string());
    json(request.send().await.expect("an answer")).await
}

async fn post(world: &World, body: &Value) -> (StatusCode, Value) {
    post_as(world, &world.token, body).await
}

fn application(world: &World) -> String {
    format!("{}.shop", world.organization)
}

async fn a_posted_event_is_numbered_in_the_channels_of_its_type(world: &World) {
    let application = application(world);
    let body = j!({"scope": {"application": application}, "type": "application.changed",
        "data": {"digits": 1}});
    let (status, made) = post(world, &body).await;
    assert_eq!(status, 201, "{made}");
    let channels = j!([
        {"channel": format!("application:{application}"), "sequence": 1},
        {"channel": world.channel().to_string(), "sequence": 1},
    ]);
    assert_eq!(made["channels"], channels);
    world.append_some(1).await;
    let (_, made) = post(world, &body).await;
    assert_eq!(made["channels"][1]["sequence"], 3, "without a client id each is one more");
    let (_, page) = world.events("").await;
    assert_eq!(page["events"][2]["id"], made["id"]);
    let event = &page["events"][0];
    assert_eq!(event["stream"]["application"], application);
    assert_eq!(event["data"], j!({"digits": 1}));

    let job = world.create().await;
    let stage = j!({"stage": "generate", "done": 1, "total": null});
    let scope = j!({"organization": world.organization.to_string(), "job": job.to_string()});
    let body = j!({"scope": scope, "type": "stage.progress", "data": stage});
    let (status, made) = post(world, &body).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["channels"].as_array().map(Vec::len), Some(1));
    assert_eq!(made["channels"][0]["channel"], format!("job:{job}"));
}

async fn a_client_that_repeats_itself_appends_once(world: &World) {
    let body = j!({"scope": {}, "type": "plan.changed", "data": {}, "clientId": "plan-7"});
    let (status, first) = post(world, &body).await;
    assert_eq!(status, 201, "{first}");
    let (status, again) = post(world, &body).await;
    assert_eq!((status.as_u16(), &again), (200, &first));
    let mut other = body.clone();
    other["data"] = j!({"more": true});
    let (status, problem) = post(world, &other).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &j!("CLIENT_ID_REUSED")));
    let stranger = world.token_for(|caller| caller.organization = OrganizationId::new()).await;
    let (status, _) = post_as(world, &stranger, &body).await;
    assert_eq!(status, 201, "client ids are each organization's own");
    world.force("UPDATE posted_events SET expires_at = 1").await;
    let (status, _) = post(world, &other).await;
    assert_eq!(status, 201, "a client id has a life");
    let (_, page) = world.events("").await;
    assert_eq!(page["head"], 2);
}

async fn clients_that_post_the_same_at_once_append_once(world: &World) {
    let body = j!({"scope": {}, "type": "plan.changed", "data": {}, "clientId": "once"});
    let posts = (0..8).map(|_| post(world, &body));
    let answers = futures::future::join_all(posts).await;
    let made = answers.iter().filter(|(status, _)| *status == 201).count();
    let repeated = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!((made, repeated), (1, 7), "{answers:?}");
    let (_, page) = world.events("").await;
    assert_eq!(page["head"], 1);
}

async fn what_breaks_the_catalogue_is_refused_by_field(world: &World) {
    let ok = j!({"scope": {}, "type": "plan.changed", "data": {}});
    let with = |name: &str, value: Value| {
        let mut body = ok.clone();
        body[name] = value;
        body
    };
    let large = "x".repeat(64 * 1024);
    for (body, field, code) in [
        (j!({"type": "plan.changed", "data": {}}), "scope", "REQUIRED"),
        (j!({"scope": {}, "data": {}}), "type", "REQUIRED"),
        (j!({"scope": {}, "type": "plan.changed"}), "data", "REQUIRED"),
        (with("more", j!(1)), "more", "UNKNOWN_MEMBER"),
        (with("scope", j!([])), "scope", "INVALID_TYPE"),
        (with("scope", j!({"tenant": "x"})), "scope.tenant", "UNKNOWN_MEMBER"),
        (with("type", j!("plan.lost")), "type", "INVALID_VALUE"),
        (with("type", j!("access.revoked")), "type", "NOT_ALLOWED"),
        (with("type", j!("resync.required")), "type", "NOT_ALLOWED"),
        (with("type", j!("domain.changed")), "scope", "REQUIRED"),
        (with("data", j!([])), "data", "INVALID_VALUE"),
        (with("data", j!({"note": large})), "data", "LIMIT_EXCEEDED"),
        // However little is left of it.
        (with("data", j!({"token": large.repeat(2)})), "data", "LIMIT_EXCEEDED"),
        (with("clientId", j!("")), "clientId", "INVALID_VALUE"),
        (with("clientId", j!(7)), "clientId", "INVALID_TYPE"),
        (
            j!({"scope": {"application": application(world)}, "type": "release.ready", "data": 7}),
            "data",
            "INVALID_VALUE",
        ),
    ] {
        let (status, problem) = post(world, &body).await;
        assert_eq!(status, 422, "{field}: {problem}");
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
        assert_eq!(problem["errors"][0]["code"], code, "{problem}");
    }
    let job = world.create().await.to_string();
    for (name, data, field) in [
        ("job.failed", j!({"state": "queued"}), "data.state"),
        ("stage.started", j!({"stage": "lunch", "done": null, "total": null}), "data.stage"),
        ("log.batch", j!({"lines": [{"message": "m"}]}), "data.lines"),
    ] {
        let body = j!({"scope": {"job": job}, "type": name, "data": data});
        let (status, problem) = post(world, &body).await;
        assert_eq!((status.as_u16(), &problem["errors"][0]["field"]), (422, &j!(field)));
    }
    let (_, page) = world.events("").await;
    assert_eq!(page["head"], 0, "nothing was appended");
}

async fn addresses_and_credentials_are_taken_out(world: &World) {
    let secret = "postgres://ana:hunter2@db.internal/shop";
    let data = j!({"note": format!("lost {secret} today"), "list": [{"deep": secret}], "n": 1.5});
    let (status, _) = post(world, &j!({"scope": {}, "type": "plan.changed", "data": data})).await;
    assert_eq!(status, 201);
    let (_, page) = world.events("").await;
    let expected =
        j!({"note": "lost [redacted] today", "list": [{"deep": "[redacted]"}], "n": 1.5});
    assert_eq!(page["events"][0]["data"], expected);
    assert!(!page.to_string().contains("hunter2"));

    let hidden =
        j!({"token": ["hunter2", 7], "headers": {"X-Api-Key": "hunter2"}, "key": "hunter2"});
    let body = j!({"scope": {}, "type": "plan.changed", "data": hidden});
    let (status, _) = post(world, &body).await;
    assert_eq!(status, 201);
    let (_, page) = world.events("").await;
    let gone = "[redacted]";
    let expected = j!({"token": [gone, gone], "headers": {"X-Api-Key": gone}, "key": gone});
    assert_eq!(page["events"][1]["data"], expected);
}

async fn the_key_of_a_module_is_no_secret(world: &World) {
    let job = world.create().await;
    let data = j!({"module": "m", "key": "sha-1", "password": "hunter2"});
    let body = j!({"scope": {"job": job.to_string()}, "type": "cache.hit", "data": data});
    let (status, answer) = post(world, &body).await;
    assert_eq!(status, 201, "{answer}");
    let path = format!("/v1/channels/job:{job}/events");
    let (_, page) = json(world.get(&path).send().await.expect("an answer")).await;
    let told = page["events"].as_array().and_then(|events| events.last()).expect("an event");
    assert_eq!(told["data"], j!({"module": "m", "key": "sha-1", "password": "[redacted]"}));
}

async fn a_scope_of_others_is_not_there(world: &World) {
    let other = OrganizationId::new();
    let stranger = world.stranger(other).await;
    let theirs = world.create_with(&stranger, r#"{"resource":"order"}"#).await;
    for scope in [
        j!({"organization": other.to_string()}),
        j!({"organization": "x"}),
        j!({"application": format!("{other}.shop")}),
        j!({"application": "shop"}),
        j!({"job": theirs.to_string()}),
        j!({"job": uuid::Uuid::now_v7().to_string()}),
        j!({"job": "x"}),
    ] {
        let body = j!({"scope": scope, "type": "plan.changed", "data": {}});
        let (status, problem) = post(world, &body).await;
        assert_eq!((status.as_u16(), &problem["code"]), (404, &j!("NOT_FOUND")), "{scope}");
    }
    let body = j!({"scope": {}, "type": "plan.changed", "data": {}});
    let restricted = world.token_for(|caller| caller.companies = Some(vec![id(1)])).await;
    let (status, _) = post_as(world, &restricted, &body).await;
    assert_eq!(status, 404, "it does not see all of its organization");
    let reader = world.token_for(|caller| _ = caller.scopes.remove("events:write")).await;
    let (status, problem) = post_as(world, &reader, &body).await;
    assert_eq!((status.as_u16(), &problem["code"]), (403, &j!("MISSING_SCOPE")));
    let (_, page) = world.events("").await;
    assert_eq!(page["head"], 0, "nothing was appended");
}

/// The body goes out as it stands here: a client that makes JSON would not send this.
async fn what_not_every_reader_takes_in_is_refused(world: &World) {
    let long = "9".repeat(400);
    for value in [r#""\ud800 postgres://u:p@h/db""#, r#""\udc00""#, "1e999999", "-1e999", &long] {
        let body = format!(r#"{{"scope":{{}},"type":"plan.changed","data":{{"a":{value}}}}}"#);
        let request = world.post("/v1/channels/events").header("content-type", "application/json");
        let (status, problem) = json(request.body(body).send().await.expect("an answer")).await;
        assert_eq!(status, 422, "{value}: {problem}");
        assert_eq!(problem["errors"][0]["field"], "data", "{value}: {problem}");
    }
    let body = r#"{"scope":{},"type":"plan.changed","data":{"a":{"b":1,"b":2}}}"#;
    let request = world.post("/v1/channels/events").header("content-type", "application/json");
    let (status, problem) = json(request.body(body).send().await.expect("an answer")).await;
    assert_eq!((status.as_u16(), &problem["errors"][0]["code"]), (422, &j!("DUPLICATE")));
    assert_eq!(problem["errors"][0]["field"], "data.a.b");
    let (_, page) = world.events("").await;
    assert_eq!(page["head"], 0);
}
