//! Job events on a real broker: what a consumer gets, and what nobody gets.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Stdio,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use outport_contract::{
    digest::hex,
    job_event::JobEventType,
    signature::{Delivery, HeaderValue, SignatureError, Verifier, header},
};
use outport_domain::id::JobId;
use outport_relay::{
    BatchHandler as _,
    broker::{BrokerConfig, Tenancy, Unroutable},
};
use outport_store::deliveries::DeliveryClaim;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::{
    exchange::{Exchange, Message},
    publishing::{Publishing, claim, claim_of, config, keys},
    smtp_server::python,
};

/// What a verifier of ours says of a message.
fn verify(message: &Message, exchange: &str) -> Result<(), SignatureError> {
    let delivery = Delivery { exchange, routing_key: &message.routing_key, body: &message.body };
    let headers =
        |name: &str| message.headers.get(name).map(|value| HeaderValue::Text(value.as_bytes()));
    Verifier::new(keys()).verify(headers, &delivery, 0).map(drop)
}

/// What Python's standard library says of it.
async fn verify_elsewhere(message: &Message) -> Value {
    let given = json!({
        "key": hex(keys().current().bytes()),
        "exchange": message.exchange,
        "routingKey": message.routing_key,
        "headers": message.headers,
        "body": STANDARD.encode(&message.body),
    });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/verify_message.py");
    let mut child = tokio::process::Command::new(python())
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(given.to_string().as_bytes()).await.expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().await.expect("it ends");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// Publishes one event and gives what a consumer got, exactly as it came.
async fn published(
    event: &DeliveryClaim,
    change: impl FnOnce(&mut BrokerConfig),
) -> (Exchange, Message) {
    let exchange = Exchange::declared().await;
    let inbox = exchange.bind(&["job.*"]).await;
    let mut settings = config(&exchange);
    change(&mut settings);
    let publishing = Publishing::ready(settings).await;
    assert_eq!(publishing.window(std::slice::from_ref(event)).await, [None]);
    let message = inbox.only().await;
    (exchange, message)
}

#[tokio::test]
async fn a_message_has_exactly_the_properties_and_headers_of_the_contract() {
    for event_type in JobEventType::ALL {
        let event = claim(event_type);
        let before = chrono::Utc::now();
        let (exchange, message) = published(&event, |_| ()).await;
        let (name, status, job) = (event_type.name(), event_type.status(), event.event.job);
        assert_eq!((&message.exchange, message.routing_key.as_str()), (&exchange.name, name));
        assert_eq!(message.content_type.as_deref(), Some("application/json"));
        assert_eq!(message.delivery_mode, Some(2), "persistent");
        assert_eq!(message.id, format!("fetcher.{name}.{job}"));
        assert_eq!(message.body, event.event.body.as_bytes(), "the frozen body");

        let mut headers = message.headers.clone();
        let mut take = |name: &str| headers.remove(name).unwrap_or_else(|| panic!("no {name}"));
        let (time, seconds) = (take("ce-time"), take(header::TIMESTAMP));
        let time = chrono::DateTime::parse_from_rfc3339(&time).expect("RFC 3339");
        let age = time.to_utc() - before;
        assert!((-1..60_000).contains(&age.num_milliseconds()), "of this emission: {age}");
        assert_eq!(seconds, time.timestamp().to_string());
        for signature in [header::MESSAGE, header::ATTRIBUTES] {
            let digits = take(signature);
            assert!(digits.len() == 64 && digits.bytes().all(|c| b"0123456789abcdef".contains(&c)));
        }
        let expected: BTreeMap<String, String> = [
            ("ce-specversion", "1.0"),
            ("ce-id", &message.id),
            ("ce-source", "//outport/worker"),
            ("ce-type", &format!("studio.lerian.{name}")),
            ("ce-subject", &job.to_string()),
            ("ce-resourcetype", "job"),
            ("ce-eventtype", status),
            ("ce-schemaversion", "1.0.0"),
            ("ce-datacontenttype", "application/json"),
            ("ce-tenantid", "single-tenant"),
            ("X-Tenant-ID", "single-tenant"),
            ("signature-version", "v1"),
            ("x-signature-key", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        assert_eq!(headers, expected);
    }
}

#[tokio::test]
async fn tenancy_source_and_prefix_are_those_of_the_configuration() {
    let event = claim(JobEventType::Failed);
    let (_exchange, message) = published(&event, |config| {
        config.tenancy = Tenancy::Multi;
        "urn:other:ação".clone_into(&mut config.source);
        "com.example".clone_into(&mut config.type_prefix);
    })
    .await;
    let tenant = event.event.organization.to_string();
    assert_eq!(
        (message.header("ce-tenantid"), message.header("X-Tenant-ID")),
        (&*tenant, &*tenant)
    );
    assert_eq!(message.header("ce-source"), "urn:other:ação");
    assert_eq!(message.header("ce-type"), "com.example.job.failed");
}

#[tokio::test]
async fn signatures_hold_and_a_change_of_any_signed_part_is_found() {
    let event = claim(JobEventType::Completed);
    let (exchange, message) = published(&event, |_| ()).await;
    assert_eq!(verify(&message, &exchange.name), Ok(()));
    let elsewhere = verify_elsewhere(&message).await;
    let untouched = |name: &str| (name.to_owned(), Value::Bool(false));
    let parts = ["t", "version", "tenant", "jobId", "exchange", "routingKey", "body"];
    let changed: serde_json::Map<String, Value> = parts.map(untouched).into_iter().collect();
    assert_eq!(
        elsewhere,
        json!({ "message": true, "attributes": true, "changed": changed }),
        "another implementation agrees"
    );

    let with = |name: &str, value: &str| {
        let mut other = message.clone();
        other.headers.insert(name.to_owned(), value.to_owned());
        other
    };
    let mut other_body = message.clone();
    other_body.body.push(b' ');
    let mut other_route = message.clone();
    "job.failed".clone_into(&mut other_route.routing_key);
    let job = JobId::new();
    let job_id = format!("fetcher.job.completed.{job}");
    let earlier = (message.header("t").parse::<u64>().expect("seconds") - 1).to_string();
    for (what, forged) in [
        ("tenant", with("X-Tenant-ID", "other")),
        ("job", with("ce-subject", &job.to_string())),
        ("routing key", other_route),
        ("body", other_body),
        ("time", with("t", &earlier)),
        ("version", with("signature-version", "v2")),
        ("id", with("ce-id", &job_id)),
        ("type", with("ce-type", "other")),
        ("source", with("ce-source", "other")),
        ("emission", with("ce-time", "2020-01-01T00:00:00.000Z")),
        ("tenant of the attributes", with("ce-tenantid", "other")),
    ] {
        assert!(verify(&forged, &exchange.name).is_err(), "another {what}");
    }
    assert!(verify(&message, "other").is_err(), "another exchange");
}

#[tokio::test]
async fn a_re_emission_is_the_same_event_with_an_instant_and_signatures_of_its_own() {
    let exchange = Exchange::declared().await;
    let inbox = exchange.bind(&["job.*"]).await;
    let publishing = Publishing::ready(config(&exchange)).await;
    let event = [claim(JobEventType::Completed)];
    assert_eq!(publishing.window(&event).await, [None]);
    let first = inbox.only().await;
    // Signatures are of a second: publish until the next one.
    let later = loop {
        assert_eq!(publishing.window(&event).await, [None]);
        let again = inbox.only().await;
        assert_ne!(again.header("ce-time"), first.header("ce-time"));
        if again.header("t") != first.header("t") {
            break again;
        }
    };
    for fresh in ["x-message-signature", "x-attributes-signature"] {
        assert_ne!(later.header(fresh), first.header(fresh));
    }
    assert_eq!(verify(&later, &exchange.name), Ok(()));
    let identity = |message: Message| {
        let fresh = ["ce-time", "t", "x-message-signature", "x-attributes-signature"];
        let mut message = message;
        message.headers.retain(|name, _| !fresh.contains(&name.as_str()));
        message
    };
    assert_eq!(identity(later), identity(first), "ce-id, body and all the rest");
}

#[tokio::test]
async fn a_returned_message_is_not_published_and_is_once_a_queue_takes_it() {
    let exchange = Exchange::declared().await;
    let publishing = Publishing::ready(config(&exchange)).await;
    let event = [claim(JobEventType::Completed)];
    let hour = Duration::from_hours(1);
    let told = "the broker returned it: no queue takes job.completed (312 NO_ROUTE)".to_owned();
    assert_eq!(publishing.window(&event).await, [Some((told, hour))]);
    let counts = publishing.counts();
    assert_eq!((counts.published, counts.returned), (0, 1));

    let inbox = exchange.bind(&["job.*"]).await;
    assert_eq!(publishing.window(&event).await, [None]);
    assert_eq!(inbox.only().await.body, event[0].event.body.as_bytes());
    let counts = publishing.counts();
    assert_eq!((counts.published, counts.returned), (1, 1));
}

#[tokio::test]
async fn where_nobody_has_to_take_it_it_is_recorded_as_that() {
    let exchange = Exchange::declared().await;
    let settings = BrokerConfig { unroutable: Unroutable::Accept, ..config(&exchange) };
    let publishing = Publishing::ready(settings).await;
    let inbox = exchange.bind(&["job.failed"]).await;
    let window = [claim(JobEventType::Completed), claim(JobEventType::Failed)];
    let accepted = Some(("accepted-unroutable".to_owned(), Duration::ZERO));
    assert_eq!(publishing.window(&window).await, [accepted, None]);
    assert_eq!(inbox.only().await.routing_key, "job.failed");
    let counts = publishing.counts();
    let told = (counts.published, counts.returned, counts.accepted_unroutable);
    assert_eq!(told, (1, 0, 1), "not as one that is sent again");
}

/// The client hands a returned message out with any confirm of the window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_full_windows_exactly_what_came_back_counts_as_returned() {
    let exchange = Exchange::declared().await;
    let inbox = exchange.bind(&["job.completed"]).await;
    let publishing = Publishing::ready(config(&exchange)).await;
    for round in 0..10 {
        let types = (0..500).map(|n| match (n * 7 + round) % 5 {
            0 | 3 => JobEventType::Failed,
            _ => JobEventType::Completed,
        });
        let window: Vec<DeliveryClaim> = types.map(claim).collect();
        let verdicts = publishing.window(&window).await;
        let mut expected = BTreeSet::new();
        for (claim, verdict) in window.iter().zip(verdicts) {
            let is_routable = claim.event.event_type == "job.completed";
            assert_eq!(verdict.is_none(), is_routable, "{verdict:?}");
            if is_routable {
                expected.insert(claim.event.job.to_string());
            }
        }
        let got = inbox.take().await;
        assert_eq!(got.len(), expected.len(), "each once");
        let got: BTreeSet<String> =
            got.iter().map(|message| message.header("ce-subject").to_owned()).collect();
        assert_eq!(got, expected);
    }
    assert_eq!(publishing.counts().published, 3_000);
    assert_eq!(publishing.counts().returned, 2_000);
}

#[tokio::test]
async fn an_event_of_a_later_version_waits_and_holds_nobody_up() {
    let exchange = Exchange::declared().await;
    let inbox = exchange.bind(&["#"]).await;
    let publishing = Publishing::ready(config(&exchange)).await;
    let mut later = claim_of(JobEventType::Completed, JobId::new(), "{}".to_owned());
    "job.paused".clone_into(&mut later.event.event_type);
    let window = [later, claim(JobEventType::Completed)];
    let told = "this version does not publish events of its type".to_owned();
    let hour = Duration::from_hours(1);
    assert_eq!(publishing.window(&window).await, [Some((told, hour)), None]);
    assert_eq!(inbox.only().await.body, window[1].event.body.as_bytes());
    assert_eq!(publishing.handler.event_types(), ["job.completed", "job.failed"]);
}
