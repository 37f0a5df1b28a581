//! The stored connections that a job was accepted to read, each with its product, as JSON: they may
//! be deleted or have other names since. NULL for all jobs before this.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        crate::run_all(manager, &["ALTER TABLE jobs ADD COLUMN products TEXT"]).await
    }
}
