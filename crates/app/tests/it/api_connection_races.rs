//! Calls of the facade at the same moment: no change is lost, and no connection is taken from
//! under a job that was asked for meanwhile.

use futures::future::join_all;
use outport_pipeline::connections::Secrets;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api_world::{Options, World, facade_connections, on_both_stores};
use crate::fetcher_world::{
    Database, asked, options as with_facade, post, request, said, shown, store,
};

const BASE: &str = "/v1/management/connections";
/// Connections, each in a race of its own.
const RACES: usize = 12;

fn options() -> Options {
    with_facade()
}

on_both_stores!(
    changes_at_once_all_stay: options,
    what_is_deleted_at_once_with_a_request_is_kept_or_missing: options,
    what_is_renamed_at_once_with_a_request_is_kept_or_missing: options,
    what_is_led_elsewhere_at_once_with_a_request_is_kept_or_read_there: options,
    a_job_that_was_refused_to_others_can_still_be_read_and_run: options,
);

async fn patch(world: &World, path: &str, change: &Value) -> (u16, Value) {
    let request = world.request(Method::PATCH, path).header("content-type", "application/json");
    said(request.body(change.to_string())).await
}

async fn changes_at_once_all_stay(world: &World) {
    let shop = json!({"configName": "shop", "type": "POSTGRESQL", "host": "127.0.0.1",
                      "port": 5432, "databaseName": "postgres", "userName": "postgres",
                      "password": "first"});
    let path = format!("{BASE}/{}", store(world, &shop).await);
    for n in 1..=RACES {
        let password = format!("secret-{n}");
        let changes = [
            json!({"port": n}),
            json!({"userName": format!("user-{n}")}),
            json!({"databaseName": format!("database-{n}")}),
            json!({"schema": format!("schema-{n}")}),
            json!({"metadata": {"n": n}}),
            json!({"password": password}),
        ];
        let answers = join_all(changes.iter().map(|change| patch(world, &path, change))).await;
        for ((status, answer), change) in answers.iter().zip(&changes) {
            assert_eq!(*status, 200, "{change}: {answer}");
        }
        let (_, view) = said(world.get(&path)).await;
        let found = ["port", "userName", "databaseName", "schema", "metadata"].map(|of| &view[of]);
        let expected = changes.each_ref().map(|change| {
            change.as_object().and_then(|change| change.values().next()).expect("a value")
        });
        assert_eq!(found.as_slice(), &expected[..5]);
        let stored =
            outport_store::connections::find_by_name(&world.store, world.organization, "shop");
        let stored = stored.await.expect("the state").expect("the connection");
        let facade = facade_connections(&world.store, Vec::new());
        let secrets = Secrets::open(facade.credentials(), stored.id, &stored.credentials);
        assert_eq!(secrets.expect("it opens").password.as_str(), password);
    }
}

/// Stores many connections to one database, sets a call to each off at once with a request that
/// reads it, and returns what both came to: the call's status and the request's, and their codes.
async fn race(
    world: &World,
    database: &Database,
    method: &Method,
    change: impl Fn(usize) -> Value,
) -> Vec<(u16, u16, Value)> {
    let mut pairs = Vec::new();
    for n in 0..RACES {
        let name = format!("shop-{n}");
        let path = format!("{BASE}/{}", store(world, &database.connection(&name)).await);
        pairs.push((path, request(json!({name: {"orders": ["code"]}}), json!({})), change(n)));
    }
    let races = pairs.iter().map(async |(path, wanted, change)| {
        let call = async {
            let call = world.request(method.clone(), path);
            let call = call.header("content-type", "application/json").body(change.to_string());
            let answer = call.send().await.expect("an answer");
            let status = answer.status().as_u16();
            let text = answer.text().await.expect("a body");
            let body: Value = serde_json::from_str(&text).unwrap_or_default();
            (status, body["code"].clone())
        };
        let ((called, told), (asked, answer)) =
            tokio::join!(call, post(world, "/v1/fetcher", wanted));
        assert_eq!(called == 409, told == "FET-1021", "{told}");
        (called, asked, answer)
    });
    join_all(races).await
}

/// Whichever of the two was first, the other one knew of it.
fn assert_one_of_two(races: &[(u16, u16, Value)], done: u16, refused: (u16, &str)) {
    assert_eq!(races.len(), RACES);
    for (called, asked, answer) in races {
        match (called, asked) {
            (409, 202) => {}
            (called, asked) if *called == done && *asked == refused.0 => {
                assert_eq!(answer["code"], refused.1, "{answer}");
            }
            other => panic!("{other:?}: {answer}"),
        }
    }
}

async fn what_is_deleted_at_once_with_a_request_is_kept_or_missing(world: &World) {
    let database = Database::postgres().await;
    let races = race(world, &database, &Method::DELETE, |_| json!({})).await;
    database.gone().await;
    assert_one_of_two(&races, 204, (422, "FET-1020"));
}

async fn what_is_renamed_at_once_with_a_request_is_kept_or_missing(world: &World) {
    let database = Database::postgres().await;
    let other = |n| json!({"configName": format!("other-{n}")});
    let races = race(world, &database, &Method::PATCH, other).await;
    database.gone().await;
    assert_one_of_two(&races, 200, (422, "FET-1020"));
}

async fn what_is_led_elsewhere_at_once_with_a_request_is_kept_or_read_there(world: &World) {
    let database = Database::postgres().await;
    let nowhere = |_| json!({"databaseName": "outport_no_such_database"});
    let races = race(world, &database, &Method::PATCH, nowhere).await;
    database.gone().await;
    assert_one_of_two(&races, 200, (503, "FET-1040"));
}

async fn a_job_that_was_refused_to_others_can_still_be_read_and_run(world: &World) {
    let database = Database::postgres().await;
    let path = format!("{BASE}/{}", store(world, &database.connection("shop")).await);
    let id = asked(world, &request(json!({"shop": {"orders": ["code"]}}), json!({}))).await;
    let calls = (0..RACES).map(|_| world.request(Method::DELETE, &path).send());
    for answer in join_all(calls).await {
        assert_eq!(answer.expect("an answer").status(), 409);
    }
    assert_eq!(shown(world, &id).await["status"], "pending");
    // What those calls had locked is free.
    assert_eq!(world.claim().await.job.id.to_string(), id);
    database.gone().await;
}
