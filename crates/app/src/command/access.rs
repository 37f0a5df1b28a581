//! `outport access`: revokes and restores the access of users and organizations. A revocation
//! acts on credentials and on links in mails that were issued before, within two seconds.

use std::process::ExitCode;

use clap::Subcommand;
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
    #[arg(long, value_parser = parse_id::<kind::User>, required_unless_present = "everybody")]
    user: Option<UserId>,
    /// All of the organization
    #[arg(long, conflicts_with = "user")]
    everybody: bool,
}

impl Whom {
    fn revoked(&self) -> Revoked {
        match self.user {
            Some(user) => Revoked::User(self.organization, user),
            None => Revoked::Organization(self.organization),
        }
    }
}

pub(super) async fn run(command: &AccessCommand, store: &Store) -> Result<ExitCode, Failure> {
    let mut tx = store.begin().await?;
    let said = match command {
        AccessCommand::Revoke(whom) => {
            access::revoke(&mut tx, whom.revoked()).await?;
            "revoked"
        }
        AccessCommand::Restore(whom) => {
            access::restore(&mut tx, whom.revoked()).await?;
            "restored"
        }
    };
    tx.commit().await?;
    say(said)
}
