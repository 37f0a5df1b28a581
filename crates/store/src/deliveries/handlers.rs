//! Handlers as data: registration, retirement, and the reconciler that inserts what is missing.

use std::time::Duration;

use chrono::{DateTime, Utc};
use outport_domain::id::OrganizationId;
use sea_orm::{
    ColumnTrait as _, EntityTrait as _, IntoActiveModel as _, QueryFilter as _, QueryOrder as _,
    Value,
};

use super::HandlerRow;
use crate::{
    Engine, Store, StoreError, Tx,
    entity::{event, handler, handler_event},
    instant, outbox,
};

/// How far back the reconciler looks again each time: longer than any transaction lives, so an
/// event that was written before the last look and committed after it is not missed. What is gone
/// for another reason, as with a part of the database restored, [`reconcile_all`] finds.
const LOOK_BACK: Duration = Duration::from_mins(10);
/// What [`reconcile_all`] looks at in one transaction, so that none of them is long: on `SQLite`
/// nobody else writes meanwhile, and `PostgreSQL` may break off what takes half a minute.
const STRETCH: Duration = Duration::from_hours(24);
/// Missing deliveries that are inserted at a time.
const PAIRS: i64 = 1_000;
/// Advisory lock of registrations: "handlers" in hexadecimal ASCII.
const REGISTRATION: i64 = 0x6861_6e64_6c65_7273;

/// Registers handlers: adds what is new (with `registered_at` now), never removes. Idempotent.
pub async fn register(tx: &mut Tx, handlers: &[HandlerRow]) -> Result<(), StoreError> {
    if tx.engine() == Engine::Postgres {
        tx.run("SELECT pg_advisory_xact_lock($1)", [REGISTRATION.into()]).await?;
    }
    let known = handler_event::Entity::find().all(tx.connection()).await?;
    let is_new = |name: &str, event_type: &str| {
        !known.iter().any(|row| row.handler == name && row.event_type == event_type)
    };
    let new = handlers
        .iter()
        .flat_map(|row| row.event_types.iter().map(move |event_type| (&row.name, event_type)))
        .filter(|(name, event_type)| is_new(name, event_type))
        .collect::<Vec<_>>();
    if new.is_empty() {
        return Ok(());
    }
    if tx.engine() == Engine::Postgres {
        // Waits for every transaction that has already asked which handlers there are: each
        // event is committed either before `registered_at`, or with a delivery.
        tx.run("LOCK TABLE handlers IN ACCESS EXCLUSIVE MODE", []).await?;
    }
    let now = tx.now().await?;
    for (name, event_type) in new {
        let row = handler::Model { name: name.clone(), registered_at: now, retired_at: None };
        handler::Entity::insert(row.into_active_model())
            .on_conflict_do_nothing()
            .exec_without_returning(tx.connection())
            .await?;
        let row = handler_event::Model {
            handler: name.clone(),
            event_type: event_type.clone(),
            registered_at: now,
            reconciled_to: now,
        };
        handler_event::Entity::insert(row.into_active_model())
            .on_conflict_do_nothing()
            .exec_without_returning(tx.connection())
            .await?;
    }
    Ok(())
}

/// Retires a handler: no new deliveries from now on. `false` when it is not registered.
pub async fn retire(tx: &mut Tx, handler: &str) -> Result<bool, StoreError> {
    let now = tx.now().await?;
    let changed = tx
        .run(
            "UPDATE handlers SET retired_at = COALESCE(retired_at, $1) WHERE name = $2",
            [now.into(), handler.into()],
        )
        .await?;
    Ok(changed > 0)
}

/// Takes a retirement back: the handler gets the events that are committed from now on.
/// `false` when it is not retired.
pub async fn restore(tx: &mut Tx, handler: &str) -> Result<bool, StoreError> {
    let now = tx.now().await?;
    tx.run(
        "UPDATE handler_events SET registered_at = $1, reconciled_to = $1 WHERE handler = $2 \
         AND EXISTS (SELECT 1 FROM handlers WHERE name = $2 AND retired_at IS NOT NULL)",
        [now.into(), handler.into()],
    )
    .await?;
    let changed = tx
        .run(
            "UPDATE handlers SET retired_at = NULL, registered_at = $1 \
             WHERE name = $2 AND retired_at IS NOT NULL",
            [now.into(), handler.into()],
        )
        .await?;
    Ok(changed > 0)
}

/// A registered handler as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerView {
    /// Its name.
    pub name: String,
    /// Since when it gets events.
    pub registered_at: DateTime<Utc>,
    /// Since when it gets none any more.
    pub retired_at: Option<DateTime<Utc>>,
}

/// Every handler that was ever registered, by name.
pub async fn handlers(store: &Store) -> Result<Vec<HandlerView>, StoreError> {
    let rows =
        handler::Entity::find().order_by_asc(handler::Column::Name).all(store.reader()).await?;
    rows.into_iter()
        .map(|row| {
            Ok(HandlerView {
                name: row.name,
                registered_at: instant::at(row.registered_at)?,
                retired_at: instant::maybe_at(row.retired_at)?,
            })
        })
        .collect()
}

