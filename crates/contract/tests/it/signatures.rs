//! What a consumer can trust, and what it must refuse.

use std::{collections::BTreeMap, time::Duration};

use outport_contract::{
    job_event::{Attributes, DEFAULT_TYPE_PREFIX, JobEventType, SINGLE_TENANT},
    key::{EXTERNAL_HMAC, MasterKey},
    key_ring::KeyRing,
    signature::{Delivery, HeaderValue, SignatureError, Verified, Verifier, header, sign},
    time::Instant,
};
use proptest::{prelude::*, test_runner::RngSeed};
use uuid::Uuid;

const EXCHANGE: &str = "fetcher.job.events";
const BODY: &[u8] = br#"{"jobId":"6a5b0f8c-2f1e-4a41-9f0e-3d2c1b0a9e88","status":"completed"}"#;
const SIGNED_AT: u64 = 1_783_965_851;
const JOB: Uuid = Uuid::from_u128(0x6a5b_0f8c_2f1e_4a41_9f0e_3d2c_1b0a_9e88);

pub fn master(byte: u8) -> MasterKey {
    use base64::Engine as _;
    MasterKey::parse(&base64::engine::general_purpose::STANDARD.encode([byte; 32])).expect("a key")
}

pub fn ring(version: u16, byte: u8) -> KeyRing {
    KeyRing::new(version, master(byte)).derive(EXTERNAL_HMAC)
}

fn attributes() -> Attributes {
    Attributes {
        event_type: JobEventType::Completed,
        job_id: JOB,
        source: "//outport/worker".to_owned(),
        type_prefix: DEFAULT_TYPE_PREFIX.to_owned(),
        time: Instant("2026-07-13T18:04:11.204Z".parse().expect("an instant")),
        tenant: SINGLE_TENANT.to_owned(),
    }
}

/// A message under way.
#[derive(Clone)]
pub struct Message {
    pub headers: BTreeMap<String, Vec<u8>>,
    exchange: String,
    routing_key: String,
    body: Vec<u8>,
}

impl Message {
    fn signed(external: &KeyRing, attributes: &Attributes, body: &[u8]) -> Self {
        let signed = sign(external, attributes, EXCHANGE, body, SIGNED_AT);
        let headers = attributes.headers().into_iter().chain(signed);
        Self {
            headers: headers.map(|(name, value)| (name.to_owned(), value.into_bytes())).collect(),
            exchange: EXCHANGE.to_owned(),
            routing_key: attributes.event_type.name().to_owned(),
            body: body.to_owned(),
        }
    }

    pub fn with(mut self, header: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.insert(header.to_owned(), value.into());
        self
    }

    pub fn without(mut self, header: &str) -> Self {
        assert!(self.headers.remove(header).is_some(), "{header} was there");
        self
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name).map(Vec::as_slice)
    }

    fn value(&self, name: &str) -> Option<HeaderValue<'_>> {
        self.header(name).map(HeaderValue::Text)
    }

    fn delivery(&self) -> Delivery<'_> {
        let Self { exchange, routing_key, body, .. } = self;
        Delivery { exchange, routing_key, body }
    }

    fn verify(&self, verifier: &Verifier, now: u64) -> Result<Verified, SignatureError> {
        verifier.verify(|name| self.value(name), &self.delivery(), now)
    }

    fn verify_message(&self, verifier: &Verifier) -> Result<Verified, SignatureError> {
        verifier.verify_message(|name| self.value(name), &self.delivery(), SIGNED_AT)
    }
}

pub fn message() -> Message {
    Message::signed(&ring(1, 1), &attributes(), BODY)
}

pub fn verify(message: &Message) -> Result<Verified, SignatureError> {
    message.verify(&Verifier::new(ring(1, 1)), SIGNED_AT)
}

#[test]
fn a_signed_message_verifies_and_says_what_it_is() {
    let verified = verify(&message()).expect("ours");
    assert_eq!(verified.event_type, JobEventType::Completed);
    assert_eq!(verified.job_id, JOB);
    assert_eq!(verified.tenant, SINGLE_TENANT);
    assert_eq!(verified.signed_at, SIGNED_AT);
    assert_eq!(verified.event_id(), attributes().id());
}

