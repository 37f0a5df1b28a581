//! Taking access away: from a user, a token, a channel, or a whole organization. What was issued
//! before works no more, and streams that are open end, within two seconds everywhere.

use std::sync::Arc;

use axum::extract::State;
use outport_contract::stream::Channel;
use outport_domain::{
    caller::{Caller, Permission},
    id::{TokenId, UserId},
    json::{FieldCode, FieldErrors, boolean, object, string},
};
use outport_store::access::{self, Revoked};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    ApiState, channels,
    extract::{Authorized, JsonBody},
    problem::{Outcome, Problem, ProblemCode, ProblemView},
};

/// The body of a revocation, for the reference. One member, and one alone.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body in the OpenAPI document")]
pub struct RevocationRequest {
    /// A user of one's organization.
    user_id: Option<Uuid>,
    /// A token of one's organization.
    token_id: Option<Uuid>,
    /// A channel of one's organization: nobody may follow it any more.
    channel: Option<String>,
    /// `true`: all of one's organization, oneself included.
    everybody: Option<bool>,
}

enum What {
    User(UserId),
    Token(TokenId),
    Channel(Channel),
    Everybody,
}

/// Takes access away. Again changes nothing; `outport access restore` gives it back.
#[utoipa::path(post, path = "/v1/revocations", tag = "tokens",
    security(("bearer" = ["tokens:admin"])),
    request_body = RevocationRequest,
    responses(
        (status = 204, description = "Revoked"),
        (status = 403, description = "The caller lacks the right, or is limited to companies or cooperatives", body = ProblemView),
        (status = 404, description = "There is no such token or channel in reach of the caller", body = ProblemView),
        (status = 422, description = "Every wrong field; nothing was changed", body = ProblemView),
    ))]
pub async fn create(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    JsonBody(body): JsonBody,
) -> Result<Outcome, Problem> {
    let caller = caller.with(Permission::TokensAdmin)?;
    if caller.is_restricted() {
        let detail = "A caller limited to companies or cooperatives takes no access away.";
        return Err(Problem::new(ProblemCode::Forbidden, detail));
    }
    let what = parse(&body)?;
    if let What::Channel(channel) = &what
        && !channels::access::sees(&state, &caller, channel).await?
    {
        return Err(Problem::not_found());
    }
    let found = revoke(&state, &caller, what).await?;
    state.authenticator.forget();
    if found { Ok(Outcome::NoContent) } else { Err(Problem::not_found()) }
}

async fn revoke(state: &Arc<ApiState>, caller: &Caller, what: What) -> Result<bool, Problem> {
    let own = caller.organization;
    let mut tx = state.store.begin().await?;
    let mut found = true;
    match what {
        What::User(user) => access::revoke(&mut tx, Revoked::User(own, user)).await?,
        What::Token(token) => found = access::revoke_token(&mut tx, own, token).await?,
        What::Channel(channel) => access::revoke_channel(&mut tx, own, &channel).await?,
        What::Everybody => access::revoke(&mut tx, Revoked::Organization(own)).await?,
    }
    tx.commit().await?;
    Ok(found)
}

fn parse(body: &str) -> Result<What, Problem> {
    let mut errors = FieldErrors::default();
    let raw: &RawValue = serde_json::from_str(body).map_err(|error| Problem::internal(&error))?;
    let members = ["userId", "tokenId", "channel", "everybody"];
    let members = object(raw, "", Some(&members), &mut errors).unwrap_or_default();
    let given = || members.iter().filter(|(_, raw)| raw.get() != "null");
    if given().count() != 1 {
        let rule = "must have one of userId, tokenId, channel and everybody, and one alone";
        errors.push("", FieldCode::InvalidValue, rule);
    }
    let what = given().next().and_then(|(name, raw)| {
        let read = if name == "everybody" {
            boolean(raw, name, &mut errors)?.then_some(What::Everybody)
        } else {
            let text = string(raw, name, &mut errors)?;
            match name.as_str() {
                "userId" => text.parse().ok().map(What::User),
                "tokenId" => text.parse().ok().map(What::Token),
                _ => text.parse().ok().map(What::Channel),
            }
        };
        if read.is_none() {
            let rule = match name.as_str() {
                "everybody" => "must be true",
                "channel" => "must be the name of a channel",
                _ => "must be a UUID in its hyphenated form",
            };
            errors.push(name, FieldCode::InvalidValue, rule);
        }
        read
    });
    match what {
        Some(what) if errors.is_empty() => Ok(what),
        _ => Err(Problem::invalid_request(errors.into_vec())),
    }
}
