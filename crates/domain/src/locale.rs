//! The languages that Outport speaks to people in.

/// A supported language of labels, mails and file names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Locale {
    /// English, and what is used when nothing better is known.
    #[default]
    En,
    /// Brazilian Portuguese.
    PtBr,
    /// Spanish.
    Es,
}

impl Locale {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::En, Self::PtBr, Self::Es];

    /// The BCP 47 tag, e.g. `pt-BR`.
    pub const fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::PtBr => "pt-BR",
            Self::Es => "es",
        }
    }

    /// The locale for a BCP 47 tag, matched by its language alone: `pt-PT` is served in `pt-BR`.
    pub fn from_tag(tag: &str) -> Option<Self> {
        let language = tag.split(['-', '_']).next()?.trim();
        Self::ALL.into_iter().find(|locale| {
            locale.tag().split('-').next().is_some_and(|own| own.eq_ignore_ascii_case(language))
        })
    }

    /// The best match of an `Accept-Language` header, by its quality values.
    pub fn from_accept_language(header: &str) -> Option<Self> {
        let mut wanted: Vec<(f32, Self)> = header
            .split(',')
            .filter_map(|part| {
                let mut pieces = part.split(';');
                let locale = Self::from_tag(pieces.next()?)?;
                let quality = pieces
                    .find_map(|piece| piece.trim().strip_prefix("q="))
                    .map_or(1.0, |q| q.trim().parse().unwrap_or(0.0));
                (quality > 0.0).then_some((quality, locale))
            })
            .collect();
        wanted.sort_by(|a, b| b.0.total_cmp(&a.0));
        wanted.first().map(|(_, locale)| *locale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_supported_language_wins() {
        assert_eq!(Locale::from_accept_language("fr, es;q=0.5, pt-PT;q=0.9"), Some(Locale::PtBr));
        assert_eq!(Locale::from_accept_language("en;q=0, es;q=0.1"), Some(Locale::Es));
        assert_eq!(Locale::from_accept_language("fr, de"), None);
        assert_eq!(Locale::from_accept_language(";;;,q="), None);
    }
}
