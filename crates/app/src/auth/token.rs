//! The text of an API token: `opt_` and 32 random bytes. Only its SHA-256 is ever stored.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use outport_contract::digest::Sha256Digest;
use rand::RngCore as _;

/// What every token starts with, so that scanners for leaked secrets know it.
pub const PREFIX: &str = "opt_";

const SECRET_BYTES: usize = 32;

/// A fresh token. The secret exists here and at its owner, nowhere else.
pub struct Minted {
    /// The text to hand out, once.
    pub secret: String,
    /// What is stored.
    pub sha256: [u8; 32],
}

/// Makes a token.
pub fn mint() -> Minted {
    let mut bytes = [0_u8; SECRET_BYTES];
    rand::rng().fill_bytes(&mut bytes);
    let secret = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let Sha256Digest(sha256) = Sha256Digest::of(secret.as_bytes());
    Minted { secret, sha256 }
}

/// What is stored of the token with this text; `None` when it has not the form of one.
pub fn parse(text: &str) -> Option<[u8; 32]> {
    let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
    (bytes.len() == SECRET_BYTES).then(|| Sha256Digest::of(text.as_bytes()).0)
}

/// A name that a token may have, or the rule.
pub fn named(text: &str) -> Result<String, &'static str> {
    let fits = (1..=100).contains(&text.chars().count())
        && !text.contains(char::is_control)
        && !text.trim().is_empty();
    fits.then(|| text.to_owned())
        .ok_or("must have 1 to 100 characters, none of them a control character, not all blanks")
}

/// An address that a token's owner may have, or the rule.
pub fn addressed(text: &str) -> Result<String, &'static str> {
    let plain = text.len() <= 254
        && text.split_once('@').is_some_and(|(local, domain)| {
            !local.is_empty() && domain.contains('.') && !domain.contains('@')
        })
        && text.chars().all(|c| !c.is_control() && !c.is_whitespace() && !"<>,;\"()\\".contains(c));
    plain.then(|| text.to_owned()).ok_or("must be one plain e-mail address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_token_is_found_by_what_is_stored_of_it() {
        let minted = mint();
        assert_eq!(parse(&minted.secret), Some(minted.sha256));
        assert_ne!(mint().secret, minted.secret);
        assert_eq!(minted.secret.len(), PREFIX.len() + 43);
    }

    #[test]
    fn only_the_whole_form_is_a_token() {
        let secret = mint().secret;
        let longer = format!("{secret}A");
        for text in ["", "opt_", &secret[4..], &secret[..secret.len() - 1], &longer, "opt_ä"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
