//! Who may call and who did: API tokens, revocations, requesters, and the audit of downloads.

use chrono::{DateTime, Utc};
use outport_domain::{
    caller::Caller,
    id::{JobId, OrganizationId, TokenId, UserId},
};
use uuid::Uuid;

use crate::{Page, PageRequest, Store, StoreError, Tx};

/// An API token as stored: its secret only as a SHA-256.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Its id.
    pub id: TokenId,
    /// What people call it.
    pub name: String,
    /// Whom it acts as; `caller.token` is its id.
    pub caller: Caller,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it ends.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// Stores a new token.
pub async fn create_token(
    tx: &mut Tx,
    token: &TokenRow,
    secret_sha256: &[u8; 32],
) -> Result<(), StoreError> {
    todo!()
}

/// The token with this secret, revoked and expired ones included.
pub async fn find_token(
    store: &Store,
    secret_sha256: &[u8; 32],
) -> Result<Option<TokenRow>, StoreError> {
    todo!()
}

/// The tokens of an organization, newest first.
pub async fn list_tokens(
    store: &Store,
    organization: OrganizationId,
    page: PageRequest,
) -> Result<Page<TokenRow>, StoreError> {
    todo!()
}

/// Revokes a token. `false` when this organization has no such token.
pub async fn revoke_token(
    tx: &mut Tx,
    organization: OrganizationId,
    token: TokenId,
) -> Result<bool, StoreError> {
    todo!()
}

/// What a revocation takes access from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revoked {
    /// A user, in one organization.
    User(OrganizationId, UserId),
    /// A whole organization.
    Organization(OrganizationId),
}

/// Records a revocation: credentials and links issued up to now no longer work. Idempotent.
pub async fn revoke(tx: &mut Tx, what: Revoked) -> Result<(), StoreError> {
    todo!()
}

/// Lifts a revocation.
pub async fn restore(tx: &mut Tx, what: Revoked) -> Result<(), StoreError> {
    todo!()
}

/// Whether a user of an organization has lost access.
pub async fn is_revoked(
    store: &Store,
    organization: OrganizationId,
    user: UserId,
) -> Result<bool, StoreError> {
    todo!()
}

/// Who may download a job's file by a link: the requester, and recipients that the request
/// named. Written by `submit`.
pub async fn is_requester(store: &Store, job: JobId, user: UserId) -> Result<bool, StoreError> {
    todo!()
}

/// One download, as audited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// Its id (version 7: it sorts by time).
    pub id: Uuid,
    /// Whose file.
    pub job: JobId,
    /// The tenant.
    pub organization: OrganizationId,
    /// Who, when a user is known.
    pub user: Option<UserId>,
    /// `API` or `LINK`.
    pub via: &'static str,
    /// The client's address, as far as the proxy tells.
    pub address: Option<String>,
    /// The client's `User-Agent`, cut at 200 characters.
    pub user_agent: Option<String>,
    /// When.
    pub at: DateTime<Utc>,
}

/// Writes a download into the audit.
pub async fn record_download(tx: &mut Tx, download: &Download) -> Result<(), StoreError> {
    todo!()
}

/// The downloads of a job, newest first.
pub async fn list_downloads(
    store: &Store,
    organization: OrganizationId,
    job: JobId,
    page: PageRequest,
) -> Result<Page<Download>, StoreError> {
    todo!()
}

/// Forgets idempotency keys that have ended. Returns how many.
pub async fn forget_keys(tx: &mut Tx) -> Result<u64, StoreError> {
    todo!()
}
