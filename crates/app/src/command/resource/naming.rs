//! From the names of a database to ours: keys, labels, names of resources, and which names tell
//! what a column is for.

/// The words of a name in lower case: `customerID`, `customer_id` and `Customer Id` are the same.
pub(super) fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words = Vec::new();
    let mut word = String::new();
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(at + 1);
        let starts = c.is_uppercase()
            && before.is_some_and(|before| {
                !before.is_uppercase() || after.is_some_and(|after| after.is_lowercase())
            });
        if (starts || !c.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// A key in camel case; empty when the name holds neither letters nor digits.
pub(super) fn key(name: &str) -> String {
    let words = words(name);
    let mut words = words.iter();
    let first = words.next().cloned().unwrap_or_default();
    words.fold(first, |key, word| key + &capitalized(word))
}

/// A header for people.
pub(super) fn label(name: &str) -> String {
    let words = words(name);
    let shown = words.iter().enumerate().map(|(at, word)| match (word.as_str(), at) {
        ("id" | "uuid" | "url", _) => word.to_uppercase(),
        (_, 0) => capitalized(word),
        _ => word.clone(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// A resource's name: up to 64 letters, digits, `-` and `_`, a letter first.
pub(super) fn resource(table: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' }
    };
    let name: String = table.chars().map(plain).collect();
    let parts: Vec<&str> = name.split('-').filter(|part| !part.is_empty()).collect();
    let name = parts.join("-");
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    // All of ASCII by now.
    let name = &name[..name.len().min(64)];
    if name.is_empty() { "resource".to_owned() } else { name.to_owned() }
}

/// Whether a column's name says that it holds what must not leave the database.
pub(super) fn is_secret(name: &str) -> bool {
    const ENDINGS: [&str; 10] = [
        "passphrase",
        "pwd",
        "secret",
        "token",
        "hash",
        "salt",
        "apikey",
        "privatekey",
        "credential",
        "otp",
    ];
    let words = words(name);
    let pairs = words.windows(2).map(<[String]>::concat);
    words.iter().cloned().chain(pairs).any(|word| {
        let word = word.trim_end_matches('s');
        let ends = |ending: &&str| word == *ending || (ending.len() > 4 && word.ends_with(*ending));
        word.contains("passw") || ENDINGS.iter().any(ends)
    })
}

/// The names most like a wrong one, best first.
pub(super) fn near<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    const ALIKE: f64 = 0.8;
    const MOST: usize = 3;
    let name = name.to_lowercase();
    let mut rated: Vec<(f64, &str)> = names
        .map(|other| (strsim::jaro_winkler(&name, &other.to_lowercase()), other))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .collect();
    rated.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    rated.into_iter().take(MOST).map(|(_, other)| other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_keys_and_labels() {
        for (name, expected_key, expected_label) in [
            ("id", "id", "ID"),
            ("created_at", "createdAt", "Created at"),
            ("customerID", "customerId", "Customer ID"),
            ("CUSTOMER_NAME", "customerName", "Customer name"),
            ("HTTPStatus", "httpStatus", "Http status"),
            ("order total (€)", "orderTotal", "Order total"),
            ("Größe_übrig", "größeÜbrig", "Größe übrig"),
            ("2nd line", "2ndLine", "2nd line"),
            ("_hidden", "hidden", "Hidden"),
            ("--", "", ""),
        ] {
            assert_eq!((&*key(name), &*label(name)), (expected_key, expected_label), "{name}");
        }
    }

    #[test]
    fn every_table_has_a_name_for_its_resource() {
        for (table, expected) in [
            ("orders", "orders"),
            ("Sales Orders", "sales-orders"),
            ("order\"s; --", "order-s"),
            ("2026_sales", "sales"),
            ("größen", "gr-en"),
            ("見積", "resource"),
        ] {
            assert_eq!(resource(table), expected, "{table}");
        }
        assert_eq!(resource(&"x".repeat(200)).len(), 64);
    }

    #[test]
    fn secrets_are_told_by_their_names() {
        for name in [
            "password",
            "password_hash",
            "passwordHash",
            "PWD",
            "accessToken",
            "tokens",
            "client_secret",
            "api_key",
            "apikeys",
            "private_key",
            "otp",
            "salt",
            "userpassword",
            "passwordhash",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["hashtag", "secretary", "key", "api", "tokenized", "laptop", "basalt", "id"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn near_names_come_best_first_and_far_ones_not_at_all() {
        let names = ["orders", "order_lines", "customers", "Order"];
        assert_eq!(near("ordres", names.into_iter())[0], "orders");
        assert!(near("zzz", names.into_iter()).is_empty());
    }
}
