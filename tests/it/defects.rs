//! What an older service of this kind got wrong, and what must not happen here, each by a test.
//! Those that are not below are elsewhere:
//!
//! | Defect | Test |
//! |---|---|
//! | a source stream that breaks off is reported as completed | `failing::a_source_that_dies_in_mid_export_leaves_no_short_file`; every cut of the wire: `cuts` of the source |
//! | a job stays in `processing` after its worker has crashed | `crash_points::a_worker_dies_at_every_point_and_another_makes_it_whole` |
//! | an event is lost in a long outage of the broker | `broker::a_broker_that_is_away_while_many_jobs_end_gets_all_of_them_later`; for as long as it waits, `a_job_whose_event_is_not_delivered_is_not_forgotten` of the store |
//! | a message that no queue takes counts as published | `broker::what_no_queue_takes_is_told_of_and_delivered_when_one_does` |
//! | two workers run one job | `eight_claimers_never_take_a_job_twice` of the store, `takeover` |
//! | `["*"]` fails | `rows_of_two_databases_come_as_one_result_that_a_consumer_can_verify` of the facade; an export without `columns` is of all |
//! | identifiers are not quoted in SQL | `identifiers_may_hold_anything` of the source |
//! | text of MySQL comes as base64 | `corpus::every_value_of_mariadb_is_in_every_file_as_its_client_prints_it` |
//! | the list of connections hides what is older than a month | `a_list_hides_nothing_and_has_pages_and_products` of the facade |
//! | the client's key of a TLS connection is stored in clear | `secrets_are_stored_encrypted_the_clients_tls_key_too` of the facade |
//!
//! That a message is too old for its signature is no error either:
//! `an_old_message_is_stale_only_where_asked_for_and_a_forged_one_never` of the contract.

use serde_json::{Value, json};

use crate::{
    harness::{World, shop},
    telling::told,
};

/// A queue that is worked off late kills the jobs in it, because what asked for them is too old.
#[tokio::test]
async fn a_queue_backlog_kills_jobs_by_age() {
    let world = World::postgres().await;
    let api = world.api().await;
    let job = api.export("order").await;
    let year = "365 * 86400 * CAST(1000 AS BIGINT)";
    let postgres = world.state.postgres();
    postgres
        .run(&format!(
            "UPDATE jobs SET created_at = created_at - {year}, updated_at = updated_at - {year}, \
             due_at = due_at - {year}"
        ))
        .await;
    let _worker = world.worker();
    api.job_is(&job, "COMPLETED").await;
    assert!(told(&world).await.contains(r#""status":"completed""#));
}

/// A name that does not exist is ignored in a filter, so that everything is delivered.
#[tokio::test]
async fn a_misspelt_name_in_a_filter_delivers_everything() {
    let world = World::sqlite();
    let api = world.all_in_one().await;
    let filters = json!({"cod": {"operator": "EQ", "value": "ORD-000001"}});
    let (status, problem) = api.ask(&json!({"resource": "order", "filters": filters})).await;
    assert_eq!((status, &problem["errors"][0]["field"]), (422, &"filters.cod".into()), "{problem}");
    assert_eq!(problem["errors"][0]["code"], "UNKNOWN_COLUMN");
    let (status, problem) = api.ask(&json!({"resource": "orders"})).await;
    assert_eq!((status, &problem["errors"][0]["field"]), (422, &"resource".into()), "{problem}");
    assert_eq!(
        world.state.value("SELECT count(*) FROM jobs").await,
        "0",
        "refused at request time"
    );
}

/// A column whose name contains `id` is taken for an identifier, so that dates are refused.
#[tokio::test]
async fn a_column_whose_name_contains_id_refuses_dates() {
    let world = World::postgres().await;
    world
        .state
        .postgres()
        .run(&format!(
            "CREATE TABLE shop.invoices AS SELECT n AS id, date '2026-07-01' + n AS valid_until, \
               timestamptz '2026-07-01 12:00Z' + n * interval '1 day' AS \"Paid\", \
               '{}'::uuid AS organization_id FROM generate_series(1, 9) AS n",
            shop::ORGANIZATION
        ))
        .await;
    let resource = format!(
        "name = \"invoice\"\nconnection = \"shop\"\nfrom = \"shop.invoices\"\nsort = [\"id\"]\n\
         [scope]\norganization = \"organization_id\"\n{}{}{}",
        "[[columns]]\nkey = \"id\"\ntype = \"integer\"\n",
        "[[columns]]\nkey = \"validUntil\"\nsource = \"valid_until\"\ntype = \"date\"\n",
        "[[columns]]\nkey = \"paid\"\nsource = \"Paid\"\ntype = \"timestamp\"\n",
    );
    world.declare_file("invoice", &resource);
    let api = world.api().await;
    let _worker = world.worker();
    let job = api
        .export_as(&json!({"resource": "invoice", "columns": ["id"], "filters": {
            "validUntil": {"operator": "BETWEEN", "value": ["2026-07-03", "2026-07-08"]},
            "paid": {"operator": "GTE", "value": "2026-07-05T00:00:00Z"},
        }}))
        .await;
    api.job_is(&job, "COMPLETED").await;
    assert_eq!(String::from_utf8(api.file(&job).await).expect("UTF-8"), "id\n4\n5\n6\n7\n");
}

/// What the driver says of an error is lost, and a text of a panic is told instead.
#[tokio::test]
async fn a_drivers_error_is_replaced_by_a_panics() {
    let world = World::postgres().await;
    let api = world.api().await;
    let job = api.export("order").await;
    world.state.postgres().run("ALTER TABLE shop.orders RENAME COLUMN note TO remark").await;
    let _worker = world.worker();
    let job = api.job_is(&job, "FAILED").await;
    let event: Value = serde_json::from_str(&told(&world).await).expect("JSON");
    let error = &event["metadata"]["error"];
    assert_eq!(error, &job["failure"], "as the API says it");
    assert_eq!(error["code"], "SCHEMA_MISMATCH");
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("note") && !message.contains("panic"), "{message}");
}

/// `rowCount` is left out when there is no row.
#[tokio::test]
async fn the_count_of_rows_is_missing_when_zero() {
    let world = World::sqlite();
    let api = world.all_in_one().await;
    let filters = json!({"code": {"operator": "EQ", "value": "none"}});
    let job = api.export_as(&json!({"resource": "order", "filters": filters})).await;
    let job = api.job_is(&job, "COMPLETED").await;
    assert_eq!(job["totalRows"], 0);
    let header = "code,amount,note\n".len();
    let body = told(&world).await;
    assert!(
        body.contains(&format!(r#""sizeBytes":{header},"rowCount":0,"format":"csv""#)),
        "{body}"
    );
}
