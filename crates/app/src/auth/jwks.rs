//! The keys that the application's JWTs are verified with: a shared secret, or public keys from
//! a JWKS file or URL. Each key serves one algorithm, so that no token can choose how it is
//! verified.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use outport_contract::redaction::told;
use tokio::sync::Mutex;
use url::Url;

/// Time between two reads of the keys, however many unknown key ids arrive.
const PAUSE: Duration = Duration::from_secs(30);
/// Age at which keys are read again, so that a withdrawn one stops to work.
const STALE: Duration = Duration::from_mins(10);
const FETCH: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 256 * 1024;
/// A shared secret is as long as the digest it keys, RFC 7518 §3.2.
const SECRET_BYTES: usize = 32;

/// Where the keys come from. Holds a secret, so it has no `Debug`.
#[derive(Clone)]
pub enum KeySource {
    /// HS256.
    Secret(Vec<u8>),
    /// A JWKS file with RS256, ES256 or `EdDSA` keys.
    File(PathBuf),
    /// The same at a URL.
    Url(Url),
}

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// RFC 7518 asks for as many bytes as the digest has.
    #[error("a JWT secret needs at least {SECRET_BYTES} bytes")]
    ShortSecret,
    /// The file or URL does not answer.
    #[error("the JWKS cannot be read")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It is no JWKS, or none of its keys can be used.
    #[error("the JWKS holds no RS256, ES256 or EdDSA key")]
    NoKeys,
}

/// A key, and the one algorithm it serves.
pub struct VerifyingKey {
    kid: Option<String>,
    /// Which.
    pub algorithm: Algorithm,
    /// The key.
    pub key: DecodingKey,
}

/// The keys as last read.
pub struct KeyRing {
    source: KeySource,
    client: reqwest::Client,
    keys: RwLock<Arc<Vec<VerifyingKey>>>,
    pause: Duration,
    read: Mutex<Option<Instant>>,
}

