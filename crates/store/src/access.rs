//! Who may call and who did: API tokens, revocations, requesters, tickets, and the audit of
//! downloads.

mod revoked;
mod tickets;

use chrono::{DateTime, Utc};
use outport_domain::{
    caller::Caller,
    id::{JobId, OrganizationId, TokenId, UserId},
};
use sea_orm::{ColumnTrait as _, EntityTrait as _, IntoActiveModel as _, QueryFilter as _};
use uuid::Uuid;

pub use revoked::{
    RevokedLately, is_channel_revoked, restore_channel, revoke_channel, revoked_lately,
};
pub use tickets::{Ticket, create_ticket, take_ticket};

use crate::{
    Page, PageRequest, Store, StoreError, Tx, caller_text,
    entity::{download, requester, revocation, token},
    instant, paging,
};

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
    let row = token::Model {
        id: token.id.uuid(),
        organization_id: token.caller.organization.uuid(),
        user_id: token.caller.user.uuid(),
        name: token.name.clone(),
        caller: caller_text::write(&token.caller)?,
        secret_sha256: secret_sha256.to_vec(),
        created_at: instant::millis(token.created_at),
        expires_at: token.expires_at.map(instant::millis),
        revoked_at: token.revoked_at.map(instant::millis),
    };
    token::Entity::insert(row.into_active_model()).exec_without_returning(tx.connection()).await?;
    Ok(())
}

/// The token with this secret, revoked and expired ones included.
pub async fn find_token(
    store: &Store,
    secret_sha256: &[u8; 32],
) -> Result<Option<TokenRow>, StoreError> {
    let row = token::Entity::find()
        .filter(token::Column::SecretSha256.eq(secret_sha256.to_vec()))
        .one(store.reader())
        .await?;
    row.as_ref().map(read_token).transpose()
}

/// The tokens of an organization, newest first.
pub async fn list_tokens(
    store: &Store,
    organization: OrganizationId,
    page: PageRequest,
) -> Result<Page<TokenRow>, StoreError> {
    let query = token::Entity::find().filter(token::Column::OrganizationId.eq(organization.uuid()));
    paging::page(query, token::Column::Id, page, store.reader(), read_token).await
}

/// Revokes a token. `false` when this organization has no such token.
pub async fn revoke_token(
    tx: &mut Tx,
    organization: OrganizationId,
    token: TokenId,
) -> Result<bool, StoreError> {
    let now = tx.now().await?;
    let found = tx
        .run(
            "UPDATE tokens SET revoked_at = COALESCE(revoked_at, $1) \
             WHERE id = $2 AND organization_id = $3",
            [now.into(), token.uuid().into(), organization.uuid().into()],
        )
        .await?;
    Ok(found > 0)
}

/// What a revocation takes access from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revoked {
    /// A user, in one organization.
    User(OrganizationId, UserId),
    /// A whole organization.
    Organization(OrganizationId),
}

impl Revoked {
    fn key(self) -> (Uuid, Uuid) {
        match self {
            Self::User(organization, user) => (organization.uuid(), user.uuid()),
            Self::Organization(organization) => (organization.uuid(), Uuid::nil()),
        }
    }
}

/// Records a revocation: credentials and links issued up to now no longer work. Idempotent.
pub async fn revoke(tx: &mut Tx, what: Revoked) -> Result<(), StoreError> {
    let (organization_id, user_id) = what.key();
    let row = revocation::Model { organization_id, user_id, revoked_at: tx.now().await? };
    revocation::Entity::insert(row.into_active_model())
        .on_conflict_do_nothing()
        .exec_without_returning(tx.connection())
        .await?;
    Ok(())
}

/// Lifts a revocation.
pub async fn restore(tx: &mut Tx, what: Revoked) -> Result<(), StoreError> {
    revocation::Entity::delete_by_id(what.key()).exec(tx.connection()).await?;
    Ok(())
}

