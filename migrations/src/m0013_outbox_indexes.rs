//! Fewer indexes of deliveries: each is written with every claim and every end. What is not done
//! is found by the indexes of what is due and of what is dead; what a job has, by its events.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        crate::run_all(manager, &["DROP INDEX deliveries_not_done", "DROP INDEX deliveries_of_job"])
            .await
    }
}
