//! Where mails go, as configured in one URL.

use std::path::{Path, PathBuf};

use lettre::transport::smtp::authentication::Credentials;
use percent_encoding::percent_decode_str;
use url::Url;

/// Where mails go. Holds credentials, so it has no `Debug`.
///
/// * `smtps://user:password@host:465`: TLS from the first byte;
/// * `smtp://host:587?tls=required`: STARTTLS or nothing, the default of `smtp`;
///   `tls=opportunistic` takes what the server offers, `tls=none` never encrypts;
/// * `file:///folder`: every mail a file.
///
/// `ca=/path.pem` names a private certificate authority. User and password are percent-encoded.
#[derive(Clone)]
pub struct MailUrl(Target);

#[derive(Clone)]
pub(super) enum Target {
    Smtp(SmtpTarget),
    Folder(PathBuf),
}

#[derive(Clone)]
pub(super) struct SmtpTarget {
    pub host: String,
    pub port: u16,
    pub tls: TlsMode,
    pub authority: Option<PathBuf>,
    pub credentials: Option<Credentials>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// TLS from the first byte.
    Wrapped,
    /// STARTTLS, or no mail.
    Required,
    /// STARTTLS where offered.
    Opportunistic,
    /// Never.
    None,
}

/// Why a text is no URL for mails. Never holds any of the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMailUrl {
    /// Not a URL at all.
    #[error("not a URL; smtps://…, smtp://… or file:///… is expected")]
    NotAUrl,
    /// Of another kind.
    #[error("the scheme must be smtps, smtp or file")]
    Scheme,
    /// Without a server.
    #[error("the URL names no mail server")]
    NoHost,
    /// With something that would be ignored.
    #[error("the only options are 'tls' (with smtp: required, opportunistic or none) and 'ca'")]
    Option,
    /// A path where none belongs, or none where one does.
    #[error("a mail server has no path, and a folder has an absolute one and no server")]
    Path,
    /// Only half of the credentials, or not text.
    #[error(
        "user and password must both be given, percent-encoded UTF-8 without control characters"
    )]
    Credentials,
    /// Credentials that anybody on the way could read.
    #[error("a password needs smtps or tls=required")]
    OpenPassword,
}

impl MailUrl {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, InvalidMailUrl> {
        let url = Url::parse(text).map_err(|_| InvalidMailUrl::NotAUrl)?;
        match url.scheme() {
            "file" => folder(&url).map(Target::Folder),
            "smtps" | "smtp" => smtp(&url).map(Target::Smtp),
            _ => Err(InvalidMailUrl::Scheme),
        }
        .map(Self)
    }

    /// The folder, when mails are files.
    pub fn folder(&self) -> Option<&Path> {
        match &self.0 {
            Target::Folder(path) => Some(path),
            Target::Smtp(_) => None,
        }
    }

    /// Whether mails may travel unencrypted: worth a warning at start.
    pub fn may_be_read_on_the_way(&self) -> bool {
        match &self.0 {
            Target::Folder(_) => false,
            Target::Smtp(target) => {
                matches!(target.tls, TlsMode::Opportunistic | TlsMode::None)
            }
        }
    }

    pub(super) fn target(&self) -> &Target {
        &self.0
    }
}

fn folder(url: &Url) -> Result<PathBuf, InvalidMailUrl> {
    if url.query().is_some() {
        return Err(InvalidMailUrl::Option);
    }
    url.to_file_path().map_err(|()| InvalidMailUrl::Path)
}

fn smtp(url: &Url) -> Result<SmtpTarget, InvalidMailUrl> {
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(InvalidMailUrl::NoHost)?;
    if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
        return Err(InvalidMailUrl::Path);
    }
    let wrapped = url.scheme() == "smtps";
    let mut tls = if wrapped { TlsMode::Wrapped } else { TlsMode::Required };
    let mut authority = None;
    for (name, value) in url.query_pairs() {
        match (name.as_ref(), value.as_ref()) {
            ("tls", "required") if !wrapped => tls = TlsMode::Required,
            ("tls", "opportunistic") if !wrapped => tls = TlsMode::Opportunistic,
            ("tls", "none") if !wrapped => tls = TlsMode::None,
            ("ca", path) if !path.is_empty() => authority = Some(PathBuf::from(path)),
            _ => return Err(InvalidMailUrl::Option),
        }
    }
    let credentials = credentials(url)?;
    if credentials.is_some() && matches!(tls, TlsMode::Opportunistic | TlsMode::None) {
        return Err(InvalidMailUrl::OpenPassword);
    }
    Ok(SmtpTarget {
        // An IPv6 address is dialled and verified without its brackets.
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port: url.port().unwrap_or(if wrapped { 465 } else { 587 }),
        tls,
        authority,
        credentials,
    })
}

