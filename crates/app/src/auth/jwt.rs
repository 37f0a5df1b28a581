//! The JWTs of the surrounding application. Signature, expiry, audience and issuer are checked
//! by `jsonwebtoken`; which claims make a caller is decided here.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use outport_contract::redaction::told;
use outport_domain::{
    caller::{Caller, is_plain_address},
    id::Id,
    locale::Locale,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{
    AuthError, Identity,
    jwks::{KeyError, KeyRing, KeySource, VerifyingKey},
};

/// Seconds by which clocks may differ.
const LEEWAY: u64 = 30;
/// Bytes of a credential that are looked at.
const MOST_BYTES: usize = 16 * 1024;
/// Companies or cooperatives that one token may list.
const MOST_IDS: usize = 1_000;

/// How JWTs are verified. Holds a secret, so it has no `Debug`.
#[derive(Clone)]
pub struct JwtConfig {
    /// Where the keys come from.
    pub keys: KeySource,
    /// The `iss` that must be there; leaving it out is for keys that serve one issuer alone.
    pub issuer: Option<String>,
    /// The `aud` that must be there; leaving it out lets tokens for other services in.
    pub audience: Option<String>,
    /// Which claims say what.
    pub claims: ClaimNames,
    /// Maps ids that are no UUIDs by `UUIDv5` in this namespace; `None` refuses them.
    pub id_namespace: Option<Uuid>,
}

/// The names of the claims.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is the name of the claim that fills the caller's member")]
pub struct ClaimNames {
    pub user: String,
    pub organization: String,
    pub companies: String,
    pub cooperatives: String,
    pub email: String,
    pub name: String,
    pub locale: String,
    pub scope: String,
}

impl Default for ClaimNames {
    fn default() -> Self {
        Self {
            user: "sub".into(),
            organization: "org".into(),
            companies: "companies".into(),
            cooperatives: "cooperatives".into(),
            email: "email".into(),
            name: "name".into(),
            locale: "locale".into(),
            scope: "scope".into(),
        }
    }
}

/// Why a configuration cannot verify anything.
#[derive(Debug, thiserror::Error)]
#[error("JWTs cannot be verified: {0}")]
pub struct InvalidJwtConfig(#[from] KeyError);

/// Verifies JWTs and reads callers from them.
pub struct JwtVerifier {
    ring: KeyRing,
    config: JwtConfig,
}

impl JwtVerifier {
    /// Reads a secret or a file at once; a URL when the first token comes.
    pub fn new(config: JwtConfig) -> Result<Self, InvalidJwtConfig> {
        Ok(Self { ring: KeyRing::new(config.keys.clone())?, config })
    }

    /// The caller that a token stands for.
    pub async fn caller(&self, token: &str) -> Result<Caller, AuthError> {
        Ok(self.identify(token).await?.caller)
    }

    /// The same, with the end of the token: clocks may differ by the same leeway there.
    pub async fn identify(&self, token: &str) -> Result<Identity, AuthError> {
        if token.len() > MOST_BYTES {
            return Err(AuthError::Invalid);
        }
        // `none` and every unknown name fail here.
        let header = decode_header(token).map_err(|_| AuthError::Invalid)?;
        let (keys, found) =
            self.ring.candidates(header.kid.as_deref(), header.alg).await.map_err(|error| {
                tracing::error!(error = told(&error), "the keys of JWTs cannot be read");
                AuthError::KeysUnavailable
            })?;
        let claims = found
            .into_iter()
            .find_map(|index| self.verify(token, &keys[index]))
            .ok_or(AuthError::Invalid)?;
        let expires_at = claims.get("exp").and_then(Value::as_f64).and_then(|end| {
            DateTime::from_timestamp((end as i64).saturating_add(LEEWAY as i64), 0)
        });
        let caller = self.read(&claims).ok_or(AuthError::Invalid)?;
        // One without an end was refused above; one that no calendar has ends now.
        let expires_at = Some(expires_at.unwrap_or_else(Utc::now));
        Ok(Identity { owner: caller.user, caller, expires_at })
    }

    fn verify(&self, token: &str, key: &VerifyingKey) -> Option<Map<String, Value>> {
        decode(token, &key.key, &self.validation(key.algorithm)).ok().map(|token| token.claims)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        let mut required = vec!["exp"];
        if let Some(issuer) = &self.config.issuer {
            validation.set_issuer(&[issuer]);
            required.push("iss");
        }
        if let Some(audience) = &self.config.audience {
            validation.set_audience(&[audience]);
            required.push("aud");
        } else {
            validation.validate_aud = false;
        }
        validation.set_required_spec_claims(&required);
        validation
    }

    fn read(&self, claims: &Map<String, Value>) -> Option<Caller> {
        let names = &self.config.claims;
        Some(Caller {
            organization: Id::from_uuid(self.id(claims.get(&names.organization)?)?),
            companies: self.ids(claims, &names.companies)?,
            cooperatives: self.ids(claims, &names.cooperatives)?,
            user: Id::from_uuid(self.id(claims.get(&names.user)?)?),
            email: text(claims, &names.email)?.filter(|text| self.is_address(text)),
            name: text(claims, &names.name)?,
            locale: text(claims, &names.locale)?.and_then(|tag| Locale::from_tag(&tag)),
            scopes: scopes(claims.get(&names.scope))?,
            token: None,
        })
    }

    /// A claim that nothing can be sent to counts as absent: an export needs no mail. The address
    /// itself stays out of the log.
    fn is_address(&self, text: &str) -> bool {
        let is_address = is_plain_address(text);
        if !is_address {
            let claim = &self.config.claims.email;
            tracing::warn!(claim, "a JWT names no plain e-mail address: its user gets no mails");
        }
        is_address
    }

    fn id(&self, claim: &Value) -> Option<Uuid> {
        let text = claim.as_str().filter(|text| !text.is_empty() && text.len() <= 255)?;
        match Uuid::try_parse(text) {
            Ok(id) if text.len() == 36 => Some(id),
            _ => Some(Uuid::new_v5(self.config.id_namespace.as_ref()?, text.as_bytes())),
        }
    }

    /// Only a claim that is absent means "all"; null or anything odd refuses the token, so that
    /// a mistake of the issuer never widens what a user sees.
    #[expect(clippy::option_option, reason = "refused, or absent, or there")]
    fn ids<T>(&self, claims: &Map<String, Value>, name: &str) -> Option<Option<Vec<Id<T>>>> {
        let Some(claim) = claims.get(name) else { return Some(None) };
        let list = claim.as_array().filter(|list| list.len() <= MOST_IDS)?;
        list.iter().map(|id| self.id(id).map(Id::from_uuid)).collect::<Option<_>>().map(Some)
    }
}

#[expect(clippy::option_option, reason = "refused, or absent, or there")]
fn text(claims: &Map<String, Value>, name: &str) -> Option<Option<String>> {
    match claims.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(text)) if text.len() <= 255 && !text.chars().any(char::is_control) => {
            Some(Some(text.clone()).filter(|text| !text.is_empty()))
        }
        Some(_) => None,
    }
}

/// RFC 8693: words in one string; many issuers write an array instead.
fn scopes(claim: Option<&Value>) -> Option<BTreeSet<String>> {
    match claim {
        None | Some(Value::Null) => Some(BTreeSet::new()),
        Some(Value::String(words)) => Some(words.split_whitespace().map(str::to_owned).collect()),
        Some(Value::Array(words)) => {
            words.iter().map(|word| word.as_str().map(str::to_owned)).collect()
        }
        Some(_) => None,
    }
}
