//! Who may follow a channel. A job's is for those who may see the job; an application's and an
//! organization's are for those of the organization who may see all its jobs. What is not for a
//! caller is not there, and neither is what nobody owns.

use std::sync::Arc;

use outport_contract::stream::Channel;
use outport_domain::{
    caller::{Caller, Permission},
    id::JobId,
    job::JobKind,
};
use outport_store::{access, jobs};

use crate::{
    api::{
        ApiState,
        problem::{Problem, ProblemCode},
    },
    auth::reach,
};

/// Whether a credential lets its caller follow anything: who may read exports may follow them.
pub fn may_follow(caller: &Caller) -> Result<(), Problem> {
    if caller.may(Permission::EventsRead) || caller.may(Permission::ExportsRead) {
        Ok(())
    } else {
        Err(Problem::missing_scope(Permission::EventsRead.name()))
    }
}

/// The channel that a text names, if the caller may follow it now.
pub async fn open(state: &Arc<ApiState>, caller: &Caller, text: &str) -> Result<Channel, Problem> {
    let channel: Channel = text.parse().map_err(|_| Problem::not_found())?;
    if !sees(state, caller, &channel).await? {
        return Err(Problem::not_found());
    }
    if access::is_channel_revoked(&state.store, &channel).await? {
        return Err(ended());
    }
    Ok(channel)
}

/// Access was there and is no more.
pub fn ended() -> Problem {
    Problem::new(ProblemCode::Forbidden, "Access to this channel has ended.")
}

/// Whether a channel is one of what the caller may see.
pub async fn sees(
    state: &Arc<ApiState>,
    caller: &Caller,
    channel: &Channel,
) -> Result<bool, Problem> {
    let id = match channel {
        Channel::Application(organization, _) | Channel::Organization(organization) => {
            return Ok(*organization == caller.organization.uuid() && !caller.is_restricted());
        }
        Channel::Job(id) => JobId::from_uuid(*id),
    };
    let job = jobs::find(&state.store, caller.organization, id).await?;
    Ok(job.is_some_and(|job| match job.kind {
        JobKind::Export => reach::sees_job(caller, &job),
        JobKind::Fetcher => caller.may(Permission::FetcherRun) && !caller.is_restricted(),
    }))
}
