//! The rules beyond the contract's: IPv6, secrets by their name or their form, and the values that
//! drivers quote.

use std::{net::Ipv6Addr, sync::LazyLock};

use regex::{Captures, Regex};

use super::{REDACTED, Rule};

/// Anything with two colons that might be an IPv6 address, its IPv4 tail redacted before, with
/// optional brackets, zone and port. Whether it is one is decided by parsing it.
static IPV6: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"\[?([0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:]*(?:\[redacted\])?)",
        r"(?:%[0-9A-Za-z_.-]+)?(?:\](?::[0-9]{1,5})?)?",
    ))
    .expect("the pattern is a constant")
});

/// `name: value`, where the name says that the value is a secret.
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    let names = "password|passwd|pwd|passphrase|secret|token|credentials?";
    let keys = "(?:api|access|private|secret|signing|encryption)[ _-]?key";
    Regex::new(&format!(r"(?i)\b([\w-]*(?:{names}|{keys})[\w-]*\s*:\s*)(\S+)"))
        .expect("the pattern is a constant")
});

static RULES: LazyLock<[Rule; 18]> = LazyLock::new(|| {
    [
        // Keys and certificates in PEM, to the end of the text where the end is missing.
        Rule::new(r"(?s)-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|$)", "[redacted]"),
        // A user with a password before a host, as in URLs without a scheme.
        Rule::new(r"[^\s:/@]+:[^\s/@]+@\S+", "[redacted]"),
        Rule::new(r"(?i)\b((?:set-)?cookie\s*:\s*)[^\r\n]+", "${1}[redacted]"),
        // Connection strings: host=…, user=…, password=… and the names they go by elsewhere.
        // A value is the whole run to white space, as in `host=a,b`, quoted or not.
        Rule::new(
            concat!(
                r"(?i)\b([\w-]*(?:host|hostaddr|hostname|server|user|username|user id|uid|password|passwd|pwd|passphrase|secret|token",
                r"|(?:api|access|private|secret|signing|encryption)[_-]?key(?:[_-]?id)?)\s*=\s*)",
                r#"(?:'(?s:[^'\\]|''|\\.)*'?|"(?s:[^"\\]|\\.)*"?|\S)\S*"#,
            ),
            "${1}[redacted]",
        ),
        // Credentials of requests: the header with its scheme, and tokens wherever they stand.
        Rule::new(r"(?i)\b(authorization\s*[:=]\s*(?:\w+\s+)?)\S+", "${1}[redacted]"),
        Rule::new(r"(?i)\b(bearer\s+)[a-z0-9._~+/=-]{12,}", "${1}[redacted]"),
        // API tokens, tickets, JWTs.
        Rule::new(
            r"\b(?:op[tk]_[A-Za-z0-9_-]{16,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*)",
            "[redacted]",
        ),
        // Those of AWS, GitHub, GitLab, Slack and Stripe.
        Rule::new(
            concat!(
                r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|(?:gh[opsur]_|github_pat_|glpat-|xox[a-z]-|sk_live_|sk_test_|sk-)",
                r"[A-Za-z0-9_-]{16,})",
            ),
            "[redacted]",
        ),
        // PostgreSQL and MySQL name who and where in quotes.
        Rule::new(
            r#"(?i)\b((?:server at|host|host name|user|role)\s+)"[^"]*""#,
            r#"${1}"[redacted]""#,
        ),
        Rule::new(
            r"(?i)\b((?:server at|server on|host|user)\s+)'[^']*'(?:@'[^']*')?",
            "${1}'[redacted]'",
        ),
        // PostgreSQL details: Key (email)=(a@b.c) already exists. To the last such ending, or
        // to the end of the text, because values are not escaped.
        Rule::new(
            r"(?s)\)=\(.*\)( (?:already exists|is not present|is still referenced|conflicts with|is duplicated))",
            ")=([redacted])${1}",
        ),
        Rule::new(r"(?s)(existing key [^=\n]*\)=)\(.*", "${1}([redacted])"),
        Rule::new(r"(?s)(Failing row contains )\(.*", "${1}([redacted])."),
        // MySQL: Duplicate entry 'a@b.c' for key 'users.email'.
        Rule::new(r"(?s)(Duplicate entry )'.*'( for key)", "${1}'[redacted]'${2}"),
        // … integer value: 'abc' for column 'n' at row 1.
        Rule::new(r"(?s)(\bvalue:? )'.*?'(\s+for |\s+at row |[.,;]|\s*$)", "${1}'[redacted]'${2}"),
        // PostgreSQL: value "99999999999" is out of range; serde: string "abc", expected u32.
        Rule::new(
            r#"(?s)(\b(?:value|string|Token|token) )".*"( is |, expected )"#,
            r#"${1}"[redacted]"${2}"#,
        ),
        // … syntax for type integer: "abc". To the last quote, or to the end.
        Rule::new(
            r#"(?s)(\b(?:invalid|malformed|incorrect|out of range|COPY|unrecognized)\b[^":]*:\s*)"(?:.*"|.*)"#,
            r#"${1}"[redacted]""#,
        ),
        // Any other text quoted after a colon.
        Rule::new(r#"(:\s*)"[^"]*(?:"|$)"#, r#"${1}"[redacted]""#),
    ]
});

/// Applies our rules to a text that has passed the contract's.
pub(super) fn redact(text: &str) -> String {
    let mut text = without_named(&without_ipv6(text));
    for rule in RULES.iter() {
        text = rule.apply(&text).into_owned();
    }
    text
}

fn without_named(text: &str) -> String {
    NAMED
        .replace_all(text, |found: &Captures| {
            // MySQL says no more than whether there was one.
            let is_said = ["YES)", "NO)"].contains(&&found[2]);
            format!("{}{}", &found[1], if is_said { &found[2] } else { REDACTED })
        })
        .into_owned()
}

fn without_ipv6(text: &str) -> String {
    let mut taken_out_until = None;
    IPV6.replace_all(text, |found: &Captures| {
        let whole = found.get(0).expect("group 0 is the match");
        let word = |c: char| c.is_alphanumeric() || c == '_';
        // What was taken out just before it is no word any more.
        let after_a_word =
            taken_out_until != Some(whole.start()) && text[..whole.start()].ends_with(word);
        let in_a_word = after_a_word || text[whole.end()..].starts_with(word);
        match address_end(&found[1]) {
            Some(rest) if !in_a_word => {
                taken_out_until = Some(whole.end());
                format!("{REDACTED}{rest}")
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
    let is_address = |text: &str| text.len() > 2 && text.parse::<Ipv6Addr>().is_ok();
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
