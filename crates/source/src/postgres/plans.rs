//! Tests of what the server does with our statements: which indexes it uses, and what a
//! transaction sees that waited for a lock.

use std::time::Duration;

use outport_domain::{
    column::ColumnType,
    failure::{Disposition, FailureCode},
    selection::{Bound, ColumnRef, Order, Place, Predicate, Relation, Selection, Test, Value},
};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{
    connect::Server,
    relation,
    session::{self, Pins},
};
use crate::compile::{self, postgres::Postgres};

fn server() -> Server {
    let url = std::env::var("OUTPORT_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
    Server::new(url, Duration::from_secs(10))
}

async fn connected() -> PgConnection {
    server().connect().await.expect("the PostgreSQL server of the tests")
}

/// Looks, then reads: the transactions that our statements run in.
async fn begin(connection: &mut PgConnection, tables: &[String]) {
    let mut pins = Pins::new(chrono_tz::UTC);
    session::begin_to_look(connection, &mut pins, &server()).await.expect("a transaction");
    session::begin_to_read(connection, &pins, tables).await.expect("a transaction");
}

async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.expect(sql);
}

fn column(name: &str, column_type: ColumnType) -> ColumnRef {
    ColumnRef { name: name.into(), column_type }
}

fn test(name: &str, column_type: ColumnType, test: Test) -> Predicate {
    Predicate::Column { column: column(name, column_type), test, negated: false }
}

fn day_range() -> Test {
    let day = |text: &str| Bound {
        value: Value::Timestamp(text.parse().expect("an instant")),
        inclusive: true,
    };
    Test::Range { from: Some(day("2026-03-01T00:00:00Z")), to: Some(day("2026-03-02T00:00:00Z")) }
}

