//! Streams of MariaDB that do not come to their end, or come to it slowly.

use std::time::{Duration, Instant};

use outport_domain::{
    column::ColumnType::{Integer, Text},
    failure::{Disposition, FailureCode},
    selection::Selection,
};
use outport_source::{Batch, Next, SourceError};
use sqlx::{AssertSqlSafe, MySqlConnection, Row};
use uuid::Uuid;

use crate::world::{
    self, World, mariadb_client, query, read, rest, run_mariadb, threads, until, within,
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
             INSERT INTO numbers SELECT seq FROM {}",
            world::numbers(rows)
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

/// A variable of the whole server that is changed. One test at a time may do so, in whatever
/// process it runs.
pub struct Global {
    client: MySqlConnection,
    name: &'static str,
    before: String,
}

impl Global {
    pub async fn set(name: &'static str, value: &str) -> Self {
        let mut client = mariadb_client().await;
        let sql = format!("SELECT GET_LOCK('outport {name}', 60), CAST(@@GLOBAL.{name} AS CHAR)");
        let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&mut client).await.expect("a lock");
        assert_eq!(row.get::<Option<i64>, _>(0), Some(1), "another test has it for too long");
        run_mariadb(&mut client, &format!("SET GLOBAL {name} = {value}")).await;
        Self { client, name, before: row.get(1) }
    }

    pub async fn restore(mut self) {
        let sql = format!("SET GLOBAL {} = {}", self.name, self.before);
        run_mariadb(&mut self.client, &sql).await;
    }
}

#[tokio::test]
async fn a_reader_slower_than_the_servers_own_patience_gets_all_rows() {
    within(World::mariadb().await, async |world| {
        numbers(world, 100_000).await;
        let patience = Global::set("net_write_timeout", "1").await;
        let sql = format!("SELECT n, REPEAT('x', 500) AS pad FROM {}", world.qualified("numbers"));
        let wanted = query(sql, &[("n", Integer), ("pad", Text)]);
        let mut stream = world.source().open(&wanted).await.expect("a stream");
        let mut batch = Batch::new(2);
        assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
        let first = batch.rows();
        // Nobody reads for longer than the server would wait, by its own clock.
        run_mariadb(&mut mariadb_client().await, "DO SLEEP(3)").await;
        let rows = rest(stream).await;
        patience.restore().await;
        assert_eq!(first + rows.expect("the rest").len(), 100_000);
    })
    .await;
}

#[tokio::test]
async fn a_first_cell_beyond_sixteen_mebibytes_is_no_end() {
    within(World::mariadb().await, async |world| {
        numbers(world, 3).await;
        let largest = Global::set("max_allowed_packet", "134217728").await;
        let size = 20 * 1024 * 1024;
        let sql = format!(
            "SELECT IF(n = 2, REPEAT('x', {size}), n) AS t FROM {} ORDER BY n",
            world.qualified("numbers")
        );
        let rows = read(&world.source(), &query(sql, &[("t", Text)])).await;
        largest.restore().await;
        let sizes: Vec<usize> =
            rows.expect("rows").iter().map(|row| row[0].as_ref().map_or(0, Vec::len)).collect();
        assert_eq!(sizes.len(), 3);
        assert!(sizes.contains(&size), "{sizes:?}");
    })
    .await;
}