impl KeyRing {
    /// Reads a secret or a file at once; a URL is first fetched when a token comes.
    pub fn new(source: KeySource) -> Result<Self, KeyError> {
        let (keys, read) = match &source {
            KeySource::Secret(secret) if secret.len() < SECRET_BYTES => {
                return Err(KeyError::ShortSecret);
            }
            KeySource::Secret(secret) => {
                let key = DecodingKey::from_secret(secret).map_err(|_| KeyError::ShortSecret)?;
                (vec![VerifyingKey { kid: None, algorithm: Algorithm::HS256, key }], None)
            }
            KeySource::File(path) => {
                let text = std::fs::read(path).map_err(|e| KeyError::Unreadable(e.into()))?;
                (parse(&text)?, Some(Instant::now()))
            }
            KeySource::Url(_) => (Vec::new(), None),
        };
        let client = reqwest::Client::builder()
            .timeout(FETCH)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|e| KeyError::Unreadable(e.into()))?;
        Ok(Self {
            source,
            client,
            keys: RwLock::new(Arc::new(keys)),
            pause: PAUSE,
            read: Mutex::new(read),
        })
    }

    /// The keys that may have signed a token with this header, none or several. An unknown key
    /// id reads the keys again, at most once in `PAUSE`.
    pub async fn candidates(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<(Arc<Vec<VerifyingKey>>, Vec<usize>), KeyError> {
        let found = self.matching(kid, algorithm);
        if matches!(self.source, KeySource::Secret(_)) {
            return Ok(found);
        }
        let mut read = if found.1.is_empty() {
            self.read.lock().await
        } else {
            // Known keys do not wait for whoever reads right now.
            match self.read.try_lock() {
                Ok(read) => read,
                Err(_) => return Ok(found),
            }
        };
        let due = if found.1.is_empty() { self.pause } else { STALE };
        if read.is_some_and(|at| at.elapsed() < due) {
            return Ok(self.matching(kid, algorithm));
        }
        *read = Some(Instant::now());
        match self.load().await {
            Ok(keys) => {
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
            }
            Err(error) if self.current().is_empty() => return Err(error),
            Err(error) => tracing::warn!(
                error = told(&error),
                "the keys of JWTs cannot be read again; the known ones stay"
            ),
        }
        Ok(self.matching(kid, algorithm))
    }

    fn current(&self) -> Arc<Vec<VerifyingKey>> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn matching(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> (Arc<Vec<VerifyingKey>>, Vec<usize>) {
        let keys = self.current();
        let fits = |key: &VerifyingKey| {
            key.algorithm == algorithm
                && (kid.is_none() || key.kid.is_none() || key.kid.as_deref() == kid)
        };
        let found = (0..keys.len()).filter(|index| fits(&keys[*index])).collect();
        (keys, found)
    }

    async fn load(&self) -> Result<Vec<VerifyingKey>, KeyError> {
        let unreadable =
            |error: Box<dyn std::error::Error + Send + Sync>| KeyError::Unreadable(error);
        match &self.source {
            KeySource::Secret(_) => Err(KeyError::NoKeys),
            KeySource::File(path) => {
                parse(&tokio::fs::read(path).await.map_err(|e| unreadable(e.into()))?)
            }
            KeySource::Url(url) => {
                let mut answer = self
                    .client
                    .get(url.clone())
                    .send()
                    .await
                    .and_then(reqwest::Response::error_for_status)
                    .map_err(|e| unreadable(e.without_url().into()))?;
                let mut text = Vec::new();
                while let Some(bytes) =
                    answer.chunk().await.map_err(|e| unreadable(e.without_url().into()))?
                {
                    text.extend_from_slice(&bytes);
                    if text.len() > MOST_BYTES {
                        return Err(unreadable("longer than 256 KiB".into()));
                    }
                }
                parse(&text)
            }
        }
    }
}

/// The usable keys of a JWKS. One key that cannot be used does not spoil the others.
fn parse(text: &[u8]) -> Result<Vec<VerifyingKey>, KeyError> {
    #[derive(serde::Deserialize)]
    struct Set {
        keys: Vec<serde_json::Value>,
    }
    let set: Set = serde_json::from_slice(text).map_err(|_| KeyError::NoKeys)?;
    let keys: Vec<VerifyingKey> = set
        .keys
        .into_iter()
        .filter_map(|value| serde_json::from_value::<Jwk>(value).ok())
        .filter_map(|jwk| verifying_key(&jwk))
        .collect();
    if keys.is_empty() { Err(KeyError::NoKeys) } else { Ok(keys) }
}

fn verifying_key(jwk: &Jwk) -> Option<VerifyingKey> {
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            Algorithm::ES256
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Algorithm::EdDSA
        }
        // A shared secret in a set of public keys is a mistake, or an attack.
        _ => return None,
    };
    let declared = match jwk.common.key_algorithm {
        None => true,
        Some(KeyAlgorithm::RS256) => algorithm == Algorithm::RS256,
        Some(KeyAlgorithm::ES256) => algorithm == Algorithm::ES256,
        Some(KeyAlgorithm::EdDSA) => algorithm == Algorithm::EdDSA,
        Some(_) => false,
    };
    let signs = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
    if !declared || !signs {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    Some(VerifyingKey { kid: jwk.common.key_id.clone(), algorithm, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_secret_among_public_keys_is_not_taken() {
        let set = r#"{"keys":[{"kty":"oct","k":"c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA","kid":"a"}]}"#;
        assert!(matches!(parse(set.as_bytes()), Err(KeyError::NoKeys)));
    }

    #[test]
    fn a_key_for_encryption_or_another_algorithm_is_not_taken() {
        let point =
            r#""kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo""#;
        let set = |extra: &str| format!(r#"{{"keys":[{{{point}{extra}}}]}}"#);
        assert_eq!(parse(set("").as_bytes()).map(|keys| keys.len()).ok(), Some(1));
        for extra in [r#","use":"enc""#, r#","alg":"ES256""#, r#","alg":"HS256""#] {
            assert!(parse(set(extra).as_bytes()).is_err(), "{extra}");
        }
    }

    #[tokio::test]
    async fn a_new_key_is_found_by_its_id_when_the_pause_is_over() {
        let jwks = |kid: &str| {
            format!(
                r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{kid}","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}}]}}"#
            )
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jwks.json");
        std::fs::write(&path, jwks("old")).expect("a file");
        let mut ring = KeyRing::new(KeySource::File(path.clone())).expect("a ring");
        let known = async |ring: &KeyRing, kid: &str| {
            let found = ring.candidates(Some(kid), Algorithm::EdDSA).await.expect("keys");
            !found.1.is_empty()
        };
        std::fs::write(&path, jwks("new")).expect("a file");
        assert!(!known(&ring, "new").await, "read a moment ago");
        ring.pause = Duration::ZERO;
        assert!(known(&ring, "new").await);
        assert!(!known(&ring, "old").await, "a withdrawn key no longer verifies");
        std::fs::remove_file(&path).expect("a removal");
        assert!(!known(&ring, "other").await);
        assert!(known(&ring, "new").await, "what cannot be read again stays as it was");
    }

    #[test]
    fn a_short_secret_is_refused() {
        let short = KeyRing::new(KeySource::Secret(vec![1; 31]));
        assert!(matches!(short, Err(KeyError::ShortSecret)));
    }
}
