//! The Fetcher facade: how its jobs run and fail, who sees them, and who may ask.

use outport_domain::{job::Protection, limits::Limits};
use outport_store::jobs::Finished;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api_world::World;
use crate::fetcher_world::*;

#[tokio::test]
async fn every_way_to_fail_is_told_by_one_job_failed_and_leaves_no_result() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        let connection = store(world, &shop.connection("shop")).await;
        let limits = Limits { job_failures: 1, ..Limits::default() };
        let pipeline = pipeline(world, Protection::Sealed, limits);
        let mut n = 0;
        let mut ask = async || {
            n += 1;
            let mut body = all_of("orders");
            body["metadata"]["n"] = json!(n);
            asked(world, &body).await
        };

        let id = ask().await;
        world.objects.fail(outport_objects::memory::Step::Put, outport_objects::memory::Fault::Full);
        assert!(matches!(run(&pipeline).await, Finished::Failed(_)));
        assert_eq!(failure(world, &id).await.0, "STORE_WRITE_FAILED");
        let job = shown(world, &id).await;
        assert_eq!((&job["status"], &job["resultPath"]), (&json!("failed"), &Value::Null));
        assert_eq!(job["metadata"]["error"]["code"], "STORE_WRITE_FAILED");

        let id = ask().await;
        let path = format!("/v1/fetcher/{id}/cancel");
        assert_eq!(post(world, &path, &json!({})).await.0, 202);
        assert_eq!(failure(world, &id).await.0, "CANCELED");
        assert_eq!(shown(world, &id).await["status"], "failed");
        let (status, answer) = post(world, "/v1/fetcher/0197f604-49fe-7b73-bb81-df2e93a7e47d/cancel", &json!({})).await;
        assert_eq!((status, &answer["code"]), (404, &json!("FET-1001")), "{answer}");

        let id = ask().await;
        let in_use = world.request(Method::DELETE, &format!("/v1/management/connections/{connection}"));
        let (status, answer) = said(in_use).await;
        assert_eq!((status, &answer["code"]), (409, &json!("FET-1021")), "{answer}");
        shop.fill("ALTER TABLE orders RENAME COLUMN code TO coed; DROP TABLE nothing; ALTER TABLE orders RENAME TO ordres").await;
        assert!(matches!(run(&pipeline).await, Finished::Failed(_)));
        let (code, message) = failure(world, &id).await;
        assert_eq!(code, "SCHEMA_MISMATCH");
        assert!(message.contains("shop.orders"), "{message}");
        shop.fill("ALTER TABLE ordres RENAME TO orders").await;

        let id = ask().await;
        shop.gone().await;
        assert!(matches!(run(&pipeline).await, Finished::Failed(_)));
        let (code, message) = failure(world, &id).await;
        assert_eq!(code, "SOURCE_UNREACHABLE");
        assert!(!message.contains("127.0.0.1") && !message.contains("p%40ss"), "{message}");

        assert_eq!(world.objects.keys(), Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn a_second_run_has_a_key_of_its_own() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        let limits = Limits { job_backoff: std::time::Duration::ZERO, ..Limits::default() };
        let pipeline = pipeline(world, Protection::Sealed, limits);
        let id = asked(world, &all_of("orders")).await;
        world
            .objects
            .fail(outport_objects::memory::Step::Put, outport_objects::memory::Fault::Full);
        assert!(matches!(run(&pipeline).await, Finished::Requeued(_)));
        assert!(matches!(run(&pipeline).await, Finished::Completed(_)));
        let path = format!("external-data/{id}.2.json");
        assert_eq!(shown(world, &id).await["resultPath"], path);
        assert_eq!(world.objects.keys(), [path]);
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn a_result_over_the_limit_fails_the_job() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        shop.fill("CREATE VIEW wide AS SELECT repeat('x', 8 * 1024 * 1024) AS text FROM generate_series(1, 33)").await;
        let id = asked(world, &all_of("wide")).await;
        let pipeline = pipeline(world, Protection::None, Limits::default());
        assert!(matches!(run(&pipeline).await, Finished::Failed(_)));
        let (code, message) = failure(world, &id).await;
        assert_eq!(code, "LIMIT_EXCEEDED");
        assert!(message.contains("256 MiB"), "{message}");
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn jobs_of_both_kinds_are_seen_here_and_only_exports_elsewhere() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        let id = asked(world, &all_of("orders")).await;
        shop.gone().await;
        let (status, list) = said(world.get("/v1/exports")).await;
        assert_eq!((status, &list["items"]), (200, &json!([])));
        for path in ["", "/file"] {
            let (status, _) = said(world.get(&format!("/v1/exports/{id}{path}"))).await;
            assert_eq!(status, 404, "{path}");
        }
        let other =
            world.token_for(|caller| caller.organization = outport_domain::id::Id::new()).await;
        let path = format!("/v1/fetcher/{id}");
        let stranger = world.client.get(world.url(&path)).bearer_auth(other);
        let (status, answer) = said(stranger).await;
        assert_eq!((status, &answer["code"]), (404, &json!("FET-1001")), "{answer}");

        let export = world.create().await.to_string();
        world.request(Method::POST, &format!("{path}/cancel")).send().await.expect("an answer");
        let finished = world.complete_next(b"code\nA\n").await;
        let job = shown(world, &export).await;
        assert_eq!(job["status"], "completed");
        assert_eq!(job["resultPath"], finished.file.expect("a file").key.as_str());
        assert!(job["mappedFields"]["shop"]["order"].is_array(), "{job}");
        assert_eq!(job["requestHash"].as_str().map(str::len), Some(64));
        let events = events(world, &export).await;
        let [(first, _), (second, event)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!([first, second], ["export.completed", "job.completed"]);
        assert_eq!(job["metadata"], json!({"source": "order"}));
        assert_eq!(job["metadata"], event["metadata"], "what the event says");
    })
    .await;
}

