//! Keys by version.
//!
//! A ring signs and encrypts with its current key, and verifies and decrypts with any. A key is
//! rotated in two steps: first every process and consumer is given the new one, which verifies
//! and decrypts; after that it becomes the current one. The version of the key that was used
//! travels with what it made.

use std::{collections::BTreeMap, iter};

use crate::key::{DerivedKey, MasterKey};

/// The version of a key that was never rotated, and the one meant where none is said.
pub const FIRST_VERSION: u16 = 1;

/// The keys of one use by version; or, as `KeyRing<MasterKey>`, what those are derived from.
/// Like the keys it has no `Debug`.
#[derive(Clone)]
pub struct KeyRing<K = DerivedKey> {
    current: u16,
    current_key: K,
    others: BTreeMap<u16, K>,
}

/// A key is asked for that is not in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no key of version {version}")]
pub struct UnknownKey {
    /// The version asked for.
    pub version: u16,
}

impl<K> KeyRing<K> {
    /// A ring of one key, the current one.
    pub fn new(version: u16, key: K) -> Self {
        Self { current: version, current_key: key, others: BTreeMap::new() }
    }

    /// Adds a key, older or yet to come, that verifies and decrypts only. A version that is
    /// already in the ring keeps its key.
    #[must_use]
    pub fn and(mut self, version: u16, key: K) -> Self {
        if version != self.current {
            self.others.entry(version).or_insert(key);
        }
        self
    }

    /// The version of the key that signs and encrypts.
    pub fn current_version(&self) -> u16 {
        self.current
    }

    /// The key that signs and encrypts.
    pub fn current(&self) -> &K {
        &self.current_key
    }

    /// The key of a version, to verify or decrypt with.
    pub fn get(&self, version: u16) -> Result<&K, UnknownKey> {
        if version == self.current {
            return Ok(&self.current_key);
        }
        self.others.get(&version).ok_or(UnknownKey { version })
    }

    /// Every key, for what does not say its key's version: the current one first, then the others
    /// from the newest.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &K)> {
        let others = self.others.iter().rev().map(|(version, key)| (*version, key));
        iter::once((self.current, &self.current_key)).chain(others)
    }
}

impl KeyRing<MasterKey> {
    /// The ring for one use; `info` is one of the constants of [`key`](crate::key).
    pub fn derive(&self, info: &str) -> KeyRing {
        let derive = |(version, key): (&u16, &MasterKey)| (*version, key.derive(info));
        KeyRing {
            current: self.current,
            current_key: self.current_key.derive(info),
            others: self.others.iter().map(derive).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_is_current_and_every_key_is_found() {
        let ring = KeyRing::new(2, "two").and(1, "one").and(3, "three");
        assert_eq!((ring.current_version(), *ring.current()), (2, "two"));
        assert_eq!(ring.get(1), Ok(&"one"));
        assert_eq!(ring.get(2), Ok(&"two"));
        assert_eq!(ring.get(4), Err(UnknownKey { version: 4 }));
        let all: Vec<_> = ring.iter().collect();
        assert_eq!(all, [(2, &"two"), (3, &"three"), (1, &"one")]);
    }

    #[test]
    fn a_version_keeps_its_first_key() {
        let ring = KeyRing::new(2, "two").and(2, "other").and(1, "one").and(1, "other");
        assert_eq!(ring.iter().collect::<Vec<_>>(), [(2, &"two"), (1, &"one")]);
    }

    #[test]
    fn a_derived_ring_has_the_same_versions() {
        let (old, new) = (MasterKey::generate(), MasterKey::generate());
        let ring = KeyRing::new(7, new.clone()).and(3, old.clone()).derive("use");
        assert_eq!(ring.current_version(), 7);
        assert_eq!(ring.current().bytes(), new.derive("use").bytes());
        assert_eq!(ring.get(3).expect("known").bytes(), old.derive("use").bytes());
    }
}
