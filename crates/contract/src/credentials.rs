//! Credentials of connections at rest.
//!
//! The stored text is `v1:<key version>:` and then standard base64 of
//! `nonce(12) ‖ ciphertext ‖ tag(16)`, AES-256-GCM with the credentials key and a random nonce.
//! The associated data is that prefix and what the credentials belong to, so that those of one
//! connection, copied to another, are not sent to the other's host.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rand::RngCore as _;
use zeroize::Zeroizing;

use crate::{
    aead::{Cipher, NONCE_BYTES, TAG_BYTES},
    key_ring::{KeyRing, UnknownKey},
};

const FORM: &str = "v1";

/// Why a stored text is not opened. Never holds any of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// Not the form of encrypted credentials.
    #[error("the credentials are not of the form {FORM}:<key version>:<base64>")]
    Malformed,
    /// Encrypted with a key that is not in the ring.
    #[error("the credentials cannot be decrypted: {0}")]
    UnknownKey(UnknownKey),
    /// Changed, or moved from what they belonged to.
    #[error("the credentials were changed, or belong to another connection")]
    Forged,
}

/// Encrypts with the current credentials key. `owner` is what the credentials belong to, such as
/// the id of the connection.
pub fn seal(credentials: &KeyRing, owner: &str, secret: &[u8]) -> String {
    let mut nonce = [0; NONCE_BYTES];
    rand::rng().fill_bytes(&mut nonce);
    seal_with_nonce(credentials, nonce, owner, secret)
}

fn seal_with_nonce(
    credentials: &KeyRing,
    nonce: [u8; NONCE_BYTES],
    owner: &str,
    secret: &[u8],
) -> String {
    let mut stored = prefix(credentials.current_version());
    let associated = format!("{stored}{owner}");
    // Made large enough at once, so that no copy of the secret is left behind by growing.
    let mut bytes = Zeroizing::new(Vec::with_capacity(NONCE_BYTES + secret.len() + TAG_BYTES));
    bytes.extend_from_slice(&nonce);
    bytes.extend_from_slice(secret);
    let cipher = Cipher::new(credentials.current());
    let tag = cipher.seal(nonce, associated.as_bytes(), &mut bytes[NONCE_BYTES..]);
    bytes.extend_from_slice(&tag);
    STANDARD.encode_string(bytes.as_slice(), &mut stored);
    stored
}

/// Decrypts with the key that the text names.
pub fn open(
    credentials: &KeyRing,
    owner: &str,
    stored: &str,
) -> Result<Zeroizing<Vec<u8>>, NotOpened> {
    let (version, encoded) = parts(stored).ok_or(NotOpened::Malformed)?;
    let mut bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| NotOpened::Malformed)?);
    let (nonce, sealed) =
        bytes.split_first_chunk_mut::<NONCE_BYTES>().ok_or(NotOpened::Malformed)?;
    let key = credentials.get(version).map_err(NotOpened::UnknownKey)?;
    let associated = format!("{}{owner}", prefix(version));
    let secret =
        Cipher::new(key).open(*nonce, associated.as_bytes(), sealed).ok_or(NotOpened::Forged)?;
    Ok(Zeroizing::new(secret.to_vec()))
}

/// The version of the key that encrypted them, where the text has the form.
pub fn key_version(stored: &str) -> Option<u16> {
    parts(stored).map(|(version, _)| version)
}

fn prefix(version: u16) -> String {
    format!("{FORM}:{version}:")
}

