//! `outport check` looks at the broker. What it says names the variable, and nothing of the URL.

use std::net::{Ipv4Addr, TcpListener};

use crate::{
    harness::{
        broker::{
            exchange::{Exchange, server},
            secure_url,
        },
        process::free_port,
        servers::TlsProxy,
    },
    resource_files::Place,
};

/// A configuration with this broker.
fn place(url: &str, exchange: &str) -> Place {
    let mut place = Place::with("sqlite:///nowhere.db");
    for (name, value) in [
        ("OUTPORT_BROKER_URL", url),
        ("RABBITMQ_JOB_EVENTS_EXCHANGE", exchange),
        ("STREAMING_ENABLED", "true"),
        ("STREAMING_CLOUDEVENTS_SOURCE", "//outport/worker"),
    ] {
        place.env.insert(name.to_owned(), value.to_owned());
    }
    place
}

#[tokio::test]
async fn check_connects_and_looks_for_the_exchange_or_makes_it() {
    let exchange = Exchange::named().await;
    let mut place = place(&exchange.server, &exchange.name);
    place.env.insert("OUTPORT_BROKER_TOPOLOGY".to_owned(), "check".to_owned());
    let lacks = "FAIL  broker: RABBITMQ_JOB_EVENTS_EXCHANGE: it is not there\n";
    place.outport(&["check"]).await.is(1, lacks);
    place.outport(&["check"]).await.is(1, lacks);
    place.env.remove("OUTPORT_BROKER_TOPOLOGY");
    place.outport(&["check"]).await.is(1, "ok    broker\n");
    place.env.insert("OUTPORT_BROKER_TOPOLOGY".to_owned(), "check".to_owned());
    place.outport(&["check"]).await.is(1, "ok    broker\n");
    place.env.remove("OUTPORT_BROKER_TOPOLOGY");
    place.env.insert("RABBITMQ_JOB_EVENTS_EXCHANGE".to_owned(), "amq.fanout".to_owned());
    let other = "FAIL  broker: RABBITMQ_JOB_EVENTS_EXCHANGE: it is there in another form";
    place.outport(&["check"]).await.is(1, other);
    // Where there is no broker there is no line.
    let none = Place::with("sqlite:///nowhere.db").outport(&["check"]).await;
    assert!(!none.said.contains("ok    broker") && !none.said.contains("FAIL  broker"), "{none:?}");
}

#[tokio::test]
async fn what_check_says_of_a_broker_names_the_variable_and_nothing_of_its_url() {
    let with = |change: &dyn Fn(&mut url::Url)| {
        let mut url = url::Url::parse(&server()).expect("a URL");
        change(&mut url);
        url.to_string()
    };
    let credentials = |url: &mut url::Url| {
        url.set_username("canary-user").expect("a user");
        url.set_password(Some("canary-password")).expect("a password");
    };
    // It accepts connections and says nothing.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let silent = silent.local_addr().expect("an address").port();
    let away = free_port();
    for (url, why) in [
        (with(&credentials), "it refuses the credentials"),
        (with(&|url| url.set_path("/canary-vhost")), "it refuses the virtual host"),
        (format!("amqp://canary-user:canary-password@127.0.0.1:{away}"), "refused"),
        (format!("amqp://canary-user:canary-password@127.0.0.1:{silent}"), "does not answer"),
        ("amqp://canary-user:canary-password@canary-host.invalid".to_owned(), "IO error"),
    ] {
        let came = place(&url, "outport.test.unused").outport(&["check"]).await;
        came.is(1, "FAIL  broker: OUTPORT_BROKER_URL: ");
        let line = came.said.lines().find(|line| line.starts_with("FAIL  broker")).expect("a line");
        assert!(line.contains(why), "{why}: {line}");
        let all = format!("{came:?}");
        assert!(!all.contains("canary") && !all.contains(&away.to_string()), "{all}");
    }
}

#[tokio::test]
async fn check_says_whether_the_brokers_certificate_is_trusted() {
    let proxy = TlsProxy::start();
    let exchange = Exchange::named().await;
    let mut place = place(&secure_url(proxy.port), &exchange.name);
    place.outport(&["check"]).await.is(
        1,
        "FAIL  broker: broker.caFile (OUTPORT_BROKER_CA_FILE): the broker's certificate is signed \
         by no authority that is trusted here\n",
    );
    place.env.insert("OUTPORT_BROKER_CA_FILE".to_owned(), proxy.authority());
    place.outport(&["check"]).await.is(1, "ok    broker\n");
}
