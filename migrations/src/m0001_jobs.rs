//! Jobs and what surrounds their queue: runs, turns, requesters, idempotency keys.

use sea_orm_migration::{
    prelude::*,
    schema::{
        big_integer, big_integer_null, binary, boolean, integer, text, text_null, uuid, uuid_null,
    },
};

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_table(jobs()).await?;
        manager.create_table(runs()).await?;
        manager.create_table(turns()).await?;
        manager.create_table(requesters()).await?;
        manager.create_table(idempotency_keys()).await?;
        crate::run_all(manager, &INDEXES).await
    }
}

const INDEXES: [&str; 11] = [
    // The queue of one organization, oldest due first.
    "CREATE INDEX jobs_due ON jobs (organization_id, due_at, id) WHERE status = 'PENDING'",
    // What runs. Without the lease's expiry, so that a renewal touches no index.
    "CREATE INDEX jobs_running ON jobs (id) WHERE status IN ('PROCESSING', 'CANCELING')",
    "CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE status = 'COMPLETED'",
    "CREATE INDEX jobs_ended ON jobs (finished_at) WHERE status IN ('FAILED', 'CANCELED', 'EXPIRED')",
    "CREATE INDEX jobs_list ON jobs (organization_id, id)",
    "CREATE INDEX jobs_list_by_status ON jobs (organization_id, status, id)",
    "CREATE INDEX jobs_list_by_resource ON jobs (organization_id, resource, id)",
    "CREATE INDEX jobs_list_by_schedule ON jobs (schedule_id, id) WHERE schedule_id IS NOT NULL",
    "CREATE INDEX runs_unswept ON runs (sweep_due_at) WHERE sweep_due_at IS NOT NULL",
    "CREATE INDEX turns_waiting ON turns (last_turn_at) WHERE queued > 0",
    "CREATE INDEX idempotency_keys_ending ON idempotency_keys (expires_at)",
];

fn jobs() -> TableCreateStatement {
    Table::create()
        .table("jobs")
        .col(uuid("id").primary_key())
        .col(uuid_null("schedule_id"))
        .col(uuid("organization_id"))
        .col(text("scope_type"))
        .col(uuid_null("company_id"))
        .col(uuid_null("cooperative_id"))
        .col(uuid("user_id"))
        .col(text("caller"))
        .col(text("resource"))
        .col(text("format"))
        .col(text("columns"))
        .col(text("filters"))
        .col(text("request"))
        .col(text_null("metadata"))
        .col(text("locale"))
        .col(text_null("notify_email"))
        .col(text("file_name"))
        .col(text_null("file_key"))
        .col(big_integer_null("size_bytes"))
        .col(big_integer_null("stored_bytes"))
        .col(big_integer_null("total_rows"))
        .col(text_null("sha256"))
        .col(big_integer("replaced_cells").default(0))
        .col(big_integer("guarded_cells").default(0))
        .col(big_integer_null("snapshot_at"))
        .col(text("status"))
        .col(text_null("failure_code"))
        .col(text_null("failure_message"))
        .col(integer("run").default(0))
        .col(integer("failures").default(0))
        .col(text_null("stage"))
        .col(big_integer("rows_done").default(0))
        .col(big_integer_null("rows_total"))
        .col(boolean("rows_total_is_estimate").default(false))
        .col(big_integer("due_at"))
        .col(uuid_null("lease_token"))
        .col(big_integer_null("lease_expires_at"))
        .col(text_null("worker"))
        .col(big_integer_null("final_sweep_at"))
        .col(big_integer_null("expires_at"))
        .col(big_integer_null("started_at"))
        .col(big_integer_null("finished_at"))
        .col(big_integer("created_at"))
        .col(big_integer("updated_at"))
        .col(big_integer_null("deleted_at"))
        .take()
}

fn runs() -> TableCreateStatement {
    Table::create()
        .table("runs")
        .col(uuid("job_id"))
        .col(integer("run"))
        .col(text("worker"))
        .col(big_integer("started_at"))
        .col(big_integer_null("finished_at"))
        .col(text_null("outcome"))
        .col(text_null("failure_code"))
        .col(text_null("failure_message"))
        .col(text_null("object_key"))
        .col(text_null("upload_id"))
        .col(big_integer_null("swept_at"))
        // When the sweeper is to look at it; null: not now.
        .col(big_integer_null("sweep_due_at"))
        .primary_key(Index::create().col("job_id").col("run"))
        .foreign_key(ForeignKey::create().from("runs", "job_id").to("jobs", "id"))
        .take()
}

fn turns() -> TableCreateStatement {
    Table::create()
        .table("turns")
        .col(uuid("organization_id").primary_key())
        .col(integer("queued").default(0))
        .col(integer("running").default(0))
        .col(big_integer("last_turn_at").default(0))
        .take()
}

fn requesters() -> TableCreateStatement {
    Table::create()
        .table("requesters")
        .col(uuid("job_id"))
        .col(uuid("user_id"))
        .primary_key(Index::create().col("job_id").col("user_id"))
        .foreign_key(ForeignKey::create().from("requesters", "job_id").to("jobs", "id"))
        .take()
}

fn idempotency_keys() -> TableCreateStatement {
    Table::create()
        .table("idempotency_keys")
        .col(uuid("organization_id"))
        .col(uuid("user_id"))
        // The nil UUID for callers without an API token: a null would never be a duplicate.
        .col(uuid("token_id"))
        .col(text("key"))
        .col(binary("fingerprint"))
        .col(uuid("job_id"))
        .col(big_integer("expires_at"))
        .primary_key(
            Index::create().col("organization_id").col("user_id").col("token_id").col("key"),
        )
        .take()
}
