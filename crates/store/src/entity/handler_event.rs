//! An event type that a handler wants.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "handler_events")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub handler: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub event_type: String,
    pub registered_at: i64,
    pub reconciled_to: i64,
}

#[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
