//! What only a whole broker can do to us: alarms, refusals, restarts. On a node of the test's own.

use std::{
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use outport_contract::job_event::JobEventType;
use outport_domain::id::JobId;
use outport_relay::{BatchHandler as _, broker::BrokerConfig};
use uuid::Uuid;

use crate::{
    broker_outages::{all_came, until_done, window},
    exchange::Exchange,
    publishing::{Publishing, claim_of, config},
};

/// Bytes of a message that the node takes, at most.
const MESSAGE: usize = 65_536;
/// How long a node may take to start.
const START: Duration = Duration::from_mins(2);

/// A RabbitMQ node; it goes with the value.
struct Node {
    name: String,
    port: u16,
    folder: tempfile::TempDir,
    process: Child,
}

fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("OUTPORT_TEST_RABBITMQ_PROGRAMS")
        .map_or_else(|| PathBuf::from("/usr/lib/rabbitmq/bin"), PathBuf::from);
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: run `tests/run`, it installs it", path.display());
    path
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

impl Node {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let config =
            format!("max_message_size = {MESSAGE}\nlog.console = true\nlog.file = false\n");
        std::fs::write(path("rabbitmq.conf"), config).expect("a file");
        std::fs::write(path("plugins"), "[].\n").expect("a file");
        let name = format!("outport-{}@localhost", Uuid::new_v4().simple());
        let (port, between_nodes) = (free_port(), free_port());
        let log = std::fs::File::create(path("log")).expect("a file");
        let process = Self::command(folder.path(), &name, "rabbitmq-server")
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", port.to_string())
            .env("RABBITMQ_DIST_PORT", between_nodes.to_string())
            .env("RABBITMQ_MNESIA_BASE", path("mnesia"))
            .env("RABBITMQ_LOG_BASE", path("logs"))
            .env("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            // The node is a child of a script; both are ended as a group.
            .process_group(0)
            .spawn()
            .expect("RabbitMQ's program starts");
        let node = Self { name, port, folder, process };
        let starting = async {
            while !node.answers().await {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        if tokio::time::timeout(START, starting).await.is_err() {
            let log = std::fs::read_to_string(node.folder.path().join("log")).unwrap_or_default();
            panic!("the node does not start:\n{log}");
        }
        node
    }

    /// A program that shares the node's name and cookie, and nothing with the machine's broker.
    fn command(folder: &Path, name: &str, called: &str) -> Command {
        let mut command = Command::new(program(called));
        command
            .env("HOME", folder)
            .env("RABBITMQ_NODENAME", name)
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .stdin(Stdio::null());
        command
    }

    fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}", self.port)
    }

    async fn answers(&self) -> bool {
        let properties = lapin::ConnectionProperties::default();
        lapin::Connection::connect(&self.url(), properties).await.is_ok()
    }

    async fn control(&self, arguments: &[&str]) {
        let mut command = Self::command(self.folder.path(), &self.name, "rabbitmqctl");
        let mut command = tokio::process::Command::from({
            command.args(arguments);
            command
        });
        let output = command.output().await.expect("rabbitmqctl starts");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let group = format!("-{}", self.process.id());
        let killed = Command::new("kill").args(["-KILL", "--", &group]).status();
        assert!(killed.is_ok_and(|status| status.success()) || std::thread::panicking());
        self.process.wait().expect("it has ended");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alarms_refusals_and_restarts_delay_events_and_lose_none() {
    let node = Node::start().await;
    a_message_that_costs_the_channel_costs_no_other(&node).await;
    an_alarm_is_waited_out(&node).await;
    closed_connections_and_a_restart_lose_nothing(&node).await;
}

async fn a_message_that_costs_the_channel_costs_no_other(node: &Node) {
    let exchange = Exchange::on(&node.url()).await;
    exchange.declare().await;
    let inbox = exchange.bind(&["#"]).await;
    let publishing = Publishing::ready(config(&exchange)).await;
    let mut events = window(9);
    let body = format!(r#"{{"metadata":"{}"}}"#, "x".repeat(MESSAGE));
    events.insert(4, claim_of(JobEventType::Completed, JobId::new(), body));
    let mut verdicts = publishing.window(&events).await;
    let (error, most) = verdicts.remove(4).expect("refused");
    assert!(error.starts_with("the broker refused it: "), "{error}");
    assert_eq!(most, Duration::from_hours(1));
    assert_eq!(verdicts, vec![None; 9], "the others went");
    events.remove(4);
    all_came(&events, &inbox.take().await);
    let counts = publishing.counts();
    assert_eq!((counts.published, counts.refused, counts.reconnects), (9, 1, 0));
    assert!(publishing.handler.is_ready(), "the connection is the same");
}

async fn an_alarm_is_waited_out(node: &Node) {
    let exchange = Exchange::on(&node.url()).await;
    exchange.declare().await;
    let inbox = exchange.bind(&["#"]).await;
    let confirm_time = Duration::from_secs(1);
    let publishing = Publishing::ready(BrokerConfig { confirm_time, ..config(&exchange) }).await;
    node.control(&["set_vm_memory_high_watermark", "0.0000001"]).await;
    let mut all = Vec::new();
    // The alarm goes off a moment later.
    loop {
        let events = window(3);
        let verdicts = publishing.window(&events).await;
        all.extend(events);
        assert!(all.len() < 3_000, "no alarm");
        if verdicts.iter().any(Option::is_some) {
            let told = Some(("the broker blocks publishers".to_owned(), Duration::from_mins(1)));
            assert_eq!(verdicts, vec![told; 3]);
            break;
        }
    }
    assert!(publishing.counts().blocked && publishing.counts().connected);
    assert!(!publishing.handler.is_ready(), "nothing is claimed");
    node.control(&["set_vm_memory_high_watermark", "0.4"]).await;
    let last = all.split_off(all.len() - 3);
    assert_eq!(until_done(&publishing, &last).await, 1);
    assert!(!publishing.counts().blocked);
    all.extend(last);
    all_came(&all, &inbox.take().await);
}

async fn closed_connections_and_a_restart_lose_nothing(node: &Node) {
    let exchange = Exchange::on(&node.url()).await;
    exchange.declare().await;
    let inbox = exchange.bind(&["#"]).await;
    let publishing = Publishing::ready(config(&exchange)).await;
    let mut all = window(50);
    assert_eq!(until_done(&publishing, &all).await, 1);
    node.control(&["close_all_connections", "a test"]).await;
    let more = window(50);
    until_done(&publishing, &more).await;
    all.extend(more);
    node.control(&["stop_app"]).await;
    assert!(!publishing.handler.is_ready(), "nobody is there");
    node.control(&["start_app"]).await;
    let more = window(50);
    until_done(&publishing, &more).await;
    all.extend(more);
    all_came(&all, &inbox.again(&node.url()).await.take().await);
    assert!(publishing.counts().reconnects >= 2);
}
