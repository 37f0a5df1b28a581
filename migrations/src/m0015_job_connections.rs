//! The ids of the stored connections that a job was accepted to read, by name, as JSON: it reads these
//! and no others that have their names later. NULL for exports, and for all jobs before this.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        crate::run_all(manager, &["ALTER TABLE jobs ADD COLUMN connection_ids TEXT"]).await
    }
}
