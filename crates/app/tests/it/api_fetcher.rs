//! The Fetcher facade, as an existing client sees it: requests and answers, runs and results, on
//! PostgreSQL and MariaDB.

use outport_contract::{adapter_managed, signature::ResultVerifier};
use outport_domain::{job::Protection, limits::Limits};
use outport_store::jobs::Finished;
use serde_json::{Value, json};

use crate::api_world::{World, storage_keys};
use crate::fetcher_world::*;

#[tokio::test]
async fn rows_of_two_databases_come_as_one_result_that_a_consumer_can_verify() {
    World::on_sqlite(options(), two_databases).await;
    World::on_postgres(options(), two_databases).await;
}

async fn two_databases(world: &World) {
    let (shop, ledger) = (Database::postgres().await, Database::mariadb().await);
    store(world, &shop.connection("shop")).await;
    store(world, &ledger.connection("ledger")).await;
    let fields = json!({"shop": {"orders": ["id", "note", "amount", "Odd \"name"], "nothing": ["*"]},
                        "ledger": {"orders": ["*"]}});
    let filters = json!({"shop": {"orders": {"id": {"gte": ["2026-07-02"]}}},
                         "ledger": {"orders": {"code": {"in": ["A"]}, "paid": {"eq": [1]}}}});
    let asked_for = request(fields.clone(), filters.clone());
    let id = asked(world, &asked_for).await;
    let pending = shown(world, &id).await;
    assert_eq!((&pending["status"], &pending["completedAt"]), (&json!("pending"), &Value::Null));
    assert_eq!((&pending["mappedFields"], &pending["filters"]), (&fields, &filters));

    let pipeline = pipeline(world, Protection::Sealed, Limits::default());
    let finished = run(&pipeline).await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    shop.gone().await;
    ledger.gone().await;

    let job = shown(world, &id).await;
    let path = format!("external-data/{id}.json");
    assert_eq!((&job["status"], &job["resultPath"]), (&json!("completed"), &json!(path)));
    assert_eq!(job["metadata"], json!({"source": "payments", "n": 1}), "unchanged");
    let bytes = world.objects.bytes(&path).expect("the result");
    let plain = adapter_managed::open(&storage_keys(), &bytes).expect("it opens");
    assert_eq!(String::from_utf8(plain.clone()).expect("text"), EXPECTED);

    let events = events(world, &id).await;
    let [(name, body)] = events.as_slice() else { panic!("only job.*: {events:?}") };
    assert_eq!(name, "job.completed");
    let result = &body["result"];
    assert_eq!((&result["path"], &result["format"]), (&json!(path), &json!("json")));
    assert_eq!((&result["rowCount"], &result["sizeBytes"]), (&json!(2), &json!(plain.len())));
    let protection = json!({"encrypted": true, "appliedBy": "adapter", "mode": "adapter-managed"});
    assert_eq!(result["protection"], protection);
    assert_eq!(
        (&result["hmac"], &result["hmac"]),
        (&job["resultHmac"], &result["integrity"]["signature"])
    );
    let integrity = serde_json::from_value(result["integrity"].clone()).expect("an integrity");
    let mut verifier = ResultVerifier::new(&external(), &integrity).expect("a known key");
    verifier.update(&plain);
    verifier.finish().expect("what was signed");
}

/// Names sorted, two spaces, every digit, text as text, an empty table as an empty array.
const EXPECTED: &str = r#"{
  "ledger": {
    "orders": [
      {
        "Odd \"name": "x",
        "amount": 12345678901234567890.10,
        "code": "A",
        "id": "2026-07-01T10:00:00",
        "note": "São \"1\"",
        "paid": true
      }
    ]
  },
  "shop": {
    "nothing": [],
    "orders": [
      {
        "Odd \"name": "y",
        "amount": 0.50,
        "id": "2026-07-02T10:00:00Z",
        "note": null
      }
    ]
  }
}"#;

