//! Values keep every digit and every byte.

use outport_domain::column::ColumnType::{
    self, Binary, Boolean, Date, Decimal, Float, Integer, Json, LocalTimestamp, Text, Time,
    Timestamp,
};

use crate::world::{World, on_every_engine, ordered, query, read, read_texts, selection, within};

/// Reads one row of expressions and compares each cell with its text; `None` is NULL.
async fn check(world: &World, cases: &[(&str, ColumnType, Option<&str>)], zone: chrono_tz::Tz) {
    let names: Vec<String> = (0..cases.len()).map(|index| format!("c{index}")).collect();
    let list: Vec<String> =
        cases.iter().zip(&names).map(|((sql, ..), name)| format!("{sql} AS {name}")).collect();
    let columns: Vec<(&str, ColumnType)> =
        cases.iter().zip(&names).map(|((_, kind, _), name)| (name.as_str(), *kind)).collect();
    let mut selection = query(format!("SELECT {}", list.join(", ")), &columns);
    selection.time_zone = zone;
    let rows = read(&world.source(), &selection).await.expect("one row");
    assert_eq!(rows.len(), 1);
    for ((sql, _, expected), cell) in cases.iter().zip(&rows[0]) {
        let cell = cell.as_ref().map(|cell| String::from_utf8_lossy(cell));
        assert_eq!(cell.as_deref(), *expected, "{sql}");
    }
}

#[tokio::test]
async fn texts_survive_on_every_engine_engines() {
    on_every_engine(async |world| {
        world.run("CREATE TABLE texts (id integer, t text)").await;
        let texts = [
            Some(""),
            None,
            Some("NULL"),
            Some("\\N"),
            Some("\\"),
            Some("\\\\N\\."),
            Some("\\."),
            Some("tab\there"),
            Some("\r\n\n\r"),
            Some("\u{8}\u{b}\u{c}\u{1}\u{7f}"),
            Some("it's \"quoted\", yes; no"),
            Some("São João — ação"),
            Some("👩‍👩‍👧‍👦🇧🇷"),
            Some("007"),
            Some("  spaces  "),
            Some("\u{feff}bom"),
            Some("=cmd()"),
        ];
        for (id, text) in texts.iter().enumerate() {
            let literal = text.map_or_else(
                || "NULL".to_owned(),
                |text| format!("'{}'", text.replace('\'', "''")),
            );
            world.run(&format!("INSERT INTO texts VALUES ({id}, {literal})")).await;
        }
        let selection = ordered(
            selection(world.table("texts"), &[("t", Text), ("id", Integer), ("t", Text)]),
            "id",
        );
        let rows = read(&world.source(), &selection).await.expect("rows");
        assert_eq!(rows.len(), texts.len());
        for (id, (row, text)) in rows.iter().zip(texts).enumerate() {
            let text = text.map(|text| text.as_bytes().to_vec());
            assert_eq!(row[..], [text.clone(), Some(id.to_string().into_bytes()), text]);
        }
    })
    .await;
}

