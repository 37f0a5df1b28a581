//! Names are names and values are values, whatever they hold.

use outport_domain::{
    column::ColumnType::{Integer, Text},
    selection::{Place, Predicate, Relation, Test, Value},
};

use crate::world::{column, on_every_engine, ordered, read_first, read_texts, selection};

const NAMES: [&str; 9] = [
    "UPPER lower",
    "select",
    "semi;colon",
    "quo\"te",
    "''; DROP TABLE kept; --",
    "back\\slash",
    "ação",
    "a.b",
    "%_$1?",
];

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[tokio::test]
async fn identifiers_may_hold_anything() {
    on_every_engine(async |world| {
        for table in NAMES {
            let columns: Vec<String> =
                NAMES.iter().map(|name| format!("{} text", quoted(name))).collect();
            world.run(&format!("CREATE TABLE {} ({})", quoted(table), columns.join(", "))).await;
            let values: Vec<String> = (0..NAMES.len()).map(|index| format!("'v{index}'")).collect();
            world
                .run(&format!("INSERT INTO {} VALUES ({})", quoted(table), values.join(", ")))
                .await;
            let pairs: Vec<_> = NAMES.iter().map(|name| (*name, Text)).collect();
            let mut wanted = ordered(selection(world.table(table), &pairs), NAMES[3]);
            wanted.predicate = Predicate::All(
                NAMES
                    .iter()
                    .enumerate()
                    .map(|(index, name)| Predicate::Column {
                        column: column(name, Text),
                        test: Test::Equal(Value::Text(format!("v{index}"))),
                        negated: false,
                    })
                    .collect(),
            );
            let expected: Vec<String> = (0..NAMES.len()).map(|index| format!("v{index}")).collect();
            assert_eq!(read_texts(world, &wanted).await, [expected], "{table}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_value_never_becomes_part_of_the_statement() {
    let attempts = [
        "'; DROP TABLE kept; --",
        "\\'; DROP TABLE kept; --",
        "' OR '1'='1",
        "\\",
        "\\\\",
        "$1",
        "?1",
        "{\"a\",\"b\"}",
        "\",\"",
        "NULL",
        "",
        "') OR TRUE --",
        "E'\\'",
        "%",
        "_",
    ];
    on_every_engine(async |world| {
        world
            .run("CREATE TABLE kept (id integer, t text); INSERT INTO kept VALUES (0, 'other')")
            .await;
        for (id, attempt) in attempts.iter().enumerate() {
            let sql =
                format!("INSERT INTO kept VALUES ({}, '{}')", id + 1, attempt.replace('\'', "''"));
            world.run(&sql).await;
        }
        let mut wanted = ordered(selection(world.table("kept"), &[("id", Integer)]), "id");
        for (id, attempt) in attempts.iter().enumerate() {
            let id = (id + 1).to_string();
            let own = |attempt: &str| Value::Text(attempt.to_owned());
            let mut tests =
                vec![Test::Equal(own(attempt)), Test::In(vec![own(attempt), own("no such")])];
            tests.push(Test::Range {
                from: Some(outport_domain::selection::Bound {
                    value: own(attempt),
                    inclusive: true,
                }),
                to: Some(outport_domain::selection::Bound { value: own(attempt), inclusive: true }),
            });
            for test in tests {
                wanted.predicate = Predicate::Column {
                    column: column("t", Text),
                    test: test.clone(),
                    negated: false,
                };
                assert_eq!(read_first(world, &wanted).await, std::slice::from_ref(&id), "{test:?}");
            }
            if attempt.is_empty() {
                continue;
            }
            for place in [Place::Anywhere, Place::Start, Place::End] {
                for ignore_case in [false, true] {
                    let test = Test::Like { place, text: (*attempt).to_owned(), ignore_case };
                    wanted.predicate =
                        Predicate::Column { column: column("t", Text), test, negated: false };
                    let found = |text: &str| match place {
                        Place::Anywhere => text.contains(attempt),
                        Place::Start => text.starts_with(attempt),
                        Place::End => text.ends_with(attempt),
                    };
                    let expected: Vec<String> = attempts
                        .iter()
                        .enumerate()
                        .filter(|(_, text)| found(text))
                        .map(|(id, _)| (id + 1).to_string())
                        .collect();
                    assert_eq!(read_first(world, &wanted).await, expected, "{place:?} {attempt:?}");
                }
            }
        }
        wanted.predicate = Predicate::All(Vec::new());
        assert_eq!(read_first(world, &wanted).await.len(), attempts.len() + 1);
    })
    .await;
}

#[tokio::test]
async fn a_query_may_end_with_a_comment() {
    on_every_engine(async |world| {
        world.run("CREATE TABLE t (id integer); INSERT INTO t VALUES (1), (2)").await;
        let sql =
            format!("SELECT id, id * 10 AS tens FROM {} -- all of them", world.qualified("t"));
        let mut wanted = ordered(selection(Relation::Query(sql), &[("tens", Integer)]), "id");
        wanted.predicate = Predicate::Column {
            column: column("tens", Integer),
            test: Test::In(vec![
                Value::Integer("20".into()),
                Value::Integer("99999999999999999999".into()),
            ]),
            negated: true,
        };
        assert_eq!(read_first(world, &wanted).await, ["10"]);
    })
    .await;
}
