//! Known answers for keys, signatures, stored forms and redaction.

use outport_contract::{
    adapter_managed,
    job_event::{Attributes, DEFAULT_TYPE_PREFIX, JobEventType},
    key::{self, MasterKey},
    key_ring::KeyRing,
    redaction::redact,
    sealed::Opener,
    signature::{Delivery, HeaderValue, ResultSigner, ResultVerifier, Verifier, sign},
    time::Instant,
};
use serde_json::Value;
use uuid::Uuid;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../../tests/golden/vectors.json")).expect("JSON")
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_else(|| panic!("{member} is a text in {value}"))
}

fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    let list = value[member].as_array().unwrap_or_else(|| panic!("{member} is a list"));
    assert!(!list.is_empty(), "{member} has cases");
    list
}

fn master() -> MasterKey {
    MasterKey::parse(text(&vectors(), "masterKeyBase64")).expect("a master key")
}

#[test]
fn the_four_keys_of_the_contract_are_derived() {
    let vectors = vectors();
    let derived = vectors["derived"].as_object().expect("an object");
    let ours = [key::CREDENTIALS, key::INTERNAL_HMAC, key::EXTERNAL_HMAC, key::STORAGE_ENCRYPTION];
    assert_eq!(derived.keys().collect::<Vec<_>>(), ours);
    for info in ours {
        assert_eq!(*master().derive(info).hex(), text(&vectors["derived"], info), "{info}");
    }
}

fn external() -> KeyRing {
    KeyRing::new(1, master()).derive(key::EXTERNAL_HMAC)
}

fn attributes(event_type: JobEventType, job_id: Uuid, tenant: &str) -> Attributes {
    Attributes {
        event_type,
        job_id,
        source: "//outport/worker".to_owned(),
        type_prefix: DEFAULT_TYPE_PREFIX.to_owned(),
        time: Instant("2026-07-13T18:04:11.204Z".parse().expect("an instant")),
        tenant: tenant.to_owned(),
    }
}

#[test]
fn the_message_signatures_come_out_and_verify() {
    for message in list(&vectors(), "messages") {
        let (exchange, body) = (text(message, "exchange"), text(message, "body").as_bytes());
        let routing_key = text(message, "routingKey");
        let event_type = JobEventType::from_name(routing_key).expect("a job's event");
        let job_id = text(message, "jobId").parse().expect("a UUID");
        let attributes = attributes(event_type, job_id, text(message, "tenant"));
        let now = text(message, "t").parse().expect("seconds");
        let signed = sign(&external(), &attributes, exchange, body, now);
        for (name, member) in
            [("x-message-signature", "signature"), ("t", "t"), ("signature-version", "version")]
        {
            assert!(signed.contains(&(name, text(message, member).to_owned())), "{message}");
        }
        let headers: Vec<_> = attributes.headers().into_iter().chain(signed).collect();
        let header = |name: &str| {
            let (_, value) = headers.iter().find(|(known, _)| *known == name)?;
            Some(HeaderValue::Text(value.as_bytes()))
        };
        let delivery = Delivery { exchange, routing_key, body };
        let verified = Verifier::new(external()).verify(header, &delivery, now);
        assert_eq!(verified.map(|verified| verified.job_id), Ok(job_id), "{message}");
    }
}

#[test]
fn the_attribute_signatures_come_out() {
    for vector in list(&vectors(), "attributes") {
        let id = text(vector, "ce-id").strip_prefix("fetcher.job.failed.").expect("a failed job");
        let job_id = id.parse().expect("a UUID");
        let attributes = attributes(JobEventType::Failed, job_id, text(vector, "ce-tenantid"));
        let headers = attributes.headers();
        for name in ["ce-id", "ce-type", "ce-source", "ce-time", "ce-tenantid"] {
            assert!(headers.contains(&(name, text(vector, name).to_owned())), "{name}");
        }
        let signed = sign(&external(), &attributes, "any", b"any", 0);
        let signature = text(vector, "signature").to_owned();
        assert!(signed.contains(&("x-attributes-signature", signature)), "{vector}");
    }
}

#[test]
fn the_result_hmac_comes_out_however_the_bytes_are_cut() {
    let vectors = vectors();
    let result = &vectors["result"];
    let plaintext = text(result, "plaintext").as_bytes();
    assert_eq!(Some(plaintext.len() as u64), result["sizeBytes"].as_u64());
    let mut signer = ResultSigner::new(&external());
    for piece in plaintext.chunks(7) {
        signer.update(piece);
    }
    let integrity = signer.finish();
    assert_eq!(integrity.signature, text(result, "hmac"));
    let mut verifier = ResultVerifier::new(&external(), &integrity).expect("our own");
    verifier.update(plaintext);
    assert_eq!(verifier.finish(), Ok(()));
}

#[test]
fn the_stored_result_opens() {
    let vectors = vectors();
    let result = &vectors["result"];
    let storage = KeyRing::new(1, master()).derive(key::STORAGE_ENCRYPTION);
    let stored = text(result, "stored");
    let plaintext = text(result, "plaintext");
    assert_eq!(
        adapter_managed::open(&storage, stored.as_bytes()),
        Ok(plaintext.as_bytes().to_vec())
    );
    assert_eq!(adapter_managed::stored_bytes(plaintext.len() as u64), stored.len() as u64);
}

/// Sealed objects of small chunks, made by another implementation of the same layout.
#[test]
fn sealed_objects_made_elsewhere_open() {
    let golden = include_str!("../../../../tests/golden/sealed.json");
    let golden: Value = serde_json::from_str(golden).expect("JSON");
    let sealed = &golden["sealed"];
    let storage = KeyRing::new(7, master()).derive(key::STORAGE_ENCRYPTION);
    for object in list(sealed, "objects") {
        let stored = text(object, "storedHex").as_bytes().chunks(2).map(|digits| {
            let digits = std::str::from_utf8(digits).expect("digits");
            u8::from_str_radix(digits, 16).expect("digits")
        });
        let plaintext = text(object, "plaintext");
        let length = plaintext.len() as u64;
        let mut opener = Opener::new(&storage, text(sealed, "objectKey"), length);
        let mut plain = Vec::new();
        for byte in stored {
            opener.update(&[byte], &mut plain).expect("a sealed object");
        }
        assert_eq!(opener.finish(), Ok(()));
        assert_eq!(plain, plaintext.as_bytes());
    }
}

#[test]
fn the_contracts_redactions_come_out() {
    for case in list(&vectors(), "redaction") {
        assert_eq!(redact(text(case, "in")), text(case, "out"));
    }
}
