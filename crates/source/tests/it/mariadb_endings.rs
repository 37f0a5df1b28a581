//! Streams of MariaDB that do not come to their end, or come to it slowly.

use std::time::{Duration, Instant};

use outport_domain::{
    column::ColumnType::{Integer, Text},
    failure::{Disposition, FailureCode},
    selection::Selection,
};
use outport_source::{Batch, Next, SourceError};
use rand::{Rng, SeedableRng};
use sqlx::{Row, mysql::MySqlConnectOptions};
use uuid::Uuid;

use crate::{
    proxy::{Proxy, cut_is_noticed},
    world::{
        World, mariadb_client, mariadb_source, mariadb_url, query, read, rest, run_mariadb,
        threads, until, within,
    },
};

/// What a canceled query may still take.
const SOON: Duration = Duration::from_secs(2);

fn marker() -> String {
    format!("m{}", Uuid::new_v4().simple())
}

async fn numbers(world: &World, rows: u32) {
    world
        .run(&format!(
            "CREATE TABLE numbers (n integer PRIMARY KEY); \
             INSERT INTO numbers SELECT seq FROM seq_1_to_{rows}"
        ))
        .await;
}

/// A query that sends for long, and one that computes for long; each is told by its marker.
fn endless(world: &World, marker: &str) -> [Selection; 2] {
    let numbers = world.qualified("numbers");
    [
        format!("SELECT CONCAT(a.n, '-', b.n) AS {marker} FROM {numbers} AS a JOIN {numbers} AS b"),
        format!("SELECT SLEEP(600) AS {marker} FROM {numbers} WHERE n = 1"),
    ]
    .map(|sql| query(sql, &[(marker, Text)]))
}

#[tokio::test]
async fn cancel_ends_the_query_at_the_server() {
    within(World::mariadb().await, async |world| {
        numbers(world, 10_000).await;
        for index in 0..2 {
            let marker = marker();
            let wanted = &endless(world, &marker)[index];
            let stream = world.source().open(wanted).await.expect("a stream");
            until(SOON, "the query runs", async || !threads(&marker).await.is_empty()).await;
            let start = Instant::now();
            stream.cancel().await;
            until(SOON, "the query is gone", async || threads(&marker).await.is_empty()).await;
            assert!(start.elapsed() < SOON);
        }
    })
    .await;
}

#[tokio::test]
async fn dropping_the_stream_ends_the_query_at_the_server() {
    within(World::mariadb().await, async |world| {
        numbers(world, 10_000).await;
        for index in 0..2 {
            let marker = marker();
            let wanted = &endless(world, &marker)[index];
            let mut stream = world.source().open(wanted).await.expect("a stream");
            until(SOON, "the query runs", async || !threads(&marker).await.is_empty()).await;
            if index == 0 {
                let mut batch = Batch::new(1);
                assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
            }
            drop(stream);
            until(SOON, "the query is gone", async || threads(&marker).await.is_empty()).await;
        }
    })
    .await;
}

/// Reads until something is wrong.
async fn failure_of(mut stream: Box<dyn outport_source::RowStream>) -> SourceError {
    let mut batch = Batch::new(1);
    loop {
        match stream.next(&mut batch).await {
            Ok(Next::Rows) => {}
            Ok(Next::End { rows }) => panic!("an end after {rows} rows"),
            Err(error) => return error,
        }
    }
}

