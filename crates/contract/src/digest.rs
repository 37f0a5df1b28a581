//! SHA-256, the only plain digest in the house: file digests, request identities, and names
//! derived from longer texts.

use std::{fmt, str::FromStr};

use sha2::Digest as _;

/// A SHA-256 in the making, fed as the bytes pass by.
#[derive(Clone, Default)]
pub struct Sha256(sha2::Sha256);

impl Sha256 {
    /// Nothing hashed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends bytes; how they are cut does not matter.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything appended.
    pub fn finish(self) -> Sha256Digest {
        Sha256Digest(self.0.finalize().into())
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sha256")
    }
}

/// A finished SHA-256. Its text is 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Digest(pub [u8; 32]);

/// Why a text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256 digest: 64 hex digits expected")]
pub struct InvalidDigest;

impl Sha256Digest {
    /// The digest of bytes that are all at hand.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// 64 lower-case hex digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256Digest({self})")
    }
}

impl FromStr for Sha256Digest {
    type Err = InvalidDigest;

    /// Accepts hex digits of either case.
    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(InvalidDigest);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

/// Bytes as lower-case hex digits, two for each.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0x0f])
        .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
        .collect()
}

fn nibble(digit: u8) -> Result<u8, InvalidDigest> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(InvalidDigest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4, the message "abc".
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn the_known_answer_comes_out() {
        assert_eq!(Sha256Digest::of(b"abc").to_string(), ABC);
    }

    #[test]
    fn how_the_bytes_are_cut_does_not_matter() {
        let mut sha = Sha256::new();
        for piece in [b"a".as_slice(), b"", b"bc"] {
            sha.update(piece);
        }
        assert_eq!(sha.finish(), Sha256Digest::of(b"abc"));
    }

    #[test]
    fn a_digest_reads_back_in_either_case() {
        let digest = Sha256Digest::of(b"abc");
        assert_eq!(ABC.parse(), Ok(digest));
        assert_eq!(ABC.to_uppercase().parse(), Ok(digest));
    }

    #[test]
    fn a_text_of_another_length_or_alphabet_is_refused() {
        let wrong = [
            String::new(),
            ABC[1..].into(),
            format!("{ABC}0"),
            ABC.replace('f', "g"),
            "é".repeat(32),
        ];
        for text in wrong {
            assert_eq!(text.parse::<Sha256Digest>(), Err(InvalidDigest), "{text:?}");
        }
    }
}
