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
use reqwest::{Response, StatusCode};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Why a message is not done.
enum Failure {
    /// It, or its result, is not what Outport signed, or not to be had: it is never done.
    Refused(String),
    /// Something else is wrong: it is to be done later.
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
        Ok(Self { keys, verifier, outport: reqwest::Client::new(), url, token, folder, seen })
    }

    /// Does what a message asks for, and says what was done.
    async fn take(&self, message: &Message) -> Result<String, Failure> {
        let event = self.verify(message)?.event_id();
        let mut seen = self.seen.prepare("SELECT 1 FROM seen WHERE event = ?")?;
        if seen.exists([&event])? {
            return Ok(format!("already seen {event}"));
        }
        let said = match JobEvent::parse(&message.data)? {
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
        let mut verifier = ResultVerifier::new(&self.keys, integrity).map_err(|error| {
            let word = match error {
                IntegrityError::UnknownKey(_) => "unknown key",
                _ => "forged",
            };
            Failure::Refused(format!("{word}: job {}: {error}", job.job_id))
        })?;
        let mut answer = self.file(job).await?;
        let part = self.folder.join(format!("{}.part", job.job_id));
        let mut file = File::create(&part)?;
        while let Some(bytes) = answer.chunk().await? {
            verifier.update(&bytes);
            file.write_all(&bytes)?;
        }
        if let Err(error) = verifier.finish() {
            std::fs::remove_file(&part)?;
            return Err(Failure::Refused(format!("forged: job {}: {error}", job.job_id)));
        }
        file.sync_all()?;
        std::fs::rename(part, self.folder.join(job.job_id.to_string()))?;
        Ok(())
    }

    /// The answer that brings a result.
    async fn file(&self, job: &JobCompleted) -> Result<Response, Failure> {
        let url = format!("{}/v1/exports/{}/file", self.url, job.job_id);
        let answer = self.outport.get(url).bearer_auth(&self.token).send().await?;
        if matches!(answer.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Err(Failure::Refused(format!("gone: job {} has no file", job.job_id)));
        }
        let Err(error) = answer.error_for_status_ref() else { return Ok(answer) };
        // Of what went wrong over there, this alone is no better tomorrow.
        if answer.status() == StatusCode::INTERNAL_SERVER_ERROR
            && let Ok(problem) = answer.json::<serde_json::Value>().await
            && problem["code"] == "FILE_DAMAGED"
        {
            let why = format!("damaged: job {}: its file is not what was written", job.job_id);
            return Err(Failure::Refused(why));
        }
        Err(error.into())
    }
}

/// The external keys by version. A message that names none is of key 1.
fn keys(text: &str) -> Result<KeyRing, AnyError> {
    let mut ring: Option<KeyRing> = None;
    for entry in text.split(',') {
        let (version, digits) = entry.trim().split_once(':').ok_or("a key is <version>:<hex>")?;
        let (version, Sha256Digest(key)) = (version.parse()?, digits.parse()?);
        let key = DerivedKey::from_bytes(key);
        ring = Some(match ring {
            None => KeyRing::new(version, key),
            Some(ring) => ring.and(version, key),
        });
    }
    ring.ok_or_else(|| "there is no key".into())
}
