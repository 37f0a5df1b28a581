//! What a request may choose besides rows and columns.

use chrono_tz::Tz;
use outport_contract::job_event::RESERVED_METADATA;

use super::Body;
use crate::{
    caller::is_plain_address,
    dialect::{CsvDialect, Delimiter, LineEnding, QuotePolicy},
    file_name,
    job::{Compression, Format},
    json::{FieldCode, FieldErrors, Members, boolean, is_interoperable, join, object, string},
    limits::fixed,
    locale::Locale,
    resource::Resource,
};

impl Body<'_> {
    pub(super) fn format(&self, errors: &mut FieldErrors) -> Format {
        let known = Format::ALL.map(Format::name).join(", ");
        self.named("format", Format::from_name, &format!("one of {known}"), errors)
            .unwrap_or_default()
    }

    pub(super) fn compression(&self, format: Format, errors: &mut FieldErrors) -> Compression {
        let compression = self
            .named("compression", Compression::from_name, "none, gzip or zstd", errors)
            .unwrap_or_default();
        if compression != Compression::None && !format.is_compressible() {
            let message = format!("must be none: {} is compressed within", format.name());
            errors.push("compression", FieldCode::NotSupported, message);
        }
        compression
    }

    pub(super) fn csv(&self, format: Format, errors: &mut FieldErrors) -> CsvDialect {
        let mut dialect = CsvDialect::default();
        let Some(raw) = self.member("csv") else { return dialect };
        if format != Format::Csv {
            let message = format!("must be absent with format {}", format.name());
            errors.push("csv", FieldCode::NotSupported, message);
        }
        let known = ["delimiter", "bom", "quote", "lineEnding", "nullText"];
        for (name, value) in object(raw, "csv", Some(&known), errors).unwrap_or_default() {
            let path = join("csv", &name);
            if name == "bom" {
                dialect.bom = boolean(value, &path, errors).unwrap_or_default();
                continue;
            }
            let Some(text) = string(value, &path, errors) else { continue };
            let mut wrong = |rule: &str| errors.push(path.as_str(), FieldCode::InvalidValue, rule);
            match name.as_str() {
                "delimiter" => {
                    match Delimiter::ALL.into_iter().find(|one| text.as_bytes() == [one.byte()]) {
                        Some(delimiter) => dialect.delimiter = delimiter,
                        None => wrong("must be one of , ; | or a tab"),
                    }
                }
                "quote" => {
                    match QuotePolicy::ALL.into_iter().find(|policy| policy.name() == text) {
                        Some(policy) => dialect.quote = policy,
                        None => wrong("must be one of necessary, all, non_numeric"),
                    }
                }
                "lineEnding" => {
                    match LineEnding::ALL.into_iter().find(|ending| ending.name() == text) {
                        Some(ending) => dialect.line_ending = ending,
                        None => wrong("must be LF or CRLF"),
                    }
                }
                _ if text.len() > 16
                    || text.starts_with(['=', '+', '-', '@'])
                    || text.chars().any(|c| {
                        c.is_control() || c.is_whitespace() || matches!(c, ',' | ';' | '|' | '"')
                    }) =>
                {
                    wrong(
                        "must be at most 16 bytes without white space, quotes, delimiters or a formula sign in front",
                    );
                }
                _ => dialect.null_text = text,
            }
        }
        dialect
    }

    pub(super) fn locale(&self, errors: &mut FieldErrors) -> Locale {
        self.named("locale", Locale::from_tag, "en, pt-BR or es", errors)
            .unwrap_or(self.context.locale)
    }

    pub(super) fn time_zone(&self, errors: &mut FieldErrors) -> Option<Tz> {
        self.named(
            "timeZone",
            |name| name.parse().ok(),
            "an IANA time zone such as America/Sao_Paulo",
            errors,
        )
    }

    pub(super) fn metadata(&self, errors: &mut FieldErrors) -> Option<String> {
        let raw = self.member("metadata")?;
        is_interoperable(raw, "metadata", errors);
        let Ok(Members(members)) = serde_json::from_str(raw.get()) else {
            errors.push("metadata", FieldCode::InvalidType, "must be an object");
            return None;
        };
        for (name, _) in members {
            if RESERVED_METADATA.contains(&name.as_str()) {
                errors.push(
                    join("metadata", &name),
                    FieldCode::NotAllowed,
                    "is a name that the service reserves",
                );
            }
        }
        if raw.get().len() > fixed::METADATA_BYTES {
            errors.push(
                "metadata",
                FieldCode::LimitExceeded,
                format!("is larger than {} bytes", fixed::METADATA_BYTES),
            );
        }
        Some(raw.get().to_owned())
    }

    pub(super) fn file_name(
        &self,
        resource: &Resource,
        locale: Locale,
        zone: Tz,
        (extension, suffix): (&str, &str),
        errors: &mut FieldErrors,
    ) -> Option<String> {
        let Some(raw) = self.member("fileName") else {
            let days = self.day_range().unwrap_or_else(|| {
                self.context.requested_at.with_timezone(&zone).date_naive().to_string()
            });
            return Some(file_name::default_name(resource, locale, &days, extension));
        };
        let mut name = string(raw, "fileName", errors)?;
        // The name says that the bytes are compressed, whatever else the caller calls them.
        if !name.to_ascii_lowercase().ends_with(suffix) {
            name.push_str(suffix);
        }
        if let Some(rule) = file_name::refusal(&name) {
            errors.push("fileName", FieldCode::InvalidValue, rule);
            return None;
        }
        Some(name)
    }

    /// `2026-07-01-2026-07-04` when the filters have one plain range of days.
    pub(super) fn day_range(&self) -> Option<String> {
        let mut quiet = FieldErrors::default();
        let filters = object(self.member("filters")?, "", None, &mut quiet)?;
        filters.into_iter().find_map(|(_, condition)| {
            let members = object(condition, "", None, &mut quiet)?;
            let value =
                members.iter().find(|(name, _)| name == "value").map(|(_, value)| *value)?;
            let days: [String; 2] = serde_json::from_str(value.get()).ok()?;
            days.iter()
                .all(|day| day.len() == 10 && day.parse::<chrono::NaiveDate>().is_ok())
                .then(|| days.join("-"))
        })
    }

    pub(super) fn notify(&self, resource: &Resource, errors: &mut FieldErrors) -> Option<String> {
        let raw = self.member("notify")?;
        let members = object(raw, "notify", Some(&["email"]), errors)?;
        let (_, raw) = members.first()?;
        let email = string(raw, "notify.email", errors)?;
        if !is_plain_address(&email) {
            errors.push(
                "notify.email",
                FieldCode::InvalidValue,
                "must be one plain e-mail address",
            );
            return None;
        }
        let own = self
            .context
            .caller
            .email
            .as_deref()
            .is_some_and(|own| own.eq_ignore_ascii_case(&email));
        let domain = email.rsplit('@').next().unwrap_or_default().to_ascii_lowercase();
        if !own && !resource.notify_domains.contains(&domain) {
            errors.push(
                "notify.email",
                FieldCode::NotAllowed,
                "must be one's own address or in a domain that the resource allows",
            );
            return None;
        }
        Some(email)
    }
}
