//! Streams that do not come to their end: canceled, dropped, killed.

use std::time::{Duration, Instant};

use outport_domain::{
    column::ColumnType::{Integer, Text},
    failure::{Disposition, FailureCode},
};
use outport_source::{Batch, Next};
use uuid::Uuid;

use crate::world::{
    World, backends, postgres_client, postgres_source, postgres_url, query, read, until, within,
};

/// What a canceled query may still take.
const SOON: Duration = Duration::from_secs(2);

/// A query that sends without end, and one that computes without end; each is told by its marker.
fn endless(marker: &str) -> [String; 2] {
    [
        format!("SELECT generate_series(1, 2000000000)::text AS {marker}"),
        format!("SELECT pg_sleep(600)::text AS {marker}"),
    ]
}

fn marker() -> String {
    format!("m{}", Uuid::new_v4().simple())
}

#[tokio::test]
async fn cancel_ends_the_query_at_the_server() {
    for index in 0..2 {
        let marker = marker();
        let wanted = query(endless(&marker)[index].clone(), &[(marker.as_str(), Text)]);
        let stream = postgres_source(postgres_url()).open(&wanted).await.expect("a stream");
        until(SOON, "the query runs", async || !backends(&marker).await.is_empty()).await;
        let start = Instant::now();
        stream.cancel().await;
        until(SOON, "the query is gone", async || backends(&marker).await.is_empty()).await;
        assert!(start.elapsed() < SOON);
    }
}

#[tokio::test]
async fn dropping_the_stream_ends_the_query_at_the_server() {
    for index in 0..2 {
        let marker = marker();
        let wanted = query(endless(&marker)[index].clone(), &[(marker.as_str(), Text)]);
        let mut stream = postgres_source(postgres_url()).open(&wanted).await.expect("a stream");
        until(SOON, "the query runs", async || !backends(&marker).await.is_empty()).await;
        if index == 0 {
            let mut batch = Batch::new(1);
            assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
        }
        drop(stream);
        until(SOON, "the query is gone", async || backends(&marker).await.is_empty()).await;
    }
}

#[tokio::test]
async fn dropping_what_opens_a_stream_ends_its_wait_for_a_lock() {
    within(World::postgres().await, async |world| {
        world.run("CREATE TABLE locked (id integer)").await;
        let World::Postgres { schema } = world else { unreachable!() };
        let mut client = postgres_client().await;
        let lock = format!("BEGIN; LOCK TABLE {schema}.locked IN ACCESS EXCLUSIVE MODE");
        crate::world::run(&mut client, &lock).await;
        let wanted = crate::world::selection(world.table("locked"), &[("id", Integer)]);
        let source = world.source();
        let opening = tokio::spawn(async move { source.open(&wanted).await.map(|_| ()) });
        until(SOON, "it waits", async || !backends(schema).await.is_empty()).await;
        opening.abort();
        until(SOON, "it is gone", async || backends(schema).await.is_empty()).await;
        crate::world::run(&mut client, "ROLLBACK").await;
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_came_to_its_end_leaves_no_connection() {
    let marker = marker();
    let wanted = query(format!("SELECT 1 AS {marker}"), &[(marker.as_str(), Integer)]);
    let source = postgres_source(postgres_url());
    let mut stream = source.open(&wanted).await.expect("a stream");
    let mut batch = Batch::new(1);
    assert_eq!(stream.next(&mut batch).await.expect("a row"), Next::Rows);
    assert_eq!(stream.next(&mut batch).await.expect("the end"), Next::End { rows: 1 });
    // The stream is still held, its connection is not.
    until(SOON, "the connection is closed", async || backends(&marker).await.is_empty()).await;
    drop(stream);
}

#[tokio::test]
async fn a_killed_backend_is_an_error_and_never_an_end() {
    let marker = marker();
    let wanted = query(endless(&marker)[0].clone(), &[(marker.as_str(), Text)]);
    let mut stream = postgres_source(postgres_url()).open(&wanted).await.expect("a stream");
    let mut batch = Batch::new(1);
    assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
    let pids = backends(&marker).await;
    sqlx::query("SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid")
        .bind(pids)
        .execute(&mut postgres_client().await)
        .await
        .expect("the kill");
    let error = loop {
        match stream.next(&mut batch).await {
            Ok(Next::Rows) => {}
            Ok(Next::End { rows }) => panic!("an end after {rows} rows"),
            Err(error) => break error,
        }
    };
    assert_eq!((error.code, error.disposition), (FailureCode::SourceTruncated, Disposition::Retry));
}

#[tokio::test]
async fn a_query_that_fails_late_is_an_error_that_says_why() {
    let wanted = query(
        "SELECT 1 / (100000 - n) AS q FROM generate_series(1, 100001) AS n",
        &[("q", Integer)],
    );
    let Err(error) = read(&postgres_source(postgres_url()), &wanted).await else {
        panic!("an end")
    };
    assert_eq!(
        (error.code, error.disposition),
        (FailureCode::SourceQueryFailed, Disposition::Abandon)
    );
    assert!(error.message.contains("SQLSTATE 22012"), "{error}");
}

#[tokio::test]
async fn sqlite_stops_working_when_it_is_canceled_or_dropped() {
    within(World::sqlite(), async |world| {
        world.run("CREATE TABLE t (id integer)").await;
        // Computes for hours before its first row.
        let wanted = query(
            "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 100000000000) \
             SELECT count(*) AS n FROM s",
            &[("n", Integer)],
        );
        let stream = world.source().open(&wanted).await.expect("a stream");
        let canceled = tokio::time::timeout(SOON, stream.cancel()).await;
        assert!(canceled.is_ok(), "the reader did not stop");
        let stream = world.source().open(&wanted).await.expect("a stream");
        drop(stream);
        // A file that nobody reads can be locked whole.
        until(SOON, "the reader lets go", async || {
            world.file().execute_batch("PRAGMA busy_timeout = 0; BEGIN EXCLUSIVE; ROLLBACK").is_ok()
        })
        .await;
    })
    .await;
}
