//! The texts of mails, per language, embedded at build time and all rendered once at start.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};
use outport_domain::{failure::FailureCode, locale::Locale};

use super::{figures, letter::one_line, reason};

/// Characters of any text that comes from outside.
const MOST_CHARS: usize = 300;

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates/mail/", $name)),
        )),*]
    };
}

const SOURCES: [(&str, &str); 19] = embedded![
    "layout.html",
    "completed.en.subject.txt",
    "completed.en.txt",
    "completed.en.html",
    "completed.pt-BR.subject.txt",
    "completed.pt-BR.txt",
    "completed.pt-BR.html",
    "completed.es.subject.txt",
    "completed.es.txt",
    "completed.es.html",
    "failed.en.subject.txt",
    "failed.en.txt",
    "failed.en.html",
    "failed.pt-BR.subject.txt",
    "failed.pt-BR.txt",
    "failed.pt-BR.html",
    "failed.es.subject.txt",
    "failed.es.txt",
    "failed.es.html",
];

/// All mail templates, known to render.
pub struct Templates(Environment<'static>);

/// A template that does not parse or render.
#[derive(Debug, thiserror::Error)]
#[error("the mail template '{name}' cannot be used")]
pub struct BrokenTemplate {
    /// Which one.
    pub name: String,
    #[source]
    cause: minijinja::Error,
}

/// A rendered mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writing {
    /// One line.
    pub subject: String,
    /// Plain text.
    pub text: String,
    /// A whole HTML document.
    pub html: String,
}

/// What the mail of a finished export says.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the members are what the mail shows under these words")]
pub struct CompletedWords<'a> {
    /// How the recipient is called, if that is known.
    pub name: Option<&'a str>,
    pub requester: &'a str,
    pub file_name: &'a str,
    pub resource: &'a str,
    pub rows: u64,
    pub size_bytes: u64,
    pub expires_at: DateTime<Utc>,
    /// The zone that instants are told in.
    pub zone: Tz,
    pub link: &'a str,
}

/// What the mail of a failed export says.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the members are what the mail shows under these words")]
pub struct FailedWords<'a> {
    /// How the recipient is called, if that is known.
    pub name: Option<&'a str>,
    pub requester: &'a str,
    pub file_name: &'a str,
    pub resource: &'a str,
    pub requested_at: DateTime<Utc>,
    /// The zone that instants are told in.
    pub zone: Tz,
    pub code: FailureCode,
    /// The failure's own message, which is safe to show.
    pub detail: Option<&'a str>,
    /// The job's id, for asking about it.
    pub job: &'a str,
}

impl Templates {
    /// Parses all templates and renders each once, so that a broken one stops the process at
    /// its start and not a mail in the night.
    pub fn load() -> Result<Self, BrokenTemplate> {
        Self::from_sources(&SOURCES)
    }

    fn from_sources(sources: &[(&'static str, &'static str)]) -> Result<Self, BrokenTemplate> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|name| {
            if std::path::Path::new(name).extension().is_some_and(|extension| extension == "html") {
                AutoEscape::Html
            } else {
                AutoEscape::None
            }
        });
        for (name, source) in sources {
            environment
                .add_template(name, source)
                .map_err(|cause| BrokenTemplate { name: (*name).to_owned(), cause })?;
        }
        let templates = Self(environment);
        for locale in Locale::ALL {
            for name in [None, Some("Ana")] {
                templates.completed(locale, &sample_completed(name))?;
                templates.failed(locale, &sample_failed(name))?;
            }
        }
        Ok(templates)
    }

    /// The mail of a finished export.
    pub fn completed(
        &self,
        locale: Locale,
        words: &CompletedWords<'_>,
    ) -> Result<Writing, BrokenTemplate> {
        let context = context! {
            lang => locale.tag(),
            name => words.name.map(line),
            requester => line(words.requester),
            file_name => line(words.file_name),
            resource => line(words.resource),
            rows => figures::number(words.rows, locale),
            size => figures::size(words.size_bytes, locale),
            expires => figures::instant(words.expires_at, words.zone, locale),
            link => words.link,
        };
        self.render("completed", locale, &context)
    }

    /// The mail of a failed export.
    pub fn failed(
        &self,
        locale: Locale,
        words: &FailedWords<'_>,
    ) -> Result<Writing, BrokenTemplate> {
        let context = context! {
            lang => locale.tag(),
            name => words.name.map(line),
            requester => line(words.requester),
            file_name => line(words.file_name),
            resource => line(words.resource),
            requested => figures::instant(words.requested_at, words.zone, locale),
            reason => reason::sentence(words.code, locale),
            code => words.code.name(),
            detail => words.detail.map(line),
            job => words.job,
        };
        self.render("failed", locale, &context)
    }

    fn render(
        &self,
        mail: &str,
        locale: Locale,
        context: &Value,
    ) -> Result<Writing, BrokenTemplate> {
        let form = |suffix: &str| {
            let name = format!("{mail}.{}.{suffix}", locale.tag());
            self.0
                .get_template(&name)
                .and_then(|template| template.render(context.clone()))
                .map_err(|cause| BrokenTemplate { name, cause })
        };
        Ok(Writing { subject: form("subject.txt")?, text: form("txt")?, html: form("html")? })
    }
}

