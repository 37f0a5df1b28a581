//! The duty of one handler towards one event. While it runs, `due_at` is the end of its lease.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "deliveries")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub event_id: Uuid,
    pub handler: String,
    pub target: String,
    pub job_id: Uuid,
    pub organization_id: Uuid,
    pub status: String,
    pub run: i32,
    pub failures: i32,
    pub due_at: i64,
    pub lease_token: Option<Uuid>,
    pub last_error: Option<String>,
    pub created_at: i64,
    pub finished_at: Option<i64>,
}

#[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
