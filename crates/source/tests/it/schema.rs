//! What a database says of its tables, and that what it says holds when rows are read.

use outport_domain::{
    column::{
        ColumnType::{self, *},
        Digits,
    },
    failure::FailureCode,
    selection::{Predicate, Relation, Test, Value},
};
use outport_source::{
    SourceConfig, connect,
    schema::{Description, RealColumn, Schema, schema},
};
use std::{sync::Arc, time::Duration};

use crate::world::{
    World, column, is_mysql, mariadb_url, on_every_engine, postgres_url, read, selection, within,
};

fn config(world: &World) -> SourceConfig {
    let connect_timeout = Duration::from_secs(10);
    match world {
        World::Postgres { .. } => SourceConfig::Postgres { url: postgres_url(), connect_timeout },
        World::MariaDb { .. } => SourceConfig::MySql { url: mariadb_url(), connect_timeout },
        World::Sqlite { .. } => SourceConfig::Sqlite { path: world.path() },
    }
}

fn schema_of(world: &World) -> Arc<dyn Schema> {
    schema(&config(world))
}

async fn described(world: &World, relation: &Relation) -> Description {
    let described = schema_of(world).describe(relation).await.expect("an answer");
    described.unwrap_or_else(|| panic!("there is no {relation:?}"))
}

fn names(columns: &[RealColumn]) -> Vec<&str> {
    columns.iter().map(|column| column.name.as_str()).collect()
}

/// Name, best type, whether it may be NULL.
fn outline(described: &Description) -> Vec<(&str, ColumnType, bool)> {
    let columns = described.columns.iter();
    columns.map(|column| (column.name.as_str(), column.best(), column.nullable)).collect()
}

#[tokio::test]
async fn a_table_is_told_by_its_columns_keys_and_indexes() {
    on_every_engine(async |world| {
        world
            .run(
                "CREATE TABLE orders (organization_id char(36) NOT NULL, id integer NOT NULL, \
                   code varchar(20), amount decimal(12,2), PRIMARY KEY (organization_id, id)); \
                 CREATE INDEX by_code ON orders (code, id); \
                 CREATE VIEW recent AS SELECT code, amount FROM orders",
            )
            .await;
        let orders = described(world, &world.table("orders")).await;
        let expected = [
            ("organization_id", Text, false),
            ("id", Integer, false),
            ("code", Text, true),
            ("amount", Decimal, true),
        ];
        assert_eq!(outline(&orders), expected);
        assert_eq!(orders.primary_key, ["organization_id", "id"]);
        let mut indexes = orders.indexes.expect("a table");
        indexes.sort();
        assert_eq!(indexes, [["code", "id"], ["organization_id", "id"]]);

        let recent = described(world, &world.table("recent")).await;
        assert_eq!(outline(&recent), [("code", Text, true), ("amount", Decimal, true)]);
        assert_eq!((recent.primary_key.len(), recent.indexes), (0, None));

        let sql = format!("SELECT id + 1 AS next, code FROM {} -- all", world.qualified("orders"));
        let query = described(world, &Relation::Query(sql)).await;
        assert_eq!(names(&query.columns), ["next", "code"]);
        assert_eq!((query.primary_key.len(), query.indexes), (0, None));
    })
    .await;
}

#[tokio::test]
async fn what_is_not_there_is_none_and_what_is_there_is_listed() {
    on_every_engine(async |world| {
        world.run("CREATE TABLE kept (id integer); CREATE VIEW seen AS SELECT id FROM kept").await;
        let schema = schema_of(world);
        let elsewhere = Relation::Table(vec!["no such schema".to_owned(), "kept".to_owned()]);
        for relation in [world.table("no such table"), world.table("kept\""), elsewhere] {
            let found = schema.describe(&relation).await.expect("an answer");
            assert_eq!(found, None, "{relation:?}");
        }
        let error = schema.describe(&Relation::Query("SELECT nothing FROM".to_owned())).await;
        let error = error.expect_err("the query is refused");
        assert_ne!(error.code, FailureCode::SourceUnreachable, "{error:?}");

        let Relation::Table(parts) = world.table("kept") else { panic!("a table") };
        let owner = if parts.len() == 2 { parts[0].as_str() } else { "main" };
        let tables = schema.tables().await.expect("tables");
        let own: Vec<&str> = tables
            .iter()
            .filter(|table| table.schema == owner)
            .map(|table| table.name.as_str())
            .collect();
        assert_eq!(own, ["kept", "seen"]);
    })
    .await;
}

