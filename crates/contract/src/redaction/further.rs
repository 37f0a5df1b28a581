//! The rules beyond the contract's: IPv6, PEM, escaped URLs and users, and then those of the files
//! beside this one.

use std::{net::Ipv6Addr, sync::LazyLock};

use regex::{Captures, Regex};

use super::{REDACTED, Rule, drivers, named, tokens};

/// Anything with two colons that might be an IPv6 address, its IPv4 tail redacted before, with
/// optional brackets, zone and port. Whether it is one is decided by parsing it.
static IPV6: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        // An escape ahead of it is no part of it.
        "(",
        escape!(),
        ")?",
        r"\[?([0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:]*(?:\[redacted\])?)",
        r"(?:%[0-9A-Za-z_.-]+)?(?:\](?::[0-9]{1,5})?)?",
    ))
    .expect("the pattern is a constant")
});

/// Keys and certificates in PEM, to the end of the text where the end is missing, and from its
/// beginning where the beginning is.
static PEM: LazyLock<[Rule; 2]> = LazyLock::new(|| {
    [
        Rule::new(
            r"(?s)-{4,5} ?BEGIN [A-Z0-9 ]+-{4,5}.*?(?:-{4,5} ?END [A-Z0-9 ]+-{4,5}|$)",
            "[redacted]",
        ),
        Rule::new(r"(?s)\A.*-{4,5} ?END [A-Z0-9 ]+-{4,5}", "[redacted]"),
    ]
});

/// URLs with escaped slashes, as in JSON and in other URLs.
static ESCAPED_URL: LazyLock<Rule> = LazyLock::new(|| {
    Rule::new(
        r"(?i)\w+(?::|%(?:25)*3a|\\+u003a|\\+x3a)(?:\\*/|%(?:25)*2f|\\+u002f|\\+x2f){2}\S*",
        "[redacted]",
    )
});

/// Users with passwords, in other ways.
static USERS: LazyLock<[Rule; 3]> = LazyLock::new(|| {
    [
        Rule::new(r"(?i)[\w.+-]+%(?:25)*3a\S*%(?:25)*40\S*", "[redacted]"),
        // Without a user, before a host with its port.
        Rule::new(
            r"(^|[\s'\x22=(]):[^\s@:/]+@(?:[\w.\[\]-]+:[0-9]{1,5}\b|\[redacted\])",
            "${1}[redacted]",
        ),
        // Oracle's, with its host and service or after its commands.
        Rule::new(
            concat!(
                r"(?i)(^|[\s'\x22=(])[\w$#]+/[^\s/@]+@(?://)?[\w.-]+:[0-9]{1,5}[/:]\w\S*",
                r"|(\b(?:sqlplus|sqlldr|expdp|impdp|rman|connect)\s(?:\s*-\w+)*\s*)[\w$#]+/[^\s@]+@\S+",
            ),
            "${1}${2}[redacted]",
        ),
    ]
});

/// A user with a password before a host, as in URLs without a scheme.
static USER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(USER_FORM).expect("the pattern is a constant"));

/// What quotes, brackets and lists part is of two things.
const USER_FORM: &str = r#"([^\s:/@"'`,;()\[\]{}<>]+):([^\s@"'`,;{}<>]+)@([^\s"'`<>]+)"#;

/// What stands before the address of a mailbox, and is no user.
const ADDRESSED: [&str; 16] = [
    "to", "from", "cc", "bcc", "mailto", "reply-to", "email", "e-mail", "mail", "sip", "xmpp",
    "contact", "kontakt", "contato", "contacto", "correo",
];

/// Applies our rules to a text that has passed the contract's.
pub(super) fn redact(text: &str) -> String {
    let mut text = text.to_owned();
    for rule in PEM.iter() {
        text = rule.apply(&text).into_owned();
    }
    text = ESCAPED_URL.apply_to_runs(&text);
    text = without_users(&named::redact(&without_ipv6(&text)));
    for rule in USERS.iter() {
        text = rule.apply(&text).into_owned();
    }
    drivers::redact(&tokens::redact(&text))
}

/// Whether a block of PEM that began before the text ends in it, and whether the text leaves one
/// open that began in it.
pub(super) fn pem(text: &str) -> (bool, bool) {
    let ending = PEM[1].pattern.find(text);
    let after = ending.map_or(0, |ending| ending.end());
    (ending.is_some(), PEM[0].pattern.is_match(&text[after..]))
}

fn without_users(text: &str) -> String {
    USER.replace_all(text, |found: &Captures| {
        // 15:30@office, 2026-12-01T10:00:00@srv
        let is_hour = found[1].ends_with(|c: char| c.is_ascii_digit());
        let is_part =
            |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_time = is_hour && found[2].split(':').all(is_part);
        // to:me@example.com
        let before = found[1].trim_start_matches(|c: char| !c.is_alphanumeric());
        let is_mail = ADDRESSED.contains(&before.to_ascii_lowercase().as_str())
            && !found[2].contains([':', '/']);
        // uses:actions/checkout@v4, image:nginx@sha256:…
        let version = found[3].strip_prefix('v').unwrap_or(&found[3]);
        let is_version = version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
            || found[3].starts_with("sha256:");
        let stays = is_time || is_mail || is_version;
        if stays { found[0].to_owned() } else { REDACTED.to_owned() }
    })
    .into_owned()
}

fn without_ipv6(text: &str) -> String {
    let mut taken_out_until = None;
    IPV6.replace_all(text, |found: &Captures| {
        let whole = found.get(0).expect("group 0 is the match");
        let escape = found.get(1).map_or("", |escape| escape.as_str());
        let address = &whole.as_str()[escape.len()..];
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        // What was taken out just before it is no word any more, and neither is an escape.
        let after_a_word = escape.is_empty()
            && taken_out_until != Some(whole.start())
            && text[..whole.start()].ends_with(word);
        let in_a_word = after_a_word || text[whole.end()..].starts_with(word);
        match address_end(&found[2]) {
            Some(rest) if !in_a_word && (*address != found[2] || !is_path(&found[2])) => {
                taken_out_until = Some(whole.end());
                format!("{escape}{REDACTED}{rest}")
            }
            _ => whole.as_str().to_owned(),
        }
    })
    .into_owned()
}

/// What follows the address in `candidate` and stays: nothing, or a colon of the sentence.
/// `None` when there is no address in it.
fn address_end(candidate: &str) -> Option<&'static str> {
    let candidate = candidate.replace(REDACTED, "0.0.0.0");
    let is_address =
        |text: &str| text.len() > 2 && !is_ratio(text) && text.parse::<Ipv6Addr>().is_ok();
    if is_address(&candidate) {
        return Some("");
    }
    let (address, port) = candidate.rsplit_once(':')?;
    match (is_address(address), port) {
        (true, "") => Some(":"),
        (true, port) if port.bytes().all(|digit| digit.is_ascii_digit()) => Some(""),
        _ => None,
    }
}

/// Whether an address's form has no digit, as the paths of programs have: `dead::beef`.
fn is_path(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !text.contains(REDACTED)
        && !text.bytes().any(|byte| byte.is_ascii_digit())
}

/// Whether an address's form has eight short numbers; addresses written out begin with a long one.
fn is_ratio(text: &str) -> bool {
    !text.contains("::") && text.split(':').all(|group| group.len() <= 2)
}
