//! Secrets in texts that are escaped, coloured, marked up or in a notation of their own.

use outport_contract::redaction::redact;

use crate::redaction::none_stays;

/// Names, separators and values that something stands in for, or between. `§` is the secret.
const NAMED: &[&str] = &[
    "\u{1b}[3mapi_key\u{1b}[0m\u{1b}[2m=\u{1b}[0m§",
    "\u{1b}[32mpassword\u{1b}[0m: §",
    "\\u001b[32mpassword\\u001b[0m: \"a b §\"",
    "\\x1b[1mpassword\\x1b[0m=§",
    "password: | # db\n  §",
    "password: |5\n     §",
    "password: |2-   # c\n  a b\n  §",
    "password: # c\n  §",
    "db:\n  password: >- # c\r\n    a b §\r\n  port: 1",
    "contrasen\u{303}a=§",
    "contrasen\u{303}a: \"a b §\"",
    "password: Some(\n    \"§\",\n)",
    "password: Some(\n    \"a b §\",\n)",
    "password: r#\"a \"b\" §\"#",
    "password = r##\"a \"# §\"##;",
    "['mysql', '--password', '§']",
    "[\"mysql\", \"--password\", \"a b §\"]",
    "['mysql','--token','a §']",
    "login --password \\\n  §",
    "login --password \\\r\n  'a b §'",
    "**Password:** §",
    "**Password:** \"a b §\"",
    "**password**: §",
    "**password** = `a b §`",
    "password ?= §",
    "password ?= \"a b §\"",
    "password ||= 'a §'",
    "password?: §",
    "password：§",
    "password＝§",
    "password ：§",
    "password\u{200b}: §",
    "password\u{feff}=§",
    "pass\u{200b}word: §",
    r"{\u0022password\u0022:\u0022§\u0022}",
    r"{\u0022password\u0022:\u0022a b §\u0022}",
    r"{\\u0022password\\u0022:\\u0022a b §\\u0022}",
    r"password\u003d§",
    r"password\u003d'a b §'",
    r"\x22password\x22: \x22§\x22",
    r"\x22password\x22: \x22a b §\x22",
    r"password\t=\t§",
    r#"password\t=\t"a b §""#,
    r"a\u0026key\u003d§",
    "/cb?a=b%26key%3D§",
    "password%20%3D%20§",
    "password%253D§",
    "%2522password%2522%253A%2522§%2522",
    "Authorization%3A%20Bearer%20§",
    "%22password%22+%3A+%22§%22",
    "--user=bob:§",
    "curl --user=\"bob:a §\" x",
    r#"{"m":"password: |\n    §\n"}"#,
    r#"{"m":"password:\n  - §\n"}"#,
    r#"{\n  "password":\n    "a §"\n}"#,
    "password\u{1b}(B\u{1b}[m: §",
    "password\u{1b}[38:2:255:0:0m=§",
    "\u{2068}Password\u{2069}: \u{2068}§\u{2069}",
    "<b>Password:</b> §",
    "<strong>Token:</strong> \"a §\"",
    "let password: &str = \"a §\";",
    "const password: string = 'a §'",
    r"ALTER USER a PASSWORD \u0027a §\u0027",
    r#"IDENTIFIED BY \"a §\""#,
    "PASSWORD%20%27§%27",
    "IDENTIFIED BY &#39;a §&#39;",
    "ALTER ROLE a PASSWORD $x$a §$x$",
    "SET PASSWORD FOR bob TO 'a §'",
    "IDENTIFIED VIA ed25519 USING 'a §'",
];

/// Forms that tell themselves, whatever stands before them.
const FORMED: &[&str] = &[
    r"x\nghp_abcdefghijklmnop§",
    r"x\u003dghp_abcdefghijklmnop§",
    "x%3Dghp_abcdefghijklmnop§",
    "x%20sk-abcdefghijklmnop§",
    "令牌ghp_abcdefghijklmnop§",
    "令牌opt_AbCdEfGhIj§",
    "令牌eyJhbGciOiJIUzI1NiJ9.e30.§",
    "éeyJhbGciOiJIUzI1NiJ9.e30.§",
    "x_eyJhbGciOiJIUzI1NiJ9.e30.§",
    r"x\teyJhbGciOiJIUzI1NiJ9.e30.§",
    "xeyJhbGciOiJIUzI1NiJ9.eyJzdWIi§.c2ln",
    "eyJhbGciOiJkaXIi..aXY.§.dGFn",
    "eyJhbGciOiJSU0Ei.a2V5.aXY.Y2lwaGVy.§",
    "Bearer 3|RXn4§",
    "Bearer \"§\"",
    "Bearer: §",
    "Bearer '§'",
    "Bearer%20§",
    r"x\nBearer §",
    "Bearer abcdefghijklmnopqrstuvwxyz§",
    r"https:\/\/hooks.slack.com\/services\/T0\/B0\/§",
    "https:%2F%2Fh%2F§",
    r"https:\u002F\u002Fh\u002F§",
    r"https\u003a\u002f\u002fh\u002f§",
    "connect to :§@cache:6379",
    "(:§@10.0.0.7:6379)",
    "sqlplus scott/§@orcl",
    "sqlplus -S scott/§@orcl @x.sql",
    "CONNECT scott/§@orcl",
    "scott/§@db.internal:1521/orcl",
    "scott/§@//db.internal:1521/orcl",
    "PASSWORD('§')",
    "PASSWORD ( 'a b §' )",
    "SET PASSWORD FOR 'u'@'h' = PASSWORD('§')",
    "SET PASSWORD FOR 'u'@'h' = 'a b §'",
    "ALTER ROLE a PASSWORD E'a\\'b §'",
    "ALTER ROLE a PASSWORD $$a b §$$",
    "ALTER USER a IDENTIFIED BY §",
    "create user a identified by values §",
    "XPATH syntax error: '~§'",
    "XPATH syntax error: '~it's §'",
    "Cannot convert string 'a §' from utf8mb4 to latin1",
    "JSON data, line 1: {\"ssn\":\"§\"",
    "Chave (email)=(§) já existe.",
    "Schlüssel »(email)=(§)« existiert bereits.",
    "La clé « (email)=(a) §) » existe déjà.",
    "Ya existe la llave (lower(email))=(§).",
    "The duplicate key value is (§).",
    "The duplicate key value is (a, (§)).",
];

