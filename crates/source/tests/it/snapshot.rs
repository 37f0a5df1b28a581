//! All rows are of one moment.

use chrono::{TimeDelta, Utc};
use outport_domain::{
    column::ColumnType::{Integer, Text},
    selection::Relation,
};
use outport_source::{Batch, Next};

use crate::world::{
    World, numbers, on_every_engine, postgres_client, postgres_source, postgres_url, query,
    read_first, rest, run, selection, within,
};

/// Rows that do not fit into what lies between server and reader.
const MANY: usize = 60_000;

async fn fill(world: &World) {
    world.run(world.pick("SELECT 1", "SELECT 1", "PRAGMA journal_mode = WAL")).await;
    world.run("CREATE TABLE many (id integer, pad text)").await;
    let mariadb = format!("SELECT seq, repeat('x', 300) FROM {}", numbers(60_000));
    let series = world.pick(
        "SELECT n, repeat('x', 300) FROM generate_series(1, 60000) AS n",
        &mariadb,
        "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 60000) \
         SELECT n, printf('%.*c', 300, 'x') FROM s",
    );
    world.run(&format!("INSERT INTO many {series}")).await;
}

#[tokio::test]
async fn what_is_written_while_reading_is_not_seen() {
    on_every_engine(async |world| {
        fill(world).await;
        let wanted = selection(world.table("many"), &[("id", Integer), ("pad", Text)]);
        let mut stream = world.source().open(&wanted).await.expect("a stream");
        let age = Utc::now() - stream.snapshot_at();
        assert!(age < TimeDelta::seconds(30) && age > TimeDelta::seconds(-30), "{age}");
        // Nothing is read yet, and the snapshot holds already.
        world.run("DELETE FROM many WHERE id > 59000; INSERT INTO many VALUES (0, 'new')").await;
        let mut batch = Batch::new(2);
        assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
        let first = batch.rows();
        world.run("DELETE FROM many; INSERT INTO many VALUES (-1, 'newer')").await;
        let rows = rest(stream).await.expect("the rest");
        assert_eq!(first + rows.len(), MANY);
        assert_eq!(read_first(world, &wanted).await, ["-1"], "a new stream sees what is new");
    })
    .await;
}

#[tokio::test]
async fn a_truncate_waits_for_the_stream() {
    within(World::postgres().await, async |world| {
        fill(world).await;
        let table = world.qualified("many");
        let relations = [
            world.table("many"),
            Relation::Query(format!(
                "SELECT m.id, m.pad FROM {table} AS m JOIN (SELECT 1) AS one ON true"
            )),
        ];
        for relation in relations {
            let wanted = selection(relation, &[("id", Integer), ("pad", Text)]);
            let stream = world.source().open(&wanted).await.expect("a stream");
            let mut client = postgres_client().await;
            run(&mut client, "BEGIN").await;
            let truncate = tokio::spawn({
                let sql = format!("TRUNCATE {table}");
                async move {
                    run(&mut client, &sql).await;
                    run(&mut client, "ROLLBACK").await;
                }
            });
            assert_eq!(rest(stream).await.expect("all rows").len(), MANY);
            truncate.await.expect("the truncate, once the stream has ended");
        }
    })
    .await;
}

