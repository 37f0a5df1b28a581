//! The consumers of the documents, each as a process of its own: what is genuine they do once,
//! what is not they refuse, and what they could not do stays in the queue.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{
        BasicPublishOptions, ConfirmSelectOptions, QueueBindOptions, QueueDeclareOptions,
        QueuePurgeOptions,
    },
    types::{AMQPValue, FieldTable},
};
use outport_contract::{
    job_event::{Attributes, DEFAULT_TYPE_PREFIX, JobEventType},
    key::{EXTERNAL_HMAC, MasterKey},
    key_ring::KeyRing,
    signature,
};

use crate::harness::{
    Api, PATIENCE, Process, World,
    broker::exchange::{Exchange, Message, server},
    process::{Env, Program, free_port, output},
    servers::{ROOT, node_modules, python},
    shop, until,
    world::{KEY, ORDERS},
};

/// A queue of one consumer, and the queue of what it refused.
struct Queue {
    name: String,
    dead: String,
    channel: Channel,
    exchange: String,
    _connection: Connection,
}

/// How a producer sends the values of headers.
#[derive(Clone, Copy)]
enum Form {
    Texts,
    Bytes,
}

impl Queue {
    async fn bound_to(exchange: &Exchange) -> Self {
        let connection = Connection::connect(&server(), ConnectionProperties::default()).await;
        let connection = connection.expect("RabbitMQ");
        let channel = connection.create_channel().await.expect("a channel");
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
        let name = format!("{}.consumer", exchange.name);
        let dead = format!("{name}.dead");
        let queue =
            Self { name, dead, channel, exchange: exchange.name.clone(), _connection: connection };
        queue.declare(&queue.dead, &[]).await;
        // The default exchange leads to the queue that the routing key names.
        let letters =
            [("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", queue.dead.as_str())];
        queue.declare(&queue.name, &letters).await;
        for key in JobEventType::ALL.map(JobEventType::name) {
            let (name, exchange) = (queue.name.as_str().into(), exchange.name.as_str().into());
            let options = QueueBindOptions::default();
            let bound = queue.channel.queue_bind(
                name,
                exchange,
                key.into(),
                options,
                FieldTable::default(),
            );
            bound.await.expect("a binding");
        }
        queue
    }

    async fn declare(&self, name: &str, arguments: &[(&str, &str)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        // What a test that is killed leaves behind goes by itself.
        table.insert("x-expires".into(), AMQPValue::LongInt(600_000));
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(name.into(), durable, table).await.expect("a queue");
    }

    /// Sends a message as it is, forged or not, by its exchange.
    async fn send(&self, message: &Message, form: Form) {
        let mut headers = FieldTable::default();
        for (name, value) in &message.headers {
            let value = match form {
                Form::Texts => AMQPValue::LongString(value.as_str().into()),
                Form::Bytes => AMQPValue::ByteArray(value.as_bytes().to_vec().into()),
            };
            headers.insert(name.as_str().into(), value);
        }
        let properties = BasicProperties::default().with_headers(headers);
        let (exchange, key) = (self.exchange.as_str().into(), message.routing_key.as_str().into());
        let options = BasicPublishOptions::default();
        let sent = self.channel.basic_publish(exchange, key, options, &message.body, properties);
        sent.await.expect("sent").await.expect("confirmed");
    }

    /// Messages that wait in the queue of a name, those apart that somebody has not acknowledged.
    async fn waiting(&self, name: &str) -> u32 {
        self.look(name).await.message_count()
    }

    async fn look(&self, name: &str) -> lapin::Queue {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.channel.queue_declare(name.into(), passive, FieldTable::default()).await;
        queue.expect("the queue")
    }

    async fn has(&self, name: &str, count: u32) {
        let what = format!("{count} messages wait in {name}");
        until(&what, PATIENCE, async || (self.waiting(name).await == count).then_some(())).await;
    }
}

/// A consumer of the documents, and what it is started with.
struct Consumer<'a> {
    world: &'a World,
    queue: &'a Queue,
    command: &'a dyn Fn() -> Command,
    env: Env,
    /// The first job, and its message.
    job: String,
    known: Message,
}

/// One that runs, and how many of its lines were read.
struct Running(Process, usize);

impl Consumer<'_> {
    fn start(&self, more: &[(&str, &str)]) -> Running {
        let mut env = self.env.clone();
        env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let folder = self.world.path("");
        Running(Process::spawn_command((self.command)(), "consumer", &folder, &env), 0)
    }

    /// What it has downloaded and verified.
    fn result(&self, job: &str) -> Option<String> {
        std::fs::read_to_string(Path::new(&self.env["DATA_DIR"]).join(job)).ok()
    }

    /// Ends it when all that it was given is acknowledged or refused: before that, the broker
    /// gives it no other message.
    async fn stop(&self, mut running: Running) {
        let queue = self.queue;
        queue.send(&self.known, Form::Texts).await;
        running.says("already seen ").await;
        running.0.kill();
        until("the broker sees it go", PATIENCE, async || {
            (queue.look(&queue.name).await.consumer_count() == 0).then_some(())
        })
        .await;
        let left =
            queue.channel.queue_purge(queue.name.as_str().into(), QueuePurgeOptions::default());
        let left = left.await.expect("purged");
        assert!(left <= 1, "besides the last one {left} were left");
    }
}

