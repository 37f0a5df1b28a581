//! What a planner says of the number of rows before any is read.

use std::time::Duration;

use outport_domain::{
    column::ColumnType::{self, Integer, Text, Timestamp, Uuid},
    selection::{Bound, Predicate, Relation, Selection, Test, Value},
};

use crate::world::{World, column, numbers, ordered, read, rest, selection, within};

const MANY: &str = "0197a801-1690-7590-b3cf-19599b9be3e4";
const FEW: &str = "0197a805-0910-7eb2-bae7-90a13df2a9b2";

/// 20,000 rows, of which one organization has a twentieth, a minute apart.
async fn fill(world: &World) {
    let mariadb = format!("(SELECT seq AS n FROM {}) AS t", numbers(20_000));
    let series = world.pick("generate_series(1, 20000) AS t(n)", &mariadb, "");
    let at = world.pick(
        "timestamptz '2026-01-01 00:00:00+00' + n * interval '1 minute'",
        "TIMESTAMP '2026-01-01 00:00:00' + INTERVAL n MINUTE",
        "",
    );
    let uuid = world.pick("uuid", "char(36)", "");
    let instant = world.pick("timestamptz", "timestamp NULL", "");
    let mariadb = "ANALYZE TABLE orders /*M!100004 PERSISTENT FOR ALL */";
    let analyze = world.pick("ANALYZE orders", mariadb, "");
    // InnoDB would count again by itself, some time later and by a few pages.
    let once = world.pick("", "STATS_AUTO_RECALC = 0", "");
    let sql = format!(
        "CREATE TABLE orders (id integer PRIMARY KEY, org {uuid} NOT NULL, at {instant}, code varchar(20)) {once}; \
         CREATE INDEX by_org ON orders (org); CREATE INDEX by_at ON orders (at); \
         INSERT INTO orders SELECT n, CASE WHEN n % 20 = 0 THEN '{FEW}' ELSE '{MANY}' END{}, {at}, \
           concat('ORD-', n) FROM {series}; {analyze}",
        world.pick("::uuid", "", "")
    );
    world.run(&sql).await;
}

