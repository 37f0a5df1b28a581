//! What others wrote, as a terminal may get it. A terminal acts on control characters: it moves,
//! wipes, recolours, renames itself; and characters that turn the direction of writing make a text
//! look like another one.

/// A text on one line, `\u{1b}` and the like for what a terminal would act on.
pub(super) fn text(text: &str) -> String {
    escaped(text, |character| format!("\\u{{{:x}}}", u32::from(character)))
}

/// A text of own lines, each of which may quote others.
pub(super) fn lines(all: &str) -> String {
    all.split('\n').map(text).collect::<Vec<_>>().join("\n")
}

/// JSON on one line that says the same, `\u001b` and the like for what a terminal would act on.
pub(super) fn json(json: &str) -> String {
    escaped(json, |character| match character {
        // JSON has them between its tokens alone, where no escape may stand.
        '\t' | '\n' | '\r' => " ".to_owned(),
        // All that a terminal acts on is of the basic plane, which four digits number.
        _ => format!("\\u{:04x}", u32::from(character)),
    })
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_acted_on(character) {
            shown.push_str(&escape(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// C0, DEL and C1; what separates lines; and Unicode's `Bidi_Control` (UAX #9).
pub(super) fn is_acted_on(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of Unicode that a terminal acts on.
    fn acted_on() -> impl Iterator<Item = char> {
        let controls = ('\0'..='\u{1f}').chain('\u{7f}'..='\u{9f}');
        let turning = ['\u{61c}', '\u{200e}', '\u{200f}'].into_iter();
        controls.chain(turning).chain('\u{2028}'..='\u{202e}').chain('\u{2066}'..='\u{2069}')
    }

    #[test]
    fn nothing_that_a_terminal_acts_on_is_left_in_a_text() {
        for character in acted_on() {
            let code = u32::from(character);
            assert_eq!(text(&format!("a{character}b")), format!("a\\u{{{code:x}}}b"));
        }
        for plain in ["", "generate", "São Paulo, 中文, עברית, 👩‍🚀", r"C:\new"] {
            assert_eq!(text(plain), plain);
        }
        assert_eq!(lines("one\u{1b}[2J\ntwo\r"), "one\\u{1b}[2J\ntwo\\u{d}");
    }

    #[test]
    fn json_says_the_same_without_what_a_terminal_acts_on() {
        let all: String = acted_on().chain("עברית 👩‍🚀".chars()).collect();
        let object = serde_json::json!({ &all: [all, 1.5, null] });
        for written in [
            serde_json::to_string(&object).expect("JSON"),
            serde_json::to_string_pretty(&object).expect("JSON").replace('\n', "\r\n\t"),
        ] {
            let shown = json(&written);
            assert!(!shown.contains(is_acted_on), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), object);
        }
    }
}
