//! Events, the handlers that want them, and the deliveries between the two.

use sea_orm_migration::{
    prelude::*,
    schema::{big_integer, big_integer_null, integer, text, text_null, uuid, uuid_null},
};

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(events()).await?;
        manager.create_table(handlers()).await?;
        manager.create_table(handler_events()).await?;
        manager.create_table(deliveries()).await?;
        manager.create_table(receipts()).await?;
        crate::run_all(manager, &INDEXES).await
    }
}

const INDEXES: [&str; 8] = [
    "CREATE INDEX events_of_job ON events (job_id, created_at, id)",
    "CREATE INDEX events_by_type ON events (event_type, created_at)",
    "CREATE UNIQUE INDEX deliveries_once ON deliveries (event_id, handler, target)",
    // A running delivery is due when its lease ends.
    "CREATE INDEX deliveries_due ON deliveries (handler, due_at) WHERE status IN ('PENDING', 'RUNNING')",
    "CREATE INDEX deliveries_list ON deliveries (organization_id, id)",
    "CREATE INDEX deliveries_of_job ON deliveries (job_id, id)",
    "CREATE INDEX deliveries_dead ON deliveries (organization_id, id) WHERE status = 'DEAD'",
    "CREATE INDEX deliveries_not_done ON deliveries (handler, status) WHERE status <> 'DONE'",
];

fn events() -> TableCreateStatement {
    Table::create()
        .table("events")
        .col(uuid("id").primary_key())
        .col(text("event_type"))
        .col(uuid("job_id"))
        .col(uuid("organization_id"))
        .col(text("body"))
        .col(big_integer("created_at"))
        .take()
}

fn handlers() -> TableCreateStatement {
    Table::create()
        .table("handlers")
        .col(text("name").primary_key())
        .col(big_integer("registered_at"))
        .col(big_integer_null("retired_at"))
        .take()
}

fn handler_events() -> TableCreateStatement {
    Table::create()
        .table("handler_events")
        .col(text("handler"))
        .col(text("event_type"))
        .col(big_integer("registered_at"))
        // Up to where the reconciler has looked.
        .col(big_integer("reconciled_to"))
        .primary_key(Index::create().col("handler").col("event_type"))
        .foreign_key(ForeignKey::create().from("handler_events", "handler").to("handlers", "name"))
        .take()
}

fn deliveries() -> TableCreateStatement {
    Table::create()
        .table("deliveries")
        .col(uuid("id").primary_key())
        .col(uuid("event_id"))
        .col(text("handler"))
        .col(text("target"))
        .col(uuid("job_id"))
        .col(uuid("organization_id"))
        .col(text("status"))
        .col(integer("run").default(0))
        .col(integer("failures").default(0))
        .col(big_integer("due_at"))
        .col(uuid_null("lease_token"))
        .col(text_null("last_error"))
        .col(big_integer("created_at"))
        .col(big_integer_null("finished_at"))
        .foreign_key(ForeignKey::create().from("deliveries", "event_id").to("events", "id"))
        .take()
}

fn receipts() -> TableCreateStatement {
    Table::create()
        .table("receipts")
        .col(uuid("event_id"))
        .col(text("handler"))
        .col(text("target"))
        .col(text("receipt"))
        .col(big_integer("created_at"))
        .primary_key(Index::create().col("event_id").col("handler").col("target"))
        .take()
}
