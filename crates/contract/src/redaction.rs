//! What an error text may say outside the house.
//!
//! Driver and network errors name hosts, users and rows. [`redact`] takes those out and leaves
//! the rest, so that an operator can still act. Version numbers of three parts, times, dates,
//! UUIDs and plain integers survive. When in doubt a rule takes too much rather than too little;
//! still it is a net and no wall: a secret that neither its name nor its form tells stays.
//!
//! The first four rules and their order are the contract's (job events, error messages); the
//! further ones are ours, for the words of the drivers we use. Redacting twice changes nothing.

/// What ends in letters or digits and is no part of the word behind it: escapes of programs, of
/// JSON and of URLs, and the colours of terminals.
macro_rules! escape {
    () => {
        r"\\[nrt]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|\x1b\[[0-9;]*m"
    };
}

mod drivers;
mod further;
mod members;
mod named;
mod names;
mod tokens;
mod value;
mod view;

use std::{borrow::Cow, error::Error, fmt, sync::LazyLock};

pub use members::redact_members;
use regex::{Captures, Regex};

/// What takes the place of each match.
pub const REDACTED: &str = "[redacted]";

/// An error and all its causes in one line, each said once, for those inside the house.
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            // Some libraries print their causes themselves.
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            next = cause.source();
        }
        Ok(())
    }
}

/// An error and all its causes in one redacted line, for the log.
pub fn told(error: &(dyn Error + 'static)) -> String {
    redact(&Chain(error).to_string())
}

/// A pattern and what replaces its matches; `$1` and `$2` are the groups that stay.
struct Rule {
    pattern: Regex,
    replacement: &'static str,
}

impl Rule {
    fn new(pattern: &str, replacement: &'static str) -> Self {
        Self { pattern: Regex::new(pattern).expect("the patterns are constants"), replacement }
    }

    fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.pattern.replace_all(text, self.replacement)
    }

    /// Each match goes to the end of the value that opens in it: `scheme://x;password="a b"`.
    fn apply_to_runs(&self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(found) = self.pattern.captures_at(text, at) {
            let run = found.get(0).expect("group 0 is the match").range();
            clean.push_str(&text[at..run.start]);
            found.expand(self.replacement, &mut clean);
            at = value::whole_end(text, run.start, run.end);
        }
        clean.push_str(&text[at..]);
        clean
    }
}

/// The contract's rules, in the contract's order, but for the last.
static CONTRACT: LazyLock<[Rule; 3]> = LazyLock::new(|| {
    [
        // A URI, up to white space.
        Rule::new(r"\w+://[^ \t\r\n\x0b\x0c]*", "[redacted]"),
        // Go's words for an address: the keyword stays.
        Rule::new(r"\b((?:dial tcp|dial udp|read tcp|write tcp|lookup)\s+)\S+", "${1}[redacted]"),
        Rule::new(r"(Addr:\s+)\S+", "${1}[redacted]"),
    ]
});

/// The contract's fourth: IPv4 with an optional port. Without word boundaries: `db10.0.0.7` is an
/// address too.
static IPV4: LazyLock<Rule> =
    LazyLock::new(|| Rule::new(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?::[0-9]{1,5})?", "[redacted]"));

/// As many of these parts as there are.
static DOTTED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"([0-9]{1,3}(?:\.[0-9]{1,3}){3,})(?::[0-9]{1,5})?")
        .expect("the pattern is a constant")
});

/// Times that all rules are applied at most. Two do for what drivers say.
const MOST_PASSES: usize = 8;

/// The text without addresses, credentials and row values.
pub fn redact(text: &str) -> String {
    let mut text = pass(text);
    for _ in 1..MOST_PASSES {
        // What one rule takes out may have hidden from another what stood beside it.
        let again = pass(&text);
        if again == text {
            return text;
        }
        text = again;
    }
    // Contrived, then: nobody can say what is still in it.
    REDACTED.to_owned()
}

fn pass(text: &str) -> String {
    let mut text = text.to_owned();
    for rule in CONTRACT.iter() {
        text = rule.apply_to_runs(&text);
    }
    further::redact(&without_ipv4(&text))
}