#[tokio::test]
async fn names_of_every_kind_are_found_and_written_as_sql() {
    on_every_engine(async |world| {
        let long = "l".repeat(60);
        let table_names = ["Order \"x\"", "select", "größe.übrig", "back`tick", &long];
        for name in table_names {
            let quoted = name.replace('"', "\"\"");
            let create =
                format!("CREATE TABLE \"{quoted}\" (\"Größe \"\"(m²)\" integer, \"{long}\" text)");
            world.run(&create).await;
            let table = described(world, &world.table(name)).await;
            assert_eq!(names(&table.columns), ["Größe \"(m²)", &long], "{name}");
            // The SQL name stands for the same table.
            let query = Relation::Query(format!("SELECT * FROM {}", table.sql));
            assert_eq!(names(&described(world, &query).await.columns), names(&table.columns));
        }
    })
    .await;
}

/// A value of a type, as a filter would give it.
fn sample(column_type: ColumnType) -> Option<Value> {
    Some(match column_type {
        Text => Value::Text("1".into()),
        Integer | Decimal | Float => Value::Integer("1".into()),
        Boolean => Value::Boolean(true),
        Date => Value::Date("2026-07-01".parse().expect("a day")),
        LocalTimestamp => Value::LocalTimestamp("2026-07-01T00:00:00".parse().expect("a time")),
        Timestamp => Value::Timestamp("2026-07-01T00:00:00Z".parse().expect("an instant")),
        Time => Value::Time("12:00:00".parse().expect("a time")),
        Uuid => Value::Uuid(uuid::Uuid::from_u128(7)),
        Json | Binary => return None,
    })
}

/// Everything that a column suits can be read and filtered so.
async fn suits_hold(world: &World, name: &str, described: &Description) {
    let source = connect(&config(world));
    for real in &described.columns {
        for declared in &real.suits {
            let mut wanted = selection(world.table(name), &[(&real.name, *declared)]);
            let column = column(&real.name, *declared);
            if let Some(value) = sample(*declared) {
                wanted.predicate =
                    Predicate::Column { column, test: Test::Equal(value), negated: true };
            }
            let rows = read(&source, &wanted).await;
            let rows = rows.unwrap_or_else(|error| panic!("{real:?} as {declared:?}: {error:?}"));
            assert_eq!(rows.len(), 1, "{real:?} as {declared:?}: the row of NULLs");
        }
    }
}

/// Columns as `name type`, what suits them best beside them.
async fn best_types(world: &World, cases: &[(&str, &str, ColumnType)]) {
    let columns: Vec<String> =
        cases.iter().map(|(name, real, _)| format!("\"{name}\" {real}")).collect();
    world.run(&format!("CREATE TABLE typed ({})", columns.join(", "))).await;
    world.run(&format!("INSERT INTO typed (\"{}\") VALUES (NULL)", cases[0].0)).await;
    let table = described(world, &world.table("typed")).await;
    for ((name, real, expected), column) in cases.iter().zip(&table.columns) {
        assert_eq!((column.name.as_str(), column.best()), (*name, *expected), "{real}: {column:?}");
        assert!(!column.type_name.is_empty(), "{real}: {column:?}");
    }
    assert_eq!(table.columns.len(), cases.len());
    suits_hold(world, "typed", &table).await;
}

fn digits(described: &Description, name: &str) -> Option<(u8, u8)> {
    let column = described.column(name).expect("the column");
    column.digits.map(|Digits { precision, scale }| (precision, scale))
}

