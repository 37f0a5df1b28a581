//! Which names say that what follows them is a secret, or where something is.

use std::collections::HashMap;

/// What a name says of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is a secret.
    Secret,
    /// It is a header that takes the rest of its line, such as `Authorization`.
    Header,
    /// It is a host or a user, when `=` follows: as in connection strings.
    Place,
}

/// What a secret's name has in it, in one of its words.
const SECRETS: [&str; 17] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "credential",
    "cookie",
    "token",
    "secret",
    "sessid",
    "passkey",
    "passwort",
    "kennwort",
    "wachtwoord",
    "contraseña",
    "contrasena",
    "senha",
];
/// What a secret's name has in it wherever its words seem to begin: `pASSwORD`. The others of
/// [`SECRETS`] do so only as the whole name, because words side by side spell them: `tokEnd`,
/// `secRetries`, `chosenHandler`.
const ACROSS_WORDS: [&str; 7] =
    ["password", "passwd", "passphrase", "credential", "cookie", "sessionid", "motdepasse"];
/// What may stand before `key` when it opens something.
const OPENING: [&str; 40] = [
    "api",
    "access",
    "private",
    "secret",
    "signing",
    "signature",
    "encryption",
    "encrypt",
    "decryption",
    "cipher",
    "crypto",
    "account",
    "shared",
    "master",
    "storage",
    "ssh",
    "service",
    "license",
    "auth",
    "client",
    "hmac",
    "jwt",
    "session",
    "functions",
    "subscription",
    "security",
    "admin",
    "root",
    "deploy",
    "webhook",
    "aes",
    "rsa",
    "enc",
    "kms",
    "tls",
    "ssl",
    "data",
    "app",
    "unseal",
    "recovery",
];
/// What `key` begins in words that are no keys.
const AFTER_KEY: [&str; 6] = ["word", "board", "stroke", "note", "frame", "press"];
/// Words of their own that end in `pass`.
const PASSING: [&str; 7] =
    ["bypass", "compass", "trespass", "surpass", "overpass", "underpass", "encompass"];
/// A key of these kinds opens nothing.
const KINDS_OF_KEY: [&str; 14] = [
    "primary",
    "foreign",
    "unique",
    "routing",
    "partition",
    "sort",
    "object",
    "cache",
    "idempotency",
    "public",
    "join",
    "index",
    "existing",
    "metadata",
];
/// What hosts and users go by in connection strings.
const PLACES: [&str; 7] = ["host", "hostaddr", "hostname", "server", "user", "username", "uid"];
/// Digits that a count has at most; a longer number may be a secret.
const COUNT_DIGITS: usize = 9;
/// Those of the things of which there are few; four digits may be a PIN.
const FEW_DIGITS: usize = 3;

/// What `name` says of its value; `before` is the text in front of it.
pub(super) fn kind(name: &str, before: &str) -> Option<Kind> {
    let words = words(name);
    let last = words.last()?.as_str();
    let flat = words.concat();
    if ["authorization", "cookie", "cookies"].iter().any(|header| flat.ends_with(header)) {
        return Some(Kind::Header);
    }
    if words.iter().any(|word| is_secret(word))
        || SECRETS.contains(&flat.as_str())
        || ACROSS_WORDS.iter().any(|name| flat.contains(name))
        || opens(&words)
    {
        return Some(Kind::Secret);
    }
    let word_before = before.trim_end_matches(' ').rsplit(|c: char| !c.is_ascii_alphabetic());
    let word_before = word_before.map(str::to_ascii_lowercase).next().unwrap_or_default();
    match flat.as_str() {
        "key" if !KINDS_OF_KEY.contains(&word_before.as_str()) => Some(Kind::Secret),
        "keys" if ["data", "app"].contains(&word_before.as_str()) => None,
        "keys" if OPENING.contains(&word_before.as_str()) => Some(Kind::Secret),
        // Runs of a name are ASCII.
        "a" | "as" if before.to_lowercase().ends_with("contraseñ") => Some(Kind::Secret),
        "id" if word_before == "user" => Some(Kind::Place),
        _ if PLACES.iter().any(|place| last.ends_with(place)) => Some(Kind::Place),
        _ => None,
    }
}

