//! The stored form `adapter-managed`, version 1: what a Fetcher stores.
//!
//! Standard base64 with padding of `nonce(12) ‖ ciphertext ‖ tag(16)`, AES-256-GCM with the
//! storage key and a random nonce, no associated data. The whole object is in memory, and it says
//! neither its form nor its key's version: [sealed objects](crate::sealed) are better wherever a
//! consumer does not expect this one.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rand::RngCore as _;

use crate::{
    aead::{Cipher, NONCE_BYTES, TAG_BYTES},
    key_ring::KeyRing,
};

/// The word for this form in an event.
pub const MODE: &str = "adapter-managed";

// Else the text of the nonce and that of what follows it could not be made one after the other.
const _: () = assert!(NONCE_BYTES.is_multiple_of(3));

/// Why stored bytes are not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// Not standard base64 with padding.
    #[error("the object is not base64, so not of the form {MODE}")]
    NotBase64,
    /// Base64, but shorter than an empty object.
    #[error("the object is cut short")]
    Truncated,
    /// Changed, cut short, or encrypted with a key that is not in the ring.
    #[error("the object was not encrypted with a key known here, or was changed since")]
    Forged,
}

/// The length of what [`seal`] makes of so many bytes.
pub fn stored_bytes(plain_bytes: u64) -> u64 {
    plain_bytes.saturating_add((NONCE_BYTES + TAG_BYTES) as u64).div_ceil(3).saturating_mul(4)
}

/// Encrypts with the current storage key. Takes 7/3 of the plaintext's memory.
pub fn seal(storage: &KeyRing, plaintext: Vec<u8>) -> String {
    let mut nonce = [0; NONCE_BYTES];
    rand::rng().fill_bytes(&mut nonce);
    seal_with_nonce(storage, nonce, plaintext)
}

fn seal_with_nonce(storage: &KeyRing, nonce: [u8; NONCE_BYTES], mut bytes: Vec<u8>) -> String {
    let tag = Cipher::new(storage.current()).seal(nonce, &[], &mut bytes);
    let mut stored = String::with_capacity(stored_bytes(bytes.len() as u64) as usize);
    bytes.reserve_exact(TAG_BYTES);
    bytes.extend_from_slice(&tag);
    STANDARD.encode_string(nonce, &mut stored);
    STANDARD.encode_string(bytes, &mut stored);
    stored
}

/// Decrypts with whichever storage key fits, the current one being tried first.
pub fn open(storage: &KeyRing, stored: &[u8]) -> Result<Vec<u8>, NotOpened> {
    for (_, key) in storage.iter() {
        // A failed attempt wipes what it was given.
        let mut bytes = STANDARD.decode(stored).map_err(|_| NotOpened::NotBase64)?;
        let (nonce, sealed) =
            bytes.split_first_chunk_mut::<NONCE_BYTES>().ok_or(NotOpened::Truncated)?;
        if sealed.len() < TAG_BYTES {
            return Err(NotOpened::Truncated);
        }
        if Cipher::new(key).open(*nonce, &[], sealed).is_some() {
            bytes.truncate(bytes.len() - TAG_BYTES);
            bytes.drain(..NONCE_BYTES);
            return Ok(bytes);
        }
    }
    Err(NotOpened::Forged)
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};
    use serde_json::Value;

    use super::*;
    use crate::{
        digest::hex,
        key::{MasterKey, STORAGE_ENCRYPTION},
    };

    fn ring() -> KeyRing {
        KeyRing::new(1, MasterKey::generate()).derive(STORAGE_ENCRYPTION)
    }

    #[test]
    fn the_contracts_object_comes_out_and_opens() {
        let vectors = include_str!("../../../tests/golden/vectors.json");
        let vectors: Value = serde_json::from_str(vectors).expect("JSON");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let master = MasterKey::parse(&text(&vectors["masterKeyBase64"])).expect("a key");
        let ring = KeyRing::new(1, master).derive(STORAGE_ENCRYPTION);
        let result = &vectors["result"];
        let (plaintext, stored) = (text(&result["plaintext"]), text(&result["stored"]));
        let nonce: [u8; NONCE_BYTES] = std::array::from_fn(|at| at as u8);
        assert_eq!(hex(&nonce), text(&result["nonceHex"]));
        assert_eq!(seal_with_nonce(&ring, nonce, plaintext.clone().into_bytes()), stored);
        assert_eq!(open(&ring, stored.as_bytes()), Ok(plaintext.into_bytes()));
    }

    #[test]
    fn an_object_opens_with_any_key_of_the_ring_and_no_other() {
        let (old, new) = (MasterKey::generate(), MasterKey::generate());
        let ring = |version, key: &MasterKey| KeyRing::new(version, key.clone());
        let stored = seal(&ring(1, &old).derive(STORAGE_ENCRYPTION), b"rows".to_vec());
        let rotated = ring(2, &new).and(1, old).derive(STORAGE_ENCRYPTION);
        assert_eq!(open(&rotated, stored.as_bytes()), Ok(b"rows".to_vec()));
        let new = ring(2, &new).derive(STORAGE_ENCRYPTION);
        assert_eq!(open(&new, stored.as_bytes()), Err(NotOpened::Forged));
        let again = seal(&rotated, b"rows".to_vec());
        assert_eq!(open(&new, again.as_bytes()), Ok(b"rows".to_vec()), "the current key seals");
        assert_ne!(seal(&rotated, b"rows".to_vec()), again, "every nonce is new");
    }

    #[test]
    fn every_flipped_bit_and_every_length_cut_is_refused() {
        let ring = ring();
        let stored = seal(&ring, b"some rows".to_vec());
        let bytes = STANDARD.decode(&stored).expect("base64");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let flipped = STANDARD.encode(flipped);
            assert_eq!(open(&ring, flipped.as_bytes()), Err(NotOpened::Forged), "bit {bit}");
        }
        for length in 0..bytes.len() {
            let short = NONCE_BYTES + TAG_BYTES;
            let expected = if length < short { NotOpened::Truncated } else { NotOpened::Forged };
            let cut = STANDARD.encode(&bytes[..length]);
            assert_eq!(open(&ring, cut.as_bytes()), Err(expected), "{length} bytes");
        }
        for length in (1..stored.len()).filter(|length| length % 4 != 0) {
            assert_eq!(open(&ring, &stored.as_bytes()[..length]), Err(NotOpened::NotBase64));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(256) })]

        #[test]
        fn anything_comes_back_and_has_the_length_foretold(
            plaintext in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let ring = ring();
            let stored = seal(&ring, plaintext.clone());
            prop_assert_eq!(stored.len() as u64, stored_bytes(plaintext.len() as u64));
            prop_assert_eq!(open(&ring, stored.as_bytes()), Ok(plaintext));
        }

        #[test]
        fn arbitrary_bytes_are_refused(stored in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(open(&ring(), &stored).is_err());
            prop_assert!(open(&ring(), STANDARD.encode(stored).as_bytes()).is_err());
        }
    }
}
