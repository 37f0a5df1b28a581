//! Who may follow the live stream, and what was posted to it: revoked channels, tickets, and the
//! client ids of posted events.

use sea_orm_migration::{
    prelude::*,
    schema::{big_integer, big_integer_null, binary, text, uuid},
};

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(channel_revocations()).await?;
        manager.create_table(stream_tickets()).await?;
        manager.create_table(posted_events()).await?;
        crate::run_all(manager, &INDEXES).await
    }
}

/// All processes look for what was revoked lately every few seconds.
const INDEXES: [&str; 5] = [
    "CREATE INDEX tokens_revoked ON tokens (revoked_at) WHERE revoked_at IS NOT NULL",
    "CREATE INDEX revocations_by_time ON revocations (revoked_at)",
    "CREATE INDEX channel_revocations_by_time ON channel_revocations (revoked_at)",
    "CREATE INDEX stream_tickets_by_end ON stream_tickets (expires_at)",
    "CREATE INDEX posted_events_by_end ON posted_events (expires_at)",
];

fn channel_revocations() -> TableCreateStatement {
    Table::create()
        .table("channel_revocations")
        .col(text("channel").primary_key())
        .col(uuid("organization_id"))
        .col(big_integer("revoked_at"))
        .take()
}

fn stream_tickets() -> TableCreateStatement {
    Table::create()
        .table("stream_tickets")
        .col(binary("secret_sha256").primary_key())
        .col(uuid("organization_id"))
        .col(uuid("user_id"))
        .col(text("caller"))
        // Of the credential that it was bought with.
        .col(uuid("owner_id"))
        .col(big_integer_null("credential_expires_at"))
        .col(big_integer("expires_at"))
        .take()
}

fn posted_events() -> TableCreateStatement {
    Table::create()
        .table("posted_events")
        .col(uuid("organization_id"))
        .col(text("client_id"))
        .col(binary("fingerprint"))
        .col(uuid("event_id"))
        .col(big_integer("expires_at"))
        .primary_key(Index::create().col("organization_id").col("client_id"))
        .take()
}