#[tokio::test]
async fn a_killed_connection_or_query_is_an_error_and_never_an_end() {
    within(World::mariadb().await, async |world| {
        numbers(world, 10_000).await;
        for (kill, code, disposition) in [
            ("KILL CONNECTION", FailureCode::SourceTruncated, Disposition::Retry),
            ("KILL QUERY", FailureCode::SourceQueryFailed, Disposition::Abandon),
        ] {
            let marker = marker();
            let wanted = &endless(world, &marker)[0];
            let mut stream = world.source().open(wanted).await.expect("a stream");
            let mut batch = Batch::new(1);
            assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
            for id in threads(&marker).await {
                run_mariadb(&mut mariadb_client().await, &format!("{kill} {id}")).await;
            }
            let error = failure_of(stream).await;
            assert_eq!((error.code, error.disposition), (code, disposition), "{kill} {error:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_query_that_fails_late_is_an_error_that_says_why() {
    within(World::mariadb().await, async |world| {
        numbers(world, 100_001).await;
        let sql = format!(
            "SELECT CAST(100000 - n AS UNSIGNED) * 18446744073709551615 AS q FROM {} \
             WHERE n > 1 ORDER BY n",
            world.qualified("numbers")
        );
        let Err(error) = read(&world.source(), &query(sql, &[("q", Integer)])).await else {
            panic!("an end")
        };
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::SourceQueryFailed, Disposition::Abandon)
        );
        assert!(error.message.contains("error 1690, SQLSTATE 22003"), "{error}");
    })
    .await;
}

/// Reads through a proxy that lets so many bytes pass.
async fn read_through(world: &World, most: u64) -> (Result<usize, SourceError>, u64) {
    let options: MySqlConnectOptions = mariadb_url().parse().expect("a URL");
    let proxy = Proxy::to(format!("{}:{}", options.get_host(), options.get_port()), most).await;
    let mut url = url::Url::parse(&mariadb_url()).expect("a URL");
    url.set_host(Some("127.0.0.1")).expect("a host");
    url.set_port(Some(proxy.port)).expect("a port");
    let sql =
        format!("SELECT n, CONCAT('text of row ', n) AS t FROM {}", world.qualified("numbers"));
    let wanted = query(sql, &[("n", Integer), ("t", Text)]);
    let rows = read(&mariadb_source(url.into()), &wanted).await.map(|rows| rows.len());
    (rows, proxy.forwarded())
}

#[tokio::test]
async fn a_cut_wire_never_looks_like_the_end() {
    within(World::mariadb().await, async |world| {
        numbers(world, 5_000).await;
        let (whole, total) = read_through(world, u64::MAX).await;
        assert_eq!(whole.expect("all rows"), 5_000);
        let mut random = rand::rngs::StdRng::seed_from_u64(7);
        // Anywhere, and close to the end, where a wrong reader would be satisfied.
        let anywhere = (0..50).map(|_| random.random_range(0..total)).collect::<Vec<_>>();
        let late = (1..=150).map(|back| total - back);
        let mut cuts = 0;
        for most in anywhere.into_iter().chain(late) {
            let read = read_through(world, most).await.0;
            cuts += u32::from(cut_is_noticed(read, 5_000, most, total));
        }
        assert!(cuts >= 100, "{cuts} cuts were noticed");
    })
    .await;
}

/// Sets a variable of the whole server, and gives what it was.
async fn set_global(name: &str, value: &str) -> String {
    let mut client = mariadb_client().await;
    let row = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT CAST(@@GLOBAL.{name} AS CHAR)")))
        .fetch_one(&mut client)
        .await
        .expect("a variable");
    run_mariadb(&mut client, &format!("SET GLOBAL {name} = {value}")).await;
    row.get(0)
}

#[tokio::test]
async fn a_reader_slower_than_the_servers_own_patience_gets_all_rows() {
    within(World::mariadb().await, async |world| {
        numbers(world, 100_000).await;
        let before = set_global("net_write_timeout", "1").await;
        let sql = format!("SELECT n, REPEAT('x', 500) AS pad FROM {}", world.qualified("numbers"));
        let wanted = query(sql, &[("n", Integer), ("pad", Text)]);
        let mut stream = world.source().open(&wanted).await.expect("a stream");
        let mut batch = Batch::new(2);
        assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
        let first = batch.rows();
        // Nobody reads for longer than the server would wait, by its own clock.
        run_mariadb(&mut mariadb_client().await, "DO SLEEP(3)").await;
        let rows = rest(stream).await;
        set_global("net_write_timeout", &before).await;
        assert_eq!(first + rows.expect("the rest").len(), 100_000);
    })
    .await;
}

#[tokio::test]
async fn a_first_cell_beyond_sixteen_mebibytes_is_no_end() {
    within(World::mariadb().await, async |world| {
        numbers(world, 3).await;
        let before = set_global("max_allowed_packet", "134217728").await;
        let size = 20 * 1024 * 1024;
        let sql = format!(
            "SELECT IF(n = 2, REPEAT('x', {size}), n) AS t FROM {} ORDER BY n",
            world.qualified("numbers")
        );
        let rows = read(&world.source(), &query(sql, &[("t", Text)])).await;
        set_global("max_allowed_packet", &before).await;
        let sizes: Vec<usize> =
            rows.expect("rows").iter().map(|row| row[0].as_ref().map_or(0, Vec::len)).collect();
        assert_eq!(sizes.len(), 3);
        assert!(sizes.contains(&size), "{sizes:?}");
    })
    .await;
}
