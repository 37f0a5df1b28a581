//! The schema of Outport's own state, one definition for `SQLite` and `PostgreSQL`.
//!
//! **Words.** A *migration* is a step that was released once and never changes again; a change
//! is a new one.
//!
//! **Invariants.** Instants are `BIGINT` milliseconds since 1970 in UTC on both engines: they
//! compare the same way everywhere, and an event's text and its row cannot differ by a
//! fraction. JSON is `TEXT`, never `jsonb`: members, order and digits survive. Partial indexes
//! name their states literally, so hot queries must too.
//!
//! **Absent on purpose.** Steps back: a release that needs the old schema is restored from a
//! backup, and a `down` that drops people's data is never what they meant.

mod m0001_jobs;
mod m0002_outbox;
mod m0003_access;
mod m0004_compression;
mod m0005_split_exports;
mod m0006_resolved_filters;
mod m0007_result_signatures;
mod m0008_sealed_parts;
mod m0009_facade;
mod m0010_channels;
mod m0011_stream_jobs;
mod m0012_stream_access;
mod m0013_outbox_indexes;
mod m0014_job_products;
mod m0015_job_connections;

pub use sea_orm_migration::MigratorTrait;
use sea_orm_migration::prelude::*;

/// All migrations, oldest first.
#[derive(Debug)]
pub struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m0001_jobs::Migration),
            Box::new(m0002_outbox::Migration),
            Box::new(m0003_access::Migration),
            Box::new(m0004_compression::Migration),
            Box::new(m0005_split_exports::Migration),
            Box::new(m0006_resolved_filters::Migration),
            Box::new(m0007_result_signatures::Migration),
            Box::new(m0008_sealed_parts::Migration),
            Box::new(m0009_facade::Migration),
            Box::new(m0010_channels::Migration),
            Box::new(m0011_stream_jobs::Migration),
            Box::new(m0012_stream_access::Migration),
            Box::new(m0013_outbox_indexes::Migration),
            Box::new(m0014_job_products::Migration),
            Box::new(m0015_job_connections::Migration),
        ]
    }
}

/// Runs statements that both engines understand word for word (indexes, for the most part).
async fn run_all(manager: &SchemaManager<'_>, statements: &[&str]) -> Result<(), DbErr> {
    for statement in statements {
        manager.get_connection().execute_unprepared(statement).await?;
    }
    Ok(())
}
