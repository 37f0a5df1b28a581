//! What may be exported, as far as the caller may read it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use outport_domain::{
    caller::{Caller, Permission},
    filter::Operator,
    job::{Compression, Format, ScopeType},
    limits::{Limits, fixed},
    locale::Locale,
    resource::{Column, Resource},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    ApiState,
    extract::{Authorized, Params, Segment},
    problem::{Problem, ProblemView},
};

/// A resource.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Resource)]
pub struct ResourceView {
    name: String,
    /// In the default order.
    columns: Vec<ColumnView>,
    formats: Vec<&'static str>,
    /// Of the formats `CSV`, `NDJSON` and `JSON`; the others have only `none`.
    compressions: Vec<&'static str>,
    scope_types: Vec<&'static str>,
    /// The zone of requests that name none.
    time_zone: String,
    limits: LimitsView,
}

/// A column that the caller may read.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Column)]
pub struct ColumnView {
    key: String,
    /// The header by language.
    label: BTreeMap<&'static str, String>,
    #[serde(rename = "type")]
    column_type: &'static str,
    /// What filters may use.
    operators: Vec<&'static str>,
    /// Whether it is exported when a request names no columns.
    default: bool,
}

/// The bounds of one export.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Limits)]
pub struct LimitsView {
    columns: usize,
    conditions: usize,
    values_per_list: usize,
    rows: u64,
    bytes: u64,
}

/// All resources; there are few, so there is one page.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ResourcePage)]
pub struct ResourcePageView {
    items: Vec<ResourceView>,
    /// Always null.
    next_cursor: Option<String>,
}

/// What may be exported.
#[utoipa::path(get, path = "/v1/resources", tag = "resources",
    security(("bearer" = ["resources:read"])),
    responses(
        (status = 200, description = "A page of resources", body = ResourcePageView),
        (status = 403, description = "The caller lacks the right", body = ProblemView),
    ))]
pub async fn list(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    params: Params,
) -> Result<Json<ResourcePageView>, Problem> {
    let caller = caller.with(Permission::ResourcesRead)?;
    params.known(&[]).finish()?;
    let items =
        state.catalogue.0.values().map(|resource| view(resource, &caller, &state.limits)).collect();
    Ok(Json(ResourcePageView { items, next_cursor: None }))
}

/// One resource.
#[utoipa::path(get, path = "/v1/resources/{name}", tag = "resources",
    security(("bearer" = ["resources:read"])),
    params(("name" = String, Path)),
    responses(
        (status = 200, description = "The resource", body = ResourceView),
        (status = 404, description = "There is no such thing in reach of the caller", body = ProblemView),
    ))]
pub async fn get(
    State(state): State<Arc<ApiState>>,
    caller: Authorized,
    name: Segment,
) -> Result<Json<ResourceView>, Problem> {
    let caller = caller.with(Permission::ResourcesRead)?;
    let resource = state.catalogue.0.get(&name.0).ok_or_else(Problem::not_found)?;
    Ok(Json(view(resource, &caller, &state.limits)))
}

fn view(resource: &Resource, caller: &Caller, limits: &Limits) -> ResourceView {
    let visible = |column: &&Column| {
        column.requires_scope.as_ref().is_none_or(|scope| caller.scopes.contains(scope))
    };
    let scopes = [
        (ScopeType::Organization, true),
        (ScopeType::Company, resource.scope.company.is_some()),
        (ScopeType::Cooperative, resource.scope.cooperative.is_some()),
    ];
    ResourceView {
        name: resource.name.clone(),
        columns: resource.columns.iter().filter(visible).map(column).collect(),
        formats: Format::ALL.into_iter().map(Format::name).collect(),
        compressions: Compression::ALL.into_iter().map(Compression::name).collect(),
        scope_types: scopes
            .into_iter()
            .filter(|(_, declared)| *declared)
            .map(|(scope, _)| scope.name())
            .collect(),
        time_zone: resource.time_zone.name().to_owned(),
        limits: LimitsView {
            columns: fixed::COLUMNS_PER_EXPORT,
            conditions: fixed::CONDITIONS_PER_EXPORT,
            values_per_list: fixed::VALUES_PER_LIST,
            rows: limits.rows_per_export,
            bytes: limits.bytes_per_export,
        },
    }
}

fn column(column: &Column) -> ColumnView {
    ColumnView {
        key: column.key.clone(),
        label: Locale::ALL
            .into_iter()
            .map(|locale| (locale.tag(), column.label(locale).to_owned()))
            .collect(),
        column_type: column.column_type.name(),
        operators: Operator::ALL
            .into_iter()
            .filter(|operator| operator.suits(column.column_type))
            .map(Operator::name)
            .collect(),
        default: column.default,
    }
}