#[tokio::test]
async fn the_same_request_is_the_same_job_on_both_stores() {
    World::on_sqlite(options(), same_job).await;
    World::on_postgres(options(), same_job).await;
}

async fn same_job(world: &World) {
    let shop = Database::postgres().await;
    store(world, &shop.connection("shop")).await;
    let body = all_of("nothing");
    let id = asked(world, &body).await;
    let again = async |body: &Value| {
        let (status, answer) = post(world, "/v1/fetcher", body).await;
        (status, answer["jobId"].as_str().unwrap_or_default() == id)
    };
    assert_eq!(again(&body).await, (200, true));
    let mut other = body.clone();
    other["metadata"]["n"] = json!(2);
    assert_eq!(again(&other).await, (202, false));
    let pipeline = pipeline(world, Protection::None, Limits::default());
    for _ in 0..2 {
        run(&pipeline).await;
    }
    let result = world.objects.bytes(&format!("external-data/{id}.json")).expect("the result");
    assert_eq!(result, "{\n  \"shop\": {\n    \"nothing\": []\n  }\n}");
    let events = events(world, &id).await;
    let result = &events[0].1["result"];
    assert_eq!(
        (&result["rowCount"], &result["protection"]),
        (&json!(0), &json!({"encrypted": false}))
    );
    assert_eq!(again(&body).await, (200, true), "it ended less than five minutes ago");
    // Also when its source has gone: nothing is asked of it.
    shop.gone().await;
    assert_eq!(again(&body).await, (200, true));
    world.force("UPDATE jobs SET created_at = created_at - 301000").await;
    let (status, answer) = post(world, "/v1/fetcher", &body).await;
    assert_eq!((status, &answer["code"]), (503, &json!("FET-1040")), "a new one: {answer}");
}

#[tokio::test]
async fn requests_of_one_identity_at_once_make_one_job() {
    World::on_postgres(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        let body = all_of("nothing");
        let answers =
            futures::future::join_all((0..8).map(|_| post(world, "/v1/fetcher", &body))).await;
        let created = answers.iter().filter(|(status, _)| *status == 202).count();
        assert_eq!(created, 1, "{answers:?}");
        assert!(answers.iter().all(|(_, answer)| answer["jobId"] == answers[0].1["jobId"]));
        shop.gone().await;
    })
    .await;
}

