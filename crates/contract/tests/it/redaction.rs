//! What redaction takes out of texts, and what it leaves.

use outport_contract::redaction::redact;

/// What `§` stands for.
const SECRET: &str = "Zq7xV2m9LkP4";

/// Texts with a secret, however its name and its value are written.
const NAMED: &[&str] = &[
    "cookie=§",
    "cookie=a=1; b=§",
    "key=§",
    "key: §",
    "/cb?key=§",
    "GET /cb?state=1&key=§ HTTP/1.1",
    "tokens=[§]",
    "tokens: [a, §]",
    "login --token §",
    "login --password § now",
    "login --password 'a b §'",
    "password: \"a b §\"",
    "password: 'a b §'",
    "password: \"a \\\" §\"",
    "password: Some(\"a b §\")",
    "password: \"\"\"a b §\"\"\"",
    "password: “a b §”",
    "password := §",
    "password := \"a b §\"",
    "password = §",
    "pASSWORD = §",
    "MY_PASSwORD: §",
    "password -> §",
    ":password => '§'",
    ":password => 'a b §'",
    "password=N'a b §'",
    "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature=§",
    "Authorization: Digest username=\"u\", response=\"§\"",
    "Proxy-Authorization: Digest username=\"u\", response=\"§\"\nnext",
    "Authorization: Bearer a b §",
    "Authorization: §",
    "Authorization:\n  Bearer §",
    "password: |\n  §",
    "db:\n  password: |-\n    a b\n\n    §\n  port: 1",
    "password: >\r\n  a b\r\n  §\r\n",
    "password: !vault |\n  a b §",
    "password: !!str §",
    "tokens:\n- a b\n- §\n",
    "credentials:\n  user: a\n  pin: §\nnext",
    "password:\u{a0}§",
    "password:\n§",
    r#"{\"password\":\"§\"}"#,
    r#"{\"password\":\"a b §\"}"#,
    r#"{\\\"password\\\":\\\"a b §\\\"}"#,
    r#"{\"password\":\"a \\\" b §\"}"#,
    "{'password': '§'}",
    "{'X-Api-Key': '§'}",
    "{'Authorization': 'Token §'}",
    r#"{"Authorization": ["Basic §"]}"#,
    "map[Authorization:[Bearer a b §]]",
    r#""password": ["§"]"#,
    r#""password": ["a ] b", "c d", "§"]"#,
    r#""password": {"value": "a §"}"#,
    r#""password" = "§""#,
    r#""password"=>"§""#,
    r#"config["password"] = "a b §""#,
    "`password`: `a b §`",
    "password%22%3A%22§%22",
    "/cb?password%3D§",
    "&quot;password&quot;:&quot;§&quot;",
    "<password>§</password>",
    "<password>a b §</password>",
    "<ns:password type=\"text\">a b §</ns:password>",
    "&lt;password&gt;a b §&lt;/password&gt;",
    "<password>§",
    "<credentials password=\"a b §\">c</credentials>",
    "<credentials password=\"a b §\"/>",
    "pass: §",
    "passwd=§",
    "DB_PASS=§",
    "dbPass: §",
    "pw: §",
    "pwd=§",
    "sessionid=§",
    "session_id: §",
    "JSESSIONID=§",
    "AccountName=a;AccountKey=§;x",
    "AccountKey: §",
    "x-functions-key: §",
    "api keys: §",
    "clientSecret: §",
    "CREATE USER a IDENTIFIED BY '§'",
    "ALTER USER a IDENTIFIED WITH caching_sha2_password BY 'a b §'",
    "CREATE ROLE a LOGIN PASSWORD 'a b §'",
    "curl -u me:§ x",
    "curl -u 'me:a b §' x",
    "curl --proxy-user me:§ x",
    "User Id=§",
    "secret: token = §",
    "secret: token: \"a b §\"",
    "host=\npassword: §",
    "Server=a;Database=x;User Id=sa;Password=\"my § pass\";",
    "connect(host=db,user=ana,password='my §')",
    "Server=a;Pwd={my § pass};",
    "https://api/x?a=1;password=\"my §\"",
    "https://api/x?a=1;password='my';token=\"a b §\"",
    "https://api/x?a='b c',\"password\": \"a b §\"",
    "https://api/x?a={b\u{a0}c d §}",
    "lookup x;password=\"my §\"",
    "Addr: x;password=\"my §\"",
    "retry(password=None,token=\"a § b\")",
    "password=\"x\";secret=\"a § b\"",
    "host=db\\npassword=\"my §\"",
    "token=x;\\\"password\\\":\\\"my §\\\"",
    "token=x,password=[\"a b\", \"§\"]",
    "user=ana,Authorization: Bearer a b §",
    "Server=a;Pwd={a}}b my § pass};x",
    "password=\"a \"\"b §\"",
    "x\\nkey=\"my §\"",
    "dbpw=§",
    "rootpw: §",
    "userpw=§",
    "pw1=§",
    "pass1: §",
    "dbpass1=§",
    "passkey=§",
    "passwort: §",
    "senha=§",
    "contraseña=§",
    "contrasena: §",
    "mot_de_passe=§",
    "APP_ENC_KEY=§",
    "encKey: §",
    "OUTPORT_OLD_ENC_KEYS=a,§",
    "kms_key=§",
    "tls_key: §",
    "ssl_key=§",
    "data_key=§",
    "unseal_key: §",
    "recovery_key=§",
    "app_key=§",
    "password->§",
    "\"password\"->\"a §\"",
    "password[]=§",
    "password[0]=§",
    "tokens[0]=§",
    "<password><v>a</v><v>b §</v></password>",
    "<password>a<br/><v>b</v> c §</password>",
    "<password>x;a=\"b\nx \"password\": \"§\"",
    "<db user=\"ana\"><password>my §</password></db>",
    "<db user=\"ana\"/><password>my §</password>",
    "<token><token>a</token> b §</token>",
    "&#34;password&#34;:&#34;a b §&#34;",
    "&quot;password&quot;: &quot;a b c §&quot;",
];

