//! Events that other producers post: each once, however often its client repeats itself.

use std::time::Duration;

use outport_contract::stream::Channel;
use outport_domain::id::OrganizationId;
use sea_orm::ConnectionTrait as _;
use uuid::Uuid;

use super::NewEvent;
use crate::{Store, StoreError, Tx, instant};

/// How a client knows its own event again.
#[derive(Clone, Debug)]
pub struct ClientId {
    /// Its name for the event, of its organization.
    pub id: String,
    /// SHA-256 of what was posted.
    pub fingerprint: [u8; 32],
    /// How long it is remembered.
    pub life: Duration,
}

/// What became of a posted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is appended when the transaction commits.
    New(Uuid),
    /// The same was posted before, under this event id.
    Repeated(Uuid),
    /// The client id was used with something else.
    Reused,
}

/// Appends an event unless its client posted it before.
pub async fn post(
    tx: &mut Tx,
    organization: OrganizationId,
    event: NewEvent,
    client_id: Option<&ClientId>,
) -> Result<Posted, StoreError> {
    let id = event.id;
    if let Some(client_id) = client_id {
        let now = tx.now().await?;
        // A client id whose life has ended is as good as new.
        let inserted = tx
            .run(
                "INSERT INTO posted_events \
                 (organization_id, client_id, fingerprint, event_id, expires_at) \
                 VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (organization_id, client_id) DO UPDATE SET \
                 fingerprint = excluded.fingerprint, event_id = excluded.event_id, \
                 expires_at = excluded.expires_at WHERE posted_events.expires_at <= $6",
                [
                    organization.uuid().into(),
                    client_id.id.as_str().into(),
                    client_id.fingerprint.to_vec().into(),
                    id.into(),
                    (now + instant::span(client_id.life)).into(),
                    now.into(),
                ],
            )
            .await?;
        if inserted == 0 {
            return repeated(tx, organization, client_id).await;
        }
    }
    tx.append(event);
    Ok(Posted::New(id))
}

async fn repeated(
    tx: &Tx,
    organization: OrganizationId,
    client_id: &ClientId,
) -> Result<Posted, StoreError> {
    let sql = "SELECT fingerprint, event_id FROM posted_events \
         WHERE organization_id = $1 AND client_id = $2";
    let values = [organization.uuid().into(), client_id.id.as_str().into()];
    let row = tx.connection().query_one_raw(tx.engine().statement(sql, values)).await?;
    let row = row.ok_or_else(|| StoreError::Corrupt("a client id is gone".to_owned()))?;
    let fingerprint: Vec<u8> = row.try_get("", "fingerprint")?;
    Ok(if fingerprint == client_id.fingerprint {
        Posted::Repeated(row.try_get("", "event_id")?)
    } else {
        Posted::Reused
    })
}

/// Where an event is numbered, by the names of the channels; less what was purged since.
pub async fn numbers(store: &Store, event: Uuid) -> Result<Vec<(Channel, u64)>, StoreError> {
    let sql = "SELECT channel, sequence FROM channel_events WHERE event_id = $1 ORDER BY channel";
    let statement = store.engine().statement(sql, [event.into()]);
    let rows = store.reader().query_all_raw(statement).await?;
    let corrupt = |_| StoreError::Corrupt("the name of a channel".to_owned());
    rows.iter()
        .map(|row| {
            let channel: String = row.try_get("", "channel")?;
            let sequence: i64 = row.try_get("", "sequence")?;
            Ok((channel.parse().map_err(corrupt)?, sequence as u64))
        })
        .collect()
}
