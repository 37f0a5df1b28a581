//! Tests of what is locked, and of what a transaction sees that waited for a lock.

use std::time::Duration;

use outport_domain::{
    column::ColumnType,
    failure::{Disposition, FailureCode},
    selection::{Predicate, Relation, Selection},
};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{
    plans::{begin, column, connected, run, server},
    relation,
    session::{self, Pins},
};
use crate::SourceError;

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
            begin(&mut connection, &[&table]).await;
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

/// A connection that has looked, and what it saw.
struct Look {
    connection: PgConnection,
    pins: Pins,
    selection: Selection,
    seen: [super::Compiled; 1],
    tables: relation::Tables,
}

impl Look {
    async fn at(relation: Relation) -> Self {
        let selection = Selection {
            relation,
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
        let tables = relation::looked_at(&mut connection).await.expect("tables");
        Self { connection, pins, selection, seen, tables }
    }

    /// Nothing more is read in the end.
    async fn read(mut self) -> Result<(), SourceError> {
        let Self { connection, pins, selection, seen, tables } = &mut self;
        super::begin_to_read(connection, pins, &[selection], seen, tables, &[]).await.map(|_| ())
    }
}

/// Schemas, each with the tables of one test.
async fn schema(writer: &mut PgConnection, tables: &str) -> String {
    let schema = format!("outport_plans_{}", uuid::Uuid::new_v4().simple());
    run(writer, &format!("CREATE SCHEMA {schema}; SET search_path TO {schema}; {tables}")).await;
    schema
}

fn is_retried(read: Result<(), SourceError>, told: &str) {
    let error = read.expect_err(told);
    assert_eq!(error.code, FailureCode::SchemaMismatch, "{told}: {error}");
    assert_eq!(error.disposition, Disposition::Retry, "{told}: {error}");
}

/// Who alters a table and waits for the look at the catalogue comes in as that ends, before the
/// table is locked for reading: the bytes of an integer would be read as what they no longer are,
/// and a table that is no more would be read as empty.
#[tokio::test]
async fn a_table_that_is_altered_in_between_is_not_read() {
    let tables = "CREATE TABLE plain AS SELECT 1::bigint AS id; \
         CREATE TABLE parent (id bigint); CREATE TABLE child () INHERITS (parent); \
         CREATE TABLE other () INHERITS (parent)";
    for (relation, waits, alter) in [
        ("plain", "plain", "ALTER TABLE plain ALTER id TYPE double precision"),
        (
            "parent",
            "child",
            "BEGIN; CREATE TABLE new (LIKE child); DROP TABLE child; \
             ALTER TABLE new RENAME TO child; ALTER TABLE child INHERIT parent; COMMIT",
        ),
        ("parent", "other", "DROP TABLE other"),
    ] {
        let mut writer = connected().await;
        let schema = schema(&mut writer, tables).await;
        for relation in [
            Relation::Table(vec![schema.clone(), relation.to_owned()]),
            Relation::Query(format!("SELECT id FROM {schema}.{relation}")),
        ] {
            let told = format!("{alter}: {relation:?}");
            let look = Look::at(relation).await;
            let altered = tokio::spawn(async move {
                run(&mut writer, alter).await;
                writer
            });
            until_somebody_waits_for(&format!("{schema}.{waits}")).await;
            is_retried(look.read().await, &told);
            writer = altered.await.expect("the ALTER");
            run(&mut writer, &format!("DROP SCHEMA {schema} CASCADE; CREATE SCHEMA {schema}"))
                .await;
            run(&mut writer, tables).await;
        }
        run(&mut writer, &format!("DROP SCHEMA {schema} CASCADE")).await;
    }
}

/// What cannot be locked by its name is locked by planning alone, after the snapshot was taken.
#[tokio::test]
async fn a_materialized_view_that_is_written_anew_after_the_snapshot_is_not_read() {
    let mut writer = connected().await;
    let tables = "CREATE TABLE base AS SELECT 1::bigint AS id; \
         CREATE MATERIALIZED VIEW kept AS SELECT id FROM base; \
         CREATE VIEW seen AS SELECT id FROM kept";
    let schema = schema(&mut writer, tables).await;
    let named = |name: &str| Relation::Table(vec![schema.clone(), name.to_owned()]);
    let both = format!("SELECT base.id FROM {schema}.base, {schema}.kept");
    for relation in [named("kept"), named("seen"), Relation::Query(both)] {
        let told = format!("{relation:?}");
        let look = Look::at(relation).await;
        let refresh = "BEGIN; UPDATE base SET id = id + 1; REFRESH MATERIALIZED VIEW kept";
        let refreshed = tokio::spawn(async move {
            run(&mut writer, refresh).await;
            writer
        });
        let kept = format!("{schema}.kept");
        until_somebody_waits_for(&kept).await;
        // The snapshot is taken before the commit, and planning waits for it.
        let reader = tokio::spawn(look.read());
        writer = refreshed.await.expect("the REFRESH");
        until_somebody_waits_for(&kept).await;
        run(&mut writer, "COMMIT").await;
        is_retried(reader.await.expect("a reader"), &told);
    }
    let look = Look::at(named("kept")).await;
    look.read().await.expect("what nobody refreshes is read");
    run(&mut writer, &format!("DROP SCHEMA {schema} CASCADE")).await;
}

/// A partition at the first and one at the second level of a tree. The first is a table that is
/// older than the tree.
async fn tree(writer: &mut PgConnection) -> String {
    let tree = format!("outport_tree_{}", uuid::Uuid::new_v4().simple());
    let made = format!(
        "CREATE TABLE {tree}_low (id bigint); \
         CREATE TABLE {tree} (id bigint) PARTITION BY RANGE (id); \
         CREATE TABLE {tree}_mid PARTITION OF {tree} FOR VALUES FROM (10) TO (30) \
             PARTITION BY RANGE (id); \
         CREATE TABLE {tree}_high PARTITION OF {tree}_mid FOR VALUES FROM (10) TO (20); \
         ALTER TABLE {tree} ATTACH PARTITION {tree}_low FOR VALUES FROM (0) TO (10); \
         CREATE VIEW {tree}_seen AS SELECT id FROM {tree} WHERE id < 10"
    );
    run(writer, &made).await;
    tree
}

#[tokio::test]
async fn partitions_are_locked_after_those_parents_that_reading_locks() {
    let mut writer = connected().await;
    let tree = tree(&mut writer).await;
    let (root, mid) = (format!("ONLY public.{tree}"), format!("ONLY public.{tree}_mid"));
    let low = format!("public.{tree}_low");
    let high = format!("public.{tree}_high");
    let seen = format!("public.{tree}_seen");
    for (sql, expected) in [
        (format!("SELECT id FROM {tree}_high"), vec![&high]),
        // What a view says of a table must be of the same moment too.
        (format!("SELECT id FROM {tree}_seen"), vec![&root, &seen, &low]),
        // The planner asks the parent of a partitioned table what it may hold.
        (format!("SELECT id FROM {tree}_mid"), vec![&root, &mid, &high]),
        (format!("SELECT id FROM {tree} WHERE id < 10"), vec![&root, &low]),
        (format!("SELECT id FROM {tree}"), vec![&root, &low, &mid, &high]),
    ] {
        // One connection after the other: a lock that is held would count for the next.
        let look = Look::at(Relation::Query(sql.clone())).await;
        assert_eq!(look.tables.to_lock(), expected, "{sql}");
        look.read().await.expect("nothing was altered");
    }
    run(&mut writer, &format!("DROP TABLE {tree} CASCADE")).await;
}

/// What DETACH PARTITION and DROP TABLE do, lock by lock.
#[tokio::test]
async fn who_has_a_partitioned_table_and_wants_a_partition_gets_it() {
    let mut writer = connected().await;
    let tree = tree(&mut writer).await;
    let look = Look::at(Relation::Query(format!("SELECT id FROM {tree}"))).await;
    let parent = format!("BEGIN; LOCK TABLE ONLY {tree} IN ACCESS EXCLUSIVE MODE");
    let locked = tokio::spawn(async move {
        run(&mut writer, &parent).await;
        writer
    });
    until_somebody_waits_for(&tree).await;
    let reader = tokio::spawn(look.read());
    let mut writer = locked.await.expect("the parent");
    until_somebody_waits_for(&tree).await;
    run(&mut writer, &format!("LOCK TABLE {tree}_low IN ACCESS EXCLUSIVE MODE; COMMIT")).await;
    reader.await.expect("a reader").expect("nothing was altered");
    run(&mut writer, &format!("DROP TABLE {tree} CASCADE")).await;
}
