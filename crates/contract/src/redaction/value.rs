//! Where a value ends: at its closing quote or bracket, with its block of lines, or at white space.

use std::ops::Range;

use super::{
    REDACTED,
    names::{self, Kind},
};

/// What is known of the name that a value belongs to.
pub(super) struct Name {
    /// Where it begins.
    pub(super) start: usize,
    /// It stands in quotes, as in JSON: its value ends at a comma or a bracket, too.
    pub(super) is_quoted: bool,
    /// Its value is the rest of the line.
    pub(super) is_header: bool,
}

/// The schemes of `Authorization`; they stay.
const SCHEMES: [&str; 8] =
    ["bearer", "basic", "digest", "token", "negotiate", "ntlm", "apikey", "aws4-hmac-sha256"];

/// Bytes that a comment of YAML may have.
const COMMENT_BYTES: usize = 256;

/// Quotes as HTML writes them.
pub(super) const ENTITIES: [&str; 7] =
    ["&quot;", "&#34;", "&#39;", "&apos;", "&#x22;", "&#x27;", "&#039;"];

/// The value that begins at `from`, after white space. `None` where there is nothing to take out.
/// A value that is a name itself goes with its own: `secret: token = S`.
pub(super) fn find(text: &str, from: usize, name: &Name) -> Option<Range<usize>> {
    find_one(text, from, name).map(|found| with_joined(text, found, name))
}

/// The end of a run that goes, from `start` to `end`: where a value opens in it, that value's end.
pub(super) fn whole_end(text: &str, start: usize, end: usize) -> usize {
    let walked = walk(text, start, end);
    if walked == end {
        return end;
    }
    let name = Name { start, is_quoted: false, is_header: false };
    with_joined(text, start..walked, &name).end
}

/// The end of what stands at `at` by itself: in quotes or brackets, or up to white space.
pub(super) fn word_end(text: &str, at: usize) -> usize {
    let blank = || text[at..].find(char::is_whitespace).map_or(text.len(), |length| at + length);
    enclosed_end(text, at).unwrap_or_else(blank)
}

fn with_joined(text: &str, mut found: Range<usize>, name: &Name) -> Range<usize> {
    loop {
        let rest = text[found.end..].trim_start_matches(is_blank);
        let separated = rest.trim_start_matches([':', '=', '>']);
        let value = &text[found.clone()];
        let is_separated = value.ends_with([':', '=']) || rest.starts_with([':', '=']);
        // The type of what is declared: password: &str = "S"
        let is_type = rest.starts_with("= ") && !value.contains(['"', '\'', '`', '=']);
        let kind = is_separated.then(|| last_name(value)).flatten();
        let Some(kind) = kind.or_else(|| is_type.then_some(Kind::Secret)) else { return found };
        let name = Name { is_header: name.is_header || kind == Kind::Header, ..*name };
        let Some(next) = find_one(text, text.len() - separated.len(), &name) else {
            return found;
        };
        found.end = next.end;
    }
}

/// What the name says that `value` ends in, quoted or not, with or without its separator.
fn last_name(value: &str) -> Option<Kind> {
    let name = value.trim_end_matches(|c: char| c.is_ascii_punctuation());
    let before = name.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "_-".contains(c));
    names::kind(&name[before.len()..], "")
}

fn find_one(text: &str, from: usize, name: &Name) -> Option<Range<usize>> {
    let at = |rest: &str| text.len() - rest.len();
    let start = at(text[from..].trim_start_matches(is_blank));
    let rest = without_tags(without_breaks(&text[start..]));
    // What was passed over may have been a type: password: &str = "S"
    let mut rest = rest.strip_prefix("= ").unwrap_or(rest);
    // `|` or `>` announce a block in YAML, with its indentation and a comment behind.
    let mut start = at(rest);
    let marked = rest.strip_prefix(['|', '>']).unwrap_or(rest);
    let marked = marked.trim_start_matches(|c: char| "-+".contains(c) || c.is_ascii_digit());
    let marked = marked.trim_start_matches(is_blank);
    let is_comment = marked.starts_with('#') && text[..at(marked)].ends_with(is_blank);
    let head = &marked[..marked.floor_char_boundary(COMMENT_BYTES)];
    let comment = if is_comment { head.find(is_line_end).unwrap_or(0) } else { 0 };
    let marked = &marked[comment..];
    if marked.starts_with(is_line_end) {
        if let Some(end) = block_end(text, name.start, at(marked)) {
            return Some(start..end);
        }
        if comment == 0 {
            if name.is_header {
                return None;
            }
            rest = without_tags(rest.trim_start());
            start = at(rest);
        }
    }
    if rest.is_empty() {
        return None;
    }
    if name.is_header && !(name.is_quoted && quote(rest.as_bytes()).is_some()) {
        return header(text, start);
    }
    let value = at(rest);
    let end = match enclosed_end(text, value) {
        Some(end) => end,
        None if name.is_quoted => match literal(&text[value..]) {
            Some("true" | "false" | "null") => return None,
            Some(number) => value + number.len(),
            None => run_end(text, value),
        },
        None => run_end(text, value),
    };
    let after = &text[end..];
    // The value of an attribute is over at the end of its tag.
    let is_over = (name.is_quoted && after.starts_with([',', ';', '}', ']', ')', '>', '\\']))
        || after.starts_with('>')
        || after.starts_with("/>");
    let end = if is_over { end } else { run_end(text, end) };
    Some(start..end)
}

