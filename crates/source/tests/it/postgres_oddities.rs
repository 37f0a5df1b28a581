//! What PostgreSQL does in its own way: composites and NULL, addresses as texts, and what is left
//! of a question whose asker is gone.

use std::time::Duration;

use outport_domain::{
    column::ColumnType::{self, Integer, Json, Text},
    selection::{Place, Predicate, Test, Value},
};
use sqlx::Row;

use crate::world::{
    World, column, ordered, postgres_client, read_first, run, selection, until, within,
};

async fn found(
    world: &World,
    name: &str,
    column_type: ColumnType,
    test: Test,
    negated: bool,
) -> Vec<String> {
    let mut wanted = ordered(selection(world.table("odd"), &[("id", Integer)]), "id");
    wanted.predicate = Predicate::Column { column: column(name, column_type), test, negated };
    read_first(world, &wanted).await
}

/// For the server a composite is null when all its fields are, and not null when none is. A cell
/// of the file is one or the other.
#[tokio::test]
async fn a_composite_is_null_or_it_is_not() {
    within(World::postgres().await, async |world| {
        world
            .run(
                "CREATE TYPE pair AS (a integer, b text); CREATE DOMAIN couple AS pair; \
                 CREATE TABLE odd (id integer, p pair, c couple, l integer[]); \
                 INSERT INTO odd VALUES (1, NULL, NULL, NULL), (2, (1, NULL), (1, NULL), '{}'), \
                 (3, (NULL, NULL), (NULL, NULL), '{NULL}'), (4, (1, 'x'), (1, 'x'), '{1}')",
            )
            .await;
        for name in ["p", "c", "l"] {
            assert_eq!(found(world, name, Json, Test::Null, false).await, ["1"], "{name}");
            assert_eq!(found(world, name, Json, Test::Null, true).await, ["2", "3", "4"], "{name}");
        }
    })
    .await;
}

/// What the file shows is what a filter finds.
#[tokio::test]
async fn an_address_is_found_by_the_text_that_the_file_shows() {
    within(World::postgres().await, async |world| {
        world
            .run(
                "CREATE TABLE odd (id integer, ip inet); \
                 INSERT INTO odd VALUES (1, '10.0.0.1'), (2, '10.0.0.1/8'), (3, '::1'), (4, NULL)",
            )
            .await;
        let shown = ordered(selection(world.table("odd"), &[("ip", Text), ("id", Integer)]), "id");
        assert_eq!(read_first(world, &shown).await, ["10.0.0.1", "10.0.0.1/8", "::1", "∅"]);
        let text = |text: &str| Value::Text(text.into());
        for (test, expected) in [
            (Test::Equal(text("10.0.0.1")), vec!["1"]),
            (Test::Equal(text("10.0.0.1/32")), vec![]),
            (Test::In(vec![text("10.0.0.1/8"), text("::1")]), vec!["2", "3"]),
            (Test::Like { place: Place::End, text: ".1".into(), ignore_case: false }, vec!["1"]),
        ] {
            let told = format!("{test:?}");
            assert_eq!(found(world, "ip", Text, test, false).await, expected, "{told}");
        }
    })
    .await;
}

/// Who asks for an estimate does not wait long for it. Nothing may stay in the queue for the
/// table's lock.
#[tokio::test]
async fn an_estimate_that_nobody_waits_for_leaves_nothing_in_the_queue() {
    within(World::postgres().await, async |world| {
        world.run("CREATE TABLE odd (id integer)").await;
        let name = world.qualified("odd");
        let mut writer = postgres_client().await;
        run(&mut writer, &format!("BEGIN; LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")).await;
        let waiting = async || {
            let mut observer = postgres_client().await;
            sqlx::query(
                "SELECT count(*) FROM pg_locks WHERE relation = $1::regclass AND NOT granted",
            )
            .bind(&name)
            .fetch_one(&mut observer)
            .await
            .expect("the locks")
            .get::<i64, _>(0)
        };
        let wanted = selection(world.table("odd"), &[("id", Integer)]);
        let source = world.source();
        let asked = tokio::spawn(async move { source.estimate(&wanted).await.is_ok() });
        let limit = Duration::from_secs(20);
        until(limit, "the estimate waits", async || waiting().await > 0).await;
        asked.abort();
        until(limit, "nothing waits any more", async || waiting().await == 0).await;
        run(&mut writer, "ROLLBACK").await;
    })
    .await;
}
