//! Numbers, sizes and instants as people of each language write them.

use chrono::{DateTime, Datelike as _, Timelike as _, Utc};
use chrono_tz::Tz;
use outport_domain::locale::Locale;

const MONTHS_EN: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const MONTHS_PT: [&str; 12] = [
    "janeiro",
    "fevereiro",
    "março",
    "abril",
    "maio",
    "junho",
    "julho",
    "agosto",
    "setembro",
    "outubro",
    "novembro",
    "dezembro",
];
const MONTHS_ES: [&str; 12] = [
    "enero",
    "febrero",
    "marzo",
    "abril",
    "mayo",
    "junio",
    "julio",
    "agosto",
    "septiembre",
    "octubre",
    "noviembre",
    "diciembre",
];

/// A whole number with its thousands grouped: `1,234` or `1.234`.
pub fn number(n: u64, locale: Locale) -> String {
    let separator = match locale {
        Locale::En => ',',
        Locale::PtBr | Locale::Es => '.',
    };
    let digits = n.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(separator);
        }
        grouped.push(digit);
    }
    grouped
}

/// A size in decimal units with one decimal: `512 bytes`, `1.2 MB`, `1,2 MB`.
pub fn size(bytes: u64, locale: Locale) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes == 1 {
        return "1 byte".to_owned();
    }
    if bytes < 1_000 {
        return format!("{bytes} bytes");
    }
    // In tenths of a unit, rounded to the nearest, so that 999,950 bytes are 1.0 MB.
    let mut unit = 0;
    let mut of_unit = 1_000_u64;
    let tenths =
        |of_unit: u64| (u128::from(bytes) * 10 + u128::from(of_unit) / 2) / u128::from(of_unit);
    while tenths(of_unit) >= 10_000 && unit + 1 < UNITS.len() {
        unit += 1;
        of_unit *= 1_000;
    }
    let tenths = tenths(of_unit);
    let point = match locale {
        Locale::En => '.',
        Locale::PtBr | Locale::Es => ',',
    };
    format!("{}{point}{} {}", number((tenths / 10) as u64, locale), tenths % 10, UNITS[unit])
}

/// An instant in a zone, which it names: `4 July 2026, 09:20 (America/Sao_Paulo)`.
pub fn instant(at: DateTime<Utc>, zone: Tz, locale: Locale) -> String {
    let at = at.with_timezone(&zone);
    let (day, year, hour, minute) = (at.day(), at.year(), at.hour(), at.minute());
    let month = at.month0() as usize;
    let zone = zone.name();
    match locale {
        Locale::En => {
            format!("{day} {} {year}, {hour:02}:{minute:02} ({zone})", MONTHS_EN[month])
        }
        Locale::PtBr => {
            format!("{day} de {} de {year}, {hour:02}:{minute:02} ({zone})", MONTHS_PT[month])
        }
        Locale::Es => {
            format!("{day} de {} de {year}, {hour:02}:{minute:02} ({zone})", MONTHS_ES[month])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped_as_the_language_does() {
        let en = [0, 12, 999, 1_234, 1_234_567].map(|n| number(n, Locale::En));
        assert_eq!(en, ["0", "12", "999", "1,234", "1,234,567"]);
        assert_eq!(number(1_234, Locale::PtBr), "1.234");
        assert_eq!(number(12_345_678, Locale::Es), "12.345.678");
        assert_eq!(number(u64::MAX, Locale::En), "18,446,744,073,709,551,615");
    }

    #[test]
    fn sizes_are_rounded_within_their_unit() {
        let en =
            [0, 1, 999, 1_000, 1_249, 999_949, 999_950, 1_500_000_000].map(|n| size(n, Locale::En));
        assert_eq!(
            en,
            ["0 bytes", "1 byte", "999 bytes", "1.0 kB", "1.2 kB", "999.9 kB", "1.0 MB", "1.5 GB"]
        );
        assert_eq!(size(1_249, Locale::PtBr), "1,2 kB");
        assert_eq!(size(2_500_000_000_000_000, Locale::Es), "2.500,0 TB");
    }

    #[test]
    fn instants_are_told_in_the_zone_they_name() {
        let at = "2026-07-04T02:20:00Z".parse().expect("an instant");
        let zone = chrono_tz::America::Sao_Paulo;
        assert_eq!(instant(at, zone, Locale::En), "3 July 2026, 23:20 (America/Sao_Paulo)");
        assert_eq!(
            instant(at, zone, Locale::PtBr),
            "3 de julho de 2026, 23:20 (America/Sao_Paulo)"
        );
        assert_eq!(instant(at, Tz::UTC, Locale::Es), "4 de julio de 2026, 02:20 (UTC)");
    }
}
