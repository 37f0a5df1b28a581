//! API tokens: made, listed and revoked by those of the same organization who may. Nobody makes
//! a token that can do or see more than its maker, or that speaks for somebody else, unless the
//! maker may act for others.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State, http::StatusCode};
use chrono::{DateTime, Utc};
use outport_contract::time::Instant;
use outport_domain::{
    caller::{Caller, Permission},
    id::{CompanyId, CooperativeId, Id, TokenId, UserId},
    json::{FieldCode, FieldErrors, array, object, string},
    limits::fixed,
    locale::Locale,
};
use outport_store::access::{self, TokenRow};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    ApiState,
    extract::{Authorized, JsonBody, Params, Segment, cursor},
    links::token_of,
    problem::{Outcome, Problem, ProblemView},
};
use crate::auth::{reach, token};

/// An API token, without its secret.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
pub struct TokenView {
    id: Uuid,
    name: String,
    user_id: Uuid,
    email: Option<String>,
    locale: Option<&'static str>,
    scopes: Vec<String>,
    /// Null: all of the organization.
    companies: Option<Vec<Uuid>>,
    /// Null: all of the organization.
    cooperatives: Option<Vec<Uuid>>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Instant>,
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Instant>,
}

/// A new token with its secret, which is never shown again.
#[derive(Serialize, ToSchema)]
#[schema(as = NewToken)]
pub struct NewTokenView {
    /// The secret: `opt_…`.
    token: String,
    #[serde(flatten)]
    view: TokenView,
}

/// A page of tokens.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TokenPage)]
pub struct TokenPageView {
    items: Vec<TokenView>,
    next_cursor: Option<String>,
}

/// The body of a new token, for the reference.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the body in the OpenAPI document")]
pub struct TokenRequest {
    /// What people call it, 1 to 100 characters.
    name: String,
    /// At least one, all of them one's own.
    scopes: Vec<String>,
    /// Only these companies; one's own when absent.
    companies: Option<Vec<Uuid>>,
    /// Only these cooperatives; one's own when absent.
    cooperatives: Option<Vec<Uuid>>,
    /// The owner, oneself when absent; another one needs exports:act-for.
    user_id: Option<Uuid>,
    /// Where the owner is told; another than one's own needs exports:act-for.
    email: Option<String>,
    /// The owner's language.
    locale: Option<String>,
    /// RFC 3339; never when absent.
    expires_at: Option<String>,
}

/// Makes a token. Its secret is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", security(("bearer" = ["tokens:admin"])),
    request_body = TokenRequest,
    responses(
        (status = 201, description = "The token, and its secret for this once", body = NewTokenView),
        (status = 403, description = "The caller lacks the right", body = ProblemView),
        (status = 422, description = "Every wrong field; nothing was changed", body = ProblemView),
    ))]
pub async fn create(
    State(state): State<Arc<ApiState>>,
    maker: Authorized,
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<NewTokenView>), Problem> {
    let maker = maker.with(Permission::TokensAdmin)?;
    let row = parse(&body, &maker, Utc::now())?;
    let minted = token::mint();
    let mut tx = state.store.begin().await?;
    access::create_token(&mut tx, &row, &minted.sha256).await?;
    tx.commit().await?;
    let answer = NewTokenView { token: minted.secret, view: view(row) };
    Ok((Outcome::Created.status(), Json(answer)))
}

/// Tokens of one's organization, revoked ones included, newest first.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens", security(("bearer" = ["tokens:admin"])),
    params(("cursor" = Option<String>, Query), ("limit" = Option<u32>, Query)),
    responses(
        (status = 200, description = "A page of tokens", body = TokenPageView),
        (status = 400, description = "Every wrong parameter", body = ProblemView),
    ))]
pub async fn list(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    params: Params,
) -> Result<Json<TokenPageView>, Problem> {
    let caller = caller.with(Permission::TokensAdmin)?;
    let mut params = params.known(&["cursor", "limit"]);
    let page = params.page();
    params.finish()?;
    let found = access::list_tokens(&state.store, caller.organization, page).await?;
    let items = found
        .items
        .into_iter()
        .filter(|row| reach::covers(&caller, &row.caller))
        .map(view)
        .collect();
    Ok(Json(TokenPageView { items, next_cursor: found.next.map(cursor) }))
}

