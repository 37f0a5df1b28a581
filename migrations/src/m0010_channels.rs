//! The live stream: events, the channels that number them, and the generation of the store.

use sea_orm_migration::{
    prelude::*,
    schema::{big_integer, text, text_null, uuid},
};

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(channels()).await?;
        manager.create_table(stream_events()).await?;
        manager.create_table(channel_events()).await?;
        manager.create_table(epochs()).await?;
        crate::run_all(manager, &INDEXES).await
    }
}

const INDEXES: [&str; 2] = [
    "CREATE INDEX channel_events_of_event ON channel_events (event_id)",
    "CREATE INDEX stream_events_by_time ON stream_events (time)",
];

fn channels() -> TableCreateStatement {
    Table::create()
        .table("channels")
        .col(text("channel").primary_key())
        .col(uuid("organization_id"))
        // The highest sequence that was given.
        .col(big_integer("head"))
        // The highest sequence that was purged.
        .col(big_integer("floor").default(0))
        .take()
}

fn stream_events() -> TableCreateStatement {
    Table::create()
        .table("stream_events")
        .col(uuid("id").primary_key())
        .col(uuid("organization_id"))
        .col(text("event_type"))
        .col(text("scope"))
        .col(text("data"))
        .col(big_integer("time"))
        .take()
}

fn channel_events() -> TableCreateStatement {
    Table::create()
        .table("channel_events")
        .col(text("channel"))
        .col(big_integer("sequence"))
        .col(uuid("event_id"))
        .primary_key(Index::create().col("channel").col("sequence"))
        .take()
}

/// One row, made at the first start.
fn epochs() -> TableCreateStatement {
    Table::create()
        .table("epochs")
        .col(text("epoch").primary_key())
        // The database that it was made in, as far as the engine can tell one from its copy.
        .col(text_null("bound_to"))
        .col(big_integer("created_at"))
        .take()
}