/// Whether the member `name` of a JSON object holds a secret.
pub(super) fn is_secret_member(name: &str) -> bool {
    matches!(kind(name, ""), Some(Kind::Secret | Kind::Header))
}

/// What a name says of counts: judged once, however many values stand under it.
#[derive(Debug, Default)]
pub(super) struct Counting {
    /// Of many: `tokens_used`.
    many: bool,
    /// Of things of which there are few: `cookies`.
    few: bool,
    /// Members of it may count: `{"tokens":{"input":1500}}`.
    pub(super) tokens: bool,
}

impl Counting {
    pub(super) fn of(name: &str) -> Self {
        let counts = ["count", "length", "size", "limit", "ttl", "seconds", "days", "version"];
        let few = ["secrets", "cookies", "passwords", "credentials"];
        let words = words(name);
        let Some(last) = words.last().map(String::as_str) else { return Self::default() };
        let tokens = speaks_of_tokens(&words);
        Self { many: tokens || counts.contains(&last), few: few.contains(&last), tokens }
    }

    /// Whether `value` is only how many there are, or how long.
    pub(super) fn is_count(&self, value: &str) -> bool {
        let number = value.trim_end_matches([',', '.', ';', ')', '}', ']']);
        (self.few && is_short_number(number, FEW_DIGITS)) || (self.many && is_short_count(number))
    }
}

/// Whether `text` is a number that may be a count of many.
pub(super) fn is_short_count(text: &str) -> bool {
    is_short_number(text, COUNT_DIGITS)
}

/// Whether `text` is a JSON object of counts only.
pub(super) fn are_counts(text: &str) -> bool {
    serde_json::from_str::<HashMap<&str, u32>>(text).is_ok()
}

/// Whether tokens are what is counted: `maxTokens`, `tokens_used`.
fn speaks_of_tokens(words: &[String]) -> bool {
    words.iter().any(|word| word == "tokens")
        && !words.iter().any(|word| word != "tokens" && is_secret(word))
}

/// Whether `text` is a number with at most `most` digits.
pub(super) fn is_short_number(text: &str, most: usize) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    (1..=most).contains(&digits)
        && text.bytes().all(|byte| byte.is_ascii_digit() || b".,_".contains(&byte))
}

fn is_secret(word: &str) -> bool {
    // A secretary keeps none, and a tokenizer has none.
    let found = SECRETS.iter().any(|name| word.contains(name))
        && !word.contains("secretar")
        && !word.contains("tokeniz");
    let stem = word.trim_end_matches(|c: char| c.is_ascii_digit());
    found || stem.ends_with("pw") || (stem.ends_with("pass") && !PASSING.contains(&stem))
}

/// Whether a key that `words` name opens something: `X-Api-Key`, `accesskeyid`.
fn opens(words: &[String]) -> bool {
    let mut before = String::new();
    for word in words {
        let start = before.len();
        before.push_str(word);
        for (at, key) in word.match_indices("key") {
            let kind = &before[..start + at];
            let is_other = AFTER_KEY.iter().any(|after| word[at + key.len()..].starts_with(after));
            let opens = OPENING.iter().any(|opening| kind.ends_with(opening));
            if opens && !is_other && !kind.ends_with("metadata") {
                return true;
            }
        }
    }
    false
}

/// The words of a name in small letters: `X-Api-Key` and `xApiKey` have three.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        // Joined to the letter before: n and a tilde.
        if matches!(c, '\u{300}'..='\u{36f}') {
            continue;
        }
        if !c.is_alphanumeric() || (was_small && c.is_uppercase()) {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("there is one").extend(c.to_lowercase());
        }
        was_small = c.is_lowercase() || c.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}
