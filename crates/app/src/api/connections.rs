//! Connections that an organization stores, as clients of a Fetcher manage them. What is secret
//! goes in and never comes out.

mod body;
mod view;

use std::{sync::Arc, time::Instant};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use chrono::Utc;
use outport_domain::{
    caller::Permission, connection::Connection, data_request, id::ConnectionId, resource::Resource,
};
use outport_pipeline::{
    connections::Unusable,
    fetcher::{Fault, Refused, prepare},
};
use outport_store::{
    Tx,
    connections::{self, Changed},
    fetcher as jobs,
};

use self::{
    body::{ConnectionBody, MappedFieldsBody, read},
    view::{ConnectionPageView, ConnectionView, SchemaView, TestView, ValidationView, schema_of},
};
use super::{
    ApiState,
    extract::{Authorized, Params, Segment},
    fetcher::{
        AnyRefusal, Asked, AskedBody, Facade, FetCode, NoQuery, Product, Refusal, RefusalView,
        facade, path_id, whole_caller,
    },
    problem::{Outcome, Problem, ProblemCode},
};

/// Connections of a page, when the request does not say, and at most.
const PAGE: (u32, u32) = (10, 100);

/// Stores a connection.
#[utoipa::path(post, path = "/v1/management/connections", tag = "connections",
    security(("bearer" = ["connections:admin"])),
    params(("X-Product-Name" = Option<String>, Header, description = "The product that it is for")),
    request_body(content = ConnectionBody, content_type = "application/json"),
    responses(AnyRefusal,
        (status = 201, description = "Stored", body = ConnectionView),
        (status = 400, description = "Every wrong field, or a host that is not allowed", body = RefusalView),
        (status = 409, description = "Another connection has this name", body = RefusalView),
    ))]
pub async fn create(
    State(state): State<Arc<ApiState>>,
    Asked(caller): Asked<Authorized>,
    Product(product): Product,
    _: NoQuery,
    AskedBody(body): AskedBody,
) -> Result<Response, Refusal> {
    let facade = facade(&state)?;
    let caller = whole_caller(caller, Permission::ConnectionsAdmin)?;
    let blank = Connection::blank(ConnectionId::new(), caller.organization, Utc::now());
    let (mut connection, secrets) = read(&body, blank.clone(), true)?;
    connection.product = product;
    connection.credentials = secrets.seal(facade.connections.credentials(), &blank)?;
    check_host(facade, &connection).await?;
    let mut tx = state.store.begin().await?;
    let changed = connections::create(&mut tx, &connection).await?;
    tx.commit().await?;
    done(changed, &connection)?;
    Ok((Outcome::Created.status(), Json(ConnectionView::new(connection))).into_response())
}

