//! One file of a split export: where a run wrote it, and what it came to.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "parts")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub job_id: Uuid,
    #[sea_orm(primary_key, auto_increment = false)]
    pub run: i32,
    #[sea_orm(primary_key, auto_increment = false)]
    pub number: i32,
    pub object_key: String,
    pub upload_id: Option<String>,
    pub row_count: Option<i64>,
    pub size_bytes: Option<i64>,
    pub stored_bytes: Option<i64>,
    pub sha256: Option<String>,
    pub hmac: Option<String>,
    pub hmac_key_version: Option<i32>,
}

#[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
