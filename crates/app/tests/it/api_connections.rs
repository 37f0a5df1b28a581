//! Connections that an organization stores, as a client manages them.

use std::time::Duration;

use outport_contract::credentials;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection, Row as _};

use crate::api_world::{Options, World, facade_connections, json};

fn options() -> Options {
    Options { facade: Some(Vec::new()), ..Options::default() }
}

/// How long anything may take that is expected to happen soon.
const PATIENCE: Duration = Duration::from_secs(30);

const BASE: &str = "/v1/management/connections";
const PEM: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0LWtleQ==\n-----END PRIVATE KEY-----\n";

fn shop() -> Value {
    json!({"configName": "shop", "type": "POSTGRESQL", "host": "127.0.0.1", "port": 5432,
           "databaseName": "postgres", "userName": "postgres", "password": "s3cret/?#%40"})
}

#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
fn with(change: Value) -> Value {
    let mut body = shop();
    for (name, value) in change.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

async fn send(world: &World, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let request = world.request(method, path).header("content-type", "application/json");
    said(request.body(body.to_string())).await
}

async fn get(world: &World, path: &str) -> (u16, Value) {
    said(world.get(path)).await
}

async fn said(request: RequestBuilder) -> (u16, Value) {
    let (status, value) = json(request.send().await.expect("an answer")).await;
    (status.as_u16(), value)
}

/// Stores a connection and returns its path.
async fn stored(world: &World, body: &Value) -> String {
    let (status, answer) = send(world, Method::POST, BASE, body).await;
    assert_eq!(status, 201, "{answer}");
    format!("{BASE}/{}", answer["id"].as_str().expect("an id"))
}

#[tokio::test]
async fn a_connection_lives_on_both_stores_and_its_secrets_never_come_out() {
    World::on_sqlite(options(), life).await;
    World::on_postgres(options(), life).await;
}

async fn life(world: &World) {
    let tls = json!({"mode": "verify-ca", "ca": PEM, "cert": PEM, "key": KEY});
    let body = with(json!({"ssl": tls, "schema": "public", "metadata": {}}));
    let body = body.to_string().replace(r#""metadata":{}"#, r#""metadata":{"n":1.50}"#);
    let request = world.post(BASE).header("content-type", "application/json").body(body);
    let (status, made) = said(request).await;
    assert_eq!(status, 201, "{made}");
    let path = format!("{BASE}/{}", made["id"].as_str().expect("an id"));
    let (status, view) = get(world, &path).await;
    assert_eq!(status, 200);
    assert_eq!(view["configName"], "shop");
    assert_eq!(view["ssl"], json!({"mode": "verify-ca", "ca": PEM, "cert": PEM}));
    let (_, page) = get(world, BASE).await;
    assert_eq!((&page["total"], &page["page"], &page["limit"]), (&json!(1), &json!(1), &json!(10)));
    assert_eq!(page["items"][0], view);
    for path in [&path, BASE] {
        let text = world.get(path).send().await.expect("an answer").text().await.expect("a body");
        assert!(!text.contains("s3cret") && !text.contains("c2VjcmV0"), "{text}");
        assert!(text.contains(r#"{"n":1.50}"#), "it comes back as sent: {text}");
    }
    let (status, taken) = send(world, Method::POST, BASE, &shop()).await;
    assert_eq!((status, &taken["code"]), (409, &json!("FET-1002")), "{taken}");

    let (status, view) =
        send(world, Method::PATCH, &path, &json!({"port": 5433, "ssl": null})).await;
    assert_eq!((status, &view["port"]), (200, &json!(5433)), "{view}");
    assert_eq!(view["ssl"], json!({"mode": "prefer"}));
    assert_eq!(view["host"], "127.0.0.1", "what is not named stays");
    let other = stored(world, &with(json!({"configName": "other"}))).await;
    let (status, _) = send(world, Method::PATCH, &other, &json!({"configName": "shop"})).await;
    assert_eq!(status, 409);

    let deleted = world.request(Method::DELETE, &path).send().await.expect("an answer");
    assert_eq!(deleted.status(), 204);
    let (status, gone) = get(world, &path).await;
    assert_eq!((status, &gone["code"]), (404, &json!("FET-1001")));
    stored(world, &shop()).await;
}

#[tokio::test]
async fn secrets_are_stored_encrypted_the_clients_tls_key_too() {
    World::on_postgres(options(), async |world| {
        let tls = json!({"mode": "require", "cert": PEM, "key": KEY});
        let path = stored(world, &with(json!({"ssl": tls}))).await;
        let url = &world.database_url;
        let mut state = PgConnection::connect(url).await.expect("the state");
        let row = sqlx::query("SELECT connections::text, credentials FROM connections")
            .fetch_one(&mut state)
            .await
            .expect("a row");
        let (whole, sealed): (String, String) = (row.get(0), row.get(1));
        for secret in ["s3cret", "c2VjcmV0", "PRIVATE KEY"] {
            assert!(!whole.contains(secret), "{secret} is in the clear");
        }
        assert!(sealed.starts_with("v1:1:"));
        let id = path.rsplit('/').next().expect("an id");
        let keys = facade_connections(&world.store, Vec::new()).credentials().clone();
        let opened = credentials::open(&keys, id, &sealed).expect("its own key opens it");
        let opened: Value = serde_json::from_slice(&opened).expect("JSON");
        assert_eq!(opened, json!({"password": "s3cret/?#%40", "tlsKey": KEY}));
        // Deleted, the secrets are gone.
        world.request(Method::DELETE, &path).send().await.expect("an answer");
        let left: String = sqlx::query("SELECT credentials FROM connections")
            .fetch_one(&mut state)
            .await
            .expect("a row")
            .get(0);
        assert_eq!(left, "");
    })
    .await;
}

#[tokio::test]
async fn every_wrong_field_is_told_at_once() {
    World::on_sqlite(options(), async |world| {
        let all = json!({"configName": "ab", "type": "ORACLE", "host": "a b", "port": 0,
            "databaseName": "", "userName": 7, "password": "", "ssl": {"mode": "maybe", "cert": PEM},
            "metadata": [], "extra": 1});
        for (body, code, fields) in [
            (json!({}), "FET-0402", "configName databaseName host password port type userName"),
            (
                all,
                "FET-0401",
                "configName databaseName extra host metadata password port ssl ssl.mode type userName",
            ),
            (with(json!({"ssl": {"key": "no PEM"}})), "FET-0401", "ssl.key"),
            (with(json!({"port": 65536})), "FET-0401", "port"),
            (with(json!({"type": "MONGODB"})), "FET-0401", "type"),
        ] {
            let (status, answer) = send(world, Method::POST, BASE, &body).await;
            assert_eq!((status, &answer["code"]), (400, &json!(code)), "{answer}");
            assert!(answer["title"].is_string() && answer["message"].is_string(), "{answer}");
            let told: Vec<&str> =
                answer["fields"].as_object().expect("fields").keys().map(String::as_str).collect();
            assert_eq!(told.join(" "), fields, "{answer}");
            let message = format!("{} field(s) of the body are wrong.", told.len());
            assert_eq!(answer["message"], message, "{answer}");
        }
        let (_, answer) = send(world, Method::POST, BASE, &with(json!({"host": ""}))).await;
        let rules = answer["fields"]["host"].as_str().expect("its rules");
        let (length, form) = rules.split_once("; ").expect("both of them");
        assert!(length.starts_with("must have 1 to 253 characters"), "{rules}");
        assert!(form.starts_with("must be a host name"), "{rules}");
        let (_, page) = get(world, BASE).await;
        assert_eq!(page["total"], 0);
    })
    .await;
}

#[tokio::test]
async fn metadata_with_a_member_that_stands_twice_is_refused() {
    World::on_sqlite(options(), async |world| {
        let metadata = r#"{"owner":[{"team":"a","team":"b"}]}"#;
        let body = with(json!({"metadata": {}})).to_string().replace("{}", metadata);
        let request = world.post(BASE).header("content-type", "application/json").body(body);
        let (status, answer) = said(request).await;
        assert_eq!((status, &answer["code"]), (400, &json!("FET-0401")), "{answer}");
        assert_eq!(answer["fields"], json!({"metadata.owner[0].team": "stands twice"}));
    })
    .await;
}

#[tokio::test]
async fn a_host_that_leads_where_it_must_not_is_refused() {
    let denied =
        ["127.0.0.0/8", "169.254.0.0/16", "::1/128"].map(|net| net.parse().expect("a network"));
    let options = Options { facade: Some(denied.into()), ..Options::default() };
    World::on_sqlite(options, async |world| {
        for host in ["127.0.0.1", "localhost", "169.254.169.254", "[::ffff:127.0.0.1]", "::1"] {
            let (status, answer) =
                send(world, Method::POST, BASE, &with(json!({"host": host}))).await;
            assert_eq!((status, &answer["code"]), (400, &json!("FET-0414")), "{host}: {answer}");
        }
        // One whose name has no address yet may be stored.
        let path = stored(world, &with(json!({"host": "db.invalid"}))).await;
        let (status, answer) =
            send(world, Method::PATCH, &path, &json!({"host": "127.0.0.1"})).await;
        assert_eq!((status, &answer["code"]), (400, &json!("FET-0414")), "{answer}");
        let (status, answer) = send(world, Method::POST, &format!("{path}/test"), &json!({})).await;
        assert_eq!((status, &answer["status"]), (200, &json!("failure")), "{answer}");
    })
    .await;
}

#[tokio::test]
async fn an_organization_tests_its_connections_ten_times_a_minute() {
    World::on_sqlite(options(), async |world| {
        let path = format!("{}/test", stored(world, &shop()).await);
        let (status, answer) = send(world, Method::POST, &path, &json!({})).await;
        assert_eq!((status, &answer["status"]), (200, &json!("success")), "{answer}");
        assert!(answer["latencyMs"].is_u64());
        // Whoever stores one, tests it and deletes it finds out no more ports.
        for n in 0..9 {
            let body = with(json!({"configName": format!("closed-{n}"), "port": 1}));
            let closed = stored(world, &body).await;
            let test = format!("{closed}/test");
            let (status, answer) = send(world, Method::POST, &test, &json!({})).await;
            assert_eq!((status, &answer["status"]), (200, &json!("failure")), "{answer}");
            assert!(!answer.to_string().contains("127.0.0.1"), "{answer}");
            let deleted = world.request(Method::DELETE, &closed).send().await.expect("an answer");
            assert_eq!(deleted.status(), 204);
        }
        let mut refused = None;
        for n in 0..100 {
            let other = stored(world, &with(json!({"configName": format!("other-{n}")}))).await;
            let answer = world.post(&format!("{other}/test")).send().await.expect("an answer");
            // On a slow machine another one has become due meanwhile.
            if answer.status() != 200 {
                refused = Some(answer);
                break;
            }
        }
        let refused = refused.expect("a limit");
        assert!(refused.headers().contains_key("retry-after"));
        let (status, answer) = json(refused).await;
        assert_eq!((status.as_u16(), &answer["code"]), (429, &json!("FET-0003")), "{answer}");
    })
    .await;
}

#[tokio::test]
async fn a_list_hides_nothing_and_has_pages_and_products() {
    World::on_postgres(options(), async |world| {
        for n in 0..12 {
            stored(world, &with(json!({"configName": format!("shop-{n}")}))).await;
        }
        let url = &world.database_url;
        let mut state = PgConnection::connect(url).await.expect("the state");
        let two_years = "UPDATE connections SET created_at = created_at - 63072000000, \
                         updated_at = updated_at - 63072000000";
        sqlx::query(two_years).execute(&mut state).await.expect("old rows");
        let (_, first) = get(world, BASE).await;
        let (_, second) = get(world, &format!("{BASE}?page=2&limit=10")).await;
        let names = |page: &Value| -> Vec<String> {
            let items = page["items"].as_array().expect("items").iter();
            items.map(|one| one["configName"].as_str().expect("a name").to_owned()).collect()
        };
        assert_eq!((&first["total"], names(&first).len()), (&json!(12), 10));
        assert_eq!(names(&second), ["shop-1", "shop-0"]);
        for query in ["page=0", "limit=101", "sort=asc"] {
            let (status, answer) = get(world, &format!("{BASE}?{query}")).await;
            assert_eq!((status, &answer["code"]), (400, &json!("FET-0405")), "{answer}");
        }

        let asked = world.post(BASE).header("content-type", "application/json");
        let asked = asked
            .header("x-product-name", "Ledger")
            .body(with(json!({"configName": "led"})).to_string());
        let (status, view) = said(asked).await;
        assert_eq!((status, &view["productName"]), (201, &json!("ledger")), "{view}");
        let (_, page) = said(world.get(BASE).header("x-product-name", "ledger")).await;
        assert_eq!(names(&page), ["led"]);
        let (status, answer) = said(world.get(BASE).header("x-product-name", "a b")).await;
        assert_eq!((status, &answer["code"]), (400, &json!("FET-0403")), "{answer}");
    })
    .await;
}

#[tokio::test]
async fn only_who_may_sees_connections_and_only_those_of_its_organization() {
    World::on_sqlite(options(), async |world| {
        let path = stored(world, &shop()).await;
        let status = async |token: &str, path: &str| {
            said(world.client.get(world.url(path)).bearer_auth(token)).await
        };
        let other =
            world.token_for(|caller| caller.organization = outport_domain::id::Id::new()).await;
        let (found, answer) = status(&other, &path).await;
        assert_eq!((found, &answer["code"]), (404, &json!("FET-1001")));
        let (_, page) = status(&other, BASE).await;
        assert_eq!(page["total"], 0);
        let weak = world.token_for(|caller| {
            caller.scopes.remove("connections:admin");
        });
        let (found, answer) = status(&weak.await, &path).await;
        assert_eq!((found, &answer["code"]), (403, &json!("FET-0403")), "{answer}");
        let partial = world.token_for(|caller| caller.companies = Some(Vec::new())).await;
        assert_eq!(status(&partial, &path).await.0, 403);
        let (found, answer) = said(world.client.get(world.url(&path))).await;
        assert_eq!((found, &answer["code"]), (401, &json!("FET-0403")), "{answer}");
        let (found, answer) = get(world, &format!("{BASE}/1")).await;
        assert_eq!((found, &answer["code"]), (400, &json!("FET-0404")), "{answer}");
    })
    .await;
}

#[tokio::test]
async fn without_the_facade_there_is_nothing_at_its_addresses() {
    World::on_sqlite(Options::default(), async |world| {
        for path in [BASE, "/v1/fetcher/0197f604-49fe-7b73-bb81-df2e93a7e47d"] {
            let (status, answer) = get(world, path).await;
            assert_eq!((status, &answer["code"]), (404, &json!("NOT_FOUND")), "{answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn of_those_who_ask_for_one_name_at_once_one_gets_it_and_the_others_are_told() {
    World::on_sqlite(options(), one_name).await;
    World::on_postgres(options(), one_name).await;
}

async fn one_name(world: &World) {
    let body = shop();
    let asking = (0..8).map(|_| send(world, Method::POST, BASE, &body));
    let mut answers = futures::future::join_all(asking).await;
    answers.sort_by_key(|(status, _)| *status);
    assert_eq!(answers[0].0, 201, "{answers:?}");
    for (status, answer) in &answers[1..] {
        assert_eq!((*status, &answer["code"]), (409, &json!("FET-1002")), "{answer}");
    }
    let (_, page) = get(world, BASE).await;
    assert_eq!(page["total"], 1);
}

/// Between the look for the name and the write somebody else takes it: the other's transaction
/// has not committed when the look passes, and commits when the write waits for it.
#[tokio::test]
async fn a_name_that_is_taken_between_look_and_write_is_told_as_taken() {
    World::on_postgres(options(), async |world| {
        let path = stored(world, &shop()).await;
        for (name, method, path) in
            [("first", Method::POST, BASE), ("second", Method::PATCH, &*path)]
        {
            let mut other = PgConnection::connect(&world.database_url).await.expect("the state");
            let take = "INSERT INTO connections SELECT (jsonb_populate_record(c, jsonb_build_object(\
                        'id', gen_random_uuid(), 'name', $1::text))).* FROM connections c \
                        WHERE name = 'shop'";
            let mut taking = other.begin().await.expect("a transaction");
            sqlx::query(take).bind(name).execute(&mut *taking).await.expect("a row");
            let body = with(json!({"configName": name}));
            let asking = send(world, method, path, &body);
            let committing = async {
                waits_for_a_lock(&world.database_url).await;
                taking.commit().await.expect("a commit");
            };
            let ((status, answer), ()) = tokio::join!(asking, committing);
            assert_eq!((status, &answer["code"]), (409, &json!("FET-1002")), "{answer}");
        }
        let (_, page) = get(world, BASE).await;
        assert_eq!(page["total"], 3, "the two that took the names, and the first");
    })
    .await;
}

/// Looks until a statement in this database waits for another one's lock.
async fn waits_for_a_lock(url: &str) {
    let mut connection = PgConnection::connect(url).await.expect("the state");
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let looking = async {
        loop {
            let row = sqlx::query(waiting).fetch_one(&mut connection).await.expect("a count");
            if row.get::<i64, _>(0) > 0 {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it waits for the lock");
}
