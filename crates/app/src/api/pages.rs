//! The few HTML pages: embedded at build time, escaped strictly, without scripts or anything
//! from elsewhere. Their one style sheet is allowed by its hash.

use std::collections::BTreeMap;

use axum::{
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};
use outport_contract::digest::Sha256Digest;
use outport_domain::locale::Locale;
use serde::Deserialize;

use super::problem::Problem;

const STYLE: &str = include_str!("../../../../templates/pages/style.css");
const TEMPLATES: [(&str, &str); 4] = [
    ("layout.html", include_str!("../../../../templates/pages/layout.html")),
    ("link.html", include_str!("../../../../templates/pages/link.html")),
    ("errors.html", include_str!("../../../../templates/pages/errors.html")),
    ("reference.html", include_str!("../../../../templates/pages/reference.html")),
];

const fn words_of(locale: Locale) -> &'static str {
    match locale {
        Locale::En => include_str!("../../../../templates/pages/words.en.toml"),
        Locale::PtBr => include_str!("../../../../templates/pages/words.pt-BR.toml"),
        Locale::Es => include_str!("../../../../templates/pages/words.es.toml"),
    }
}

/// The words of the link pages in one language.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    pub download: String,
    pub files: String,
    pub rerun: String,
    pub file_name: String,
    pub size: String,
    pub rows: String,
    pub requested: String,
    pub expires: String,
    pub ready: PageWords,
    pub waiting: PageWords,
    pub no_file: PageWords,
    pub gone: PageWords,
    pub requested_again: PageWords,
    pub cannot_rerun: PageWords,
    pub forbidden: PageWords,
    pub unknown: PageWords,
    pub unavailable: PageWords,
}

/// What a page says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageWords {
    pub title: String,
    pub text: String,
}

/// All pages, parsed.
pub struct Pages {
    environment: Environment<'static>,
    words: BTreeMap<Locale, Words>,
    policy: HeaderValue,
}

impl Pages {
    /// Parses what is embedded.
    pub fn load() -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        for (name, source) in TEMPLATES {
            environment.add_template(name, source).expect("embedded templates parse: tested");
        }
        let words = Locale::ALL
            .into_iter()
            .map(|locale| {
                (locale, toml::from_str(words_of(locale)).expect("embedded words parse: tested"))
            })
            .collect();
        let hash = STANDARD.encode(Sha256Digest::of(STYLE.as_bytes()).0);
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        );
        let policy = HeaderValue::try_from(policy).expect("a policy is printable ASCII");
        Self { environment, words, policy }
    }

    /// The words of a language.
    pub fn words(&self, locale: Locale) -> &Words {
        &self.words[&locale]
    }

    /// A page as an answer.
    pub fn answer(
        &self,
        status: StatusCode,
        template: &str,
        locale: Locale,
        title: &str,
        values: Value,
    ) -> Response {
        match self.render(template, locale, title, values) {
            Ok(text) => {
                let headers = [
                    (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
                    (CONTENT_SECURITY_POLICY, self.policy.clone()),
                    (
                        HeaderName::from_static("x-robots-tag"),
                        HeaderValue::from_static("noindex, nofollow"),
                    ),
                ];
                (status, headers, text).into_response()
            }
            Err(error) => Problem::internal(&error).into_response(),
        }
    }

    fn render(
        &self,
        template: &str,
        locale: Locale,
        title: &str,
        values: Value,
    ) -> Result<String, minijinja::Error> {
        let lang = locale.tag();
        let values = context! { lang, title, style => STYLE, ..values };
        self.environment.get_template(template)?.render(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_escapes_what_it_is_given_and_allows_only_its_own_style() {
        let pages = Pages::load();
        let values = context! {
            text => "<script>alert(1)</script>",
            facts => vec![vec!["File".to_owned(), "a\"><img src=x>.csv".to_owned()]],
            token => "javascript:\"onclick=x",
            download => "file",
            number => (),
            files => vec![context! { number => "\"x", name => "<img src=y>", size => "1 B" }],
            rerun => "x",
            words => context! { download => "Download", files => "Files", rerun => "Again" },
        };
        let page = pages.render("link.html", Locale::Es, "T<i>tle", values).expect("a page");
        assert!(page.contains("<html lang=\"es\">"));
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<i>"));
        assert!(page.contains(&format!("<style>{STYLE}</style>")), "the hash is of these bytes");
        assert!(!page.contains("http://") && !page.contains("https://"), "nothing from elsewhere");
    }

    #[test]
    fn every_language_has_every_word() {
        let pages = Pages::load();
        for locale in Locale::ALL {
            assert!(!pages.words(locale).ready.title.is_empty());
        }
    }
}
