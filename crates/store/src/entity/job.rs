//! An export job. JSON members are text as accepted.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "jobs")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub kind: String,
    pub schedule_id: Option<Uuid>,
    pub organization_id: Uuid,
    pub scope_type: String,
    pub company_id: Option<Uuid>,
    pub cooperative_id: Option<Uuid>,
    pub user_id: Uuid,
    pub caller: String,
    pub resource: String,
    pub format: String,
    pub compression: String,
    pub split: bool,
    pub columns: String,
    pub filters: String,
    pub resolved_filters: Option<String>,
    pub request: String,
    pub metadata: Option<String>,
    pub locale: String,
    pub notify_email: Option<String>,
    pub file_name: String,
    pub file_key: Option<String>,
    pub size_bytes: Option<i64>,
    pub stored_bytes: Option<i64>,
    pub total_rows: Option<i64>,
    pub sha256: Option<String>,
    pub hmac: Option<String>,
    pub hmac_key_version: Option<i32>,
    pub protection: String,
    pub replaced_cells: i64,
    pub guarded_cells: i64,
    pub snapshot_at: Option<i64>,
    pub status: String,
    pub failure_code: Option<String>,
    pub failure_message: Option<String>,
    pub run: i32,
    pub failures: i32,
    pub stage: Option<String>,
    pub rows_done: i64,
    pub rows_total: Option<i64>,
    pub rows_total_is_estimate: bool,
    pub due_at: i64,
    pub lease_token: Option<Uuid>,
    pub lease_expires_at: Option<i64>,
    pub worker: Option<String>,
    pub final_sweep_at: Option<i64>,
    pub expires_at: Option<i64>,
    pub started_at: Option<i64>,
    pub finished_at: Option<i64>,
    pub created_at: i64,
    pub updated_at: i64,
    pub deleted_at: Option<i64>,
    pub application: String,
    pub waiting_told: bool,
    pub position_told_at: i64,
    pub products: Option<String>,
    pub connection_ids: Option<String>,
}

#[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