#[tokio::test]
async fn postgres_types_are_seen_through_domains() {
    within(World::postgres().await, async |world| {
        world
            .run(
                "CREATE TYPE mood AS ENUM ('sad', 'a ''b'''); CREATE TYPE pair AS (a int, b text); \
                 CREATE DOMAIN money2 AS numeric(12,2); CREATE DOMAIN price AS money2 CHECK (VALUE > 0); \
                 CREATE DOMAIN sure AS text NOT NULL",
            )
            .await;
        let cases = [
            ("i2", "smallint", Integer),
            ("i8", "bigint", Integer),
            ("n", "numeric", Decimal),
            ("n2", "numeric(10,4)", Decimal),
            ("n3", "numeric(50,2)", Decimal),
            ("price", "price", Decimal),
            ("f4", "real", Float),
            ("f8", "double precision", Float),
            ("m", "money", Decimal),
            ("b", "boolean", Boolean),
            ("d", "date", Date),
            ("ts", "timestamp(3)", LocalTimestamp),
            ("tz", "timestamptz", Timestamp),
            ("t", "time", Time),
            ("ttz", "timetz", Time),
            ("u", "uuid", Uuid),
            ("c", "char(3)", Text),
            ("v", "varchar(20)", Text),
            ("e", "mood", Text),
            ("a", "integer[]", Json),
            ("p", "pair", Json),
            ("j", "json", Json),
            ("jb", "jsonb", Json),
            ("by", "bytea", Binary),
            ("iv", "interval", Text),
            ("ip", "inet", Text),
            ("r", "int4range", Text),
            ("x", "xml", Text),
            ("bits", "bit(3)", Text),
            ("pt", "point", Text),
            ("oid", "oid", Text),
        ];
        best_types(world, &cases).await;
        let typed = described(world, &world.table("typed")).await;
        assert_eq!(digits(&typed, "n2"), Some((10, 4)));
        assert_eq!(digits(&typed, "price"), Some((12, 2)), "a domain over a domain");
        assert_eq!((digits(&typed, "n"), digits(&typed, "n3")), (None, None));
        let shown = |name| typed.column(name).expect("the column").type_name.as_str();
        assert_eq!(shown("n2"), "numeric(10,4)");
        assert!(shown("price").ends_with("price (numeric(12,2))"), "{}", shown("price"));
        world.run("CREATE TABLE sure_of (s sure, t text)").await;
        let sure = described(world, &world.table("sure_of")).await;
        assert_eq!(outline(&sure), [("s", Text, false), ("t", Text, true)]);
    })
    .await;
}

#[tokio::test]
async fn postgres_relations_of_every_kind_are_described() {
    within(World::postgres().await, async |world| {
        world
            .run(
                "CREATE TABLE parted (id int, at date NOT NULL, PRIMARY KEY (id, at)) \
                   PARTITION BY RANGE (at); \
                 CREATE TABLE parted_2026 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2027-01-01'); \
                 CREATE MATERIALIZED VIEW kept AS SELECT id FROM parted; CREATE INDEX ON kept (id); \
                 CREATE TABLE plain (id int, a int, b text); ALTER TABLE plain DROP COLUMN a; \
                 CREATE INDEX ON plain (lower(b), id); CREATE INDEX ON plain USING gin (to_tsvector('simple', b)); \
                 CREATE SEQUENCE counted",
            )
            .await;
        let parted = described(world, &world.table("parted")).await;
        assert_eq!(parted.primary_key, ["id", "at"]);
        let kept = described(world, &world.table("kept")).await;
        assert_eq!(kept.indexes, Some(vec![vec!["id".to_owned()]]));
        let plain = described(world, &world.table("plain")).await;
        assert_eq!(names(&plain.columns), ["id", "b"], "what was dropped is gone");
        assert_eq!(plain.indexes, Some(vec![Vec::new()]), "an expression has no name");
        let counted = schema_of(world).describe(&world.table("counted")).await;
        assert_eq!(counted.expect("an answer"), None, "a sequence is no table");
        let tables = schema_of(world).tables().await.expect("tables");
        assert!(!tables.iter().any(|table| table.name == "parted_2026"), "a part is no table");
    })
    .await;
}