/// Texts in which the secret's form tells it.
const FORMED: &[&str] = &[
    "basic §",
    "Basic dXNlcjpwYXNz§==",
    "u:ab/§@h:5432",
    "dsn u:§/b@h/db",
    "https%3A%2F%2Fu%3A§%40h",
    "x=https%253A%252F%252Fu%253A§%2540h",
    "u%3A§%40h",
    "AIzaSyA0123456789012345678§",
    "npm_0123456789abcdef§",
    "SG.0123456789.§0123456789",
    "rk_live_0123456789abcdef§",
    "xapp-1-A0123456789abcdef-§",
    "hf_0123456789abcdef§",
    "shpat_0123456789abcdef§",
    "pypi-AgEIcHlwaS5vcmc§",
    "dop_v1_0123456789abcdef§",
    "hvs.0123456789abcdef§",
    "AGE-SECRET-KEY-1§",
    "xopt_0123456789abcdefghijklmnopqrstuvwxyzABCDEF§",
    "_opt_0123456789abcdefghijklmnopqrstuvwxyzABCDEF§",
    "MIIE\n§\n-----END RSA PRIVATE KEY----- read",
    "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n§\n---- END SSH2 ENCRYPTED PRIVATE KEY ----",
    "private_key: -----BEGIN PRIVATE KEY-----\n§\n-----END PRIVATE KEY-----",
];

/// Texts that only look like those.
const SURVIVORS: &[&str] = &[
    "title: \"Hello world\"",
    "tokens: 1500",
    "max_tokens=1500, temperature=1",
    "\"promptTokens\": 1500}",
    "server=3",
    "1.234.567.890 rows",
    "123.456.789.012 bytes",
    "R$ 1.234.567.890,00",
    "to:me@example.com",
    "mailto:me@example.com",
    "15:30@office",
    "a::b",
    "dead::beef",
    "1:2:3:4:5:6:7:8",
    "value \"a\" is b",
    "role \"admin\" granted",
    "secretary: Ann",
    "bypass: yes",
    "tokenizer: bpe",
    "primary key: id",
    "routing key: export.failed",
    "idempotencyKey: a-1",
    "keys: a, b",
    "keyword: x",
    "monkey=3",
    "token::Kind and secret::Key",
    "password authentication failed",
    "\"password\":null",
    "basic authentication, Basic Authentication",
    "use -u root",
    "the password is wrong, the token has expired",
    "<title>Hello</title>",
    "accessKeywords: a, clientKeyword: b, adminKeyboard: c",
    "compass: n, passenger: n, passage: n, passed: n, passes: n, passive: n, passport: n",
    "metadataKey: a",
    "tokens_used: 12, max_tokens_per_minute=12",
    "APP_ENC_KEY_VERSION=2",
    "{\"tokens\":{\"input\":1500, \"output\": 3}}",
    "data keys: a, b",
    "cookies: 3",
    "secrets: 4",
];