impl Running {
    /// Its next line begins so.
    async fn says(&mut self, begins: &str) {
        let Self(process, read) = self;
        let line = until(&format!("it says '{begins}'"), PATIENCE, async || {
            if let Some(status) = process.ended() {
                panic!("it ended as {status}:\n{}\n{}", process.said(), process.log());
            }
            let said = process.said();
            let mut whole = said.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            whole.nth(*read).map(str::to_owned)
        })
        .await;
        assert!(line.starts_with(begins), "instead of '{begins}': {line}");
        *read += 1;
    }
}

/// What a consumer is given: nothing of ours but the external key and a token.
async fn env(world: &World, queue: &Queue, api: &Api) -> Env {
    let mut command = Command::new(Program::Outport.path());
    command.args(["keys", "external-hmac"]).env("APP_ENC_KEY", KEY);
    let line = output(command).await;
    let key = line.trim().strip_prefix("External HMAC Key (hex): ").expect("the one line");
    let (url, token) = api.access();
    [
        ("AMQP_URL", server()),
        ("QUEUE", queue.name.clone()),
        ("EXTERNAL_HMAC_KEYS", format!("1:{key}")),
        ("OUTPORT_URL", url.to_owned()),
        ("OUTPORT_TOKEN", token.to_owned()),
        ("DATA_DIR", world.path("consumed").display().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

async fn consumes(command: impl Fn() -> Command) {
    let mut world = World::postgres().await;
    // A consumer sees what is done in the store; a sealed file would not even be delivered.
    world.set("OUTPORT_PROTECTION", "none");
    let api = world.all_in_one().await;
    let queue = Queue::bound_to(&world.broker.as_ref().expect("a broker").exchange).await;
    let env = env(&world, &queue, &api).await;
    let job = api.export("order").await;
    api.job_is(&job, "COMPLETED").await;
    world.settled().await;
    let known = world.messages().await.remove(0);
    let consumer = Consumer { world: &world, queue: &queue, command: &command, env, job, known };
    it_does_a_job_once(&consumer).await;
    it_refuses_what_is_forged(&consumer).await;
    it_refuses_old_messages_where_told_to(&consumer).await;
    it_refuses_a_result_that_was_changed(&consumer, &api).await;
    it_takes_failures(&consumer, &api).await;
}

async fn it_does_a_job_once(consumer: &Consumer<'_>) {
    let Consumer { queue, job, known: message, .. } = consumer;
    // Where the API cannot be reached, nothing is acknowledged and nothing is believed.
    let away = format!("http://127.0.0.1:{}", free_port());
    let Running(mut lost, _) = consumer.start(&[("OUTPORT_URL", away.as_str())]);
    assert!(!lost.end(PATIENCE).await.success(), "{}", lost.said());
    queue.has(&queue.name, 1).await;
    assert_eq!(consumer.result(job), None);

    let mut running = consumer.start(&[]);
    running.says(&format!("verified job {job}: {ORDERS} rows, HMAC ok\n")).await;
    assert_eq!(consumer.result(job), Some(shop::expected(ORDERS)));
    let again = format!("already seen fetcher.job.completed.{job}\n");
    for form in [Form::Texts, Form::Bytes] {
        queue.send(message, form).await;
        running.says(&again).await;
    }
    consumer.stop(running).await;
    // It is remembered by the next one, too.
    queue.send(message, Form::Texts).await;
    let mut next = consumer.start(&[]);
    next.says(&again).await;
    consumer.stop(next).await;
    assert_eq!(queue.waiting(&queue.dead).await, 0);
}

async fn it_refuses_what_is_forged(consumer: &Consumer<'_>) {
    let genuine = &consumer.known;
    let changed = |change: &dyn Fn(&mut Message)| {
        let mut message = genuine.clone();
        change(&mut message);
        message
    };
    let header = |name: &'static str, value: &str| {
        let value = value.to_owned();
        changed(&move |message| {
            message.headers.insert(name.to_owned(), value.clone());
        })
    };
    let other = format!("fetcher.job.completed.{}", uuid::Uuid::now_v7());
    let signature = "0".repeat(64);
    let forged = [
        changed(&|message| *message.body.last_mut().expect("a byte") ^= 1),
        changed(&|message| "job.failed".clone_into(&mut message.routing_key)),
        header("X-Tenant-ID", shop::ORGANIZATION),
        header("ce-tenantid", shop::ORGANIZATION),
        header("ce-subject", &other["fetcher.job.completed.".len()..]),
        // Believed, it would be done a second time.
        header("ce-id", &other),
        header("ce-source", "//somebody/else"),
        header("t", "1"),
        header("t", "soon"),
        header("signature-version", "v2"),
        header("x-message-signature", &signature),
        header("x-attributes-signature", "é"),
        changed(&|message| drop(message.headers.remove("x-message-signature"))),
        changed(&|message| drop(message.headers.remove("x-attributes-signature"))),
    ];
    let mut running = consumer.start(&[]);
    for (number, message) in (1..).zip(&forged) {
        let form = if number % 2 == 0 { Form::Texts } else { Form::Bytes };
        consumer.queue.send(message, form).await;
        running.says("refused forged: ").await;
        consumer.queue.has(&consumer.queue.dead, number).await;
    }
    consumer.queue.send(&header("x-signature-key", "2"), Form::Texts).await;
    running.says("refused unknown key: ").await;
    consumer.stop(running).await;
    consumer.queue.has(&consumer.queue.dead, forged.len() as u32 + 1).await;
}

/// The same event, sent two hours ago.
fn two_hours_old(message: &Message, job: &str) -> Message {
    let keys = KeyRing::new(1, MasterKey::parse(KEY).expect("a key").derive(EXTERNAL_HMAC));
    let time = chrono::Utc::now() - chrono::TimeDelta::hours(2);
    let attributes = Attributes {
        event_type: JobEventType::Completed,
        job_id: job.parse().expect("an id"),
        source: "//outport/worker".to_owned(),
        type_prefix: DEFAULT_TYPE_PREFIX.to_owned(),
        time: time.into(),
        tenant: "single-tenant".to_owned(),
    };
    let seconds = time.timestamp().unsigned_abs();
    let signed = signature::sign(&keys, &attributes, &message.exchange, &message.body, seconds);
    let all = attributes.headers().into_iter().chain(signed);
    let headers = all.map(|(name, value)| (name.to_owned(), value)).collect();
    Message { headers, ..message.clone() }
}

async fn it_refuses_old_messages_where_told_to(consumer: &Consumer<'_>) {
    let old = two_hours_old(&consumer.known, &consumer.job);
    let dead = consumer.queue.waiting(&consumer.queue.dead).await;
    let mut running = consumer.start(&[]);
    consumer.queue.send(&old, Form::Texts).await;
    running.says("already seen ").await;
    consumer.stop(running).await;
    let mut running = consumer.start(&[("MOST_AGE_SECONDS", "3600")]);
    consumer.queue.send(&old, Form::Texts).await;
    running.says("refused stale: ").await;
    consumer.stop(running).await;
    consumer.queue.has(&consumer.queue.dead, dead + 1).await;
}

async fn it_refuses_a_result_that_was_changed(consumer: &Consumer<'_>, api: &Api) {
    let job = api.export("order").await;
    let shown = api.job_is(&job, "COMPLETED").await;
    consumer.world.settled().await;
    let path = consumer.world.path("objects").join(shown["fileKey"].as_str().expect("a key"));
    let file = shop::expected(ORDERS).replace("ORD-000007", "ORD-000008");
    std::fs::write(path, file).expect("it is changed");
    let dead = consumer.queue.waiting(&consumer.queue.dead).await;
    let mut running = consumer.start(&[]);
    running.says(&format!("refused forged: job {job}: the result is not what was signed\n")).await;
    consumer.stop(running).await;
    consumer.queue.has(&consumer.queue.dead, dead + 1).await;
    assert_eq!(consumer.result(&job), None);
}

async fn it_takes_failures(consumer: &Consumer<'_>, api: &Api) {
    consumer.world.state.postgres().run("DROP TABLE shop.orders").await;
    let job = api.export("order").await;
    api.job_is(&job, "FAILED").await;
    let mut running = consumer.start(&[]);
    running.says(&format!("failed job {job}: SCHEMA_MISMATCH\n")).await;
    consumer.stop(running).await;
}

fn file(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/consumers").join(name)
}

#[tokio::test]
async fn the_consumer_in_rust_does_what_is_genuine_once_and_refuses_the_rest() {
    let program = Path::new(Program::Outport.path()).with_file_name("examples").join("consumer");
    let made = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
    assert!(
        made(&program) > made(&file("consumer.rs")).max(Some(SystemTime::UNIX_EPOCH)),
        "{} is missing or old: `cargo build -p outport --example consumer` makes it, as does a \
         run of all tests of the package",
        program.display()
    );
    consumes(|| Command::new(&program)).await;
}

#[tokio::test]
async fn the_consumer_in_python_does_what_is_genuine_once_and_refuses_the_rest() {
    consumes(|| {
        let mut command = Command::new(python());
        command.arg(file("consumer.py"));
        command
    })
    .await;
}

#[tokio::test]
async fn the_consumer_in_typescript_is_of_sound_types_does_what_is_genuine_once_and_refuses_the_rest()
 {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["consumer.ts", "package.json", "tsconfig.json"] {
        std::fs::copy(file(name), folder.path().join(name)).expect("a copy");
    }
    let modules = node_modules();
    symlink(&modules, folder.path().join("node_modules")).expect("a link");
    let mut compile = Command::new("node");
    compile.arg(modules.join("typescript/bin/tsc")).arg("--project").arg(folder.path());
    output(compile).await;
    consumes(|| {
        let mut command = Command::new("node");
        command.arg(folder.path().join("consumer.js"));
        command
    })
    .await;
}
