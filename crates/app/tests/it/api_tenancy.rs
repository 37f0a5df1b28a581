//! What belongs to another tenant, or is out of a restricted caller's reach, is not there.

use outport_domain::id::{CompanyId, OrganizationId, UserId};
use outport_store::deliveries::{self, DeliveryFilter, HandlerRow};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::api_world::{ALL, FILE, World, id, json, on_both_stores};

on_both_stores!(
    nothing_of_another_tenant_is_there_on_any_route,
    a_restricted_caller_sees_the_jobs_whose_rows_it_may_see,
    a_restricted_caller_pages_through_what_it_may_see,
    a_file_with_a_guarded_column_needs_the_columns_scope,
    resources_show_what_the_caller_may_read,
    deliveries_are_for_those_who_see_the_whole_organization,
);

async fn call(world: &World, token: &str, method: Method, path: &str) -> (StatusCode, Value) {
    let mut request = world.client.request(method.clone(), world.url(path)).bearer_auth(token);
    if method == Method::POST {
        request = request
            .header("content-type", "application/json")
            .body(r#"{"since":"2020-01-01T00:00:00Z"}"#);
    }
    json(request.send().await.expect("an answer")).await
}

/// Registers a handler and returns a delivery of a completed job.
async fn delivery(world: &World) -> String {
    let mut tx = world.store.begin().await.expect("a transaction");
    let handler = HandlerRow { name: "tell".into(), event_types: vec!["export.completed".into()] };
    deliveries::register(&mut tx, &[handler]).await.expect("a registration");
    tx.commit().await.expect("a commit");
    world.completed().await;
    let filter = DeliveryFilter::default();
    let page = deliveries::list(&world.store, world.organization, &filter, ALL).await;
    page.expect("deliveries").items[0].id.to_string()
}

async fn nothing_of_another_tenant_is_there_on_any_route(world: &World) {
    let delivery = delivery(world).await;
    let job = world.jobs().await.remove(0);
    let (_, token_id) = world.make_token(world.caller(), None).await;
    let stranger = world.stranger(OrganizationId::new()).await;
    // Every route of the document that names a thing of a tenant.
    let document = serde_json::to_value(outport::api::openapi()).expect("a document");
    let mut tried = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        let own = match path.as_str() {
            path if path.starts_with("/v1/exports/{id}") => job.id.to_string(),
            path if path.starts_with("/v1/deliveries/{id}") => delivery.clone(),
            path if path.starts_with("/v1/tokens/{id}") => token_id.to_string(),
            _ => continue,
        };
        for method in item.as_object().expect("operations").keys() {
            let method: Method = method.to_uppercase().parse().expect("a method");
            if method == Method::HEAD {
                continue;
            }
            let path = path.replace("{number}", "1");
            let real = path.replace("{id}", &own);
            let (status, problem) = call(world, &stranger, method.clone(), &real).await;
            assert_eq!(status, 404, "{method} {path}: {problem}");
            let nothing = path.replace("{id}", &uuid::Uuid::now_v7().to_string());
            let (_, same) = call(world, &stranger, method.clone(), &nothing).await;
            assert_eq!(problem, same, "{method} {path}: not told from what does not exist");
            tried.push(format!("{method} {path}"));
        }
    }
    assert_eq!(tried.len(), 10, "{tried:?}");
    for list in ["/v1/exports", "/v1/deliveries"] {
        let (status, page) = call(world, &stranger, Method::GET, list).await;
        assert_eq!((status.as_u16(), page["items"].as_array().map(Vec::len)), (200, Some(0)));
    }
    let (_, page) = call(world, &stranger, Method::GET, "/v1/tokens").await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "its own");
    let (_, filled) = call(world, &stranger, Method::POST, "/v1/handlers/tell/backfill").await;
    assert_eq!(filled["deliveries"], 0);

    let [same] = world.jobs().await.try_into().expect("one job");
    assert_eq!(same, job, "nothing was touched");
    assert!(world.downloads(job.id).await.is_empty());
    let (status, _) =
        call(world, &world.token, Method::GET, &format!("/v1/exports/{}", job.id)).await;
    assert_eq!(status, 200);
}

fn body(company: u128) -> &'static str {
    let id = uuid::Uuid::from_u128(company);
    format!(r#"{{"resource":"order","companyId":"{id}"}}"#).leak()
}