/// A host that is allowed, or that nobody knows yet.
async fn check_host(facade: &Facade, connection: &Connection) -> Result<(), Refusal> {
    match facade.connections.allowed_address(connection).await {
        Ok(_) | Err(Unusable::NoHost(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn done(changed: Changed, connection: &Connection) -> Result<(), Refusal> {
    match changed {
        Changed::Done => Ok(()),
        Changed::NotFound => Err(no_connection()),
        Changed::NameTaken => {
            let message = format!("There is another connection '{}'.", connection.name);
            Err(Refusal::new(FetCode::EntityConflict, message))
        }
    }
}

fn no_connection() -> Refusal {
    Refusal::new(FetCode::EntityNotFound, "There is no such connection.".to_owned())
}

/// All connections of one's organization, newest first, however old they are.
#[utoipa::path(get, path = "/v1/management/connections", tag = "connections",
    security(("bearer" = ["connections:admin"])),
    params(
        ("X-Product-Name" = Option<String>, Header, description = "Only of this product"),
        ("page" = Option<u32>, Query, description = "From 1"),
        ("limit" = Option<u32>, Query, description = "1 to 100, else 10"),
    ),
    responses(AnyRefusal,
        (status = 200, description = "A page", body = ConnectionPageView),
        (status = 400, description = "A wrong parameter", body = RefusalView),
    ))]
pub async fn list(
    State(state): State<Arc<ApiState>>,
    Asked(caller): Asked<Authorized>,
    Product(product): Product,
    Asked(params): Asked<Params>,
) -> Result<Response, Refusal> {
    let caller = whole_caller(caller, Permission::ConnectionsAdmin)?;
    let mut params = params.known(&["page", "limit"]);
    let (default, most) = PAGE;
    let page = params.get("page", "a whole number from 1", |text| {
        text.parse().ok().filter(|page: &u32| *page > 0)
    });
    let limit = params.get("limit", "a whole number from 1 to 100", |text| {
        text.parse().ok().filter(|limit: &u32| (1..=most).contains(limit))
    });
    params.finish()?;
    let (page, limit) = (page.unwrap_or(1), limit.unwrap_or(default));
    let listed =
        connections::list(&state.store, caller.organization, product.as_deref(), page, limit)
            .await?;
    let view = ConnectionPageView {
        page,
        limit,
        total: listed.total,
        items: listed.items.into_iter().map(ConnectionView::new).collect(),
    };
    Ok((Outcome::Ok.status(), Json(view)).into_response())
}

/// One connection.
#[utoipa::path(get, path = "/v1/management/connections/{id}", tag = "connections",
    security(("bearer" = ["connections:admin"])),
    params(("id" = uuid::Uuid, Path),
        ("X-Product-Name" = Option<String>, Header, description = "The product that it must be of")),
    responses(AnyRefusal,
        (status = 200, description = "The connection, without its secrets", body = ConnectionView),
        (status = 400, description = "A wrong id, header or parameter", body = RefusalView),
        (status = 404, description = "There is no such connection", body = RefusalView),
        (status = 422, description = "It is of another product", body = RefusalView),
    ))]
pub async fn get(
    State(state): State<Arc<ApiState>>,
    Asked(caller): Asked<Authorized>,
    product: Product,
    _: NoQuery,
    Asked(id): Asked<Segment>,
) -> Result<Response, Refusal> {
    let connection = find(&state, caller, &product, &id).await?;
    Ok((Outcome::Ok.status(), Json(ConnectionView::new(connection))).into_response())
}

/// A connection of the caller's organization and of its product, for whoever may manage
/// connections.
async fn find(
    state: &ApiState,
    caller: Authorized,
    product: &Product,
    id: &Segment,
) -> Result<Connection, Refusal> {
    let caller = whole_caller(caller, Permission::ConnectionsAdmin)?;
    let found = connections::find(&state.store, caller.organization, path_id(id)?).await?;
    let connection = found.ok_or_else(no_connection)?;
    product.check(&connection)?;
    Ok(connection)
}

/// Refuses what would be taken from under a job that has not ended; gives the transaction back,
/// in which no job begins after this, to who takes it.
async fn unused(state: &ApiState, mut tx: Tx, connection: &Connection) -> Result<Tx, Refusal> {
    let name = &connection.name;
    // A configured connection of this name goes before the stored one.
    let reads = |resource: &&Arc<Resource>| {
        resource.connection == *name && !state.sources.contains_key(name)
    };
    let resources: Vec<&str> =
        state.catalogue.0.values().filter(reads).map(|one| one.name.as_str()).collect();
    if !jobs::is_in_use(&mut tx, connection.organization, name, &resources).await? {
        return Ok(tx);
    }
    // Claims have passed over what was locked, and hear of the commit.
    tx.commit().await?;
    let message = format!("A job that has not ended reads '{name}'.");
    Err(Refusal::new(FetCode::JobInProgress, message))
}

/// Changes what the body names; the password stays unless there is a new one.
#[utoipa::path(patch, path = "/v1/management/connections/{id}", tag = "connections",
    security(("bearer" = ["connections:admin"])),
    params(("id" = uuid::Uuid, Path),
        ("X-Product-Name" = Option<String>, Header, description = "The product that it must be of")),
    request_body(content = ConnectionBody, content_type = "application/json"),
    responses(AnyRefusal,
        (status = 200, description = "Changed", body = ConnectionView),
        (status = 400, description = "Every wrong field, or a host that is not allowed", body = RefusalView),
        (status = 404, description = "There is no such connection", body = RefusalView),
        (status = 409, description = "Another connection has this name, or a job that has not ended would read something else", body = RefusalView),
        (status = 422, description = "It is of another product", body = RefusalView),
    ))]
