//! `outport access`: revokes and restores the access of users and organizations, and to channels of
//! the live stream. A revocation acts on credentials, on links in mails that were issued before and
//! on open streams, within two seconds.

use std::process::ExitCode;

use clap::Subcommand;
use outport_contract::stream::Channel;
use outport_domain::id::{OrganizationId, UserId, kind};
use outport_store::{
    Store,
    access::{self, Revoked},
};

use super::{Failure, say, token::parse_id};

#[derive(Subcommand)]
pub(super) enum AccessCommand {
    /// From now on, what was issued to them no longer works
    Revoke(Whom),
    /// Lifts a revocation
    Restore(Whom),
}

#[derive(clap::Args)]
pub(super) struct Whom {
    /// The organization's id
    #[arg(long, value_parser = parse_id::<kind::Organization>)]
    organization: OrganizationId,
    /// One user of it
    #[arg(long, value_parser = parse_id::<kind::User>, required_unless_present_any = ["everybody", "channel"])]
    user: Option<UserId>,
    /// All of the organization
    #[arg(long, conflicts_with = "user")]
    everybody: bool,
    /// A channel of the live stream, for all of the organization
    #[arg(long, conflicts_with_all = ["user", "everybody"])]
    channel: Option<Channel>,
}

/// What access is taken from, or given back to.
enum What {
    Whom(Revoked),
    Channel(Channel),
}

impl Whom {
    fn what(&self) -> Result<What, Failure> {
        let Some(channel) = &self.channel else {
            let whom = self.user.map(|user| Revoked::User(self.organization, user));
            return Ok(What::Whom(whom.unwrap_or(Revoked::Organization(self.organization))));
        };
        match channel {
            Channel::Application(owner, _) | Channel::Organization(owner)
                if *owner != self.organization.uuid() =>
            {
                Err(Failure::Usage(format!("{channel} is not of this organization")))
            }
            _ => Ok(What::Channel(channel.clone())),
        }
    }
}

pub(super) async fn run(command: &AccessCommand, store: &Store) -> Result<ExitCode, Failure> {
    let mut tx = store.begin().await?;
    let said = match command {
        AccessCommand::Revoke(whom) => {
            match whom.what()? {
                What::Whom(revoked) => access::revoke(&mut tx, revoked).await?,
                What::Channel(channel) => {
                    access::revoke_channel(&mut tx, whom.organization, &channel).await?;
                }
            }
            "revoked"
        }
        AccessCommand::Restore(whom) => {
            match whom.what()? {
                What::Whom(revoked) => access::restore(&mut tx, revoked).await?,
                What::Channel(channel) => access::restore_channel(&mut tx, &channel).await?,
            }
            "restored"
        }
    };
    tx.commit().await?;
    say(said)
}
