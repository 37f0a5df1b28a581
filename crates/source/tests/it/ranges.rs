//! One table over several connections: nothing is lost, nothing comes twice, the order is the
//! table's, and what ends one connection ends them all.

use std::{sync::Arc, time::Duration};

use outport_domain::{
    column::ColumnType::{Integer, Text},
    failure::{Disposition, FailureCode},
    selection::{Predicate, Relation, Selection, Test, Value},
};
use outport_source::{Batch, Next, Source};
use rand::{Rng, SeedableRng};

use crate::world::{
    Rows, World, backends, ordered, postgres_client, postgres_source, postgres_url, read, rest,
    run, selection, until, within,
};

const ROWS: usize = 60_000;

/// What a canceled query may still take.
const SOON: Duration = Duration::from_secs(2);

fn over(connections: usize) -> Arc<dyn Source> {
    postgres_source(format!("{}&connections={connections}", postgres_url()))
}

/// A table that is worth cutting: rows of 400 bytes, some 25 MB.
async fn fill(world: &World, name: &str) {
    world
        .run(&format!(
            "CREATE TABLE {name} (id integer, pad text); \
             INSERT INTO {name} SELECT n, repeat('x', 380) FROM generate_series(1, {ROWS}) AS n"
        ))
        .await;
}

fn all_of(relation: Relation) -> Selection {
    selection(relation, &[("id", Integer), ("pad", Text)])
}

fn ids(rows: &Rows) -> Vec<u32> {
    rows.iter()
        .map(|row| {
            let cell = row[0].as_deref().expect("an id");
            str::from_utf8(cell).expect("digits").parse().expect("a number")
        })
        .collect()
}

/// Fails unless so many connections read a selection.
async fn is_read_over(
    world: &World,
    source: &Arc<dyn Source>,
    wanted: &Selection,
    expected: usize,
    what: &str,
) {
    let World::Postgres { schema } = world else { unreachable!() };
    let mut stream = source.open(wanted).await.expect("a stream");
    let mut batch = Batch::new(2);
    assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
    // The others may be a moment behind the first.
    let marker = format!("COPY (%{schema}");
    until(SOON, what, async || backends(&marker).await.len() >= expected).await;
    assert_eq!(backends(&marker).await.len(), expected, "{what}");
    stream.cancel().await;
    until(SOON, "they are gone", async || backends(schema).await.is_empty()).await;
}

#[tokio::test]
async fn the_rows_and_their_order_are_those_of_one_connection() {
    within(World::postgres().await, async |world| {
        fill(world, "many").await;
        let wanted = all_of(world.table("many"));
        let alone = read(&over(1), &wanted).await.expect("rows");
        assert_eq!(ids(&alone), (1..=ROWS as u32).collect::<Vec<_>>());
        for connections in [2, 3, 4] {
            let what = format!("{connections} connections");
            is_read_over(world, &over(connections), &wanted, connections, &what).await;
            let rows = read(&over(connections), &wanted).await.expect("rows");
            assert!(rows == alone, "{connections} connections give other rows");
        }
    })
    .await;
}

