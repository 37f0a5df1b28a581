//! Connections that organizations store, and what kind of work a job is: an export, or what is
//! asked for through the Fetcher facade.

use sea_orm_migration::{
    prelude::*,
    schema::{big_integer, big_integer_null, integer, text, text_null, uuid},
};

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(connections()).await?;
        crate::run_all(manager, &STATEMENTS).await
    }
}

const STATEMENTS: [&str; 3] = [
    "ALTER TABLE jobs ADD COLUMN kind TEXT NOT NULL DEFAULT 'export'",
    // A name is free again when its connection is deleted.
    "CREATE UNIQUE INDEX connections_by_name ON connections (organization_id, name) \
     WHERE deleted_at IS NULL",
    "CREATE INDEX connections_list ON connections (organization_id, id) WHERE deleted_at IS NULL",
];

fn connections() -> TableCreateStatement {
    Table::create()
        .table("connections")
        .col(uuid("id").primary_key())
        .col(uuid("organization_id"))
        .col(text("name"))
        .col(text_null("product"))
        .col(text("kind"))
        .col(text("host"))
        .col(integer("port"))
        .col(text("database"))
        .col(text("username"))
        .col(text_null("schema"))
        .col(text("tls_mode"))
        .col(text_null("tls_ca"))
        .col(text_null("tls_certificate"))
        // The password and the client's TLS key, encrypted.
        .col(text("credentials"))
        .col(text_null("metadata"))
        .col(big_integer("created_at"))
        .col(big_integer("updated_at"))
        .col(big_integer_null("deleted_at"))
        .take()
}