/// What follows the end of an element, `Password:</b> S`, or line breaks that are escaped, with
/// the mark of a block or an item: `password: |\n  S`.
fn without_breaks(rest: &str) -> &str {
    let ended = rest.strip_prefix("</").and_then(|tag| tag.split_once('>'));
    if let Some((_, after)) =
        ended.filter(|(tag, _)| tag.bytes().all(|b| b.is_ascii_alphanumeric()))
    {
        return after.trim_start_matches(is_blank);
    }
    let marked = rest.strip_prefix(['|', '>']).unwrap_or(rest);
    let marked = marked.trim_start_matches(|c: char| "-+".contains(c) || c.is_ascii_digit());
    let mut after = marked.trim_start_matches(is_blank);
    let before = after.len();
    loop {
        let escaped = after.trim_start_matches('\\');
        let is_escape = escaped.len() < after.len() && escaped.starts_with(['n', 'r']);
        if !is_escape {
            break;
        }
        after = escaped[1..].trim_start_matches(is_blank);
    }
    if after.len() == before { rest } else { after.strip_prefix("- ").unwrap_or(after) }
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() && !is_line_end(c)
}

/// What follows the tags and anchors of YAML that `rest` may begin with.
fn without_tags(rest: &str) -> &str {
    let mut rest = rest;
    while rest.starts_with(['!', '&'])
        && entity(rest).is_none()
        && let Some(end) = rest.find(char::is_whitespace)
        && !rest[end..].starts_with(is_line_end)
    {
        rest = rest[end..].trim_start_matches(is_blank);
    }
    rest
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r')
}

/// The end of the lines below a name that are indented more than its own, or are items of a list.
fn block_end(text: &str, name: usize, line_end: usize) -> Option<usize> {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let own = &text[text[..name].rfind(is_line_end).map_or(0, |end| end + 1)..];
    let own = indent(own);
    let mut at = line_end;
    let mut end = None;
    let mut is_list = None;
    for line in text[line_end..].split_inclusive(is_line_end) {
        let start = at;
        at += line.len();
        let content = line.trim();
        if content.is_empty() {
            continue;
        }
        let is_item = content.starts_with("- ");
        let is_list = *is_list.get_or_insert(is_item);
        if indent(line) <= own && !(is_list && is_item && indent(line) == own) {
            break;
        }
        end = Some(start + line.trim_end().len());
    }
    end
}

/// The rest of the line, without the scheme.
fn header(text: &str, start: usize) -> Option<Range<usize>> {
    let line = text[start..].find(is_line_end).map_or(text.len(), |length| start + length);
    // What is opened in the line may be closed below it.
    let end = enclosed_end(text, start).map_or(line, |end| line.max(end));
    let value = &text[start..end];
    let word = value.find(char::is_whitespace).unwrap_or(value.len());
    let is_scheme = SCHEMES.iter().any(|scheme| value[..word].eq_ignore_ascii_case(scheme));
    let credentials = if is_scheme { value[word..].trim_start() } else { value };
    (!credentials.trim().is_empty()).then_some(end - credentials.len()..end)
}

/// The end of what stands at `at` in quotes or brackets, or was taken out before. What is not
/// closed goes to the end of the text.
fn enclosed_end(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    if rest.starts_with(REDACTED) {
        return Some(at + REDACTED.len());
    }
    if let Some(entity) = entity(rest) {
        let end = rest[entity.len()..].find(entity);
        return Some(end.map_or(text.len(), |length| at + length + 2 * entity.len()));
    }
    let close = match rest.chars().next()? {
        '[' | '{' => return Some(bracketed_end(text, at)),
        '“' | '„' => Some(['”', '“']),
        '‘' => Some(['’', '’']),
        '«' => Some(['»', '»']),
        _ => None,
    };
    if let Some(close) = close {
        let end = rest.char_indices().skip(1).find(|(_, c)| close.contains(c));
        return Some(end.map_or(text.len(), |(end, c)| at + end + c.len_utf8()));
    }
    let bytes = rest.as_bytes();
    // Some languages have a letter before: b'…', N'…', @"…".
    let prefix = bytes.iter().take_while(|byte| b"bBuUrRfFnNeE@$".contains(byte)).count();
    let prefix = if prefix <= 2 && quote(&bytes[prefix..]).is_some() { prefix } else { 0 };
    if let Some(end) = raw_end(text, at) {
        return Some(end);
    }
    quote(&bytes[prefix..])?;
    Some(quoted_end(text, at + prefix))
}

