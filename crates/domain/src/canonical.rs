//! JSON in one form for one meaning: members sorted by name, numbers with the digits they came
//! with. Compact, for what is hashed; or indented by two spaces, for what people read.

use serde_json::value::RawValue;

use crate::json::{JsonType, Members, type_of};

/// Values within values that are put in order; what lies deeper stays as it is written.
const MOST_DEPTH: usize = 64;

/// Appends a value without white space.
pub fn compact(raw: &RawValue, out: &mut String) {
    Writer { indent: None }.value(raw, 0, out);
}

/// Appends a value, its members on lines of their own. `level` is how deep in the whole it is.
pub fn indented(raw: &RawValue, level: usize, out: &mut String) {
    Writer { indent: Some(level) }.value(raw, 0, out);
}

/// Appends a line break and two spaces for each level.
pub fn new_line(level: usize, out: &mut String) {
    out.push('\n');
    for _ in 0..level {
        out.push_str("  ");
    }
}

/// Appends a text in quotes.
pub fn quoted(text: &str, out: &mut String) {
    let quoted = serde_json::to_string(text);
    out.push_str(&quoted.expect("a text becomes JSON"));
}

#[derive(Clone, Copy)]
struct Writer {
    indent: Option<usize>,
}

impl Writer {
    fn value(self, raw: &RawValue, depth: usize, out: &mut String) {
        match type_of(raw) {
            _ if depth == MOST_DEPTH => out.push_str(raw.get()),
            JsonType::Object => self.object(raw, depth, out),
            JsonType::Array => self.array(raw, depth, out),
            JsonType::String => match serde_json::from_str::<String>(raw.get()) {
                Ok(text) => quoted(&text, out),
                // Half of a surrogate pair is JSON and no text.
                Err(_) => out.push_str(raw.get()),
            },
            JsonType::Null | JsonType::Boolean | JsonType::Number => out.push_str(raw.get()),
        }
    }

    fn object(self, raw: &RawValue, depth: usize, out: &mut String) {
        let Ok(Members(mut members)) = serde_json::from_str::<Members<'_>>(raw.get()) else {
            out.push_str(raw.get());
            return;
        };
        members.sort_by(|one, other| one.0.cmp(&other.0));
        out.push('{');
        for (index, (name, value)) in members.iter().enumerate() {
            self.before(index, depth, out);
            quoted(name, out);
            out.push_str(if self.indent.is_some() { ": " } else { ":" });
            self.value(value, depth + 1, out);
        }
        self.end(members.is_empty(), depth, out);
        out.push('}');
    }

    fn array(self, raw: &RawValue, depth: usize, out: &mut String) {
        let elements: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
        out.push('[');
        for (index, element) in elements.iter().enumerate() {
            self.before(index, depth, out);
            self.value(element, depth + 1, out);
        }
        self.end(elements.is_empty(), depth, out);
        out.push(']');
    }

    fn before(self, index: usize, depth: usize, out: &mut String) {
        if index > 0 {
            out.push(',');
        }
        if let Some(level) = self.indent {
            new_line(level + depth + 1, out);
        }
    }

    fn end(self, empty: bool, depth: usize, out: &mut String) {
        if let Some(level) = self.indent.filter(|_| !empty) {
            new_line(level + depth, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, write: impl Fn(&RawValue, &mut String)) -> String {
        let raw: &RawValue = serde_json::from_str(text).expect("JSON");
        let mut out = String::new();
        write(raw, &mut out);
        out
    }

    #[test]
    fn one_meaning_has_one_form_and_numbers_keep_their_digits() {
        let forms = [r#"{ "b" : [1.50, {}], "a":"\u00e9" }"#, "{\"a\":\"é\",\"b\":[1.50,{\n}]}"];
        for form in forms {
            assert_eq!(written(form, compact), r#"{"a":"é","b":[1.50,{}]}"#);
        }
        for text in ["12345678901234567890123.10", "-0", "1e400", "null", "\"\\ud800\""] {
            assert_eq!(written(text, compact), text);
        }
    }

    #[test]
    fn indented_is_two_spaces_a_level() {
        let text = written(r#"{"b":[1,[]],"a":{"x":null}}"#, |raw, out| indented(raw, 1, out));
        assert_eq!(
            text,
            "{\n    \"a\": {\n      \"x\": null\n    },\n    \"b\": [\n      1,\n      []\n    ]\n  }"
        );
    }

    #[test]
    fn deep_values_need_no_deep_stack() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(written(&deep, compact), deep);
    }
}