fn without_ipv4(text: &str) -> String {
    DOTTED
        .replace_all(text, |found: &Captures| {
            if is_number(&found[1]) {
                found[0].to_owned()
            } else {
                IPV4.apply(&found[0]).into_owned()
            }
        })
        .into_owned()
}

/// Whether parts of digits are a number with its thousands apart, `1.234.567.890`, and no four of
/// them are an address.
fn is_number(dotted: &str) -> bool {
    let parts: Vec<&str> = dotted.split('.').collect();
    let is_octet = |part: &&str| part.parse::<u8>().is_ok();
    !parts[0].starts_with('0')
        && parts[1..].iter().all(|part| part.len() == 3)
        && !parts.windows(4).any(|four| four.iter().all(is_octet))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (in, out), all rules together.
    const TABLE: &[(&str, &str)] = &[
        ("", ""),
        ("(mysql://root:pw@h/db)", "([redacted]"),
        ("amqp://guest:guest@mq/%2f, then http://x", "[redacted] then [redacted]"),
        (
            "write tcp 10.1.1.1:9 broke; dial udp ns1:53 too",
            "write tcp [redacted] broke; dial udp [redacted] too",
        ),
        ("db10.0.0.7 and 10.0.0.300:99999", "db[redacted] and [redacted]"),
        ("engine 8.0.36.1", "engine [redacted]"),
        ("to 2001:db8::7 refused", "to [redacted] refused"),
        ("to [2001:db8::7]:5432: refused", "to [redacted]: refused"),
        (
            "to fe80::1%eth0, ::1 and 2001:DB8:0:0:0:0:0:1",
            "to [redacted], [redacted] and [redacted]",
        ),
        ("2001:db8:0:0:0:0:0:1:5432 refused", "[redacted] refused"),
        ("fe80::1: no route", "[redacted]: no route"),
        ("mapped ::ffff:10.0.0.7:5432 refused", "mapped [redacted] refused"),
        ("host=db.internal port=5432 user=app", "host=[redacted] port=5432 user=[redacted]"),
        ("password = 'it''s \\' mine' sslmode=require", "password = [redacted] sslmode=require"),
        (
            "PGPASSWORD=x;y and db_user=\"a b\" dbname=app",
            "PGPASSWORD=[redacted] and db_user=[redacted] dbname=app",
        ),
        ("password='open to the end", "password=[redacted]"),
        ("Authorization: Bearer abc.def, then", "Authorization: Bearer [redacted]"),
        ("authorization=Basic YTpi", "authorization=Basic [redacted]"),
        ("sent with bearer abcDEF123._~+/x=", "sent with bearer [redacted]"),
        (
            "opt_AbCdEfGhIjKlMnOpQrSt_-1 or eyJhbGciOiJIUzI1NiJ9.e30.c2ln and more",
            "[redacted] or [redacted] and more",
        ),
        (
            "AWS_SECRET_ACCESS_KEY=a b, api_key=c and access-key-id=d",
            "AWS_SECRET_ACCESS_KEY=[redacted] b, api_key=[redacted] and access-key-id=[redacted]",
        ),
        (
            "password: hunter3, X-Api-Key: b, apikey: c; client_secret : d",
            "password: [redacted] X-Api-Key: [redacted] apikey: [redacted] client_secret : [redacted]",
        ),
        ("Cookie: session=a; b=c\nnext", "Cookie: [redacted]\nnext"),
        (
            "key -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- read",
            "key [redacted] read",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIE", "[redacted]"),
        (
            "AKIAIOSFODNN7EXAMPLE and ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "[redacted] and [redacted]",
        ),
        ("dsn user:pw@tcp(db:3306)/shop", "dsn [redacted]"),
        ("at //user:pw@db/shop", "at //[redacted]"),
        (
            "connection to server at \"db.internal\" (10.0.0.7), port 5432 failed",
            "connection to server at \"[redacted]\" ([redacted]), port 5432 failed",
        ),
        (
            "password authentication failed for user \"app\"",
            "password authentication failed for user \"[redacted]\"",
        ),
        (
            "could not translate host name \"db.internal\" to address",
            "could not translate host name \"[redacted]\" to address",
        ),
        (
            "Access denied for user 'app'@'10.0.0.1' (using password: YES)",
            "Access denied for user '[redacted]' (using password: YES)",
        ),
        (
            "violates unique constraint \"users_email_key\": Key (email)=(a@b.c) already exists.",
            "violates unique constraint \"users_email_key\": Key (email)=([redacted]) already exists.",
        ),
        (
            "Key (a, b)=(1, x) already) is not present in table \"t\".",
            "Key (a, b)=([redacted]) is not present in table \"t\".",
        ),
        (
            "Key (c)=([1,2)) conflicts with existing key (c)=([2,3)).",
            "Key (c)=([redacted]) conflicts with existing key (c)=([redacted])",
        ),
        ("Failing row contains (1, a@b.c, (x)).", "Failing row contains ([redacted])."),
        ("Failing row contains (1, a@b", "Failing row contains ([redacted])."),
        (
            "invalid input syntax for type integer: \"abc\"",
            "invalid input syntax for type integer: \"[redacted]\"",
        ),
        (
            "invalid input value for enum mood: \"so \"so\"\"",
            "invalid input value for enum mood: \"[redacted]\"",
        ),
        (
            "value \"99999999999\" is out of range for type integer",
            "value \"[redacted]\" is out of range for type integer",
        ),
        ("COPY t, line 3, column n: \"abc", "COPY t, line 3, column n: \"[redacted]\""),
        (
            "Duplicate entry 'o'neil@b.c' for key 'users.email'",
            "Duplicate entry '[redacted]' for key 'users.email'",
        ),
        (
            "Incorrect integer value: 'abc' for column 'n' at row 1",
            "Incorrect integer value: '[redacted]' for column 'n' at row 1",
        ),
        ("Truncated incorrect DOUBLE value: 'x'", "Truncated incorrect DOUBLE value: '[redacted]'"),
        (
            "invalid type: string \"a@b.c\", expected u32 at line 1",
            "invalid type: string \"[redacted]\", expected u32 at line 1",
        ),
    ];

    /// Texts an operator needs as they are.
    const SURVIVORS: &[&str] = &[
        "version 15.4.1 of 3 replicas",
        "at 12:30:45 and 12:30:45.123",
        "2026-07-13T18:04:11.204Z .. 2026-07-13 18:04:11+00:00",
        "job 0197f604-49fe-7b73-bb81-df2e93a7e47d, run 2",
        "1234567890 rows in 42 ms, 99.5 %",
        "std::io::Error in tokio::net",
        "relation \"public.orders\" does not exist",
        "column \"total\" of relation \"orders\" does not exist",
        "Unknown column 'totl' in 'field list'",
        "no such table: orders",
        "sha aa:bb:cc:dd:ee:ff",
        "ratio 1:2:3 :: done",
        "failed to connect to datasource",
        "the bearer of bad news, basic authentication",
    ];

    #[test]
    fn the_table_holds() {
        for (text, expected) in TABLE {
            assert_eq!(redact(text), *expected, "from {text:?}");
        }
    }

    #[test]
    fn addresses_side_by_side_are_all_taken_out() {
        assert_eq!(redact(&"2001:db8::7[".repeat(3)), "[redacted][redacted][redacted][");
    }

    #[test]
    fn what_an_operator_needs_survives() {
        for text in SURVIVORS {
            assert_eq!(redact(text), *text);
        }
    }

    #[test]
    fn redacting_twice_changes_nothing() {
        let everything = TABLE.iter().map(|(text, _)| *text).collect::<Vec<_>>().join("\n");
        let contrived =
            ["2001:db8::7[", "10.0.0.7dial tcp a lookup b "].map(|text| text.repeat(12));
        let texts = TABLE.iter().map(|(text, _)| *text).chain([
            everything.as_str(),
            "lookup lookup secret",
            "Addr: read tcp x",
            "1.2.3.4.5.6.7.8:9",
            "fe80::1.2.3.4:10.0.0.7",
            "host=user=password=x y",
            "Key (a)=(b)=(c) already exists)=(",
            "value: 'a' for value: \"b\": \"c\"",
            "10.0.0.7dial tcp secret",
            contrived[0].as_str(),
            contrived[1].as_str(),
        ]);
        for text in texts {
            let once = redact(text);
            assert_eq!(redact(&once), once, "from {text:?}");
        }
    }
}
