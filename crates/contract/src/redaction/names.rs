//! Which names say that what follows them is a secret, or where something is.

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
const SECRETS: [&str; 10] = [
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
];
/// What may stand before `key` when it opens something.
const OPENING: [&str; 32] = [
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
];
/// Words of their own that end in `pass`.
const PASSING: [&str; 7] =
    ["bypass", "compass", "trespass", "surpass", "overpass", "underpass", "encompass"];
/// A key of these kinds opens nothing.
const KINDS_OF_KEY: [&str; 13] = [
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
];
/// What hosts and users go by in connection strings.
const PLACES: [&str; 7] = ["host", "hostaddr", "hostname", "server", "user", "username", "uid"];
/// Digits that a count has at most; a longer number may be a secret.
const COUNT_DIGITS: usize = 9;

/// What `name` says of its value; `before` is the text in front of it.
pub(super) fn kind(name: &str, before: &str) -> Option<Kind> {
    let words = words(name);
    let last = words.last()?.as_str();
    if ["authorization", "cookie", "cookies"].iter().any(|header| last.ends_with(header)) {
        return Some(Kind::Header);
    }
    let flat = words.concat();
    if words.iter().any(|word| is_secret(word)) || flat.contains("sessionid") || opens(&flat) {
        return Some(Kind::Secret);
    }
    let word_before = before.trim_end_matches(' ').rsplit(|c: char| !c.is_ascii_alphabetic());
    let word_before = word_before.map(str::to_ascii_lowercase).next().unwrap_or_default();
    match flat.as_str() {
        "key" if !KINDS_OF_KEY.contains(&word_before.as_str()) => Some(Kind::Secret),
        "keys" if OPENING.contains(&word_before.as_str()) => Some(Kind::Secret),
        "id" if word_before == "user" => Some(Kind::Place),
        _ if PLACES.iter().any(|place| last.ends_with(place)) => Some(Kind::Place),
        _ => None,
    }
}

/// Whether the member `name` of a JSON object holds a secret.
pub(super) fn is_secret_member(name: &str) -> bool {
    matches!(kind(name, ""), Some(Kind::Secret | Kind::Header))
}

/// Whether `value` is only how many there are, or how long, of what `name` speaks of.
pub(super) fn is_count(name: &str, value: &str) -> bool {
    let counts = ["tokens", "count", "length", "size", "limit", "ttl", "seconds", "days"];
    let number = value.trim_end_matches([',', '.', ';', ')', '}', ']']);
    words(name).last().is_some_and(|last| counts.contains(&last.as_str()))
        && is_short_number(number, COUNT_DIGITS)
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
    found || word == "pw" || (word.ends_with("pass") && !PASSING.contains(&word))
}

/// Whether a key that `flat` names opens something: `xapikey`, `accesskeyid`.
fn opens(flat: &str) -> bool {
    flat.match_indices("key").any(|(at, _)| OPENING.iter().any(|word| flat[..at].ends_with(word)))
}

/// The words of a name in small letters: `X-Api-Key` and `xApiKey` have three.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
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
