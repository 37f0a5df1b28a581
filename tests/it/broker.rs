//! Job events on the broker, by real processes: every end is told, late if it must be, and never
//! lost.

use std::{collections::BTreeSet, time::Duration};

use outport_contract::{
    digest::Sha256Digest,
    key::DerivedKey,
    key_ring::KeyRing,
    signature::{Delivery, HeaderValue, Verifier},
};
use outport_domain::crash::CrashPoint;

use crate::harness::{
    Api, Broker, PATIENCE, World,
    broker::{
        self,
        exchange::{Exchange, Message},
        url_at,
    },
    process::{Program, output},
    proxy::Proxy,
    shop, until,
};

/// The verifier of a consumer that was handed what `outport keys external-hmac` prints.
async fn verifier(world: &World) -> Verifier {
    let mut command = std::process::Command::new(Program::Outport.path());
    command.args(["keys", "external-hmac"]).env("APP_ENC_KEY", &world.env["APP_ENC_KEY"]);
    let line = output(command).await;
    let digits = line.trim().strip_prefix("External HMAC Key (hex): ").expect("the one line");
    let Sha256Digest(bytes) = digits.parse().expect("64 hex digits");
    Verifier::new(KeyRing::new(1, DerivedKey::from_bytes(bytes)))
}

/// The message is signed, and it is the event of the outbox to the byte.
async fn is_the_event(world: &World, verifier: &Verifier, message: &Message) {
    let delivery = Delivery {
        exchange: &message.exchange,
        routing_key: &message.routing_key,
        body: &message.body,
    };
    let headers =
        |name: &str| message.headers.get(name).map(|value| HeaderValue::Text(value.as_bytes()));
    let genuine = verifier.verify(headers, &delivery, 0).expect("genuine");
    assert_eq!(message.id, genuine.event_id());
    let sql = format!(
        "SELECT body FROM events WHERE event_type = '{}' AND job_id = '{}'",
        message.routing_key, genuine.job_id
    );
    assert_eq!(String::from_utf8_lossy(&message.body), world.state.value(&sql).await);
}