/// Inserts deliveries that are missing for any event that is kept since each active handler's
/// registration: they are owed, however old they are. Returns how many. It asks for every event,
/// which is too much for each look; once in a process is enough.
pub async fn reconcile_all(store: &Store) -> Result<u64, StoreError> {
    let mut tx = store.begin().await?;
    let now = tx.now().await?;
    let rows = active(&tx, None).await?;
    tx.commit().await?;
    let mut inserted = 0;
    for row in &rows {
        let mut since = row.registered_at;
        while since <= now {
            let until = since + instant::span(STRETCH);
            let mut tx = store.begin().await?;
            let events = Missing { handler: row, since, until, organization: None };
            inserted += events.insert(&mut tx, now).await?;
            tx.commit().await?;
            since = until;
        }
    }
    Ok(inserted)
}

/// Inserts deliveries that are missing for events since the last look, and a little before it.
/// Returns how many.
pub async fn reconcile(tx: &mut Tx) -> Result<u64, StoreError> {
    let now = tx.now().await?;
    let mut inserted = 0;
    for row in active(tx, None).await? {
        let since = row.registered_at.max(row.reconciled_to - instant::span(LOOK_BACK));
        let events = Missing { handler: &row, since, until: i64::MAX, organization: None };
        inserted += events.insert(tx, now).await?;
        tx.run(
            "UPDATE handler_events SET reconciled_to = $1 \
             WHERE handler = $2 AND event_type = $3 AND reconciled_to < $1",
            [now.into(), row.handler.into(), row.event_type.into()],
        )
        .await?;
    }
    Ok(inserted)
}

/// Inserts deliveries for this organization's events since `since`, older than the handler's
/// registration. Returns how many; `None` when the handler is not registered.
pub async fn backfill(
    tx: &mut Tx,
    organization: OrganizationId,
    handler: &str,
    since: DateTime<Utc>,
) -> Result<Option<u64>, StoreError> {
    let now = tx.now().await?;
    let rows = active(tx, Some(handler)).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut inserted = 0;
    for row in rows {
        let since = instant::millis(since);
        let until = row.registered_at;
        let events = Missing { handler: &row, since, until, organization: Some(organization) };
        inserted += events.insert(tx, now).await?;
    }
    Ok(Some(inserted))
}

async fn active(tx: &Tx, name: Option<&str>) -> Result<Vec<handler_event::Model>, StoreError> {
    let mut retired = handler::Entity::find().filter(handler::Column::RetiredAt.is_not_null());
    let mut wanted = handler_event::Entity::find();
    if let Some(name) = name {
        retired = retired.filter(handler::Column::Name.eq(name));
        wanted = wanted.filter(handler_event::Column::Handler.eq(name));
    }
    let retired = retired.all(tx.connection()).await?;
    let mut rows = wanted.all(tx.connection()).await?;
    rows.retain(|row| !retired.iter().any(|handler| handler.name == row.handler));
    rows.sort_by(|a, b| (&a.handler, &a.event_type).cmp(&(&b.handler, &b.event_type)));
    Ok(rows)
}

/// Events of a handler's type that have no delivery for it, committed in `since..until`.
struct Missing<'a> {
    handler: &'a handler_event::Model,
    since: i64,
    until: i64,
    organization: Option<OrganizationId>,
}

impl Missing<'_> {
    async fn insert(&self, tx: &mut Tx, now: i64) -> Result<u64, StoreError> {
        let mut inserted = 0;
        loop {
            let events = self.find(tx).await?;
            let deliveries = events
                .iter()
                .map(|event| outbox::delivery_of(event, &self.handler.handler, now))
                .collect::<Vec<_>>();
            let new = outbox::insert_deliveries(tx, deliveries).await?;
            inserted += new;
            // Nothing new of something missing: another reconciler is at the same rows.
            if new == 0 || events.len() < PAIRS as usize {
                return Ok(inserted);
            }
        }
    }

    async fn find(&self, tx: &Tx) -> Result<Vec<event::Model>, StoreError> {
        let mut values: Vec<Value> = vec![
            self.handler.event_type.clone().into(),
            self.since.into(),
            self.until.into(),
            self.handler.handler.clone().into(),
            PAIRS.into(),
        ];
        let mut of_organization = "";
        if let Some(organization) = self.organization {
            of_organization = "AND organization_id = $6";
            values.push(organization.uuid().into());
        }
        let sql = format!(
            "SELECT * FROM events WHERE event_type = $1 AND created_at >= $2 AND created_at < $3 \
             AND NOT EXISTS (SELECT 1 FROM deliveries \
                             WHERE event_id = events.id AND handler = $4) \
             {of_organization} ORDER BY created_at, id LIMIT $5"
        );
        let statement = tx.engine().statement(sql, values);
        Ok(event::Entity::find().from_raw_sql(statement).all(tx.connection()).await?)
    }
}
