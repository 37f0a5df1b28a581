//! Known answers for keys, signatures and redaction.

use outport_contract::{
    digest::hex,
    key::{self, KeyedDigest, MasterKey},
    redaction::redact,
};
use serde_json::Value;

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

#[test]
fn the_message_signatures_come_out() {
    let external = master().derive(key::EXTERNAL_HMAC);
    for message in list(&vectors(), "messages") {
        let members = ["t", "version", "tenant", "jobId", "exchange", "routingKey", "body"];
        let signed = members.map(|member| text(message, member)).join("\n");
        let signature = hex(&external.hmac(&[signed.as_bytes()]));
        assert_eq!(signature, text(message, "signature"), "{message}");
    }
}

#[test]
fn the_attribute_signatures_come_out() {
    let external = master().derive(key::EXTERNAL_HMAC);
    for attributes in list(&vectors(), "attributes") {
        let members = ["ce-id", "ce-type", "ce-source", "ce-time", "ce-tenantid"];
        let signed = members.map(|member| text(attributes, member)).join("\n");
        let signature = hex(&external.hmac(&[signed.as_bytes()]));
        assert_eq!(signature, text(attributes, "signature"));
    }
}

#[test]
fn the_result_hmac_comes_out_however_the_bytes_are_cut() {
    let vectors = vectors();
    let result = &vectors["result"];
    let plaintext = text(result, "plaintext").as_bytes();
    assert_eq!(Some(plaintext.len() as u64), result["sizeBytes"].as_u64());
    let mut digest = KeyedDigest::new(&master().derive(key::EXTERNAL_HMAC));
    for piece in plaintext.chunks(7) {
        digest.update(piece);
    }
    assert_eq!(digest.finish(), text(result, "hmac"));
}

#[test]
fn the_contracts_redactions_come_out() {
    for case in list(&vectors(), "redaction") {
        assert_eq!(redact(text(case, "in")), text(case, "out"));
    }
}