/// What the contract's rules ask for, or what its own words do not tell from a secret.
const TAKEN_ALL_THE_SAME: &[(&str, &str)] = &[
    ("version 1.2.3.4", "version [redacted]"),
    ("user=5 rows", "user=[redacted] rows"),
    ("1.234.10.10.10 and 192.168.100.200", "[redacted].10 and [redacted]"),
    ("role \"app\" does not exist", "role \"[redacted]\" does not exist"),
    ("tests pass: 12", "tests pass: [redacted]"),
    ("passRate=98", "passRate=[redacted]"),
    ("error: \"ana\"", "error: \"[redacted]\""),
    ("https://api/oauth/token: 401", "[redacted] 401"),
    ("see http://a/?q=\"b c\" now", "see [redacted] now"),
];

/// What is left around the values that are taken out.
const AROUND: &[(&str, &str)] = &[
    (r#"{"password":9182736450,"a":"b c"}"#, r#"{"password":[redacted],"a":"b c"}"#),
    (r#"{"password":"a b","n":1}"#, r#"{"password":[redacted],"n":1}"#),
    (r#"{\"password\":\"a b\",\"n\":1}"#, r#"{\"password\":[redacted],\"n\":1}"#),
    ("{'token': 'a b', 'n': 1}", "{'token': [redacted], 'n': 1}"),
    ("a:\n  password: |\n    b c\n  port: 1", "a:\n  password: [redacted]\n  port: 1"),
    ("<password>a b</password><n>1</n>", "<password>[redacted]</password><n>1</n>"),
    ("Authorization: Digest a=\"b\", c=\"d\"\nnext", "Authorization: Digest [redacted]\nnext"),
    ("token=YWJjZA== and more", "token=[redacted] and more"),
    ("login --token abc --url x", "login --token [redacted] --url x"),
    ("user=a;password=\"b c\"; port=1", "user=[redacted] port=1"),
    ("<password><v>a b</v></password><n>1</n>", "<password>[redacted]</password><n>1</n>"),
    ("GET /cb?key=a&b=c HTTP/1.1", "GET /cb?key=[redacted] HTTP/1.1"),
];

#[test]
fn no_secret_stays_whatever_stands_around_it() {
    none_stays(NAMED);
    none_stays(FORMED);
}

pub(crate) fn none_stays(templates: &[&str]) {
    let mut stayed = Vec::new();
    for template in templates {
        for around in ["¶", "at 12:00 ¶", "(¶)", "¶ and more\nthan that", "a \"b\" ¶", "é: ¶"]
        {
            let text = around.replace('¶', template).replace('§', SECRET);
            let told = redact(&text);
            if told.contains(SECRET) {
                stayed.push(format!("{text:?} became {told:?}"));
            }
            assert_eq!(redact(&told), told, "from {text:?}");
        }
    }
    assert!(stayed.is_empty(), "{}", stayed.join("\n"));
}

#[test]
fn what_only_looks_like_a_secret_survives() {
    for text in SURVIVORS {
        assert_eq!(redact(text), *text);
    }
}

#[test]
fn what_stands_around_a_secret_stays() {
    for (text, expected) in TAKEN_ALL_THE_SAME.iter().chain(AROUND) {
        assert_eq!(redact(text), *expected, "from {text:?}");
    }
}

/// The work grows with the length: what is quadratic in it would not end within a test's time.
#[test]
fn long_texts_of_half_open_values_end() {
    let pieces = [
        "password: ",
        "password=\"",
        "password='\\",
        "token: [",
        "-u [",
        "-u 'a ",
        "<password> ",
        "<password>",
        "password: |\n",
        "password:\n\n",
        "\\\"password\\\":\\\"",
        "key=(\"",
        "Authorization: [",
        "a:b",
        "u:p/",
        "1.234.567.890.",
        "-----BEGIN A-----",
        "password: !! ",
        "a%3A",
        "-u a=[",
        "-u «",
        "-u 'a={ ",
        "https://x?a={",
        "a://x='",
        "password=x;a=\"",
        "<password><b>",
        "<password></x>",
        "<password> </password",
        "password=&quot;a b",
        "tokens[0",
        "password=:",
        "a=>",
        "value \"",
        "error: \"",
        "\\",
        "key",
        "_",
    ];
    for piece in pieces {
        let text = piece.repeat(32 * 1024 / piece.len());
        let told = redact(&text);
        assert_eq!(redact(&told), told, "from many {piece:?}");
    }
}

/// Quadratic work would not end within a test's time.
#[test]
fn a_line_that_begins_with_blanks_is_measured_once() {
    let text = " ".repeat(1024 * 1024) + &"Cookie:\r".repeat(128 * 1024);
    assert!(redact(&text) == text);
}