pub async fn update(
    State(state): State<Arc<ApiState>>,
    Asked(caller): Asked<Authorized>,
    product: Product,
    _: NoQuery,
    Asked(id): Asked<Segment>,
    AskedBody(body): AskedBody,
) -> Result<Response, Refusal> {
    let facade = facade(&state)?;
    let found = find(&state, caller, &product, &id).await?;
    let (organization, id) = (found.organization, found.id);
    // Looking a host up takes its time, so it comes before the transaction. The host that is
    // written is this one, or one that whoever else wrote it had looked up as well.
    check_host(facade, &read(&body, found, false)?.0).await?;
    let mut tx = state.store.begin().await?;
    // Everything else is asked of the connection as it stands, and nobody else changes it now.
    let before = connections::hold(&tx, organization, id).await?.ok_or_else(no_connection)?;
    let (mut connection, secrets) = read(&body, before.clone(), false)?;
    if !connection.reads_like(&before) {
        tx = unused(&state, tx, &before).await?;
    }
    connection.credentials = secrets.seal(facade.connections.credentials(), &before)?;
    connection.updated_at = Utc::now();
    // A refusal ends the transaction without a trace.
    done(connections::update(&mut tx, &connection).await?, &connection)?;
    tx.commit().await?;
    Ok((Outcome::Ok.status(), Json(ConnectionView::new(connection))).into_response())
}

/// Deletes a connection and its secrets.
#[utoipa::path(delete, path = "/v1/management/connections/{id}", tag = "connections",
    security(("bearer" = ["connections:admin"])),
    params(("id" = uuid::Uuid, Path),
        ("X-Product-Name" = Option<String>, Header, description = "The product that it must be of")),
    responses(AnyRefusal,
        (status = 204, description = "Deleted"),
        (status = 400, description = "A wrong id, header or parameter", body = RefusalView),
        (status = 404, description = "There is no such connection", body = RefusalView),
        (status = 409, description = "A job that has not ended reads it", body = RefusalView),
        (status = 422, description = "It is of another product", body = RefusalView),
    ))]
pub async fn delete(
    State(state): State<Arc<ApiState>>,
    Asked(caller): Asked<Authorized>,
    product: Product,
    _: NoQuery,
    Asked(id): Asked<Segment>,
) -> Result<Response, Refusal> {
    let found = find(&state, caller, &product, &id).await?;
    let tx = state.store.begin().await?;
    let held = connections::hold(&tx, found.organization, found.id).await?;
    let connection = held.ok_or_else(no_connection)?;
    let mut tx = unused(&state, tx, &connection).await?;
    let deleted = connections::delete(&mut tx, connection.organization, connection.id).await?;
    tx.commit().await?;
    if deleted { Ok(Outcome::NoContent.into_response()) } else { Err(no_connection()) }
}

/// Connects to the database and leaves it again; ten times a minute for all connections of one
/// organization.
#[utoipa::path(post, path = "/v1/management/connections/{id}/test", tag = "connections",
    security(("bearer" = ["connections:admin"])),
    params(("id" = uuid::Uuid, Path),
        ("X-Product-Name" = Option<String>, Header, description = "The product that it must be of")),
    responses(AnyRefusal,
        (status = 200, description = "Whether it can be reached: `failure` also when its host is not known", body = TestView),
        (status = 400, description = "A host that is not allowed, or a wrong id, header or parameter", body = RefusalView),
        (status = 404, description = "There is no such connection", body = RefusalView),
        (status = 422, description = "It is of another product", body = RefusalView),
        (status = 429, description = "Tested too often", body = RefusalView),
    ))]
