//! What a channel has after a cursor.

use std::sync::Arc;

use axum::{Json, extract::State};
use outport_contract::stream::{Channel, PROTOCOL, StreamEvent};
use outport_store::channels::{self, Replayed};
use serde::Serialize;
use utoipa::ToSchema;

use super::{access, cursor, position};
use crate::api::{
    ApiState,
    extract::{Authorized, Params, Segment},
    problem::{Problem, ProblemView},
};

/// Events of a page, when the request does not say.
const PAGE_DEFAULT: u64 = 100;
/// Events of a page, at most.
pub const PAGE_MOST: u64 = 1_000;

/// A page of a channel.
#[derive(Serialize, ToSchema)]
#[schema(as = ChannelPage)]
pub struct ChannelPageView {
    protocol: &'static str,
    #[schema(value_type = String)]
    channel: Channel,
    /// The generation of the store.
    epoch: String,
    /// The highest sequence that was purged; 0 at first.
    floor: u64,
    /// The highest sequence that was given; 0 at first.
    head: u64,
    /// Ascending and without a gap, the first of them right after the cursor. When the last one
    /// is not the head, more follow.
    #[schema(value_type = Vec<Object>)]
    events: Vec<StreamEvent>,
}

/// The events of a channel after a cursor.
///
/// A page ends early when its events are large: it has one at least.
#[utoipa::path(get, path = "/v1/channels/{channel}/events", tag = "events",
    security(("bearer" = ["events:read"])),
    params(
        ("channel" = String, Path, description = "`job:<id>`, `application:<organization>.<name>` or `organization:<id>`"),
        ("after" = Option<u64>, Query, description = "The last sequence that one has; 0 when absent"),
        ("epoch" = Option<String>, Query, description = "The epoch that it is of"),
        ("limit" = Option<u64>, Query, description = "1 to 1000, else 100"),
    ),
    responses(
        (status = 200, description = "A page, empty at the head", body = ChannelPageView),
        (status = 400, description = "Every wrong parameter", body = ProblemView),
        (status = 403, description = "Access has ended", body = ProblemView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
        (status = 410, description = "The cursor cannot be trusted: load the snapshot", body = ProblemView),
    ))]
pub async fn events(
    State(state): State<Arc<ApiState>>,
    Authorized(caller): Authorized,
    channel: Segment,
    params: Params,
) -> Result<Json<ChannelPageView>, Problem> {
    access::may_follow(&caller)?;
    let channel = access::open(&state, &caller, &channel.0).await?;
    let mut params = params.known(&["after", "epoch", "limit"]);
    let (after, epoch) = cursor(&mut params);
    let limit = params.get("limit", "a whole number from 1 to 1000", |text| {
        super::sequence(text).filter(|limit| (1..=PAGE_MOST).contains(limit))
    });
    params.finish()?;
    let limit = limit.unwrap_or(PAGE_DEFAULT);
    let replayed =
        channels::replay(&state.store, &channel, after.unwrap_or(0), epoch.as_deref(), limit);
    match replayed.await? {
        Replayed::Page(page) => Ok(Json(ChannelPageView {
            protocol: PROTOCOL,
            channel,
            epoch: page.epoch,
            floor: page.floor,
            head: page.head,
            events: page.events,
        })),
        Replayed::Resync(page) => Err(Problem::resync(position(page))),
    }
}
