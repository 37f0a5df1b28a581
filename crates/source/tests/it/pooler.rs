//! PostgreSQL behind pgbouncer: found and said, read as if it were not there, or refused in words
//! that say what to do.

use std::time::Duration;

use outport_domain::{
    column::ColumnType::{Float, Integer, Text, Timestamp},
    failure::{Disposition, FailureCode},
    selection::{Bound, Place, Predicate, Selection, Test, Value},
};
use outport_source::{Batch, Next};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use crate::{
    pooler_process::Pooler,
    world::{
        World, backends, column, ordered, postgres_source, postgres_url, query, read, run,
        selection, texts, until, within,
    },
};

/// What a canceled query may still take.
const SOON: Duration = Duration::from_secs(2);

/// Session settings that somebody else leaves at a server connection that is handed on. Each
/// would change what is read, or end it.
const LEFT_BEHIND: &str = "SET search_path = nowhere; SET TimeZone = 'Asia/Kathmandu'; \
    SET extra_float_digits = -10; SET bytea_output = 'escape'; SET statement_timeout = '10s'; \
    SET lc_monetary = 'C.UTF-8'; SET IntervalStyle = 'sql_standard'; SET DateStyle = 'German'; \
    SET application_name = 'another'; SET idle_in_transaction_session_timeout = '1ms'";

async fn client(url: &str) -> PgConnection {
    let options: sqlx::postgres::PgConnectOptions = url.parse().expect("a URL");
    PgConnection::connect_with(&options.extra_float_digits(None)).await.expect("the pooler")
}

async fn settings_of(client: &mut PgConnection) -> Vec<String> {
    let row = sqlx::raw_sql(
        "SELECT current_setting('search_path'), current_setting('extra_float_digits'), \
                current_setting('bytea_output'), current_setting('statement_timeout'), \
                current_setting('IntervalStyle'), current_setting('application_name'), \
                current_setting('idle_in_transaction_session_timeout'), \
                coalesce(current_setting('outport.p1', true), '')",
    )
    .fetch_one(client)
    .await
    .expect("settings");
    (0..row.len()).map(|index| row.get(index)).collect()
}

/// Rows whose text depends on many settings, filtered by values that are bound.
fn things(world: &World) -> Selection {
    let mut wanted = ordered(
        selection(
            world.table("things"),
            &[("id", Integer), ("at", Timestamp), ("f", Float), ("b", Text), ("i", Text)],
        ),
        "id",
    );
    let all = ["1", "3", "4", "5"].map(|digits| Value::Integer(digits.to_owned())).to_vec();
    let from = Bound { value: Value::Integer("2".to_owned()), inclusive: true };
    let tests = [
        ("id", Integer, Test::In(all)),
        ("id", Integer, Test::Range { from: Some(from), to: None }),
        ("t", Text, Test::Like { place: Place::Start, text: "a_b".into(), ignore_case: false }),
    ];
    let parts = tests.map(|(name, kind, test)| Predicate::Column {
        column: column(name, kind),
        test,
        negated: false,
    });
    wanted.predicate = Predicate::All(parts.into());
    wanted.time_zone = chrono_tz::America::Sao_Paulo;
    wanted
}

async fn fill(world: &World) {
    world
        .run(
            "CREATE TABLE things (id integer, at timestamptz, f float8, b bytea, i interval, t text); \
             INSERT INTO things SELECT n, timestamptz '2026-07-01 12:00:00.5+00' + n * interval '1 h', \
               n / 3.0::float8, '\\x00ff', n * interval '1 day 2 hours', 'a_b' || n \
             FROM generate_series(1, 10) AS n",
        )
        .await;
}

