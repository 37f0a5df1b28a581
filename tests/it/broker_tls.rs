//! A broker over TLS: trusted by an authority of the configuration's, or not at all.

use crate::harness::{
    PATIENCE, World, broker::secure_url, process::free_port, servers::TlsProxy, until,
};

#[tokio::test]
async fn a_broker_whose_authority_is_configured_is_spoken_to_over_tls() {
    let mut world = World::postgres().await;
    let proxy = TlsProxy::start();
    world.set("OUTPORT_BROKER_URL", &secure_url(proxy.port));
    world.set("OUTPORT_BROKER_CA_FILE", &proxy.authority());
    let api = world.all_in_one().await;
    let job = api.export("order").await;
    api.job_is(&job, "COMPLETED").await;
    world.settled().await;
    let messages = world.messages().await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].header("ce-subject"), job);
}

#[tokio::test]
async fn a_broker_whose_certificate_is_not_trusted_is_told_of_at_start() {
    let mut world = World::postgres().await;
    let (proxy, other) = (TlsProxy::start(), TlsProxy::start());
    world.set("OUTPORT_BROKER_URL", &secure_url(proxy.port));
    for authority in [String::new(), other.authority()] {
        let mut worker = world.worker_with(("OUTPORT_BROKER_CA_FILE", authority));
        assert_eq!(worker.end(PATIENCE).await.code(), Some(2), "{}", worker.log());
        let log = worker.log();
        assert!(log.contains("OUTPORT_BROKER_CA_FILE"), "{log}");
        assert!(log.contains("is signed by no authority that is trusted here"), "{log}");
        assert!(!log.contains("guest") && !log.contains("localhost"), "{log}");
    }
    // It publishes nothing, so it starts.
    world.api().await;
}

#[tokio::test]
async fn a_broker_that_is_away_is_waited_for_over_tls_too() {
    let mut world = World::postgres().await;
    world.set("OUTPORT_BROKER_URL", &secure_url(free_port()));
    let api = world.all_in_one().await;
    let job = api.export("order").await;
    api.job_is(&job, "COMPLETED").await;
    until("it says so", PATIENCE, async || {
        api.process.log().contains("no connection to the broker: events wait").then_some(())
    })
    .await;
    assert!(world.messages().await.is_empty());
}
