//! The master key and what is derived from it.
//!
//! One secret is configured; every use has a key of its own, derived by HKDF-SHA256 (RFC 5869)
//! without salt, told apart by the `info` text. Keys are wiped from memory when dropped and
//! have no `Debug`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rand::RngCore as _;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::digest::hex;

/// AES-256-GCM of connection credentials at rest.
pub const CREDENTIALS: &str = "fetcher-credentials-v1";
/// HMAC of internal messages.
pub const INTERNAL_HMAC: &str = "fetcher-internal-hmac-v1";
/// HMAC that consumers verify: message signatures and results.
pub const EXTERNAL_HMAC: &str = "fetcher-external-hmac-v1";
/// AES-256-GCM of stored results.
pub const STORAGE_ENCRYPTION: &str = "fetcher-storage-encryption-v1";
/// HMAC of the link tokens in mails; ours alone, no consumer ever sees it.
pub const LINK: &str = "outport-link-v1";

/// The fewest bytes a master key may have once decoded.
pub const MASTER_KEY_BYTES: usize = 32;

/// The one configured secret (`APP_ENC_KEY`).
#[derive(Clone)]
pub struct MasterKey(Zeroizing<Vec<u8>>);

/// Why a text is not a master key. Never holds any of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMasterKey {
    /// Not the standard alphabet with padding.
    #[error("the key is not standard base64 with padding")]
    NotBase64,
    /// Decoded, but too little.
    #[error("the key has {bytes} bytes once decoded; at least {MASTER_KEY_BYTES} are needed")]
    TooShort {
        /// How many there were.
        bytes: usize,
    },
}

impl MasterKey {
    /// Reads standard, padded base64 of at least 32 bytes; white space around it is ignored.
    pub fn parse(text: &str) -> Result<Self, InvalidMasterKey> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| InvalidMasterKey::NotBase64)?;
        let key = Self(Zeroizing::new(bytes));
        if key.0.len() < MASTER_KEY_BYTES {
            return Err(InvalidMasterKey::TooShort { bytes: key.0.len() });
        }
        Ok(key)
    }

    /// A fresh key of 32 random bytes.
    pub fn generate() -> Self {
        let mut bytes = Zeroizing::new(vec![0; MASTER_KEY_BYTES]);
        rand::rng().fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// The key as [`parse`](Self::parse) reads it, for the one file or line it is meant for.
    pub fn base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.0.as_slice()))
    }

    /// The key for one use; `info` is one of the constants of this module.
    pub fn derive(&self, info: &str) -> DerivedKey {
        let mut bytes = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(None, &self.0)
            .expand(info.as_bytes(), bytes.as_mut())
            .expect("HKDF-SHA256 gives up to 8160 bytes");
        DerivedKey(bytes)
    }
}

/// A 32-byte key for one use.
#[derive(Clone)]
pub struct DerivedKey(Zeroizing<[u8; 32]>);

impl DerivedKey {
    /// A key that came from elsewhere, such as the external key a consumer was handed.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for a cipher.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 lower-case hex digits, for the one line a consumer is handed.
    pub fn hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(self.0.as_slice()))
    }

    /// The key of one object, told apart by its random salt (HKDF-SHA256).
    pub(crate) fn derive_salted(&self, salt: &[u8; 32], info: &str) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(Some(salt), self.0.as_slice())
            .expand(info.as_bytes(), bytes.as_mut())
            .expect("HKDF-SHA256 gives up to 8160 bytes");
        Self(bytes)
    }

    /// HMAC-SHA256 over the parts, one after another without separators.
    pub fn hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether `tag` is the HMAC over the parts, or the first bytes of it (16 at least).
    /// Takes the same time wherever the first difference is.
    pub fn verifies(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        tag.len() >= 16 && self.mac(parts).verify_truncated_left(tag).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_slice())
            .expect("HMAC takes a key of any length");
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

/// An HMAC-SHA256 in the making, fed as the bytes pass by.
#[derive(Clone)]
pub struct KeyedDigest(Hmac<Sha256>);

impl KeyedDigest {
    /// Nothing signed yet.
    pub fn new(key: &DerivedKey) -> Self {
        Self(key.mac(&[]))
    }

    /// Appends bytes; how they are cut does not matter.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The HMAC of everything appended: 64 lower-case hex digits.
    pub fn finish(self) -> String {
        hex(&self.0.finalize().into_bytes())
    }

    /// Whether `tag` is the HMAC of everything appended. Takes the same time wherever the first
    /// difference is.
    pub fn verifies(self, tag: &[u8; 32]) -> bool {
        self.0.verify_slice(tag).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_key_reads_back_and_is_never_the_same() {
        let key = MasterKey::generate();
        let again = MasterKey::parse(&format!(" {}\n", *key.base64())).expect("its own text");
        assert_eq!(key.derive(LINK).bytes(), again.derive(LINK).bytes());
        assert_ne!(key.derive(LINK).bytes(), MasterKey::generate().derive(LINK).bytes());
    }

    #[test]
    fn every_use_has_a_key_of_its_own() {
        let key = MasterKey::generate();
        let uses = [CREDENTIALS, INTERNAL_HMAC, EXTERNAL_HMAC, STORAGE_ENCRYPTION, LINK];
        let keys: std::collections::HashSet<_> =
            uses.iter().map(|info| *key.derive(info).bytes()).collect();
        assert_eq!(keys.len(), uses.len());
    }

    #[test]
    fn a_bad_key_is_refused_with_its_reason_and_without_its_text() {
        let refused = |text: &str| MasterKey::parse(text).err();
        assert_eq!(refused("not base64!"), Some(InvalidMasterKey::NotBase64));
        assert_eq!(refused(""), Some(InvalidMasterKey::TooShort { bytes: 0 }));
        let short = STANDARD.encode([7; 31]);
        let refusal = refused(&short).expect("31 bytes are too few");
        assert_eq!(refusal, InvalidMasterKey::TooShort { bytes: 31 });
        assert!(!refusal.to_string().contains(&short));
    }

    #[test]
    fn a_longer_key_is_taken_whole() {
        let long = MasterKey::parse(&STANDARD.encode([7; 48])).expect("48 bytes");
        let cut = MasterKey::parse(&STANDARD.encode([7; 32])).expect("32 bytes");
        assert_ne!(long.derive(LINK).bytes(), cut.derive(LINK).bytes());
    }

    #[test]
    fn a_tag_verifies_whole_or_cut_to_no_less_than_sixteen_bytes() {
        let key = MasterKey::generate().derive(EXTERNAL_HMAC);
        let tag = key.hmac(&[b"a", b"b"]);
        assert_eq!(tag, key.hmac(&[b"ab"]));
        assert!(key.verifies(&[b"ab"], &tag));
        assert!(key.verifies(&[b"ab"], &tag[..16]));
        assert!(!key.verifies(&[b"ab"], &tag[..15]));
        assert!(!key.verifies(&[b"ab"], &[]));
        assert!(!key.verifies(&[b"ac"], &tag));
    }

    #[test]
    fn a_keyed_digest_is_the_hmac_of_the_whole() {
        let key = MasterKey::generate().derive(EXTERNAL_HMAC);
        let mut digest = KeyedDigest::new(&key);
        digest.update(b"a");
        digest.update(b"bc");
        assert_eq!(digest.finish(), hex(&key.hmac(&[b"abc"])));
    }
}