/// The plan that our statement gets, in the very session that it would run in.
async fn plan(connection: &mut PgConnection, predicate: Predicate) -> String {
    let selection = Selection {
        relation: Relation::Table(vec!["pg_temp".to_owned(), "orders".to_owned()]),
        columns: vec![column("id", ColumnType::Integer)],
        predicate,
        order: Vec::<Order>::new(),
        time_zone: chrono_tz::UTC,
    };
    begin(connection, &[]).await;
    let types = relation::real_types(connection, &selection).await.expect("types");
    let mut dialect = Postgres::new(types);
    let sql = compile::select(&mut dialect, &selection).expect("a statement");
    session::take_snapshot(connection, &dialect.parameters).await.expect("a snapshot");
    let lines = sqlx::raw_sql(AssertSqlSafe(format!("EXPLAIN {sql}")))
        .fetch_all(&mut *connection)
        .await
        .expect("a plan");
    run(connection, "ROLLBACK").await;
    lines.iter().map(|line| line.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn ordinary_filters_use_ordinary_indexes() {
    use ColumnType::{Boolean, Integer, Text, Timestamp, Uuid};
    let mut connection = connected().await;
    run(
        &mut connection,
        "CREATE TYPE pg_temp.order_status AS ENUM ('open', 'paid', 'rare'); \
         CREATE TEMP TABLE orders AS \
         SELECT n AS id, \
                ('00000000-0000-0000-0000-' || lpad((n % 500)::text, 12, '0'))::uuid AS organization, \
                timestamptz '2026-01-01' + n * interval '1 minute' AS created_at, \
                'code-' || n AS code, \
                (CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'paid' END)::pg_temp.order_status AS status, \
                n % 1000 = 0 AS flagged \
         FROM generate_series(1, 200000) AS n; \
         CREATE INDEX by_id ON orders (id); \
         CREATE INDEX by_organization ON orders (organization); \
         CREATE INDEX by_created_at ON orders (created_at); \
         CREATE INDEX by_code ON orders (code text_pattern_ops); \
         CREATE INDEX by_exact_code ON orders (code); \
         CREATE INDEX by_status ON orders (status); \
         CREATE INDEX only_flagged ON orders (id) WHERE flagged; \
         ANALYZE orders",
    )
    .await;
    let uuid = |n: u128| Value::Uuid(uuid::Uuid::from_u128(n));
    let text = |text: &str| Value::Text(text.to_owned());
    let prefix = Test::Like { place: Place::Start, text: "code-1999".into(), ignore_case: false };
    let cases = [
        ("by_organization", test("organization", Uuid, Test::Equal(uuid(7)))),
        ("by_organization", test("organization", Uuid, Test::In(vec![uuid(7), uuid(8)]))),
        ("by_created_at", test("created_at", Timestamp, day_range())),
        ("by_id", test("id", Integer, Test::Equal(Value::Integer("77".into())))),
        ("by_exact_code", test("code", Text, Test::Equal(text("code-77")))),
        ("by_code", test("code", Text, prefix)),
        ("by_status", test("status", Text, Test::Equal(text("rare")))),
        ("only_flagged", test("flagged", Boolean, Test::Equal(Value::Boolean(true)))),
        (
            "by_organization",
            Predicate::All(vec![
                test("organization", Uuid, Test::Equal(uuid(7))),
                Predicate::Any(vec![test("organization", Uuid, Test::In(vec![uuid(7)]))]),
                test("status", Text, Test::Equal(text("paid"))),
            ]),
        ),
    ];
    for (index, predicate) in cases {
        let told = format!("{predicate:?}");
        let plan = plan(&mut connection, predicate).await;
        assert!(plan.contains(index), "{told}\nshould use {index}:\n{plan}");
    }
}

#[tokio::test]
async fn a_value_is_read_once_and_not_for_each_row() {
    use ColumnType::{Integer, Text, Timestamp};
    let mut connection = connected().await;
    run(
        &mut connection,
        "CREATE TEMP TABLE orders AS \
         SELECT n AS id, now() AS created_at, 'code-' || n AS code FROM generate_series(1, 10) AS n",
    )
    .await;
    let integers = ["1", "2"].map(|digits| Value::Integer(digits.into())).to_vec();
    let part = Test::Like { place: Place::Anywhere, text: "de".into(), ignore_case: true };
    for predicate in [
        test("created_at", Timestamp, day_range()),
        test("id", Integer, Test::In(integers)),
        test("code", Text, part),
    ] {
        let plan = plan(&mut connection, predicate).await;
        let per_row = plan
            .lines()
            .filter(|line| line.contains("Filter:") && line.contains("current_setting"))
            .count();
        assert_eq!(per_row, 0, "{plan}");
    }
}

async fn until_somebody_waits_for(table: &str) {
    let waiting = "SELECT count(*) FROM pg_locks WHERE relation = $1::regclass AND NOT granted";
    tokio::time::timeout(Duration::from_secs(10), async {
        let mut observer = connected().await;
        while sqlx::query(waiting)
            .bind(table)
            .fetch_one(&mut observer)
            .await
            .expect("the locks")
            .get::<i64, _>(0)
            == 0
        {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("somebody waits for the lock");
}

#[tokio::test]
async fn the_lock_comes_before_the_snapshot() {
    let table = format!("outport_lock_{}", uuid::Uuid::new_v4().simple());
    let mut writer = connected().await;
    run(&mut writer, &format!("CREATE TABLE {table} AS SELECT 1 AS id")).await;
    run(&mut writer, &format!("BEGIN; TRUNCATE {table}")).await;
    run(&mut writer, &format!("INSERT INTO {table} SELECT generate_series(1, 5)")).await;
    let reader = tokio::spawn({
        let table = table.clone();
        async move {
            let mut connection = connected().await;
            begin(&mut connection, std::slice::from_ref(&table)).await;
            session::take_snapshot(&mut connection, &[]).await.expect("a snapshot");
            sqlx::query(AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
                .fetch_one(&mut connection)
                .await
                .expect("a count")
                .get::<i64, _>(0)
        }
    });
    until_somebody_waits_for(&table).await;
    run(&mut writer, "COMMIT").await;
    let seen = reader.await.expect("a reader");
    run(&mut writer, &format!("DROP TABLE {table}")).await;
    assert_eq!(seen, 5, "a snapshot from before the TRUNCATE would see an empty table");
}

/// An ALTER that waits for the look at the catalogue comes in as that ends, before the table is
/// locked for reading: the bytes of an integer would be read as what they no longer are.
#[tokio::test]
async fn a_table_that_is_altered_in_between_is_not_read() {
    let table = format!("outport_alter_{}", uuid::Uuid::new_v4().simple());
    let mut writer = connected().await;
    run(&mut writer, &format!("CREATE TABLE {table} AS SELECT 1::bigint AS id")).await;
    let selection = Selection {
        relation: Relation::Table(vec![table.clone()]),
        columns: vec![column("id", ColumnType::Integer)],
        predicate: Predicate::All(Vec::new()),
        order: Vec::new(),
        time_zone: chrono_tz::UTC,
    };
    let mut connection = connected().await;
    let mut pins = Pins::new(chrono_tz::UTC);
    session::begin_to_look(&mut connection, &mut pins, &server()).await.expect("a transaction");
    let seen = super::compiled(&mut connection, &pins, &selection, Vec::new()).await;
    let seen = [seen.expect("a statement")];
    let alter = format!("ALTER TABLE {table} ALTER id TYPE double precision");
    let altered = tokio::spawn(async move {
        run(&mut writer, &alter).await;
        writer
    });
    until_somebody_waits_for(&table).await;
    let begun = super::begin_to_read(&mut connection, &pins, &[&selection], &seen, &[]).await;
    let error = begun.expect_err("it is not the table that was looked at");
    run(&mut connection, "ROLLBACK").await;
    let mut writer = altered.await.expect("the ALTER");
    run(&mut writer, &format!("DROP TABLE {table}")).await;
    assert_eq!(error.code, FailureCode::SchemaMismatch);
    assert_eq!(error.disposition, Disposition::Retry);
}

/// A partition at the first and one at the second level of a tree. The first is a table that is
/// older than the tree.
async fn tree(writer: &mut PgConnection) -> (String, Selection) {
    let tree = format!("outport_tree_{}", uuid::Uuid::new_v4().simple());
    let made = format!(
        "CREATE TABLE {tree}_low (id bigint); \
         CREATE TABLE {tree} (id bigint) PARTITION BY RANGE (id); \
         CREATE TABLE {tree}_mid PARTITION OF {tree} FOR VALUES FROM (10) TO (30) \
             PARTITION BY RANGE (id); \
         CREATE TABLE {tree}_high PARTITION OF {tree}_mid FOR VALUES FROM (10) TO (20); \
         ALTER TABLE {tree} ATTACH PARTITION {tree}_low FOR VALUES FROM (0) TO (10)"
    );
    run(writer, &made).await;
    let selection = Selection {
        relation: Relation::Query(format!("SELECT id FROM {tree}")),
        columns: vec![column("id", ColumnType::Integer)],
        predicate: Predicate::All(Vec::new()),
        order: Vec::new(),
        time_zone: chrono_tz::UTC,
    };
    (tree, selection)
}

#[tokio::test]
async fn partitions_are_locked_after_those_parents_that_reading_locks() {
    let mut connection = connected().await;
    let (tree, _) = tree(&mut connection).await;
    let (root, mid) = (format!("ONLY public.{tree}"), format!("ONLY public.{tree}_mid"));
    let low = format!(r#""public"."{tree}_low""#);
    let high = format!(r#""public"."{tree}_high""#);
    // One after the other: a lock that is held would count for the next.
    for (sql, expected) in [
        (format!("SELECT id FROM {tree}_high"), vec![&high]),
        // The planner asks the parent of a partitioned table what it may hold.
        (format!("SELECT id FROM {tree}_mid"), vec![&root, &mid, &high]),
        (format!("SELECT id FROM {tree} WHERE id < 10"), vec![&root, &low]),
        (format!("SELECT id FROM {tree}"), vec![&root, &low, &mid, &high]),
    ] {
        run(&mut connection, "BEGIN").await;
        let relation = Relation::Query(sql);
        let tables = relation::base_tables(&mut connection, &relation).await.expect("tables");
        run(&mut connection, "COMMIT").await;
        let locks = relation::to_lock([&tables, &tables]);
        assert_eq!(locks.iter().collect::<Vec<_>>(), expected, "{relation:?}");
    }
    run(&mut connection, &format!("DROP TABLE {tree}")).await;
}

/// What DETACH PARTITION and DROP TABLE do, lock by lock.
#[tokio::test]
async fn who_has_a_partitioned_table_and_wants_a_partition_gets_it() {
    let mut writer = connected().await;
    let (tree, selection) = tree(&mut writer).await;
    let mut connection = connected().await;
    let mut pins = Pins::new(chrono_tz::UTC);
    session::begin_to_look(&mut connection, &mut pins, &server()).await.expect("a transaction");
    let seen = super::compiled(&mut connection, &pins, &selection, Vec::new()).await;
    let seen = [seen.expect("a statement")];
    let parent = format!("BEGIN; LOCK TABLE ONLY {tree} IN ACCESS EXCLUSIVE MODE");
    let locked = tokio::spawn(async move {
        run(&mut writer, &parent).await;
        writer
    });
    until_somebody_waits_for(&tree).await;
    let reader = tokio::spawn(async move {
        super::begin_to_read(&mut connection, &pins, &[&selection], &seen, &[]).await
    });
    let mut writer = locked.await.expect("the parent");
    until_somebody_waits_for(&tree).await;
    run(&mut writer, &format!("LOCK TABLE {tree}_low IN ACCESS EXCLUSIVE MODE; COMMIT")).await;
    reader.await.expect("a reader").expect("nothing was altered");
    run(&mut writer, &format!("DROP TABLE {tree}")).await;
}

#[tokio::test]
async fn the_server_reads_a_literal_as_the_text_itself() {
    let mut connection = connected().await;
    let texts = [
        "",
        "it's",
        "\\",
        "\\'",
        "\\\\'; DROP TABLE t; --",
        "'; SELECT 1; --",
        "E'x'",
        "\\x41\\u0041\\n",
        "$$ :a ?",
        "line\nbreak\r\ttab",
        "\u{2019}\u{ff07}é\u{10ffff}",
    ];
    for setting in ["on", "off"] {
        run(&mut connection, &format!("SET standard_conforming_strings = {setting}")).await;
        for text in texts {
            let sql = format!("SELECT {}::text", compile::postgres::literal(text).expect("no NUL"));
            let rows =
                sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection).await.expect("a row");
            assert_eq!(rows.len(), 1, "{text:?}");
            assert_eq!(rows[0].get::<String, _>(0), text, "{setting}");
        }
    }
}
