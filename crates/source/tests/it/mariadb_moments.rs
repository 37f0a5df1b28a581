//! All that MariaDB gives is of one moment, and of the types that it was found to have, whatever
//! happens to the tables between any two of our statements.

use std::{sync::Arc, time::Duration};

use outport_domain::{
    column::ColumnType::{Integer, Text},
    failure::Disposition,
    selection::{Relation, Selection},
};
use outport_source::{Source, SourceError};
use sqlx::{AssertSqlSafe, Row, mysql::MySqlDatabaseError};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::{
    cuts::{at_port, mariadb_server},
    mariadb::refused,
    mariadb_endings::Global,
    proxy::Gate,
    world::{
        World, is_mysql, mariadb_client, mariadb_source, mariadb_url, ordered, query, read,
        read_first, rest, run_mariadb, selection, texts, until, within,
    },
};

/// What waits for locks that are never given up may still take; far more than it needs.
const SOON: Duration = Duration::from_secs(30);

/// Fewer messages than any read is made of.
const FEWEST_MESSAGES: u64 = 12;

/// The shortest patience that a server has, in seconds.
const SHORTEST: &str = "0 /*!50700 + 1 */";

/// The server's error of who waited for a lock for too long.
const LOCKED: u16 = 1205;

fn database(world: &World) -> String {
    let World::MariaDb { database } = world else { panic!("another engine") };
    database.clone()
}

/// Runs statements up to the first that would have to wait for a lock.
async fn unless_locked(database: String, sql: String) {
    let mut client = mariadb_client().await;
    run_mariadb(&mut client, &format!("USE {database}; SET lock_wait_timeout = {SHORTEST}")).await;
    let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut client).await else { return };
    let server = error.as_database_error().and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>());
    assert_eq!(server.map(MySqlDatabaseError::number), Some(LOCKED), "{error}");
}

/// Reads as often as a read has messages, each time with something else happening before another
/// one of them.
async fn at_every_message(
    world: &World,
    (before, happens): (&str, &str),
    is_right: impl AsyncFn(u64, Arc<dyn Source>),
) {
    for number in 0.. {
        world.run(before).await;
        let happens = unless_locked(database(world), happens.to_owned());
        let gate = Gate::before(number, mariadb_server(), happens).await;
        is_right(number, mariadb_source(at_port(&mariadb_url(), gate.port))).await;
        let messages = gate.end().await;
        if messages <= number {
            assert!(messages >= FEWEST_MESSAGES, "only {messages} messages");
            return;
        }
    }
}

#[tokio::test]
async fn a_column_that_is_altered_is_read_as_what_it_was_or_is() {
    within(World::mariadb().await, async |world| {
        for (was, is) in [("bit(16)", "int"), ("int", "bit(16)")] {
            let before = format!(
                "DROP TABLE IF EXISTS t; CREATE TABLE t (a {was}, b {was}); INSERT INTO t VALUES (31, 31)"
            );
            let happens = format!("ALTER TABLE t MODIFY b {is}");
            let wanted = selection(world.table("t"), &[("a", Integer), ("b", Integer)]);
            at_every_message(world, (&before, &happens), async |number, source| {
                let rows = texts(&read(&source, &wanted).await.expect("rows"));
                assert_eq!(rows, [["31", "31"]], "{was} became {is} before message {number}");
            })
            .await;
        }
    })
    .await;
}

/// A table, and another one that is filled and put in its place.
const BEFORE_SWAP: &str = "DROP TABLE IF EXISTS t, u, old; \
     CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1), (2); \
     CREATE TABLE u LIKE t; CREATE OR REPLACE VIEW v AS SELECT id FROM t; \
     CREATE OR REPLACE VIEW most AS SELECT max(id) AS id FROM t";
const SWAP: &str = "INSERT INTO u SELECT id FROM t; RENAME TABLE t TO old, u TO t";

#[tokio::test]
async fn a_table_that_takes_anothers_place_is_read_with_its_rows() {
    within(World::mariadb().await, async |world| {
        let sub = format!("SELECT id FROM {}", world.qualified("t"));
        for (relation, expected) in [
            (world.table("t"), vec![["1"], ["2"]]),
            (world.table("v"), vec![["1"], ["2"]]),
            (world.table("most"), vec![["2"]]),
            (Relation::Query(sub), vec![["1"], ["2"]]),
        ] {
            let wanted = ordered(selection(relation, &[("id", Integer)]), "id");
            at_every_message(world, (BEFORE_SWAP, SWAP), async |number, source| {
                let rows = texts(&read(&source, &wanted).await.expect("rows"));
                assert_eq!(rows, expected, "{:?} before message {number}", wanted.relation);
            })
            .await;
        }
    })
    .await;
}

