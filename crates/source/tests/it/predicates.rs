//! Every form of predicate on every engine, compared with a naive evaluation.

use std::cmp::Ordering;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use outport_domain::{
    column::ColumnType,
    selection::{Bound, ColumnRef, Place, Predicate, Selection, Test, Value},
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use uuid::Uuid;

use crate::world::{World, column, on_every_engine, ordered, read_first, selection};

/// The columns, how each engine declares them, and the values of the rows as SQL texts.
struct Declared {
    name: &'static str,
    column_type: ColumnType,
    postgres: &'static str,
    mariadb: &'static str,
    sqlite: &'static str,
    /// By row; `None` is NULL.
    values: [Option<&'static str>; 7],
    /// Values to ask for that no row has.
    absent: &'static [&'static str],
}

/// Texts are compared by equality and by parts; words, which every collation sorts alike, by
/// range. `exact` is text in SQLite, which has no exact decimals.
const COLUMNS: [Declared; 14] = [
    Declared {
        name: "title",
        column_type: ColumnType::Text,
        postgres: "text",
        mariadb: "text",
        sqlite: "TEXT",
        values: [
            Some("50% off"),
            Some("a_b\\c"),
            None,
            Some("ÉCLAIR"),
            Some(""),
            Some("éclair 'x'"),
            Some("50 off"),
        ],
        absent: &["50_ off", "%", "\\", "NULL"],
    },
    Declared {
        name: "word",
        column_type: ColumnType::Text,
        postgres: "varchar(20)",
        mariadb: "varchar(20)",
        sqlite: "VARCHAR(20)",
        values: [
            Some("ant"),
            Some("bee"),
            Some("cow"),
            None,
            Some("dog"),
            Some("elk"),
            Some("fox"),
        ],
        absent: &["aaa", "cat", "zebra"],
    },
    Declared {
        name: "mood",
        column_type: ColumnType::Text,
        postgres: "mood",
        mariadb: "enum('sad','ok','happy')",
        sqlite: "TEXT",
        values: [Some("sad"), Some("ok"), None, Some("happy"), Some("ok"), Some("sad"), None],
        absent: &["nosuch"],
    },
    Declared {
        name: "small",
        column_type: ColumnType::Integer,
        postgres: "smallint",
        mariadb: "smallint",
        sqlite: "INTEGER",
        values: [Some("1"), Some("2"), Some("9"), Some("10"), None, Some("-3"), Some("100")],
        absent: &["0", "99999999999999999999", "-99999999999999999999", "9223372036854775807"],
    },
    Declared {
        name: "huge",
        column_type: ColumnType::Integer,
        postgres: "numeric",
        mariadb: "decimal(40,0)",
        sqlite: "TEXT",
        values: [
            Some("99999999999999999999"),
            Some("9"),
            Some("10"),
            None,
            Some("-5"),
            Some("9223372036854775808"),
            Some("0"),
        ],
        absent: &["99999999999999999998", "1", "9223372036854775807"],
    },
    Declared {
        name: "exact",
        column_type: ColumnType::Decimal,
        postgres: "numeric(30,6)",
        mariadb: "decimal(30,6)",
        sqlite: "TEXT",
        values: [
            Some("0.100000"),
            Some("9.500000"),
            Some("10.250000"),
            Some("-1.000001"),
            Some("12345678901234567890.123456"),
            None,
            Some("0.000000"),
        ],
        absent: &["0.1000001", "12345678901234567890.123457", "9"],
    },
    Declared {
        name: "price",
        column_type: ColumnType::Decimal,
        postgres: "numeric",
        mariadb: "decimal(10,2)",
        sqlite: "DECIMAL(10,2)",
        values: [
            Some("0.1"),
            Some("0.3"),
            Some("19.99"),
            None,
            Some("-7"),
            Some("1000"),
            Some("2.5"),
        ],
        absent: &["0.2", "19.9900000000000001", "1e3"],
    },
    Declared {
        name: "ratio",
        column_type: ColumnType::Float,
        postgres: "real",
        mariadb: "float",
        sqlite: "REAL",
        values: [Some("0.1"), Some("2.5"), Some("-7"), None, Some("1000"), Some("0.3"), Some("0")],
        absent: &["0.2", "0.30001"],
    },
    Declared {
        name: "opens",
        column_type: ColumnType::Time,
        postgres: "time",
        mariadb: "time(6)",
        sqlite: "TIME",
        values: [
            Some("00:00:00"),
            Some("13:45:00"),
            Some("23:59:59.5"),
            None,
            Some("08:00:00.000001"),
            Some("13:45:00.000"),
            None,
        ],
        absent: &["08:00:00", "23:59:59"],
    },
    Declared {
        name: "active",
        column_type: ColumnType::Boolean,
        postgres: "boolean",
        mariadb: "boolean",
        sqlite: "BOOLEAN",
        values: [
            Some("true"),
            Some("false"),
            None,
            Some("true"),
            Some("false"),
            Some("true"),
            None,
        ],
        absent: &[],
    },
    Declared {
        name: "day",
        column_type: ColumnType::Date,
        postgres: "date",
        mariadb: "date",
        sqlite: "DATE",
        values: [
            Some("2026-07-01"),
            Some("2026-07-02"),
            None,
            Some("1999-12-31"),
            Some("2026-07-04"),
            Some("2026-07-03"),
            Some("2026-07-01"),
        ],
        absent: &["2026-06-30", "0001-01-01"],
    },
    Declared {
        name: "at",
        column_type: ColumnType::Timestamp,
        postgres: "timestamptz",
        mariadb: "timestamp(6) NULL",
        sqlite: "TIMESTAMP",
        // Mixed forms of instants in UTC or with an offset.
        values: [
            Some("2026-07-01T00:00:00.000Z"),
            Some("2026-07-01 00:00:00.001+00:00"),
            Some("2026-06-30T23:59:59.999999Z"),
            None,
            Some("2026-07-01T21:30:00-03:00"),
            Some("2026-07-02 00:30:00+00"),
            Some("2026-06-30T12:00:00+14:00"),
        ],
        absent: &["2026-07-01T00:00:00.0005Z", "2026-07-04T00:00:00Z"],
    },
    Declared {
        name: "local",
        column_type: ColumnType::LocalTimestamp,
        postgres: "timestamp",
        mariadb: "datetime(6)",
        sqlite: "DATETIME",
        values: [
            Some("2026-07-01 00:00:00"),
            Some("2026-07-01T00:00:00.5"),
            None,
            Some("2026-06-30 23:59:59"),
            Some("2026-07-02 12:00:00"),
            Some("2026-07-01 12:00:00.000001"),
            None,
        ],
        absent: &["2026-07-01 12:00:00", "1970-01-01 00:00:00"],
    },
    Declared {
        name: "owner",
        column_type: ColumnType::Uuid,
        postgres: "uuid",
        mariadb: "char(36)",
        sqlite: "TEXT",
        values: [
            Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            Some("b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            None,
            Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            Some("00000000-0000-0000-0000-000000000000"),
            None,
            Some("c0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ],
        absent: &["d0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    },
];

const ROWS: usize = 7;

fn instant(text: &str) -> DateTime<Utc> {
    let text = text.replace(' ', "T");
    let text = if text.ends_with("+00") { format!("{text}:00") } else { text };
    DateTime::parse_from_rfc3339(&text).expect("an instant").with_timezone(&Utc)
}

fn local(text: &str) -> NaiveDateTime {
    NaiveDateTime::parse_from_str(&text.replace(' ', "T"), "%Y-%m-%dT%H:%M:%S%.f")
        .expect("a moment")
}

fn value(column_type: ColumnType, text: &str) -> Value {
    match column_type {
        ColumnType::Integer => Value::Integer(text.to_owned()),
        ColumnType::Decimal | ColumnType::Float => Value::Decimal(text.to_owned()),
        ColumnType::Boolean => Value::Boolean(text == "true"),
        ColumnType::Date => Value::Date(text.parse::<NaiveDate>().expect("a day")),
        ColumnType::Time => Value::Time(text.parse::<NaiveTime>().expect("a time")),
        ColumnType::Timestamp => Value::Timestamp(instant(text)),
        ColumnType::LocalTimestamp => Value::LocalTimestamp(local(text)),
        ColumnType::Uuid => Value::Uuid(text.parse::<Uuid>().expect("a UUID")),
        _ => Value::Text(text.to_owned()),
    }
}

/// Numbers as whole multiples of 10⁻¹⁶, which suffices for the numbers used here.
fn scaled(text: &str) -> i128 {
    if let Some((mantissa, exponent)) = text.split_once('e') {
        return scaled(mantissa) * 10_i128.pow(exponent.parse().expect("an exponent"));
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction:0<16}");
    digits.parse().expect("a number that fits")
}

fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Integer(a) | Value::Decimal(a), Value::Integer(b) | Value::Decimal(b)) => {
            scaled(a).cmp(&scaled(b))
        }
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
        (Value::Date(a), Value::Date(b)) => a.cmp(b),
        (Value::Time(a), Value::Time(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::LocalTimestamp(a), Value::LocalTimestamp(b)) => a.cmp(b),
        (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
        _ => panic!("{a:?} and {b:?} are not of one type"),
    }
}

fn passes(predicate: &Predicate, row: usize) -> bool {
    let (tested, test, negated) = match predicate {
        Predicate::All(parts) => return parts.iter().all(|part| passes(part, row)),
        Predicate::Any(parts) => return parts.iter().any(|part| passes(part, row)),
        Predicate::Column { column, test, negated } => (column, test, *negated),
    };
    let declared = COLUMNS.iter().find(|one| *one.name == *tested.name).expect("a column");
    let Some(own) = declared.values[row] else {
        return matches!(test, Test::Null) != negated;
    };
    let own = value(declared.column_type, own);
    let held = match test {
        Test::Null => false,
        Test::Equal(value) => compare(&own, value).is_eq(),
        Test::In(values) => values.iter().any(|value| compare(&own, value).is_eq()),
        Test::Range { from, to } => {
            let from = from.as_ref().is_none_or(|bound| {
                let order = compare(&own, &bound.value);
                order.is_gt() || (bound.inclusive && order.is_eq())
            });
            let to = to.as_ref().is_none_or(|bound| {
                let order = compare(&own, &bound.value);
                order.is_lt() || (bound.inclusive && order.is_eq())
            });
            from && to
        }
        Test::Like { place, text, ignore_case } => {
            let Value::Text(own) = own else { panic!("LIKE is for texts") };
            let fold =
                |text: &str| if *ignore_case { text.to_lowercase() } else { text.to_owned() };
            let (own, wanted) = (fold(&own), fold(text));
            match place {
                Place::Anywhere => own.contains(&wanted),
                Place::Start => own.starts_with(&wanted),
                Place::End => own.ends_with(&wanted),
            }
        }
    };
    held != negated
}

/// Every test worth making of a column.
fn tests(declared: &Declared) -> Vec<Test> {
    let written: Vec<&str> =
        declared.values.iter().flatten().chain(declared.absent).copied().collect();
    let values: Vec<Value> = written.iter().map(|text| value(declared.column_type, text)).collect();
    let mut tests = vec![Test::Null, Test::Range { from: None, to: None }];
    tests.extend(values.iter().cloned().map(Test::Equal));
    tests.extend(values.windows(2).map(|pair| Test::In(pair.to_vec())));
    tests.push(Test::In(values.clone()));
    if matches!(declared.column_type, ColumnType::Boolean | ColumnType::Uuid) {
        return tests;
    }
    if declared.name == "title" {
        let parts = written.iter().filter(|text| !text.is_empty()).copied();
        for text in parts.chain(["%", "_", "a_b", "\\c", "50", "off", "écl", "ÉCL", "'", "clair"])
        {
            for place in [Place::Anywhere, Place::Start, Place::End] {
                for ignore_case in [false, true] {
                    tests.push(Test::Like { place, text: text.to_owned(), ignore_case });
                }
            }
        }
        return tests;
    }
    for value in &values {
        for inclusive in [false, true] {
            let bound = Some(Bound { value: value.clone(), inclusive });
            tests.push(Test::Range { from: bound.clone(), to: None });
            tests.push(Test::Range { from: None, to: bound });
        }
    }
    tests.extend(values.windows(2).map(|pair| Test::Range {
        from: Some(Bound { value: pair[0].clone(), inclusive: true }),
        to: Some(Bound { value: pair[1].clone(), inclusive: false }),
    }));
    tests
}

async fn fill(world: &World) {
    if world.is_postgres() {
        world.run("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')").await;
    }
    let columns: Vec<String> = COLUMNS
        .iter()
        .map(|column| {
            format!(
                "{} {}",
                column.name,
                world.pick(column.postgres, column.mariadb, column.sqlite)
            )
        })
        .collect();
    world.run(&format!("CREATE TABLE things (id integer, {})", columns.join(", "))).await;
    for row in 0..ROWS {
        let values: Vec<String> = COLUMNS
            .iter()
            .map(|column| match column.values[row] {
                None => "NULL".to_owned(),
                Some(text) if column.column_type == ColumnType::Boolean => text.to_owned(),
                // MariaDB reads no offsets.
                Some(text) if column.column_type == ColumnType::Timestamp && world.is_mariadb() => {
                    instant(text).format("'%Y-%m-%d %H:%M:%S%.6f'").to_string()
                }
                Some(text) => format!("'{}'", text.replace('\'', "''")),
            })
            .collect();
        world.run(&format!("INSERT INTO things VALUES ({row}, {})", values.join(", "))).await;
    }
}

async fn check(world: &World, wanted: &mut Selection, predicate: Predicate) {
    let expected: Vec<String> =
        (0..ROWS).filter(|row| passes(&predicate, *row)).map(|row| row.to_string()).collect();
    wanted.predicate = predicate;
    assert_eq!(
        read_first(world, wanted).await,
        expected,
        "{} {:?}",
        world.pick("postgres", "mariadb", "sqlite"),
        wanted.predicate
    );
}

fn reference(declared: &Declared) -> ColumnRef {
    column(declared.name, declared.column_type)
}

#[tokio::test]
async fn every_test_of_every_type_agrees_with_the_naive_one() {
    on_every_engine(async |world| {
        fill(world).await;
        let mut wanted =
            ordered(selection(world.table("things"), &[("id", ColumnType::Integer)]), "id");
        for declared in &COLUMNS {
            for test in tests(declared) {
                for negated in [false, true] {
                    let column = reference(declared);
                    let predicate = Predicate::Column { column, test: test.clone(), negated };
                    check(world, &mut wanted, predicate).await;
                }
            }
        }
    })
    .await;
}

fn tree(random: &mut StdRng, depth: u32) -> Predicate {
    if depth == 0 || random.random_bool(0.3) {
        let declared = COLUMNS.choose(random).expect("columns");
        let test = tests(declared).choose(random).expect("tests").clone();
        return Predicate::Column { column: reference(declared), test, negated: random.random() };
    }
    let parts = (0..random.random_range(0..4)).map(|_| tree(random, depth - 1)).collect();
    if random.random() { Predicate::All(parts) } else { Predicate::Any(parts) }
}

#[tokio::test]
async fn trees_of_tests_agree_with_the_naive_evaluation() {
    on_every_engine(async |world| {
        fill(world).await;
        let mut wanted =
            ordered(selection(world.table("things"), &[("id", ColumnType::Integer)]), "id");
        let mut random = StdRng::seed_from_u64(42);
        check(world, &mut wanted, Predicate::All(Vec::new())).await;
        check(world, &mut wanted, Predicate::Any(Vec::new())).await;
        for _ in 0..150 {
            let predicate = tree(&mut random, 3);
            check(world, &mut wanted, predicate).await;
        }
    })
    .await;
}

#[tokio::test]
async fn values_of_another_kind_fail_a_plain_test_and_pass_a_negated_one() {
    crate::world::within(World::sqlite(), async |world| {
        world
            .run(
                "CREATE TABLE loose (id INTEGER, n INTEGER, at TIMESTAMP, t TEXT, u UUID); \
                 INSERT INTO loose VALUES (1, 5, '2026-07-01', 'abc', x'a0eebc999c0b4ef8bb6d6bb9bd380a11'); \
                 INSERT INTO loose VALUES (2, 'many', 'soon', x'616263', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'); \
                 INSERT INTO loose VALUES (3, x'05', 1782864000, 7, 'other'); \
                 INSERT INTO loose VALUES (4, NULL, NULL, NULL, NULL)",
            )
            .await;
        let uuid = Uuid::parse_str("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11").expect("a UUID");
        let at_least = |value| Test::Range { from: Some(Bound { value, inclusive: true }), to: None };
        let cases = [
            ("n", ColumnType::Integer, at_least(Value::Integer("0".into())), vec!["1"]),
            ("n", ColumnType::Decimal, at_least(Value::Decimal("0.1234567890123456789".into())), vec!["1"]),
            ("at", ColumnType::Timestamp, at_least(Value::Timestamp(instant("2026-01-01T00:00:00Z"))), vec!["1"]),
            ("at", ColumnType::Date, at_least(value(ColumnType::Date, "2026-01-01")), vec!["1"]),
            ("t", ColumnType::Text, at_least(Value::Text("0".into())), vec!["1", "3"]),
            (
                "t",
                ColumnType::Text,
                Test::Like { place: Place::Anywhere, text: "B".into(), ignore_case: true },
                vec!["1"],
            ),
            ("u", ColumnType::Uuid, Test::Equal(Value::Uuid(uuid)), vec!["1", "2"]),
        ];
        let mut wanted = ordered(selection(world.table("loose"), &[("id", ColumnType::Integer)]), "id");
        for (name, column_type, test, passing) in cases {
            for negated in [false, true] {
                let column = column(name, column_type);
                wanted.predicate = Predicate::Column { column, test: test.clone(), negated };
                let expected: Vec<&str> = ["1", "2", "3", "4"]
                    .into_iter()
                    .filter(|id| passing.contains(id) != negated)
                    .collect();
                assert_eq!(read_first(world, &wanted).await, expected, "{:?}", wanted.predicate);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn long_lists_are_no_trouble() {
    on_every_engine(async |world| {
        fill(world).await;
        let mut wanted =
            ordered(selection(world.table("things"), &[("id", ColumnType::Integer)]), "id");
        let lists = (0..50).map(|_| Predicate::Column {
            column: column("small", ColumnType::Integer),
            test: Test::In((0..1_000).map(|n| Value::Integer(n.to_string())).collect()),
            negated: false,
        });
        check(world, &mut wanted, Predicate::All(lists.collect())).await;
    })
    .await;
}
