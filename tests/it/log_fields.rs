//! A line of the log as JSON has each member once: the words of a line are its `message`, and the
//! name of a span its `name`, so no field is called so, and no two fields are called the same.

use crate::tidy::{text, with_extension};

/// What logs: a macro's name, and the member that is taken already.
const MACROS: [(&str, &str); 10] = [
    ("trace!(", "message"),
    ("debug!(", "message"),
    ("info!(", "message"),
    ("warn!(", "message"),
    ("error!(", "message"),
    ("trace_span!(", "name"),
    ("debug_span!(", "name"),
    ("info_span!(", "name"),
    ("warn_span!(", "name"),
    ("error_span!(", "name"),
];

/// The names of a call's fields, from what follows its opening parenthesis.
fn fields(call: &str) -> Vec<&str> {
    let (mut depth, mut start, mut arguments) = (0, 0, Vec::new());
    let mut rest = call.char_indices();
    while let Some((at, c)) = rest.next() {
        match c {
            '"' => {
                while let Some((_, c)) = rest.next().filter(|(_, c)| *c != '"') {
                    if c == '\\' {
                        rest.next();
                    }
                }
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                arguments.push(&call[start..at]);
                break;
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                arguments.push(&call[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    let names = arguments.into_iter().filter_map(|argument| argument.split('=').next());
    let names = names.map(|name| name.trim().trim_start_matches(['%', '?']));
    names.filter(|name| !name.is_empty() && name.chars().all(is_of_a_name)).collect()
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

/// The fields of a text's log lines that are there twice, each with its macro.
fn twice(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (called, taken) in MACROS {
        for (at, _) in text.match_indices(called) {
            if text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                continue;
            }
            let mut names = fields(&text[at + called.len()..]);
            names.push(taken);
            names.sort_unstable();
            let pairs = names.windows(2).filter(|pair| pair[0] == pair[1]);
            found.extend(pairs.map(|pair| format!("{called}{}", pair[0])));
        }
    }
    found
}

#[test]
fn no_line_of_the_log_has_a_member_twice() {
    let mut found = Vec::new();
    for path in with_extension("rs") {
        // This file says what must not be said.
        if path != "tests/it/log_fields.rs" {
            found.extend(twice(&text(&path)).into_iter().map(|one| format!("{path}: {one}")));
        }
    }
    assert_eq!(found, [""; 0], "give the field another name, such as `reason`");
}

#[test]
fn a_member_that_is_there_twice_is_found() {
    for (text, expected) in [
        (r#"tracing::warn!(job = %job(1, 2), message = said, "it (\"message, x\") failed");"#, 1),
        ("tracing::warn!(\n    %message,\n    \"failed\"\n);", 1),
        (r#"error!(error, job = ?job, %error, "twice");"#, 1),
        (r#"tracing::info_span!("run", name = x, job)"#, 1),
        (r#"tracing::info!(name = x, message.code, "one message");"#, 0),
        (r#"tracing::info!("a message = {message}, said {}", name(message, message));"#, 0),
        (r#"my_error!(message, "no line of a log");"#, 0),
    ] {
        assert_eq!(twice(text).len(), expected, "{text}: {:?}", twice(text));
    }
}