#[tokio::test]
async fn rows_are_the_same_and_no_setting_is_lost_or_left_behind() {
    within(World::postgres().await, async |world| {
        fill(world).await;
        let wanted = things(world);
        let direct = world.source();
        let expected = texts(&read(&direct, &wanted).await.expect("rows"));
        assert_eq!(expected.len(), 3);
        assert_eq!(direct.note(), None);
        for ignored in ["", "ignore_startup_parameters = extra_float_digits,options"] {
            // The one server connection of the pool is somebody else's first.
            let settings = format!("pool_mode = transaction\ndefault_pool_size = 1\n{ignored}");
            let pooler = Pooler::start(&settings).await;
            let mut one = client(&pooler.url()).await;
            run(&mut one, LEFT_BEHIND).await;
            let before = settings_of(&mut one).await;
            assert_eq!(before[0], "nowhere");
            let source = postgres_source(pooler.url());
            for _ in 0..5 {
                assert_eq!(texts(&read(&source, &wanted).await.expect("rows")), expected);
                source.check().await.expect("it answers");
                assert_eq!(settings_of(&mut one).await, before);
            }
            assert!(source.note().is_some_and(|note| note.contains("pgbouncer")), "{ignored}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_whole_of_a_large_table_comes_by_one_connection_unless_the_url_says_so() {
    within(World::postgres().await, async |world| {
        world
            .run(
                "CREATE TABLE large (id integer, pad text); \
                 INSERT INTO large SELECT n, repeat('x', 380) FROM generate_series(1, 60000) AS n",
            )
            .await;
        let wanted = selection(world.table("large"), &[("id", Integer), ("pad", Text)]);
        let expected = read(&world.source(), &wanted).await.expect("rows");
        assert_eq!(expected.len(), 60_000);
        for (size, more) in [(1, ""), (3, "&connections=3")] {
            let pooler =
                Pooler::start(&format!("pool_mode = transaction\ndefault_pool_size = {size}"))
                    .await;
            let source = postgres_source(pooler.url() + more);
            let rows = read(&source, &wanted).await.expect("rows");
            assert!(rows == expected, "{size}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_cancel_ends_the_export_and_nothing_else() {
    let pooler = Pooler::start("pool_mode = transaction\ndefault_pool_size = 3").await;
    let source = postgres_source(pooler.url());
    for dropped in [false, true] {
        let marker = format!("m{}", Uuid::new_v4().simple());
        let sql = format!("SELECT pg_sleep(600)::text AS {marker}");
        let wanted = query(sql, &[(marker.as_str(), Text)]);
        let mut bystander = client(&pooler.url()).await;
        let other = format!("o{}", Uuid::new_v4().simple());
        let ask =
            format!("BEGIN; SET LOCAL application_name = 'outport {other}'; SELECT 1 AS {other}");
        run(&mut bystander, &ask).await;
        let stream = source.open(&wanted).await.expect("a stream");
        until(SOON, "the query runs", async || !backends(&marker).await.is_empty()).await;
        if dropped {
            drop(stream);
        } else {
            stream.cancel().await;
        }
        until(SOON, "the query is gone", async || backends(&marker).await.is_empty()).await;
        assert_eq!(backends(&other).await.len(), 1);
        run(&mut bystander, "COMMIT").await;
    }
}

#[tokio::test]
async fn a_pool_without_a_connection_to_spare_is_another_times_matter() {
    let pooler =
        Pooler::start("pool_mode = transaction\ndefault_pool_size = 1\nquery_wait_timeout = 1")
            .await;
    let mut holder = client(&pooler.url()).await;
    run(&mut holder, "BEGIN; SELECT 1").await;
    let wanted = query("SELECT 1 AS one", &[("one", Integer)]);
    let Err(error) = postgres_source(pooler.url()).open(&wanted).await else { panic!("a stream") };
    assert_eq!(
        (error.code, error.disposition),
        (FailureCode::SourceUnreachable, Disposition::Retry),
        "{error:?}"
    );
    assert!(error.message.contains("pgbouncer") && error.message.contains("to spare"), "{error}");
}

#[tokio::test]
async fn what_cannot_work_through_a_pooler_says_what_to_do() {
    let statements = Pooler::start("pool_mode = statement").await;
    let transactions = Pooler::start("pool_mode = transaction").await;
    let options = transactions.url() + "&options=-c%20geqo=off";
    let wanted = query("SELECT 1 AS one", &[("one", Integer)]);
    for (url, words) in [(statements.url(), "pool_mode"), (options, "'options'")] {
        let source = postgres_source(url);
        let opened = source.open(&wanted).await.err().expect("no stream");
        let checked = source.check().await.expect_err("no transaction");
        for error in [opened, checked] {
            assert_eq!(
                (error.code, error.disposition),
                (FailureCode::SourceUnreachable, Disposition::Abandon),
                "{error:?}"
            );
            assert!(error.message.contains("pgbouncer"), "{error}");
            assert!(error.message.contains(words), "{error}");
            assert!(error.message.contains("directly"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_pooled_session_is_found_too() {
    let pooler = Pooler::start("pool_mode = session").await;
    let source = postgres_source(pooler.url());
    let wanted = query("SELECT 1 AS one", &[("one", Integer)]);
    let mut stream = source.open(&wanted).await.expect("a stream");
    let mut batch = Batch::new(1);
    assert_eq!(stream.next(&mut batch).await.expect("a row"), Next::Rows);
    assert!(source.note().is_some());
    // The server's own way stays what it is.
    let direct = postgres_source(postgres_url());
    direct.check().await.expect("it answers");
    assert_eq!(direct.note(), None);
}