#[tokio::test]
async fn no_rows_are_an_end_of_none() {
    on_every_engine(async |world| {
        world.run("CREATE TABLE none (id integer)").await;
        let selection = selection(world.table("none"), &[("id", Integer)]);
        assert!(read_texts(world, &selection).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn the_order_is_the_selections() {
    on_every_engine(async |world| {
        world.run("CREATE TABLE o (a integer, b text); INSERT INTO o VALUES (1,'x'),(2,'y'),(1,'z'),(3,'x')").await;
        let mut wanted = selection(world.table("o"), &[("a", Integer), ("b", Text)]);
        wanted.order = ordered(wanted.clone(), "a").order;
        wanted.order[0].descending = true;
        wanted.order.extend(ordered(wanted.clone(), "b").order);
        let rows = read_texts(world, &wanted).await;
        assert_eq!(rows, [["3", "x"], ["2", "y"], ["1", "x"], ["1", "z"]]);
    })
    .await;
}

#[tokio::test]
async fn postgres_prints_its_own_text() {
    within(World::postgres().await, async |world| {
        let World::Postgres { schema } = world else { unreachable!() };
        world
            .run(
                "CREATE TYPE mood AS ENUM ('sad', 'it''s \"fine\"'); \
                 CREATE TYPE pair AS (a integer, b text); \
                 CREATE DOMAIN small AS integer CHECK (value < 100); \
                 CREATE DOMAIN smaller AS small",
            )
            .await;
        let mood = format!("'it''s \"fine\"'::{schema}.mood");
        let pair = format!("ROW(1, 'x')::{schema}.pair");
        let smaller = format!("7::{schema}.smaller");
        let cases: &[(&str, ColumnType, Option<&str>)] = &[
            ("NULL::text", Text, None),
            ("9223372036854775807::bigint", Integer, Some("9223372036854775807")),
            ("'-9223372036854775808'::bigint", Integer, Some("-9223372036854775808")),
            (
                "1234567890123456789012345678901234567890.12345678901234567890::numeric(60,20)",
                Decimal,
                Some("1234567890123456789012345678901234567890.12345678901234567890"),
            ),
            ("'NaN'::numeric", Decimal, Some("NaN")),
            ("1.10::numeric", Decimal, Some("1.10")),
            ("0.1::float8 + 0.2::float8", Float, Some("0.30000000000000004")),
            ("0.1::float4", Float, Some("0.1")),
            ("'-Infinity'::float8", Float, Some("-Infinity")),
            ("1e300::float8", Float, Some("1e+300")),
            ("'007'::text", Text, Some("007")),
            ("'ab'::char(4)", Text, Some("ab  ")),
            ("true", Boolean, Some("t")),
            ("false", Boolean, Some("f")),
            ("'0044-03-15 BC'::date", Date, Some("0044-03-15 BC")),
            ("'12026-01-01'::date", Date, Some("12026-01-01")),
            ("'infinity'::date", Date, Some("infinity")),
            ("'-infinity'::timestamptz", Timestamp, Some("-infinity")),
            (
                "'2026-07-01 12:00:00.123456+00'::timestamptz",
                Timestamp,
                Some("2026-07-01 09:00:00.123456-03"),
            ),
            ("'2026-07-01 12:00:00'::timestamp", LocalTimestamp, Some("2026-07-01 12:00:00")),
            ("'23:59:59.5'::time", Time, Some("23:59:59.5")),
            ("'24:00'::time", Time, Some("24:00:00")),
            (
                "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid",
                ColumnType::Uuid,
                Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            ),
            ("'{\"b\": 1,  \"a\": [1.0]}'::json", Json, Some("{\"b\": 1,  \"a\": [1.0]}")),
            ("'{\"b\":\"\\n\"}'::jsonb", Json, Some("{\"b\": \"\\n\"}")),
            ("ARRAY['a,b', NULL, '\"']", Json, Some("[\"a,b\",null,\"\\\"\"]")),
            ("ARRAY['a,b', NULL]", Text, Some("{\"a,b\",NULL}")),
            (&pair, Json, Some("{\"a\":1,\"b\":\"x\"}")),
            ("'\\x00ff5c'::bytea", Binary, Some("\\x00ff5c")),
            ("''::bytea", Binary, Some("\\x")),
            (
                "'1 year 2 mons -3 days 04:05:06.7'::interval",
                Text,
                Some("1 year 2 mons -3 days +04:05:06.7"),
            ),
            ("'[1,5)'::int4range", Text, Some("[1,5)")),
            ("1234.5::float8::numeric::money", Decimal, Some("$1,234.50")),
            ("'10.0.0.7/8'::inet", Text, Some("10.0.0.7/8")),
            (&mood, Text, Some("it's \"fine\"")),
            (&smaller, Integer, Some("7")),
        ];
        check(world, cases, chrono_tz::America::Sao_Paulo).await;
    })
    .await;
}

#[tokio::test]
async fn settings_of_the_role_or_database_do_not_change_the_text() {
    within(World::postgres().await, async |world| {
        let url = crate::world::postgres_url();
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = format!(
            "{url}{separator}options[DateStyle]=German&options[IntervalStyle]=iso_8601\
             &options[bytea_output]=escape&options[extra_float_digits]=-10\
             &options[standard_conforming_strings]=off&options[TimeZone]=Asia/Tokyo\
             &options[statement_timeout]=60000"
        );
        let selection = query(
            "SELECT '2026-07-01'::date AS d, '1 day'::interval AS i, '\\x00'::bytea AS b, \
                    0.1::float8 + 0.2::float8 AS f, '2026-07-01 00:00+00'::timestamptz AS at, \
                    current_setting('statement_timeout') AS wait",
            &[
                ("d", Date),
                ("i", Text),
                ("b", Binary),
                ("f", Float),
                ("at", Timestamp),
                ("wait", Text),
            ],
        );
        let rows = read(&crate::world::postgres_source(url), &selection).await.expect("a row");
        let expected =
            ["2026-07-01", "1 day", "\\x00", "0.30000000000000004", "2026-07-01 00:00:00+00", "0"];
        assert_eq!(crate::world::texts(&rows), [expected]);
        assert!(world.is_postgres());
    })
    .await;
}

#[tokio::test]
async fn sqlite_prints_what_is_really_stored() {
    within(World::sqlite(), async |world| {
        let cases: &[(&str, ColumnType, Option<&str>)] = &[
            ("NULL", Text, None),
            ("9223372036854775807", Integer, Some("9223372036854775807")),
            ("-9223372036854775808", Integer, Some("-9223372036854775808")),
            ("1.0", Float, Some("1.0")),
            ("0.1 + 0.2", Float, Some("0.30000000000000004")),
            ("1e300", Float, Some("1e300")),
            ("9e999", Float, Some("Infinity")),
            ("-9e999", Float, Some("-Infinity")),
            ("'12345678901234567890.10'", Decimal, Some("12345678901234567890.10")),
            ("TRUE", Boolean, Some("1")),
            ("x'00ff5c'", Binary, Some("\\x00ff5c")),
            ("x''", Binary, Some("\\x")),
            (
                "x'a0eebc999c0b4ef8bb6d6bb9bd380a11'",
                ColumnType::Uuid,
                Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            ),
            ("'{\"b\":  1}'", Json, Some("{\"b\":  1}")),
            ("'2026-07-01T12:00:00.000Z'", Timestamp, Some("2026-07-01T12:00:00.000Z")),
        ];
        world.run("CREATE TABLE unused (a)").await;
        check(world, cases, chrono_tz::America::Sao_Paulo).await;
    })
    .await;
}

#[tokio::test]
async fn sqlites_declared_types_are_hints() {
    within(World::sqlite(), async |world| {
        world
            .run(
                "CREATE TABLE loose (id INTEGER PRIMARY KEY, i INTEGER, t TEXT, b BOOLEAN, u VARCHAR(3)); \
                 INSERT INTO loose VALUES (1, 'not a number', x'c3', 0.5, 'longer than three'); \
                 INSERT INTO loose VALUES (2, 1.5, CAST(x'ff41fe' AS TEXT), 'yes', 'a' || char(0) || 'b')",
            )
            .await;
        let selection = ordered(
            selection(world.table("loose"), &[("i", Integer), ("t", Text), ("b", Boolean), ("u", Text)]),
            "id",
        );
        let rows = read(&world.source(), &selection).await.expect("rows");
        let bytes = |bytes: &[u8]| Some(bytes.to_vec());
        assert_eq!(
            rows,
            [
                [bytes(b"not a number"), bytes(b"\\xc3"), bytes(b"0.5"), bytes(b"longer than three")],
                [bytes(b"1.5"), bytes(b"\xff\x41\xfe"), bytes(b"yes"), bytes(b"a\0b")],
            ]
        );
    })
    .await;
}
