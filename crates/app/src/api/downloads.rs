//! The audit of downloads, as its readers see it.

use std::sync::Arc;

use axum::{Json, extract::State};
use outport_contract::time::Instant;
use outport_domain::caller::Permission;
use outport_store::access;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    ApiState,
    exports::visible,
    extract::{Authorized, Params, Segment, cursor},
    problem::{Problem, ProblemView},
};

/// One download.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Download)]
pub struct DownloadView {
    id: Uuid,
    user_id: Option<Uuid>,
    /// `API` or `LINK`.
    via: &'static str,
    /// Which of the files of a split export; null for the file, and for the manifest.
    file_number: Option<u32>,
    address: Option<String>,
    user_agent: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    at: Instant,
}

/// A page of downloads.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DownloadPage)]
pub struct DownloadPageView {
    items: Vec<DownloadView>,
    next_cursor: Option<String>,
}

/// Who downloaded the file, when, from where; newest first.
#[utoipa::path(get, path = "/v1/exports/{id}/downloads", tag = "exports",
    security(("bearer" = ["exports:read"])),
    params(
        ("id" = Uuid, Path),
        ("cursor" = Option<String>, Query),
        ("limit" = Option<u32>, Query),
    ),
    responses(
        (status = 200, description = "A page of downloads", body = DownloadPageView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
    ))]
pub async fn downloads(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    id: Segment,
    params: Params,
) -> Result<Json<DownloadPageView>, Problem> {
    let caller = caller.with(Permission::ExportsRead)?;
    let mut params = params.known(&["cursor", "limit"]);
    let page = params.page();
    params.finish()?;
    let job = visible(&state, &caller, &id).await?;
    let found = access::list_downloads(&state.store, caller.organization, job.id, page).await?;
    let items = found
        .items
        .into_iter()
        .map(|download| DownloadView {
            id: download.id,
            user_id: download.user.map(outport_domain::id::Id::uuid),
            via: download.via,
            file_number: download.part,
            address: download.address,
            user_agent: download.user_agent,
            at: download.at.into(),
        })
        .collect();
    Ok(Json(DownloadPageView { items, next_cursor: found.next.map(cursor) }))
}
