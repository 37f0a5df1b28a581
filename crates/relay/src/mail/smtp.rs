//! A mail server, spoken to over a connection of its own for every message: mails are few, and
//! a connection that something went wrong on is never used again.

use std::{error::Error, time::Duration};

use lettre::{
    Message,
    transport::smtp::{
        self,
        authentication::{Credentials, DEFAULT_MECHANISMS},
        client::{AsyncSmtpConnection, Certificate, TlsParameters},
        extension::ClientId,
    },
};
use tokio::time::timeout;

use super::{
    CONNECT_TIME, InvalidMailer, MailError, SEND_TIME,
    url::{SmtpTarget, TlsMode},
};

/// Politeness at the end of a connection may take this long.
const QUIT_TIME: Duration = Duration::from_secs(2);

pub(super) struct Server {
    host: String,
    port: u16,
    tls: TlsMode,
    tls_parameters: TlsParameters,
    credentials: Option<Credentials>,
    hello: ClientId,
}

impl Server {
    pub fn new(target: &SmtpTarget) -> Result<Self, InvalidMailer> {
        let mut tls = TlsParameters::builder(target.host.clone());
        if let Some(path) = &target.authority {
            let pem =
                std::fs::read(path).map_err(|error| InvalidMailer::Authority(error.into()))?;
            let certificate = Certificate::from_pem(&pem)
                .map_err(|error| InvalidMailer::Authority(error.into()))?;
            tls = tls.add_root_certificate(certificate);
        }
        Ok(Self {
            host: target.host.clone(),
            port: target.port,
            tls: target.tls,
            tls_parameters: tls.build_rustls().map_err(|error| InvalidMailer::Tls(error.into()))?,
            credentials: target.credentials.clone(),
            hello: ClientId::default(),
        })
    }

    pub async fn send(&self, message: &Message) -> Result<(), MailError> {
        let mut connection = self.ready().await?;
        let sent = timeout(SEND_TIME, connection.send(message.envelope(), &message.formatted()))
            .await
            .map_err(|_| MailError::TooSlow)?;
        match sent {
            Ok(_) => {
                // It has been taken; how the goodbye goes changes nothing.
                drop(timeout(QUIT_TIME, connection.quit()).await);
                Ok(())
            }
            Err(error) => Err(failure(error, MailError::Broken)),
        }
    }

    pub async fn check(&self) -> Result<(), MailError> {
        let mut connection = self.ready().await?;
        drop(timeout(QUIT_TIME, connection.quit()).await);
        Ok(())
    }

    async fn ready(&self) -> Result<AsyncSmtpConnection, MailError> {
        timeout(CONNECT_TIME, self.connect()).await.map_err(|_| MailError::TooSlow)?
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, MailError> {
        let unreachable = |error| failure(error, MailError::Unreachable);
        let mut connection = AsyncSmtpConnection::connect_tokio1(
            (self.host.as_str(), self.port),
            Some(CONNECT_TIME),
            &self.hello,
            (self.tls == TlsMode::Wrapped).then(|| self.tls_parameters.clone()),
            None,
        )
        .await
        .map_err(unreachable)?;
        let upgrade = match self.tls {
            TlsMode::Wrapped | TlsMode::None => false,
            TlsMode::Required => true,
            TlsMode::Opportunistic => connection.can_starttls(),
        };
        if upgrade {
            connection
                .starttls(self.tls_parameters.clone(), &self.hello)
                .await
                .map_err(unreachable)?;
        }
        if let Some(credentials) = &self.credentials {
            connection
                .auth(DEFAULT_MECHANISMS, credentials)
                .await
                .map_err(|error| login_failure(&error))?;
        }
        Ok(connection)
    }
}

/// What a failed login says. The server's words are dropped: they may repeat what we sent.
fn login_failure(error: &smtp::Error) -> MailError {
    match reply(error) {
        Some(reply) if error.is_permanent() => MailError::LoginRefused { reply },
        Some(reply) => MailError::Later { reply },
        None => MailError::Unreachable("the login was broken off".into()),
    }
}

fn failure(
    error: smtp::Error,
    otherwise: impl FnOnce(Box<dyn Error + Send + Sync>) -> MailError,
) -> MailError {
    let Some(reply) = reply(&error) else { return otherwise(error.into()) };
    // 530, 534, 535 and 538 speak of the session's rights, not of the message.
    let of_the_session = ["530", "534", "535", "538"].iter().any(|code| reply.starts_with(code));
    match (error.is_permanent(), of_the_session) {
        (true, true) => MailError::LoginRefused { reply },
        (true, false) => MailError::Refused { reply },
        (false, _) => MailError::Later { reply },
    }
}

/// The reply code and, when the text begins with one, the enhanced status code (RFC 3463). The
/// rest of the text may name addresses.
fn reply(error: &smtp::Error) -> Option<String> {
    let code = error.status()?.to_string();
    let text = error.source().map(ToString::to_string).unwrap_or_default();
    let enhanced = text.split_whitespace().next().filter(|word| {
        let parts: Vec<_> = word.split('.').collect();
        let is_number = |part: &&str| {
            part.len() <= 3 && !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit())
        };
        parts.len() == 3 && parts.iter().all(is_number)
    });
    Some(enhanced.map_or(code.clone(), |enhanced| format!("{code} {enhanced}")))
}
