//! Values of MariaDB's and MySQL's own types, and settings that must not change them.

use outport_domain::{
    column::ColumnType::{
        self, Binary, Boolean, Date, Decimal, Float, Integer, Json, LocalTimestamp, Text, Time,
        Timestamp,
    },
    failure::{Disposition, FailureCode},
    selection::Relation,
};

use crate::{
    mariadb::refused,
    world::{
        World, is_mysql, mariadb_source, mariadb_url, numbers, ordered, query, read, read_texts,
        selection, texts, within,
    },
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
    ("point", "POINT(1, 0)", Binary, Some("\\x000000000101000000000000000000f03f0000000000000000")),
    ("int", "NULL", Integer, None),
    ("text", "NULL", Text, None),
    ("blob", "NULL", Binary, None),
    ("bit(1)", "NULL", Boolean, None),
    ("float", "NULL", Float, None),
    ("timestamp null", "NULL", Timestamp, None),
];

const OF_MARIADB: &[Case] = &[
    ("json", "'{\"b\": 1,  \"a\": [1.0]}'", Json, Some("{\"b\": 1,  \"a\": [1.0]}")),
    (
        "uuid",
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        ColumnType::Uuid,
        Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ),
    ("inet6", "'::1'", Text, Some("::1")),
];

const OF_MYSQL: &[Case] = &[
    // The server keeps the value, not the text.
    ("json", "'{\"bb\": 1,  \"a\": [1.0, \"é\"]}'", Json, Some("{\"a\": [1.0, \"é\"], \"bb\": 1}")),
    ("json", "'null'", Json, Some("null")),
    ("text collate utf8mb4_0900_as_cs", "'ação 👍'", Text, Some("ação 👍")),
    (
        "geometry",
        "POINT(1, 0)",
        Binary,
        Some("\\x000000000101000000000000000000f03f0000000000000000"),
    ),
];

#[tokio::test]
async fn mariadb_values_keep_every_digit_and_byte() {
    within(World::mariadb().await, async |world| {
        let own = if is_mysql().await { OF_MYSQL } else { OF_MARIADB };
        let cases = [VALUES, own].concat();
        let names: Vec<String> = (0..cases.len()).map(|index| format!("c{index}")).collect();
        let join = |part: &dyn Fn(usize) -> String| {
            (0..cases.len()).map(part).collect::<Vec<_>>().join(", ")
        };
        let columns = join(&|index| format!("{} {}", names[index], cases[index].0));
        let values = join(&|index| cases[index].1.to_owned());
        // Zero dates, and instants written in UTC.
        world
            .run(&format!(
                "SET sql_mode = 'ANSI_QUOTES', time_zone = '+00:00'; \
                 CREATE TABLE hard ({columns}); INSERT INTO hard VALUES ({values})"
            ))
            .await;
        let pairs: Vec<(&str, ColumnType)> =
            names.iter().zip(&cases).map(|(name, case)| (name.as_str(), case.2)).collect();
        let query = format!("SELECT * FROM {}", world.qualified("hard"));
        for relation in [world.table("hard"), Relation::Query(query)] {
            let mut wanted = selection(relation, &pairs);
            wanted.time_zone = chrono_tz::America::Sao_Paulo;
            let rows = read(&world.source(), &wanted).await.expect("a row");
            assert_eq!(rows.len(), 1);
            for ((kind, value, _, expected), cell) in cases.iter().zip(&rows[0]) {
                let cell = cell.as_ref().map(|cell| String::from_utf8_lossy(cell));
                assert_eq!(cell.as_deref(), *expected, "{kind} {value}");
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
        let (time, isolation, no_limit) = if is_mysql().await {
            ("max_execution_time", "transaction_isolation", "0")
        } else {
            ("max_statement_time", "tx_isolation", "0.000000")
        };
        let wanted = query(
            format!(
                "SELECT id, \"double quotes\" AS quoted, @@time_zone AS zone, \
                 @@sql_select_limit AS most, @@net_write_timeout AS write_wait, \
                 @@{time} AS time, @@character_set_results AS letters, \
                 @@{isolation} AS isolation FROM {}",
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
            no_limit,
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
            .run(&format!(
                "CREATE TABLE t (id integer, at timestamp(6) NULL, KEY (at)); \
                 INSERT INTO t SELECT seq, '2026-07-01 00:00:00' FROM {}",
                numbers(600)
            ))
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
        // MySQL would leave out what follows the first byte, MariaDB put a question mark for it.
        world.run("CREATE TABLE b (x varbinary(9)); INSERT INTO b VALUES ('a'), (x'61ff62')").await;
        let sql = |condition| {
            let table = world.qualified("b");
            format!("SELECT CONVERT(b.x USING utf8mb4) AS x FROM {table} AS b WHERE {condition}")
        };
        let error = refused(&query(sql("TRUE"), &[("x", Text)])).await;
        assert_eq!(error.code, FailureCode::ValueNotEncodable, "{error}");
        assert_eq!(read_texts(world, &query(sql("b.x = 'a'"), &[("x", Text)])).await, [["a"]]);
        // A warning of another kind is none of our business.
        let sql = format!("SELECT id + 'x' AS x FROM {}", world.qualified("t"));
        assert_eq!(read_texts(world, &query(sql, &[("x", Integer)])).await, [["1"], ["2"]]);
    })
    .await;
}
