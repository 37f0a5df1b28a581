//! Whether the broker can be used, asked before anything depends on it. What is said names neither
//! an address nor a user: they stand beside a password.

use std::{fmt, io, sync::Arc};

use lapin::ErrorKind;
use outport_contract::redaction::redact;
use rustls::CertificateError;

use super::{
    config::BrokerConfig,
    session::{CONNECT, Session, declare},
};

/// What keeps the broker from being used, and why, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// There is no connection: the address, the credentials or the virtual host.
    Connection(String),
    /// TLS does not trust whom it found.
    Certificate(String),
    /// The exchange cannot be used or made.
    Exchange(String),
}

/// Connects, makes or looks for the exchange as publishing does, and leaves.
pub async fn check(config: &BrokerConfig) -> Result<(), Unusable> {
    let late = |_| Unusable::Connection("it does not answer in time".to_owned());
    let dialling = Session::dial(config, Arc::default());
    let session = tokio::time::timeout(CONNECT, dialling).await.map_err(late)?;
    let session = session.map_err(|error| connection(&error))?;
    let declaring = async {
        let channel = session.channel().await;
        let channel = channel.map_err(|trouble| redact(&trouble.to_string()))?;
        declare(&channel, config).await.map_err(|error| exchange(&error))
    };
    let declared = tokio::time::timeout(CONNECT, declaring).await.map_err(late)?;
    declared.map_err(Unusable::Exchange)
}

/// Why the broker's certificate is not trusted, when that is so and does not pass with time.
/// Nobody there is an outage, and no reason.
pub async fn untrusted(config: &BrokerConfig) -> Option<String> {
    if !config.url.is_secure() {
        return None;
    }
    let dialling = Session::dial(config, Arc::default());
    let error = tokio::time::timeout(CONNECT, dialling).await.ok()?.err()?;
    CertificateFault::of(&error).filter(|fault| !fault.is_of_time()).map(|fault| fault.to_string())
}

/// AMQP 0-9-1: not allowed.
const ACCESS_REFUSED: u16 = 403;
/// AMQP 0-9-1: not there.
const NOT_FOUND: u16 = 404;
/// AMQP 0-9-1: there, and otherwise than declared.
const PRECONDITION_FAILED: u16 = 406;
/// AMQP 0-9-1: a virtual host that is not there or not for this user.
const NOT_ALLOWED: u16 = 530;

fn code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

fn connection(error: &lapin::Error) -> Unusable {
    if let Some(fault) = CertificateFault::of(error) {
        return Unusable::Certificate(fault.to_string());
    }
    Unusable::Connection(match code(error) {
        Some(ACCESS_REFUSED) => "it refuses the credentials".to_owned(),
        Some(NOT_ALLOWED) => "it refuses the virtual host".to_owned(),
        _ => redact(&error.to_string()),
    })
}

/// In our own words where the broker's name the user.
fn exchange(error: &lapin::Error) -> String {
    match code(error) {
        Some(ACCESS_REFUSED) => {
            "the user needs the right `write` on it, and `configure` to declare it".to_owned()
        }
        Some(NOT_FOUND) => "it is not there".to_owned(),
        Some(PRECONDITION_FAILED) => {
            "it is there in another form; it must be durable and of type topic".to_owned()
        }
        _ => redact(&error.to_string()),
    }
}

/// What is wrong with a certificate. Its text goes on from "the certificate", and does not repeat
/// the names in it.
#[derive(Clone, Debug)]
pub(super) struct CertificateFault(CertificateError);

impl CertificateFault {
    /// The one that a connection failed of, if it did.
    pub(super) fn of(error: &lapin::Error) -> Option<Self> {
        let ErrorKind::IOError(error) = error.kind() else { return None };
        let mut error: &io::Error = error;
        loop {
            let cause = error.get_ref()?;
            match cause.downcast_ref() {
                Some(rustls::Error::InvalidCertificate(fault)) => {
                    return Some(Self(fault.clone()));
                }
                Some(_) => return None,
                None => error = cause.downcast_ref()?,
            }
        }
    }

    /// Whether it has to do with the hour.
    fn is_of_time(&self) -> bool {
        use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        matches!(self.0, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CertificateError::{
            BadSignature, NotValidForName, NotValidForNameContext, UnknownIssuer,
        };
        f.write_str(match &self.0 {
            // An authority of the same name and with another key is another one.
            UnknownIssuer | BadSignature => "is signed by no authority that is trusted here",
            NotValidForName | NotValidForNameContext { .. } => {
                "is for other names than the one in the URL"
            }
            _ if self.is_of_time() => "has expired, or is not valid yet",
            _ => "cannot be used",
        })
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    fn failed(fault: CertificateError) -> lapin::Error {
        let error = rustls::Error::InvalidCertificate(fault);
        io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error)).into()
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_told_without_names() {
        let expected = ServerName::try_from("rabbitmq.internal").expect("a name");
        let presented = vec!["elsewhere.internal".to_owned()];
        let (time, not_after) = (UnixTime::now(), UnixTime::now());
        for (fault, text, is_of_time) in [
            (CertificateError::UnknownIssuer, "no authority that is trusted", false),
            (
                CertificateError::NotValidForNameContext { expected, presented },
                "other names than the one in the URL",
                false,
            ),
            (CertificateError::ExpiredContext { time, not_after }, "has expired", true),
            (CertificateError::BadSignature, "no authority that is trusted", false),
            (CertificateError::BadEncoding, "cannot be used", false),
        ] {
            let fault = CertificateFault::of(&failed(fault)).expect("it is of the certificate");
            let said = fault.to_string();
            assert!(said.contains(text) && !said.contains("internal"), "{said}");
            assert_eq!(fault.is_of_time(), is_of_time, "{said}");
        }
        let reset = io::Error::from(io::ErrorKind::ConnectionReset).into();
        assert!(CertificateFault::of(&reset).is_none());
    }
}
