//! Tickets for those who cannot send a header, such as a browser's bare `EventSource`.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chrono::Utc;
use outport_contract::{digest::Sha256Digest, time::Instant};
use outport_store::access::{self, Ticket};
use rand::RngCore as _;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{
        ApiState,
        channels::access::may_follow,
        extract::Identified,
        problem::{Outcome, Problem, ProblemView},
    },
    auth::{AuthError, Identity},
};

/// What every ticket starts with, so that scanners for leaked secrets know it.
const PREFIX: &str = "opk_";

/// A ticket.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StreamTicket)]
pub struct TicketView {
    /// For `?ticket=` of one stream.
    ticket: String,
    /// When it ends unused.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Instant,
}

/// A ticket for one stream within a minute, at any process of the service.
#[utoipa::path(post, path = "/v1/stream/tickets", tag = "events",
    security(("bearer" = ["events:read"])),
    responses(
        (status = 201, description = "The ticket, for this once", body = TicketView),
        (status = 403, description = "The caller lacks the right", body = ProblemView),
    ))]
pub async fn create(
    State(state): State<Arc<ApiState>>,
    Identified(identity): Identified,
) -> Result<(StatusCode, Json<TicketView>), Problem> {
    may_follow(&identity.caller)?;
    let Identity { caller, owner, expires_at: credential_expires_at } = identity;
    let ticket = Ticket { caller, owner, credential_expires_at };
    let mut bytes = [0_u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let mut tx = state.store.begin().await?;
    let life = state.stream.config().ticket;
    let ends = access::create_ticket(&mut tx, &ticket, &sha256(&text), life).await?;
    tx.commit().await?;
    let view = TicketView { ticket: text, expires_at: ends.into() };
    Ok((Outcome::Created.status(), Json(view)))
}

/// Who bought a ticket. It is used up, whatever comes of it.
pub async fn redeem(state: &Arc<ApiState>, text: &str) -> Result<Identity, Problem> {
    let ticket = access::take_ticket(&state.store, &sha256(text)).await?;
    let ticket = ticket.ok_or(AuthError::Invalid)?;
    let Ticket { caller, owner, credential_expires_at } = ticket;
    if credential_expires_at.is_some_and(|end| end <= Utc::now())
        || state.authenticator.is_revoked(caller.organization, caller.user).await?
        || state.authenticator.is_revoked(caller.organization, owner).await?
    {
        return Err(AuthError::Invalid.into());
    }
    Ok(Identity { caller, owner, expires_at: credential_expires_at })
}

fn sha256(text: &str) -> [u8; 32] {
    Sha256Digest::of(text.as_bytes()).0
}