type Filter = (&'static str, ColumnType, Test);

fn of(world: &World, test: Option<Filter>) -> Selection {
    let mut wanted = selection(world.table("orders"), &[("id", Integer), ("code", Text)]);
    if let Some((name, column_type, test)) = test {
        let column = column(name, column_type);
        wanted.predicate = Predicate::Column { column, test, negated: false };
    }
    wanted
}

fn organization(id: &str) -> Filter {
    ("org", Uuid, Test::Equal(Value::Uuid(id.parse().expect("a UUID"))))
}

/// A tenth of the rows, in the middle.
fn days() -> Filter {
    let bound = |text: &str| {
        let value = Value::Timestamp(text.parse().expect("an instant"));
        Some(Bound { value, inclusive: true })
    };
    let (from, to) = (bound("2026-01-05T00:00:00Z"), bound("2026-01-06T09:20:00Z"));
    ("at", Timestamp, Test::Range { from, to })
}

async fn estimates_are_near(world: World) {
    within(world, async |world| {
        fill(world).await;
        let source = world.source();
        for (what, test, rows) in [
            ("all", None, 20_000),
            ("many", Some(organization(MANY)), 19_000),
            ("few", Some(organization(FEW)), 1_000),
            ("days", Some(days()), 2_001),
            ("none", Some(organization("00000000-0000-0000-0000-000000000000")), 1),
        ] {
            let wanted = of(world, test);
            let stream = source.open(&wanted).await.expect("a stream");
            let on_the_way = stream.estimated_rows();
            let counted = rest(stream).await.expect("rows").len() as u64;
            assert_eq!(counted, if what == "none" { 0 } else { rows }, "{what}");
            let asked = source.estimate(&wanted).await.expect("an answer");
            for estimate in [on_the_way, asked] {
                let estimate = estimate.expect("an estimate");
                // InnoDB takes no range for more than half of what it takes the table for.
                let near = rows * 2 / 5..=(rows * 2).max(100);
                assert!(near.contains(&estimate), "{what}: {estimate} instead of {rows}");
            }
        }
        let sorted = ordered(of(world, Some(organization(FEW))), "id");
        let estimate = source.estimate(&sorted).await.expect("an answer").expect("an estimate");
        assert!((500..=2_000).contains(&estimate), "{estimate}");
    })
    .await;
}

#[tokio::test]
async fn postgres_estimates_what_the_filters_leave() {
    estimates_are_near(World::postgres().await).await;
}

#[tokio::test]
async fn mariadb_estimates_what_the_filters_leave() {
    estimates_are_near(World::mariadb().await).await;
}

#[tokio::test]
async fn sqlite_does_not_guess() {
    within(World::sqlite(), async |world| {
        world.run("CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (1); ANALYZE").await;
        let wanted = selection(world.table("t"), &[("id", Integer)]);
        let source = world.source();
        assert_eq!(source.estimate(&wanted).await.expect("an answer"), None);
        assert_eq!(source.open(&wanted).await.expect("a stream").estimated_rows(), None);
    })
    .await;
}

#[tokio::test]
async fn queries_and_views_are_estimated_too() {
    within(World::postgres().await, async |world| {
        let sql = "SELECT n FROM generate_series(1, 3000000) AS t(n)";
        world.run(&format!("CREATE VIEW v AS {sql}")).await;
        for relation in [world.table("v"), Relation::Query(sql.to_owned())] {
            let wanted = selection(relation, &[("n", Integer)]);
            let estimate = world.source().estimate(&wanted).await.expect("an answer");
            assert_eq!(estimate, Some(3_000_000));
        }
    })
    .await;
    within(World::mariadb().await, async |world| {
        world
            .run(&format!(
                "CREATE TABLE a (id integer PRIMARY KEY); INSERT INTO a SELECT seq FROM {}; \
                 CREATE TABLE b (id integer PRIMARY KEY, a integer, KEY (a)); \
                 INSERT INTO b SELECT seq, seq DIV 10 FROM {} WHERE seq >= 10; \
                 ANALYZE TABLE a, b",
                numbers(3_000),
                numbers(29_999)
            ))
            .await;
        let join = format!(
            "SELECT b.id FROM {} AS a JOIN {} AS b ON b.a = a.id",
            world.qualified("a"),
            world.qualified("b")
        );
        let wanted = selection(Relation::Query(join), &[("id", Integer)]);
        let estimate = world.source().estimate(&wanted).await.expect("an answer");
        let estimate = estimate.expect("an estimate");
        assert!((4_000..=200_000).contains(&estimate), "{estimate} instead of 29,990");
    })
    .await;
}

/// The estimate is made with a time limit, and the query without: what is planned for ever under
/// a limit is no more than an estimate that is not there.
#[tokio::test]
async fn planning_that_fails_or_takes_too_long_costs_no_more_than_the_estimate() {
    within(World::postgres().await, async |world| {
        world
            .run(
                "CREATE FUNCTION fails() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS \
                   'BEGIN IF current_setting(''statement_timeout'') <> ''0'' THEN RAISE ''odd''; END IF; RETURN true; END'; \
                 CREATE FUNCTION hangs() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS \
                   'BEGIN IF current_setting(''statement_timeout'') <> ''0'' THEN PERFORM pg_sleep(600); END IF; RETURN true; END'; \
                 CREATE TABLE t (id integer); INSERT INTO t VALUES (1), (2)",
            )
            .await;
        let source = world.source();
        for function in ["fails", "hangs"] {
            let sql = format!(
                "SELECT id FROM {} WHERE {}()",
                world.qualified("t"),
                world.qualified(function)
            );
            let wanted = selection(Relation::Query(sql), &[("id", Integer)]);
            let work = async {
                assert_eq!(source.estimate(&wanted).await.expect("an answer"), None);
                let stream = source.open(&wanted).await.expect("a stream");
                assert_eq!(stream.estimated_rows(), None);
                assert_eq!(read(&source, &wanted).await.expect("rows").len(), 2);
            };
            let ended = tokio::time::timeout(Duration::from_mins(2), work).await;
            assert!(ended.is_ok(), "{function}: the estimate held everything up");
        }
    })
    .await;
}
