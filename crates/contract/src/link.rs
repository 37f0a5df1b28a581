//! The token in a mailed link, `/d/{token}`.
//!
//! It names a job and a recipient and says until when; it is signed, not secret-bearing, and
//! grants nothing by itself: at the click the holder's right is looked up again.
//!
//! Its text is URL-safe base64 without padding (92 characters) of
//! `form(1) ‖ key version(2) ‖ job(16) ‖ user(16) ‖ recipient(8) ‖ expiry(8) ‖ tag(18)`,
//! numbers big-endian, the tag being the first bytes of HMAC-SHA256 over all before it. The
//! length is a multiple of three, so no text but one stands for a token.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use uuid::Uuid;

use crate::{
    digest::{Sha256Digest, hex},
    key::{LINK, MasterKey},
    key_ring::KeyRing,
};

const FORM: u8 = 1;
const SIGNED_BYTES: usize = 1 + 2 + 16 + 16 + 8 + 8;
const TAG_BYTES: usize = 18;
const TOKEN_BYTES: usize = SIGNED_BYTES + TAG_BYTES;
const _: () = assert!(TOKEN_BYTES.is_multiple_of(3), "else several texts decode to one token");

/// Which mailbox a link was sent to, without naming it: the start of a SHA-256 of its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Recipient([u8; 8]);

impl Recipient {
    /// Case and surrounding white space make no difference.
    pub fn of_email(address: &str) -> Self {
        let Sha256Digest(digest) = Sha256Digest::of(address.trim().to_lowercase().as_bytes());
        Self(field(&digest, 0))
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipient({})", hex(&self.0))
    }
}

/// What a link says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkToken {
    /// The job whose file it leads to.
    pub job: Uuid,
    /// The user it was sent to.
    pub user: Uuid,
    /// The mailbox it was sent to.
    pub recipient: Recipient,
    /// The first second at which it no longer holds, Unix time.
    pub expires_at: i64,
}

/// Why a text is not a link of ours. Expiry is not among the reasons: an expired link is still
/// known, and gets a page that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Not the form of a token.
    #[error("the link is not complete")]
    Malformed,
    /// The form of a token, but not signed with any key of ours.
    #[error("the link is not one of ours")]
    Forged,
}

/// The keys links are signed with: the current one, and others that verify.
#[derive(Clone)]
pub struct LinkKeys(KeyRing);

impl LinkKeys {
    /// A ring of one key, which signs.
    pub fn new(version: u16, master: &MasterKey) -> Self {
        Self(KeyRing::new(version, master.derive(LINK)))
    }
}

impl From<&KeyRing<MasterKey>> for LinkKeys {
    fn from(masters: &KeyRing<MasterKey>) -> Self {
        Self(masters.derive(LINK))
    }
}

