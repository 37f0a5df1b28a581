//! What stored connections are kept from: other hosts than allowed, changes under a running job,
//! other products' callers; and the one form of everything that the facade refuses.

use std::net::{IpAddr, UdpSocket};

use reqwest::Method;
use serde_json::{Value, json};

use crate::api_world::{Options, World};
use crate::fetcher_world::*;

const BASE: &str = "/v1/management/connections";
const NOBODY: &str = "0197f604-49fe-7b73-bb81-df2e93a7e47d";

async fn send(world: &World, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let request = world.request(method, path).header("content-type", "application/json");
    said(request.body(body.to_string())).await
}

fn at(host: &str) -> Value {
    json!({"configName": "somewhere", "type": "POSTGRESQL", "host": host, "port": 5432,
           "databaseName": "postgres", "userName": "postgres", "password": "secret"})
}

#[tokio::test]
async fn a_host_is_nothing_but_a_host() {
    World::on_sqlite(options(), async |world| {
        let path = format!("{BASE}/{}", store(world, &at("db.invalid")).await);
        for host in ["127.0.0.1:5432", "db:5432", "postgres://db", "db/path", "user@db", "[::1]:5"]
        {
            for (method, path) in [(Method::POST, BASE), (Method::PATCH, &*path)] {
                let (status, answer) = send(world, method, path, &at(host)).await;
                assert_eq!((status, &answer["code"]), (400, &json!("FET-0401")), "{answer}");
                assert!(answer["fields"]["host"].is_string(), "{host}: {answer}");
            }
        }
    })
    .await;
}

/// The address that this machine has on its way to others, where there is a way.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().expect("an address").ip())
}

#[tokio::test]
async fn the_machine_itself_is_denied_by_all_its_addresses_in_every_form() {
    let denied = vec!["127.0.0.1/32".parse().expect("a network")];
    let options = Options { facade: Some(denied), ..Options::default() };
    World::on_sqlite(options, async |world| {
        let forms = [
            // Of the machine, though not on the list.
            "127.0.0.2",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "[2002:7f00:1::]",
            "2001:0:7f00:1::",
        ];
        let own = own_address().map(|address| address.to_string());
        for host in forms.into_iter().chain(own.as_deref()) {
            let (status, answer) = send(world, Method::POST, BASE, &at(host)).await;
            assert_eq!((status, &answer["code"]), (400, &json!("FET-0414")), "{host}: {answer}");
        }
        store(world, &at("192.0.2.1")).await;
    })
    .await;
}

