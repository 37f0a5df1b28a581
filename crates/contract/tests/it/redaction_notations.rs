//! Secrets in texts that are escaped, coloured, marked up or in a notation of their own.

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
];

#[test]
fn no_secret_stays_in_any_notation() {
    none_stays(NAMED);
}
