//! Letters and how they leave the house: by SMTP, or as `.eml` files in a folder.
//!
//! Mail is at least once. What makes copies recognisable is the [`MessageId`], which follows
//! from event, handler and recipient; a folder even overwrites a copy with itself.

mod figures;
mod folder;
mod letter;
mod message_id;
mod reason;
mod smtp;
mod template;
mod url;

use std::time::Duration;

pub use self::{
    figures::{instant, number, size},
    letter::{Addressee, Letter, Sender, Unaddressable},
    message_id::MessageId,
    reason::sentence as reason_sentence,
    template::{BrokenTemplate, CompletedWords, FailedWords, Templates, Writing},
    url::{InvalidMailUrl, MailUrl},
};
use crate::handler::{Disposition, HandlerError};

/// Time limit of getting a connection ready: dial, TLS, greeting, login.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Time limit of handing over one message once connected. Together with [`CONNECT_TIME`] below
/// the time limit of a handler, so that a slow server gets its own error.
pub const SEND_TIME: Duration = Duration::from_secs(40);

/// Sends letters.
pub struct Mailer {
    sender: Sender,
    way: Way,
}

enum Way {
    Smtp(Box<smtp::Server>),
    Folder(folder::Folder),
}

/// Why a letter did not go out, or may not have. No address and no credential is in any text.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// The server asks to try later (4xx).
    #[error("the mail server asks to try later ({reply})")]
    Later {
        /// Reply and status code, e.g. `451 4.7.1`.
        reply: String,
    },
    /// The server refuses the message (5xx).
    #[error("the mail server refuses the message ({reply})")]
    Refused {
        /// Reply and status code, e.g. `550 5.1.1`.
        reply: String,
    },
    /// The server refuses us, whatever the message: a matter of configuration.
    #[error("the mail server refuses the login ({reply})")]
    LoginRefused {
        /// Reply and status code, e.g. `535 5.7.8`.
        reply: String,
    },
    /// No connection, or not the kind that is asked for.
    #[error("the mail server cannot be reached as configured")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke while the message was handed over: it may have been taken.
    #[error("the connection to the mail server broke; the message may have been sent")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server took too long; once connected, it may have taken the message.
    #[error("the mail server did not answer in time")]
    TooSlow,
    /// The folder does not take the file.
    #[error("the mail folder cannot be written")]
    Folder(#[source] std::io::Error),
    /// Names or addresses that no mail can carry.
    #[error(transparent)]
    Unaddressable(#[from] Unaddressable),
}

impl MailError {
    /// What now. Only what the server says for good about this message, or what no server could
    /// carry, is for good.
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Refused { .. } | Self::Unaddressable(_) => Disposition::Dead,
            Self::Later { .. }
            | Self::LoginRefused { .. }
            | Self::Unreachable(_)
            | Self::Broken(_)
            | Self::TooSlow
            | Self::Folder(_) => Disposition::Retry,
        }
    }
}

impl From<MailError> for HandlerError {
    fn from(error: MailError) -> Self {
        let failure = match error.disposition() {
            Disposition::Retry => Self::retry(error.to_string()),
            Disposition::Dead => Self::dead(error.to_string()),
        };
        failure.because(error)
    }
}

/// Why there is no mailer.
#[derive(Debug, thiserror::Error)]
pub enum InvalidMailer {
    /// The file of the private certificate authority.
    #[error("the certificate authority of the mail server ('ca') cannot be used")]
    Authority(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// TLS as such.
    #[error("TLS for the mail server cannot be set up")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The folder does not exist and cannot be made.
    #[error("the mail folder cannot be made")]
    Folder(#[source] std::io::Error),
}

impl Mailer {
    /// Gets everything ready that needs no connection: certificates are read, a folder is made.
    pub fn new(url: &MailUrl, sender: Sender) -> Result<Self, InvalidMailer> {
        let way = match url.target() {
            url::Target::Smtp(target) => Way::Smtp(Box::new(smtp::Server::new(target)?)),
            url::Target::Folder(path) => {
                Way::Folder(folder::Folder::new(path).map_err(InvalidMailer::Folder)?)
            }
        };
        Ok(Self { sender, way })
    }

    /// The id of the message that this handler sends this recipient about this event.
    pub fn message_id(
        &self,
        event: outport_domain::id::EventId,
        handler: &str,
        recipient: &str,
    ) -> MessageId {
        MessageId::of(event, handler, recipient, self.sender.domain())
    }

    /// Sends a letter. After an error it may still arrive: try again with the same id.
    pub async fn send(&self, letter: &Letter) -> Result<(), MailError> {
        let message = letter.compose(&self.sender)?;
        match &self.way {
            Way::Smtp(server) => server.send(&message).await,
            Way::Folder(folder) => folder.put(&letter.id, message.formatted()).await,
        }
    }

    /// Checks that the server answers and takes the login, or that the folder can be written.
    pub async fn check(&self) -> Result<(), MailError> {
        match &self.way {
            Way::Smtp(server) => server.check().await,
            Way::Folder(folder) => folder.check().await,
        }
    }
}