#[tokio::test]
async fn what_does_not_fit_is_refused_at_the_request_and_leaves_nothing() {
    World::on_sqlite(options(), async |world| {
        let shop = Database::postgres().await;
        store(world, &shop.connection("shop")).await;
        let orders = |fields: Value, filters: Value| {
            request(json!({"shop": {"orders": fields}}), json!({"shop": {"orders": filters}}))
        };
        let mut reserved = all_of("orders");
        reserved["metadata"]["error"] = json!("mine");
        let mut without_source = all_of("orders");
        without_source["metadata"] = json!({});
        let many = (0..51).map(|n| format!("f{n}")).collect::<Vec<_>>();
        let path = "dataRequest.mappedFields.shop.orders";
        let filters = "dataRequest.filters.shop.orders";
        for (body, code, field) in [
            (all_of("ordres"), "FET-0401", "dataRequest.mappedFields.shop.ordres".to_owned()),
            (all_of("ORDERS"), "FET-0401", "dataRequest.mappedFields.shop.ORDERS".to_owned()),
            (orders(json!(["cod"]), json!({})), "FET-0401", format!("{path}.cod")),
            (
                orders(json!(["code"]), json!({"cod": {"eq": ["A"]}})),
                "FET-0401",
                format!("{filters}.cod"),
            ),
            (
                orders(json!(["code"]), json!({"amount": {"eq": ["A"]}})),
                "FET-0401",
                format!("{filters}.amount.eq[0]"),
            ),
            (
                orders(json!(["code"]), json!({"code": {"in": ["A", null]}})),
                "FET-0401",
                format!("{filters}.code.in[1]"),
            ),
            (
                orders(json!(["code"]), json!({"code": {"eq": "A"}})),
                "FET-0401",
                format!("{filters}.code.eq"),
            ),
            (orders(json!(many), json!({})), "FET-0401", path.to_owned()),
            (orders(json!([]), json!({})), "FET-0402", path.to_owned()),
            (
                request(json!({"shap": {"orders": ["*"]}}), json!({})),
                "FET-1020",
                "dataRequest.mappedFields.shap".to_owned(),
            ),
            (reserved, "FET-0401", "metadata.error".to_owned()),
            (without_source, "FET-0402", "metadata.source".to_owned()),
            (json!({}), "FET-0402", "dataRequest".to_owned()),
        ] {
            let (status, answer) = post(world, "/v1/fetcher", &body).await;
            assert_eq!(answer["code"], code, "{body}: {answer}");
            assert_eq!(status, if code == "FET-1020" { 422 } else { 400 }, "{answer}");
            assert!(answer["fields"].get(&field).is_some(), "{field}: {answer}");
        }
        let raw = world.post("/v1/fetcher").header("content-type", "application/json").body("{");
        let (status, answer) = said(raw).await;
        assert_eq!((status, &answer["code"]), (400, &json!("FET-0001")), "{answer}");
        shop.gone().await;
        let (status, answer) = post(world, "/v1/fetcher", &all_of("orders")).await;
        assert_eq!((status, &answer["code"]), (503, &json!("FET-1040")), "{answer}");
        let pipeline = pipeline(world, Protection::None, Limits::default());
        assert!(pipeline.claim(&policy()).await.expect("a claim").is_none(), "no job was made");
    })
    .await;
}

#[tokio::test]
async fn validate_schema_says_what_is_missing() {
    World::on_sqlite(options(), async |world| {
        let ledger = Database::mariadb().await;
        let id = store(world, &ledger.connection("ledger")).await;
        let path = "/v1/management/connections";
        let validate = async |fields: Value| {
            post(world, &format!("{path}/validate-schema"), &json!({"mappedFields": fields})).await
        };
        let (status, answer) = validate(json!({"ledger": {"orders": ["code", "paid"]}})).await;
        assert_eq!(
            (status, &answer["status"], &answer["errors"]),
            (200, &json!("success"), &json!([]))
        );
        for (fields, field) in [
            (json!({"ledger": {"orders": ["coed"]}}), "mappedFields.ledger.orders.coed"),
            (json!({"ledger": {"ordres": ["code"]}}), "mappedFields.ledger.ordres"),
            (json!({"ledgre": {"orders": ["code"]}}), "mappedFields.ledgre"),
        ] {
            let (status, answer) = validate(fields).await;
            assert_eq!((status, &answer["status"]), (422, &json!("failure")), "{answer}");
            assert_eq!(answer["errors"][0]["field"], field, "{answer}");
        }
        let (status, answer) = validate(json!({})).await;
        assert_eq!((status, &answer["code"]), (400, &json!("FET-0402")), "{answer}");
        let (status, schema) = said(world.get(&format!("{path}/{id}/schema"))).await;
        assert_eq!((status, &schema["configName"]), (200, &json!("ledger")), "{schema}");
        let tables = schema["tables"].as_array().expect("tables");
        let name = |table: &Value| table["name"].as_str().expect("a name").to_owned();
        let orders = tables.iter().find(|table| name(table).ends_with(".orders")).expect("orders");
        let fields = json!(["id", "code", "Odd \"name", "amount", "note", "paid"]);
        assert_eq!(orders["fields"], fields);
        // What the schema calls a table is what a request may call it.
        let (status, _) = validate(json!({"ledger": {name(orders): ["code"]}})).await;
        assert_eq!(status, 200);
        ledger.gone().await;
    })
    .await;
}