#[tokio::test]
async fn what_the_statistics_say_about_the_size_does_not_matter() {
    within(World::postgres().await, async |world| {
        fill(world, "many").await;
        world.run("ANALYZE many").await;
        world
            .run(&format!(
                "INSERT INTO many SELECT n, repeat('y', 380) \
                 FROM generate_series({ROWS} + 1, 2 * {ROWS}) AS n"
            ))
            .await;
        world
            .run("UPDATE pg_class SET relpages = 1, reltuples = 10 WHERE oid = 'many'::regclass")
            .await;
        let wanted = all_of(world.table("many"));
        let rows = read(&over(3), &wanted).await.expect("rows");
        assert_eq!(ids(&rows), (1..=2 * ROWS as u32).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn what_is_written_while_several_read_is_not_seen() {
    within(World::postgres().await, async |world| {
        fill(world, "many").await;
        let wanted = all_of(world.table("many"));
        let stream = over(3).open(&wanted).await.expect("a stream");
        world
            .run("UPDATE many SET pad = 'new' WHERE id % 2 = 0; DELETE FROM many WHERE id % 3 = 0")
            .await;
        let rows = rest(stream).await.expect("rows");
        assert_eq!(ids(&rows), (1..=ROWS as u32).collect::<Vec<_>>());
        assert!(rows.iter().all(|row| row[1].as_ref().is_some_and(|pad| pad.len() == 380)));
    })
    .await;
}

#[tokio::test]
async fn a_child_that_the_table_gets_while_several_read_is_not_read() {
    within(World::postgres().await, async |world| {
        fill(world, "many").await;
        world.run("CREATE TABLE child AS SELECT * FROM many").await;
        let wanted = all_of(world.table("many"));
        let stream = over(2).open(&wanted).await.expect("a stream");
        // The most of it does not fit into what may wait for us to read.
        world.run("ALTER TABLE child INHERIT many").await;
        let rows = rest(stream).await.expect("rows");
        assert_eq!(ids(&rows), (1..=ROWS as u32).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn one_connection_reads_what_cannot_or_need_not_be_cut() {
    within(World::postgres().await, async |world| {
        fill(world, "many").await;
        world
            .run(
                "CREATE VIEW seen AS SELECT * FROM many; \
                 CREATE TABLE parted (id integer, pad text) PARTITION BY RANGE (id); \
                 CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (1000000); \
                 INSERT INTO parted SELECT * FROM many; \
                 CREATE TABLE parent (id integer, pad text); \
                 INSERT INTO parent SELECT * FROM many; \
                 CREATE TABLE child () INHERITS (parent); \
                 INSERT INTO child VALUES (1, 'of the child'); \
                 CREATE TABLE few AS SELECT * FROM many LIMIT 30000; \
                 CREATE TABLE indexed AS SELECT * FROM many; \
                 CREATE INDEX ON indexed (id); ANALYZE indexed",
            )
            .await;
        let source = over(3);
        for name in ["seen", "parted", "parent", "few"] {
            let wanted = all_of(world.table(name));
            is_read_over(world, &source, &wanted, 1, name).await;
            let rows = read(&source, &wanted).await.expect("rows").len();
            let expected = match name {
                "few" => 30_000,
                "parent" => ROWS + 1,
                _ => ROWS,
            };
            assert_eq!(rows, expected, "{name}");
        }
        let wanted = ordered(all_of(world.table("many")), "id");
        is_read_over(world, &source, &wanted, 1, "ordered").await;
        let of_a_query = Relation::Query(format!("SELECT * FROM {}", world.qualified("many")));
        is_read_over(world, &source, &all_of(of_a_query), 1, "a query").await;
        // A few rows out of many: an index finds them.
        let mut by_index = all_of(world.table("indexed"));
        by_index.predicate = Predicate::Column {
            column: crate::world::column("id", Integer),
            test: Test::Equal(Value::Integer("7".into())),
            negated: false,
        };
        assert_eq!(ids(&read(&source, &by_index).await.expect("rows")), [7]);
    })
    .await;
}

#[tokio::test]
async fn a_filter_applies_in_every_range() {
    within(World::postgres().await, async |world| {
        fill(world, "many").await;
        let mut wanted = all_of(world.table("many"));
        wanted.predicate = Predicate::Any(
            ["7", "30000", "60000"]
                .map(|id| Predicate::Column {
                    column: crate::world::column("id", Integer),
                    test: Test::Equal(Value::Integer(id.into())),
                    negated: false,
                })
                .to_vec(),
        );
        let mut found = ids(&read(&over(3), &wanted).await.expect("rows"));
        // Within a range the plan decides on the order, and nobody asked for one.
        found.sort_unstable();
        assert_eq!(found, [7, 30_000, 60_000]);
    })
    .await;
}

#[tokio::test]
async fn a_truncate_waits_for_all_of_them() {
    within(World::postgres().await, async |world| {
        fill(world, "many").await;
        let stream = over(3).open(&all_of(world.table("many"))).await.expect("a stream");
        let mut client = postgres_client().await;
        let truncate = tokio::spawn({
            let sql = format!("TRUNCATE {}", world.qualified("many"));
            async move { run(&mut client, &sql).await }
        });
        assert_eq!(rest(stream).await.expect("all rows").len(), ROWS);
        truncate.await.expect("the truncate, once the stream has ended");
    })
    .await;
}

#[tokio::test]
async fn a_truncate_at_any_moment_loses_no_rows_and_blocks_nobody() {
    within(World::postgres().await, async |world| {
        fill(world, "many").await;
        let wanted = all_of(world.table("many"));
        let mut random = rand::rngs::StdRng::seed_from_u64(11);
        for _ in 0..20 {
            // Rolled back, so that the next round finds the rows again. It comes while the
            // connections are being opened, or a little before or after.
            let pause = Duration::from_micros(random.random_range(0..30_000));
            let truncate = tokio::spawn({
                let sql = format!("BEGIN; TRUNCATE {}; ROLLBACK", world.qualified("many"));
                let mut client = postgres_client().await;
                async move {
                    tokio::time::sleep(pause).await;
                    run(&mut client, &sql).await;
                }
            });
            let source = over(3);
            let reading = tokio::time::timeout(Duration::from_secs(20), read(&source, &wanted));
            let rows = reading.await.expect("nobody waits for ever").expect("rows");
            assert_eq!(rows.len(), ROWS, "after {pause:?}");
            truncate.await.expect("the truncate");
        }
    })
    .await;
}

#[tokio::test]
async fn a_cancel_or_drop_ends_all_of_them() {
    within(World::postgres().await, async |world| {
        let World::Postgres { schema } = world else { unreachable!() };
        fill(world, "many").await;
        let wanted = all_of(world.table("many"));
        for cancel in [true, false] {
            let mut stream = over(3).open(&wanted).await.expect("a stream");
            let mut batch = Batch::new(2);
            assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
            until(SOON, "all read", async || backends(schema).await.len() == 3).await;
            if cancel {
                stream.cancel().await;
            } else {
                drop(stream);
            }
            until(SOON, "all are gone", async || backends(schema).await.is_empty()).await;
        }
    })
    .await;
}

#[tokio::test]
async fn any_one_of_them_that_is_killed_is_an_error_and_never_an_end() {
    within(World::postgres().await, async |world| {
        let World::Postgres { schema } = world else { unreachable!() };
        fill(world, "many").await;
        world.run("INSERT INTO many SELECT * FROM many; INSERT INTO many SELECT * FROM many").await;
        let wanted = all_of(world.table("many"));
        for victim in 0..3 {
            let mut stream = over(3).open(&wanted).await.expect("a stream");
            let mut batch = Batch::new(2);
            assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
            until(SOON, "all read", async || backends(schema).await.len() == 3).await;
            let mut pids = backends(schema).await;
            pids.sort_unstable();
            sqlx::query("SELECT pg_terminate_backend($1)")
                .bind(pids[victim])
                .execute(&mut postgres_client().await)
                .await
                .expect("the kill");
            let Err(error) = rest(stream).await else { panic!("an end without the {victim}th") };
            assert_eq!(
                (error.code, error.disposition),
                (FailureCode::SourceTruncated, Disposition::Retry)
            );
            until(SOON, "the others are gone", async || backends(schema).await.is_empty()).await;
        }
    })
    .await;
}
