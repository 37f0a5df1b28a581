//! Brokers that are not there, exchanges that are not there, and wires that break.

use std::{collections::BTreeMap, time::Duration};

use outport_contract::job_event::JobEventType;
use outport_relay::{
    BatchHandler as _,
    broker::{BrokerConfig, Topology},
};
use outport_store::deliveries::DeliveryClaim;

use crate::{
    exchange::{Exchange, Message, server},
    publishing::{Publishing, claim, config, config_at},
    wire::{Mode, Wire},
};

const MINUTE: Duration = Duration::from_mins(1);

/// Fresh events.
pub fn window(events: usize) -> Vec<DeliveryClaim> {
    (0..events).map(|_| claim(JobEventType::Completed)).collect()
}

/// A wire to the broker of the tests, and its URL.
async fn wire() -> (Wire, String) {
    let url = url::Url::parse(&server()).expect("a URL");
    let wire = Wire::to(url.port().unwrap_or(5672)).await;
    let mut through = url;
    through.set_host(Some("127.0.0.1")).expect("a host");
    through.set_port(Some(wire.port)).expect("a port");
    (wire, through.into())
}

/// Publishes what is not done yet, again and again, as the relay does; how often it had to.
pub async fn until_done(publishing: &Publishing, events: &[DeliveryClaim]) -> usize {
    let mut left = events.to_vec();
    for round in 1..20 {
        publishing.becomes_ready().await;
        let verdicts = publishing.window(&left).await;
        let waits = verdicts.iter().zip(left).filter(|(verdict, _)| verdict.is_some());
        left = waits.map(|(_, claim)| claim).collect();
        if left.is_empty() {
            return round;
        }
    }
    panic!("{} events are never published", left.len());
}

/// Every event came, and its copies say that they are one.
pub fn all_came(events: &[DeliveryClaim], messages: &[Message]) {
    let mut bodies: BTreeMap<String, &[u8]> = BTreeMap::new();
    for message in messages {
        let body = bodies.entry(message.header("ce-id").to_owned()).or_insert(&message.body);
        assert_eq!(*body, message.body, "copies are equal");
    }
    let expected: BTreeMap<String, &[u8]> = events
        .iter()
        .map(|claim| {
            let id = format!("fetcher.{}.{}", claim.event.event_type, claim.event.job);
            (id, claim.event.body.as_bytes())
        })
        .collect();
    assert_eq!(bodies, expected);
}

#[tokio::test]
async fn an_exchange_that_is_only_looked_for_is_waited_for() {
    let exchange = Exchange::named().await;
    let settings = BrokerConfig { topology: Topology::Check, ..config(&exchange) };
    let publishing = Publishing::new(settings);
    assert!(!publishing.handler.is_ready(), "nothing is claimed");
    exchange.declare().await;
    let inbox = exchange.bind(&["#"]).await;
    publishing.becomes_ready().await;
    let events = window(1);
    assert_eq!(publishing.window(&events).await, [None]);
    all_came(&events, &inbox.take().await);
}

#[tokio::test]
async fn an_exchange_that_was_deleted_is_made_again() {
    let exchange = Exchange::declared().await;
    let publishing = Publishing::ready(config(&exchange)).await;
    exchange.delete().await;
    let events = window(20);
    for verdict in publishing.window(&events).await {
        let (error, most) = verdict.expect("not published");
        assert!(error.starts_with("the broker does not take messages: "), "{error}");
        assert_eq!(most, MINUTE);
    }
    assert_eq!(publishing.counts().published, 0);
    publishing.becomes_ready().await;
    let inbox = exchange.bind(&["#"]).await;
    assert_eq!(until_done(&publishing, &events).await, 1);
    all_came(&events, &inbox.take().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_in_mid_window_loses_nothing() {
    let exchange = Exchange::declared().await;
    let inbox = exchange.bind(&["#"]).await;
    let (wire, url) = wire().await;
    let publishing = Publishing::ready(config_at(&exchange, &url)).await;
    let mut all = Vec::new();
    for bytes in [1, 5_000, 100_000] {
        let events = window(200);
        wire.cut_after(bytes);
        for verdict in publishing.window(&events).await {
            let (error, most) = verdict.expect("nobody knows");
            assert!(error.starts_with("the connection to the broker failed: "), "{error}");
            assert_eq!(most, MINUTE);
        }
        assert_eq!(until_done(&publishing, &events).await, 1, "after {bytes} bytes");
        all.extend(events);
    }
    all_came(&all, &inbox.take().await);
    let counts = publishing.counts();
    assert_eq!((counts.published, counts.reconnects), (600, 3));
}

#[tokio::test]
async fn a_broker_that_does_not_confirm_is_not_waited_for_for_ever() {
    let exchange = Exchange::declared().await;
    let inbox = exchange.bind(&["#"]).await;
    let (wire, url) = wire().await;
    let confirm_time = Duration::from_secs(1);
    let publishing =
        Publishing::ready(BrokerConfig { confirm_time, ..config_at(&exchange, &url) }).await;
    let before = publishing.handler.window();
    wire.set(Mode::Mute);
    let events = window(3);
    let late = Some(("the broker did not confirm in time".to_owned(), MINUTE));
    assert_eq!(publishing.window(&events).await, [late.clone(), late.clone(), late]);
    assert_eq!(publishing.handler.window(), before / 2, "a smaller one may be confirmed in time");
    wire.set(Mode::Up);
    assert_eq!(until_done(&publishing, &events).await, 1);
    all_came(&events, &inbox.take().await);
    assert_eq!(publishing.handler.window(), before);
}

#[tokio::test]
async fn a_broker_that_is_away_is_sought_and_nothing_is_claimed_meanwhile() {
    let exchange = Exchange::declared().await;
    let inbox = exchange.bind(&["#"]).await;
    let (wire, url) = wire().await;
    wire.set(Mode::Down);
    let publishing = Publishing::new(config_at(&exchange, &url));
    assert!(!publishing.handler.is_ready());
    let events = window(1);
    let (error, most) = publishing.window(&events).await.remove(0).expect("not published");
    assert_eq!((error.as_str(), most), ("there is no connection to the broker", MINUTE));
    assert!(!publishing.counts().connected);
    wire.set(Mode::Up);
    publishing.becomes_ready().await;
    assert!(publishing.counts().connected);
    wire.set(Mode::Down);
    let noticed = async {
        while publishing.handler.is_ready() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::world::PATIENCE, noticed).await.expect("noticed in time");
    assert!(!publishing.counts().connected);
    wire.set(Mode::Up);
    assert_eq!(until_done(&publishing, &events).await, 1);
    all_came(&events, &inbox.take().await);
}
