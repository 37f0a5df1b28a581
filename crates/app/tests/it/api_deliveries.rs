//! Deliveries as an administrator sees them.

use std::time::Duration;

use outport_store::deliveries::{self, DeliveryClaim, DeliveryEnd, HandlerRow};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json as j};

use crate::api_world::{World, json, on_both_stores};

on_both_stores!(
    a_dead_delivery_is_found_and_retried,
    a_delivery_that_is_done_shows_its_receipt_and_is_not_retried,
    a_backfill_gives_a_handler_older_events,
);

async fn register(world: &World, name: &str) {
    let mut tx = world.store.begin().await.expect("a transaction");
    let handler = HandlerRow { name: name.into(), event_types: vec!["export.completed".into()] };
    deliveries::register(&mut tx, &[handler]).await.expect("a registration");
    tx.commit().await.expect("a commit");
}

async fn call(
    world: &World,
    method: Method,
    path: &str,
    body: &'static str,
) -> (StatusCode, Value) {
    let request = world.request(method, path).header("content-type", "application/json").body(body);
    json(request.send().await.expect("an answer")).await
}

async fn claim(world: &World) -> DeliveryClaim {
    let mut tx = world.store.begin().await.expect("a transaction");
    let claims = deliveries::claim(&mut tx, "tell", Duration::from_mins(1), 10).await;
    let [claim] = claims.expect("claims").try_into().expect("one delivery");
    tx.commit().await.expect("a commit");
    claim
}

async fn a_delivery_that_is_done_shows_its_receipt_and_is_not_retried(world: &World) {
    register(world, "tell").await;
    // By nobody, by the handler for all, by one of those whom it found.
    for (receipts, shown) in [
        (&[][..], Value::Null),
        (&[("", "accepted-unroutable"), ("a@b.example", "<1@b>")], j!("accepted-unroutable")),
        (&[("a@b.example", "<1@b>")], j!("<1@b>")),
    ] {
        let job = world.completed().await;
        let claim = claim(world).await;
        let mut tx = world.store.begin().await.expect("a transaction");
        for (target, receipt) in receipts {
            let event = claim.event.id;
            deliveries::record_receipt(&mut tx, event, "tell", target, receipt)
                .await
                .expect("recorded");
            // Another handler's is not this one's.
            deliveries::record_receipt(&mut tx, event, "ask", "", "asked").await.expect("recorded");
        }
        let ended = deliveries::finish(&mut tx, &claim.fence, &DeliveryEnd::Done).await;
        assert!(ended.expect("an end"));
        tx.commit().await.expect("a commit");

        let path = format!("/v1/deliveries?exportJobId={}", job.id);
        let (_, page) = call(world, Method::GET, &path, "").await;
        let done = &page["items"][0];
        assert_eq!((&done["status"], &done["receipt"]), (&j!("DONE"), &shown), "{done}");
        let path = format!("/v1/deliveries/{}", done["id"].as_str().expect("an id"));
        let (status, problem) = call(world, Method::POST, &format!("{path}/retry"), "").await;
        assert_eq!((status.as_u16(), &problem["code"]), (409, &j!("DELIVERY_DONE")), "{problem}");
        assert_eq!(&call(world, Method::GET, &path, "").await.1, done, "as it was");
    }
}

async fn a_dead_delivery_is_found_and_retried(world: &World) {
    register(world, "tell").await;
    let job = world.completed().await;
    let claim = claim(world).await;
    let mut tx = world.store.begin().await.expect("a transaction");
    let end = DeliveryEnd::Dead { error: "no such mailbox".into() };
    assert!(deliveries::finish(&mut tx, &claim.fence, &end).await.expect("an end"));
    tx.commit().await.expect("a commit");

    let (status, page) =
        call(world, Method::GET, "/v1/deliveries?status=dead&handler=tell", "").await;
    assert_eq!(status, 200, "{page}");
    let [dead] = page["items"].as_array().expect("items").as_slice() else { panic!("{page}") };
    assert_eq!(dead["exportJobId"], job.id.to_string());
    assert_eq!(dead["eventType"], "export.completed");
    assert_eq!(dead["lastError"], "no such mailbox");
    assert_eq!(dead["receipt"], Value::Null);
    let path = format!("/v1/deliveries/{}", dead["id"].as_str().expect("an id"));
    let (_, one) = call(world, Method::GET, &path, "").await;
    assert_eq!(&one, dead);

    let (status, due) = call(world, Method::POST, &format!("{path}/retry"), "").await;
    assert_eq!((status.as_u16(), &due["status"]), (202, &j!("PENDING")));
    let (status, again) = call(world, Method::POST, &format!("{path}/retry"), "").await;
    assert_eq!((status.as_u16(), &again), (202, &due), "a repetition does no harm");
    let (_, page) = call(world, Method::GET, "/v1/deliveries?status=DEAD", "").await;
    assert_eq!(page["items"], j!([]));
    let (_, page) =
        call(world, Method::GET, &format!("/v1/deliveries?exportJobId={}", job.id), "").await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1));
    let (status, problem) = call(world, Method::GET, "/v1/deliveries?status=lost", "").await;
    assert_eq!((status.as_u16(), &problem["errors"][0]["field"]), (400, &j!("status")));
}

async fn a_backfill_gives_a_handler_older_events(world: &World) {
    world.completed().await;
    register(world, "late").await;
    let path = "/v1/handlers/late/backfill";
    for (body, field, code) in [
        ("{}", "since", "REQUIRED"),
        (r#"{"since":7}"#, "since", "INVALID_TYPE"),
        (r#"{"since":"yesterday"}"#, "since", "INVALID_VALUE"),
        (r#"{"since":"2020-01-01T00:00:00Z","until":1}"#, "until", "UNKNOWN_MEMBER"),
    ] {
        let (status, problem) = call(world, Method::POST, path, body).await;
        assert_eq!((status.as_u16(), &problem["errors"][0]["field"]), (422, &j!(field)), "{body}");
        assert_eq!(problem["errors"][0]["code"], code, "{body}");
    }
    let since = r#"{"since":"2020-01-01T00:00:00Z"}"#;
    let (status, filled) = call(world, Method::POST, path, since).await;
    assert_eq!((status.as_u16(), &filled), (202, &j!({"handler": "late", "deliveries": 1})));
    let (_, again) = call(world, Method::POST, path, since).await;
    assert_eq!(again["deliveries"], 0);
    for nobody in ["nobody", "%00", "late%00"] {
        let path = format!("/v1/handlers/{nobody}/backfill");
        let (status, _) = call(world, Method::POST, &path, since).await;
        assert_eq!(status, 404, "{nobody}");
    }
}
