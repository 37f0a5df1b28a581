//! The consumer's side.

use std::{str, time::Duration};

use uuid::Uuid;

use super::{DIGITS, FORM, header, lines, signature};
use crate::{
    job_event::{JobEventType, RESOURCE_TYPE, header as ce},
    key::DerivedKey,
    key_ring::{FIRST_VERSION, KeyRing},
};

/// Verifies the messages of a broker with external keys.
#[derive(Clone)]
pub struct Verifier {
    external: KeyRing,
    most_age: Option<Duration>,
}

/// A message as the broker delivered it, without its headers.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The exchange it was published to.
    pub exchange: &'a str,
    /// The routing key it was published with.
    pub routing_key: &'a str,
    /// Its body.
    pub body: &'a [u8],
}

/// A header's value as the broker delivered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderValue<'a> {
    /// The bytes of an AMQP long string or those of a byte array, which may stand for each other.
    Text(&'a [u8]),
    /// Any other type, the null too: the header is there, and is none of ours.
    Other,
}

/// What a verified message says in its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// How the job ended.
    pub event_type: JobEventType,
    /// The job that ended.
    pub job_id: Uuid,
    /// Who owns the job.
    pub tenant: String,
    /// When the message was signed, Unix seconds.
    pub signed_at: u64,
}

impl Verified {
    /// `ce-id`: acknowledge what repeats it, without processing it again.
    pub fn event_id(&self) -> String {
        self.event_type.event_id(self.job_id)
    }
}

/// Why a message is not accepted. Every reason but those of the delivery names a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A header is not there.
    #[error("the header {header} is missing")]
    Missing {
        /// Its name.
        header: &'static str,
    },
    /// A header's value has not the form of its kind, or is neither a string nor bytes.
    #[error("the header {header} must be {rule}")]
    Malformed {
        /// Its name.
        header: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// The routing key is not that of a job's event.
    #[error("the routing key is neither job.completed nor job.failed")]
    UnknownRoutingKey,
    /// The message signature has a form that is not known here.
    #[error("the header {} must be {FORM}", header::FORM)]
    UnknownForm,
    /// Signed with a key that is not in the ring.
    #[error("the header {} names key {version}, which is not known here", header::KEY_VERSION)]
    UnknownKey {
        /// The version of the key.
        version: u16,
    },
    /// The signature in a header is not that of this message.
    #[error("the signature in the header {header} is not that of this message")]
    Forged {
        /// Its name.
        header: &'static str,
    },
    /// The header is of another message: signed with that one, or at odds with what is signed.
    #[error("the header {header} belongs to another message")]
    Mismatched {
        /// Its name.
        header: &'static str,
    },
    /// Well signed, but longer ago than the verifier accepts.
    #[error("the message was signed {age_seconds} s ago (header {})", header::TIMESTAMP)]
    Stale {
        /// Its age.
        age_seconds: u64,
    },
}

impl Verifier {
    /// A verifier without an age limit. Messages without a key version are of key 1.
    pub fn new(external: KeyRing) -> Self {
        Self { external, most_age: None }
    }

    /// Refuses as stale what was signed longer ago. A signing time in the future is a clock that
    /// is wrong, and is accepted.
    #[must_use]
    pub fn with_most_age(self, age: Duration) -> Self {
        Self { most_age: Some(age), ..self }
    }

