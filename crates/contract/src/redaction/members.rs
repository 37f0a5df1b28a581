//! JSON without addresses and credentials: its texts one by one, and whole values whose members
//! have the name of a secret.

use std::{collections::HashMap, rc::Rc};

use serde_json::{Value, value::RawValue};

use super::{
    REDACTED, further,
    names::{self, Counting},
    redact,
};

/// The name of a member, and what it says. It may be as long as its elements are many, so it is
/// judged once and shared.
struct Name {
    /// It is one of those that are no secrets in the outermost object.
    may_be_plain: bool,
    is_secret: bool,
    counting: Counting,
}

impl Name {
    fn new(text: &str, plain: &[&str]) -> Self {
        Self {
            may_be_plain: plain.contains(&text),
            is_secret: names::is_secret_member(text),
            counting: Counting::of(text),
        }
    }
}

/// An object or array that the walk is in.
struct Level {
    is_array: bool,
    /// The name under which its elements stand.
    name: Rc<Name>,
    /// It belongs to a member with the name of a secret.
    is_secret: bool,
    /// It belongs to one that counts tokens.
    is_of_counts: bool,
}

/// A block of PEM that began in an array and has not ended yet.
struct OpenBlock {
    /// How many levels there are within the array.
    levels: usize,
    /// Under which name its lines stand.
    name: Rc<Name>,
}

struct Walk<'a> {
    text: &'a str,
    /// Members of the whole that are no secrets, whatever their names say.
    plain: &'a [&'a str],
    clean: String,
    levels: Vec<Level>,
    most_bytes: usize,
    /// Bytes of white space between its tokens so far.
    blank_bytes: usize,
    /// Those that there were so far: equal names are one.
    names: HashMap<String, Rc<Name>>,
    /// The member whose value comes next.
    name: Rc<Name>,
    block: Option<OpenBlock>,
}

/// The same JSON in one line, without addresses and credentials.
///
/// A member with the name of a secret has all texts and numbers of its value replaced, except
/// those members of the outermost object that `plain` lists. A block of PEM may be told in lines
/// of one array. Other numbers keep their digits, and members their names and order.
///
/// `None` when more than `most_bytes` are left. Of what has more than twice as many without white
/// space, no more is looked at than shows it.
///
/// # Panics
///
/// Never: JSON stays JSON when its values change.
pub fn redact_members(data: &RawValue, plain: &[&str], most_bytes: usize) -> Option<Box<RawValue>> {
    let text = data.get();
    let walk = Walk {
        text,
        plain,
        clean: String::with_capacity(text.len().min(most_bytes)),
        levels: Vec::new(),
        most_bytes,
        blank_bytes: 0,
        names: HashMap::new(),
        name: Rc::new(Name::new("", plain)),
        block: None,
    };
    let clean = walk.run()?;
    Some(RawValue::from_string(clean).expect("JSON stays JSON when its values change"))
}

impl Walk<'_> {
    fn run(mut self) -> Option<String> {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let start = at;
            at = match byte {
                b'"' => end_of_string(bytes, start),
                b'-' | b'0'..=b'9' => {
                    let of_a_number =
                        |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(*byte);
                    start + bytes[start..].iter().take_while(of_a_number).count()
                }
                _ => start + 1,
            };
            if at - self.blank_bytes > self.most_bytes.saturating_mul(2) {
                return None;
            }
            match byte {
                b'"' => self.string(start, at),
                b'-' | b'0'..=b'9' => self.number(start, at),
                b'{' | b'[' => self.open(char::from(*byte)),
                b'}' | b']' => self.close(char::from(*byte)),
                byte if byte.is_ascii_whitespace() => self.blank_bytes += 1,
                // What is left of JSON is ASCII: commas, colons, true, false, null.
                byte => self.clean.push(char::from(*byte)),
            }
            if self.clean.len() > self.most_bytes {
                return None;
            }
        }
        Some(self.clean)
    }

    fn open(&mut self, bracket: char) {
        let (is_array, name) = (bracket == '[', self.name());
        let is_of_counts = !is_array && (self.is_of_counts() || name.counting.tokens);
        let level = Level { is_array, name, is_secret: self.is_secret(), is_of_counts };
        self.levels.push(level);
        self.clean.push(bracket);
    }

    fn close(&mut self, bracket: char) {
        self.levels.pop();
        if self.block.as_ref().is_some_and(|block| block.levels > self.levels.len()) {
            self.block = None;
        }
        self.clean.push(bracket);
    }

    fn string(&mut self, start: usize, end: usize) {
        let raw = &self.text[start..end];
        let is_name = self.text[end..].trim_start().starts_with(':');
        let Ok(text) = serde_json::from_str::<String>(raw) else {
            return self.clean.push_str(raw);
        };
        if is_name {
            // A name is its producer's word for a thing, and stays.
            self.clean.push_str(raw);
            let name = self
                .names
                .entry(text)
                .or_insert_with_key(|text| Rc::new(Name::new(text, self.plain)));
            self.name = Rc::clone(name);
            return;
        }
        let is_of_a_block = self.is_of_a_block(&text);
        let is_gone = !text.is_empty() && (self.is_secret() || is_of_a_block);
        let clean = if is_gone { REDACTED.to_owned() } else { redact(&text) };
        self.clean.push_str(&Value::from(clean).to_string());
    }

    fn number(&mut self, start: usize, end: usize) {
        let number = &self.text[start..end];
        let is_count = self.name().counting.is_count(number)
            || (self.is_of_counts() && names::is_short_count(number));
        if self.is_secret() && !is_count {
            self.clean.push_str(&Value::from(REDACTED).to_string());
        } else {
            self.clean.push_str(number);
        }
    }

    /// The member's name that the next value stands under.
    fn name(&self) -> Rc<Name> {
        match self.levels.last() {
            Some(level) if level.is_array => Rc::clone(&level.name),
            _ => Rc::clone(&self.name),
        }
    }

    fn is_of_counts(&self) -> bool {
        self.levels.last().is_some_and(|level| level.is_of_counts) && !self.name.is_secret
    }

    fn is_secret(&self) -> bool {
        let Some(level) = self.levels.last() else { return false };
        let is_plain = self.levels.len() == 1 && self.name.may_be_plain;
        level.is_secret || (!level.is_array && !is_plain && self.name.is_secret)
    }

    /// Whether `text` belongs to a block of PEM that began in an element before it.
    fn is_of_a_block(&mut self, text: &str) -> bool {
        let name = self.name();
        let (ends, is_left_open) = further::pem(text);
        if let Some(block) = &self.block {
            let belongs = Rc::ptr_eq(&block.name, &name);
            if belongs && ends && !is_left_open {
                self.block = None;
            }
            return belongs;
        }
        let array = self.levels.iter().rposition(|level| level.is_array);
        if let Some(array) = array.filter(|_| is_left_open) {
            // A line may be an array itself, with its time: those around it have the same name.
            let around = self.levels[..array].iter().rev().take_while(|level| level.is_array);
            self.block = Some(OpenBlock { levels: array + 1 - around.count(), name });
        }
        false
    }
}

/// Right after the closing quote of the string that opens at `quote`.
fn end_of_string(bytes: &[u8], quote: usize) -> usize {
    let mut escaped = false;
    for (at, byte) in bytes.iter().enumerate().skip(quote + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    bytes.len()
}
