//! The consumers of the documents, each as a process of its own: what is genuine they do once,
//! what is not they refuse, and what they could not do stays in the queue.

mod apis;
mod aside;
mod queue;

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use axum::http::StatusCode;
use chrono::{DateTime, TimeDelta, Utc};
use lapin::types::{AMQPValue, FieldTable};
use outport_contract::{
    job_event::{Attributes, DEFAULT_TYPE_PREFIX, JobEventType},
    key::{EXTERNAL_HMAC, MasterKey},
    key_ring::KeyRing,
    signature,
};
use serde_json::Value;

use self::{
    apis::in_trouble,
    queue::{Form, Queue},
};
use crate::harness::{
    Api, PATIENCE, Process, World,
    broker::exchange::{Message, server},
    process::{Env, Program, free_port, output},
    servers::{ROOT, node_modules, python},
    shop, until,
    world::{KEY, ORDERS},
};

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
        self.queue.send(&self.known, Form::Texts).await;
        running.says("already seen ").await;
        running.0.kill();
        let left = self.queue.emptied().await;
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
    // A consumer sees what is done in the store; of a sealed file nothing changed is delivered.
    world.set("OUTPORT_PROTECTION", "none");
    shop::add_wide(world.state.postgres(), aside::ROWS, 10).await;
    let sealed = shop::resource(aside::SEALED, "shop.wide", "\"code\"");
    world.declare_file(aside::SEALED, &format!("protection = \"sealed\"\n{sealed}"));
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
    it_refuses_a_result_whose_key_it_has_not(&consumer).await;
    it_refuses_a_result_that_was_changed_or_damaged(&consumer, &api).await;
    aside::it_takes_one_text_for_a_number(&consumer).await;
    aside::it_sets_aside_what_it_cannot_read(&consumer).await;
    aside::it_sets_aside_a_file_that_is_damaged_further_on(&consumer, &api).await;
    aside::it_goes_on_where_a_download_broke_off(&consumer).await;
    aside::it_takes_a_file_whose_connection_ends_behind_the_last_byte(&consumer).await;
    aside::it_sets_aside_a_file_that_it_may_not_have(&consumer).await;
    it_takes_failures(&consumer, &api).await;
}

async fn it_does_a_job_once(consumer: &Consumer<'_>) {
    let Consumer { queue, job, known: message, .. } = consumer;
    // Where the API cannot be reached, or says that it is in trouble, nothing is acknowledged and
    // nothing is believed.
    let away = [
        format!("http://127.0.0.1:{}", free_port()),
        in_trouble(StatusCode::INTERNAL_SERVER_ERROR, r#"{"code":"INTERNAL"}"#).await,
        in_trouble(StatusCode::INTERNAL_SERVER_ERROR, "FILE_DAMAGED").await,
        in_trouble(StatusCode::SERVICE_UNAVAILABLE, r#"{"code":"STORAGE_UNAVAILABLE"}"#).await,
    ];
    for url in &away {
        let Running(mut lost, _) = consumer.start(&[("OUTPORT_URL", url.as_str())]);
        assert!(!lost.end(PATIENCE).await.success(), "{url}: {}", lost.said());
        assert_eq!(lost.said(), "", "{url}");
        queue.has(&queue.name, 1).await;
        assert_eq!(consumer.result(job), None);
    }

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
    let upper = |name: &str| genuine.headers[name].to_uppercase();
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
        header("x-signature-key", ""),
        header("x-signature-key", "01"),
        header("x-signature-key", "+1"),
        header("x-signature-key", " 1"),
        header("x-signature-key", "1_0"),
        header("x-signature-key", "1e0"),
        header("x-signature-key", "0x1"),
        header("x-signature-key", "١"),
        header("x-signature-key", "65536"),
        header("x-message-signature", &signature),
        header("x-message-signature", &upper("x-message-signature")),
        header("x-attributes-signature", "é"),
        header("x-attributes-signature", &upper("x-attributes-signature")),
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
    // Only where the header is not there at all, key 1 is meant.
    for no_text in [AMQPValue::Void, AMQPValue::LongInt(1)] {
        let mut headers = FieldTable::default();
        headers.insert("x-signature-key".into(), no_text);
        consumer.queue.send_with(genuine, Form::Texts, headers).await;
        running.says("refused forged: ").await;
    }
    consumer.queue.send(&header("x-signature-key", "2"), Form::Texts).await;
    running.says("refused unknown key: ").await;
    consumer.stop(running).await;
    consumer.queue.has(&consumer.queue.dead, forged.len() as u32 + 3).await;
}

/// The message as it would be of this job, signed at this time.
fn signed(message: Message, job: &str, time: DateTime<Utc>) -> Message {
    let keys = KeyRing::new(1, MasterKey::parse(KEY).expect("a key").derive(EXTERNAL_HMAC));
    let attributes = Attributes {
        event_type: JobEventType::from_name(&message.routing_key).expect("an event"),
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
    Message { headers, ..message }
}

async fn it_refuses_old_messages_where_told_to(consumer: &Consumer<'_>) {
    let old = signed(consumer.known.clone(), &consumer.job, Utc::now() - TimeDelta::hours(2));
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

/// The message is signed with a key that is known, and the result with one that is not.
async fn it_refuses_a_result_whose_key_it_has_not(consumer: &Consumer<'_>) {
    let job = uuid::Uuid::now_v7().to_string();
    let mut body: Value = serde_json::from_slice(&consumer.known.body).expect("JSON");
    body["jobId"] = job.as_str().into();
    body["result"]["integrity"]["keyVersion"] = 2.into();
    let message = Message { body: body.to_string().into_bytes(), ..consumer.known.clone() };
    let dead = consumer.queue.waiting(&consumer.queue.dead).await;
    let mut running = consumer.start(&[]);
    consumer.queue.send(&signed(message, &job, Utc::now()), Form::Texts).await;
    running.says(&format!("refused unknown key: job {job}: ")).await;
    consumer.stop(running).await;
    consumer.queue.has(&consumer.queue.dead, dead + 1).await;
}

async fn it_refuses_a_result_that_was_changed_or_damaged(consumer: &Consumer<'_>, api: &Api) {
    let changed = shop::expected(ORDERS).replace("ORD-000007", "ORD-000008");
    // What has another length the API does not even give out.
    let cut = changed[..changed.len() - 1].to_owned();
    for (file, why) in [
        (changed, "forged: job {}: the result is not what was signed"),
        (cut, "damaged: job {}: its file is not what was written"),
    ] {
        let job = api.export("order").await;
        let shown = api.job_is(&job, "COMPLETED").await;
        consumer.world.settled().await;
        let path = consumer.world.path("objects").join(shown["fileKey"].as_str().expect("a key"));
        std::fs::write(path, file).expect("it is changed");
        let dead = consumer.queue.waiting(&consumer.queue.dead).await;
        let mut running = consumer.start(&[]);
        running.says(&format!("refused {}\n", why.replace("{}", &job))).await;
        // Others are done: one damaged file stops nobody.
        consumer.stop(running).await;
        consumer.queue.has(&consumer.queue.dead, dead + 1).await;
        assert_eq!(consumer.result(&job), None);
    }
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
