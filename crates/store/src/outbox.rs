//! The outbox: an event row and one delivery for each active handler, in the transaction that
//! makes the fact true.

use outport_contract::export_event::ExportEventType;
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

/// Appends one event for each of these jobs, all of one type, with its deliveries.
pub async fn emit(
    tx: &mut Tx,
    event_type: ExportEventType,
    jobs: &[ExportJob],
) -> Result<(), StoreError> {
    let now = tx.now().await?;
    let events = jobs
        .iter()
        .map(|job| {
            Ok(event::Model {
                id: EventId::new().uuid(),
                event_type: event_type.name().to_owned(),
                job_id: job.id.uuid(),
                organization_id: job.scope.organization.uuid(),
                body: serde_json::to_string(&job.event(event_type))
                    .map_err(|error| StoreError::Refused(error.into()))?,
                created_at: now,
            })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    for chunk in events.chunks(ROWS_PER_INSERT) {
        let rows = chunk.iter().map(|event| event.clone().into_active_model());
        event::Entity::insert_many(rows).exec_without_returning(tx.connection()).await?;
    }
    let handlers = active_handlers(tx, event_type).await?;
    let deliveries = events
        .iter()
        .flat_map(|event| handlers.iter().map(move |handler| delivery_of(event, handler, now)))
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

async fn active_handlers(tx: &Tx, event_type: ExportEventType) -> Result<Vec<String>, StoreError> {
    let statement = tx.engine().statement(
        "SELECT handler FROM handler_events JOIN handlers ON name = handler \
         WHERE event_type = $1 AND retired_at IS NULL ORDER BY handler",
        [event_type.name().into()],
    );
    let rows = tx.connection().query_all_raw(statement).await?;
    rows.iter().map(|row| Ok(row.try_get("", "handler")?)).collect()
}
