//! The Fetcher facade: which connection a name is, at the request and when its job runs, whatever
//! becomes of the name meanwhile.

use std::sync::Arc;

use outport_domain::{data_request, job::Protection, limits::Limits};
use outport_pipeline::fetcher::{Refused, all_there, prepare};
use outport_store::jobs::Finished;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};

use crate::api_world::{Options, World, facade_connections, on_both_stores};
use crate::fetcher_world::*;

const BASE: &str = "/v1/management/connections";

fn with_facade() -> Options {
    options()
}

on_both_stores!(
    a_name_of_nothing_is_refused_before_any_database_is_asked: with_facade,
    whatever_takes_a_name_later_is_not_what_was_looked_up: with_facade,
    who_takes_a_name_while_databases_are_asked_is_looked_at: with_facade,
    a_job_reads_the_connection_that_it_was_accepted_with_or_none: with_facade,
    a_key_that_a_worker_lacks_is_named_and_waited_for: with_facade,
    a_product_is_named_once: with_facade,
);

/// A way to a database that is closed at first: who takes it waits until it is opened.
struct Door {
    port: u16,
    knocks: Arc<Semaphore>,
    open: watch::Sender<bool>,
}

impl Door {
    async fn to(database: &Database) -> Self {
        let server = database.server();
        let server =
            format!("{}:{}", server.host_str().expect("a host"), server.port().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let knocks = Arc::new(Semaphore::new(0));
        let (open, is_open) = watch::channel(false);
        let knocked = Arc::clone(&knocks);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                knocked.add_permits(1);
                let (server, mut is_open) = (server.clone(), is_open.clone());
                tokio::spawn(async move {
                    is_open.wait_for(|open| *open).await.ok()?;
                    let mut server = TcpStream::connect(server).await.ok()?;
                    copy_bidirectional(&mut client, &mut server).await.ok()
                });
            }
        });
        Self { port, knocks, open }
    }

    /// Waits until somebody stands before it.
    async fn knock(&self) {
        self.knocks.acquire().await.expect("it is never closed").forget();
    }

    fn open(&self) {
        self.open.send_replace(true);
    }

    /// What a client stores to reach the database this way.
    fn connection(&self, database: &Database, name: &str) -> Value {
        let mut connection = database.connection(name);
        connection["port"] = json!(self.port);
        connection
    }
}

async fn send(
    world: &World,
    product: &str,
    method: Method,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let request = world.request(method, path).header("content-type", "application/json");
    said(request.header("x-product-name", product).body(body.to_string())).await
}

async fn store_for(world: &World, product: &str, connection: &Value) -> String {
    let (status, answer) = send(world, product, Method::POST, BASE, connection).await;
    assert_eq!(status, 201, "{answer}");
    format!("{BASE}/{}", answer["id"].as_str().expect("an id"))
}

async fn delete(world: &World, path: &str) {
    let deleted = world.request(Method::DELETE, path).send().await.expect("an answer");
    assert_eq!(deleted.status(), 204);
}

async fn jobs(world: &World) -> Option<outport_store::jobs::Claim> {
    pipeline(world, Protection::None, Limits::default()).claim(&policy()).await.expect("a claim")
}

/// More names than are asked at once, so that the last one's turn would come when it has been
/// stored.
async fn a_name_of_nothing_is_refused_before_any_database_is_asked(world: &World) {
    let shop = Database::postgres().await;
    let door = Door::to(&shop).await;
    let mut fields = json!({"late": {"orders": ["code"]}});
    for n in 0..outport_pipeline::fetcher::CONNECTIONS_AT_ONCE {
        let name = format!("early-{n}");
        store_for(world, "alpha", &door.connection(&shop, &name)).await;
        fields[name] = json!({"orders": ["code"]});
    }
    let body = request(fields, json!({}));
    let ask = send(world, "alpha", Method::POST, "/v1/fetcher", &body);
    let late = async {
        // Were one of them asked, the name would have been somebody's when its turn came.
        door.knock().await;
        let path = store_for(world, "beta", &shop.connection("late")).await;
        door.open();
        path
    };
    let (status, answer) = tokio::select! {
        answer = ask => answer,
        path = late => panic!("a database was asked before {path} was there"),
    };
    assert_eq!((status, &answer["code"]), (422, &json!("FET-1020")), "{answer}");
    assert_eq!(
        answer["fields"],
        json!({"dataRequest.mappedFields.late": "there is no connection 'late'"})
    );
    assert!(jobs(world).await.is_none(), "no job was made");
    shop.gone().await;
}

async fn whatever_takes_a_name_later_is_not_what_was_looked_up(world: &World) {
    let shop = Database::postgres().await;
    let connections = facade_connections(&world.store, Vec::new());
    let asked = r#"{"mappedFields":{"shop":{"orders":["code"]}}}"#;
    let asked = data_request::parse_mapped_fields(asked).expect("a request");
    let before = connections.find(world.organization, &["shop"]).await.expect("a look");
    let path = store_for(world, "alpha", &shop.connection("shop")).await;
    for refused in [all_there(&before).err(), prepare(&connections, &before, &asked).await.err()] {
        let Some(Refused::Connections(faults)) = refused else { panic!("{refused:?}") };
        assert_eq!(faults[0].1.to_string(), "there is no connection 'shop'");
    }
    let found = connections.find(world.organization, &["shop"]).await.expect("a look");
    delete(world, &path).await;
    let mut other = shop.connection("shop");
    other["databaseName"] = json!("outport_no_such_database");
    store_for(world, "beta", &other).await;
    assert_eq!(found.stored[0].product.as_deref(), Some("alpha"));
    let parts = prepare(&connections, &found, &asked).await;
    assert!(parts.is_ok(), "the one that was found is asked: {:?}", parts.err());
    shop.gone().await;
}

