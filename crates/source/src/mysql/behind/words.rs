//! The words of a statement, as far as tables are found by them.

use super::super::relation::QUOTE;

/// What MySQL prints instead of a table that it has read before.
const READ_BEFORE: &str = "<constant table>";

/// What encloses texts.
const TEXT_QUOTES: [char; 2] = ['\'', '"'];

/// A piece of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    /// A name in quotes, which is no word of the language.
    Quoted(String),
    Dot,
    Comma,
    Open,
    Close,
    /// A text before which its character set stands.
    ForeignText,
    Other,
}

/// Who wrote a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Somebody: a number ends where its digits do, whatever follows.
    Hand,
    /// The server, which lets blanks follow and gives no quotes to a name such as `1e5`.
    Server,
}

impl Token {
    pub(super) fn name(&self) -> Option<&String> {
        match self {
            Self::Word(name) | Self::Quoted(name) => Some(name),
            _ => None,
        }
    }
}

/// Comments, in which a quote may stand, are passed over; what a comment has for the server is not.
pub(super) fn tokens(sql: &str, by: By) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = after_comment(rest) {
            rest = after;
        } else if is_blank(first) {
            rest = &rest[first.len_utf8()..];
        } else if let Some(after) = rest.strip_prefix(READ_BEFORE) {
            rest = after;
            tokens.push(Token::Other);
        } else if TEXT_QUOTES.contains(&first) {
            let is_foreign = sql[..sql.len() - rest.len()].ends_with(is_of_a_word);
            rest = unquoted(rest).map_or("", |(_, after)| after);
            tokens.push(if is_foreign { Token::ForeignText } else { Token::Other });
        } else if first == QUOTE {
            let (name, after) = unquoted(rest).unwrap_or_default();
            rest = after;
            tokens.push(Token::Quoted(name));
        } else if let (By::Hand, Some(after)) =
            (by, after_number(&sql[..sql.len() - rest.len()], rest))
        {
            rest = after;
            tokens.push(Token::Other);
        } else if is_of_a_word(first) {
            let (word, after) = word(rest);
            rest = after;
            tokens.push(Token::Word(word.to_owned()));
        } else {
            rest = &rest[first.len_utf8()..];
            tokens.push(match first {
                '.' => Token::Dot,
                ',' => Token::Comma,
                '(' => Token::Open,
                ')' => Token::Close,
                _ => Token::Other,
            });
            // A variable, whose name may have points, and the mark of an ODBC escape such as
            // `{OJ a JOIN b …}`.
            match first {
                '@' => rest = rest.trim_start_matches(|c| is_of_a_word(c) || c == '.'),
                '{' => rest = word(rest.trim_start_matches(is_blank)).1,
                _ => {}
            }
        }
    }
    tokens
}

/// The server's own blanks.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// The characters of a word at the beginning, and what comes after them.
fn word(sql: &str) -> (&str, &str) {
    sql.split_at(sql.find(|c| !is_of_a_word(c)).unwrap_or(sql.len()))
}

/// What comes after the number at the beginning, which has a point or an exponent: it ends where
/// its digits do, whatever follows. After a point within a name there is none.
fn after_number<'a>(before: &str, sql: &'a str) -> Option<&'a str> {
    let digits = |text: &'a str| text.trim_start_matches(|c: char| c.is_ascii_digit());
    let starts = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if before.ends_with('.') || sql.starts_with('.') && before.ends_with(is_of_a_name) {
        return None;
    }
    let mut rest = digits(sql);
    let fraction = rest.strip_prefix('.').filter(|after| starts(sql) || starts(after));
    rest = fraction.map_or(rest, digits);
    let exponent = rest.strip_prefix(['e', 'E']).filter(|_| starts(sql) || fraction.is_some());
    let exponent = exponent.map(|after| after.strip_prefix(['+', '-']).unwrap_or(after));
    let exponent = exponent.filter(|after| starts(after)).map(digits);
    exponent.or_else(|| fraction.map(|_| rest))
}

fn is_of_a_name(c: char) -> bool {
    is_of_a_word(c) || c == QUOTE
}

fn is_of_a_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii()
}

/// What comes after the comment at the beginning, or after the mark of one whose content is for the
/// server.
fn after_comment(sql: &str) -> Option<&str> {
    let dashes = sql.strip_prefix("--");
    let is_line = sql.starts_with('#')
        || dashes
            .is_some_and(|rest| rest.chars().next().is_none_or(|c| c == ' ' || c.is_control()));
    if is_line {
        return Some(sql.split_once('\n').map_or("", |(_, rest)| rest));
    }
    for mark in ["/*!", "/*M!"] {
        if let Some(rest) = sql.strip_prefix(mark) {
            return Some(rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        }
    }
    let comment = sql.strip_prefix("/*")?;
    Some(comment.split_once("*/").map_or("", |(_, rest)| rest))
}

/// What stands in quotes at the beginning, and what comes after it. A doubled quote is one of
/// the name or text; a backslash keeps the next character of a text from ending it.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut characters = quoted.chars();
    let quote = characters.next()?;
    let mut name = String::new();
    loop {
        match characters.next()? {
            '\\' if quote != QUOTE => name.push(characters.next()?),
            c if c != quote => name.push(c),
            _ if characters.as_str().starts_with(quote) => name.extend(characters.next()),
            _ => return Some((name, characters.as_str())),
        }
    }
}
