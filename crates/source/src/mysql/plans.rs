//! Tests of what the server does with our statements: which indexes it uses, and what locks and
//! views it makes.

use std::{sync::Arc, time::Duration};

use outport_domain::{
    column::ColumnType,
    selection::{Bound, ColumnRef, Place, Predicate, Relation, Selection, Test, Value},
};
use sqlx::{AssertSqlSafe, Column, Connection, MySqlConnection, Row};

use super::{
    relation,
    session::{self, Server, Thread},
    snapshot,
};
use crate::compile::{self, mysql::MySql};

const TABLE: &str = "outport_plans";

async fn connected() -> MySqlConnection {
    let url = std::env::var("OUTPORT_TEST_MARIADB")
        .unwrap_or_else(|_| "mysql://root@127.0.0.1:3306/test".to_owned());
    MySqlConnection::connect(&url).await.expect("the MariaDB server of the tests")
}

async fn run(connection: &mut MySqlConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.expect(sql);
}

/// The index that our statement uses, in the very session that it would run in.
async fn index_of(connection: &mut MySqlConnection, predicate: Predicate) -> (String, String) {
    let selection = Selection {
        relation: Relation::Table(vec![TABLE.to_owned()]),
        columns: vec![ColumnRef { name: "pad".into(), column_type: ColumnType::Text }],
        predicate,
        order: Vec::new(),
        time_zone: chrono_tz::UTC,
    };
    session::pin(connection).await.expect("settings");
    let types = relation::real_types(connection, &selection).await.expect("types");
    let mut dialect = MySql::new(types);
    let sql = compile::select(&mut dialect, &selection).expect("a statement");
    session::set_parameters(connection, &dialect.parameters).await.expect("parameters");
    let explain = format!("EXPLAIN /*!50700 FORMAT=TRADITIONAL */ {sql}");
    let plan = session::rows(connection, explain).await.expect("a plan");
    let mut columns = plan[0].columns().iter();
    let key = columns.find(|column| column.name() == "key").expect("a key").ordinal();
    let key = session::text(&plan[0], key).expect("a key").unwrap_or_default();
    (key, sql)
}