/// The key's version and the base64.
fn parts(stored: &str) -> Option<(u16, &str)> {
    let (version, encoded) = stored.strip_prefix(FORM)?.strip_prefix(':')?.split_once(':')?;
    let version = version.parse().ok()?;
    // One text for one number: `01` and `+1` are not what `seal` writes.
    stored.starts_with(&prefix(version)).then_some((version, encoded))
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};

    use super::*;
    use crate::key::{CREDENTIALS, MasterKey};

    const SECRET: &[u8] = br#"{"password":"s3cret"}"#;

    fn opened(ring: &KeyRing, owner: &str, stored: &str) -> Result<Vec<u8>, NotOpened> {
        open(ring, owner, stored).map(|secret| secret.to_vec())
    }

    #[test]
    fn the_known_answer_comes_out() {
        let golden = include_str!("../../../tests/golden/sealed.json");
        let golden: serde_json::Value = serde_json::from_str(golden).expect("JSON");
        let text = |member: &str| golden["credentials"][member].as_str().expect("a text");
        let master = golden["masterKeyBase64"].as_str().expect("a text");
        let master = MasterKey::parse(master).expect("a key");
        let ring = KeyRing::new(7, master).derive(CREDENTIALS);
        let nonce: [u8; NONCE_BYTES] = std::array::from_fn(|at| at as u8);
        let stored = seal_with_nonce(&ring, nonce, text("owner"), text("secret").as_bytes());
        assert_eq!(stored, text("stored"));
        assert_eq!(opened(&ring, text("owner"), &stored), Ok(text("secret").into()));
    }

    #[test]
    fn they_open_with_the_key_they_name_and_for_their_owner_only() {
        let (old, new) = (MasterKey::generate(), MasterKey::generate());
        let stored = seal(&KeyRing::new(1, old.clone()).derive(CREDENTIALS), "a", SECRET);
        let rotated = KeyRing::new(2, new.clone()).and(1, old).derive(CREDENTIALS);
        assert_eq!(opened(&rotated, "a", &stored), Ok(SECRET.to_vec()));
        assert_eq!(opened(&rotated, "b", &stored), Err(NotOpened::Forged));
        let without = KeyRing::new(2, new.clone()).derive(CREDENTIALS);
        let unknown = NotOpened::UnknownKey(UnknownKey { version: 1 });
        assert_eq!(opened(&without, "a", &stored), Err(unknown));
        let other = KeyRing::new(1, new).derive(CREDENTIALS);
        assert_eq!(opened(&other, "a", &stored), Err(NotOpened::Forged));
        let renamed = stored.replacen("v1:1:", "v1:2:", 1);
        assert_eq!(opened(&rotated, "a", &renamed), Err(NotOpened::Forged));
        assert!(seal(&rotated, "a", SECRET).starts_with("v1:2:"), "the current key seals");
        assert_eq!(
            [&*stored, &renamed, "v1:01:AAAA", ""].map(key_version),
            [Some(1), Some(2), None, None]
        );
    }

    #[test]
    fn every_other_text_is_refused() {
        let ring = KeyRing::new(1, MasterKey::generate()).derive(CREDENTIALS);
        let stored = seal(&ring, "a", SECRET);
        for at in 0..stored.len() {
            let cut = opened(&ring, "a", &stored[..at]).expect_err("cut short");
            assert!(matches!(cut, NotOpened::Malformed | NotOpened::Forged), "{at} characters");
            let other = if stored.as_bytes()[at] == b'A' { "B" } else { "A" };
            let mut changed = stored.clone();
            changed.replace_range(at..=at, other);
            assert!(opened(&ring, "a", &changed).is_err(), "character {at}");
        }
        for text in ["", "v1", "v1:", "v1:1", "v1:1:", "v1:1:AAAA", "v2:1:AAAA", "V1:1:AAAA"] {
            assert_eq!(opened(&ring, "a", text), Err(NotOpened::Malformed), "{text}");
        }
        for prefix in ["v1:01:", "v1:+1:", "v1: 1:", "v1:65536:", "v1::"] {
            let text = stored.replacen("v1:1:", prefix, 1);
            assert_eq!(opened(&ring, "a", &text), Err(NotOpened::Malformed), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(256) })]

        #[test]
        fn any_secret_of_any_owner_comes_back(
            owner in any::<String>(),
            secret in prop::collection::vec(any::<u8>(), 0..100),
            version in any::<u16>(),
        ) {
            let ring = KeyRing::new(version, MasterKey::generate()).derive(CREDENTIALS);
            let stored = seal(&ring, &owner, &secret);
            prop_assert_eq!(opened(&ring, &owner, &stored), Ok(secret));
        }

        #[test]
        fn arbitrary_text_is_refused(
            text in prop_oneof![any::<String>(), "v1:[0-9+]{0,6}:[A-Za-z0-9+/]{0,80}={0,3}"],
        ) {
            let ring = KeyRing::new(1, MasterKey::generate()).derive(CREDENTIALS);
            prop_assert!(opened(&ring, "a", &text).is_err());
        }
    }
}
