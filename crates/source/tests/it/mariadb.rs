//! What only MariaDB and MySQL have: their types, their settings, their refusals.

use outport_domain::{
    column::ColumnType::{
        self, Binary, Boolean, Date, Decimal, Float, Integer, Json, LocalTimestamp, Text, Time,
        Timestamp,
    },
    failure::{Disposition, FailureCode},
    selection::{Bound, Place, Predicate, Relation, Selection, Test, Value},
};
use outport_source::SourceError;
use uuid::Uuid;

use crate::world::{
    World, column, mariadb_client, mariadb_source, mariadb_url, ordered, query, read, read_first,
    read_texts, run_mariadb, selection, texts, within,
};

/// How a column is made, what is put into it as SQL, how it is declared, and what is printed.
type Case = (&'static str, &'static str, ColumnType, Option<&'static str>);

const VALUES: &[Case] = &[
    ("bigint", "-9223372036854775808", Integer, Some("-9223372036854775808")),
    ("bigint unsigned", "18446744073709551615", Integer, Some("18446744073709551615")),
    ("int(6) zerofill", "42", Integer, Some("000042")),
    ("tinyint(1)", "1", Boolean, Some("1")),
    ("tinyint(1)", "0", Boolean, Some("0")),
    ("tinyint(1)", "-7", Boolean, Some("-7")),
    ("bit(1)", "b'1'", Boolean, Some("1")),
    ("bit(64)", "18446744073709551615", Integer, Some("18446744073709551615")),
    ("bit(10)", "b'1000000001'", Integer, Some("513")),
    ("year", "2026", Integer, Some("2026")),
    ("year", "0", Integer, Some("0000")),
    (
        "decimal(65,30)",
        "12345678901234567890123456789012345.123456789012345678901234567890",
        Decimal,
        Some("12345678901234567890123456789012345.123456789012345678901234567890"),
    ),
    ("decimal(10,2)", "1.1", Decimal, Some("1.10")),
    ("float", "0.1", Float, Some("0.1")),
    ("float", "16777216", Float, Some("16777216")),
    ("float", "123456.789", Float, Some("123456.79")),
    ("float", "3.4028234e38", Float, Some("3.4028235e38")),
    ("float(7,2)", "12345.67", Float, Some("12345.67")),
    ("double", "0.1e0 + 0.2e0", Float, Some("0.30000000000000004")),
    ("double", "1e300", Float, Some("1e300")),
    ("double", "-2.2250738585072014e-308", Float, Some("-2.2250738585072014e-308")),
    ("char(4)", "'ab'", Text, Some("ab")),
    ("varchar(10)", "'007 '", Text, Some("007 ")),
    ("varchar(10) character set latin1", "'ação€'", Text, Some("ação€")),
    ("text character set utf8mb3", "'ação€'", Text, Some("ação€")),
    ("text collate utf8mb4_bin", "'ação 👍'", Text, Some("ação 👍")),
    ("longtext", "'=1+1'", Text, Some("=1+1")),
    ("enum('it''s', 'b')", "'it''s'", Text, Some("it's")),
    ("set('a', 'b', 'c')", "'c,a'", Text, Some("a,c")),
    ("json", "'{\"b\": 1,  \"a\": [1.0]}'", Json, Some("{\"b\": 1,  \"a\": [1.0]}")),
    ("date", "'0000-00-00'", Date, Some("0000-00-00")),
    ("date", "'2026-00-00'", Date, Some("2026-00-00")),
    ("date", "'9999-12-31'", Date, Some("9999-12-31")),
    ("datetime", "'0000-00-00 00:00:00'", LocalTimestamp, Some("0000-00-00 00:00:00")),
    ("datetime(3)", "'2026-07-01 12:00:00.5'", LocalTimestamp, Some("2026-07-01 12:00:00.500")),
    ("datetime", "'2026-07-01 12:00:00'", Timestamp, Some("2026-07-01 12:00:00")),
    (
        "timestamp(6) null",
        "'2026-07-01 12:00:00.123456'",
        Timestamp,
        Some("2026-07-01 09:00:00.123456-03"),
    ),
    ("timestamp null", "'0000-00-00 00:00:00'", Timestamp, Some("0000-00-00 00:00:00")),
    ("time(6)", "'-838:59:59'", Time, Some("-838:59:59.000000")),
    ("time", "'100:00:00'", Time, Some("100:00:00")),
    ("blob", "x'00ff5c'", Binary, Some("\\x00ff5c")),
    ("blob", "''", Binary, Some("\\x")),
    ("binary(3)", "'a'", Binary, Some("\\x610000")),
    ("blob", "x'616263'", Text, Some("\\x616263")),
    (
        "binary(16)",
        "x'a0eebc999c0b4ef8bb6d6bb9bd380a11'",
        ColumnType::Uuid,
        Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ),
    (
        "uuid",
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        ColumnType::Uuid,
        Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ),
    ("inet6", "'::1'", Text, Some("::1")),
    ("point", "POINT(1, 0)", Binary, Some("\\x000000000101000000000000000000f03f0000000000000000")),
    ("int", "NULL", Integer, None),
    ("text", "NULL", Text, None),
    ("blob", "NULL", Binary, None),
    ("bit(1)", "NULL", Boolean, None),
    ("float", "NULL", Float, None),
    ("timestamp null", "NULL", Timestamp, None),
];

#[tokio::test]
async fn mariadb_values_keep_every_digit_and_byte() {
    within(World::mariadb().await, async |world| {
        let names: Vec<String> = (0..VALUES.len()).map(|index| format!("c{index}")).collect();
        let join = |part: &dyn Fn(usize) -> String| {
            (0..VALUES.len()).map(part).collect::<Vec<_>>().join(", ")
        };
        let columns = join(&|index| format!("{} {}", names[index], VALUES[index].0));
        let values = join(&|index| VALUES[index].1.to_owned());
        // Zero dates, and instants written in UTC.
        world
            .run(&format!(
                "SET sql_mode = 'ANSI_QUOTES', time_zone = '+00:00'; \
                 CREATE TABLE hard ({columns}); INSERT INTO hard VALUES ({values})"
            ))
            .await;
        let pairs: Vec<(&str, ColumnType)> =
            names.iter().zip(VALUES).map(|(name, case)| (name.as_str(), case.2)).collect();
        let query = format!("SELECT * FROM {}", world.qualified("hard"));
        for relation in [world.table("hard"), Relation::Query(query)] {
            let mut wanted = selection(relation, &pairs);
            wanted.time_zone = chrono_tz::America::Sao_Paulo;
            let rows = read(&world.source(), &wanted).await.expect("a row");
            assert_eq!(rows.len(), 1);
            for ((kind, value, _, expected), cell) in VALUES.iter().zip(&rows[0]) {
                let cell = cell.as_ref().map(|cell| String::from_utf8_lossy(cell));
                assert_eq!(cell.as_deref(), *expected, "{kind} {value}");
            }
        }
    })
    .await;
}

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
async fn uuids_may_be_text_in_either_case_or_bytes() {
    within(World::mariadb().await, async |world| {
        let own = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        let other = "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        world
            .run(
                "CREATE TABLE t (id integer, lower char(36), bin char(36) collate utf8mb4_bin, \
                   latin char(36) character set latin1, native uuid, bytes binary(16), \
                   textual varbinary(36))",
            )
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
                                 d datetime, ts timestamp(6) null, flag tinyint(1), short time); \
                 INSERT INTO t VALUES \
                   (1, 0, 0, 0, -1, '0000-00-00', '1970-01-01 00:00:01', 0, '-10:00:00'), \
                   (2, 18446744073709551615, 255, 2026, 3e38, '9999-12-31', '2038-01-19 03:14:07', 2, '30:00:00')",
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

async fn refused(wanted: &Selection) -> SourceError {
    match read(&mariadb_source(mariadb_url()), wanted).await {
        Ok(rows) => panic!("{} rows", rows.len()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn tables_without_snapshots_are_refused_by_name_wherever_they_are() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE safe (id integer); INSERT INTO safe VALUES (1), (2); \
                 CREATE TABLE one_row (id integer) ENGINE = MyISAM; INSERT INTO one_row VALUES (1); \
                 CREATE TABLE loose (id integer) ENGINE = Aria; INSERT INTO loose VALUES (1), (2); \
                 CREATE VIEW safe_view AS SELECT id FROM safe; \
                 CREATE VIEW loose_view AS SELECT s.id FROM safe_view AS s JOIN loose AS l ON l.id = s.id; \
                 CREATE VIEW one_row_view AS SELECT s.id FROM safe AS s JOIN one_row ON one_row.id = s.id",
            )
            .await;
        let sub = format!(
            "SELECT id FROM {} WHERE id IN (SELECT x.id FROM {} AS x)",
            world.qualified("safe"),
            world.qualified("loose")
        );
        let relations = [
            (world.table("loose"), "loose"),
            (world.table("one_row"), "r"),
            (world.table("loose_view"), "loose"),
            (world.table("one_row_view"), "one_row"),
            (Relation::Query(sub), "loose"),
        ];
        for (relation, name) in relations {
            let error = refused(&selection(relation, &[("id", Integer)])).await;
            assert_eq!(
                (error.code, error.disposition),
                (FailureCode::SchemaMismatch, Disposition::Abandon),
                "{error}"
            );
            assert!(error.message.contains(&format!("'{name}'")), "{error}");
            assert!(error.message.contains("InnoDB"), "{error}");
        }
        let wanted = ordered(selection(world.table("safe_view"), &[("id", Integer)]), "id");
        assert_eq!(read_first(world, &wanted).await, ["1", "2"]);
    })
    .await;
}

#[tokio::test]
async fn a_table_that_changes_after_the_snapshot_is_an_error_and_not_an_empty_file() {
    within(World::mariadb().await, async |world| {
        world.run("CREATE TABLE t (id integer); INSERT INTO t VALUES (1), (2)").await;
        let wanted = selection(world.table("t"), &[("id", Integer)]);
        let source = world.source();
        for _ in 0..20 {
            let opened = source.open(&wanted);
            let truncated = world.run("TRUNCATE t; INSERT INTO t VALUES (1), (2)");
            let (opened, ()) = tokio::join!(opened, truncated);
            let rows = match opened {
                Ok(stream) => crate::world::rest(stream).await,
                Err(error) => Err(error),
            };
            match rows {
                // Read between TRUNCATE and INSERT, each of which is a moment of its own.
                Ok(rows) => assert!(rows.len() == 2 || rows.is_empty(), "{} rows", rows.len()),
                Err(error) => assert_eq!(error.disposition, Disposition::Retry, "{error:?}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn settings_of_the_server_do_not_change_what_is_read() {
    within(World::mariadb().await, async |world| {
        world.run("CREATE TABLE t (id integer); INSERT INTO t VALUES (1), (2), (3)").await;
        let url = mariadb_url();
        let separator = if url.contains('?') { '&' } else { '?' };
        let url =
            format!("{url}{separator}charset=latin1&collation=latin1_swedish_ci&timezone=%2B09:00");
        let wanted = query(
            format!(
                "SELECT id, \"double quotes\" AS quoted, @@time_zone AS zone, \
                 @@sql_select_limit AS most, @@net_write_timeout AS write_wait, \
                 @@max_statement_time AS time, @@character_set_results AS letters, \
                 @@tx_isolation AS isolation FROM {}",
                world.qualified("t")
            ),
            &[
                ("id", Integer),
                ("quoted", Text),
                ("zone", Text),
                ("most", Text),
                ("write_wait", Text),
                ("time", Text),
                ("letters", Text),
                ("isolation", Text),
            ],
        );
        let rows = read(&mariadb_source(url), &ordered(wanted, "id")).await.expect("rows");
        let expected = [
            "double quotes",
            "+00:00",
            "18446744073709551615",
            "2147483",
            "0.000000",
            "utf8mb4",
            "REPEATABLE-READ",
        ];
        let rows = texts(&rows);
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row[1..] == expected), "{rows:?}");
    })
    .await;
}

#[tokio::test]
async fn six_hundred_rows_of_one_instant_are_all_read() {
    within(World::mariadb().await, async |world| {
        world
            .run(
                "CREATE TABLE t (id integer, at timestamp(6) NULL, KEY (at)); \
                 INSERT INTO t SELECT seq, '2026-07-01 00:00:00' FROM seq_1_to_600",
            )
            .await;
        let mut wanted = selection(world.table("t"), &[("id", Integer), ("at", Timestamp)]);
        wanted.order = ordered(wanted.clone(), "at").order;
        let mut ids: Vec<u32> = read_texts(world, &wanted)
            .await
            .iter()
            .map(|row| row[0].parse().expect("a number"))
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=600).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn a_value_that_the_server_cut_is_a_failure() {
    within(World::mariadb().await, async |world| {
        world.run("CREATE TABLE t (id integer); INSERT INTO t VALUES (1), (2)").await;
        // The server answers with NULL and a warning.
        let sql = format!("SELECT REPEAT('x', 2000000000) AS x FROM {}", world.qualified("t"));
        let error = refused(&query(sql, &[("x", Text)])).await;
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::ValueNotEncodable, Disposition::Abandon)
        );
        // A warning of another kind is none of our business.
        let sql = format!("SELECT id + 'x' AS x FROM {}", world.qualified("t"));
        assert_eq!(read_texts(world, &query(sql, &[("x", Integer)])).await, [["1"], ["2"]]);
    })
    .await;
}

#[tokio::test]
async fn only_one_statement_runs() {
    within(World::mariadb().await, async |world| {
        world.run("CREATE TABLE t (id integer); INSERT INTO t VALUES (1)").await;
        let table = world.qualified("t");
        let sql = format!("SELECT 1 AS id) AS r; COMMIT; DELETE FROM {table}; SELECT (1");
        assert!(read(&world.source(), &query(sql, &[("id", Integer)])).await.is_err());
        let wanted = selection(world.table("t"), &[("id", Integer)]);
        assert_eq!(read_first(world, &wanted).await, ["1"]);
    })
    .await;
}

#[tokio::test]
async fn nothing_can_be_written_through_a_function() {
    within(World::mariadb().await, async |world| {
        let table = world.qualified("t");
        world
            .run(&format!(
                "CREATE TABLE t (id integer); \
                 CREATE FUNCTION sly() RETURNS integer MODIFIES SQL DATA \
                 BEGIN INSERT INTO {table} VALUES (1); RETURN 1; END"
            ))
            .await;
        let sql = format!("SELECT {} AS id", world.qualified("sly()"));
        let error = refused(&query(sql, &[("id", Integer)])).await;
        assert_eq!(error.code, FailureCode::SourceQueryFailed);
        assert!(error.message.contains("READ ONLY"), "{error}");
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

#[tokio::test]
async fn what_is_forbidden_or_unknown_names_neither_user_nor_host() {
    within(World::mariadb().await, async |world| {
        let World::MariaDb { database } = world else { unreachable!() };
        let user = format!("u{}", &database[database.len() - 12..]);
        world
            .run(&format!(
                "CREATE TABLE mine (id integer); CREATE TABLE theirs (id integer); \
                 CREATE USER {user} IDENTIFIED BY 'right'; \
                 GRANT SELECT ON {database}.mine TO {user}"
            ))
            .await;
        let with = |password: &str, path: &str| {
            let mut url = url::Url::parse(&mariadb_url()).expect("a URL");
            url.set_username(&user).expect("a user");
            url.set_password(Some(password)).expect("a password");
            url.set_path(path);
            mariadb_source(url.into())
        };
        let mine = selection(world.table("mine"), &[("id", Integer)]);
        assert!(read(&with("right", database), &mine).await.expect("no rows").is_empty());
        let theirs = selection(world.table("theirs"), &[("id", Integer)]);
        let cases = [
            (with("wrong", database), &mine, FailureCode::SourceUnreachable),
            (with("right", "mysql"), &mine, FailureCode::SourceUnreachable),
            (with("right", database), &theirs, FailureCode::SourceQueryFailed),
        ];
        for (source, wanted, code) in cases {
            let Err(error) = read(&source, wanted).await else { panic!("rows") };
            assert_eq!((error.code, error.disposition), (code, Disposition::Abandon), "{error}");
            for secret in [user.as_str(), "127.0.0.1", "localhost", "wrong", "right"] {
                assert!(!error.message.contains(secret), "{error}");
            }
        }
        run_mariadb(&mut mariadb_client().await, &format!("DROP USER {user}")).await;
    })
    .await;
}

#[tokio::test]
async fn a_mariadb_url_that_is_none_is_not_quoted() {
    for url in ["not a url with s3cret", "mysql://u:s3cret@[::bad/db"] {
        let error = mariadb_source(url.to_owned()).check().await.expect_err("no URL");
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::SourceUnreachable, Disposition::Abandon)
        );
        assert!(!error.message.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn the_scheme_may_be_that_of_mariadb() {
    let url = mariadb_url().replacen("mysql://", "mariadb://", 1);
    mariadb_source(url).check().await.expect("it answers");
}
