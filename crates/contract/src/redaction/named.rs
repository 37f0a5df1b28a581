//! `name: value`, however it is written: a name, the quotes around it, a separator, and a value in
//! quotes, in brackets, in a block of lines, or up to white space. What the name of a secret leads
//! to is taken out.
//!
//! Each place of a text is looked at a fixed number of times.

use std::ops::Range;

use super::{
    REDACTED,
    names::{self, Counting, Kind},
    value::{self, Name},
    view::View,
};

/// Bytes of white space and attributes that an element's name may be followed by.
const TAG_BYTES: usize = 256;
/// Bytes before a name that are looked at.
const BEFORE_BYTES: usize = 40;
/// What closes a name's quotes, besides those of HTML: of a form, of an index.
const CLOSING: [&str; 5] = ["\\", "\"", "'", "`", "]"];
/// How elements are written, and how they are in a text within another.
const TAGS: [(&str, &str, &str); 2] = [("<", ">", "</"), ("&lt;", "&gt;", "&lt;/")];

/// Where the last element of each way ends, so that no search for one is in vain.
type LastEnds = [Option<usize>; TAGS.len()];

/// The text without the values that its names call secrets.
pub(super) fn redact(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let view = View::of(text);
    let seen = view.text.as_str();
    let last_ends = TAGS.map(|(.., ending)| seen.rfind(ending));
    let (mut copied, mut at) = (0, 0);
    while let Some(name) = next_name(seen, at) {
        at = name.end;
        if let Some(secret) = secret_after(seen, name, &last_ends) {
            at = secret.end;
            let secret = view.in_text(secret);
            clean.push_str(&text[copied..secret.start]);
            clean.push_str(REDACTED);
            copied = secret.end;
        }
    }
    clean.push_str(&text[copied..]);
    clean
}

/// The next run of what names are made of.
fn next_name(text: &str, from: usize) -> Option<Range<usize>> {
    let of_a_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let bytes = text.as_bytes();
    let start = from + bytes[from..].iter().position(of_a_name)?;
    let length = bytes[start..].iter().position(|byte| !of_a_name(byte));
    let end = length.map_or(text.len(), |length| start + length);
    // An arrow is no part of it.
    let is_arrow = text[start + 1..end].ends_with('-') && bytes.get(end) == Some(&b'>');
    Some(start..end - usize::from(is_arrow))
}

fn secret_after(text: &str, run: Range<usize>, last_ends: &LastEnds) -> Option<Range<usize>> {
    let name = &text[run.clone()];
    let before = &text[text.floor_char_boundary(run.start.saturating_sub(BEFORE_BYTES))..run.start];
    let is_option = name.starts_with('-');
    let bare = name.trim_start_matches('-');
    if is_option && ["u", "U", "user", "proxy-user"].contains(&bare) {
        // A list is no user, and neither is a word without a password.
        let rest = text[run.end..].trim_start();
        let start = text.len() - rest.len();
        let is_list = rest.starts_with(['[', '{', '“', '„', '‘', '«']);
        let is_user = !is_list && text[start..value::word_end(text, start)].contains(':');
        let found = if is_user { argument(text, run.end) } else { None };
        if found.is_some() || !rest.starts_with('=') {
            return found;
        }
    }
    // An escape may stand before it: \nkey
    let unescaped = bare.strip_prefix(['n', 'r', 't']).filter(|_| before.ends_with('\\'));
    let kind = names::kind(bare, before).or_else(|| names::kind(unescaped?, before))?;
    if kind == Kind::Secret
        && let Some(content) = content(text, before, run.clone(), last_ends)
    {
        return Some(content);
    }
    let Some((separator, from, is_quoted)) = separator(text, run.end) else {
        return if is_option && kind != Kind::Place { argument(text, run.end) } else { None };
    };
    if kind == Kind::Place && !separator.starts_with('=') {
        return None;
    }
    let start = run.start;
    let found =
        value::find(text, from, &Name { start, is_quoted, is_header: kind == Kind::Header });
    let found = found?;
    let value = &text[found.clone()];
    let counting = Counting::of(bare);
    // MySQL says no more than whether there was one.
    let is_told = ["YES)", "NO)"].contains(&value)
        || counting.is_count(value)
        || (is_quoted && counting.tokens && names::are_counts(value))
        // What failed, as SQLx begins.
        || (value == "error" && text[found.end..].starts_with(" returned from database"))
        || (kind == Kind::Place
            && bare.to_ascii_lowercase().ends_with("server")
            && names::is_short_number(value, 5));
    (!is_told).then_some(found)
}

