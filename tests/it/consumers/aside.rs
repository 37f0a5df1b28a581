//! What a consumer cannot use it sets aside, and goes on with the next; what may pass ends it, and
//! nothing is acknowledged.

use axum::http::StatusCode;
use chrono::Utc;
use outport_contract::{
    digest::hex,
    key::{EXTERNAL_HMAC, MasterKey},
    sealed::{CHUNK_BYTES, HEADER_BYTES},
};
use serde_json::{Value, json};

use super::{
    Consumer,
    apis::{breaking, closing, in_trouble},
    queue::Form,
    signed,
};
use crate::harness::{
    Api, PATIENCE,
    broker::exchange::Message,
    shop,
    world::{KEY, ORDERS},
};

/// Rows of a file of three chunks and a rest.
pub const ROWS: u32 = 10_000;
/// A resource over `shop.wide` whose files are sealed.
pub const SEALED: &str = "kept";

fn new_job() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// The known message as it would be of this job, with this body.
fn with_body(consumer: &Consumer<'_>, job: &str, body: Vec<u8>) -> Message {
    signed(Message { body, ..consumer.known.clone() }, job, Utc::now())
}

/// The known body as it would be of this job, but for one member.
fn changed(consumer: &Consumer<'_>, job: &str, path: &str, value: Value) -> Vec<u8> {
    let mut body: Value = serde_json::from_slice(&consumer.known.body).expect("JSON");
    body["jobId"] = job.into();
    let member = path.split('/').fold(&mut body, |value, name| &mut value[name]);
    *member = value;
    body.to_string().into_bytes()
}

/// Bodies of a job that some reader of JSON takes, or that are of another form than ours.
fn odd(consumer: &Consumer<'_>, job: &str) -> Vec<Vec<u8>> {
    let good = changed(consumer, job, "jobId", job.into());
    let text = String::from_utf8(good.clone()).expect("UTF-8");
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} in {text}");
        text.replacen(from, to, 1).into_bytes()
    };
    let rows = format!("\"rowCount\":{ORDERS}");
    vec![
        [b"\xef\xbb\xbf", &*good].concat(),
        text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        [b"{\"unknown\":\"\xff\",", &good[1..]].concat(),
        with("\"metadata\":{", "\"metadata\":{\"n\":NaN,"),
        with("\"metadata\":{", "\"metadata\":{\"n\":-Infinity,"),
        with("\"metadata\":", "\"unknown\":"),
        with(&rows, &format!("\"rowCount\":{}", "9".repeat(20))),
        with(&rows, &format!("\"rowCount\":{}", "9".repeat(5_000))),
        changed(consumer, job, "jobId", job.to_uppercase().into()),
    ]
}

