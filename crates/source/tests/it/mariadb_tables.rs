//! Tables without snapshots are refused, wherever a MariaDB or MySQL source reads them.

use outport_domain::{
    column::ColumnType::Integer,
    failure::{Disposition, FailureCode},
    selection::Relation,
};

use crate::{
    mariadb::refused,
    world::{World, is_mysql, ordered, read, read_first, selection, within},
};

/// Each of them is, and the table is named.
async fn are_refused(relations: impl IntoIterator<Item = (Relation, &str)>) {
    for (relation, name) in relations {
        let error = refused(&selection(relation, &[("id", Integer)])).await;
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::SchemaMismatch, Disposition::Abandon),
            "{error}"
        );
        assert!(error.message.contains(&format!("'{name}'")), "{error}");
        assert!(error.message.contains("as of one moment"), "{error}");
    }
}

#[tokio::test]
async fn tables_without_snapshots_are_refused_by_name_wherever_they_are() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE safe (id integer); INSERT INTO safe VALUES (1), (2); \
                 CREATE TABLE one_row (id integer) ENGINE = MyISAM; INSERT INTO one_row VALUES (1); \
                 CREATE TABLE loose (id integer) ENGINE = MyISAM; INSERT INTO loose VALUES (1), (2); \
                 CREATE VIEW safe_view AS SELECT id FROM safe; \
                 CREATE VIEW loose_view AS SELECT s.id FROM safe_view AS s JOIN loose AS l ON l.id = s.id; \
                 CREATE VIEW one_row_view AS SELECT s.id FROM safe AS s JOIN one_row AS o ON o.id = s.id; \
                 CREATE VIEW quoted AS SELECT l.id FROM loose AS l WHERE CONCAT(l.id) <> '`'; \
                 CREATE VIEW most AS SELECT max(o.id) AS id FROM one_row AS o",
            )
            .await;
        let sub = format!(
            "SELECT id FROM {} WHERE id IN (SELECT x.id FROM {} AS x)",
            world.qualified("safe"),
            world.qualified("loose")
        );
        let relations = [
            (world.table("loose"), "loose"),
            (world.table("one_row"), "one_row"),
            (world.table("loose_view"), "loose"),
            (world.table("one_row_view"), "one_row"),
            (world.table("quoted"), "loose"),
            // The server has read it before it tells.
            (world.table("most"), "one_row"),
            (Relation::Query(sub), "loose"),
        ];
        are_refused(relations).await;
        let wanted = ordered(selection(world.table("safe_view"), &[("id", Integer)]), "id");
        assert_eq!(read_first(world, &wanted).await, ["1", "2"]);
    })
    .await;
}

#[tokio::test]
async fn tables_without_snapshots_are_refused_behind_views_that_are_read_for_themselves() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE safe (id integer); INSERT INTO safe VALUES (1), (2); \
                 CREATE TABLE loose (id integer) ENGINE = MyISAM; INSERT INTO loose VALUES (1), (2); \
                 CREATE TABLE none (id integer) ENGINE = MyISAM; \
                 CREATE TABLE kept (id integer) ENGINE = MEMORY; INSERT INTO kept VALUES (1), (2); \
                 CREATE VIEW united AS SELECT id FROM safe UNION ALL SELECT id FROM loose; \
                 CREATE VIEW united_kept AS SELECT id FROM safe UNION ALL SELECT id FROM kept; \
                 CREATE VIEW united_none AS SELECT id FROM safe UNION ALL SELECT id FROM none; \
                 CREATE VIEW different AS SELECT DISTINCT id FROM loose; \
                 CREATE VIEW grouped AS SELECT id FROM loose GROUP BY id; \
                 CREATE ALGORITHM = TEMPTABLE VIEW copied AS SELECT id FROM loose; \
                 CREATE VIEW around AS SELECT s.id FROM safe AS s JOIN different AS d ON d.id = s.id; \
                 CREATE VIEW beside AS SELECT s.id FROM safe AS s \
                   WHERE s.id > 0 OR EXISTS (SELECT 1 FROM none); \
                 CREATE VIEW safe_twice AS SELECT DISTINCT s.id FROM safe AS s JOIN safe AS t ON s.id = t.id",
            )
            .await;
        let beside = format!(
            "SELECT s.id FROM {} AS s WHERE s.id > 0 OR EXISTS (SELECT 1 FROM {} AS n)",
            world.qualified("safe"),
            world.qualified("none")
        );
        let beside_view = format!("SELECT b.id FROM {} AS b", world.qualified("united_none"));
        are_refused([
            (world.table("united"), "loose"),
            (world.table("united_kept"), "kept"),
            (world.table("united_none"), "none"),
            (world.table("different"), "loose"),
            (world.table("grouped"), "loose"),
            (world.table("copied"), "loose"),
            (world.table("around"), "loose"),
            (world.table("beside"), "none"),
            (Relation::Query(beside), "none"),
            (Relation::Query(beside_view), "none"),
        ])
        .await;
        let wanted = ordered(selection(world.table("safe_twice"), &[("id", Integer)]), "id");
        assert_eq!(read_first(world, &wanted).await, ["1", "2"]);
    })
    .await;
}

