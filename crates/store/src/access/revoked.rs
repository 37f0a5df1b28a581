//! What was revoked lately: who follows the live stream is told, whatever process serves it.

use std::{collections::HashSet, time::Duration};

use outport_contract::stream::Channel;
use outport_domain::{
    caller::Caller,
    id::{OrganizationId, TokenId, UserId},
};
use sea_orm::ConnectionTrait as _;
use uuid::Uuid;

use crate::{Store, StoreError, Tx, instant};

/// What was revoked in the window that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevokedLately {
    users: HashSet<(OrganizationId, UserId)>,
    organizations: HashSet<OrganizationId>,
    tokens: HashSet<TokenId>,
    channels: HashSet<String>,
}

impl RevokedLately {
    /// Whether all access ended of a caller whose credential is this owner's.
    pub fn ends(&self, caller: &Caller, owner: UserId) -> bool {
        let lost = |user| self.users.contains(&(caller.organization, user));
        self.organizations.contains(&caller.organization)
            || lost(caller.user)
            || lost(owner)
            || caller.token.is_some_and(|token| self.tokens.contains(&token))
    }

    /// Whether everybody's access to a channel ended.
    pub fn ends_channel(&self, channel: &Channel) -> bool {
        !self.channels.is_empty() && self.channels.contains(&channel.to_string())
    }
}

/// What was revoked within the last `window`: one query, by the database's clock.
pub async fn revoked_lately(store: &Store, window: Duration) -> Result<RevokedLately, StoreError> {
    let since = format!("revoked_at >= {} - $1", store.engine().now());
    let sql = format!(
        "SELECT 'user' AS kind, organization_id, user_id AS id, '' AS channel \
           FROM revocations WHERE {since} \
         UNION ALL SELECT 'token', organization_id, id, '' \
           FROM tokens WHERE revoked_at IS NOT NULL AND {since} \
         UNION ALL SELECT 'channel', organization_id, organization_id, channel \
           FROM channel_revocations WHERE {since}"
    );
    let statement = store.engine().statement(sql, [instant::span(window).into()]);
    let mut found = RevokedLately::default();
    for row in store.reader().query_all_raw(statement).await? {
        let organization = OrganizationId::from_uuid(row.try_get("", "organization_id")?);
        let id: Uuid = row.try_get("", "id")?;
        match row.try_get::<String>("", "kind")?.as_str() {
            "token" => _ = found.tokens.insert(TokenId::from_uuid(id)),
            "channel" => _ = found.channels.insert(row.try_get("", "channel")?),
            _ if id.is_nil() => _ = found.organizations.insert(organization),
            _ => _ = found.users.insert((organization, UserId::from_uuid(id))),
        }
    }
    Ok(found)
}

/// Ends everybody's access to a channel of an organization. Idempotent.
pub async fn revoke_channel(
    tx: &mut Tx,
    organization: OrganizationId,
    channel: &Channel,
) -> Result<(), StoreError> {
    let now = tx.now().await?;
    tx.run(
        "INSERT INTO channel_revocations (channel, organization_id, revoked_at) \
         VALUES ($1, $2, $3) ON CONFLICT (channel) DO NOTHING",
        [channel.to_string().into(), organization.uuid().into(), now.into()],
    )
    .await?;
    Ok(())
}

/// Gives access to a channel back.
pub async fn restore_channel(tx: &mut Tx, channel: &Channel) -> Result<(), StoreError> {
    let sql = "DELETE FROM channel_revocations WHERE channel = $1";
    tx.run(sql, [channel.to_string().into()]).await?;
    Ok(())
}

/// Whether access to a channel was ended for everybody.
pub async fn is_channel_revoked(store: &Store, channel: &Channel) -> Result<bool, StoreError> {
    let sql = "SELECT 1 AS found FROM channel_revocations WHERE channel = $1";
    let statement = store.engine().statement(sql, [channel.to_string().into()]);
    Ok(store.reader().query_one_raw(statement).await?.is_some())
}