/// What the metrics page says of a name.
async fn metric(api: &Api, name: &str) -> String {
    let page = api.answer("/metrics").await.text().await.expect("a page");
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("outport_{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).to_owned()
}

#[tokio::test]
async fn every_end_is_told_once_as_the_outbox_has_it_and_signed_for_who_has_the_key() {
    let world = World::postgres().await;
    shop::add_slow(world.state.postgres(), 400, 50).await;
    let api = world.all_in_one().await;
    let completed = api.export("order").await;
    api.job_is(&completed, "COMPLETED").await;
    let canceled = api.export("slow").await;
    api.rows_have_come(&canceled).await;
    assert_eq!(api.post(&format!("/v1/exports/{canceled}/cancel")).await.0, 202);
    api.job_is(&canceled, "CANCELED").await;
    world.state.postgres().run("DROP TABLE shop.orders").await;
    let failed = api.export("order").await;
    api.job_is(&failed, "FAILED").await;
    world.settled().await;

    let messages = world.messages().await;
    let verifier = verifier(&world).await;
    let mut seen = BTreeSet::new();
    for message in &messages {
        is_the_event(&world, &verifier, message).await;
        let body: serde_json::Value = serde_json::from_slice(&message.body).expect("JSON");
        let code = body["metadata"]["error"]["code"].as_str().unwrap_or("-").to_owned();
        let job = message.header("ce-subject").to_owned();
        seen.insert((message.routing_key.clone(), job, code));
    }
    let expected = [
        ("job.completed", completed, "-"),
        ("job.failed", canceled, "CANCELED"),
        ("job.failed", failed, "SCHEMA_MISMATCH"),
    ]
    .map(|(key, job, code)| (key.to_owned(), job, code.to_owned()));
    assert_eq!(seen, expected.into());
    assert_eq!(messages.len(), 3, "each once");
    assert_eq!(metric(&api, "job_events_published_total").await, "3");
    assert_eq!(metric(&api, "job_events_oldest_unpublished_seconds").await, "0.0");
}

/// How long the broker is away, and how many jobs end meanwhile.
struct Outage {
    jobs: u32,
    lasts: Duration,
}

impl Outage {
    /// A short one; with `OUTPORT_TEST_SOAK` one of ten minutes, or of as many seconds as
    /// `OUTPORT_TEST_OUTAGE_SECONDS` says.
    fn of_this_run() -> Self {
        if std::env::var_os("OUTPORT_TEST_SOAK").is_none() {
            return Self { jobs: 30, lasts: Duration::ZERO };
        }
        let seconds = std::env::var("OUTPORT_TEST_OUTAGE_SECONDS");
        let seconds = seconds.map_or(600, |text| text.parse().expect("whole seconds"));
        Self { jobs: 1_000, lasts: Duration::from_secs(seconds) }
    }

    /// One tick for each job, spread over the outage.
    fn pace(&self) -> tokio::time::Interval {
        tokio::time::interval((self.lasts / self.jobs).max(Duration::from_millis(1)))
    }
}

#[tokio::test]
async fn a_broker_that_is_away_while_many_jobs_end_gets_all_of_them_later() {
    let outage = Outage::of_this_run();
    let mut world = World::postgres().await;
    let mut proxy = Proxy::down();
    world.set("OUTPORT_BROKER_URL", &url_at(proxy.port()));
    let mut api = world.all_in_one().await;
    let mut jobs = Vec::new();
    let mut pace = outage.pace();
    for _ in 0..outage.jobs {
        pace.tick().await;
        jobs.push(api.export("order").await);
    }
    // Machines of continuous integration are small: those that were asked for last wait for all.
    for job in jobs.iter().rev() {
        api.job_is_within(job, "COMPLETED", PATIENCE * 4).await;
    }
    assert_eq!(api.answer("/readyz").await.status(), 200, "an outage delays, and no more");
    assert_ne!(metric(&api, "job_events_oldest_unpublished_seconds").await, "0.0");
    assert_eq!(metric(&api, "job_events_connected").await, "0");
    let waiting = "SELECT count(*), sum(failures), max(status) FROM deliveries \
                   WHERE handler = 'publish-job-event'";
    let count = outage.jobs.to_string();
    let untried = [[count.as_str(), "0", "PENDING"]];
    assert_eq!(world.state.rows(waiting).await, untried, "nothing was tried");

    proxy.lead_to(broker::port()).await;
    // The pause before the next connection may have grown to a minute.
    until("it is connected", PATIENCE * 3, async || {
        (metric(&api, "job_events_connected").await == "1").then_some(())
    })
    .await;
    world.settled().await;
    let messages = world.messages().await;
    let told: BTreeSet<_> = messages.iter().map(|message| message.header("ce-subject")).collect();
    assert_eq!(told, jobs.iter().map(String::as_str).collect());
    assert_eq!(metric(&api, "job_events_published_total").await, count);
    assert!(api.process.ended().is_none(), "nobody restarted it");
}

#[tokio::test]
async fn a_worker_killed_between_confirm_and_record_tells_the_same_again() {
    let world = World::postgres().await;
    let api = world.api().await;
    api.export("order").await;
    world.worker_dying_at(CrashPoint::AfterConfirm).death(PATIENCE).await;
    let first = world.messages().await;
    assert_eq!(first.len(), 1);
    let status = "SELECT status FROM deliveries WHERE handler = 'publish-job-event'";
    assert_eq!(world.state.value(status).await, "RUNNING", "nobody knows that it was told");

    let _worker = world.worker();
    world.settled().await;
    let again = world.messages().await;
    assert_eq!(again.len(), 1);
    let verifier = verifier(&world).await;
    for message in [&first[0], &again[0]] {
        is_the_event(&world, &verifier, message).await;
    }
    assert_eq!((&again[0].id, &again[0].body), (&first[0].id, &first[0].body));
    assert_ne!(again[0].header("ce-time"), first[0].header("ce-time"), "of this emission");
    assert_eq!(world.state.value(status).await, "DONE");
}

#[tokio::test]
async fn what_no_queue_takes_is_told_from_what_was_sent_where_that_is_accepted() {
    let mut world = World::postgres().await;
    let exchange = Exchange::named().await;
    world.set("RABBITMQ_JOB_EVENTS_EXCHANGE", &exchange.name);
    world.set("OUTPORT_BROKER_UNROUTABLE", "accept");
    let api = world.all_in_one().await;
    api.export("order").await;
    let path = "/v1/deliveries?handler=publish-job-event";
    let receipt = until("it is done", PATIENCE, async || {
        let delivery = api.get(path).await["items"][0].clone();
        (delivery["status"] == "DONE").then(|| delivery["receipt"].clone())
    })
    .await;
    assert_eq!(receipt, "accepted-unroutable");
    let counts = ["published_total", "returned_total", "accepted_unroutable_total"];
    for (name, count) in counts.into_iter().zip(["0", "0", "1"]) {
        assert_eq!(metric(&api, &format!("job_events_{name}")).await, count, "{name}");
    }
}

#[tokio::test]
async fn what_no_queue_takes_is_told_of_and_delivered_when_one_does() {
    let mut world = World::postgres().await;
    let exchange = Exchange::named().await;
    world.set("RABBITMQ_JOB_EVENTS_EXCHANGE", &exchange.name);
    let api = world.all_in_one().await;
    api.export("order").await;
    let path = "/v1/deliveries?handler=publish-job-event";
    let told = until("it came back", PATIENCE, async || {
        let page = api.get(path).await;
        page["items"][0]["lastError"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(told, "the broker returned it: no queue takes job.completed (312 NO_ROUTE)");
    assert_eq!(api.get(path).await["items"][0]["status"], "PENDING");
    assert_eq!(metric(&api, "job_events_published_total").await, "0");
    assert_ne!(metric(&api, "job_events_returned_total").await, "0");

    let inbox = exchange.bind(&["job.*"]).await;
    world.broker = Some(Broker { exchange, inbox });
    world.settled().await;
    assert_eq!(world.messages().await.len(), 1);
    assert_eq!(metric(&api, "job_events_published_total").await, "1");
}