#[tokio::test]
async fn mariadb_types_are_told_from_their_aliases() {
    within(World::mariadb().await, async |world| {
        let mut cases = vec![
            ("i", "int", Integer),
            ("i8", "bigint", Integer),
            ("u8", "bigint unsigned", Decimal),
            ("z8", "bigint zerofill", Decimal),
            ("bit64", "bit(64)", Decimal),
            ("flag", "boolean", Boolean),
            ("tiny", "tinyint", Integer),
            ("bit1", "bit", Boolean),
            ("bit9", "bit(9)", Integer),
            ("y", "year", Integer),
            ("d", "decimal(20,6)", Decimal),
            ("d65", "decimal(60,6)", Decimal),
            ("f", "float", Float),
            ("dd", "double", Float),
            ("day", "date", Date),
            ("local", "datetime(6)", LocalTimestamp),
            ("at", "timestamp(6) NULL", Timestamp),
            ("t", "time", Time),
            ("v", "varchar(20) CHARACTER SET latin1", Text),
            ("bin", "text COLLATE utf8mb4_bin", Text),
            ("e", "enum('a''b', 'c')", Text),
            ("s", "set('a', 'b')", Text),
            ("j", "json", Json),
            ("b16", "binary(16)", Binary),
            ("blob", "longblob", Binary),
            ("p", "point", Binary),
        ];
        let json = if is_mysql().await {
            "json"
        } else {
            cases.extend([("u", "uuid", Uuid), ("ip", "inet6", Text)]);
            "longtext (json)"
        };
        best_types(world, &cases).await;
        let typed = described(world, &world.table("typed")).await;
        assert_eq!((digits(&typed, "d"), digits(&typed, "d65")), (Some((20, 6)), None));
        for wide in ["u8", "z8", "bit64"] {
            assert_eq!(digits(&typed, wide), Some((20, 0)), "{wide}");
        }
        assert_eq!(digits(&typed, "i"), None, "only a decimal has digits");
        assert_eq!(typed.column("J").expect("the column").type_name, json);
    })
    .await;
}

#[tokio::test]
async fn what_mysql_hides_or_sqlx_cannot_read_is_not_described() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE t (id integer, hidden integer INVISIBLE, \
                                 v /*!90000 vector(3) */ /*M! binary(12) */); \
                 INSERT INTO t (id) VALUES (1)",
            )
            .await;
        let table = described(world, &world.table("t")).await;
        let wanted = selection(world.table("t"), &[("id", Integer), ("v", Binary)]);
        let rows = read(&world.source(), &wanted).await;
        if is_mysql().await {
            assert_eq!(names(&table.columns), ["id"]);
            let error = rows.expect_err("a type that sqlx does not know");
            assert_eq!(error.code, FailureCode::SchemaMismatch, "{error:?}");
            assert!(error.message.contains("VECTOR"), "{error}");
        } else {
            assert_eq!(names(&table.columns), ["id", "v"]);
            assert_eq!(rows.expect("rows").len(), 1);
        }
        let wanted = selection(world.table("t"), &[("id", Integer)]);
        assert_eq!(read(&world.source(), &wanted).await.expect("rows").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn sqlite_types_are_what_they_are_declared_as() {
    within(World::sqlite(), async |world| {
        let cases = [
            ("i", "INTEGER", Integer),
            ("d", "DECIMAL(10,2)", Decimal),
            ("f", "REAL", Float),
            ("b", "BOOLEAN", Boolean),
            ("t", "TEXT", Text),
            ("at", "DATETIME", Timestamp),
            ("day", "DATE", Date),
            ("u", "UUID", Uuid),
            ("j", "JSON", Json),
            ("bytes", "BLOB", Binary),
            ("odd", "WHATEVER", Text),
        ];
        best_types(world, &cases).await;
        let typed = described(world, &world.table("typed")).await;
        assert_eq!(digits(&typed, "d"), None, "nothing holds values to them");
        assert!(typed.is_loosely_typed && typed.column("BYTES").is_some());
    })
    .await;
}

#[tokio::test]
async fn sqlite_keys_that_are_the_row_itself_are_never_null() {
    within(World::sqlite(), async |world| {
        world
            .run(
                "CREATE TABLE own (id INTEGER PRIMARY KEY, a TEXT, b AS (a || 'x')); \
                 CREATE TABLE odd (id TEXT PRIMARY KEY); \
                 CREATE INDEX by_expression ON own (upper(a), id); \
                 CREATE VIRTUAL TABLE words USING fts5(body)",
            )
            .await;
        let own = described(world, &world.table("own")).await;
        assert_eq!(outline(&own), [("id", Integer, false), ("a", Text, true), ("b", Text, true)]);
        let indexes = own.indexes.expect("a table");
        assert_eq!(indexes, [Vec::<String>::new(), vec!["id".to_owned()]]);
        let odd = described(world, &Relation::Table(vec!["MAIN".into(), "odd".into()])).await;
        assert_eq!(outline(&odd), [("id", Text, true)], "SQLite lets it be NULL");
        let words = described(world, &world.table("words")).await;
        assert_eq!(names(&words.columns), ["body"], "hidden columns are not exported");
    })
    .await;
}