/// Without one of these a message is not accepted.
const NEEDED: [&str; 11] = [
    "x-message-signature",
    "t",
    "signature-version",
    "X-Tenant-ID",
    "ce-subject",
    "x-attributes-signature",
    "ce-id",
    "ce-type",
    "ce-source",
    "ce-time",
    "ce-tenantid",
];

#[test]
fn a_missing_header_is_named() {
    for name in NEEDED {
        let refusal = verify(&message().without(name)).expect_err(name);
        assert!(matches!(refusal, SignatureError::Missing { header } if header == name), "{name}");
        assert!(refusal.to_string().contains(name), "{refusal}");
    }
}

#[test]
fn a_header_that_cannot_be_is_named_with_its_rule() {
    let cases: [(&str, &[u8]); 28] = [
        ("x-message-signature", b""),
        ("x-message-signature", b"abc"),
        ("x-message-signature", &[b'g'; 64]),
        ("x-message-signature", &[0xff; 64]),
        ("x-attributes-signature", &[b'0'; 63]),
        ("t", b""),
        ("t", b"-1"),
        ("t", b"+1783965851"),
        ("t", b"1783965851.0"),
        ("t", b"99999999999999999999"),
        ("t", b"01783965851"),
        ("t", b" 1783965851"),
        ("t", b"1_783_965_851"),
        ("X-Tenant-ID", b"a\nb"),
        ("ce-subject", b"6A5B0F8C-2F1E-4A41-9F0E-3D2C1B0A9E88"),
        ("ce-source", b"//a\n//b"),
        ("x-signature-key", b"one"),
        ("x-signature-key", b""),
        ("x-signature-key", b"01"),
        ("x-signature-key", b"+1"),
        ("x-signature-key", b"-1"),
        ("x-signature-key", b" 1"),
        ("x-signature-key", b"1 "),
        ("x-signature-key", b"1.0"),
        ("x-signature-key", b"1e0"),
        ("x-signature-key", b"0x1"),
        ("x-signature-key", "\u{661}".as_bytes()),
        ("x-signature-key", b"65536"),
    ];
    for (name, value) in cases {
        let refusal = verify(&message().with(name, value)).expect_err(name);
        let is_named =
            matches!(refusal, SignatureError::Malformed { header, .. } if header == name);
        assert!(is_named, "{name} = {value:?}: {refusal}");
        assert!(refusal.to_string().contains(name), "{refusal}");
    }
    let later = message().with("signature-version", "v2");
    assert_eq!(verify(&later), Err(SignatureError::UnknownForm));
}

#[test]
fn a_header_that_is_not_text_is_not_one_that_is_missing() {
    let verifier = Verifier::new(ring(1, 1));
    let message = message();
    let may_be_missing = ["x-signature-key", "ce-eventtype", "ce-resourcetype"];
    for name in NEEDED.into_iter().chain(may_be_missing) {
        let headers = |asked: &str| {
            if asked == name { Some(HeaderValue::Other) } else { message.value(asked) }
        };
        let refusal = verifier.verify(headers, &message.delivery(), SIGNED_AT).expect_err(name);
        assert_eq!(
            refusal.to_string(),
            format!("the header {name} must be UTF-8 text of one line"),
            "as a number or a null it would else be that of a message without it"
        );
    }
}

#[test]
fn a_signature_in_upper_case_is_refused_as_in_other_languages() {
    for name in [header::MESSAGE, header::ATTRIBUTES] {
        let digits = message().headers[name].to_ascii_uppercase();
        let refusal = verify(&message().with(name, digits)).expect_err(name);
        let reason = format!("the header {name} must be 64 lower-case hex digits");
        assert_eq!(refusal.to_string(), reason);
    }
}

