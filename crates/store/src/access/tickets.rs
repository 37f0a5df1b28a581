//! Tickets: who cannot send a header buys one with its credential, and follows the live stream
//! with it once. Only their SHA-256 is stored, so that any process can take what another sold.

use std::time::Duration;

use chrono::{DateTime, Utc};
use outport_domain::{caller::Caller, id::UserId};
use sea_orm::ConnectionTrait as _;

use crate::{Store, StoreError, Tx, caller_text, instant};

/// What a ticket stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Who follows.
    pub caller: Caller,
    /// Whose credential it was bought with: the caller's, or that of one who acts for it.
    pub owner: UserId,
    /// When the credential ends that it was bought with.
    pub credential_expires_at: Option<DateTime<Utc>>,
}

/// Stores a new ticket of this life; returns when it ends. Those that have ended go.
pub async fn create_ticket(
    tx: &mut Tx,
    ticket: &Ticket,
    secret_sha256: &[u8; 32],
    life: Duration,
) -> Result<DateTime<Utc>, StoreError> {
    let now = tx.now().await?;
    tx.run("DELETE FROM stream_tickets WHERE expires_at <= $1", [now.into()]).await?;
    let ends = now + instant::span(life);
    let caller = &ticket.caller;
    tx.run(
        "INSERT INTO stream_tickets \
         (secret_sha256, organization_id, user_id, caller, owner_id, credential_expires_at, \
         expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        [
            secret_sha256.to_vec().into(),
            caller.organization.uuid().into(),
            caller.user.uuid().into(),
            caller_text::write(caller)?.into(),
            ticket.owner.uuid().into(),
            ticket.credential_expires_at.map(instant::millis).into(),
            ends.into(),
        ],
    )
    .await?;
    instant::at(ends)
}

/// Takes a ticket: whoever comes second, or too late, gets none.
pub async fn take_ticket(
    store: &Store,
    secret_sha256: &[u8; 32],
) -> Result<Option<Ticket>, StoreError> {
    let sql = format!(
        "DELETE FROM stream_tickets WHERE secret_sha256 = $1 \
         RETURNING organization_id, user_id, caller, owner_id, credential_expires_at, \
         CASE WHEN expires_at > {} THEN 1 ELSE 0 END AS is_valid",
        store.engine().now()
    );
    let statement = store.engine().statement(sql, [secret_sha256.to_vec().into()]);
    let Some(row) = store.writer().query_one_raw(statement).await? else { return Ok(None) };
    if row.try_get::<i32>("", "is_valid")? == 0 {
        return Ok(None);
    }
    let caller: String = row.try_get("", "caller")?;
    Ok(Some(Ticket {
        caller: caller_text::read(
            row.try_get("", "organization_id")?,
            row.try_get("", "user_id")?,
            &caller,
        )?,
        owner: UserId::from_uuid(row.try_get("", "owner_id")?),
        credential_expires_at: instant::maybe_at(row.try_get("", "credential_expires_at")?)?,
    }))
}
