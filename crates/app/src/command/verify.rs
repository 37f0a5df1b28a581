//! `outport verify`: what a consumer got, against the signatures that came with it.
//!
//! One line on standard output says what was found. Exit codes: 0 it is valid, 1 it is not, 2
//! that cannot be told.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::Utc;
use clap::{Args, Subcommand};
use outport_contract::{
    digest::Sha256Digest,
    job_event::Integrity,
    key::DerivedKey,
    key_ring::{FIRST_VERSION, KeyRing},
    signature::{Delivery, HeaderValue, ResultVerifier, SignatureError, Verifier},
};
use outport_domain::json::Members;
use serde::Deserialize;

use super::{
    Failure,
    keys::{external_digits, secret},
    terminal,
};
use crate::config::keys::EXTERNAL_KEY_VARIABLE;

#[derive(Subcommand)]
pub(super) enum VerifyCommand {
    /// A downloaded file, against the `hmac` of its event
    File(FileArguments),
    /// A message of a broker, as it was captured
    Message(MessageArguments),
}

#[derive(Args)]
pub(super) struct FileArguments {
    /// The file
    file: PathBuf,
    /// 64 lower-case hex digits: `result.hmac` of the event
    #[arg(long)]
    hmac: String,
    #[command(flatten)]
    key: Key,
}

#[derive(Args)]
pub(super) struct MessageArguments {
    /// A JSON document {"exchange", "routingKey", "headers": {name: text}, "body": base64}
    file: PathBuf,
    /// Refuses what was signed longer ago
    #[arg(long, value_name = "SECONDS")]
    most_age: Option<u64>,
    #[command(flatten)]
    key: Key,
}

#[derive(Args)]
struct Key {
    /// The version of the external key, which is read from `EXTERNAL_HMAC_KEY`, else from one
    /// line of standard input, as `outport keys external-hmac` prints it
    #[arg(long, default_value_t = FIRST_VERSION, value_name = "VERSION")]
    key_version: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Message<'a> {
    exchange: String,
    routing_key: String,
    #[serde(borrow)]
    headers: Members<'a>,
    body: String,
}

pub(super) fn run(command: VerifyCommand) -> Result<ExitCode, Failure> {
    let answer = match command {
        VerifyCommand::File(arguments) => file(&arguments),
        VerifyCommand::Message(arguments) => message(&arguments),
    };
    match answer? {
        Answer::Valid(what) => tell(&format!("valid: {what}"), ExitCode::SUCCESS),
        Answer::Invalid(word, why) => tell(&format!("{word}: {why}"), ExitCode::FAILURE),
    }
}

enum Answer {
    Valid(String),
    Invalid(&'static str, String),
}

fn file(arguments: &FileArguments) -> Result<Answer, Failure> {
    let key_version = arguments.key.key_version;
    let integrity = Integrity::new(arguments.hmac.clone(), key_version);
    let mut verifier = ResultVerifier::new(&arguments.key.ring()?, &integrity)
        .map_err(|_| Failure::Usage("--hmac must be 64 lower-case hex digits".to_owned()))?;
    let unreadable = |error: std::io::Error| cannot_read(&arguments.file, &error);
    let mut file = File::open(&arguments.file).map_err(unreadable)?;
    let mut piece = vec![0; 256 * 1024];
    let mut size_bytes = 0;
    loop {
        let read = file.read(&mut piece).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        verifier.update(&piece[..read]);
        size_bytes += read;
    }
    Ok(match verifier.finish() {
        Ok(()) => Answer::Valid(format!("the {size_bytes} bytes are those that were signed")),
        Err(error) => Answer::Invalid("forged", error.to_string()),
    })
}

fn message(arguments: &MessageArguments) -> Result<Answer, Failure> {
    let text =
        std::fs::read(&arguments.file).map_err(|error| cannot_read(&arguments.file, &error))?;
    let malformed = |error: String| {
        Failure::Usage(format!("{} is no captured message: {error}", arguments.file.display()))
    };
    let message: Message =
        serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
    let headers = headers(&message.headers).map_err(malformed)?;
    let body = STANDARD.decode(&message.body);
    let body = body.map_err(|_| malformed("body: must be base64 with padding".to_owned()))?;
    let mut verifier = Verifier::new(arguments.key.ring()?);
    if let Some(most) = arguments.most_age {
        verifier = verifier.with_most_age(Duration::from_secs(most));
    }
    let header = |name: &str| {
        let text = headers.get(name)?.as_ref();
        Some(text.map_or(HeaderValue::Other, |text| HeaderValue::Text(text.as_bytes())))
    };
    let delivery =
        Delivery { exchange: &message.exchange, routing_key: &message.routing_key, body: &body };
    let now = u64::try_from(Utc::now().timestamp()).unwrap_or_default();
    let error = match verifier.verify(header, &delivery, now) {
        Ok(sound) => {
            let (id, tenant) = (sound.event_id(), &sound.tenant);
            let what = format!("{id} of {tenant}, signed at {} (Unix time)", sound.signed_at);
            return Ok(Answer::Valid(what));
        }
        Err(error) => error,
    };
    let word = match error {
        SignatureError::Missing { .. } => "missing",
        SignatureError::Stale { .. } => "stale",
        SignatureError::Forged { .. } | SignatureError::Mismatched { .. } => "forged",
        SignatureError::Malformed { .. }
        | SignatureError::UnknownRoutingKey
        | SignatureError::UnknownForm => "malformed",
        // With that key it may be a good one.
        SignatureError::UnknownKey { .. } => {
            return Err(Failure::Usage(format!("{error}: give that key, and --key-version")));
        }
    };
    Ok(Answer::Invalid(word, error.to_string()))
}

/// The headers by name, those that are no text as none. Which of two of one name a consumer gets
/// depends on what it is written in: such a capture proves nothing.
fn headers(members: &Members<'_>) -> Result<BTreeMap<String, Option<String>>, String> {
    let mut headers = BTreeMap::new();
    for (name, value) in &members.0 {
        if headers.insert(name.clone(), serde_json::from_str(value.get()).ok()).is_some() {
            return Err(format!("headers: {name:?} is there twice"));
        }
    }
    Ok(headers)
}

impl Key {
    fn ring(&self) -> Result<KeyRing, Failure> {
        let text =
            secret(EXTERNAL_KEY_VARIABLE).map_err(|failure| Failure::Usage(failure.to_string()))?;
        let digits: Result<Sha256Digest, _> = external_digits(&text).parse();
        let Sha256Digest(key) = digits
            .map_err(|_| Failure::Usage("the external key must be 64 hex digits".to_owned()))?;
        Ok(KeyRing::new(self.key_version, DerivedKey::from_bytes(key)))
    }
}

fn cannot_read(file: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{} cannot be read: {error}", file.display()))
}

fn tell(answer: &str, code: ExitCode) -> Result<ExitCode, Failure> {
    writeln!(std::io::stdout(), "{}", terminal::text(answer))?;
    Ok(code)
}
