//! A cancel ends the query at the source and the upload to the store within two seconds, on every
//! engine, over one connection and several.

use chrono::Utc;
use outport_domain::crash::CrashPoint;
use serde_json::json;

use crate::{
    canceling::{InProcess, WITHIN},
    harness::{
        Api, MariaDb, PATIENCE, World, mariadb,
        servers::{Bucket, S3},
        shop, until,
    },
};

/// Asks for a cancel and waits until the job has ended so and its query is gone. Both must come
/// in time.
async fn is_canceled(api: &Api, job: &str, query_is_gone: impl AsyncFn() -> bool) {
    let since = Utc::now();
    assert_eq!(api.post(&format!("/v1/exports/{job}/cancel")).await.0, 202);
    until("the query is gone", PATIENCE, async || query_is_gone().await.then_some(())).await;
    let gone = (Utc::now() - since).num_milliseconds();
    let ended = api.job_is(job, "CANCELED").await;
    let finished: chrono::DateTime<Utc> =
        ended["finishedAt"].as_str().and_then(|at| at.parse().ok()).expect("an instant");
    let took = (finished - since).num_milliseconds();
    assert!(gone <= WITHIN && took <= WITHIN, "gone after {gone} ms, CANCELED after {took} ms");
    assert_eq!(ended["failureReason"], "CANCELED");
    assert_eq!(ended["fileKey"], serde_json::Value::Null);
    assert_eq!(api.post(&format!("/v1/exports/{job}/cancel")).await.0, 202, "asked again");
}

/// Nothing of the file is left, neither as an object nor as an upload.
async fn leaves_nothing(world: &World) {
    world.settled().await;
    assert_eq!(world.objects(), [""; 0]);
    assert_eq!(world.scratch(), [""; 0]);
}

/// Connections of ours that copy rows out of a world's database, or stand between two ranges of it.
pub async fn copying(world: &World) -> usize {
    let sql = "SELECT count(*) FROM pg_stat_activity \
               WHERE datname = current_database() AND state <> 'idle' AND query LIKE '%COPY (%' \
                 AND pid <> pg_backend_pid()";
    world.state.value(sql).await.parse().expect("a number")
}