#[tokio::test]
async fn views_and_partitioned_tables_are_read_and_locked() {
    within(World::postgres().await, async |world| {
        world
            .run(
                "CREATE TABLE parted (id integer) PARTITION BY RANGE (id); \
                 CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10); \
                 CREATE TABLE high PARTITION OF parted FOR VALUES FROM (10) TO (20); \
                 INSERT INTO parted VALUES (1), (11); \
                 CREATE VIEW seen AS SELECT id FROM parted; \
                 CREATE MATERIALIZED VIEW kept AS SELECT id FROM parted",
            )
            .await;
        for relation in ["parted", "seen", "kept"] {
            let wanted = selection(world.table(relation), &[("id", Integer)]);
            let mut rows = read_first(world, &wanted).await;
            rows.sort();
            assert_eq!(rows, ["1", "11"], "{relation}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_truncate_behind_a_view_or_of_a_partition_waits_for_the_stream() {
    within(World::postgres().await, async |world| {
        let World::Postgres { schema } = world else { unreachable!() };
        world
            .run(&format!(
                "CREATE TABLE parted (id integer, pad text) PARTITION BY RANGE (id); \
                 CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (30000); \
                 CREATE TABLE high PARTITION OF parted FOR VALUES FROM (30000) TO (1000000); \
                 CREATE VIEW seen AS SELECT id, pad FROM parted; \
                 INSERT INTO parted SELECT n, repeat('x', 300) FROM generate_series(1, {MANY}) AS n"
            ))
            .await;
        for (relation, table) in [("parted", "low"), ("seen", "high"), ("seen", "parted")] {
            let wanted = selection(world.table(relation), &[("id", Integer), ("pad", Text)]);
            let stream = world.source().open(&wanted).await.expect("a stream");
            let mut client = postgres_client().await;
            run(&mut client, "SET lock_timeout = '50ms'").await;
            let truncate = sqlx::AssertSqlSafe(format!("TRUNCATE {schema}.{table}"));
            let refused = sqlx::raw_sql(truncate).execute(&mut client).await.expect_err("it waits");
            let code = refused.as_database_error().and_then(sqlx::error::DatabaseError::code);
            assert_eq!(code.as_deref(), Some("55P03"), "{relation} {table}: {refused}");
            assert_eq!(rest(stream).await.expect("all rows").len(), MANY, "{relation}");
        }
    })
    .await;
}

/// Rights on a partitioned table or a view are rights to read it, and none on what is behind it;
/// those on columns are none to lock their table, which reading does all the same.
#[tokio::test]
async fn who_has_no_rights_on_what_is_behind_reads_it_by_a_query_and_locks_it() {
    within(World::postgres().await, async |world| {
        let World::Postgres { schema } = world else { unreachable!() };
        let role = format!("{schema}_reader");
        let rows =
            format!("SELECT n AS id, repeat('x', 300) AS pad FROM generate_series(1, {MANY}) AS n");
        world
            .run(&format!(
                "CREATE TABLE parted (id integer, pad text) PARTITION BY RANGE (id); \
                 CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (30000); \
                 CREATE TABLE high PARTITION OF parted FOR VALUES FROM (30000) TO (1000000); \
                 INSERT INTO parted {rows}; \
                 CREATE TABLE hidden AS {rows}; \
                 CREATE VIEW seen AS SELECT id, pad FROM hidden; \
                 CREATE TABLE partly AS {rows}; ALTER TABLE partly ADD secret text; \
                 CREATE ROLE {role} LOGIN; \
                 GRANT USAGE ON SCHEMA {schema} TO {role}; \
                 GRANT SELECT ON parted, seen TO {role}; \
                 GRANT SELECT (id, pad) ON partly TO {role}"
            ))
            .await;
        let mut url = url::Url::parse(&postgres_url()).expect("a URL");
        url.set_username(&role).expect("a user");
        let source = postgres_source(url.into());
        let mut came = Vec::new();
        for (named, table) in [("parted", "low"), ("seen", "hidden"), ("partly", "partly")] {
            let columns = [("id", Integer), ("pad", Text)];
            for wanted in [
                query(format!("SELECT id, pad FROM {schema}.{named}"), &columns),
                selection(world.table(named), &columns),
            ] {
                let opened = source.open(&wanted).await;
                let mut client = postgres_client().await;
                run(&mut client, "SET lock_timeout = '50ms'; BEGIN").await;
                let truncate = sqlx::AssertSqlSafe(format!("TRUNCATE {schema}.{table}"));
                let truncated = sqlx::raw_sql(truncate).execute(&mut client).await;
                run(&mut client, "ROLLBACK").await;
                let rows = match opened {
                    Ok(stream) => rest(stream).await.map(|rows| rows.len()),
                    Err(error) => Err(error),
                };
                came.push((format!("{:?}", wanted.relation), rows, truncated));
            }
        }
        world.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
        for (relation, rows, truncated) in came {
            assert_eq!(rows.expect("all rows"), MANY, "{relation}");
            let refused = truncated.expect_err("it waits");
            let code = refused.as_database_error().and_then(sqlx::error::DatabaseError::code);
            assert_eq!(code.as_deref(), Some("55P03"), "{relation}: {refused}");
        }
    })
    .await;
}