/// Texts that only look like those.
const SURVIVORS: &[&str] = &[
    r#"{"id":5,"email":"bob@example.com","total":12.5}"#,
    r#"{"ts":"2026-12-01T10:00:00Z","user":{"id":7,"mail":"a@b.de"},"items":[{"qty":2}]}"#,
    "10:15:30,bob@example.com,3",
    "4711;10:15;bob@example.com;3",
    r#""to":"bob@example.com""#,
    "email:bob@example.com E-Mail:max@firma.de Kontakt:info@firma.de",
    "INSERT INTO t VALUES ('10:15:30','bob@example.com')",
    "<a href=\"mailto:bob@example.com\">",
    "8:30@office 12:30:45@node1 2026-12-01T10:00:00@srv",
    "uses:actions/checkout@v4 npm:react@18.2.0 image:nginx@sha256:abc",
    "Preis:12,50€@Stück",
    "SELECT opt_in_marketing_emails FROM users",
    "class=\"sk-button-primary-large-rounded\" SG.controller.services whsec_webhook_secret_name",
    "ON (t.a)=(u.b) AND (c)=(d) WHERE x=1",
    "UPDATE t SET (a, b)=(1, 2) WHERE id=3",
    "Bearer authentication is required",
    "bearer: authentication is required",
    "the bearer of this, the bearer token-based",
    "WWW-Authenticate: Bearer realm=\"api\", error=\"invalid_token\"",
    "the source database refused the credentials: error returned from database: x",
    "greyJacketAndHat.size.large, keyJavaClassName.foo.bar",
    "risk-assessment-of-the-project, laughs_loudly_and_happily",
    "actions/checkout@v4, packages/foo@1.2.3, a/b@c",
    ":smile:@ana",
    "**bold** and *italic*, 2 ** 3 = 8",
    "\u{1b}[32mdone\u{1b}[0m: 3 of 4",
    "name%3Dann, a%20b",
    "cafe\u{301}: ole\u{301}",
    "rows are identified by id",
    "f(a) = (b), (a)=(b)",
    r"C:\temp\new\readme.txt: not found",
    "a ?= b, c ||= d, e?: string",
    "title: | # c\n  text",
    "std::convert::From, http/1.1, text/html",
];

const AROUND: &[(&str, &str)] = &[
    ("\u{1b}[32mpassword\u{1b}[0m: a b", "\u{1b}[32mpassword\u{1b}[0m: [redacted] b"),
    (
        r"{\u0022token\u0022:\u0022a b\u0022,\u0022n\u0022:1}",
        r"{\u0022token\u0022:[redacted],\u0022n\u0022:1}",
    ),
    ("password：a b", "password：[redacted] b"),
    ("Bearer Zq7xV2m9 was sent", "Bearer [redacted] was sent"),
    ("x%3Dghp_abcdefghijklmnopqrst y", "x%3D[redacted] y"),
    ("a\\n2001:db8::7 and 令牌2001:db8::7", "a\\n[redacted] and 令牌[redacted]"),
    (r"a\u003d2001:db8::7 b%3D2001:db8::7", r"a\u003d[redacted] b%3D[redacted]"),
    (r"at https:\/\/h\/a\/b now", "at [redacted] now"),
    ("['x', '--password', 'a b', '-v']", "['x', '--password', [redacted], '-v']"),
    ("Chave (email)=(a) já existe.", "Chave (email)=([redacted]) já existe."),
    ("password: # c\n  a b\nport: 1", "password: [redacted]\nport: 1"),
];

#[test]
fn no_secret_stays_in_any_notation() {
    none_stays(NAMED);
    none_stays(FORMED);
}

#[test]
fn what_only_looks_like_those_notations_survives() {
    for text in SURVIVORS {
        assert_eq!(redact(text), *text);
    }
}

#[test]
fn what_stands_around_a_notation_stays() {
    for (text, expected) in AROUND {
        assert_eq!(redact(text), *expected, "from {text:?}");
    }
}

/// The work grows with the length: what is quadratic in it would not end within a test's time.
#[test]
fn long_texts_of_half_open_notations_end() {
    let pieces = [
        "\u{1b}[1",
        "\\u0022",
        "%20",
        "%20=",
        "\\t",
        "%25",
        "key: # ",
        "key: # \n",
        "password: | # c",
        "=r#\"",
        "password=r##",
        "password=(\n",
        "--password ',",
        "--password \\\n",
        "Bearer \"",
        "bearer:",
        "a%3A%2F",
        "https:\\/",
        "a/b@",
        ":a@b",
        "sqlplus - ",
        "a (b)=(",
        "XPATH syntax error: '",
        "convert string '",
        "JSON data, line 1: ",
        "PASSWORD($$",
        "eyJabcdefgh.",
        "eyJabcdefgh.eyJ",
        "ghp_",
        "\\",
        "**",
        "*:",
        "\u{301}",
        "Cookie:\r",
    ];
    for piece in pieces {
        let text = piece.repeat(32 * 1024 / piece.len());
        let told = redact(&text);
        assert!(redact(&told) == told, "from many {piece:?}");
    }
}