#[tokio::test]
async fn tables_without_snapshots_are_refused_wherever_a_query_names_them() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE safe (id integer PRIMARY KEY, n integer); \
                 INSERT INTO safe VALUES (1, 1), (2, 2); \
                 CREATE TABLE loose (id integer PRIMARY KEY, n integer) ENGINE = MyISAM; \
                 INSERT INTO loose VALUES (1, 1), (2, 2); \
                 CREATE VIEW different AS SELECT DISTINCT id, n FROM loose; \
                 CREATE VIEW named AS WITH c AS (SELECT DISTINCT id, n FROM loose) \
                   SELECT s.id FROM safe AS s JOIN c ON c.id = s.id",
            )
            .await;
        let of = ["safe", "loose", "different", "named"];
        let [safe, loose, different, named] = of.map(|name| world.qualified(name));
        let refused = [
            format!("WITH c AS (SELECT DISTINCT id FROM {loose}) SELECT s.id FROM {safe} s JOIN c ON c.id = s.id"),
            format!("WITH RECURSIVE c AS (SELECT id FROM {loose} WHERE id = 1 UNION ALL SELECT c.id + 1 FROM c \
                     WHERE c.id < 1) SELECT s.id FROM {safe} s JOIN c ON c.id = s.id"),
            format!("SELECT id FROM (SELECT DISTINCT s.id FROM {safe} s JOIN \
                     (SELECT id FROM {loose} WHERE id = 1 LIMIT 1) c WHERE s.id = 1) d"),
            format!("SELECT * FROM {named}"),
            format!("SELECT max(id) AS id FROM {different} WHERE id = 1"),
            format!("SELECT id FROM {safe} WHERE EXISTS (SELECT 1 FROM {loose} WHERE id = 1)"),
            format!("SELECT id FROM (SELECT id FROM {safe} WHERE id = 1 AND n <> \
                     (SELECT z.n FROM {loose} z WHERE z.id = 2) LIMIT 5) d"),
            format!("WITH c AS (SELECT DISTINCT id, 100. FROM {loose}) SELECT s.id FROM {safe} s JOIN c ON c.id = s.id"),
            format!("WITH c AS (SELECT DISTINCT z.id FROM {safe} USE INDEX FOR ORDER BY (PRIMARY) \
                     JOIN {loose} z) SELECT s.id FROM {safe} s JOIN c ON c.id = s.id"),
            format!("WITH RECURSIVE c AS (SELECT id, n FROM {safe} UNION ALL SELECT id + 1, n FROM c WHERE id < 1) \
                     SELECT id FROM c WHERE (SELECT max(id)+1e0FROM {loose}) > 0"),
            // Only the server knows whether these comments are for it.
            format!("WITH c AS (SELECT DISTINCT z.id FROM {safe} /*!99999 WHERE */ JOIN {loose} z) \
                     SELECT s.id FROM {safe} s JOIN c ON c.id = s.id"),
            format!("WITH c AS (SELECT DISTINCT z.id FROM {safe} /*!99999 it's ` ( */ JOIN {loose} z) \
                     SELECT s.id FROM {safe} s JOIN c ON c.id = s.id"),
            // The server prints them so that they seem not to end.
            format!("SELECT id, _latin1 0x5c AS z FROM {loose}"),
            format!("SELECT id, CONVERT(_sjis 0x955c USING utf8mb4) AS z FROM {loose}"),
            format!("SELECT id FROM {safe} WHERE id IN (SELECT id + @a.union FROM {loose}) OR 1"),
        ];
        are_refused(refused.map(|query| (Relation::Query(query), "loose"))).await;
    })
    .await;
}

