//! What filters and scopes mean on MariaDB's and MySQL's own types.

use outport_domain::{
    column::ColumnType::{
        self, Boolean, Date, Decimal, Float, Integer, LocalTimestamp, Text, Time, Timestamp,
    },
    failure::FailureCode,
    selection::{Bound, Place, Predicate, Test, Value},
};
use uuid::Uuid;

use crate::{
    mariadb::refused,
    world::{NATIVE_UUID, World, column, ordered, read_first, selection, within},
};

async fn passing(world: &World, table: &str, name: &str, kind: ColumnType, test: Test) -> String {
    let mut wanted = ordered(selection(world.table(table), &[("id", Integer)]), "id");
    wanted.predicate = Predicate::Column { column: column(name, kind), test, negated: false };
    read_first(world, &wanted).await.join(" ")
}

#[tokio::test]
async fn texts_are_equal_when_their_characters_are() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE t (id integer, ci text, latin varchar(20) character set latin1, \
                                 bin varchar(20) collate utf8mb4_bin, bytes varbinary(40)); \
                 INSERT INTO t VALUES (1, 'cafe', 'cafe', 'cafe', 'cafe'), \
                   (2, 'Cafe', 'Cafe', 'Cafe', 'Cafe'), (3, 'café', 'café', 'café', 'café'), \
                   (4, 'cafe ', 'cafe ', 'cafe ', 'cafe '), (5, 'c?', 'c?', 'c?', 'c?')",
            )
            .await;
        let text = |text: &str| Value::Text(text.to_owned());
        for name in ["ci", "latin", "bin", "bytes"] {
            for (wanted, ids) in
                [("cafe", "1"), ("Cafe", "2"), ("café", "3"), ("cafe ", "4"), ("c👍", ""), ("", "")]
            {
                for test in [Test::Equal(text(wanted)), Test::In(vec![text(wanted), text("no")])] {
                    let told = format!("{name} {test:?}");
                    assert_eq!(passing(world, "t", name, Text, test).await, ids, "{told}");
                }
            }
            let like = |place, ignore_case, text: &str| Test::Like {
                place,
                text: text.to_owned(),
                ignore_case,
            };
            for (test, ids) in [
                (like(Place::Start, false, "c"), "1 3 4 5"),
                (like(Place::Start, true, "C"), "1 2 3 4 5"),
                (like(Place::Start, true, "CAFÉ"), "3"),
                (like(Place::End, false, "e"), "1 2"),
                (like(Place::Anywhere, false, "afe"), "1 2 4"),
                (like(Place::Start, false, "c👍"), ""),
            ] {
                let told = format!("{name} {test:?}");
                assert_eq!(passing(world, "t", name, Text, test).await, ids, "{told}");
            }
        }
        // Beyond the character set of the column a range is still a range.
        let above =
            Test::Range { from: Some(Bound { value: text("b€"), inclusive: true }), to: None };
        assert_eq!(passing(world, "t", "latin", Text, above).await, "1 2 3 4 5");
    })
    .await;
}

#[tokio::test]
async fn bytes_that_are_no_text_are_searched_all_the_same() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE t (id integer, bytes varbinary(40)); \
                 INSERT INTO t VALUES (3, 'café'), (5, 'c?'), (6, x'61ff62'), (7, x'25215f'), \
                   (8, x'616263ff646566'), (9, x'ff414243c389c3')",
            )
            .await;
        let like = |place, text: &str| Test::Like { place, text: text.into(), ignore_case: false };
        for (test, ids) in [
            (like(Place::Start, "a"), "6 8"),
            (like(Place::Anywhere, "b"), "6 8"),
            (like(Place::End, "b"), "6"),
            (like(Place::Start, "%!_"), "7"),
            (like(Place::Anywhere, "é"), "3"),
        ] {
            let told = format!("bytes that are no text: {test:?}");
            assert_eq!(passing(world, "t", "bytes", Text, test).await, ids, "{told}");
        }
        let folded = |place, text: &str| Test::Like { place, text: text.into(), ignore_case: true };
        for (test, ids) in [
            (folded(Place::Anywhere, "DEF"), "8"),
            (folded(Place::End, "Def"), "8"),
            (folded(Place::Start, "ABC"), "8"),
            (folded(Place::End, "abc"), ""),
            (folded(Place::Anywhere, "abc"), "8 9"),
            (folded(Place::Anywhere, "É"), "3 9"),
            // Where the bytes are no text, only the letters of ASCII have two cases.
            (folded(Place::Anywhere, "é"), "3"),
            (folded(Place::Anywhere, "?"), "5"),
        ] {
            let told = format!("bytes that are no text, in any case: {test:?}");
            assert_eq!(passing(world, "t", "bytes", Text, test).await, ids, "{told}");
        }
    })
    .await;
}

