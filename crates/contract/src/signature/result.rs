//! The signature over a result's plaintext, made and verified as the bytes pass by.

use super::{DIGITS, signature};
use crate::{
    job_event::{HMAC_SHA256, Integrity},
    key::KeyedDigest,
    key_ring::{KeyRing, UnknownKey},
};

/// Signs a result before it is encrypted, with the current external key.
#[derive(Clone)]
pub struct ResultSigner {
    key_version: u16,
    digest: KeyedDigest,
}

impl ResultSigner {
    /// Nothing signed yet.
    pub fn new(external: &KeyRing) -> Self {
        let digest = KeyedDigest::new(external.current());
        Self { key_version: external.current_version(), digest }
    }

    /// Appends plaintext; how it is cut does not matter.
    pub fn update(&mut self, plaintext: &[u8]) {
        self.digest.update(plaintext);
    }

    /// What the event says about everything appended.
    pub fn finish(self) -> Integrity {
        Integrity::new(self.digest.finish(), self.key_version)
    }
}

/// Verifies a result after it was decrypted and before its rows are trusted.
#[derive(Clone)]
pub struct ResultVerifier {
    expected: [u8; 32],
    digest: KeyedDigest,
}

/// Why a result cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntegrityError {
    /// Signed by another algorithm than [`HMAC_SHA256`].
    #[error("integrity.algorithm must be {HMAC_SHA256}")]
    UnknownAlgorithm,
    /// The signature is not one.
    #[error("integrity.signature must be {DIGITS}")]
    Malformed,
    /// Signed with a key that is not in the ring.
    #[error("integrity.keyVersion: {0}")]
    UnknownKey(UnknownKey),
    /// The bytes are not those that were signed.
    #[error("the result is not what was signed")]
    Forged,
}

impl ResultVerifier {
    /// Nothing verified yet.
    pub fn new(external: &KeyRing, integrity: &Integrity) -> Result<Self, IntegrityError> {
        if integrity.algorithm != HMAC_SHA256 {
            return Err(IntegrityError::UnknownAlgorithm);
        }
        let expected = signature(&integrity.signature).ok_or(IntegrityError::Malformed)?;
        let key = external.get(integrity.key_version).map_err(IntegrityError::UnknownKey)?;
        Ok(Self { expected, digest: KeyedDigest::new(key) })
    }

    /// Appends plaintext; how it is cut does not matter.
    pub fn update(&mut self, plaintext: &[u8]) {
        self.digest.update(plaintext);
    }

    /// Whether everything appended is what was signed. Takes constant time.
    pub fn finish(self) -> Result<(), IntegrityError> {
        if self.digest.verifies(&self.expected) { Ok(()) } else { Err(IntegrityError::Forged) }
    }
}
