//! Six hundred rows of one instant, of which a writer that never rests takes the oldest away and
//! puts new ones in: the file is one snapshot, with no row twice and none missing.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use outport_domain::crash::CrashPoint;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, PgConnection};

use crate::{
    canceling::InProcess,
    canceling_sources::copying,
    harness::{Api, MariaDb, PATIENCE, World, mariadb, shop, until},
};

/// Rows in every committed state.
const ROWS: u64 = 600;
/// Rows where several connections share the work: a table that is worth cutting.
const MANY_ROWS: u64 = 6_000;
/// Exports of each world during which the writer wrote.
const ROUNDS: usize = 8;
const INSTANT: &str = "2026-07-01 12:00:00";

/// Statements that bring every committed state to the next one: the row `number` goes, another
/// comes for it, and a third moves within the table.
fn step(number: u64, rows: u64, pad: usize) -> [String; 3] {
    let (new, moved, organization) = (number + rows, number + rows / 2, shop::ORGANIZATION);
    let note = "y".repeat(pad);
    [
        format!("DELETE FROM moving WHERE amount = {number}"),
        format!(
            "INSERT INTO moving (code, amount, note, organization_id) \
             VALUES ('{INSTANT}', {new}, '{note}', '{organization}')"
        ),
        format!("UPDATE moving SET note = '{note}' WHERE amount = {moved}"),
    ]
}

/// Writes until it is told to rest.
struct Writer {
    steps: Arc<AtomicU64>,
    rest: Arc<AtomicBool>,
    writing: tokio::task::JoinHandle<()>,
}

impl Writer {
    /// The oldest row is number 1.
    fn start<F: Future<Output = ()> + Send + 'static>(
        write: impl FnOnce(Arc<AtomicU64>, Arc<AtomicBool>) -> F,
    ) -> Self {
        let (steps, rest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let writing = tokio::spawn(write(Arc::clone(&steps), Arc::clone(&rest)));
        Self { steps, rest, writing }
    }

    async fn stop(mut self) {
        self.rest.store(true, Relaxed);
        (&mut self.writing).await.expect("the writer wrote");
    }
}

impl Drop for Writer {
    /// Also when the test fails: nobody waits for it then.
    fn drop(&mut self) {
        self.rest.store(true, Relaxed);
    }
}

/// Waits for the end of an export and gives the oldest row of the state that its file is.
async fn oldest_of(api: &Api, job: &str, rows: u64) -> u64 {
    let job_view = api.job_is(job, "COMPLETED").await;
    assert_eq!(job_view["totalRows"], rows);
    let bytes = api.file(job).await;
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let number = |record: csv::Result<csv::StringRecord>| -> u64 {
        let record = record.expect("well-formed");
        assert_eq!(&record[0], INSTANT);
        record[1].parse().expect("a number")
    };
    let mut numbers: Vec<u64> = reader.records().map(number).collect();
    numbers.sort_unstable();
    let oldest = numbers[0];
    let expected: Vec<u64> = (oldest..oldest + rows).collect();
    assert!(numbers == expected, "no state was ever like this: {numbers:?}");
    oldest
}

/// Exports until the writer has written during so many exports; each file is one committed state,
/// and none from before it was asked for.
async fn every_file_is_one_snapshot(api: &Api, writer: &Writer, rows: u64) {
    let mut lively = 0;
    while lively < ROUNDS {
        let before = writer.steps.load(Relaxed);
        let job = api.export("moving").await;
        let oldest = oldest_of(api, &job, rows).await;
        let after = writer.steps.load(Relaxed);
        // A step may be committed and not counted yet.
        assert!((before + 1..=after + 2).contains(&oldest), "{oldest} of {before} to {after}");
        lively += usize::from(after > before);
    }
}

