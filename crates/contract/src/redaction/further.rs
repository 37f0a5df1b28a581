//! The rules beyond the contract's: IPv6, secrets by their name or their form, and the values that
//! drivers quote.

use std::{net::Ipv6Addr, sync::LazyLock};

use regex::{Captures, Regex};

use super::{REDACTED, Rule, named};

/// Anything with two colons that might be an IPv6 address, its IPv4 tail redacted before, with
/// optional brackets, zone and port. Whether it is one is decided by parsing it.
static IPV6: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
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

/// A user with a password before a host, as in URLs without a scheme.
static USER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"([^\s:/@]+):([^\s@]+)@\S+").expect("the pattern is a constant"));

/// `basic` and what may be the credentials.
static BASIC: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(basic\s+)([a-z0-9+/_-]{6,}=*)").expect("the pattern is a constant")
});

static RULES: LazyLock<[Rule; 17]> = LazyLock::new(|| {
    [
        // URLs within URLs.
        Rule::new(r"(?i)\w+%(?:25)*3a%(?:25)*2f%(?:25)*2f\S*", "[redacted]"),
        Rule::new(r"(?i)[\w.+-]+%(?:25)*3a\S*%(?:25)*40\S*", "[redacted]"),
        // What databases are told: IDENTIFIED BY '…', PASSWORD '…'.
        Rule::new(
            concat!(
                r"(?i)\b((?:identified\s+(?:with\s+\S+\s+)?(?:by|as)(?:\s+password)?|password)\s+)",
                r#"(?:'(?s:[^'\\]|''|\\.)*'?|"(?s:[^"\\]|\\.)*"?)"#,
            ),
            "${1}[redacted]",
        ),
        Rule::new(r"(?i)\b(bearer\s+)[a-z0-9._~+/=-]{12,}", "${1}[redacted]"),
        // API tokens and tickets, whole ones within a word, too; JWTs.
        Rule::new(
            r"(?:\bop[tk]_[A-Za-z0-9_-]{16,}|op[tk]_[A-Za-z0-9_-]{40,}|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*)",
            "[redacted]",
        ),
        // Those of others that say what they are.
        Rule::new(
            concat!(
                r"(?:\b|_)(?:(?:AKIA|ASIA)[A-Z0-9]{16}|AGE-SECRET-KEY-1[A-Z0-9]+|AIza[\w-]{20,}|ya29\.[\w-]{16,}",
                r"|SG\.[\w-]{8,}\.[\w-]{8,}|hv[sbr]\.[\w-]{16,}|(?:hf|npm)_[A-Za-z0-9]{16,}",
                r"|(?:gh[opsur]_|github_pat_|glpat-|xox[a-z]-|xapp-|[sr]k_(?:live|test)_|sk-|whsec_|shp[a-z]{2}_|pypi-|do[opr]_v1_)",
                r"[A-Za-z0-9_-]{16,})",
            ),
            "[redacted]",
        ),
        // PostgreSQL and MySQL name who and where in quotes.
        Rule::new(r#"(?i)\b((?:server at|host|host name|user)\s+)"[^"]*""#, r#"${1}"[redacted]""#),
        Rule::new(
            r#"(?i)\b(role\s+)"[^"]*"(\s+(?:already|can|cannot|does|has|is|must|to)\b|[,.;:]|\s*$)"#,
            r#"${1}"[redacted]"${2}"#,
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
            r#"(?s)(\b(?:value|string|Token|token) )".*"( is (?:an? |in|not |out |too )|, expected )"#,
            r#"${1}"[redacted]"${2}"#,
        ),
        // … syntax for type integer: "abc". To the last quote, or to the end.
        Rule::new(
            r#"(?s)(\b(?:invalid|malformed|incorrect|out of range|COPY|unrecognized)\b[^":]*:\s*)"(?:.*"|.*)"#,
            r#"${1}"[redacted]""#,
        ),
        // What other troubles quote after a colon.
        Rule::new(
            concat!(
                r"(?i)\b((?:bad|cannot|convert\w*|could not|error|fail\w*|illegal|literal|not valid|overflow\w*",
                r#"|pars\w+|syntax|too long|unable|unexpected|unknown|unsupported|wrong)\b[^":]*:\s*)"[^"]*(?:"|$)"#,
            ),
            r#"${1}"[redacted]""#,
        ),
    ]
});

/// Applies our rules to a text that has passed the contract's.
pub(super) fn redact(text: &str) -> String {
    let mut text = text.to_owned();
    for rule in PEM.iter() {
        text = rule.apply(&text).into_owned();
    }
    text = named::redact(&without_ipv6(&text));
    text = without_basic(&without_users(&text));
    for rule in RULES.iter() {
        text = rule.apply(&text).into_owned();
    }
    text
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
        // 15:30@office, to:me@example.com
        let number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_time = number(&found[1]) && number(&found[2]);
        let before = found[1].trim_start_matches(|c: char| !c.is_alphanumeric());
        let addressed = ["to", "from", "cc", "bcc", "mailto", "reply-to"];
        let is_mail = addressed.contains(&before.to_ascii_lowercase().as_str())
            && !found[2].contains([':', '/']);
        if is_time || is_mail { found[0].to_owned() } else { REDACTED.to_owned() }
    })
    .into_owned()
}

fn without_basic(text: &str) -> String {
    BASIC
        .replace_all(text, |found: &Captures| {
            let bytes = found[2].as_bytes();
            let is_mixed = bytes
                .windows(2)
                .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
            // No English word.
            let is_code =
                is_mixed || bytes.iter().any(|byte| byte.is_ascii_digit() || b"+=".contains(byte));
            if is_code { format!("{}{REDACTED}", &found[1]) } else { found[0].to_owned() }
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
            Some(rest) if !in_a_word && (found[0] != found[1] || !is_path(&found[1])) => {
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