#[test]
fn a_replay_under_another_tenant_job_route_or_time_is_forged() {
    let forged = Err(SignatureError::Forged { header: header::MESSAGE });
    assert_eq!(verify(&message().with("X-Tenant-ID", "other")), forged);
    assert_eq!(verify(&message().with("ce-subject", Uuid::nil().to_string())), forged);
    assert_eq!(verify(&message().with("t", "1783965852")), forged);
    let elsewhere = Message { exchange: "other".to_owned(), ..message() };
    assert_eq!(verify(&elsewhere), forged);
    let failed = Message { routing_key: "job.failed".to_owned(), ..message() };
    assert_eq!(verify(&failed), forged);
    let unknown = Message { routing_key: "job.lost".to_owned(), ..message() };
    assert_eq!(verify(&unknown), Err(SignatureError::UnknownRoutingKey));
    let body = Message { body: [BODY, b" "].concat(), ..message() };
    assert_eq!(verify(&body), forged);
}

#[test]
fn every_flipped_bit_of_body_and_signatures_is_forged() {
    for bit in 0..BODY.len() * 8 {
        let mut flipped = message();
        flipped.body[bit / 8] ^= 1 << (bit % 8);
        let expected = Err(SignatureError::Forged { header: header::MESSAGE });
        assert_eq!(verify(&flipped), expected, "bit {bit}");
    }
    for name in [header::MESSAGE, header::ATTRIBUTES] {
        for digit in 0..64 {
            let mut signature = message().headers[name].clone();
            signature[digit] = if signature[digit] == b'0' { b'1' } else { b'0' };
            let refusal = verify(&message().with(name, signature));
            assert_eq!(refusal, Err(SignatureError::Forged { header: name }), "digit {digit}");
        }
    }
}

#[test]
fn a_changed_attribute_is_forged() {
    let forged = Err(SignatureError::Forged { header: header::ATTRIBUTES });
    for (name, value) in [
        ("ce-id", "fetcher.job.completed.00000000-0000-0000-0000-000000000000"),
        ("ce-type", "studio.lerian.job.failed"),
        ("ce-source", "//other/worker"),
        ("ce-time", "2026-07-13T18:04:11.205Z"),
        ("ce-tenantid", "other"),
    ] {
        assert_eq!(verify(&message().with(name, value)), forged, "{name}");
    }
}

#[test]
fn signed_attributes_of_another_message_are_found() {
    let attributes_of = |attributes: &Attributes| {
        let other = Message::signed(&ring(1, 1), attributes, BODY);
        let names = ["ce-id", "ce-tenantid", "x-attributes-signature"];
        names
            .into_iter()
            .fold(message(), |message, name| message.with(name, other.headers[name].clone()))
    };
    let job_id = Uuid::nil();
    let other_job = attributes_of(&Attributes { job_id, ..attributes() });
    assert_eq!(verify(&other_job), Err(SignatureError::Mismatched { header: "ce-id" }));
    let tenant = "other".to_owned();
    let other_tenant = attributes_of(&Attributes { tenant, ..attributes() });
    assert_eq!(verify(&other_tenant), Err(SignatureError::Mismatched { header: "ce-tenantid" }));
}

#[test]
fn a_producer_of_the_message_signature_alone_is_accepted_where_asked_for() {
    let plain = message().without("x-attributes-signature").without("x-signature-key");
    let verifier = Verifier::new(ring(1, 1));
    assert!(plain.verify_message(&verifier).is_ok());
    let missing = Err(SignatureError::Missing { header: header::ATTRIBUTES });
    assert_eq!(plain.verify(&verifier, SIGNED_AT), missing);
    let elsewhere = Message { exchange: "other".to_owned(), ..plain };
    let forged = Err(SignatureError::Forged { header: header::MESSAGE });
    assert_eq!(elsewhere.verify_message(&verifier), forged);
}

#[test]
fn a_ring_verifies_with_the_key_that_is_named() {
    let rotated = KeyRing::new(2, master(2)).and(1, master(1)).derive(EXTERNAL_HMAC);
    let verifier = Verifier::new(rotated.clone());
    assert!(message().verify(&verifier, SIGNED_AT).is_ok(), "signed before the rotation");
    let new = Message::signed(&rotated, &attributes(), BODY);
    assert_eq!(new.header("x-signature-key"), Some(b"2".as_slice()), "the current key signs");
    assert!(new.verify(&verifier, SIGNED_AT).is_ok());
    assert_eq!(verify(&new), Err(SignatureError::UnknownKey { version: 2 }));
    let wrong = new.with("x-signature-key", "1");
    let forged = Err(SignatureError::Forged { header: header::MESSAGE });
    assert_eq!(wrong.verify(&verifier, SIGNED_AT), forged);
}