impl LinkToken {
    /// The text for the link, signed with the current key.
    pub fn sign(&self, keys: &LinkKeys) -> String {
        let mut token = Vec::with_capacity(TOKEN_BYTES);
        token.push(FORM);
        token.extend_from_slice(&keys.0.current_version().to_be_bytes());
        token.extend_from_slice(self.job.as_bytes());
        token.extend_from_slice(self.user.as_bytes());
        token.extend_from_slice(&self.recipient.0);
        token.extend_from_slice(&self.expires_at.to_be_bytes());
        let tag = keys.0.current().hmac(&[&token]);
        token.extend_from_slice(&tag[..TAG_BYTES]);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// Reads a link's text and checks its signature. The caller asks [`is_expired`](Self::is_expired).
    pub fn verify(keys: &LinkKeys, text: &str) -> Result<Self, LinkError> {
        let token = URL_SAFE_NO_PAD.decode(text).map_err(|_| LinkError::Malformed)?;
        if token.len() != TOKEN_BYTES || token[0] != FORM {
            return Err(LinkError::Malformed);
        }
        let (signed, tag) = token.split_at(SIGNED_BYTES);
        let version = u16::from_be_bytes(field(signed, 1));
        let key = keys.0.get(version).map_err(|_unknown| LinkError::Forged)?;
        if !key.verifies(&[signed], tag) {
            return Err(LinkError::Forged);
        }
        Ok(Self {
            job: Uuid::from_bytes(field(signed, 3)),
            user: Uuid::from_bytes(field(signed, 19)),
            recipient: Recipient(field(signed, 35)),
            expires_at: i64::from_be_bytes(field(signed, 43)),
        })
    }

    /// Whether the link no longer holds at `now`, Unix seconds.
    pub fn is_expired(&self, now: i64) -> bool {
        now >= self.expires_at
    }
}

fn field<const N: usize>(bytes: &[u8], start: usize) -> [u8; N] {
    bytes[start..start + N].try_into().expect("a slice of that length")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> LinkToken {
        LinkToken {
            job: Uuid::from_u128(0x0197_f604_49fe_7b73_bb81_df2e_93a7_e47d),
            user: Uuid::from_u128(0x0197_a805_0910_7eb2_bae7_90a1_3df2_a9b2),
            recipient: Recipient::of_email("ana@example.com"),
            expires_at: 1_783_965_851,
        }
    }

    #[test]
    fn a_signed_token_reads_back() {
        let keys = LinkKeys::new(7, &MasterKey::generate());
        let text = token().sign(&keys);
        assert_eq!(text.len(), 92);
        assert!(text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_')));
        assert_eq!(LinkToken::verify(&keys, &text), Ok(token()));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let keys = LinkKeys::new(7, &MasterKey::generate());
        let bytes = URL_SAFE_NO_PAD.decode(token().sign(&keys)).expect("base64");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 8 { LinkError::Malformed } else { LinkError::Forged };
            let verdict = LinkToken::verify(&keys, &URL_SAFE_NO_PAD.encode(flipped));
            assert_eq!(verdict, Err(expected), "bit {bit}");
        }
    }

    #[test]
    fn a_token_cut_short_or_made_longer_is_malformed() {
        let keys = LinkKeys::new(7, &MasterKey::generate());
        let text = token().sign(&keys);
        for length in 0..text.len() {
            assert_eq!(LinkToken::verify(&keys, &text[..length]), Err(LinkError::Malformed));
        }
        for longer in
            [format!("{text}A"), format!("{text}AAAA"), format!("{text}="), format!(" {text}")]
        {
            assert_eq!(LinkToken::verify(&keys, &longer), Err(LinkError::Malformed), "{longer}");
        }
        assert_eq!(LinkToken::verify(&keys, "/d/ä"), Err(LinkError::Malformed));
    }

    #[test]
    fn another_master_key_forges_nothing() {
        let text = token().sign(&LinkKeys::new(7, &MasterKey::generate()));
        let ours = LinkKeys::new(7, &MasterKey::generate());
        assert_eq!(LinkToken::verify(&ours, &text), Err(LinkError::Forged));
    }

    #[test]
    fn an_older_key_verifies_until_it_leaves_the_ring() {
        let (old, new) = (MasterKey::generate(), MasterKey::generate());
        let text = token().sign(&LinkKeys::new(1, &old));
        let rotated = LinkKeys::from(&KeyRing::new(2, new.clone()).and(1, old));
        assert_eq!(LinkToken::verify(&rotated, &text), Ok(token()));
        assert_eq!(
            LinkToken::verify(&LinkKeys::new(2, &new), &token().sign(&rotated)),
            Ok(token()),
            "the new key signs"
        );
        assert_eq!(LinkToken::verify(&LinkKeys::new(2, &new), &text), Err(LinkError::Forged));
    }

    #[test]
    fn a_token_expires_at_its_second() {
        assert!(!token().is_expired(1_783_965_850));
        assert!(token().is_expired(1_783_965_851));
    }

    #[test]
    fn a_mailbox_is_known_whatever_the_case_of_its_address() {
        assert_eq!(
            Recipient::of_email(" Ana@Example.com "),
            Recipient::of_email("ana@example.com")
        );
        assert_ne!(Recipient::of_email("ana@example.com"), Recipient::of_email("bea@example.com"));
    }
}
