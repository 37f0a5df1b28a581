//! Who calls: API tokens and the JWTs of the surrounding application.
//!
//! **Words.** A *credential* is what the `Authorization` header carries. A [`Caller`] is what
//! it stands for.
//!
//! **Invariants.** Nothing about a caller comes from a body. No credential, nor any part of
//! one, is echoed or logged. What is remembered of tokens and revocations is never older than
//! [`MEMORY`], so a revocation acts within two seconds.
//!
//! **Absent on purpose.** HTTP status codes, and any anonymous mode.

pub mod jwks;
pub mod jwt;
mod memo;
pub(crate) mod rate;
pub mod reach;
pub mod token;

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use chrono::{DateTime, Utc};
use outport_domain::{
    caller::{Caller, Permission},
    id::{OrganizationId, TokenId, UserId},
};
use outport_store::{
    Store, StoreError,
    access::{self, TokenRow},
};

use jwt::JwtVerifier;
use memo::Memo;
use rate::RateLimiter;

/// How long an answer of the state database about a credential is believed.
pub const MEMORY: Duration = Duration::from_secs(1);

/// The header by which a trusted back end names the user that it acts for.
pub const ACT_FOR: &str = "x-outport-user";

/// Why a request has no caller.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// No `Authorization: Bearer …` at all.
    #[error("a bearer credential is required")]
    Missing,
    /// There is one, and it is not valid: forged, expired, revoked, or for somebody else.
    #[error("the bearer credential is not valid")]
    Invalid,
    /// A right of the credential is missing.
    #[error("the credential lacks a scope")]
    LacksScope(Permission),
    /// `X-Outport-User` is not a user id.
    #[error("the acting user is not a UUID")]
    BadActFor,
    /// The credential asks too often.
    #[error("too many requests")]
    TooMany {
        /// When to try again.
        retry_after: Duration,
    },
    /// The keys of the application's JWTs cannot be read.
    #[error("the keys of JWTs cannot be read")]
    KeysUnavailable,
    /// The state database does not answer.
    #[error("the credential cannot be checked")]
    Store(#[from] StoreError),
}

/// Who calls, and until when.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Who.
    pub caller: Caller,
    /// Whose credential it is: the caller's, or that of one who acts for it.
    pub owner: UserId,
    /// When the credential ends.
    pub expires_at: Option<DateTime<Utc>>,
}

/// What a credential is to the rate limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Credential {
    Token(TokenId),
    User(OrganizationId, UserId),
}

/// Turns credentials into callers.
pub struct Authenticator {
    store: Store,
    jwt: Option<JwtVerifier>,
    tokens: Memo<[u8; 32], Option<Arc<TokenRow>>>,
    revocations: Memo<(OrganizationId, UserId), bool>,
    rate: RateLimiter<Credential>,
}

impl Authenticator {
    /// `jwt` is `None` where only API tokens are taken; `requests_per_minute` 0 is no limit.
    pub fn new(store: Store, jwt: Option<JwtVerifier>, requests_per_minute: u32) -> Self {
        Self {
            store,
            jwt,
            tokens: Memo::new(MEMORY),
            revocations: Memo::new(MEMORY),
            rate: RateLimiter::new(requests_per_minute),
        }
    }

    /// The caller that a request's headers stand for.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        now: DateTime<Utc>,
    ) -> Result<Caller, AuthError> {
        Ok(self.identify(headers, now).await?.caller)
    }

    /// The same, with the end of the credential.
    pub async fn identify(
        &self,
        headers: &HeaderMap,
        now: DateTime<Utc>,
    ) -> Result<Identity, AuthError> {
        let Identity { mut caller, owner, expires_at } = self.admit(bearer(headers)?, now).await?;
        if headers.get_all(ACT_FOR).iter().count() > 1 {
            return Err(AuthError::BadActFor);
        }
        if let Some(user) = headers.get(ACT_FOR) {
            let user: UserId = user
                .to_str()
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or(AuthError::BadActFor)?;
            caller = self.acting_for(caller, user).await?;
        }
        Ok(Identity { caller, owner, expires_at })
    }

    /// Whom a credential stands for that came without a header.
    pub async fn admit(&self, credential: &str, now: DateTime<Utc>) -> Result<Identity, AuthError> {
        let identity = if credential.starts_with(token::PREFIX) {
            self.token_caller(credential, now).await?
        } else {
            let jwt = self.jwt.as_ref().ok_or(AuthError::Invalid)?;
            jwt.identify(credential).await?
        };
        let caller = &identity.caller;
        self.count(caller, identity.owner)?;
        if self.is_revoked(caller.organization, caller.user).await? {
            return Err(AuthError::Invalid);
        }
        Ok(identity)
    }

    /// Counts one more request of a credential.
    pub fn count(&self, caller: &Caller, owner: UserId) -> Result<(), AuthError> {
        let key =
            caller.token.map_or(Credential::User(caller.organization, owner), Credential::Token);
        self.rate.take(key).map_err(|retry_after| AuthError::TooMany { retry_after })
    }

    /// Whether a user has lost access, as of [`MEMORY`] ago at most.
    pub async fn is_revoked(
        &self,
        organization: OrganizationId,
        user: UserId,
    ) -> Result<bool, StoreError> {
        self.revocations
            .get((organization, user), || access::is_revoked(&self.store, organization, user))
            .await
    }

    /// Forgets what is remembered, after a change made by this process.
    pub fn forget(&self) {
        self.tokens.clear();
        self.revocations.clear();
    }

    async fn token_caller(&self, text: &str, now: DateTime<Utc>) -> Result<Identity, AuthError> {
        let sha256 = token::parse(text).ok_or(AuthError::Invalid)?;
        let row = self
            .tokens
            .get(sha256, || async {
                Ok::<_, StoreError>(access::find_token(&self.store, &sha256).await?.map(Arc::new))
            })
            .await?;
        row.filter(|row| is_live(row, now))
            .map(|row| Identity {
                caller: row.caller.clone(),
                owner: row.caller.user,
                expires_at: row.expires_at,
            })
            .ok_or(AuthError::Invalid)
    }

    async fn acting_for(&self, caller: Caller, user: UserId) -> Result<Caller, AuthError> {
        if user == caller.user {
            return Ok(caller);
        }
        if !caller.may(Permission::ExportsActFor) {
            return Err(AuthError::LacksScope(Permission::ExportsActFor));
        }
        if self.is_revoked(caller.organization, user).await? {
            return Err(AuthError::Invalid);
        }
        // The owner's own address, name and language say nothing about the user.
        Ok(Caller { user, email: None, name: None, locale: None, ..caller })
    }
}

/// Whether a token still opens doors.
pub fn is_live(row: &TokenRow, now: DateTime<Utc>) -> bool {
    row.revoked_at.is_none() && row.expires_at.is_none_or(|end| now < end)
}

fn bearer(headers: &HeaderMap) -> Result<&str, AuthError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(AuthError::Missing)?;
    if values.next().is_some() {
        return Err(AuthError::Invalid);
    }
    let text = value.to_str().map_err(|_| AuthError::Invalid)?;
    let (scheme, credential) = text.split_once(' ').ok_or(AuthError::Missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") || credential.trim().is_empty() {
        return Err(AuthError::Missing);
    }
    Ok(credential.trim())
}
