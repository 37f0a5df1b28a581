//! The commands that a consumer's operator uses: keys handed out, and what arrived verified.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use outport_contract::{
    job_event::{Attributes, DEFAULT_TYPE_PREFIX, JobEventType},
    key::{EXTERNAL_HMAC, MasterKey},
    key_ring::KeyRing,
    signature,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{process::Program, servers::ROOT};

fn vectors() -> Value {
    let text = std::fs::read_to_string(format!("{ROOT}/tests/golden/vectors.json"));
    serde_json::from_str(&text.expect("the vectors")).expect("JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// Exit code, standard output and standard error of a command.
fn said(arguments: &[&str], env: &[(&str, &str)], input: &str) -> (i32, String, String) {
    let mut child = Command::new(Program::Outport.path())
        .args(arguments)
        .env_clear()
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // It may end without reading.
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).ok();
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
}

#[test]
fn the_external_key_is_one_line_from_the_environment_or_from_standard_input() {
    let vectors = vectors();
    let master = text(&vectors["masterKeyBase64"]);
    let external = text(&vectors["derived"]["fetcher-external-hmac-v1"]);
    let line = format!("External HMAC Key (hex): {external}\n");
    let command = ["keys", "external-hmac"];
    let good = (0, line, String::new());
    assert_eq!(said(&command, &[("APP_ENC_KEY", master)], ""), good);
    assert_eq!(said(&command, &[], &format!("{master}\n")), good);
    assert_eq!(said(&command, &[("APP_ENC_KEY", "")], &format!(" {master}\r\nmore\n")), good);
    for (env, input, rule) in [
        (vec![("APP_ENC_KEY", "c2VjcmV0")], master, "at least 32 are needed"),
        (vec![], "not base64!\n", "not standard base64 with padding"),
        (vec![], "", "set APP_ENC_KEY, or give it on one line of standard input"),
    ] {
        let (code, out, error) = said(&command, &env, input);
        assert_eq!((code, out.as_str()), (1, ""), "{error}");
        assert!(error.contains(rule), "{error}");
        assert!(!error.contains("c2VjcmV0") && !error.contains("not base64!"), "{error}");
    }
}

#[test]
fn a_file_is_valid_or_forged_or_it_cannot_be_told() {
    let (vectors, folder) = (vectors(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("result.json").display().to_string();
    std::fs::write(&file, text(&vectors["result"]["plaintext"])).expect("a file");
    let hmac = text(&vectors["result"]["hmac"]);
    let key = text(&vectors["derived"]["fetcher-external-hmac-v1"]);
    let env = [("EXTERNAL_HMAC_KEY", key)];
    let command = ["verify", "file", &file, "--hmac", hmac];
    let valid = "valid: the 109 bytes are those that were signed\n";
    assert_eq!(said(&command, &env, ""), (0, valid.to_owned(), String::new()));
    let line = format!("External HMAC Key (hex): {key}\n");
    assert_eq!(said(&command, &[], &line).0, 0, "as it was handed out");
    let digits = hmac.to_ascii_uppercase();
    let upper = ["verify", "file", &file, "--hmac", &digits];
    let cut = ["verify", "file", &file, "--hmac", "f46e"];
    for (arguments, input, rule) in [
        (vec!["verify", "file", "/nowhere", "--hmac", hmac], key, "/nowhere cannot be read"),
        (
            vec!["verify", "file", &file, "--hmac", "f46e"],
            key,
            "--hmac must be 64 lower-case hex digits",
        ),
        (cut.to_vec(), key, "--hmac must be 64 lower-case hex digits"),
        (upper.to_vec(), key, "--hmac must be 64 lower-case hex digits"),
        (command.to_vec(), "", "there is no key: set EXTERNAL_HMAC_KEY"),
        (command.to_vec(), "c0ffee\n", "the external key must be 64 hex digits"),
    ] {
        let (code, out, error) = said(&arguments, &[], input);
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
        assert!(error.contains(rule), "{error}");
    }
    std::fs::write(&file, "other rows").expect("a file");
    let (code, answer, _) = said(&command, &env, "");
    assert_eq!((code, answer.as_str()), (1, "forged: the result is not what was signed\n"));
}

/// A message as a consumer captures it, signed now.
struct Captured {
    key: String,
    headers: BTreeMap<String, String>,
    body: String,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Captured {
    fn new(signed_at: u64, key_version: u16) -> Self {
        let external = MasterKey::generate().derive(EXTERNAL_HMAC);
        let key = external.hex().to_string();
        let attributes = Attributes {
            event_type: JobEventType::Failed,
            job_id: Uuid::from_u128(7),
            source: "//outport/worker".to_owned(),
            type_prefix: DEFAULT_TYPE_PREFIX.to_owned(),
            time: chrono::Utc::now().into(),
            tenant: "single-tenant".to_owned(),
        };
        let body = r#"{"status":"failed"}"#;
        let ring = KeyRing::new(key_version, external);
        let signed = signature::sign(&ring, &attributes, "jobs", body.as_bytes(), signed_at);
        let own = attributes.headers();
        let headers = own.into_iter().chain(signed).map(|(name, value)| (name.to_owned(), value));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("message.json");
        Self { key, headers: headers.collect(), body: body.to_owned(), file, _folder: folder }
    }

    fn verify(&self, more: &[&str]) -> (i32, String, String) {
        let document = json!({
            "exchange": "jobs", "routingKey": "job.failed", "headers": self.headers,
            "body": STANDARD.encode(&self.body),
        });
        self.verify_text(&document.to_string(), more)
    }

    /// With one header written as this JSON, besides the one that may be there.
    fn verify_with(&self, name: &str, json: &str) -> (i32, String, String) {
        let headers = serde_json::to_string(&self.headers).expect("JSON");
        let others = headers.strip_prefix('{').expect("an object");
        let body = STANDARD.encode(&self.body);
        let text = format!(
            r#"{{"exchange":"jobs","routingKey":"job.failed","headers":{{"{name}":{json},{others},"body":"{body}"}}"#
        );
        self.verify_text(&text, &[])
    }

    fn verify_text(&self, text: &str, more: &[&str]) -> (i32, String, String) {
        std::fs::write(&self.file, text).expect("a file");
        let file = self.file.display().to_string();
        let arguments = [&["verify", "message", &*file][..], more].concat();
        said(&arguments, &[("EXTERNAL_HMAC_KEY", &*self.key)], "")
    }
}

fn now() -> u64 {
    u64::try_from(chrono::Utc::now().timestamp()).expect("after 1970")
}

#[test]
fn a_message_is_valid_or_it_is_said_what_is_wrong_with_it() {
    let message = Captured::new(now(), 1);
    let (code, answer, error) = message.verify(&["--most-age", "3600"]);
    let id = format!("fetcher.job.failed.{}", Uuid::from_u128(7));
    assert_eq!(code, 0, "{answer}{error}");
    assert!(answer.starts_with(&format!("valid: {id} of single-tenant, signed at ")), "{answer}");
    for name in ["x-message-signature", "t", "signature-version", "x-attributes-signature", "ce-id"]
    {
        let mut message = Captured::new(now(), 1);
        message.headers.remove(name);
        let (code, answer, _) = message.verify(&[]);
        assert_eq!((code, answer), (1, format!("missing: the header {name} is missing\n")));
    }
    let mut message = Captured::new(now(), 1);
    message.body.push(' ');
    let (code, answer, _) = message.verify(&[]);
    assert_eq!(code, 1);
    assert!(
        answer.starts_with("forged: the signature in the header x-message-signature"),
        "{answer}"
    );
    let mut message = Captured::new(now(), 1);
    message.headers.insert("ce-source".to_owned(), "//somebody/else".to_owned());
    let (code, answer, _) = message.verify(&[]);
    assert_eq!(code, 1);
    assert!(
        answer.starts_with("forged: the signature in the header x-attributes-signature"),
        "{answer}"
    );
    let message = Captured::new(now() - 7200, 1);
    assert_eq!(message.verify(&[]).0, 0, "without a limit no message is too old");
    let (code, answer, _) = message.verify(&["--most-age", "3600"]);
    assert_eq!(code, 1);
    assert!(answer.starts_with("stale: the message was signed 72"), "{answer}");
    let message = Captured::new(now(), 2);
    let (code, answer, error) = message.verify(&[]);
    assert_eq!((code, answer.as_str()), (2, ""));
    assert!(error.contains("names key 2"), "{error}");
    assert_eq!(message.verify(&["--key-version", "2"]).0, 0);
}

#[test]
fn a_captured_header_is_one_text() {
    let mut message = Captured::new(now(), 1);
    for name in ["ce-id", "x-message-signature", "x-signature-key"] {
        let same = json!(message.headers[name]).to_string();
        for value in ["null", same.as_str()] {
            let (code, answer, error) = message.verify_with(name, value);
            assert_eq!((code, answer.as_str()), (2, ""), "{name}: {value}");
            assert!(error.contains(&format!("headers: \"{name}\" is there twice")), "{error}");
        }
    }
    // The broker adds some of other types when it gives a message up: they are nothing to us.
    let dead = message.verify_with("x-death", r#"[{"count":1,"reason":"rejected"}]"#);
    assert_eq!(dead.0, 0, "{dead:?}");
    // Where it is not there, key 1 is meant; there and no text, it means nothing.
    message.headers.remove("x-signature-key");
    assert_eq!(message.verify(&[]).0, 0);
    for value in ["null", "1", "[1]", r#""1\n""#] {
        let (code, answer, _) = message.verify_with("x-signature-key", value);
        let rule = "malformed: the header x-signature-key must be UTF-8 text of one line\n";
        assert_eq!((code, answer.as_str()), (1, rule), "{value}");
    }
    let mut message = Captured::new(now(), 1);
    let signature = message.headers.get_mut("x-message-signature").expect("it is signed");
    signature.make_ascii_uppercase();
    let (code, answer, _) = message.verify(&[]);
    let rule = "malformed: the header x-message-signature must be 64 lower-case hex digits\n";
    assert_eq!((code, answer.as_str()), (1, rule));
}