    /// Verifies both signatures and that they speak of one event.
    ///
    /// `headers` gives a header's value by its exact name, and none only where the header is not
    /// there. `now` is Unix seconds.
    pub fn verify<'h>(
        &self,
        headers: impl Fn(&str) -> Option<HeaderValue<'h>>,
        delivery: &Delivery<'_>,
        now: u64,
    ) -> Result<Verified, SignatureError> {
        let headers = Headers(headers);
        let verified = self.message(&headers, delivery)?;
        self.attributes(&headers, &verified)?;
        self.age(verified, now)
    }

    /// Verifies the message signature alone, for producers that know no other. Of the attributes
    /// only `ce-subject` and `X-Tenant-ID` are then to be trusted.
    pub fn verify_message<'h>(
        &self,
        headers: impl Fn(&str) -> Option<HeaderValue<'h>>,
        delivery: &Delivery<'_>,
        now: u64,
    ) -> Result<Verified, SignatureError> {
        self.age(self.message(&Headers(headers), delivery)?, now)
    }

    fn message<'h, H: Fn(&str) -> Option<HeaderValue<'h>>>(
        &self,
        headers: &Headers<H>,
        delivery: &Delivery<'_>,
    ) -> Result<Verified, SignatureError> {
        let signature = headers.signature(header::MESSAGE)?;
        let timestamp = headers.line(header::TIMESTAMP)?;
        let signed_at = decimal(header::TIMESTAMP, timestamp, "Unix seconds in decimal")?;
        if headers.line(header::FORM)? != FORM {
            return Err(SignatureError::UnknownForm);
        }
        let event_type = JobEventType::from_name(delivery.routing_key)
            .ok_or(SignatureError::UnknownRoutingKey)?;
        let tenant = headers.line(ce::TENANT)?;
        let subject = headers.line(ce::SUBJECT)?;
        let job_id = Uuid::parse_str(subject)
            .ok()
            .filter(|id| id.to_string() == subject)
            .ok_or(SignatureError::Malformed { header: ce::SUBJECT, rule: "a job's id" })?;
        let (exchange, routing_key) = (delivery.exchange, delivery.routing_key);
        let texts = [timestamp, FORM, tenant, subject, exchange, routing_key];
        if !self.key(headers)?.verifies(&lines(&texts, Some(delivery.body)), &signature) {
            return Err(SignatureError::Forged { header: header::MESSAGE });
        }
        Ok(Verified { event_type, job_id, tenant: tenant.to_owned(), signed_at })
    }

    fn attributes<'h, H: Fn(&str) -> Option<HeaderValue<'h>>>(
        &self,
        headers: &Headers<H>,
        message: &Verified,
    ) -> Result<(), SignatureError> {
        let signature = headers.signature(header::ATTRIBUTES)?;
        let id = headers.line(ce::ID)?;
        let tenant = headers.line(ce::TENANT_ID)?;
        let texts = [
            id,
            headers.line(ce::TYPE)?,
            headers.line(ce::SOURCE)?,
            headers.line(ce::TIME)?,
            tenant,
        ];
        if !self.key(headers)?.verifies(&lines(&texts, None), &signature) {
            return Err(SignatureError::Forged { header: header::ATTRIBUTES });
        }
        if id != message.event_id() {
            return Err(SignatureError::Mismatched { header: ce::ID });
        }
        if tenant != message.tenant {
            return Err(SignatureError::Mismatched { header: ce::TENANT_ID });
        }
        kind(headers, message.event_type)
    }

    fn key<'h, H: Fn(&str) -> Option<HeaderValue<'h>>>(
        &self,
        headers: &Headers<H>,
    ) -> Result<&DerivedKey, SignatureError> {
        let version = match headers.line(header::KEY_VERSION) {
            Err(SignatureError::Missing { .. }) => FIRST_VERSION,
            version => decimal(header::KEY_VERSION, version?, "a key's version in decimal")?,
        };
        self.external.get(version).map_err(|_| SignatureError::UnknownKey { version })
    }

    fn age(&self, verified: Verified, now: u64) -> Result<Verified, SignatureError> {
        let age_seconds = now.saturating_sub(verified.signed_at);
        match self.most_age {
            Some(most) if age_seconds > most.as_secs() => {
                Err(SignatureError::Stale { age_seconds })
            }
            _ => Ok(verified),
        }
    }
}

/// The attributes that say what kind of event it is. One is signed and two follow from it, so
/// those may be missing, but not say something else.
fn kind<'h, H: Fn(&str) -> Option<HeaderValue<'h>>>(
    headers: &Headers<H>,
    event_type: JobEventType,
) -> Result<(), SignatureError> {
    let prefix = headers.line(ce::TYPE)?.strip_suffix(event_type.name());
    if !prefix.is_some_and(|prefix| prefix.ends_with('.')) {
        return Err(SignatureError::Mismatched { header: ce::TYPE });
    }
    for (header, expected) in
        [(ce::RESOURCE_TYPE, RESOURCE_TYPE), (ce::EVENT_TYPE, event_type.status())]
    {
        match headers.line(header) {
            Ok(found) if found != expected => return Err(SignatureError::Mismatched { header }),
            Ok(_) | Err(SignatureError::Missing { .. }) => {}
            Err(malformed) => return Err(malformed),
        }
    }
    Ok(())
}

/// Header values by name.
struct Headers<H>(H);

impl<'h, H: Fn(&str) -> Option<HeaderValue<'h>>> Headers<H> {
    /// A text of one line: more could move a border between signed parts.
    fn line(&self, header: &'static str) -> Result<&'h str, SignatureError> {
        let text = match (self.0)(header).ok_or(SignatureError::Missing { header })? {
            HeaderValue::Text(bytes) => str::from_utf8(bytes).ok(),
            HeaderValue::Other => None,
        };
        text.filter(|text| !text.contains('\n'))
            .ok_or(SignatureError::Malformed { header, rule: "UTF-8 text of one line" })
    }

    fn signature(&self, header: &'static str) -> Result<[u8; 32], SignatureError> {
        signature(self.line(header)?).ok_or(SignatureError::Malformed { header, rule: DIGITS })
    }
}

/// The number that a text is: one number has one text, so neither a sign nor a leading zero.
fn decimal<N: str::FromStr + ToString>(
    header: &'static str,
    text: &str,
    rule: &'static str,
) -> Result<N, SignatureError> {
    let number = text.parse().ok().filter(|number: &N| number.to_string() == text);
    number.ok_or(SignatureError::Malformed { header, rule })
}