#[tokio::test]
async fn what_a_job_reads_is_not_changed_before_it_has_ended() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        let path = format!("{BASE}/{}", store(world, &shop.connection("shop")).await);
        let id = asked(world, &all_of("orders")).await;
        for change in [
            json!({"configName": "other"}),
            json!({"type": "MYSQL"}),
            json!({"host": "localhost"}),
            json!({"port": 1}),
            json!({"databaseName": "other"}),
            json!({"userName": "other"}),
            json!({"schema": "other"}),
        ] {
            let (status, answer) = send(world, Method::PATCH, &path, &change).await;
            assert_eq!((status, &answer["code"]), (409, &json!("FET-1021")), "{change}: {answer}");
        }
        // How it is reached may change, and what changes nothing is no change.
        for change in [
            json!({"password": "new"}),
            json!({"ssl": {"mode": "disable"}, "metadata": {"owner": "us"}}),
            json!({"host": "127.0.0.1", "databaseName": shop.name()}),
        ] {
            let (status, answer) = send(world, Method::PATCH, &path, &change).await;
            assert_eq!(status, 200, "{change}: {answer}");
        }
        post(world, &format!("/v1/fetcher/{id}/cancel"), &json!({})).await;
        let (status, answer) = send(world, Method::PATCH, &path, &json!({"port": 1})).await;
        assert_eq!((status, &answer["port"]), (200, &json!(1)), "it has ended");
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn a_connection_sealed_with_a_key_that_is_gone_says_so_and_takes_new_secrets() {
    const PEM: &str = "-----BEGIN SOMETHING-----";
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        let path = format!("{BASE}/{}", store(world, &shop.connection("shop")).await);
        let (test, schema) = (format!("{path}/test"), format!("{path}/schema"));
        let lose_the_key = async || {
            world
                .force("UPDATE connections SET credentials = 'v1:7:' || substr(credentials, 6)")
                .await;
        };
        let told =
            "The credentials of connection 'shop' are sealed with key 7, which this service lacks.";
        let is_lacking = async |method: Method, path: &str, body: &Value| {
            let (status, answer) = send(world, method, path, body).await;
            assert_eq!((status, &answer["code"]), (503, &json!("FET-0003")), "{path}: {answer}");
            assert_eq!(answer["message"], told, "{body}");
        };
        let is_changed = async |body: &Value| {
            let (status, answer) = send(world, Method::PATCH, &path, body).await;
            assert_eq!(status, 200, "{body}: {answer}");
        };
        lose_the_key().await;
        is_lacking(Method::POST, &test, &json!({})).await;
        is_lacking(Method::GET, &schema, &json!({})).await;
        is_lacking(Method::POST, "/v1/fetcher", &all_of("orders")).await;
        // What names no secret needs none opened, and leaves them as they are.
        for body in [
            json!({"metadata": {"owner": "us"}}),
            json!({"ssl": {"mode": "disable"}}),
            json!({"ssl": null}),
        ] {
            is_changed(&body).await;
            is_lacking(Method::POST, &test, &json!({})).await;
        }
        // A client key would be sealed with the password, which is not at hand.
        let tls = json!({"mode": "prefer", "cert": PEM, "key": PEM});
        is_lacking(Method::PATCH, &path, &json!({"ssl": tls})).await;
        is_changed(&json!({"password": "p%40ss"})).await;
        let (status, answer) = post(world, &test, &json!({})).await;
        assert_eq!((status, &answer["status"]), (200, &json!("success")), "{answer}");

        is_changed(&json!({"ssl": tls})).await;
        lose_the_key().await;
        for body in
            [json!({"password": "p%40ss"}), json!({"ssl": {"key": PEM}}), json!({"ssl": null})]
        {
            is_lacking(Method::PATCH, &path, &body).await;
        }
        is_changed(&json!({"ssl": {"mode": "disable"}})).await;
        is_lacking(Method::POST, &test, &json!({})).await;
        is_changed(&json!({"password": "p%40ss", "ssl": {"key": PEM}})).await;
        is_changed(&json!({"ssl": null})).await;
        let (status, answer) = post(world, &test, &json!({})).await;
        assert_eq!((status, &answer["status"]), (200, &json!("success")), "{answer}");
        lose_the_key().await;
        is_changed(&json!({"password": "p%40ss", "ssl": null})).await;
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn an_export_that_has_not_ended_uses_its_connection() {
    World::on_sqlite(options(), in_use).await;
    World::on_postgres(options(), in_use).await;
}

async fn in_use(world: &World) {
    world.create().await;
    for (resources, expected) in [(&["plan", "order"][..], true), (&["plan"], false), (&[], false)]
    {
        let mut tx = world.store.begin().await.expect("a transaction");
        let organization = world.organization;
        let found = outport_store::fetcher::is_in_use(&mut tx, organization, "ledger", resources);
        assert_eq!(found.await.expect("an answer"), expected, "{resources:?}");
    }
}

#[tokio::test]
async fn who_names_a_product_manages_the_connections_of_that_product() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        let path = format!("{BASE}/{}", store(world, &shop.connection("shop")).await);
        let ask = async |product: &str, method: Method, path: &str, body: &Value| {
            let request = world.request(method, path).header("content-type", "application/json");
            said(request.header("x-product-name", product).body(body.to_string())).await
        };
        let (test, schema) = (format!("{path}/test"), format!("{path}/schema"));
        let validate = format!("{BASE}/validate-schema");
        let export = format!("/v1/fetcher/{}", world.create().await);
        let fields = json!({"mappedFields": {"shop": {"orders": ["code"]}}});
        // The second time as well, when the same request has made a job.
        let job = format!("/v1/fetcher/{}", asked(world, &all_of("orders")).await);
        let cancel = format!("{job}/cancel");
        let calls = [
            (Method::GET, &*path, json!({})),
            (Method::PATCH, &*path, json!({"metadata": {}})),
            (Method::POST, &*test, json!({})),
            (Method::GET, &*schema, json!({})),
            (Method::POST, &*validate, fields),
            (Method::POST, "/v1/fetcher", all_of("orders")),
            (Method::GET, &*job, json!({})),
            (Method::POST, &*cancel, json!({})),
            (Method::DELETE, &*path, json!({})),
        ];
        let mut latest = String::new();
        for code in ["FET-1014", "FET-1016"] {
            for (method, path, body) in &calls {
                let (status, answer) = ask("ledger", method.clone(), path, body).await;
                assert_eq!(
                    (status, &answer["code"]),
                    (422, &json!(code)),
                    "{method} {path}: {answer}"
                );
                let (status, answer) = ask("a b", method.clone(), path, body).await;
                assert_eq!((status, &answer["code"]), (400, &json!("FET-0403")), "{method} {path}");
            }
            // What is configured is everybody's.
            let (status, answer) = ask("ledger", Method::GET, &export, &json!({})).await;
            assert_eq!(status, 200, "{answer}");
            world.force("UPDATE connections SET product = 'shop'").await;
            let products = r#"UPDATE jobs SET products = '{"shop":"shop"}' WHERE kind = 'fetcher'"#;
            world.force(products).await;
            // With its connection of a product it is another request.
            let (_, answer) = post(world, "/v1/fetcher", &all_of("orders")).await;
            answer["jobId"].as_str().expect("an id").clone_into(&mut latest);
        }
        assert_eq!(shown(world, &job["/v1/fetcher/".len()..]).await["status"], "pending");
        let (last, others) = calls.split_last().expect("calls");
        for (method, path, body) in others {
            let (status, answer) = ask("Shop", method.clone(), path, body).await;
            let expected = if *path == cancel { 202 } else { 200 };
            assert_eq!(status, expected, "{method} {path}: {answer}");
        }
        post(world, &format!("/v1/fetcher/{latest}/cancel"), &json!({})).await;
        let (method, path, body) = last;
        let request = world.request(method.clone(), path).header("x-product-name", "shop");
        let deleted = request.body(body.to_string()).send().await.expect("an answer");
        assert_eq!(deleted.status(), 204);
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn everything_refused_below_the_facade_has_its_form() {
    World::on_sqlite(options(), async |world| {
        for path in ["/v1/fetcher/", "/v1/fetcher/a/b/c", "/v1/management", "/v1/management/x"] {
            let (status, answer) = said(world.get(path)).await;
            assert_eq!((status, &answer["code"]), (404, &json!("FET-0005")), "{path}: {answer}");
            assert!(answer["title"].is_string() && answer.get("type").is_none(), "{answer}");
        }
        for (method, path) in [(Method::PUT, "/v1/fetcher"), (Method::DELETE, BASE)] {
            let answer = world.request(method, path).send().await.expect("an answer");
            assert!(answer.headers().contains_key("allow"), "{path}");
            let (status, answer) = crate::api_world::json(answer).await;
            assert_eq!((status.as_u16(), &answer["code"]), (405, &json!("FET-0001")), "{answer}");
        }
        let (status, answer) = said(world.get("/v1/fetchers")).await;
        assert_eq!((status, &answer["code"]), (404, &json!("NOT_FOUND")), "another's: {answer}");
    })
    .await;
}

#[tokio::test]
async fn a_body_that_is_nested_too_deep_breaks_a_rule_like_any_other() {
    World::on_sqlite(options(), async |world| {
        let one = format!("{BASE}/{NOBODY}");
        let body = format!("{}{}", "[".repeat(65), "]".repeat(65));
        for (method, path) in [
            (Method::POST, "/v1/fetcher"),
            (Method::POST, BASE),
            (Method::PATCH, &*one),
            (Method::POST, "/v1/management/connections/validate-schema"),
        ] {
            let request = world.request(method, path).header("content-type", "application/json");
            let (status, answer) = said(request.body(body.clone())).await;
            assert_eq!((status, &answer["code"]), (400, &json!("FET-0401")), "{path}: {answer}");
            assert!(answer["fields"][""].is_string(), "{path}: {answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_unknown_query_parameter_is_refused_by_every_call() {
    World::on_sqlite(options(), async |world| {
        let (job, one) = (format!("/v1/fetcher/{NOBODY}"), format!("{BASE}/{NOBODY}"));
        for (method, path) in [
            (Method::POST, "/v1/fetcher".to_owned()),
            (Method::GET, job.clone()),
            (Method::POST, format!("{job}/cancel")),
            (Method::POST, BASE.to_owned()),
            (Method::GET, BASE.to_owned()),
            (Method::GET, one.clone()),
            (Method::PATCH, one.clone()),
            (Method::DELETE, one.clone()),
            (Method::POST, format!("{one}/test")),
            (Method::GET, format!("{one}/schema")),
            (Method::POST, format!("{BASE}/validate-schema")),
        ] {
            let path = format!("{path}?verbose=1");
            let (status, answer) = send(world, method.clone(), &path, &json!({})).await;
            assert_eq!((status, &answer["code"]), (400, &json!("FET-0405")), "{method} {path}");
            assert!(answer["fields"]["verbose"].is_string(), "{method} {path}: {answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_test_says_in_one_form_that_a_database_is_not_there() {
    World::on_sqlite(options(), async |world| {
        let mut closed = at("127.0.0.1");
        (closed["configName"], closed["port"]) = (json!("closed"), json!(1));
        let mut told = Vec::new();
        for connection in [at("db.invalid"), closed] {
            let path = format!("{BASE}/{}/test", store(world, &connection).await);
            let (status, answer) = post(world, &path, &json!({})).await;
            assert_eq!((status, &answer["status"]), (200, &json!("failure")), "{answer}");
            assert!(answer["message"].is_string() && answer["latencyMs"].is_u64(), "{answer}");
            let members = answer.as_object().expect("an object").keys().cloned();
            told.push(members.collect::<Vec<_>>());
        }
        assert_eq!(told[0], told[1]);
        let (_, document) = said(world.get("/openapi.json")).await;
        let test = &document["paths"][format!("{BASE}/{{id}}/test")]["post"]["responses"];
        let statuses: Vec<&str> =
            test.as_object().expect("responses").keys().map(String::as_str).collect();
        assert_eq!(statuses.join(" "), "200 400 401 403 404 422 429 500 503");
    })
    .await;
}
