//! Whatever bytes come: a link token is told from a forgery, and redaction ends and keeps no secret.

use std::sync::LazyLock;

use outport_contract::{
    key::MasterKey,
    link::{LinkKeys, LinkToken, Recipient},
    redaction::redact,
};
use uuid::Uuid;

/// Inputs in an ordinary run; `tests/run --soak` looks for new ones for minutes.
const INPUTS: usize = 20_000;
/// Patterns take a while.
const FEW_INPUTS: usize = 4_000;

static KEYS: LazyLock<LinkKeys> = LazyLock::new(|| {
    let master = MasterKey::parse("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    LinkKeys::new(1, &master.expect("a key"))
});

static TOKEN: LazyLock<String> = LazyLock::new(|| {
    let token = LinkToken {
        job: Uuid::from_u128(1),
        user: Uuid::from_u128(2),
        recipient: Recipient::of_email("ana@example.com"),
        expires_at: 1_782_907_200,
    };
    token.sign(&KEYS)
});

/// The true token with some of its characters replaced, cut or lengthened: three bytes a change.
fn changed(changes: &[u8]) -> String {
    let mut token: Vec<char> = TOKEN.chars().collect();
    for change in changes.chunks_exact(3) {
        let at = usize::from(change[0]) % (token.len() + 1);
        let with = char::from(change[1]);
        match change[2] % 8 {
            0 => token.truncate(at),
            1 => token.insert(at, with),
            _ if at < token.len() => token[at] = with,
            _ => token.push(with),
        }
    }
    token.into_iter().collect()
}

#[test]
fn fuzz_link_token() {
    bolero::check!().with_iterations(INPUTS).for_each(|bytes: &[u8]| {
        for text in [String::from_utf8_lossy(bytes).into_owned(), changed(bytes)] {
            let verified = LinkToken::verify(&KEYS, &text);
            assert_eq!(verified.is_ok(), text == *TOKEN, "{text}: {verified:?}");
        }
    });
}

/// What messages of drivers are made of; a byte stands for one of them.
const WORDS: [&str; 83] = [
    "postgres://",
    "user",
    ":",
    "@",
    "10.0.0.7",
    "/",
    " ",
    "password=",
    "'",
    "\"",
    "host=",
    "\\",
    "Key (a)=(",
    ")",
    "(",
    "Failing row contains (",
    "dial tcp ",
    "lookup ",
    "Addr: ",
    "::1",
    "2001:db8::7",
    "%eth0",
    "for user ",
    "at ",
    "invalid input syntax for type ",
    "value ",
    "[",
    "]",
    "COPY t, line 3, column n: ",
    "Duplicate entry ",
    "for key ",
    ".",
    ",",
    ";",
    "=",
    "\n",
    "é",
    "already exists",
    "to address",
    "Access denied",
    "token",
    "key",
    "\\\"password\\\": ",
    "=>",
    "<password>",
    "</",
    "--token ",
    "-u ",
    "|\n  ",
    "- ",
    "Authorization: ",
    "cookie=",
    "basic ",
    "{",
    "}",
    "[redacted]",
    "-----BEGIN A-----",
    "-----END A-----",
    "%3A",
    "1.234.567.890",
    ";password=\"",
    "={",
    "<v>",
    "</password>",
    "&quot;",
    "[0]",
    "->",
    "\u{a0}",
    "\\u0022",
    "%3D",
    "%20",
    "\u{1b}[1m",
    "**",
    "：",
    "\u{301}",
    "r#\"",
    "bearer \"",
    "eyJhbGciOi.",
    "https:\\/\\/",
    "# c\n",
    "', '",
    "\\\n",
    "(\n",
];

fn message(bytes: &[u8]) -> String {
    let word = |byte: &u8| match WORDS.get(usize::from(*byte)) {
        Some(word) => (*word).to_owned(),
        None => char::from(*byte).to_string(),
    };
    bytes.iter().map(word).collect()
}

#[test]
fn fuzz_redaction() {
    bolero::check!().with_iterations(FEW_INPUTS).for_each(|bytes: &[u8]| {
        for text in [String::from_utf8_lossy(bytes).into_owned(), message(bytes)] {
            let once = redact(&text);
            assert_eq!(redact(&once), once, "a second time changes nothing: {text:?}");
            let (before, after) = text.split_at(text.floor_char_boundary(text.len() / 2));
            let with_secret = format!("{before} mysql://app:s3cr3t-w0rd@db.internal/x {after}");
            let told = redact(&with_secret);
            assert!(!told.contains("s3cr3t-w0rd") && !told.contains("db.internal"), "{told:?}");
            // A word between, for the contract has the one after `lookup` go, a name too.
            let quoted = format!("{before}\nx \"password\": \"s3cr3t-w0rd\"\n{after}");
            let told = redact(&quoted);
            assert!(!told.contains("s3cr3t-w0rd"), "{quoted:?} became {told:?}");
        }
    });
}