async fn postgres(connections: usize, rows: u64, pad: usize, sort: &str) {
    let mut world = World::postgres().await;
    let database = world.state.postgres();
    let (url, organization) = (database.url(), shop::ORGANIZATION);
    database
        .run(&format!(
            "CREATE TABLE shop.moving (code timestamp, amount bigint, note text, organization_id uuid); \
             ALTER TABLE shop.moving ALTER note SET STORAGE PLAIN; \
             CREATE INDEX ON shop.moving (code); \
             INSERT INTO shop.moving SELECT '{INSTANT}', n, repeat('x', {pad}), '{organization}' \
             FROM generate_series(1, {rows}) AS n; ANALYZE shop.moving"
        ))
        .await;
    let mark = if url.contains('?') { '&' } else { '?' };
    world.set("OUTPORT_CONNECTIONS_SHOP", &format!("{url}{mark}connections={connections}"));
    world.declare_file("moving", &shop::resource("moving", "shop.moving", sort));
    let mut client = world.state.postgres().connect().await;
    let writer = Writer::start(async move |steps, rest| {
        run(&mut client, "SET search_path = shop").await;
        while !rest.load(Relaxed) {
            let number = steps.load(Relaxed) + 1;
            let step = step(number, rows, pad).join("; ");
            run(&mut client, &format!("BEGIN; {step}; COMMIT")).await;
            steps.store(number, Relaxed);
        }
    });
    let api = world.api().await;
    let job = api.export("moving").await;
    let worker = InProcess::start(&world, CrashPoint::MidRows).await;
    worker.gate.reached(PATIENCE).await;
    // The run stands still in the middle of its rows, and the writer goes on.
    let seen = writer.steps.load(Relaxed);
    until("much is written", PATIENCE, async || {
        (writer.steps.load(Relaxed) > seen + 100).then_some(())
    })
    .await;
    if connections > 1 {
        assert_eq!(copying(&world).await, connections, "all of them read");
    }
    worker.gate.open();
    let oldest = oldest_of(&api, &job, rows).await;
    assert!(oldest <= seen + 2, "{oldest} was not there yet after {seen}");
    every_file_is_one_snapshot(&api, &writer, rows).await;
    writer.stop().await;
    worker.stop().await;
}

async fn run(client: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(client).await.expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_postgres_over_one_connection_is_one_snapshot() {
    postgres(1, ROWS, 1_000, "\"code\"").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_postgres_over_several_connections_is_one_snapshot() {
    // A row fills half a page: 24 MB.
    postgres(3, MANY_ROWS, 3_900, "").await;
}

#[tokio::test]
async fn a_file_of_mariadb_is_one_snapshot() {
    let mariadb = MariaDb::create().await;
    mariadb
        .run(&format!(
            "CREATE TABLE moving (code datetime, amount bigint PRIMARY KEY, note text, \
               organization_id char(36), KEY (code)); \
             INSERT INTO moving SELECT '{INSTANT}', seq, REPEAT('x', 1000), '{}' FROM {}",
            shop::ORGANIZATION,
            mariadb::numbers(ROWS)
        ))
        .await;
    let mut world = World::sqlite();
    world.set("OUTPORT_CONNECTIONS_SHOP", &mariadb.url());
    world.declare_file("moving", &shop::resource("moving", "moving", "\"code\""));
    let mut client = MySqlConnection::connect(&mariadb.url()).await.expect("a connection");
    let writer = Writer::start(async move |steps, rest| {
        while !rest.load(Relaxed) {
            let number = steps.load(Relaxed) + 1;
            let sql =
                format!("START TRANSACTION; {}; COMMIT", step(number, ROWS, 1_000).join("; "));
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut client).await.expect("written");
            steps.store(number, Relaxed);
        }
    });
    let api = world.all_in_one().await;
    every_file_is_one_snapshot(&api, &writer, ROWS).await;
    writer.stop().await;
}

/// Fills the table in a file and gives what a writer needs.
fn sqlite_file(path: &PathBuf) -> rusqlite::Connection {
    let file = rusqlite::Connection::open(path).expect("a file");
    file.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; \
         CREATE TABLE moving (code TEXT, amount INTEGER PRIMARY KEY, note TEXT, organization_id TEXT); \
         CREATE INDEX by_code ON moving (code); \
         WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS}) \
         INSERT INTO moving SELECT '{INSTANT}', n, printf('%.*c', 1000, 'x'), '{}' FROM s;",
        shop::ORGANIZATION
    ))
    .expect("a table");
    file
}

#[tokio::test]
async fn a_file_of_sqlite_is_one_snapshot() {
    let mut world = World::sqlite();
    let path = world.path("moving.db");
    let file = sqlite_file(&path);
    world.set("OUTPORT_CONNECTIONS_SHOP", &format!("sqlite://{}", path.display()));
    world.declare_file("moving", &shop::resource("moving", "moving", "\"code\""));
    let writer = Writer::start(async |steps, rest| {
        let writing = tokio::task::spawn_blocking(move || {
            while !rest.load(Relaxed) {
                let number = steps.load(Relaxed) + 1;
                let step = step(number, ROWS, 1_000).join("; ");
                file.execute_batch(&format!("BEGIN IMMEDIATE; {step}; COMMIT")).expect("written");
                steps.store(number, Relaxed);
            }
        });
        writing.await.expect("the thread ends");
    });
    let api = world.all_in_one().await;
    every_file_is_one_snapshot(&api, &writer, ROWS).await;
    writer.stop().await;
}