#[test]
fn an_old_message_is_stale_only_where_asked_for_and_a_forged_one_never() {
    let patient = Verifier::new(ring(1, 1));
    assert!(message().verify(&patient, u64::MAX).is_ok(), "no limit by default");
    let strict = patient.with_most_age(Duration::from_mins(5));
    assert!(message().verify(&strict, SIGNED_AT + 300).is_ok());
    assert!(message().verify(&strict, 0).is_ok(), "a clock that is behind");
    let stale = Err(SignatureError::Stale { age_seconds: 301 });
    assert_eq!(message().verify(&strict, SIGNED_AT + 301), stale);
    for (name, changed) in [
        (header::MESSAGE, Message { body: b"{}".to_vec(), ..message() }),
        (header::ATTRIBUTES, message().with("ce-source", "//other")),
    ] {
        let refusal = changed.verify(&strict, SIGNED_AT + 301);
        assert_eq!(refusal, Err(SignatureError::Forged { header: name }));
    }
}

#[test]
fn a_re_emission_is_signed_afresh() {
    let first = sign(&ring(1, 1), &attributes(), EXCHANGE, BODY, SIGNED_AT);
    let second = sign(&ring(1, 1), &attributes(), EXCHANGE, BODY, SIGNED_AT + 1);
    assert_ne!(first[0], second[0]);
    assert_eq!(second[1], ("t", (SIGNED_AT + 1).to_string()));
}

#[test]
fn callers_may_not_set_the_headers_of_signatures() {
    for (name, _) in sign(&ring(1, 1), &attributes(), EXCHANGE, BODY, SIGNED_AT) {
        assert!(header::is_reserved(name) && header::is_reserved(&name.to_uppercase()));
    }
    assert!(!header::is_reserved("x-request-id") && !header::is_reserved("ce-id"));
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(512) })]

    #[test]
    fn any_body_tenant_and_source_verify(
        body in prop::collection::vec(any::<u8>(), 0..200),
        tenant in "[^\n]{0,40}",
        source in "[^\n]{0,40}",
        exchange in any::<String>(),
        failed in any::<bool>(),
        job_id in any::<u128>(),
    ) {
        let event_type = if failed { JobEventType::Failed } else { JobEventType::Completed };
        let job_id = Uuid::from_u128(job_id);
        let attributes = Attributes { event_type, job_id, source, tenant, ..attributes() };
        let external = ring(1, 1);
        let signed = sign(&external, &attributes, &exchange, &body, SIGNED_AT);
        let mut message = Message::signed(&external, &attributes, &body);
        message.headers.extend(signed.map(|(name, value)| (name.to_owned(), value.into_bytes())));
        message.exchange = exchange;
        let verified = verify(&message).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(verified.event_id(), attributes.id());
        prop_assert_eq!(verified.tenant, attributes.tenant);
    }

    #[test]
    fn arbitrary_header_values_are_refused(
        name in prop::sample::select(attributes().headers().into_iter().chain(
            sign(&ring(1, 1), &attributes(), EXCHANGE, BODY, SIGNED_AT),
        ).map(|(name, _)| name).filter(|name| matches!(*name,
            "ce-id" | "ce-source" | "ce-type" | "ce-time" | "ce-subject" | "ce-tenantid"
            | "X-Tenant-ID" | "x-message-signature" | "t" | "signature-version"
            | "x-attributes-signature" | "x-signature-key")).collect::<Vec<_>>()),
        value in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[0-9a-f]{64}".prop_map(String::into_bytes),
            "[0-9]{1,20}".prop_map(String::into_bytes),
        ],
    ) {
        let original = message();
        prop_assume!(original.header(name) != Some(&value));
        prop_assert!(verify(&original.with(name, value.clone())).is_err(), "{}: {:?}", name, value);
    }
}
