//! Real sources before a slow object store: what it costs them, and that nothing is lost.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use outport_domain::{
    crash::CrashPlan,
    limits::{Limits, fixed},
};
use outport_objects::memory::{Hang, Step};
use outport_source::{SourceConfig, connect};
use outport_store::jobs::Finished;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _};
use tokio::time;
use uuid::Uuid;

use crate::world::{World, until};

const PATIENCE: Duration = Duration::from_mins(1);

/// More than memory and a socket hold.
const ROWS: u32 = 120_000;
const NOTE_BYTES: usize = 500;

/// A world that reads from this source; as many parts as may be in flight are held.
async fn world_of(source: SourceConfig, limit: impl FnOnce(&mut Limits)) -> (World, Vec<Hang>) {
    let mut world = World::with(CrashPlan::none(), |limits| {
        limits.job_failures = 1;
        limit(limits);
    })
    .await;
    let sources = BTreeMap::from([("shop".to_owned(), connect(&source))]);
    world.pipeline.sources = Arc::new(sources);
    let parts = 1..fixed::PARTS_IN_FLIGHT as u32;
    let held = parts.map(|number| world.memory.hang(Step::Part(number))).collect();
    (world, held)
}

/// The lines of the file, whatever their order.
fn lines(file: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<_> = file.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines
}

fn expected() -> Vec<u8> {
    let note = "x".repeat(NOTE_BYTES);
    let rows = (1..=ROWS).map(|row| format!("ORD-{row},{note}\n"));
    std::iter::once("code,note\n".to_owned()).chain(rows).collect::<String>().into_bytes()
}

#[tokio::test]
async fn an_sqlite_file_is_let_go_while_the_store_takes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("source.db");
    let (world, held) = world_of(SourceConfig::Sqlite { path: path.clone() }, |_| {}).await;
    let organization = world.caller.organization;
    let file = rusqlite::Connection::open(&path).expect("a file");
    file.execute_batch(&format!(
        "CREATE TABLE orders (organization_id TEXT, code TEXT, note TEXT); \
         WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS}) \
         INSERT INTO orders SELECT '{organization}', 'ORD-' || n, \
             replace(hex(zeroblob({NOTE_BYTES} / 2)), '0', 'x') FROM s; \
         PRAGMA busy_timeout = 0"
    ))
    .expect("rows");
    let is_free = || file.execute_batch("BEGIN EXCLUSIVE; ROLLBACK").is_ok();
    let (job, run) = world.start().await;
    time::timeout(PATIENCE, held[0].reached()).await.expect("a part on its way");
    until(PATIENCE, "nobody reads the file", async || is_free()).await;
    assert!(!run.is_finished(), "the store was to take nothing");
    held.into_iter().for_each(Hang::release);
    let finished = run.await.expect("no panic");
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    assert!(lines(&world.stored(job).await) == lines(&expected()), "other rows are stored");
}

async fn run(client: &mut MySqlConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(client).await.expect(sql);
}

#[tokio::test]
async fn mariadb_waits_for_a_slow_store_longer_than_it_would_by_itself() {
    let url = std::env::var("OUTPORT_TEST_MARIADB")
        .unwrap_or_else(|_| "mysql://root@127.0.0.1:3306/test".to_owned());
    let mut client = MySqlConnection::connect(&url).await.expect("the MariaDB server of the tests");
    let database = format!("outport_pipeline_{}", Uuid::new_v4().simple());
    let (server, _) = url.rsplit_once('/').expect("a URL with a database");
    let source = SourceConfig::MySql {
        url: format!("{server}/{database}"),
        connect_timeout: Duration::from_secs(10),
    };
    // Without a spool it is the source that waits.
    let (world, held) = world_of(source, |limits| limits.spool_bytes_per_export = 0).await;
    let organization = world.caller.organization;
    // One test at a time changes what holds for the whole server.
    run(
        &mut client,
        &format!(
            "CREATE DATABASE {database}; USE {database}; \
             DO GET_LOCK('outport net_write_timeout', 60); \
             CREATE TABLE orders (n integer PRIMARY KEY, organization_id char(36), \
                 code varchar(20), note text); \
             INSERT INTO orders SELECT seq, '{organization}', CONCAT('ORD-', seq), \
                 REPEAT('x', {NOTE_BYTES}) FROM \
               (WITH RECURSIVE d (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM d WHERE n < 999) \
                SELECT 1000 * a.n + b.n + 1 AS seq FROM d AS a JOIN d AS b \
                  ON a.n < {ROWS} DIV 1000) AS numbers; \
             SET @before = @@GLOBAL.net_write_timeout; SET GLOBAL net_write_timeout = 1"
        ),
    )
    .await;
    let (job, export) = world.start().await;
    let on_its_way = time::timeout(PATIENCE, held[0].reached()).await;
    // The server's own clock: it would have given up by then.
    run(&mut client, "DO SLEEP(3)").await;
    let waiting = sqlx::query(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
         WHERE DB = ? AND STATE IN ('Writing to net', 'Sending to client')",
    )
    .bind(&database)
    .fetch_one(&mut client)
    .await
    .expect("the server's threads");
    held.into_iter().for_each(Hang::release);
    let finished = export.await.expect("no panic");
    run(&mut client, &format!("SET GLOBAL net_write_timeout = @before; DROP DATABASE {database}"))
        .await;
    on_its_way.expect("a part on its way");
    assert_eq!(waiting.get::<i64, _>(0), 1, "the server was to wait for the reader");
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    assert!(lines(&world.stored(job).await) == lines(&expected()), "other rows are stored");
}