/// Revokes a token, within two seconds everywhere. Again changes nothing.
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tokens",
    security(("bearer" = ["tokens:admin"])),
    params(("id" = Uuid, Path)),
    responses(
        (status = 204, description = "Revoked"),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
    ))]
pub async fn revoke(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    id: Segment,
) -> Result<Outcome, Problem> {
    let caller = caller.with(Permission::TokensAdmin)?;
    let id: TokenId = id.id()?;
    if caller.is_restricted() {
        let row = token_of(&state, caller.organization, id).await?;
        if !row.is_some_and(|row| reach::covers(&caller, &row.caller)) {
            return Err(Problem::not_found());
        }
    }
    let mut tx = state.store.begin().await?;
    let revoked = access::revoke_token(&mut tx, caller.organization, id).await?;
    tx.commit().await?;
    state.authenticator.forget();
    if revoked { Ok(Outcome::NoContent) } else { Err(Problem::not_found()) }
}

const MEMBERS: [&str; 8] =
    ["name", "scopes", "companies", "cooperatives", "userId", "email", "locale", "expiresAt"];

/// Reads a new token; everything that is wrong is told at once.
fn parse(body: &str, maker: &Caller, now: DateTime<Utc>) -> Result<TokenRow, Problem> {
    let mut errors = FieldErrors::default();
    let raw: &RawValue = serde_json::from_str(body).map_err(|error| Problem::internal(&error))?;
    let Some(members) = object(raw, "", Some(&MEMBERS), &mut errors) else {
        return Err(Problem::invalid_request(errors.into_vec()));
    };
    let mut body = Body { members, maker, errors };
    let name = body.name();
    let scopes = body.scopes();
    let (companies, cooperatives) = body.lists();
    let user = body.user();
    let email = body.email(user);
    let locale = body.locale(user);
    let expires_at = body.expires_at(now);
    if !body.errors.is_empty() {
        return Err(Problem::invalid_request(body.errors.into_vec()));
    }
    let id = TokenId::new();
    let own = user == maker.user;
    let caller = Caller {
        organization: maker.organization,
        companies,
        cooperatives,
        user,
        email,
        name: maker.name.clone().filter(|_| own),
        locale,
        scopes,
        token: Some(id),
    };
    Ok(TokenRow { id, name, caller, created_at: now, expires_at, revoked_at: None })
}

struct Body<'a> {
    members: Vec<(String, &'a RawValue)>,
    maker: &'a Caller,
    errors: FieldErrors,
}

impl<'a> Body<'a> {
    fn member(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.members.iter().find(|(own, _)| own == name);
        found.map(|(_, raw)| *raw).filter(|raw| raw.get() != "null")
    }

    fn text(&mut self, name: &str) -> Option<String> {
        string(self.member(name)?, name, &mut self.errors)
    }

    fn name(&mut self) -> String {
        if self.member("name").is_none() {
            self.errors.push("name", FieldCode::Required, "is required");
        }
        let name = self.text("name");
        if let Some(Err(rule)) = name.as_deref().map(token::named) {
            self.errors.push("name", FieldCode::InvalidValue, rule);
        }
        name.unwrap_or_default()
    }

    fn scopes(&mut self) -> BTreeSet<String> {
        let Some(raw) = self.member("scopes") else {
            self.errors.push("scopes", FieldCode::Required, "is required");
            return BTreeSet::new();
        };
        let elements = array(raw, "scopes", &mut self.errors).unwrap_or_default();
        if elements.is_empty() {
            self.errors.push("scopes", FieldCode::InvalidValue, "must name at least one scope");
        }
        let mut scopes = BTreeSet::new();
        for (index, element) in elements.into_iter().enumerate() {
            let path = format!("scopes[{index}]");
            let Some(scope) = string(element, &path, &mut self.errors) else { continue };
            if self.maker.scopes.contains(&scope) {
                scopes.insert(scope);
            } else {
                let rule = "must be a scope of one's own credential";
                self.errors.push(path, FieldCode::NotAllowed, rule);
            }
        }
        scopes
    }