pub async fn it_sets_aside_what_it_cannot_read(consumer: &Consumer<'_>) {
    let job = new_job();
    let with = |path: &str, value: Value| changed(consumer, &job, path, value);
    let mut unreadable = vec![
        b"soon".to_vec(),
        b"\xff".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        vec![b'['; 100_000],
        // Of another job.
        consumer.known.body.clone(),
        with("status", json!("failed")),
        with("status", json!(["completed"])),
        with("result", json!(null)),
        with("result/rowCount", json!("many")),
        with("result/rowCount", json!(null)),
        with("result/integrity", json!(null)),
        with("result/integrity/algorithm", json!(7)),
        with("result/integrity/signature", json!(7)),
        with("result/integrity/keyVersion", json!(65_536)),
        with("result/integrity/keyVersion", json!(-1)),
        with("result/integrity/keyVersion", json!(1.5)),
        with("result/integrity/keyVersion", json!("1")),
        with("result/integrity/keyVersion", json!(true)),
        with("result/integrity/keyVersion", json!(null)),
    ];
    unreadable.extend(odd(consumer, &job));
    let dead = consumer.queue.waiting(&consumer.queue.dead).await;
    let mut running = consumer.start(&[]);
    for body in &unreadable {
        consumer.queue.send(&with_body(consumer, &job, body.clone()), Form::Texts).await;
        running.says(&format!("refused unreadable: job {job}: ")).await;
    }
    let no_digits = with("result/integrity/signature", json!("é"));
    consumer.queue.send(&with_body(consumer, &job, no_digits), Form::Texts).await;
    running.says(&format!("refused forged: job {job}: ")).await;
    // How a job failed is told as far as it can be read.
    let digits = "9".repeat(5_000);
    for metadata in [
        // Clients may send any number.
        &*format!(r#"{{"n":{digits},"m":[-{digits}],"o":1.{digits}e9}}"#),
        r#"{"source":"a"}"#,
        r#"{"error":"lost"}"#,
        r#"{"error":{"message":"lost","code":7}}"#,
        r#"{"error":{"message":"lost","code":"\ud800"}}"#,
    ] {
        let job = new_job();
        let body = format!(r#"{{"jobId":"{job}","status":"failed","metadata":{metadata}}}"#);
        let routing_key = "job.failed".to_owned();
        let failed = Message { routing_key, ..with_body(consumer, &job, body.into_bytes()) };
        consumer.queue.send(&signed(failed, &job, Utc::now()), Form::Texts).await;
        running.says(&format!("failed job {job}: ")).await;
    }
    consumer.stop(running).await;
    consumer.queue.has(&consumer.queue.dead, dead + unreadable.len() as u32 + 1).await;
}

/// The known message, its time of signing as this text.
fn signed_at(consumer: &Consumer<'_>, time: &str) -> Message {
    let mut message = consumer.known.clone();
    let lines =
        [time, "v1", "single-tenant", &consumer.job, &message.exchange, "job.completed", ""];
    let key = MasterKey::parse(KEY).expect("a key").derive(EXTERNAL_HMAC);
    let signature = hex(&key.hmac(&[lines.join("\n").as_bytes(), &message.body]));
    message.headers.insert("t".to_owned(), time.to_owned());
    message.headers.insert("x-message-signature".to_owned(), signature);
    message
}

pub async fn it_takes_one_text_for_a_number(consumer: &Consumer<'_>) {
    let digits = "0".repeat(64);
    let keys = ["01:", "+1:", "1_0:", "1e0:", "0x1:", "١:", "65536:", ":"];
    let mut settings: Vec<_> =
        keys.map(|version| ("EXTERNAL_HMAC_KEYS", format!("{version}{digits}"))).into();
    settings.push(("EXTERNAL_HMAC_KEYS", "1:".to_owned()));
    settings.push(("EXTERNAL_HMAC_KEYS", format!("1:{}", &digits[2..])));
    settings.extend(["", "soon", "1_0", "1e3"].map(|age| ("MOST_AGE_SECONDS", age.to_owned())));
    for (name, value) in &settings {
        let mut refusing = consumer.start(&[(*name, value.as_str())]).0;
        assert!(!refusing.end(PATIENCE).await.success(), "{name}={value}");
    }
    let dead = consumer.queue.waiting(&consumer.queue.dead).await;
    let mut running = consumer.start(&[]);
    consumer.queue.send(&signed_at(consumer, "1783965851"), Form::Texts).await;
    running.says("already seen ").await;
    let times =
        ["01783965851", " 1783965851", "+1783965851", "1_783_965_851", "1e9", "0x6a", "١", ""];
    let too_large = ["18446744073709551616".to_owned(), "9".repeat(5_000)];
    let times = times.map(str::to_owned).into_iter().chain(too_large);
    for (number, time) in (1..).zip(times) {
        consumer.queue.send(&signed_at(consumer, &time), Form::Texts).await;
        running.says("refused forged: ").await;
        consumer.queue.has(&consumer.queue.dead, dead + number).await;
    }
    consumer.stop(running).await;
}

pub async fn it_sets_aside_a_file_that_is_damaged_further_on(consumer: &Consumer<'_>, api: &Api) {
    for chunk in [None, Some(1), Some(2), Some(3)] {
        let job = api.export(SEALED).await;
        let shown = api.job_is(&job, "COMPLETED").await;
        consumer.world.settled().await;
        if let Some(chunk) = chunk {
            let key = shown["fileKey"].as_str().expect("a key");
            let path = consumer.world.path("objects").join(key);
            let mut stored = std::fs::read(&path).expect("the object");
            stored[HEADER_BYTES + chunk * (CHUNK_BYTES + 16) + 7] ^= 4;
            std::fs::write(path, stored).expect("it is changed");
        }
        let dead = consumer.queue.waiting(&consumer.queue.dead).await;
        let mut running = consumer.start(&[]);
        let said = match chunk {
            None => format!("verified job {job}: {ROWS} rows, HMAC ok\n"),
            Some(_) => format!("refused damaged: job {job}: its file is not what was written\n"),
        };
        running.says(&said).await;
        consumer.stop(running).await;
        consumer.queue.has(&consumer.queue.dead, dead + u32::from(chunk.is_some())).await;
        assert_eq!(consumer.result(&job).is_some(), chunk.is_none());
        assert_eq!(consumer.result(&format!("{job}.part")), None, "nothing of it is left");
    }
}

/// The known message as it would be of another job, with the same file.
fn another(consumer: &Consumer<'_>) -> (String, Message) {
    let job = new_job();
    let body = changed(consumer, &job, "jobId", job.as_str().into());
    let message = with_body(consumer, &job, body);
    (job, message)
}

pub async fn it_goes_on_where_a_download_broke_off(consumer: &Consumer<'_>) {
    let (job, message) = another(consumer);
    consumer.queue.send(&message, Form::Texts).await;
    // Where nothing more comes, it may be the connection: it ends.
    let broken = breaking(shop::expected(ORDERS), &[10, 0]).await;
    let mut lost = consumer.start(&[("OUTPORT_URL", broken.as_str())]).0;
    assert!(!lost.end(PATIENCE).await.success(), "{}", lost.said());
    assert_eq!(lost.said(), "");
    consumer.queue.has(&consumer.queue.name, 1).await;
    assert_eq!(consumer.result(&job), None);

    let url = breaking(shop::expected(ORDERS), &[10, 1, 100]).await;
    let mut running = consumer.start(&[("OUTPORT_URL", url.as_str())]);
    running.says(&format!("verified job {job}: {ORDERS} rows, HMAC ok\n")).await;
    assert_eq!(consumer.result(&job), Some(shop::expected(ORDERS)));
    consumer.stop(running).await;
}

pub async fn it_takes_a_file_whose_connection_ends_behind_the_last_byte(consumer: &Consumer<'_>) {
    let file = shop::expected(ORDERS);
    let (job, message) = another(consumer);
    consumer.queue.send(&message, Form::Texts).await;
    // Who says that there is more has not given all.
    let url = closing(file.clone(), &[], Some(file.len() + 1)).await;
    let mut lost = consumer.start(&[("OUTPORT_URL", url.as_str())]).0;
    assert!(!lost.end(PATIENCE).await.success(), "{}", lost.said());
    assert_eq!(lost.said(), "");
    consumer.queue.has(&consumer.queue.name, 1).await;

    let unsaid = closing(file.clone(), &[], Some(file.len())).await;
    let mut running = consumer.start(&[("OUTPORT_URL", unsaid.as_str())]);
    running.says(&format!("verified job {job}: {ORDERS} rows, HMAC ok\n")).await;
    assert_eq!(consumer.result(&job), Some(file.clone()));
    consumer.stop(running).await;

    // Where the size was told, nothing is asked for behind it.
    let (job, message) = another(consumer);
    let told = closing(file.clone(), &[10], None).await;
    let mut running = consumer.start(&[("OUTPORT_URL", told.as_str())]);
    consumer.queue.send(&message, Form::Texts).await;
    running.says(&format!("verified job {job}: {ORDERS} rows, HMAC ok\n")).await;
    assert_eq!(consumer.result(&job), Some(file));
    consumer.stop(running).await;
}

pub async fn it_sets_aside_a_file_that_it_may_not_have(consumer: &Consumer<'_>) {
    let (job, message) = another(consumer);
    consumer.queue.send(&message, Form::Texts).await;
    // A token that has expired is no fault of the message.
    let away = [
        (StatusCode::UNAUTHORIZED, r#"{"code":"UNAUTHENTICATED"}"#),
        (StatusCode::TOO_MANY_REQUESTS, r#"{"code":"RATE_LIMITED"}"#),
        (StatusCode::FORBIDDEN, "somebody else's"),
    ];
    for (status, body) in away {
        let url = in_trouble(status, body).await;
        let mut lost = consumer.start(&[("OUTPORT_URL", url.as_str())]).0;
        assert!(!lost.end(PATIENCE).await.success(), "{status}: {}", lost.said());
        consumer.queue.has(&consumer.queue.name, 1).await;
    }
    let dead = consumer.queue.waiting(&consumer.queue.dead).await;
    let url = in_trouble(StatusCode::FORBIDDEN, r#"{"code":"MISSING_SCOPE"}"#).await;
    let mut running = consumer.start(&[("OUTPORT_URL", url.as_str())]);
    running.says(&format!("refused not given: job {job}: MISSING_SCOPE\n")).await;
    consumer.stop(running).await;
    consumer.queue.has(&consumer.queue.dead, dead + 1).await;
}