fn credentials(url: &Url) -> Result<Option<Credentials>, InvalidMailUrl> {
    let password = url.password().unwrap_or_default();
    if url.username().is_empty() && password.is_empty() {
        return Ok(None);
    }
    let decoded = |text: &str| {
        let text = percent_decode_str(text)
            .decode_utf8()
            .map_err(|_| InvalidMailUrl::Credentials)?
            .into_owned();
        if text.is_empty() || text.contains(char::is_control) {
            return Err(InvalidMailUrl::Credentials);
        }
        Ok(text)
    };
    Ok(Some(Credentials::new(decoded(url.username())?, decoded(password)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn smtp_target(text: &str) -> SmtpTarget {
        match MailUrl::parse(text).map(|url| url.0) {
            Ok(Target::Smtp(target)) => target,
            Ok(Target::Folder(_)) => panic!("{text} is a folder"),
            Err(error) => panic!("{text}: {error}"),
        }
    }

    fn refusal(text: &str) -> Option<InvalidMailUrl> {
        MailUrl::parse(text).err()
    }

    #[test]
    fn every_kind_of_url_is_read() {
        let target = smtp_target("smtps://u%40x:p%3Aw%2B+@mail.example");
        assert_eq!((target.host.as_str(), target.port), ("mail.example", 465));
        assert_eq!(target.tls, TlsMode::Wrapped);
        let credentials = Credentials::new("u@x".to_owned(), "p:w++".to_owned());
        assert!(target.credentials == Some(credentials), "percent-decoded, plus kept");

        assert_eq!(smtp_target("smtp://h").tls, TlsMode::Required, "safe by default");
        assert_eq!(smtp_target("smtp://h").port, 587);
        assert_eq!(smtp_target("smtp://h:25?tls=none").tls, TlsMode::None);
        assert_eq!(smtp_target("smtp://h?tls=opportunistic").tls, TlsMode::Opportunistic);
        assert_eq!(smtp_target("smtp://[::1]:25?tls=none").host, "::1");
        let authority = smtp_target("smtps://h?ca=/etc/ca.pem").authority;
        assert_eq!(authority, Some(PathBuf::from("/etc/ca.pem")));

        let folder = MailUrl::parse("file:///var/mail%20out").expect("a folder");
        assert_eq!(folder.folder(), Some(Path::new("/var/mail out")));
    }

    #[test]
    fn what_would_be_ignored_or_unsafe_is_refused_without_its_text() {
        let table = [
            ("mail.example", InvalidMailUrl::NotAUrl),
            ("http://mail.example", InvalidMailUrl::Scheme),
            ("smtp://", InvalidMailUrl::NoHost),
            ("smtp://h?tls=maybe", InvalidMailUrl::Option),
            ("smtps://h?tls=none", InvalidMailUrl::Option),
            ("smtps://h?ca=", InvalidMailUrl::Option),
            ("smtps://h?verify=off", InvalidMailUrl::Option),
            ("smtp://h/path", InvalidMailUrl::Path),
            ("file://host/path", InvalidMailUrl::Path),
            ("file:///path?tls=none", InvalidMailUrl::Option),
            ("smtps://user@h", InvalidMailUrl::Credentials),
            ("smtps://:secret@h", InvalidMailUrl::Credentials),
            ("smtps://u:%FF@h", InvalidMailUrl::Credentials),
            ("smtps://u:p%0d%0a@h", InvalidMailUrl::Credentials),
            ("smtp://u:secret@h?tls=none", InvalidMailUrl::OpenPassword),
            ("smtp://u:secret@h?tls=opportunistic", InvalidMailUrl::OpenPassword),
        ];
        for (text, expected) in table {
            let found = refusal(text);
            assert_eq!(found, Some(expected), "{text}");
            assert!(!format!("{found:?}").contains("secret"));
        }
    }
}
