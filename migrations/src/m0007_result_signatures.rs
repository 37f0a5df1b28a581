//! How results are signed (HMAC-SHA256 and the version of its key) and how they are stored. Without
//! a signature for all files before this, which are stored as they are delivered.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let columns = [
            "ALTER TABLE jobs ADD COLUMN hmac TEXT",
            "ALTER TABLE jobs ADD COLUMN hmac_key_version INTEGER",
            "ALTER TABLE jobs ADD COLUMN protection TEXT NOT NULL DEFAULT 'none'",
            "ALTER TABLE parts ADD COLUMN hmac TEXT",
            "ALTER TABLE parts ADD COLUMN hmac_key_version INTEGER",
        ];
        crate::run_all(manager, &columns).await
    }
}
