//! A text as it is meant: what stands for a quote or a separator is one, and what is not seen is
//! not there. Names are looked for in it, and what is found is taken out of the text itself.

use std::{ops::Range, sync::LazyLock};

use regex::{Captures, Regex};

/// Colours of a terminal, marks that join the letter before, and characters without a width;
/// then quotes and separators in the escapes of JSON, of programs and of URLs, in full width, with
/// what languages and Markdown join to them, and with the blanks beside them that are escaped.
static STAND_INS: LazyLock<Regex> = LazyLock::new(|| {
    let blank = r"(?:\\+t|\\+u0020|\\+x20|%(?:25)*20|\+)";
    let code = |digits: &str| format!(r"(?:\\+u00|\\+x|%(?:25)*)(?P<{digits})");
    let quote = code("quote>2[267]");
    let separator = code("code>3[aAdD]");
    let sign = r"(?P<sign>：|＝|\*{1,3}\s?[:=]|[:=]\*{1,3}\s|\?\s?[:=]|(?:\|\||&&|\?\?)=)";
    Regex::new(&format!(
        concat!(
            r"(?:\x1b|\\+(?:u001[bB]|x1[bB]|033|e))(?:\[[0-9;:?]*[A-Za-z]|\([A-Z0-9])",
            r"|[\u{{300}}-\u{{36f}}\u{{ad}}\u{{61c}}\u{{180e}}\u{{200b}}-\u{{200f}}\u{{202a}}-\u{{202e}}",
            r"\u{{2060}}-\u{{2069}}\u{{20e3}}\u{{fe0f}}\u{{feff}}]+",
            r"|{quote}|{blank}*(?:{separator}|{sign}){blank}*|{blank}+(?P<plain>[:=]){blank}*",
        ),
        quote = quote,
        blank = blank,
        separator = separator,
        sign = sign,
    ))
    .expect("the pattern is a constant")
});

pub(super) struct View {
    pub(super) text: String,
    /// From where in the view on the text goes on at which place.
    places: Vec<(usize, usize)>,
}

impl View {
    pub(super) fn of(text: &str) -> Self {
        let mut view = Self { text: String::with_capacity(text.len()), places: vec![(0, 0)] };
        let mut at = 0;
        for found in STAND_INS.captures_iter(text) {
            let range = found.get(0).expect("group 0 is the match").range();
            view.text.push_str(&text[at..range.start]);
            view.text.extend(meant(&found));
            at = range.end;
            view.places.push((view.text.len(), at));
        }
        view.text.push_str(&text[at..]);
        view
    }

    /// Where in the text that is which the view has at `range`.
    pub(super) fn in_text(&self, range: Range<usize>) -> Range<usize> {
        let place = |at: usize| {
            let after = self.places.partition_point(|(seen, _)| *seen <= at);
            let (seen, there) = self.places[after - 1];
            there + (at - seen)
        };
        place(range.start)..place(range.end)
    }
}

/// The quote or separator that was meant, if it is one.
fn meant(found: &Captures) -> Option<char> {
    let code = found.name("quote").or_else(|| found.name("code"));
    if let Some(code) = code {
        return u8::from_str_radix(code.as_str(), 16).ok().map(char::from);
    }
    let sign = found.name("sign").or_else(|| found.name("plain"))?.as_str();
    Some(if sign.contains([':', '：']) { ':' } else { '=' })
}