async fn a_restricted_caller_sees_the_jobs_whose_rows_it_may_see(world: &World) {
    let of = async |companies: Option<Vec<CompanyId>>, user: UserId| {
        world
            .token_for(|caller| {
                caller.companies = companies;
                caller.user = user;
            })
            .await
    };
    let (ana, bea) = (UserId::new(), UserId::new());
    let one = of(Some(vec![id(1)]), ana).await;
    let both = of(Some(vec![id(1), id(2)]), bea).await;
    let all = of(None, ana).await;
    let whole = world.create_with(&all, r#"{"resource":"order"}"#).await;
    let first = world.create_with(&all, body(1)).await;
    let second = world.create_with(&both, body(2)).await;
    let restricted = world.create_with(&one, r#"{"resource":"order"}"#).await;
    let wider = world.create_with(&both, r#"{"resource":"order"}"#).await;
    for (job, what, by_one, by_both) in [
        (whole, "all of the organization, asked for by Ana when she could", 404, 404),
        (first, "company 1", 200, 200),
        (second, "company 2", 404, 200),
        (restricted, "what company 1 may see", 200, 200),
        (wider, "what companies 1 and 2 may see", 404, 200),
    ] {
        for (token, expected) in [(&one, by_one), (&both, by_both), (&all, 200)] {
            for path in [format!("/v1/exports/{job}"), format!("/v1/exports/{job}/downloads")] {
                let (status, _) = call(world, token, Method::GET, &path).await;
                assert_eq!(status, expected, "{what}: {path}");
            }
        }
        for act in ["cancel", "rerun", "file"] {
            let method = if act == "file" { Method::GET } else { Method::POST };
            if by_one == 404 {
                let (status, _) =
                    call(world, &one, method, &format!("/v1/exports/{job}/{act}")).await;
                assert_eq!(status, 404, "{what}: {act}");
            }
        }
    }
    let (_, page) = call(world, &one, Method::GET, "/v1/exports").await;
    let seen: Vec<&str> = page["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|job| job["exportJobId"].as_str())
        .collect();
    assert_eq!(seen, [restricted.to_string(), first.to_string()]);
}

async fn a_restricted_caller_pages_through_what_it_may_see(world: &World) {
    let token = world.token_for(|caller| caller.companies = Some(vec![id(1)])).await;
    let mut own = Vec::new();
    for number in 0..12 {
        let job = world.create_with(&world.token, body(if number % 3 == 0 { 1 } else { 2 })).await;
        if number % 3 == 0 {
            own.push(job.to_string());
        }
    }
    own.reverse();
    let mut seen = Vec::new();
    let mut path = "/v1/exports?limit=2".to_owned();
    loop {
        let (_, page) = call(world, &token, Method::GET, &path).await;
        let items = page["items"].as_array().expect("items");
        assert!(items.len() <= 2);
        seen.extend(items.iter().filter_map(|job| job["exportJobId"].as_str().map(str::to_owned)));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/v1/exports?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, own);
}

async fn a_file_with_a_guarded_column_needs_the_columns_scope(world: &World) {
    let may = world.token_for(|caller| _ = caller.scopes.insert("orders:margin".into())).await;
    let job = world.create_with(&may, r#"{"resource":"order","columns":["code","margin"]}"#).await;
    world.complete_next(FILE).await;
    let path = format!("/v1/exports/{job}/file");
    let answer = world.get(&path).send().await.expect("an answer");
    let (status, problem) = json(answer).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (403, Some("MISSING_SCOPE")));
    assert!(world.downloads(job).await.is_empty());
    let answer = world.client.get(world.url(&path)).bearer_auth(&may).send().await;
    assert_eq!(answer.expect("an answer").status(), 200);
}

async fn resources_show_what_the_caller_may_read(world: &World) {
    let keys = |resource: &Value| -> Vec<String> {
        let columns = resource["columns"].as_array().expect("columns").iter();
        columns.filter_map(|column| column["key"].as_str().map(str::to_owned)).collect()
    };
    let (status, page) = call(world, &world.token, Method::GET, "/v1/resources").await;
    assert_eq!(status, 200);
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2));
    let (_, order) = call(world, &world.token, Method::GET, "/v1/resources/order").await;
    assert_eq!(keys(&order), ["code", "createdAt", "quantity", "paid"]);
    assert_eq!(order["columns"][0]["label"]["pt-BR"], "Código");
    assert_eq!(order["columns"][0]["label"]["es"], "Code");
    assert_eq!(
        order["columns"][3]["operators"],
        serde_json::json!(["EQ", "NE", "IN", "NOT_IN", "IS_NULL", "IS_NOT_NULL"])
    );
    assert_eq!(order["formats"], serde_json::json!(["CSV", "NDJSON", "JSON", "XLSX", "PARQUET"]));
    assert_eq!(order["compressions"], serde_json::json!(["none", "gzip", "zstd"]));
    assert_eq!(order["scopeTypes"], serde_json::json!(["ORGANIZATION", "COMPANY", "COOPERATIVE"]));
    assert!(!order.to_string().contains("organization_id"), "no name of the source's own");
    let may = world.token_for(|caller| _ = caller.scopes.insert("orders:margin".into())).await;
    let (_, order) = call(world, &may, Method::GET, "/v1/resources/order").await;
    assert_eq!(keys(&order).last().map(String::as_str), Some("margin"));
}

async fn deliveries_are_for_those_who_see_the_whole_organization(world: &World) {
    let delivery = delivery(world).await;
    let one = world.token_for(|caller| caller.companies = Some(vec![id(1)])).await;
    for (method, path) in [
        (Method::GET, "/v1/deliveries".to_owned()),
        (Method::GET, format!("/v1/deliveries/{delivery}")),
        (Method::POST, format!("/v1/deliveries/{delivery}/retry")),
        (Method::POST, "/v1/handlers/tell/backfill".to_owned()),
    ] {
        let (status, problem) = call(world, &one, method, &path).await;
        assert_eq!((status.as_u16(), problem["code"].as_str()), (403, Some("FORBIDDEN")), "{path}");
    }
}
