//! Exports of several files: what each run wrote, and which of them was downloaded.

use sea_orm_migration::{
    prelude::*,
    schema::{big_integer_null, integer, text, text_null, uuid},
};

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(parts()).await?;
        let columns = [
            "ALTER TABLE jobs ADD COLUMN split BOOLEAN NOT NULL DEFAULT FALSE",
            "ALTER TABLE downloads ADD COLUMN part INTEGER",
        ];
        crate::run_all(manager, &columns).await
    }
}

fn parts() -> TableCreateStatement {
    Table::create()
        .table("parts")
        .col(uuid("job_id"))
        .col(integer("run"))
        .col(integer("number"))
        .col(text("object_key"))
        .col(text_null("upload_id"))
        // Null until the file is whole.
        .col(big_integer_null("row_count"))
        .col(big_integer_null("size_bytes"))
        .col(text_null("sha256"))
        .primary_key(Index::create().col("job_id").col("run").col("number"))
        .foreign_key(ForeignKey::create().from("parts", "job_id").to("jobs", "id"))
        .take()
}
