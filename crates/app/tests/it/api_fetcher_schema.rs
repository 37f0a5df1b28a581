//! The schema of a stored connection: the only one that its unqualified tables are in, when they
//! are asked for, listed, validated and read.

use std::{collections::BTreeMap, sync::Arc};

use outport_domain::{job::Protection, limits::Limits, resource::Resource, spec::Catalogue};
use outport_store::jobs::Finished;
use serde_json::{Value, json};

use crate::api_world::World;
use crate::fetcher_world::*;

const MANAGE: &str = "/v1/management/connections";

/// Tables of one name in two schemas, and one that only the server's own default has.
async fn two_schemas() -> Database {
    let shop = Database::postgres().await;
    let sales = "CREATE SCHEMA sales; CREATE TABLE sales.orders (code text); \
                 INSERT INTO sales.orders VALUES ('of sales')";
    shop.fill(sales).await;
    shop
}

fn of_sales(shop: &Database) -> Value {
    let mut connection = shop.connection("shop");
    connection["schema"] = json!("sales");
    connection
}

#[tokio::test]
async fn a_table_is_the_one_of_the_connections_schema_or_none() {
    World::on_sqlite(options(), async |world| {
        let shop = two_schemas().await;
        let id = store(world, &of_sales(&shop)).await;
        let validate = async |table: &str| {
            let fields = json!({"mappedFields": {"shop": {table: ["*"]}}});
            post(world, &format!("{MANAGE}/validate-schema"), &fields).await
        };
        let (status, answer) = post(world, "/v1/fetcher", &all_of("nothing")).await;
        assert_eq!((status, &answer["code"]), (400, &json!("FET-0401")), "{answer}");
        let told = answer["fields"]["dataRequest.mappedFields.shop.nothing"].to_string();
        assert!(told.contains("'sales'"), "{answer}");
        let (status, answer) = validate("nothing").await;
        assert_eq!(status, 422, "{answer}");
        assert_eq!(answer["errors"][0]["field"], "mappedFields.shop.nothing");

        let (_, schema) = said(world.get(&format!("{MANAGE}/{id}/schema"))).await;
        let tables = schema["tables"].as_array().expect("tables");
        let names: Vec<&str> =
            tables.iter().map(|table| table["name"].as_str().expect("a name")).collect();
        assert_eq!(names, ["public.nothing", "public.orders", "orders"]);
        assert_eq!(tables[2]["fields"], json!(["code"]));
        for name in names {
            assert_eq!(validate(name).await.0, 200, "what is listed can be asked for: {name}");
        }

        let pipeline = pipeline(world, Protection::None, Limits::default());
        let id = asked(world, &all_of("orders")).await;
        assert!(matches!(run(&pipeline).await, Finished::Completed(_)));
        let bytes = world.objects.bytes(&format!("external-data/{id}.json")).expect("the result");
        let result: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(result, json!({"shop": {"orders": [{"code": "of sales"}]}}));

        let mut again = all_of("orders");
        again["metadata"]["n"] = json!(2);
        let id = asked(world, &again).await;
        shop.fill("DROP TABLE sales.orders").await;
        assert!(matches!(run(&pipeline).await, Finished::Failed(_)), "not that of public");
        assert_eq!(failure(world, &id).await.0, "SCHEMA_MISMATCH");
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn a_resource_over_a_stored_connection_reads_its_schema_too() {
    World::on_sqlite(options(), async |world| {
        let shop = two_schemas().await;
        for (schema, name) in [("public", "a wrong one"), ("sales", "the right one")] {
            let table = format!(
                "CREATE TABLE {schema}.plans (organization_id uuid, name text); \
                 INSERT INTO {schema}.plans VALUES ('{}', '{name}')",
                world.organization
            );
            shop.fill(&table).await;
        }
        store(world, &of_sales(&shop)).await;
        let plan = "name = 'plan'\nconnection = 'shop'\nfrom = 'plans'\n[scope]\n\
                    organization = 'organization_id'\n[[columns]]\nkey = 'name'\ntype = 'text'";
        let plan = Arc::new(Resource::from_toml(plan).expect("a resource"));
        let mut pipeline = pipeline(world, Protection::None, Limits::default());
        pipeline.catalogue = Arc::new(Catalogue(BTreeMap::from([("plan".to_owned(), plan)])));
        world.create_with(&world.token, r#"{"resource":"plan"}"#).await;
        // To the API of this world the name is that of a configured connection, which has none.
        world.force(r#"UPDATE jobs SET products = '{"shop":null}'"#).await;
        let finished = run(&pipeline).await;
        let Finished::Completed(job) = finished else { panic!("{finished:?}") };
        let file = job.file.as_ref().expect("a file");
        let bytes = world.objects.bytes(file.key.as_str()).expect("the file");
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        assert!(text.contains("the right one") && !text.contains("a wrong one"), "{text}");
        shop.gone().await;
    })
    .await;
}