#[tokio::test]
async fn tables_without_snapshots_are_refused_though_their_names_begin_as_numbers_do() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE `5e8a9c_orders` (id integer) ENGINE = MyISAM; \
                 CREATE TABLE `1e0` (id integer) ENGINE = MyISAM; \
                 CREATE TABLE `5e8a9c_safe` (id integer); INSERT INTO `5e8a9c_safe` VALUES (7); \
                 CREATE TABLE a9c_safe (id integer) ENGINE = MyISAM",
            )
            .await;
        let [orders, number] = ["5e8a9c_orders", "1e0"].map(|name| world.qualified(name));
        are_refused([
            (world.table("5e8a9c_orders"), "5e8a9c_orders"),
            (Relation::Query(format!("SELECT id FROM {number}")), "1e0"),
            (
                Relation::Query(format!("SELECT 1 AS id WHERE 1 NOT IN (SELECT id FROM {orders})")),
                "5e8a9c_orders",
            ),
        ])
        .await;
        let wanted = selection(world.table("5e8a9c_safe"), &[("id", Integer)]);
        assert_eq!(read_first(world, &wanted).await, ["7"]);
    })
    .await;
}

#[tokio::test]
async fn what_locks_rows_and_so_reads_the_newest_is_refused() {
    within(World::mariadb().await, async |world| {
        let safe = world.qualified("safe");
        world
            .run(
                "CREATE TABLE safe (id integer); \
                 CREATE VIEW locking AS SELECT id FROM safe LOCK IN SHARE MODE",
            )
            .await;
        let derived = format!("SELECT x.id FROM (SELECT id FROM {safe} LOCK IN SHARE MODE) x");
        let in_brackets =
            format!("SELECT x.id FROM ((SELECT id FROM {safe}) LOCK IN SHARE MODE) x");
        for relation in
            [world.table("locking"), Relation::Query(derived), Relation::Query(in_brackets)]
        {
            let error = read(&world.source(), &selection(relation, &[("id", Integer)])).await;
            let error = error.expect_err("it locks rows");
            assert_eq!(error.code, FailureCode::SchemaMismatch, "{error}");
            assert!(error.message.contains("LOCK IN SHARE MODE"), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn sequences_and_the_servers_own_tables_are_refused() {
    within(World::mariadb().await, async |world| {
        let processes = "SELECT id FROM INFORMATION_schema.processlist".to_owned();
        let mut refused = vec![(processes, "PROCESSLIST")];
        if !is_mysql().await {
            world.run("CREATE SEQUENCE counted ENGINE = InnoDB").await;
            let counted = world.qualified("counted");
            let counted = format!("SELECT next_not_cached_value AS id FROM {counted}");
            refused.push((counted, "counted"));
        }
        are_refused(refused.into_iter().map(|(query, name)| (Relation::Query(query), name))).await;
    })
    .await;
}

#[tokio::test]
async fn what_is_only_called_like_a_table_without_snapshots_is_read() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE safe (id integer); INSERT INTO safe VALUES (1); \
                 CREATE TABLE r (id integer) ENGINE = MEMORY; \
                 CREATE TABLE m (id integer) ENGINE = MyISAM; INSERT INTO m VALUES (1); \
                 CREATE TABLE note (id integer) ENGINE = MyISAM; CREATE TABLE SAFE (id integer) ENGINE = MyISAM; \
                 CREATE TABLE id (id integer) ENGINE = MyISAM; \
                 CREATE TABLE `dual` (id integer) ENGINE = MyISAM; ALTER TABLE safe ADD INDEX m (id); \
                 CREATE VIEW called AS SELECT m.id FROM safe AS m WHERE m.id > 0",
            )
            .await;
        let safe = world.qualified("safe");
        let World::MariaDb { database: schema } = world else { unreachable!() };
        for relation in [
            world.table("safe"),
            world.table("called"),
            Relation::Query(format!("SELECT m.id FROM {safe} m, {safe} note WHERE m.id = note.id")),
            Relation::Query(format!("WITH m AS (SELECT * FROM {safe}) SELECT id FROM m UNION SELECT 1")),
            Relation::Query(format!("SELECT id, (SELECT max(id) FROM {safe}) AS note FROM {safe}")),
            Relation::Query(format!("SELECT {schema}.id FROM (SELECT DISTINCT id FROM {safe}) {schema}")),
            Relation::Query(format!("SELECT id, max(id) OVER r AS n FROM {safe} WINDOW r AS (ORDER BY id), m AS (ORDER BY id)")),
            Relation::Query(format!("SELECT id FROM {safe} FORCE INDEX FOR JOIN (m)")),
            Relation::Query(format!("SELECT id FROM {safe} /*!99999 , m */")),
        ] {
            let wanted = selection(relation, &[("id", Integer)]);
            assert_eq!(read_first(world, &wanted).await, ["1"], "{:?}", wanted.relation);
        }
    })
    .await;
}
