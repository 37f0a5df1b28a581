//! Tests of what the server does with our statements: which indexes it uses, and what it takes
//! for a literal.

use std::time::Duration;

use outport_domain::{
    column::ColumnType,
    selection::{Bound, ColumnRef, Order, Place, Predicate, Relation, Selection, Test, Value},
};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{
    connect::Server,
    relation,
    session::{self, Pins},
};
use crate::compile::{self, postgres::Postgres};

pub(super) fn server() -> Server {
    let url = std::env::var("OUTPORT_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
    Server::new(url, Duration::from_secs(10))
}

pub(super) async fn connected() -> PgConnection {
    server().connect().await.expect("the PostgreSQL server of the tests")
}

/// Looks, then reads: the transactions that our statements run in.
pub(super) async fn begin(connection: &mut PgConnection, tables: &[&str]) {
    let mut pins = Pins::new(chrono_tz::UTC);
    session::begin_to_look(connection, &mut pins, &server()).await.expect("a transaction");
    session::begin_to_read(connection, &pins, tables).await.expect("a transaction");
}

pub(super) async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.expect(sql);
}

pub(super) fn column(name: &str, column_type: ColumnType) -> ColumnRef {
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
