//! The signatures of a message on a broker, made and verified.
//!
//! Both are HMAC-SHA256 with the external key, over parts joined by line feeds. The *message
//! signature* binds the time of signing, its form, the tenant, the job, the exchange, the routing
//! key and the body: a replay under another tenant or route fails. The *attributes signature*,
//! an addition of ours, binds the CloudEvents attributes that the first leaves out. A verifier
//! compares in constant time, refuses a part that holds a line feed (else parts could be moved
//! over their borders), and checks that the two signatures speak of the same event.
//!
//! A signature has no age limit unless asked for: a consumer that was down must not reject what
//! the broker kept for it. An age check says *stale*, never *forged*.

mod result;
mod verifier;

pub use self::{
    result::{IntegrityError, ResultSigner, ResultVerifier},
    verifier::{Delivery, HeaderValue, SignatureError, Verified, Verifier},
};
use crate::{
    digest::{Sha256Digest, hex},
    job_event::Attributes,
    key::DerivedKey,
    key_ring::KeyRing,
};

/// The form of the message signature, the value of its header.
const FORM: &str = "v1";

/// The rule of a signature's text.
const DIGITS: &str = "64 lower-case hex digits";

/// The names of the headers.
pub mod header {
    /// The message signature, 64 lower-case hex digits.
    pub const MESSAGE: &str = "x-message-signature";
    /// The time of signing, Unix seconds in decimal.
    pub const TIMESTAMP: &str = "t";
    /// The form of the message signature, `v1`.
    pub const FORM: &str = "signature-version";
    /// The attributes signature, 64 lower-case hex digits.
    pub const ATTRIBUTES: &str = "x-attributes-signature";
    /// The version of the key, in decimal without leading zeros; where there is none, 1 is meant.
    pub const KEY_VERSION: &str = "x-signature-key";

    /// All of them.
    pub const ALL: [&str; 5] = [MESSAGE, TIMESTAMP, FORM, ATTRIBUTES, KEY_VERSION];

    /// Whether a caller may not set this header, in any case of its letters: remove it before
    /// those of [`sign`](super::sign) are added.
    pub fn is_reserved(name: &str) -> bool {
        ALL.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
    }
}

/// The five headers of one emission, name and value, signed with the ring's current key.
/// `now` is Unix seconds. Every emission is signed afresh.
pub fn sign(
    external: &KeyRing,
    attributes: &Attributes,
    exchange: &str,
    body: &[u8],
    now: u64,
) -> [(&'static str, String); 5] {
    let timestamp = now.to_string();
    let job_id = attributes.job_id.to_string();
    let message = [
        timestamp.as_str(),
        FORM,
        &attributes.tenant,
        &job_id,
        exchange,
        attributes.event_type.name(),
    ];
    let (id, ce_type, time) = (attributes.id(), attributes.ce_type(), attributes.time.text());
    let context = [id.as_str(), &ce_type, &attributes.source, &time, &attributes.tenant];
    let key = external.current();
    let message = mac(key, &message, Some(body));
    let context = mac(key, &context, None);
    [
        (header::MESSAGE, hex(&message)),
        (header::TIMESTAMP, timestamp),
        (header::FORM, FORM.to_owned()),
        (header::ATTRIBUTES, hex(&context)),
        (header::KEY_VERSION, external.current_version().to_string()),
    ]
}

fn mac(key: &DerivedKey, texts: &[&str], body: Option<&[u8]>) -> [u8; 32] {
    key.hmac(&lines(texts, body))
}

/// The signature that a text is, if it is [`DIGITS`]: one signature has one text, here as
/// elsewhere.
fn signature(text: &str) -> Option<[u8; 32]> {
    let Sha256Digest(signature) = text.parse().ok()?;
    (hex(&signature) == text).then_some(signature)
}

/// The texts and then the body, a line feed between each two.
fn lines<'a>(texts: &[&'a str], body: Option<&'a [u8]>) -> Vec<&'a [u8]> {
    let parts = texts.iter().map(|text| text.as_bytes()).chain(body);
    parts.flat_map(|part| [b"\n".as_slice(), part]).skip(1).collect()
}
