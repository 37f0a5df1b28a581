//! What the store must report for each file of a split export. NULL for files of before this,
//! which are stored as they are delivered.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        crate::run_all(manager, &["ALTER TABLE parts ADD COLUMN stored_bytes BIGINT"]).await
    }
}