/// What separates a name that ends at `end` from its value, where that begins, and whether the
/// name stands in quotes.
fn separator(text: &str, end: usize) -> Option<(&str, usize, bool)> {
    let mut rest = &text[end..];
    let closings = CLOSING.iter().chain(&value::ENTITIES);
    while let Some(closing) = closings.clone().find(|closing| rest.starts_with(**closing)) {
        rest = &rest[closing.len()..];
    }
    let is_quoted = rest.len() < text.len() - end;
    // One of many: password[], password[0].
    let index =
        rest.strip_prefix('[').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    rest = index.and_then(|rest| rest.strip_prefix(']')).unwrap_or(rest).trim_start();
    let length = match rest.as_bytes() {
        // A path, as in Rust.
        [b':', b':', ..] => return None,
        [b':' | b'=', ..] => rest.len() - rest.trim_start_matches([':', '=', '>', '~']).len(),
        [b'-', b'>', ..] => 2,
        _ => return None,
    };
    Some((&rest[..length], text.len() - rest.len() + length, is_quoted))
}

/// What follows an option of a command: `--token S`.
fn argument(text: &str, end: usize) -> Option<Range<usize>> {
    let blank = [' ', '\t'];
    // In a list of arguments each has quotes of its own.
    let rest = text[end..].trim_start_matches(['"', '\'']);
    let is_quoted = rest.len() < text.len() - end;
    let rest = rest.strip_prefix(',').unwrap_or(rest).trim_start_matches(blank);
    // A command goes on below.
    let below = rest.strip_prefix('\\').map(|rest| rest.trim_start_matches('\r'));
    let below = below.and_then(|rest| rest.strip_prefix('\n'));
    let rest = below.map_or(rest, |rest| rest.trim_start_matches(blank));
    let is_apart = rest.len() < text.len() - end;
    if !is_apart || rest.starts_with(['-', '\n', '\r']) {
        return None;
    }
    let name = Name { start: end, is_quoted, is_header: false };
    value::find(text, text.len() - rest.len(), &name)
}

/// What is in an element whose name is at `run`: `<password>S</password>`.
fn content(
    text: &str,
    before: &str,
    run: Range<usize>,
    last_ends: &LastEnds,
) -> Option<Range<usize>> {
    let named = before.strip_suffix(':').map(|before| before.trim_end_matches(of_a_name));
    let before = named.unwrap_or(before);
    let way = TAGS.iter().position(|(open, ..)| before.ends_with(open))?;
    let (_, close, _) = TAGS[way];
    let (name, end) = (&text[run.clone()], run.end);
    let attributes = &text[end..text.floor_char_boundary((end + TAG_BYTES).min(text.len()))];
    let length = attributes.find(close)?;
    let attributes = &attributes[..length];
    let is_tag = attributes.is_empty() || attributes.starts_with(char::is_whitespace);
    if !is_tag || attributes.contains('<') || attributes.ends_with('/') {
        return None;
    }
    let start = end + length + close.len();
    let is_open = !text[start..].starts_with(char::is_whitespace);
    let end_of_content = match last_ends[way].filter(|last| start <= *last) {
        Some(last) => element_end(text, start, name, way).unwrap_or(last),
        // Cut off, or a mere placeholder.
        None if is_open => value::whole_end(text, start, start),
        None => return None,
    };
    // Attributes may have names of secrets, too.
    let from = if attributes.is_empty() { start } else { end };
    (end_of_content > start).then_some(from..end_of_content)
}

/// Where the element `name` ends whose content begins at `start`; it may have others in it.
fn element_end(text: &str, start: usize, name: &str, way: usize) -> Option<usize> {
    let (open, close, ending) = TAGS[way];
    let (mut all, mut own) = (1_usize, 1_usize);
    let mut at = start;
    while let Some(length) = text[at..].find(open) {
        let tag = at + length;
        let is_ending = text[tag..].starts_with(ending);
        at = tag + if is_ending { ending.len() } else { open.len() };
        let rest = &text[at..];
        let is_own = rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(of_a_name));
        if is_ending {
            all -= 1;
            own -= usize::from(is_own);
            if all == 0 || own == 0 {
                return Some(tag);
            }
        } else if rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let head = &rest[..rest.floor_char_boundary(TAG_BYTES)];
            let is_empty = head.find(close).is_some_and(|length| head[..length].ends_with('/'));
            all += usize::from(!is_empty);
            own += usize::from(is_own && !is_empty);
        }
    }
    None
}

fn of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-".contains(c)
}