async fn who_takes_a_name_while_databases_are_asked_is_looked_at(world: &World) {
    let shop = Database::postgres().await;
    let fields = json!({"slow": {"orders": ["code"]}, "shop": {"orders": ["code"]}});
    for (successor, code) in
        [(Some("beta"), "FET-1016"), (None, "FET-1020"), (Some("alpha"), "accepted")]
    {
        let door = Door::to(&shop).await;
        let slow = store_for(world, "alpha", &door.connection(&shop, "slow")).await;
        let first = store_for(world, "alpha", &shop.connection("shop")).await;
        let mut body = request(fields.clone(), json!({}));
        body["metadata"]["n"] = json!(code);
        let change = async {
            door.knock().await;
            delete(world, &first).await;
            let second = match successor {
                Some(product) => Some(store_for(world, product, &shop.connection("shop")).await),
                None => None,
            };
            door.open();
            second
        };
        let ask = send(world, "alpha", Method::POST, "/v1/fetcher", &body);
        let ((status, answer), second) = tokio::join!(ask, change);
        if code == "accepted" {
            assert_eq!(status, 202, "{answer}");
            let job = jobs(world).await.expect("the job").job;
            let id = &job.connection_ids.expect("ids")["shop"];
            assert!(second.expect("a path").ends_with(&id.to_string()), "the one that is there");
        } else {
            assert_eq!((status, &answer["code"]), (422, &json!(code)), "{answer}");
            assert!(jobs(world).await.is_none(), "no job was made");
            delete(world, &slow).await;
            if let Some(second) = second {
                delete(world, &second).await;
            }
        }
    }
    shop.gone().await;
}

async fn a_job_reads_the_connection_that_it_was_accepted_with_or_none(world: &World) {
    let shop = Database::postgres().await;
    store_for(world, "alpha", &shop.connection("shop")).await;
    let pipeline = pipeline(world, Protection::None, Limits::default());
    let ask = async |n: u32| {
        let mut body = all_of("orders");
        body["metadata"]["n"] = json!(n);
        asked(world, &body).await
    };
    let finds_none = async |id: &str| {
        assert!(matches!(run(&pipeline).await, Finished::Failed(_)));
        let expected = ("SOURCE_UNREACHABLE".into(), "there is no connection 'shop'".into());
        assert_eq!(failure(world, id).await, expected);
    };
    let id = ask(1).await;
    // No call takes a connection from under a job.
    world.force("UPDATE connections SET deleted_at = 1").await;
    store_for(world, "alpha", &shop.connection("shop")).await;
    finds_none(&id).await;

    let id = ask(2).await;
    // As of a configured connection that this worker does not know.
    world.force("UPDATE jobs SET connection_ids = '{}', products = '{}'").await;
    finds_none(&id).await;

    // Of jobs before their ids were kept only the products are known.
    let id = ask(3).await;
    let other = r#"UPDATE jobs SET connection_ids = NULL, products = '{"shop":"beta"}'"#;
    world.force(other).await;
    finds_none(&id).await;
    for before in ["connection_ids = NULL", "connection_ids = NULL, products = NULL"] {
        ask(if before.contains("products") { 5 } else { 4 }).await;
        world.force(&format!("UPDATE jobs SET {before} WHERE status = 'PENDING'")).await;
        let finished = run(&pipeline).await;
        assert!(matches!(finished, Finished::Completed(_)), "{before}: {finished:?}");
    }
    shop.gone().await;
}

async fn a_key_that_a_worker_lacks_is_named_and_waited_for(world: &World) {
    let shop = Database::postgres().await;
    store(world, &shop.connection("shop")).await;
    let limits =
        Limits { job_failures: 2, job_backoff: std::time::Duration::ZERO, ..Limits::default() };
    let pipeline = pipeline(world, Protection::None, limits);
    let sealed_with = async |key: u16| {
        let sql =
            format!("UPDATE connections SET credentials = 'v1:{key}:' || substr(credentials, 6)");
        world.force(&sql).await;
    };
    asked(world, &all_of("orders")).await;
    sealed_with(7).await;
    assert!(matches!(run(&pipeline).await, Finished::Requeued(_)));
    sealed_with(1).await;
    assert!(matches!(run(&pipeline).await, Finished::Completed(_)), "a worker with the key");

    let id = asked(world, &all_of("nothing")).await;
    sealed_with(7).await;
    assert!(matches!(run(&pipeline).await, Finished::Requeued(_)));
    assert!(matches!(run(&pipeline).await, Finished::Failed(_)));
    let told =
        "the credentials of connection 'shop' are sealed with key 7, which this service lacks";
    assert_eq!(failure(world, &id).await, ("SOURCE_UNREACHABLE".into(), told.into()));
    shop.gone().await;
}

async fn a_product_is_named_once(world: &World) {
    let calls = [
        (Method::POST, "/v1/fetcher"),
        (Method::GET, "/v1/fetcher/0197f604-49fe-7b73-bb81-df2e93a7e47d"),
        (Method::GET, BASE),
        (Method::POST, BASE),
    ];
    for (method, path) in &calls {
        for second in ["beta", "alpha", ""] {
            let call = world.request(method.clone(), path).header("x-product-name", "alpha");
            let call = call.header("x-product-name", second);
            let call = call.header("content-type", "application/json").body("{}");
            let (status, answer) = said(call).await;
            assert_eq!((status, &answer["code"]), (400, &json!("FET-0403")), "{path}: {answer}");
            assert_eq!(answer["message"], "X-Product-Name must stand once.");
        }
    }
}
