//! Who follows, and whether it still may.

use chrono::{DateTime, Utc};
use outport_contract::stream::Channel;
use outport_domain::{caller::Caller, id::UserId};
use outport_store::access::RevokedLately;
use tokio::sync::watch;

use super::Streams;
use crate::auth::Identity;

/// What is known of everybody's access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What was revoked lately.
    pub revoked: RevokedLately,
    /// It could not be read for too long.
    pub is_blind: bool,
    /// How often that happened.
    pub lapses: u64,
}

/// Why a visitor's access is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Its credential has ended.
    Expired,
    /// It was revoked.
    Revoked,
    /// Nobody can tell whether it was.
    Unknown,
}

/// Who follows.
pub struct Visitor {
    /// Who it is.
    pub caller: Caller,
    /// Whose credential it is.
    pub owner: UserId,
    expires_at: Option<DateTime<Utc>>,
    standing: watch::Receiver<Standing>,
    /// The lapses before it came. Who was here during one may have lost what was revoked then.
    lapses: u64,
}

impl Streams {
    /// One who follows from now on.
    pub fn visitor(&self, identity: Identity) -> Visitor {
        let Identity { caller, owner, expires_at } = identity;
        let standing = self.standing.subscribe();
        let lapses = standing.borrow().lapses;
        Visitor { caller, owner, expires_at, standing, lapses }
    }
}

impl Visitor {
    /// Ends when there may be something new about its access.
    pub async fn changed(&mut self) {
        let expires_at = self.expires_at;
        let expiry = async {
            match expires_at {
                // One that has ended while nobody looked ends the wait at once.
                Some(end) => {
                    tokio::time::sleep((end - Utc::now()).to_std().unwrap_or_default()).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = expiry => {}
            changed = self.standing.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
        }
    }

    /// Why all of its access is over, if it is.
    pub fn over(&self) -> Option<Over> {
        let standing = self.standing.borrow();
        if standing.revoked.ends(&self.caller, self.owner) {
            Some(Over::Revoked)
        } else if self.expires_at.is_some_and(|end| end <= Utc::now()) {
            Some(Over::Expired)
        } else {
            let is_unknown = standing.is_blind || standing.lapses > self.lapses;
            is_unknown.then_some(Over::Unknown)
        }
    }

    /// Whether everybody's access to a channel is over.
    pub fn lost(&self, channel: &Channel) -> bool {
        self.standing.borrow().revoked.ends_channel(channel)
    }
}
