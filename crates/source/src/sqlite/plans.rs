//! Tests of which indexes SQLite uses for our statements.

use outport_domain::{
    column::ColumnType,
    selection::{Bound, ColumnRef, Predicate, Relation, Selection, Test, Value},
};
use rusqlite::{Connection, params_from_iter};

use super::{functions, reader};
use crate::compile::{self, sqlite::Sqlite};

#[test]
fn ordinary_filters_use_ordinary_indexes() {
    use ColumnType::{Date, Integer, Text, Timestamp, Uuid};
    let connection = Connection::open_in_memory().expect("a database");
    functions::register(&connection).expect("functions");
    connection
        .execute_batch(
            "CREATE TABLE orders (id INTEGER, organization TEXT, created_at TIMESTAMP, day DATE, code TEXT); \
             CREATE INDEX by_id ON orders (id); \
             CREATE INDEX by_organization ON orders (organization); \
             CREATE INDEX by_created_at ON orders (created_at); \
             CREATE INDEX by_day ON orders (day); \
             CREATE INDEX by_code ON orders (code)",
        )
        .expect("a table");
    let uuid = |n: u128| Value::Uuid(uuid::Uuid::from_u128(n));
    let integer = |digits: &str| Value::Integer(digits.to_owned());
    let from = |value| Test::Range { from: Some(Bound { value, inclusive: true }), to: None };
    let instant = Value::Timestamp("2026-07-01T00:00:00Z".parse().expect("an instant"));
    let cases = [
        ("by_organization", "organization", Uuid, Test::Equal(uuid(7))),
        ("by_organization", "organization", Uuid, Test::In(vec![uuid(7), uuid(8)])),
        ("by_created_at", "created_at", Timestamp, from(instant.clone())),
        ("by_created_at", "created_at", Timestamp, Test::Equal(instant)),
        ("by_day", "day", Date, from(Value::Date("2026-07-01".parse().expect("a day")))),
        ("by_id", "id", Integer, from(integer("7"))),
        ("by_id", "id", Integer, Test::In(vec![integer("7"), integer("8")])),
        ("by_code", "code", Text, Test::Equal(Value::Text("a".to_owned()))),
        ("by_code", "code", Text, Test::In(vec![Value::Text("a".to_owned())])),
    ];
    for (index, name, column_type, test) in cases {
        let relation = Relation::Table(vec!["orders".to_owned()]);
        let affinities = reader::affinities(&connection, &relation).expect("columns");
        let mut dialect = Sqlite::new(affinities);
        let column = ColumnRef { name: name.into(), column_type };
        let selection = Selection {
            relation,
            columns: vec![column.clone()],
            predicate: Predicate::Column { column, test, negated: false },
            order: Vec::new(),
            time_zone: chrono_tz::UTC,
        };
        let sql = compile::select(&mut dialect, &selection).expect("a statement");
        let mut statement =
            connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("a plan");
        let plan: Vec<String> = statement
            .query_map(params_from_iter(dialect.parameters), |row| row.get(3))
            .expect("a plan")
            .collect::<Result<_, _>>()
            .expect("a plan");
        let searched = plan.iter().any(|line| line.contains("SEARCH") && line.contains(index));
        assert!(searched, "{sql}\nshould search by {index}: {plan:#?}");
    }
}