    /// Naming neither list gives the maker's own; naming one leaves the other out, because a
    /// caller with both sees the rows of either.
    fn lists(&mut self) -> (Option<Vec<CompanyId>>, Option<Vec<CooperativeId>>) {
        let companies = self.ids("companies");
        let cooperatives = self.ids("cooperatives");
        if companies.is_none() && cooperatives.is_none() {
            return (self.maker.companies.clone(), self.maker.cooperatives.clone());
        }
        for (name, own) in [
            ("companies", reach::covers_lists(self.maker, companies.as_deref(), Some(&[]))),
            ("cooperatives", reach::covers_lists(self.maker, Some(&[]), cooperatives.as_deref())),
        ] {
            if !own {
                let rule = "must be among those that one may see oneself";
                self.errors.push(name, FieldCode::NotFound, rule);
            }
        }
        (companies, cooperatives)
    }

    fn ids<T>(&mut self, name: &str) -> Option<Vec<Id<T>>> {
        let elements = array(self.member(name)?, name, &mut self.errors)?;
        if elements.len() > fixed::VALUES_PER_LIST {
            let rule = format!("has more than {} values", fixed::VALUES_PER_LIST);
            self.errors.push(name, FieldCode::LimitExceeded, rule);
            return None;
        }
        let mut ids = Vec::with_capacity(elements.len());
        for (index, element) in elements.into_iter().enumerate() {
            let path = format!("{name}[{index}]");
            let Some(text) = string(element, &path, &mut self.errors) else { continue };
            if let Ok(id) = text.parse() {
                ids.push(id);
            } else {
                let rule = "must be a UUID in its hyphenated form";
                self.errors.push(path, FieldCode::InvalidValue, rule);
            }
        }
        Some(ids)
    }

    fn user(&mut self) -> UserId {
        let Some(text) = self.text("userId") else { return self.maker.user };
        if let Ok(user) = text.parse::<UserId>() {
            if user != self.maker.user {
                self.needs_act_for("userId");
            }
            user
        } else {
            let rule = "must be a UUID in its hyphenated form";
            self.errors.push("userId", FieldCode::InvalidValue, rule);
            self.maker.user
        }
    }

    fn email(&mut self, user: UserId) -> Option<String> {
        let own = self.maker.email.clone().filter(|_| user == self.maker.user);
        let Some(email) = self.text("email") else { return own };
        if let Err(rule) = token::addressed(&email) {
            self.errors.push("email", FieldCode::InvalidValue, rule);
        } else if !own.is_some_and(|own| own.eq_ignore_ascii_case(&email)) {
            self.needs_act_for("email");
        }
        Some(email)
    }

    fn needs_act_for(&mut self, field: &str) {
        if !self.maker.may(Permission::ExportsActFor) {
            let rule = "must be one's own; somebody else's needs the scope exports:act-for";
            self.errors.push(field, FieldCode::NotAllowed, rule);
        }
    }

    fn locale(&mut self, user: UserId) -> Option<Locale> {
        let own = self.maker.locale.filter(|_| user == self.maker.user);
        let Some(tag) = self.text("locale") else { return own };
        let locale = Locale::from_tag(&tag);
        if locale.is_none() {
            self.errors.push("locale", FieldCode::InvalidValue, "must be en, pt-BR or es");
        }
        locale
    }

    fn expires_at(&mut self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let text = self.text("expiresAt")?;
        let end = DateTime::parse_from_rfc3339(&text).ok().map(|end| end.with_timezone(&Utc));
        if end.is_none_or(|end| end <= now) {
            let rule = "must be an instant in the future such as 2030-01-01T00:00:00Z";
            self.errors.push("expiresAt", FieldCode::InvalidValue, rule);
        }
        end
    }
}

fn view(row: TokenRow) -> TokenView {
    let TokenRow { id, name, caller, created_at, expires_at, revoked_at } = row;
    TokenView {
        id: id.uuid(),
        name,
        user_id: caller.user.uuid(),
        email: caller.email,
        locale: caller.locale.map(Locale::tag),
        scopes: caller.scopes.into_iter().collect(),
        companies: caller.companies.map(|ids| ids.into_iter().map(Id::uuid).collect()),
        cooperatives: caller.cooperatives.map(|ids| ids.into_iter().map(Id::uuid).collect()),
        created_at: created_at.into(),
        expires_at: expires_at.map(Into::into),
        revoked_at: revoked_at.map(Into::into),
    }
}