#[tokio::test]
async fn several_tables_are_locked_before_the_first_is_looked_into() {
    within(World::mariadb().await, async |world| {
        let before = format!(
            "{BEFORE_SWAP}; DROP TABLE IF EXISTS first; CREATE TABLE first (id integer PRIMARY KEY); \
             INSERT INTO first VALUES (7)"
        );
        // To plan it is to read it.
        let first = query(
            format!("SELECT max(id) AS id FROM {}", world.qualified("first")),
            &[("id", Integer)],
        );
        let second = ordered(selection(world.table("t"), &[("id", Integer)]), "id");
        at_every_message(world, (&before, SWAP), async |number, source| {
            let mut streams = source.open_all(&[&first, &second]).await.expect("streams");
            let last = streams.pop().expect("a stream");
            for (stream, expected) in [(streams.remove(0), vec![["7"]]), (last, vec![["1"], ["2"]])]
            {
                let rows = texts(&rest(stream).await.expect("rows"));
                assert_eq!(rows, expected, "before message {number}");
            }
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn what_is_committed_until_the_moment_is_seen() {
    within(World::mariadb().await, async |world| {
        let before = "DROP TABLE IF EXISTS t; CREATE TABLE t (id integer PRIMARY KEY, at datetime(6)); \
                      INSERT INTO t VALUES (1, UTC_TIMESTAMP(6)); \
                      CREATE OR REPLACE VIEW most AS SELECT max(id) AS id FROM t";
        let happens = "INSERT INTO t VALUES (2, UTC_TIMESTAMP(6))";
        let added = format!("SELECT CAST(max(at) AS CHAR), count(*) FROM {}", world.qualified("t"));
        for (name, is_exact) in [("t", true), ("most", false)] {
            let wanted = selection(world.table(name), &[("id", Integer)]);
            at_every_message(world, (before, happens), async |number, source| {
                let stream = source.open(&wanted).await.expect("a stream");
                let moment = stream.snapshot_at().format("%Y-%m-%d %H:%M:%S%.6f").to_string();
                let seen = texts(&rest(stream).await.expect("rows")).contains(&vec!["2".into()]);
                let mut client = mariadb_client().await;
                let row = sqlx::query(AssertSqlSafe(added.as_str()));
                let row = row.fetch_one(&mut client).await.expect("a row");
                let (at, rows): (String, i64) = (row.get(0), row.get(1));
                if rows == 1 {
                    return;
                }
                let what = format!("{name}, message {number}: added {at}, moment {moment}");
                assert!(seen || at > moment, "{what}, not seen");
                assert!(!seen || at < moment || !is_exact, "{what}, seen");
            })
            .await;
        }
    })
    .await;
}

#[tokio::test]
async fn rows_are_those_of_now_whatever_the_server_is_set_to() {
    within(World::mariadb().await, async |world| {
        let sql = "CREATE TABLE t (id integer) /*M! WITH SYSTEM VERSIONING */";
        world.run(&format!("{sql}; INSERT INTO t VALUES (1)")).await;
        // MySQL has no other day's rows, nor such a variable.
        let past = if is_mysql().await {
            None
        } else {
            Some(Global::set("system_versioning_asof", "'2001-01-01 00:00:00'").await)
        };
        let wanted = selection(world.table("t"), &[("id", Integer)]);
        let rows = read(&world.source(), &wanted).await;
        if let Some(past) = past {
            past.restore().await;
        }
        assert_eq!(texts(&rows.expect("rows")), [["1"]]);
    })
    .await;
}

#[tokio::test]
async fn tables_without_snapshots_are_refused_by_a_server_that_tells_little() {
    within(World::mariadb().await, async |world| {
        world.run("CREATE TABLE loose (id integer) ENGINE = MyISAM").await;
        let silence = Global::set("sql_notes", "0").await;
        let refused = tokio::spawn({
            let wanted = selection(world.table("loose"), &[("id", Integer)]);
            async move { refused(&wanted).await }
        });
        let refused = refused.await;
        silence.restore().await;
        let error = refused.expect("it is refused");
        assert!(error.message.contains("'loose'"), "{error}");
    })
    .await;
}

/// Whether a statement with a marker waits for a table.
async fn waits(marker: &str) -> bool {
    let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
               WHERE STATE = 'Waiting for table metadata lock' AND INFO LIKE CONCAT('%', ?, '%')";
    let mut client = mariadb_client().await;
    let row = sqlx::query(sql).bind(marker).fetch_one(&mut client).await.expect("the threads");
    row.get::<i64, _>(0) > 0
}

fn asks(
    source: Arc<dyn Source>,
    wanted: Selection,
    is_estimate: bool,
) -> JoinHandle<Result<(), SourceError>> {
    tokio::spawn(async move {
        if is_estimate {
            source.estimate(&wanted).await.map(drop)
        } else {
            source.open(&wanted).await.map(drop)
        }
    })
}

#[tokio::test]
async fn whoever_gives_up_leaves_no_statement_that_waits_for_a_table() {
    within(World::mariadb().await, async |world| {
        world.run("CREATE TABLE t (id integer); INSERT INTO t VALUES (1)").await;
        let table = world.qualified("t");
        let mut reader = mariadb_client().await;
        run_mariadb(&mut reader, &format!("BEGIN; SELECT id FROM {table}")).await;
        let marker = || format!("m{}", Uuid::new_v4().simple());
        let altered = marker();
        let alter = tokio::spawn({
            let sql = format!("ALTER TABLE {table} ADD COLUMN {altered} integer");
            async move { run_mariadb(&mut mariadb_client().await, &sql).await }
        });
        until(SOON, "the table is to be altered", async || waits(&altered).await).await;
        for is_estimate in [true, false] {
            let ours = marker();
            let wanted = query(format!("SELECT '{ours}' AS m FROM {table}"), &[("m", Text)]);
            let asked = asks(world.source(), wanted, is_estimate);
            until(SOON, "our statement waits", async || waits(&ours).await).await;
            asked.abort();
            until(SOON, "our statement is gone", async || !waits(&ours).await).await;
        }
        // One that is not given up does not wait until it may have the table.
        let wanted = selection(world.table("t"), &[("id", Integer)]);
        let source = world.source();
        let estimate = tokio::time::timeout(SOON, source.estimate(&wanted)).await;
        let error = estimate.expect("an answer").expect_err("the table was not to be had");
        assert_eq!(error.disposition, Disposition::Retry, "{error:?}");
        assert!(waits(&altered).await, "there was nothing more to wait for");
        run_mariadb(&mut reader, "ROLLBACK").await;
        alter.await.expect("the table is altered");
        assert_eq!(read_first(world, &wanted).await, ["1"]);
    })
    .await;
}
