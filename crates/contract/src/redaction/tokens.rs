//! Secrets that their form tells: tokens of known kinds, and what follows `Bearer` and `Basic`.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::REDACTED;

/// Letters that no word has as many of.
const LONG_BYTES: usize = 24;

/// What may stand right before a token: none of these, but for an escape.
macro_rules! after_none_of {
    ($class:literal) => {
        concat!("(^|[^", $class, "]|", escape!(), ")")
    };
}

/// A scheme and what may be the credentials, in quotes or not.
static SCHEMES: LazyLock<[Regex; 2]> = LazyLock::new(|| {
    [
        r"(?i)((?:\b|\\[nrt])basic(?:\s+|(?:%20)+))([a-z0-9+/_-]{6,}=*)",
        r#"(?i)(bearer(?:\s*:(?:\s|\\?["']|%20)*|(?:\s|\\?["']|%20|\+)+))([a-z0-9._~+/|=-]{8,})"#,
    ]
    .map(|pattern| Regex::new(pattern).expect("the pattern is a constant"))
});

/// Each with whether nothing else looks like it; of the others, only what is no joined words goes.
static TOKENS: LazyLock<[(Regex, bool); 4]> = LazyLock::new(|| {
    [
        // API tokens and tickets; long ones within a word, too.
        (
            concat!(after_none_of!("A-Za-z0-9_"), "op[tk]_[A-Za-z0-9_-]{16,}"),
            false,
        ),
        // What cannot be the end of another word.
        (
            concat!(
                r"op[tk]_[A-Za-z0-9_-]{40,}|(?:AKIA|ASIA)[A-Z0-9]{16}|gh[opsur]_[A-Za-z0-9]{30,}",
                r"|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|AGE-SECRET-KEY-1[A-Z0-9]+",
                r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*)?",
            ),
            true,
        ),
        // JWTs of three parts and of five, of which the second may be empty.
        (
            concat!(
                after_none_of!("A-Za-z0-9"),
                r"eyJ[A-Za-z0-9_-]{8,}\.(?:[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*|\.[A-Za-z0-9_-]+)(?:\.[A-Za-z0-9_-]+){0,2}",
            ),
            true,
        ),
        // Those of others that say what they are.
        (
            concat!(
                after_none_of!("A-Za-z0-9"),
                r"(?:AIza[\w-]{20,}|ya29\.[\w-]{16,}|SG\.[\w-]{8,}\.[\w-]{8,}|hv[sbr]\.[\w-]{16,}|(?:hf|npm)_[A-Za-z0-9]{16,}",
                r"|(?:gh[opsur]_|xox[a-z]-|xapp-|[sr]k_(?:live|test)_|sk-|whsec_|shp[a-z]{2}_|pypi-|do[opr]_v1_)",
                r"[A-Za-z0-9_-]{16,})",
            ),
            false,
        ),
    ]
    .map(|(pattern, is_sure)| (Regex::new(pattern).expect("the pattern is a constant"), is_sure))
});

pub(super) fn redact(text: &str) -> String {
    let mut text = text.to_owned();
    for scheme in SCHEMES.iter() {
        text = scheme.replace_all(&text, without_credentials).into_owned();
    }
    for (pattern, is_sure) in TOKENS.iter() {
        let without = |found: &Captures| {
            if *is_sure || is_code(&found[0]) {
                format!("{}{REDACTED}", found.get(1).map_or("", |before| before.as_str()))
            } else {
                found[0].to_owned()
            }
        };
        text = pattern.replace_all(&text, without).into_owned();
    }
    text
}

/// Whether it has what no words have that are joined: `opt_in_marketing_emails`.
fn is_code(text: &str) -> bool {
    let is_mixed = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    text.bytes().any(|byte| byte.is_ascii_digit()) || text.as_bytes().windows(2).any(is_mixed)
}

fn without_credentials(found: &Captures) -> String {
    let bytes = found[2].as_bytes();
    // No English word: basic authentication, Bearer realm.
    let is_long = bytes.len() >= LONG_BYTES && bytes.iter().all(u8::is_ascii_alphabetic);
    let is_marked = found[2].contains(['+', '|']) || found[2].ends_with('=');
    if is_code(&found[2]) || is_long || is_marked {
        format!("{}{REDACTED}", &found[1])
    } else {
        found[0].to_owned()
    }
}
