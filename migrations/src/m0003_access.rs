//! Who may call and who did: tokens, revocations, downloads.

use sea_orm_migration::{
    prelude::*,
    schema::{big_integer, big_integer_null, binary, text, text_null, uuid, uuid_null},
};

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(tokens()).await?;
        manager.create_table(revocations()).await?;
        manager.create_table(downloads()).await?;
        crate::run_all(manager, &INDEXES).await
    }
}

const INDEXES: [&str; 3] = [
    "CREATE UNIQUE INDEX tokens_by_secret ON tokens (secret_sha256)",
    "CREATE INDEX tokens_list ON tokens (organization_id, id)",
    "CREATE INDEX downloads_of_job ON downloads (job_id, id)",
];

fn tokens() -> TableCreateStatement {
    Table::create()
        .table("tokens")
        .col(uuid("id").primary_key())
        .col(uuid("organization_id"))
        .col(uuid("user_id"))
        .col(text("name"))
        .col(text("caller"))
        .col(binary("secret_sha256"))
        .col(big_integer("created_at"))
        .col(big_integer_null("expires_at"))
        .col(big_integer_null("revoked_at"))
        .take()
}

fn revocations() -> TableCreateStatement {
    Table::create()
        .table("revocations")
        .col(uuid("organization_id"))
        // The nil UUID when the whole organization is meant: a null would never be a duplicate.
        .col(uuid("user_id"))
        .col(big_integer("revoked_at"))
        .primary_key(Index::create().col("organization_id").col("user_id"))
        .take()
}

fn downloads() -> TableCreateStatement {
    Table::create()
        .table("downloads")
        .col(uuid("id").primary_key())
        .col(uuid("job_id"))
        .col(uuid("organization_id"))
        .col(uuid_null("user_id"))
        .col(text("via"))
        .col(text_null("address"))
        .col(text_null("user_agent"))
        .col(big_integer("at"))
        .take()
}
