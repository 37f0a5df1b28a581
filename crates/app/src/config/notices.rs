//! What an operator should know about a configuration, a sentence each.

use outport_domain::job::Protection;
use url::Url;

use super::Config;

/// The sentences, in the order in which they are told.
pub(super) fn of(config: &Config) -> Vec<String> {
    let embedded = config.state.url.starts_with("sqlite:");
    let may_be_anybodys =
        config.jwt.as_ref().is_some_and(|jwt| jwt.issuer.is_none() || jwt.audience.is_none());
    let told = [
        (embedded, "embedded profile: state is one SQLite file, so this must be the only process"),
        (
            embedded && config.broker.is_none(),
            "no broker: nobody is told of job events; broker.url names one",
        ),
        (
            config.protection == Protection::None,
            "protection is none: who can read the object store can read the files, unless their resource says sealed",
        ),
        (
            config.mail_url.folder().is_some(),
            "mails are written to files, not sent; set mail.url to an SMTP server to send them",
        ),
        (
            may_be_anybodys,
            "jwt.issuer or jwt.audience is not set: JWTs made for other services may be accepted",
        ),
        (
            config.public_url.scheme() == "http" && !is_loopback(&config.public_url),
            "publicUrl is http: links in mails travel unprotected",
        ),
    ];
    told.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text.to_owned()).collect()
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
