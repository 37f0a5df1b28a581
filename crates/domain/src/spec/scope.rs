//! The tenant scope of a request: compiled from the caller, outside anything a body can say.

use uuid::Uuid;

use crate::{
    caller::Caller,
    column::ColumnType,
    job::JobScope,
    resource::Resource,
    selection::{ColumnRef, Predicate, Test, Value},
};

/// What the caller may see and the job is limited to, whatever the filters say (rule 31).
pub(super) fn scope_predicate(resource: &Resource, scope: JobScope, caller: &Caller) -> Predicate {
    let equal =
        |column: &ColumnRef, id: Uuid| column_test(column, Test::Equal(scope_value(column, id)));
    let among = |column: &ColumnRef, ids: Vec<Uuid>| {
        if ids.is_empty() {
            return Predicate::Any(Vec::new());
        }
        column_test(column, Test::In(ids.into_iter().map(|id| scope_value(column, id)).collect()))
    };
    let mut all = vec![equal(&resource.scope.organization, scope.organization.uuid())];
    if let (Some(column), Some(company)) = (&resource.scope.company, scope.company) {
        all.push(equal(column, company.uuid()));
    }
    if let (Some(column), Some(cooperative)) = (&resource.scope.cooperative, scope.cooperative) {
        all.push(equal(column, cooperative.uuid()));
    }
    if caller.is_restricted() {
        let mut seen = Vec::new();
        if let (Some(column), Some(companies)) = (&resource.scope.company, &caller.companies) {
            seen.push(among(column, companies.iter().map(|id| id.uuid()).collect()));
        }
        if let (Some(column), Some(cooperatives)) =
            (&resource.scope.cooperative, &caller.cooperatives)
        {
            seen.push(among(column, cooperatives.iter().map(|id| id.uuid()).collect()));
        }
        all.push(Predicate::Any(seen));
    }
    if let Some(deleted_at) = &resource.scope.deleted_at {
        all.push(column_test(deleted_at, Test::Null));
    }
    Predicate::All(all)
}

fn column_test(column: &ColumnRef, test: Test) -> Predicate {
    Predicate::Column { column: column.clone(), test, negated: false }
}

fn scope_value(column: &ColumnRef, id: Uuid) -> Value {
    if column.column_type == ColumnType::Uuid {
        Value::Uuid(id)
    } else {
        Value::Text(id.to_string())
    }
}