/// A text from outside may add no line to a mail.
fn line(text: &str) -> String {
    one_line(text, MOST_CHARS)
}

fn sample_completed(name: Option<&'static str>) -> CompletedWords<'static> {
    CompletedWords {
        name,
        requester: "Ana",
        file_name: "orders.csv",
        resource: "orders",
        rows: 1_234,
        size_bytes: 56_789,
        expires_at: DateTime::UNIX_EPOCH,
        zone: Tz::UTC,
        link: "https://exports.example/d/token",
    }
}

fn sample_failed(name: Option<&'static str>) -> FailedWords<'static> {
    FailedWords {
        name,
        requester: "Ana",
        file_name: "orders.csv",
        resource: "orders",
        requested_at: DateTime::UNIX_EPOCH,
        zone: Tz::UTC,
        code: FailureCode::LimitExceeded,
        detail: name,
        job: "0197f604-49fe-7b73-bb81-df2e93a7e47d",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        text.replace('\'', "&#x27;").replace('/', "&#x2f;")
    }

    #[test]
    fn a_broken_template_is_found_at_the_start_and_named() {
        let broken = |source: &'static str| {
            let mut sources = SOURCES;
            let place = sources.iter_mut().find(|(name, _)| *name == "failed.es.txt");
            place.expect("the template").1 = source;
            Templates::from_sources(&sources).err().map(|error| error.name)
        };
        assert_eq!(broken("{{ reason"), Some("failed.es.txt".to_owned()), "does not parse");
        assert_eq!(broken("{{ raeson }}"), Some("failed.es.txt".to_owned()), "misspelt word");
        assert_eq!(broken("{{ reason }}"), None);
    }

    #[test]
    fn every_completed_mail_has_all_it_must_say_in_every_language() {
        let templates = Templates::load().expect("templates that render");
        for locale in Locale::ALL {
            let words = CompletedWords { rows: 1_234_567, ..sample_completed(Some("Zoë")) };
            let writing = templates.completed(locale, &words).expect("a mail");
            assert!(writing.subject.contains("orders.csv"), "{writing:?}");
            assert!(!writing.subject.contains('\n'), "{writing:?}");
            let (rows, size) = match locale {
                Locale::En => ("1,234,567", "56.8 kB"),
                Locale::PtBr | Locale::Es => ("1.234.567", "56,8 kB"),
            };
            let expires = figures::instant(DateTime::UNIX_EPOCH, Tz::UTC, locale);
            for said in ["Zoë", "Ana", "orders.csv", words.link, rows, size, expires.as_str()] {
                assert!(writing.text.contains(said), "{said} in {}", writing.text);
                assert!(writing.html.contains(&escaped(said)), "{said} in {}", writing.html);
            }
            assert!(writing.html.contains(&format!("<html lang=\"{}\">", locale.tag())));
            let lower = writing.html.to_lowercase();
            for remote in ["<img", "src=", "url(", "<script", "<link", "@import"] {
                assert!(!lower.contains(remote), "{remote} in {}", writing.html);
            }
        }
    }

    #[test]
    fn every_failed_mail_has_reason_and_code_in_every_language() {
        let templates = Templates::load().expect("templates that render");
        let mut texts = std::collections::HashSet::new();
        for (locale, code) in
            Locale::ALL.into_iter().flat_map(|locale| FailureCode::ALL.map(|code| (locale, code)))
        {
            let words = FailedWords { code, ..sample_failed(None) };
            let writing = templates.failed(locale, &words).expect("a mail");
            assert!(writing.subject.contains("orders.csv"));
            for said in [reason::sentence(code, locale), code.name(), words.job] {
                assert!(writing.text.contains(said), "{said} in {}", writing.text);
                assert!(writing.html.contains(&escaped(said)), "{said} in {}", writing.html);
            }
            texts.insert(writing.text);
        }
        assert_eq!(texts.len(), Locale::ALL.len() * FailureCode::ALL.len(), "no text is shared");
    }

    #[test]
    fn what_comes_from_outside_is_escaped_in_html_and_adds_no_line_to_text() {
        let templates = Templates::load().expect("templates that render");
        let evil = "<script>alert(1)</script>\r\n\"'& <b>";
        let words = CompletedWords {
            name: Some(evil),
            requester: evil,
            file_name: evil,
            resource: evil,
            ..sample_completed(None)
        };
        let plain = templates.completed(Locale::En, &sample_completed(Some("Ana")));
        let lines = plain.expect("a mail").text.lines().count();
        let writing = templates.completed(Locale::En, &words).expect("a mail");
        assert!(!writing.html.contains("<script"), "{}", writing.html);
        assert!(!writing.html.contains("<b>"), "{}", writing.html);
        assert_eq!(writing.text.lines().count(), lines, "{}", writing.text);
        assert!(writing.text.contains("<script>"), "text is not escaped: {}", writing.text);
    }
}
