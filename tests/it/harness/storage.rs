//! How the objects of a world are stored.

use outport_contract::{
    key::{MasterKey, STORAGE_ENCRYPTION},
    key_ring::KeyRing,
    sealed::{Opener, plain_bytes},
};

use super::world::KEY;

/// How files are stored where a test does not say: as they are, or as this variable says. The
/// suites mean the same either way.
pub fn protection() -> String {
    std::env::var("OUTPORT_TEST_PROTECTION").unwrap_or_else(|_| "none".to_owned())
}

/// The bytes of a sealed object, opened with the key of every world.
pub fn opened(key: &str, stored: &[u8]) -> Vec<u8> {
    let ring = KeyRing::new(1, MasterKey::parse(KEY).expect("a key")).derive(STORAGE_ENCRYPTION);
    let length = plain_bytes(stored.len() as u64).expect("the length of a sealed object");
    let (mut opener, mut plain) = (Opener::new(&ring, key, length), Vec::new());
    opener.update(stored, &mut plain).expect("sealed");
    opener.finish().expect("whole");
    plain
}