#[tokio::test]
async fn a_cancel_ends_the_query_of_postgres() {
    let world = World::postgres().await;
    // A minute of rows: it does not end by itself.
    shop::add_slow(world.state.postgres(), 6_000, 10).await;
    let api = world.api().await;
    let _worker = world.worker();
    let job = api.export("slow").await;
    api.rows_have_come(&job).await;
    assert_eq!(copying(&world).await, 1, "the query runs");
    is_canceled(&api, &job, async || copying(&world).await == 0).await;
    leaves_nothing(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_ends_the_queries_of_all_connections_to_postgres() {
    let mut world = World::postgres().await;
    let url = world.state.postgres().url();
    let mark = if url.contains('?') { '&' } else { '?' };
    world.set("OUTPORT_CONNECTIONS_SHOP", &format!("{url}{mark}connections=3"));
    // More than what may lie between the server and a run that stands still.
    shop::add_wide(world.state.postgres(), 300_000, 12).await;
    world.declare_file("wide", &shop::resource("wide", "shop.wide", ""));
    let api = world.api().await;
    let job = api.export("wide").await;
    let worker = InProcess::start(&world, CrashPoint::MidRows).await;
    worker.gate.reached(PATIENCE).await;
    until("all connections read", PATIENCE, async || (copying(&world).await == 3).then_some(()))
        .await;
    is_canceled(&api, &job, async || copying(&world).await == 0).await;
    leaves_nothing(&world).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_cancel_ends_the_query_of_mariadb() {
    let mariadb = MariaDb::create().await;
    mariadb
        .run(&format!(
            "CREATE TABLE numbers (n integer PRIMARY KEY); \
             INSERT INTO numbers SELECT seq FROM {}",
            mariadb::numbers(6_000)
        ))
        .await;
    let mut world = World::sqlite();
    world.set("OUTPORT_CONNECTIONS_SHOP", &mariadb.url());
    let query = format!(
        "SELECT CONCAT('S', n) AS code, n AS amount, REPEAT('x', 4096) AS note, \
           '{}' AS organization_id FROM numbers WHERE SLEEP(0.01) = 0",
        shop::ORGANIZATION
    );
    world.declare_file("slow", &of_query("slow", &query));
    let api = world.all_in_one().await;
    let job = api.export("slow").await;
    api.rows_have_come(&job).await;
    assert_eq!(mariadb.queries("SLEEP").await, 1, "the query runs");
    is_canceled(&api, &job, async || mariadb.queries("SLEEP").await == 0).await;
    leaves_nothing(&world).await;
}

#[tokio::test]
async fn a_cancel_interrupts_sqlite() {
    let mut world = World::sqlite();
    world.set("OUTPORT_LIMITS_NO_PROGRESS_SECONDS", "60");
    let path = world.path("slow.db");
    let file = rusqlite::Connection::open(&path).expect("a file");
    file.execute_batch("CREATE TABLE one (n INTEGER); INSERT INTO one VALUES (1);")
        .expect("a table");
    world.set("OUTPORT_CONNECTIONS_SHOP", &format!("sqlite://{}", path.display()));
    // Computes for hours before its first row, or for a moment before each.
    for (name, steps, rows) in [("mute", 100_000_000_000_u64, 1), ("slow", 30_000, 1_000_000)] {
        let query = format!(
            "WITH RECURSIVE rows(r) AS (SELECT 1 UNION ALL SELECT r + 1 FROM rows WHERE r < {rows}) \
             SELECT 'S' || r AS code, \
               (WITH RECURSIVE s(i) AS (SELECT r UNION ALL SELECT i + 1 FROM s WHERE i < r + {steps}) \
                SELECT count(*) FROM s) AS amount, \
               printf('%.*c', 4096, 'x') AS note, '{}' AS organization_id FROM one, rows",
            shop::ORGANIZATION
        );
        world.declare_file(name, &of_query(name, &query));
    }
    let api = world.all_in_one().await;
    // A file that nobody reads can be locked whole.
    file.execute_batch("PRAGMA busy_timeout = 0").expect("a setting");
    let is_free = async || file.execute_batch("BEGIN EXCLUSIVE; ROLLBACK").is_ok();
    for name in ["mute", "slow"] {
        let job = api.export(name).await;
        if name == "slow" {
            api.rows_have_come(&job).await;
        }
        until("it is read", PATIENCE, async || (!is_free().await).then_some(())).await;
        is_canceled(&api, &job, is_free).await;
    }
    leaves_nothing(&world).await;
}

/// An export to a bucket whose run stands still in the middle of its upload.
async fn uploading() -> (World, S3, Api, String, InProcess) {
    let mut world = World::postgres().await;
    // A file of more than two parts of 11 MiB.
    shop::add_wide(world.state.postgres(), 60_000, 12).await;
    let s3 = S3::moto().await;
    world.use_objects(s3.env());
    world.set("OUTPORT_LIMITS_NO_PROGRESS_SECONDS", "20");
    let api = world.api().await;
    let job = api.export("wide").await;
    let worker = InProcess::start(&world, CrashPoint::MidUpload).await;
    worker.gate.reached(PATIENCE).await;
    let open = s3.look().await;
    assert_eq!((open.objects.len(), open.uploads.len()), (0, 1), "an upload is under way");
    (world, s3, api, job, worker)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_aborts_the_upload_to_a_bucket() {
    let (world, s3, api, job, worker) = uploading().await;
    is_canceled(&api, &job, async || copying(&world).await == 0).await;
    world.settled().await;
    assert_eq!(s3.look().await, Bucket { objects: vec![], uploads: vec![] });
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_does_not_wait_for_a_bucket_that_stands_still() {
    let (world, s3, api, job, worker) = uploading().await;
    s3.signal("STOP");
    is_canceled(&api, &job, async || copying(&world).await == 0).await;
    s3.signal("CONT");
    // What could not be aborted then is swept by its recorded id.
    world.settled().await;
    assert_eq!(s3.look().await, Bucket { objects: vec![], uploads: vec![] });
    worker.stop().await;
}

/// A resource over a query that yields what the shop's relations do.
fn of_query(name: &str, query: &str) -> String {
    let query = json!(query).to_string();
    shop::resource(name, "FROM", "").replace("from = \"FROM\"", &format!("query = {query}"))
}