#[tokio::test]
async fn uuids_may_be_text_in_either_case_or_bytes() {
    within(World::mariadb().await, async |world| {
        let own = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        let other = "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        world
            .run(&format!(
                "CREATE TABLE t (id integer, lower char(36), bin char(36) collate utf8mb4_bin, \
                   latin char(36) character set latin1, native {NATIVE_UUID}, bytes binary(16), \
                   textual varbinary(36))"
            ))
            .await;
        for (id, uuid) in [own, other].iter().enumerate() {
            let upper = uuid.to_uppercase();
            let hex = uuid.replace('-', "");
            world
                .run(&format!(
                    "INSERT INTO t VALUES ({id}, '{uuid}', '{upper}', '{upper}', '{uuid}', \
                     x'{hex}', '{uuid}')"
                ))
                .await;
        }
        world.run("INSERT INTO t (id) VALUES (2)").await;
        let value = |uuid: &str| Value::Uuid(Uuid::parse_str(uuid).expect("a UUID"));
        for name in ["lower", "bin", "latin", "native", "bytes", "textual"] {
            let equal = Test::Equal(value(own));
            assert_eq!(passing(world, "t", name, ColumnType::Uuid, equal).await, "0", "{name}");
            let both = Test::In(vec![value(own), value(other), Value::Uuid(Uuid::nil())]);
            assert_eq!(passing(world, "t", name, ColumnType::Uuid, both).await, "0 1", "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn bounds_that_no_column_can_hold_still_divide_the_rows() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "SET sql_mode = '', time_zone = '+00:00'; \
                 CREATE TABLE t (id integer, big bigint unsigned, bits bit(8), y year, f float, \
                                 d datetime, ts timestamp(6) null, flag tinyint(1), short time, \
                                 fine decimal(40,30)); \
                 INSERT INTO t VALUES \
                   (1, 0, 0, 0, -1, '0000-00-00', '1970-01-01 00:00:01', 0, '-10:00:00', 0), \
                   (2, 18446744073709551615, 255, 2026, 3e38, '9999-12-31', '2038-01-19 03:14:07', 2, '30:00:00', 1e-30)",
            )
            .await;
        let from = |value| Test::Range { from: Some(Bound { value, inclusive: true }), to: None };
        let to = |value| Test::Range { from: None, to: Some(Bound { value, inclusive: true }) };
        let number = |text: &str| Value::Decimal(text.to_owned());
        let instant = |text: &str| Value::Timestamp(text.parse().expect("an instant"));
        let far = Value::Timestamp(chrono::DateTime::<chrono::Utc>::MAX_UTC);
        let cases = [
            ("big", Integer, from(number("18446744073709551615")), "2"),
            ("big", Integer, from(number("18446744073709551614.5")), "2"),
            ("big", Integer, from(number("1e80")), ""),
            ("big", Integer, to(number("1e80")), "1 2"),
            ("big", Integer, from(number("-1")), "1 2"),
            ("big", Integer, Test::Equal(number("1e-50")), ""),
            ("big", Integer, to(number("1e-50")), "1"),
            ("fine", Decimal, from(number("1e-35")), "2"),
            ("fine", Decimal, Test::Equal(number("1e-30")), "2"),
            ("fine", Decimal, Test::Equal(number("1.00001e-30")), ""),
            ("bits", Integer, Test::Equal(number("255")), "2"),
            ("y", Integer, Test::Equal(number("2026")), "2"),
            ("y", Integer, to(number("70")), "1"),
            ("f", Float, to(number("1e39")), "1 2"),
            ("f", Float, from(number("1e999")), ""),
            ("d", LocalTimestamp, to(Value::LocalTimestamp(chrono::NaiveDateTime::MAX)), "1 2"),
            ("d", Timestamp, from(far.clone()), ""),
            ("d", Date, Test::Equal(Value::Date("9999-12-31".parse().expect("a day"))), "2"),
            ("ts", Timestamp, to(far), "1 2"),
            ("ts", Timestamp, from(instant("1900-01-01T00:00:00Z")), "1 2"),
            ("ts", Timestamp, from(instant("2100-01-01T00:00:00Z")), ""),
            ("ts", Timestamp, from(instant("2038-01-19T03:14:06.9999999Z")), "2"),
            ("ts", Timestamp, from(instant("2038-01-19T03:14:07.0000001Z")), ""),
            ("flag", Boolean, Test::Equal(Value::Boolean(true)), "2"),
            ("flag", Boolean, Test::Equal(Value::Boolean(false)), "1"),
            ("short", Time, to(Value::Time("23:59:59".parse().expect("a time"))), "1"),
        ];
        for (name, kind, test, ids) in cases {
            let told = format!("{name} {test:?}");
            assert_eq!(passing(world, "t", name, kind, test).await, ids, "{told}");
        }
    })
    .await;
}

#[tokio::test]
async fn numbers_of_every_size_and_sign_may_stand_in_one_list() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE t (id integer, big bigint unsigned, low bigint, wide bit(64)); \
                 INSERT INTO t VALUES (1, 0, 0, 0), (2, ~0, -9223372036854775808, ~0)",
            )
            .await;
        let number = |text: &str| Value::Decimal(text.to_owned());
        let cases = [
            ("big", Integer, Test::In(vec![number("-1"), number("127.5")]), ""),
            ("big", Integer, Test::In(vec![number("-1"), number("0"), number("0.5")]), "1"),
            ("big", Integer, Test::In(vec![number("-1"), number("99999999999999999999999")]), ""),
            ("low", Integer, Test::In(vec![number("9223372036854775808"), number("1e23")]), ""),
            ("wide", Integer, Test::In(vec![number("-1"), number("0.5")]), ""),
            ("wide", Integer, Test::In(vec![number("18446744073709551615"), number("0.5")]), "2"),
        ];
        for (name, kind, test, ids) in cases {
            let told = format!("{name} {test:?}");
            assert_eq!(passing(world, "t", name, kind, test).await, ids, "{told}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_column_that_cannot_be_compared_as_declared_is_named() {
    within(World::mariadb().await, async |world| {
        world.run("CREATE TABLE t (id integer, active text, at timestamp NULL)").await;
        for (name, kind, value) in [
            ("active", Boolean, Value::Boolean(true)),
            ("active", Integer, Value::Integer("1".to_owned())),
            ("id", ColumnType::Uuid, Value::Uuid(Uuid::nil())),
            ("at", LocalTimestamp, Value::LocalTimestamp(chrono::DateTime::UNIX_EPOCH.naive_utc())),
        ] {
            let mut wanted = selection(world.table("t"), &[("id", Integer)]);
            let test = Test::Equal(value);
            wanted.predicate =
                Predicate::Column { column: column(name, kind), test, negated: false };
            let error = refused(&wanted).await;
            assert_eq!(error.code, FailureCode::SchemaMismatch);
            assert!(error.message.contains(&format!("'{name}'")), "{error}");
        }
    })
    .await;
}
