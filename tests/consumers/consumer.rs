//! A consumer of job events: believes what Outport signed, does each job once, and keeps what it
//! has downloaded and verified in `DATA_DIR`.
//!
//! Told by `AMQP_URL`, `QUEUE`, `EXTERNAL_HMAC_KEYS` (`1:<hex>`, several separated by commas),
//! `OUTPORT_URL`, `OUTPORT_TOKEN`, `DATA_DIR`, and `MOST_AGE_SECONDS` where old messages are to be
//! refused.

#![expect(clippy::print_stdout, reason = "this program tells what it does")]

use std::{env, fs::File, io::Write as _, path::PathBuf, time::Duration};

use futures::StreamExt as _;
use lapin::{
    Connection, ConnectionProperties,
    message::Delivery as Message,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions},
    types::{AMQPValue, FieldTable},
};
use outport_contract::{
    digest::Sha256Digest,
    job_event::{JobCompleted, JobEvent},
    key::DerivedKey,
    key_ring::KeyRing,
    signature::{
        Delivery, HeaderValue, IntegrityError, ResultVerifier, SignatureError, Verified, Verifier,
    },
};
use reqwest::{
    Response, StatusCode,
    header::{CONTENT_RANGE, RANGE},
};
use serde::Deserialize;
use serde_json::Value;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Why a message is not done.
enum Failure {
    /// It, or its result, is not what Outport signed, not readable or not to be had: it is never
    /// done, and set aside.
    Refused(String),
    /// Something else is wrong, and may pass: it is to be done later.
    Later(AnyError),
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Later(error.into())
    }
}

struct Consumer {
    keys: KeyRing,
    verifier: Verifier,
    outport: reqwest::Client,
    url: String,
    token: String,
    folder: PathBuf,
    seen: rusqlite::Connection,
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let consumer = Consumer::from_environment()?;
    let (url, queue) = (env::var("AMQP_URL")?, env::var("QUEUE")?);
    let broker = Connection::connect(&url, ConnectionProperties::default()).await?;
    let channel = broker.create_channel().await?;
    // One at a time: without a limit the broker sends all that the queue holds.
    channel.basic_qos(1, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let mut messages =
        channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
    while let Some(message) = messages.next().await {
        let message = message?;
        match consumer.take(&message).await {
            Ok(said) => {
                println!("{said}");
                message.ack(BasicAckOptions::default()).await?;
            }
            Err(Failure::Refused(why)) => {
                println!("refused {why}");
                // To the dead letters of the queue, where somebody may look at it.
                message.reject(BasicRejectOptions { requeue: false }).await?;
            }
            // Nothing is acknowledged: the broker gives the message to whoever comes next.
            Err(Failure::Later(error)) => return Err(error),
        }
    }
    Err("the broker closed the connection".into())
}

impl Consumer {
    fn from_environment() -> Result<Self, AnyError> {
        let keys = keys(&env::var("EXTERNAL_HMAC_KEYS")?)?;
        let mut verifier = Verifier::new(keys.clone());
        if let Ok(seconds) = env::var("MOST_AGE_SECONDS") {
            verifier = verifier.with_most_age(Duration::from_secs(seconds.parse()?));
        }
        let folder = PathBuf::from(env::var("DATA_DIR")?);
        std::fs::create_dir_all(&folder)?;
        let seen = rusqlite::Connection::open(folder.join("seen.db"))?;
        seen.execute_batch("CREATE TABLE IF NOT EXISTS seen (event TEXT PRIMARY KEY)")?;
        let (url, token) = (env::var("OUTPORT_URL")?, env::var("OUTPORT_TOKEN")?);
        // For so long Outport may be silent.
        let outport = reqwest::Client::builder().read_timeout(Duration::from_mins(1)).build()?;
        Ok(Self { keys, verifier, outport, url, token, folder, seen })
    }

    /// Does what a message asks for, and says what was done.
    async fn take(&self, message: &Message) -> Result<String, Failure> {
        let verified = self.verify(message)?;
        let event = verified.event_id();
        let mut seen = self.seen.prepare("SELECT 1 FROM seen WHERE event = ?")?;
        if seen.exists([&event])? {
            return Ok(format!("already seen {event}"));
        }
        let said = match read(&message.data, &verified)? {
            JobEvent::Completed(job) => {
                self.fetch(&job).await?;
                format!("verified job {}: {} rows, HMAC ok", job.job_id, job.result.row_count)
            }
            JobEvent::Failed(job) => {
                let code = job.error().and_then(|error| error.code);
                format!("failed job {}: {}", job.job_id, code.unwrap_or_default())
            }
        };
        self.seen.execute("INSERT INTO seen VALUES (?)", [&event])?;
        Ok(said)
    }

    /// Both signatures, and that they speak of one event.
    fn verify(&self, message: &Message) -> Result<Verified, Failure> {
        let headers = message.properties.headers().as_ref();
        let header = |name: &str| {
            Some(match headers?.inner().get(name)? {
                AMQPValue::LongString(text) => HeaderValue::Text(text.as_bytes()),
                // Some producers send byte arrays instead of strings.
                AMQPValue::ByteArray(bytes) => HeaderValue::Text(bytes.as_slice()),
                _ => HeaderValue::Other,
            })
        };
        let delivery = Delivery {
            exchange: message.exchange.as_str(),
            routing_key: message.routing_key.as_str(),
            body: &message.data,
        };
        let now = std::time::UNIX_EPOCH.elapsed()?.as_secs();
        self.verifier.verify(header, &delivery, now).map_err(|error| {
            let word = match error {
                SignatureError::Stale { .. } => "stale",
                SignatureError::UnknownKey { .. } => "unknown key",
                _ => "forged",
            };
            Failure::Refused(format!("{word}: {error}"))
        })
    }