/// Whether a user of an organization has lost access.
pub async fn is_revoked(
    store: &Store,
    organization: OrganizationId,
    user: UserId,
) -> Result<bool, StoreError> {
    let found = revocation::Entity::find()
        .filter(revocation::Column::OrganizationId.eq(organization.uuid()))
        .filter(revocation::Column::UserId.is_in([user.uuid(), Uuid::nil()]))
        .one(store.reader())
        .await?;
    Ok(found.is_some())
}

/// Who may download a job's file by a link: the requester, and recipients that the request
/// named. Written by `submit`.
pub async fn is_requester(store: &Store, job: JobId, user: UserId) -> Result<bool, StoreError> {
    let found =
        requester::Entity::find_by_id((job.uuid(), user.uuid())).one(store.reader()).await?;
    Ok(found.is_some())
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
    /// Which of the files of a split export; `None` for the file, and for the manifest.
    pub part: Option<u32>,
    /// The client's address, as far as the proxy tells.
    pub address: Option<String>,
    /// The client's `User-Agent`, cut at 200 characters.
    pub user_agent: Option<String>,
    /// When.
    pub at: DateTime<Utc>,
}

/// Writes a download into the audit.
pub async fn record_download(tx: &mut Tx, download: &Download) -> Result<(), StoreError> {
    let row = download::Model {
        id: download.id,
        job_id: download.job.uuid(),
        organization_id: download.organization.uuid(),
        user_id: download.user.map(UserId::uuid),
        via: download.via.to_owned(),
        part: download.part.map(|number| number as i32),
        address: download.address.clone(),
        user_agent: download.user_agent.as_deref().map(|text| text.chars().take(200).collect()),
        at: instant::millis(download.at),
    };
    download::Entity::insert(row.into_active_model())
        .exec_without_returning(tx.connection())
        .await?;
    Ok(())
}

/// The downloads of a job, newest first.
pub async fn list_downloads(
    store: &Store,
    organization: OrganizationId,
    job: JobId,
    page: PageRequest,
) -> Result<Page<Download>, StoreError> {
    let query = download::Entity::find()
        .filter(download::Column::JobId.eq(job.uuid()))
        .filter(download::Column::OrganizationId.eq(organization.uuid()));
    paging::page(query, download::Column::Id, page, store.reader(), read_download).await
}

/// Forgets idempotency keys that have ended, and client ids and tickets. Returns how many keys.
pub async fn forget_keys(tx: &mut Tx) -> Result<u64, StoreError> {
    let now = tx.now().await?;
    for table in ["posted_events", "stream_tickets"] {
        tx.run(format!("DELETE FROM {table} WHERE expires_at <= $1"), [now.into()]).await?;
    }
    tx.run("DELETE FROM idempotency_keys WHERE expires_at <= $1", [now.into()]).await
}

fn read_token(row: &token::Model) -> Result<TokenRow, StoreError> {
    let id = TokenId::from_uuid(row.id);
    Ok(TokenRow {
        id,
        name: row.name.clone(),
        caller: Caller {
            token: Some(id),
            ..caller_text::read(row.organization_id, row.user_id, &row.caller)?
        },
        created_at: instant::at(row.created_at)?,
        expires_at: instant::maybe_at(row.expires_at)?,
        revoked_at: instant::maybe_at(row.revoked_at)?,
    })
}

fn read_download(row: &download::Model) -> Result<Download, StoreError> {
    Ok(Download {
        id: row.id,
        job: JobId::from_uuid(row.job_id),
        organization: OrganizationId::from_uuid(row.organization_id),
        user: row.user_id.map(UserId::from_uuid),
        via: match row.via.as_str() {
            "API" => "API",
            "LINK" => "LINK",
            _ => return Err(StoreError::Corrupt("a download's way is unknown".to_owned())),
        },
        part: row.part.map(|number| number as u32),
        address: row.address.clone(),
        user_agent: row.user_agent.clone(),
        at: instant::at(row.at)?,
    })
}
