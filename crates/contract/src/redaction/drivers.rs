//! What databases are told and what they quote in their messages: rows, values, users, hosts.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::Rule;

static RULES: LazyLock<[Rule; 17]> = LazyLock::new(|| {
    [
        // What databases are told: IDENTIFIED BY '…', PASSWORD '…', PASSWORD('…'), SET PASSWORD = '…'.
        Rule::new(
            concat!(
                r"(?i)\b((?:(?:identified\s+(?:(?:with|via)\s+\S+\s+)?(?:by|as|using)(?:\s+password)?|password)",
                r"(?:(?:\s|%20)+|\s*\(\s*)|set\s+password\s+for\s+\S+(?:\s*=\s*|\s+to\s+)))",
                r#"(?:(?:E|N|U&)?'(?s:[^'\\]|''|\\.)*'?|"(?s:[^"\\]|\\.)*"?|\$\w*\$(?s:.*?)(?:\$\w*\$|$)"#,
                // In a text within another.
                r#"|(?:\\+u002[27]|%2[27]|&#3[49];|\\+['"])(?s:.*?)(?:\\+u002[27]|%2[27]|&#3[49];|\\+['"]|$))"#,
            ),
            "${1}[redacted]",
        ),
        // Oracle has it without quotes.
        Rule::new(
            r#"(?i)\b((?:create|alter)\s+user\s+\S+\s+identified\s+by\s+)(?:values\s+)?[^\s'"\[;][^\s;]*"#,
            "${1}[redacted]",
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
        // SQL Server: The duplicate key value is (a@b.c).
        Rule::new(r"(?s)(duplicate key value is )\(.*\)", "${1}([redacted])"),
        // MySQL: XPATH syntax error: '~a'; Cannot convert string 'a' from utf8mb4 to latin1.
        Rule::new(r"(?s)(XPATH syntax error: )'.*(?:'|$)", "${1}'[redacted]'"),
        Rule::new(r"(?s)(convert string )'.*'( from )", "${1}'[redacted]'${2}"),
        // PostgreSQL: JSON data, line 1: {"ssn":"a"
        Rule::new(r"(JSON data, line [0-9]+: )[^\n]+", "${1}[redacted]"),
    ]
});

/// PostgreSQL's details in other languages: Chave (email)=(a@b.c) já existe. To the last bracket
/// of the line.
static DETAIL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"((\w+)\s[»«„“]?\s?\([^=\n]+\)=)(\([^\n]*\))").expect("the pattern is a constant")
});

pub(super) fn redact(text: &str) -> String {
    let mut text = text.to_owned();
    for rule in RULES.iter() {
        text = rule.apply(&text).into_owned();
    }
    let without_values = |found: &Captures| {
        let is_gone = found[3].starts_with("([redacted])");
        // A condition or an assignment compares and assigns rows.
        let of_sql = ["AND", "NOT", "ON", "OR", "SET", "WHEN", "WHERE"];
        let is_sql = of_sql.iter().any(|word| found[2].eq_ignore_ascii_case(word));
        if is_gone || is_sql { found[0].to_owned() } else { format!("{}([redacted])", &found[1]) }
    };
    DETAIL.replace_all(&text, without_values).into_owned()
}