    /// Downloads a result beside its place, and puts it there once its HMAC is right.
    async fn fetch(&self, job: &JobCompleted) -> Result<(), Failure> {
        let integrity = &job.result.integrity;
        let verifier = ResultVerifier::new(&self.keys, integrity).map_err(|error| {
            let word = match error {
                IntegrityError::UnknownKey(_) => "unknown key",
                _ => "forged",
            };
            Failure::Refused(format!("{word}: job {}: {error}", job.job_id))
        })?;
        let part = self.folder.join(format!("{}.part", job.job_id));
        let received = self.receive(job, verifier, File::create(&part)?).await;
        if matches!(received, Err(Failure::Refused(_))) {
            std::fs::remove_file(&part)?;
        }
        received?;
        std::fs::rename(part, self.folder.join(job.job_id.to_string()))?;
        Ok(())
    }

    /// Downloads a result into a file, and verifies it.
    async fn receive(
        &self,
        job: &JobCompleted,
        mut verifier: ResultVerifier,
        mut file: File,
    ) -> Result<(), Failure> {
        self.download(job, |bytes| {
            verifier.update(bytes);
            file.write_all(bytes)
        })
        .await?;
        verifier
            .finish()
            .map_err(|error| Failure::Refused(format!("forged: job {}: {error}", job.job_id)))?;
        Ok(file.sync_all()?)
    }

    /// Hands on the bytes of a result as they come.
    async fn download(
        &self,
        job: &JobCompleted,
        mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        let (mut received, mut size) = (0, None);
        loop {
            let before = received;
            let Some(mut answer) = self.file(job, received).await? else { return Ok(()) };
            size = answer.content_length().map(|length| received + length).or(size);
            let error = loop {
                match answer.chunk().await {
                    Ok(Some(bytes)) => {
                        take(&bytes)?;
                        received += bytes.len() as u64;
                    }
                    Ok(None) => return Ok(()),
                    Err(error) => break error,
                }
            };
            // The connection ended behind the last byte: nothing is missing.
            if size == Some(received) {
                return Ok(());
            }
            // So ends a connection that breaks, and a file that is damaged further on. Asked for
            // the rest, Outport gives it, or says what is wrong with it.
            if received == before {
                return Err(error.into());
            }
        }
    }

    /// The answer that brings a result from a byte on, `None` where the result ends there.
    async fn file(&self, job: &JobCompleted, from: u64) -> Result<Option<Response>, Failure> {
        let url = format!("{}/v1/exports/{}/file", self.url, job.job_id);
        let mut request = self.outport.get(url).bearer_auth(&self.token);
        let mut expected = StatusCode::OK;
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
            expected = StatusCode::PARTIAL_CONTENT;
        }
        let answer = request.send().await?;
        let status = answer.status();
        if status == expected {
            return Ok(Some(answer));
        }
        let range = answer.headers().get(CONTENT_RANGE);
        if status == 416 && range.is_some_and(|range| *range == format!("bytes */{from}")) {
            return Ok(None);
        }
        let problem: Option<Value> = answer.json().await.ok();
        let code = problem.as_ref().and_then(|problem| problem["code"].as_str());
        let why = match (status.as_u16(), code) {
            (404 | 410, _) => format!("gone: job {} has no file", job.job_id),
            (500, Some("FILE_DAMAGED")) => {
                format!("damaged: job {}: its file is not what was written", job.job_id)
            }
            // Not of this file alone: without a valid token, too slow, too often.
            (401 | 408 | 416 | 429, _) => return Err(later(job, status)),
            (400..=499, Some(code)) => format!("not given: job {}: {code}", job.job_id),
            _ => return Err(later(job, status)),
        };
        Err(Failure::Refused(why))
    }
}

fn later(job: &JobCompleted, status: StatusCode) -> Failure {
    Failure::Later(format!("job {}: Outport answers {status}", job.job_id).into())
}

/// The job of a body as it is written: an id has one text, though others can be read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    job_id: String,
}

/// The event that a body tells of, which must be the one that it is signed for.
fn read(body: &[u8], verified: &Verified) -> Result<JobEvent, Failure> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::Refused(format!("unreadable: job {}: {why}", verified.job_id))
    };
    // Of members that it does not know, the parser does not ask that.
    let body = std::str::from_utf8(body).map_err(|error| unreadable(&error))?;
    let event = JobEvent::parse(body.as_bytes()).map_err(|error| unreadable(&error))?;
    let Named { job_id } = serde_json::from_str(body).map_err(|error| unreadable(&error))?;
    if (event.event_type(), job_id) != (verified.event_type, verified.job_id.to_string()) {
        return Err(unreadable(&"its body tells of another event"));
    }
    Ok(event)
}

/// The external keys by version. A message that names none is of key 1.
fn keys(text: &str) -> Result<KeyRing, AnyError> {
    let mut ring: Option<KeyRing> = None;
    for entry in text.split(',') {
        let (number, digits) = entry.trim().split_once(':').ok_or("a key is <version>:<hex>")?;
        let (version, Sha256Digest(key)): (u16, _) = (number.parse()?, digits.parse()?);
        if version.to_string() != number {
            return Err("a key's version has no sign and no leading zero".into());
        }
        let key = DerivedKey::from_bytes(key);
        ring = Some(match ring {
            None => KeyRing::new(version, key),
            Some(ring) => ring.and(version, key),
        });
    }
    ring.ok_or_else(|| "there is no key".into())
}
