//! What the relative dates of a job's filters meant at its request; NULL where there are none, and
//! for all jobs before this.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        crate::run_all(manager, &["ALTER TABLE jobs ADD COLUMN resolved_filters TEXT"]).await
    }
}