pub async fn test(
    State(state): State<Arc<ApiState>>,
    Asked(caller): Asked<Authorized>,
    product: Product,
    _: NoQuery,
    Asked(id): Asked<Segment>,
) -> Result<Response, Refusal> {
    let facade = facade(&state)?;
    let connection = find(&state, caller, &product, &id).await?;
    if let Err(pause) = facade.tests.take(connection.organization) {
        let problem = Problem::new(ProblemCode::RateLimited, "Connections are tested too often.");
        return Err(problem.retry_after(pause).into());
    }
    let begun = Instant::now();
    let view = match facade.connections.open(&connection).await {
        Ok(usable) => TestView::new(usable.source().check().await, begun.elapsed()),
        // A host without an address is as far away as one that does not answer.
        Err(error @ Unusable::NoHost(_)) => TestView::new(Err(error), begun.elapsed()),
        Err(error) => return Err(error.into()),
    };
    Ok((Outcome::Ok.status(), Json(view)).into_response())
}

/// The tables of a connection with their fields.
#[utoipa::path(get, path = "/v1/management/connections/{id}/schema", tag = "connections",
    security(("bearer" = ["connections:admin"])),
    params(("id" = uuid::Uuid, Path),
        ("X-Product-Name" = Option<String>, Header, description = "The product that it must be of")),
    responses(AnyRefusal,
        (status = 200, description = "What it holds", body = SchemaView),
        (status = 400, description = "A host that is not allowed, or a wrong id, header or parameter", body = RefusalView),
        (status = 404, description = "There is no such connection", body = RefusalView),
        (status = 422, description = "It is of another product", body = RefusalView),
        (status = 503, description = "The database does not answer", body = RefusalView),
    ))]
pub async fn schema(
    State(state): State<Arc<ApiState>>,
    Asked(caller): Asked<Authorized>,
    product: Product,
    _: NoQuery,
    Asked(id): Asked<Segment>,
) -> Result<Response, Refusal> {
    let facade = facade(&state)?;
    let connection = find(&state, caller, &product, &id).await?;
    let usable = facade.connections.open(&connection).await?;
    let tables = schema_of(&*usable.schema(), usable.default_schema.as_deref()).await;
    let view = SchemaView::new(&connection, tables.map_err(Fault::Source)?);
    Ok((Outcome::Ok.status(), Json(view)).into_response())
}

/// Says whether connections have these tables and fields.
#[utoipa::path(post, path = "/v1/management/connections/validate-schema", tag = "connections",
    security(("bearer" = ["connections:admin"])),
    params(("X-Product-Name" = Option<String>, Header, description = "The product that they must be of")),
    request_body(content = MappedFieldsBody, content_type = "application/json"),
    responses(AnyRefusal,
        (status = 200, description = "They have all of them", body = ValidationView),
        (status = 400, description = "The body is wrong", body = RefusalView),
        (status = 422, description = "They lack some; `errors` lists each. Of another product it is an error", body = ValidationView),
        (status = 503, description = "A database does not answer", body = RefusalView),
    ))]
pub async fn validate_schema(
    State(state): State<Arc<ApiState>>,
    Asked(caller): Asked<Authorized>,
    product: Product,
    _: NoQuery,
    AskedBody(body): AskedBody,
) -> Result<Response, Refusal> {
    let facade = facade(&state)?;
    let caller = whole_caller(caller, Permission::ConnectionsAdmin)?;
    let asked = data_request::parse_mapped_fields(&body).map_err(Refusal::fields)?;
    let names: Vec<&str> = asked.keys().map(String::as_str).collect();
    let found = facade.connections.find(caller.organization, &names).await?;
    product.check_all(&found.stored)?;
    let refused = prepare(&facade.connections, &found, &asked).await.err();
    let (outcome, view) = match refused {
        None => (Outcome::Ok.status(), ValidationView::success()),
        Some(Refused::Fields(errors)) => {
            (FetCode::MissingDatasource.problem().status(), ValidationView::of_fields(errors))
        }
        Some(Refused::Connections(faults)) => {
            let unknown = |fault: &Fault| matches!(fault, Fault::Unusable(Unusable::Unknown(_)));
            if !faults.iter().all(|(_, fault)| unknown(fault)) {
                return Err(Refused::Connections(faults).into());
            }
            (FetCode::MissingDatasource.problem().status(), ValidationView::of_connections(&faults))
        }
    };
    Ok((outcome, Json(view)).into_response())
}
