//! What a channel is about, as it is now. The position is read first: what happens in between is
//! told again, never left out.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use outport_contract::stream::{Channel, PROTOCOL};
use outport_domain::{
    caller::Caller,
    id::JobId,
    job::{ExportJob, JobStatus},
};
use outport_store::{
    PageRequest,
    channels::{self, Replayed},
    jobs::{self, JobFilter},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::access;
use crate::api::{
    ApiState,
    export_view::ExportView,
    extract::{Authorized, Params, Segment},
    problem::{Problem, ProblemView},
};

/// Unfinished jobs of each status that a snapshot shows, and ended ones.
const JOBS: u32 = 100;

/// A channel's current state.
#[derive(Serialize, ToSchema)]
#[schema(as = ChannelSnapshot)]
pub struct SnapshotView {
    protocol: &'static str,
    #[schema(value_type = String)]
    channel: Channel,
    /// The generation of the store.
    epoch: String,
    /// The highest sequence that was purged; 0 at first.
    floor: u64,
    /// The highest sequence that was given; 0 at first.
    head: u64,
    /// Go on from here: what `jobs` show holds all that was told up to it.
    sequence: u64,
    /// Of a job's channel that job. Of others the unfinished ones and the latest ones, newest
    /// first, up to a hundred of each status.
    jobs: Vec<ExportView>,
}

/// The current state of what a channel is about.
#[utoipa::path(get, path = "/v1/channels/{channel}/snapshot", tag = "events",
    security(("bearer" = ["events:read"])),
    params(("channel" = String, Path)),
    responses(
        (status = 200, description = "The state, and the sequence to go on from", body = SnapshotView),
        (status = 403, description = "Access has ended", body = ProblemView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
    ))]
pub async fn snapshot(
    State(state): State<Arc<ApiState>>,
    Authorized(caller): Authorized,
    channel: Segment,
    params: Params,
) -> Result<Json<SnapshotView>, Problem> {
    access::may_follow(&caller)?;
    params.known(&[]).finish()?;
    let channel = access::open(&state, &caller, &channel.0).await?;
    let at = channels::replay(&state.store, &channel, 0, None, 0).await?;
    let (Replayed::Page(at) | Replayed::Resync(at)) = at;
    let jobs = jobs_of(&state, &caller, &channel).await?;
    Ok(Json(SnapshotView {
        protocol: PROTOCOL,
        channel,
        epoch: at.epoch,
        floor: at.floor,
        head: at.head,
        sequence: at.head,
        jobs: jobs.iter().map(|job| ExportView::new(&state, job, None)).collect(),
    }))
}

async fn jobs_of(
    state: &Arc<ApiState>,
    caller: &Caller,
    channel: &Channel,
) -> Result<Vec<ExportJob>, Problem> {
    if let Channel::Job(id) = channel {
        let id = JobId::from_uuid(*id);
        let job = jobs::find(&state.store, caller.organization, id).await?;
        return job.map(|job| vec![job]).ok_or_else(Problem::not_found);
    }
    let application = match channel {
        Channel::Application(_, name) => Some(name.clone()),
        Channel::Job(_) | Channel::Organization(_) => None,
    };
    let unfinished = [JobStatus::Pending, JobStatus::Processing, JobStatus::Canceling];
    let mut found = BTreeMap::new();
    for status in unfinished.map(Some).into_iter().chain([None]) {
        let filter = JobFilter { status, application: application.clone(), ..JobFilter::default() };
        let page = PageRequest { limit: JOBS, after: None };
        let page = jobs::list(&state.store, caller.organization, &filter, page).await?;
        // A later look wins: it was made after the position was read, too.
        found.extend(page.items.into_iter().map(|job| (job.id.uuid(), job)));
    }
    Ok(found.into_values().rev().collect())
}
