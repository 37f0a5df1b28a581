//! File names that people see: safe on every system, and never a way into a path or a header.

use crate::{limits::fixed, locale::Locale, resource::Resource};

/// Why a requested file name is refused, as a sentence for the caller.
pub fn refusal(name: &str) -> Option<&'static str> {
    const RESERVED: [&str; 22] = [
        "con", "prn", "aux", "nul", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8",
        "com9", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9",
    ];
    let stem = name.split('.').next().unwrap_or_default();
    if name.is_empty() || name.trim() != name {
        Some("must not be empty, nor start or end with white space")
    } else if name.len() > fixed::FILE_NAME_BYTES {
        Some("must be at most 200 bytes long")
    } else if name.contains(['/', '\\', ':', '*', '?', '"', '<', '>', '|', '%']) {
        Some("must be a bare name without / \\ : * ? \" < > | %")
    } else if name.chars().any(|c| c.is_control() || is_invisible(c)) {
        Some("must not contain control, direction or invisible characters")
    } else if name.starts_with('.') || name.ends_with('.') {
        Some("must not start or end with a dot")
    } else if RESERVED.iter().any(|reserved| stem.eq_ignore_ascii_case(reserved)) {
        Some("must not be a device name")
    } else {
        None
    }
}

/// Characters that reorder or hide text, so that a name can look like another one.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

/// The name of a request that names none: the resource's word in the requester's language, then
/// the days of its date range or the day of the request.
pub fn default_name(resource: &Resource, locale: Locale, days: &str, extension: &str) -> String {
    format!("{}-{days}.{extension}", resource.file_stem(locale))
}

/// The name of a file of a split export: its number before the ending, which is what follows the
/// last dot, and `suffix`, that of the compression.
pub fn of_part(name: &str, suffix: &str, number: u32) -> String {
    let (stem, ending) = name.split_at(stem_length(name, suffix));
    format!("{stem}-{number:04}{ending}")
}

/// The name of the manifest of a split export.
pub fn of_manifest(name: &str, suffix: &str) -> String {
    format!("{}.manifest.json", &name[..stem_length(name, suffix)])
}

fn stem_length(name: &str, suffix: &str) -> usize {
    // A request may write the suffix in other letters.
    let bare = name.len().saturating_sub(suffix.len());
    let body = match name.split_at_checked(bare) {
        Some((body, end)) if end.eq_ignore_ascii_case(suffix) => body,
        _ => name,
    };
    body.rfind('.').filter(|at| *at > 0).unwrap_or(body.len())
}

#[cfg(test)]
mod tests {
    use super::{of_manifest, of_part, refusal};

    #[test]
    fn numbers_stand_before_the_ending() {
        for (name, suffix, part, manifest) in [
            ("orders.csv", "", "orders-0007.csv", "orders.manifest.json"),
            ("a.b.csv.gz", ".gz", "a.b-0007.csv.gz", "a.b.manifest.json"),
            ("Março.CSV.GZ", ".gz", "Março-0007.CSV.GZ", "Março.manifest.json"),
            ("orders", "", "orders-0007", "orders.manifest.json"),
            ("orders.gz", ".gz", "orders-0007.gz", "orders.manifest.json"),
            ("注文", ".zst", "注文-0007", "注文.manifest.json"),
        ] {
            assert_eq!(of_part(name, suffix, 7), part);
            assert_eq!(of_manifest(name, suffix), manifest);
        }
        assert_eq!(of_part("a.csv", "", 12_345), "a-12345.csv");
    }

    #[test]
    fn bare_names_in_any_script_are_fine() {
        for name in ["pedidos-2026.csv", "Relatório de março.csv", "注文.csv", "a.b.csv"] {
            assert_eq!(refusal(name), None, "{name:?}");
        }
    }

    #[test]
    fn paths_headers_and_tricks_are_refused() {
        for name in [
            "",
            " a.csv",
            "../a.csv",
            "a/b.csv",
            "a\\b.csv",
            "C:a.csv",
            "a\r\nX: y.csv",
            "a\0.csv",
            "a\".csv",
            ".htaccess",
            "a.",
            "NUL.csv",
            "con",
            "a\u{202e}vsc.exe",
            "a%2f.csv",
        ] {
            assert!(refusal(name).is_some(), "{name:?}");
        }
        assert!(refusal(&"a".repeat(201)).is_some());
    }
}