#[tokio::test]
async fn who_names_a_product_gets_the_connections_of_that_product() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        let ask = async |product: &str| {
            let request = world.post("/v1/fetcher").header("content-type", "application/json");
            said(request.header("x-product-name", product).body(all_of("nothing").to_string()))
                .await
        };
        let (status, answer) = ask("ledger").await;
        assert_eq!((status, &answer["code"]), (422, &json!("FET-1014")), "{answer}");
        world.force("UPDATE connections SET product = 'shop'").await;
        let (status, answer) = ask("ledger").await;
        assert_eq!((status, &answer["code"]), (422, &json!("FET-1016")), "{answer}");
        assert_eq!(ask("Shop").await.0, 202);
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn a_job_is_of_the_products_of_its_connections_when_it_was_accepted() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        let base = "/v1/management/connections";
        let store_for = async |product: &str| {
            let request = world.post(base).header("content-type", "application/json");
            let body = shop.connection("shop").to_string();
            let request = request.header("x-product-name", product).body(body);
            let (status, answer) = said(request).await;
            assert_eq!(status, 201, "{answer}");
            format!("{base}/{}", answer["id"].as_str().expect("an id"))
        };
        let connection = store_for("shop").await;
        let path = format!("/v1/fetcher/{}", asked(world, &all_of("orders")).await);
        let cancel = format!("{path}/cancel");
        assert_eq!(post(world, &cancel, &json!({})).await.0, 202);
        let is_of_the_shop_alone = async |when: &str| {
            for (product, expected) in [("shop", 200), ("ledger", 422)] {
                let (status, job) = said(world.get(&path).header("x-product-name", product)).await;
                assert_eq!(status, expected, "{when}, {product}: {job}");
            }
            let others = world.post(&cancel).header("x-product-name", "ledger");
            let (status, answer) = said(others).await;
            assert_eq!((status, &answer["code"]), (422, &json!("FET-1016")), "{when}: {answer}");
        };
        is_of_the_shop_alone("while its connection is there").await;

        let renamed = world.request(Method::PATCH, &connection);
        let renamed = renamed.header("content-type", "application/json");
        assert_eq!(said(renamed.body(r#"{"configName":"other"}"#)).await.0, 200);
        is_of_the_shop_alone("with another name").await;

        let deleted = world.request(Method::DELETE, &connection).send().await.expect("an answer");
        assert_eq!(deleted.status(), 204);
        is_of_the_shop_alone("deleted").await;
        store_for("ledger").await;
        is_of_the_shop_alone("with another in its place").await;

        // What was accepted before this was kept is judged by what is there now.
        world.force("UPDATE jobs SET products = NULL").await;
        let (status, job) = said(world.get(&path).header("x-product-name", "ledger")).await;
        assert_eq!(status, 200, "{job}");
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn the_same_request_is_the_same_job_while_its_connection_leads_to_the_same_place() {
    World::on_sqlite(options(), async |world| {
        let (shop, other) = (Database::postgres().await, Database::postgres().await);
        let base = "/v1/management/connections";
        let send = async |method: Method, path: &str, product: &str, body: &Value| {
            let request = world.request(method, path).header("content-type", "application/json");
            said(request.header("x-product-name", product).body(body.to_string())).await
        };
        let store_for = async |product: &str| {
            let body = shop.connection("shop");
            let (status, answer) = send(Method::POST, base, product, &body).await;
            assert_eq!(status, 201, "{answer}");
            format!("{base}/{}", answer["id"].as_str().expect("an id"))
        };
        // Ended at once, so that its connection may be changed.
        let ask = async |product: &str| {
            let (status, answer) =
                send(Method::POST, "/v1/fetcher", product, &all_of("orders")).await;
            let id = answer["jobId"].as_str().expect("an id").to_owned();
            let path = format!("/v1/fetcher/{id}");
            assert_eq!(send(Method::GET, &path, product, &json!({})).await.0, 200);
            if status == 202 {
                let cancel = format!("{path}/cancel");
                assert_eq!(send(Method::POST, &cancel, product, &json!({})).await.0, 202);
            }
            (status, id)
        };
        let connection = store_for("alpha").await;
        let (status, first) = ask("alpha").await;
        assert_eq!(status, 202);
        for how in [
            json!({"password": "new"}),
            json!({"ssl": {"mode": "disable"}, "metadata": {"owner": "us"}}),
        ] {
            assert_eq!(send(Method::PATCH, &connection, "alpha", &how).await.0, 200, "{how}");
            assert_eq!(ask("alpha").await, (200, first.clone()), "{how}");
        }
        for place in [
            json!({"databaseName": other.name()}),
            json!({"schema": "public"}),
            json!({"host": "localhost"}),
        ] {
            assert_eq!(send(Method::PATCH, &connection, "alpha", &place).await.0, 200, "{place}");
            assert_eq!(ask("alpha").await.0, 202, "{place}");
        }
        let back = json!({"databaseName": shop.name(), "schema": null, "host": "127.0.0.1"});
        assert_eq!(send(Method::PATCH, &connection, "alpha", &back).await.0, 200);
        assert_eq!(ask("alpha").await, (200, first), "where it led before");

        let gone = world.request(Method::DELETE, &connection).send().await.expect("an answer");
        assert_eq!(gone.status(), 204);
        let connection = store_for("beta").await;
        let (status, betas) = ask("beta").await;
        assert_eq!((status, ask("beta").await), (202, (200, betas)), "of another product");
        let renamed = json!({"configName": "other"});
        assert_eq!(send(Method::PATCH, &connection, "beta", &renamed).await.0, 200);
        store_for("beta").await;
        assert_eq!(ask("beta").await.0, 202, "another of the same name and product");
        shop.gone().await;
        other.gone().await;
    })
    .await;
}

#[tokio::test]
async fn only_who_may_read_everything_may_ask() {
    World::on_sqlite(options(), async |world| {
        let ask = async |token: String| {
            let request = world.client.post(world.url("/v1/fetcher")).bearer_auth(token);
            said(request.header("content-type", "application/json").body("{}")).await
        };
        let weak = world.token_for(|caller| {
            caller.scopes.remove("fetcher:run");
        });
        let partial = world.token_for(|caller| caller.companies = Some(Vec::new()));
        for token in [weak.await, partial.await] {
            let (status, answer) = ask(token).await;
            assert_eq!((status, &answer["code"]), (403, &json!("FET-0403")), "{answer}");
        }
    })
    .await;
}
