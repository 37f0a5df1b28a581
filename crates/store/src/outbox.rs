//! The outbox: an event row and one delivery for each active handler, in the transaction that
//! makes the fact true.

use outport_contract::{export_event::ExportEventType, job_event::JobEvent};
use outport_domain::{
    id::{DeliveryId, EventId},
    job::ExportJob,
};
use sea_orm::{ConnectionTrait as _, EntityTrait as _, IntoActiveModel as _, TryInsertResult};
use uuid::Uuid;

use crate::{
    StoreError, Tx,
    deliveries::DeliveryStatus,
    entity::{delivery, event},
    hints::Topic,
};

/// Rows of one INSERT, so that no statement has more values than either engine takes.
pub const ROWS_PER_INSERT: usize = 500;

/// An event of a job that is about to be appended. Its body stays as it is for ever, whatever
/// becomes of the job's row.
pub struct NewEvent<'a> {
    job: &'a ExportJob,
    name: &'static str,
    body: String,
}

impl<'a> NewEvent<'a> {
    /// `export.*`: the whole job, as its row is now.
    pub fn of_export(job: &'a ExportJob, event_type: ExportEventType) -> Result<Self, StoreError> {
        let body = serde_json::to_string(&job.event(event_type))
            .map_err(|error| StoreError::Refused(error.into()))?;
        Ok(Self { job, name: event_type.name(), body })
    }

    /// `job.*`, for a broker.
    pub fn of_job(job: &'a ExportJob, event: &JobEvent) -> Self {
        Self { job, name: event.event_type().name(), body: event.body() }
    }

    fn row(self, now: i64) -> event::Model {
        event::Model {
            id: EventId::new().uuid(),
            event_type: self.name.to_owned(),
            job_id: self.job.id.uuid(),
            organization_id: self.job.scope.organization.uuid(),
            body: self.body,
            created_at: now,
        }
    }
}

/// Appends events, in order, with their deliveries.
pub async fn emit(
    tx: &mut Tx,
    events: impl IntoIterator<Item = NewEvent<'_>>,
) -> Result<(), StoreError> {
    let now = tx.now().await?;
    let events = events.into_iter().map(|event| event.row(now)).collect::<Vec<_>>();
    for chunk in events.chunks(ROWS_PER_INSERT) {
        let rows = chunk.iter().map(|event| event.clone().into_active_model());
        event::Entity::insert_many(rows).exec_without_returning(tx.connection()).await?;
    }
    let wanted = active_handlers(tx).await?;
    let deliveries = events
        .iter()
        .flat_map(|event| {
            let wanted = wanted.iter().filter(|wanted| wanted.event_type == event.event_type);
            wanted.map(move |wanted| delivery_of(event, &wanted.handler, now))
        })
        .collect::<Vec<_>>();
    insert_deliveries(tx, deliveries).await?;
    Ok(())
}

/// A delivery that is due at once.
pub fn delivery_of(event: &event::Model, handler: &str, now: i64) -> delivery::Model {
    delivery::Model {
        id: DeliveryId::new().uuid(),
        event_id: event.id,
        handler: handler.to_owned(),
        target: String::new(),
        job_id: event.job_id,
        organization_id: event.organization_id,
        status: DeliveryStatus::Pending.name().to_owned(),
        run: 0,
        failures: 0,
        due_at: now,
        lease_token: None::<Uuid>,
        last_error: None,
        created_at: now,
        finished_at: None,
    }
}

/// Inserts deliveries, leaving alone those that exist. Returns how many are new.
pub async fn insert_deliveries(
    tx: &mut Tx,
    deliveries: Vec<delivery::Model>,
) -> Result<u64, StoreError> {
    let mut inserted = 0;
    for chunk in deliveries.chunks(ROWS_PER_INSERT) {
        let rows = chunk.iter().map(|delivery| delivery.clone().into_active_model());
        inserted += delivery::Entity::insert_many(rows)
            .on_conflict_do_nothing_on([
                delivery::Column::EventId,
                delivery::Column::Handler,
                delivery::Column::Target,
            ])
            .exec_without_returning(tx.connection())
            .await
            .map(|result| inserted_rows(&result))?;
    }
    if inserted > 0 {
        tx.touch(Topic::Deliveries);
    }
    Ok(inserted)
}

fn inserted_rows(result: &TryInsertResult<u64>) -> u64 {
    match result {
        TryInsertResult::Inserted(rows) => *rows,
        TryInsertResult::Empty | TryInsertResult::Conflicted => 0,
    }
}

/// An event type that an active handler wants.
struct Wanted {
    event_type: String,
    handler: String,
}

/// All of them: there are a few for each handler.
async fn active_handlers(tx: &Tx) -> Result<Vec<Wanted>, StoreError> {
    let statement = tx.engine().statement(
        "SELECT event_type, handler FROM handler_events JOIN handlers ON name = handler \
         WHERE retired_at IS NULL ORDER BY handler",
        [],
    );
    let rows = tx.connection().query_all_raw(statement).await?;
    rows.iter()
        .map(|row| {
            let (event_type, handler) =
                (row.try_get("", "event_type")?, row.try_get("", "handler")?);
            Ok(Wanted { event_type, handler })
        })
        .collect()
}