#[tokio::test]
async fn ordinary_filters_use_ordinary_indexes() {
    use ColumnType::{Boolean, Date, Decimal, Integer, Text, Timestamp, Uuid};
    let mut connection = connected().await;
    run(
        &mut connection,
        &format!(
            "CREATE TEMPORARY TABLE {TABLE} (id integer, big bigint unsigned, amount decimal(12,2), \
               at timestamp(6) NULL, local datetime, day date, code varchar(40) CHARACTER SET utf8mb4, \
               latin varchar(40) CHARACTER SET latin1, org char(36), native /*M!100700 uuid */ /*!80000 char(36) */, bytes binary(16), flag boolean, unset bit(1), pad text, \
               KEY (id), KEY (big), KEY (amount), KEY (at), KEY (local), KEY (day), KEY (code), KEY (latin), \
               KEY (org), KEY (native), KEY (bytes), KEY (flag), KEY (unset)) ENGINE = InnoDB; \
             INSERT INTO {TABLE} \
             SELECT seq, seq, seq / 7, TIMESTAMP '2026-01-01 00:00:00' + INTERVAL seq MINUTE, \
                    TIMESTAMP '2026-01-01 00:00:00' + INTERVAL seq MINUTE, DATE '1970-01-01' + INTERVAL seq DAY, \
                    CONCAT('code-', seq), CONCAT('code-', seq), UUID(), UUID(), LEFT(UNHEX(SHA2(seq, 256)), 16), seq % 1000 = 0, seq % 1000 <> 0, REPEAT('x', 100) \
             FROM (WITH RECURSIVE d (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM d WHERE n < 999) \
                   SELECT 1000 * a.n + b.n + 1 AS seq FROM d AS a JOIN d AS b ON a.n < 20) AS s; \
             ANALYZE TABLE {TABLE}"
        ),
    )
    .await;
    let uuid = |n: u128| Value::Uuid(uuid::Uuid::from_u128(n));
    let text = |text: &str| Value::Text(text.to_owned());
    let range = |from: Value, to: Value| Test::Range {
        from: Some(Bound { value: from, inclusive: true }),
        to: Some(Bound { value: to, inclusive: false }),
    };
    let instant = |text: &str| Value::Timestamp(text.parse().expect("an instant"));
    let moment = |text: &str| Value::LocalTimestamp(text.parse().expect("a moment"));
    let day = |text: &str| Value::Date(text.parse().expect("a day"));
    let number = |text: &str| Value::Decimal(text.to_owned());
    let prefix =
        |text: &str| Test::Like { place: Place::Start, text: text.to_owned(), ignore_case: false };
    let cases = [
        ("id", Integer, Test::Equal(number("7"))),
        ("id", Integer, Test::In(vec![number("7"), number("8")])),
        ("id", Integer, range(number("7"), number("9.5"))),
        ("big", Integer, Test::Equal(number("18446744073709551615"))),
        ("amount", Decimal, range(number("7.25"), number("8.125"))),
        ("at", Timestamp, range(instant("2026-01-02T00:00:00Z"), instant("2026-01-02T01:00:00Z"))),
        ("local", Timestamp, range(moment("2026-01-02T00:00:00"), moment("2026-01-02T01:00:00"))),
        ("day", Date, Test::Equal(day("1990-07-01"))),
        ("code", Text, Test::Equal(text("code-77"))),
        ("code", Text, Test::In(vec![text("code-77"), text("código")])),
        ("code", Text, prefix("code-1999")),
        ("latin", Text, Test::Equal(text("code-77"))),
        ("latin", Text, prefix("code-1999")),
        ("org", Uuid, Test::Equal(uuid(7))),
        ("org", Uuid, Test::In(vec![uuid(7), uuid(8)])),
        ("native", Uuid, Test::Equal(uuid(7))),
        ("bytes", Uuid, Test::Equal(uuid(7))),
        ("flag", Boolean, Test::Equal(Value::Boolean(true))),
        ("flag", Boolean, Test::In(vec![Value::Boolean(true)])),
        ("unset", Boolean, Test::Equal(Value::Boolean(false))),
    ];
    for (name, column_type, test) in cases {
        let column = ColumnRef { name: name.into(), column_type };
        let predicate = Predicate::Column { column, test, negated: false };
        let (index, sql) = index_of(&mut connection, predicate).await;
        assert_eq!(index, name, "{sql}");
    }
}

#[tokio::test]
async fn the_lock_is_taken_before_the_view() {
    let table = format!("outport_locked_{}", uuid::Uuid::new_v4().simple());
    let mut writer = connected().await;
    run(&mut writer, "SET lock_wait_timeout = 0 /*!50700 + 1 */").await;
    run(&mut writer, &format!("CREATE TABLE {table} (id integer) ENGINE = InnoDB")).await;
    let mut reader = connected().await;
    session::pin(&mut reader).await.expect("settings");
    let server = Server {
        url: "mysql://unused".to_owned(),
        tls: Arc::default(),
        connect_timeout: Duration::ZERO,
    };
    let mut thread = Thread::of(&mut reader, server).await.expect("a thread");
    let wanted = Selection {
        relation: Relation::Table(vec![table.clone()]),
        columns: Vec::new(),
        predicate: Predicate::All(Vec::new()),
        order: Vec::new(),
        time_zone: chrono_tz::UTC,
    };
    snapshot::lock(&mut reader, &thread, &[&wanted]).await.expect("a lock");
    let truncated = sqlx::raw_sql(AssertSqlSafe(format!("TRUNCATE {table}"))).execute(&mut writer);
    let refused = truncated.await.is_err();
    run(&mut writer, &format!("INSERT INTO {table} VALUES (1)")).await;
    let taken = snapshot::take(&mut reader, &thread, Some(&wanted.relation)).await;
    run(&mut writer, &format!("INSERT INTO {table} VALUES (2)")).await;
    let read = session::rows(&mut reader, format!("SELECT id FROM {table}")).await;
    thread.is_done();
    drop(reader);
    run(&mut writer, &format!("SET lock_wait_timeout = 60; DROP TABLE {table}")).await;
    assert!(refused, "the table could be emptied");
    taken.expect("a moment");
    assert_eq!(read.expect("rows").len(), 1, "the view was made later or sooner");
}
