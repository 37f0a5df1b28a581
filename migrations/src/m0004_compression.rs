//! How a job's file is compressed; `none` for all jobs before this.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let column = "ALTER TABLE jobs ADD COLUMN compression TEXT NOT NULL DEFAULT 'none'";
        crate::run_all(manager, &[column]).await
    }
}
