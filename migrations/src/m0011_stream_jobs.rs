//! What the live stream needs of jobs: their application, and what was told of those that wait.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        crate::run_all(manager, &COLUMNS).await
    }
}

const COLUMNS: [&str; 4] = [
    // The name alone: the organization is a column of its own.
    "ALTER TABLE jobs ADD COLUMN application TEXT NOT NULL DEFAULT 'outport'",
    "ALTER TABLE jobs ADD COLUMN waiting_told BOOLEAN NOT NULL DEFAULT FALSE",
    "ALTER TABLE jobs ADD COLUMN position_told_at BIGINT NOT NULL DEFAULT 0",
    // What the last claim knew as the most of running jobs; 0 before the first.
    "ALTER TABLE turns ADD COLUMN running_most INTEGER NOT NULL DEFAULT 0",
];
