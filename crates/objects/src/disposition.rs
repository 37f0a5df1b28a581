//! The `Content-Disposition` of a download: RFC 6266, with the name in both forms.

/// The longest name that is passed on, in characters.
const MAX_NAME_CHARS: usize = 200;

/// `attachment` with an ASCII fallback and, in UTF-8, the name itself. Whatever the name holds,
/// the value is one header line of printable ASCII, and the name one segment of a path.
pub fn content_disposition(file_name: &str) -> String {
    let name = safe_name(file_name);
    let fallback: String =
        name.chars().map(|c| if c.is_ascii() && c != '%' { c } else { '_' }).collect();
    format!("attachment; filename=\"{fallback}\"; filename*=UTF-8''{}", ext_value(&name))
}

/// The name without what could break the header, the path or the reader's eye.
fn safe_name(file_name: &str) -> String {
    let name: String = file_name
        .chars()
        .filter(|&c| !c.is_control() && !is_direction_mark(c))
        .map(|c| if matches!(c, '"' | '\\' | '/') { '_' } else { c })
        .take(MAX_NAME_CHARS)
        .collect();
    // A name of dots and spaces alone is a folder, or nothing.
    if name.chars().all(|c| c == '.' || c.is_whitespace()) { "export".to_owned() } else { name }
}

/// Marks that turn the direction of text and so can hide an extension.
fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// The `value-chars` of RFC 8187: `attr-char` as it is, every other byte of the UTF-8 as `%XX`.
fn ext_value(name: &str) -> String {
    use std::fmt::Write as _;

    let mut value = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            value.push(char::from(byte));
        } else {
            write!(value, "%{byte:02X}").expect("a String takes everything");
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_given_in_both_forms() {
        for (name, expected) in [
            ("orders.csv", "attachment; filename=\"orders.csv\"; filename*=UTF-8''orders.csv"),
            (
                "relação de 7€.csv",
                "attachment; filename=\"rela__o de 7_.csv\"; filename*=UTF-8''rela%C3%A7%C3%A3o%20de%207%E2%82%AC.csv",
            ),
            ("50%25.csv", "attachment; filename=\"50_25.csv\"; filename*=UTF-8''50%2525.csv"),
            (
                "a;b=c'd*.csv",
                "attachment; filename=\"a;b=c'd*.csv\"; filename*=UTF-8''a%3Bb%3Dc%27d%2A.csv",
            ),
        ] {
            assert_eq!(content_disposition(name), expected);
        }
    }

    #[test]
    fn nothing_leaves_the_quotes_the_line_or_the_folder() {
        for name in [
            "a\r\nSet-Cookie: x=1.csv",
            "a\".csv; filename=\"b.exe",
            "a\\\".csv",
            "../../etc/passwd",
            "..\\..\\x",
            "a\0b\x7f\u{85}.csv",
            "\u{202e}vsc.exe",
            "a\u{2028}b",
        ] {
            let value = content_disposition(name);
            assert!(value.bytes().all(|c| (0x20..0x7f).contains(&c)), "{value:?}");
            assert_eq!(value.matches('"').count(), 2, "{value:?}");
            assert!(!value.contains(['\\', '/']), "{value:?}");
            let encoded = ["%0D", "%0A", "%00", "%7F", "%22", "%2F", "%5C", "%C2%85", "%E2%80"];
            assert!(!encoded.iter().any(|part| value.contains(part)), "{value:?}");
        }
    }

    #[test]
    fn a_name_that_is_none_becomes_export() {
        for name in ["", ".", "..", " . ", "\r\n"] {
            assert!(content_disposition(name).contains("filename=\"export\""), "{name:?}");
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let value = content_disposition(&"ã".repeat(1_000));
        assert_eq!(value.matches("%C3%A3").count(), MAX_NAME_CHARS);
    }
}