/// The end of a raw string of Rust: `r#"…"#`.
fn raw_end(text: &str, at: usize) -> Option<usize> {
    let rest = text[at..].trim_start_matches(['b', 'c']).strip_prefix('r')?;
    let inner = rest.trim_start_matches('#').strip_prefix('"')?;
    let hashes = &rest[..rest.len() - inner.len() - 1];
    let closing = (!hashes.is_empty()).then(|| format!("\"{hashes}"))?;
    let end = inner.find(&closing).map_or(inner.len(), |length| length + closing.len());
    Some(text.len() - inner.len() + end)
}

/// The quote of HTML that `rest` begins with.
fn entity(rest: &str) -> Option<&'static str> {
    ENTITIES.into_iter().find(|entity| rest.starts_with(entity))
}

/// The backslashes before the quote that `bytes` begin with, and the quote.
fn quote(bytes: &[u8]) -> Option<(usize, u8)> {
    let escapes = bytes.iter().take_while(|byte| **byte == b'\\').count();
    let quote = bytes.get(escapes).filter(|byte| b"\"'`".contains(byte))?;
    Some((escapes, *quote))
}

/// The end of the text in quotes that begins at `at`.
fn quoted_end(text: &str, at: usize) -> usize {
    let Some((escapes, quote)) = quote(&text.as_bytes()[at..]) else { return at };
    let open = at + escapes + 1;
    let triple = [quote; 3];
    if escapes == 0 && text.as_bytes()[at..].starts_with(&triple) {
        let found = text.as_bytes()[at + 3..].windows(3).position(|window| window == triple);
        return found.map_or(text.len(), |length| at + 3 + length + 3);
    }
    let mut backslashes = 0;
    let mut bytes = text.bytes().enumerate().skip(open).peekable();
    while let Some((at, byte)) = bytes.next() {
        if byte == b'\\' {
            backslashes += 1;
            continue;
        }
        let is_doubled =
            quote != b'`' && escapes == 0 && bytes.peek().is_some_and(|(_, next)| *next == quote);
        // Quotes within a value that is escaped itself have more backslashes than its own.
        let is_within = if escapes == 0 { backslashes % 2 == 1 } else { backslashes > escapes };
        if byte == quote && !is_within {
            if !is_doubled {
                return at + 1;
            }
            bytes.next();
        }
        backslashes = 0;
    }
    text.len()
}

fn bracketed_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, at);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'[' | b'{' => depth += 1,
            // Doubled within the braces of ODBC; in JSON no word follows.
            b'}' if depth == 1
                && bytes[at + 1..].starts_with(b"}")
                && bytes.get(at + 2).is_some_and(u8::is_ascii_alphanumeric) =>
            {
                at += 1;
            }
            b']' | b'}' if depth == 1 => return at + 1,
            b']' | b'}' => depth -= 1,
            // An apostrophe in a word quotes nothing.
            b'"' | b'\'' | b'`' if !bytes[at - 1].is_ascii_alphanumeric() => {
                let escapes = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
                at = quoted_end(text, at - escapes);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// The number or word of JSON that `rest` begins with.
fn literal(rest: &str) -> Option<&str> {
    let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
    let (literal, after) = rest.split_at(length.unwrap_or(rest.len()));
    let is_one = matches!(literal, "true" | "false" | "null") || literal.parse::<f64>().is_ok();
    let is_over = after.is_empty()
        || after.starts_with([',', '}', ']', '\\'])
        || after.starts_with(char::is_whitespace);
    (is_one && is_over).then_some(literal)
}

/// The next white space from `at` on that is not within a value of its own: `x;password="a b"`,
/// `Some("a b")`.
pub(super) fn run_end(text: &str, at: usize) -> usize {
    walk(text, at, at)
}

/// The end of a run that ends at `least` at the earliest.
fn walk(text: &str, at: usize, least: usize) -> usize {
    let mut at = at;
    while let Some(c) = text[at..].chars().next().filter(|c| at < least || !c.is_whitespace()) {
        at += c.len_utf8();
        at = match c {
            '(' => {
                // On a line of its own: Some(⏎ "a b"⏎).
                let inner = text.len() - text[at..].trim_start().len();
                let is_quote = quote(&text.as_bytes()[inner..]).is_some();
                if is_quote { quoted_end(text, inner) } else { at }
            }
            '=' | ':' | '>' => enclosed_end(text, at).unwrap_or(at),
            _ => at,
        };
    }
    at
}
