//! Rows that travel as bytes are printed as the server prints them.

use outport_domain::column::ColumnType::{
    self, Binary, Boolean, Date, Decimal, Float, Integer, Json, LocalTimestamp, Text, Time,
    Timestamp,
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::world::{World, ordered, query, read, read_texts, selection, within};

/// A column's type in SQL, how it is declared, the server's function that prints it, and values.
struct Kind {
    sql: &'static str,
    column_type: ColumnType,
    prints: &'static str,
    values: Vec<String>,
}

const EACH: usize = 400;

fn kind(
    sql: &'static str,
    column_type: ColumnType,
    prints: &'static str,
    extremes: &[&str],
    mut random: impl FnMut() -> String,
) -> Kind {
    let mut values: Vec<String> = extremes.iter().map(|value| (*value).to_owned()).collect();
    values.extend((0..EACH).map(|_| random()));
    Kind { sql, column_type, prints, values }
}

fn digits(random: &mut StdRng, most: usize) -> String {
    let count = random.random_range(1..=most);
    (0..count)
        .map(|_| match random.random_range(0..4) {
            // Zeros matter: they may be left out between groups of digits.
            0 => '0',
            _ => char::from(b'0' + random.random_range(0..10)),
        })
        .collect()
}

fn numeric(random: &mut StdRng) -> String {
    let sign = if random.random() { "-" } else { "" };
    match random.random_range(0..4) {
        0 => format!("{sign}{}", digits(random, 40)),
        1 => format!("{sign}0.{}", digits(random, 40)),
        2 => format!("{sign}{}e{}", digits(random, 6), random.random_range(-40..40)),
        _ => format!("{sign}{}.{}", digits(random, 20), digits(random, 20)),
    }
}

/// From some thousand years before Christ to the end of what the server knows.
fn day(random: &mut StdRng) -> String {
    let year = match random.random_range(0..3) {
        0 => random.random_range(1..=4713),
        1 => random.random_range(1..=294_000),
        _ => random.random_range(1900..=2100),
    };
    // Years before Christ only as far as they exist.
    let bc = year <= 4_700 && random.random_range(0..3) == 0;
    let (month, day) = (random.random_range(1..=12), random.random_range(1..=28));
    format!("{year:04}-{month:02}-{day:02}{}", if bc { " BC" } else { "" })
}

fn clock(random: &mut StdRng) -> String {
    let (hour, minute, second) =
        (random.random_range(0..24), random.random_range(0..60), random.random_range(0..60));
    let fraction = match random.random_range(0..3) {
        0 => String::new(),
        1 => format!(".{}", random.random_range(0..10)),
        _ => format!(".{:06}", random.random_range(0..1_000_000)),
    };
    format!("{hour:02}:{minute:02}:{second:02}{fraction}")
}

fn instant(random: &mut StdRng) -> String {
    let day = day(random);
    let (day, bc) = day.strip_suffix(" BC").map_or((day.as_str(), ""), |day| (day, " BC"));
    format!("{day} {}+00{bc}", clock(random))
}

fn text(random: &mut StdRng) -> String {
    let all = ['a', 'Z', '\\', 'N', '\t', '\n', '\r', '"', '\'', ',', 'é', '株', '\u{10ffff}', ' '];
    (0..random.random_range(0..30)).map(|_| *all.choose(random).expect("some")).collect()
}

fn kinds(random: &mut StdRng) -> Vec<Kind> {
    let instants = [
        "infinity",
        "-infinity",
        "2000-01-01 00:00:00+00",
        "1999-12-31 23:59:59.999999+00",
        "2000-01-01 00:00:00.000001+00",
        "4713-11-24 00:00:00+00 BC",
        "294276-12-31 23:59:59.999999+00",
        "0001-01-01 00:00:00+00",
        "0001-12-31 23:59:59+00 BC",
        "9999-12-31 23:59:59.1+00",
        "10000-01-01 00:00:00+00",
        "2024-02-29 12:00:00.10+00",
        // Zones had seconds once, and changed twice a year later.
        "1890-01-01 00:00:00+00",
        "1913-12-31 23:59:59+00",
        "2018-11-04 02:59:59+00",
        "2018-11-04 03:00:00+00",
    ];
    let days = [
        "infinity",
        "-infinity",
        "2000-01-01",
        "1999-12-31",
        "4713-11-24 BC",
        "5874897-12-31",
        "0001-01-01",
        "0001-12-31 BC",
        "1900-02-28",
        "2000-02-29",
        "10000-01-01",
    ];
    let numbers =
        ["0", "0.00", "-0.10", "1e-1000", "1e1000", "NaN", "Infinity", "-Infinity", "10000"];
    vec![
        kind("smallint", Integer, "int2out", &["-32768", "32767", "0"], || {
            random.random::<i16>().to_string()
        }),
        kind("integer", Integer, "int4out", &["-2147483648", "2147483647"], || {
            random.random::<i32>().to_string()
        }),
        kind(
            "bigint",
            Integer,
            "int8out",
            &["-9223372036854775808", "9223372036854775807"],
            || (random.random::<i64>() >> random.random_range(0..64)).to_string(),
        ),
        kind("numeric", Decimal, "numeric_out", &numbers, || numeric(random)),
        kind("numeric(30,7)", Decimal, "numeric_out", &["0", "-1"], || {
            format!("{}.{}", digits(random, 20), digits(random, 10))
        }),
        kind("double precision", Float, "float8out", &["NaN", "Infinity", "-0", "5e-324"], || {
            format!("{:e}", f64::from_bits(random.random::<u64>() & !(1 << 62)))
        }),
        kind("real", Float, "float4out", &["NaN", "-Infinity", "1e-45"], || {
            random.random::<f32>().to_string()
        }),
        kind("boolean", Boolean, "boolout", &["t", "f"], || random.random::<bool>().to_string()),
        kind("date", Date, "date_out", &days, || day(random)),
        kind("time", Time, "time_out", &["00:00", "24:00", "23:59:59.999999"], || clock(random)),
        kind("timetz", Text, "timetz_out", &["00:00+15:59"], || clock(random) + "-03:30"),
        kind("timestamp", LocalTimestamp, "timestamp_out", &instants, || instant(random)),
        kind("timestamptz", Timestamp, "timestamptz_out", &instants, || instant(random)),
        kind("interval", Text, "interval_out", &["-1 year 3 days -00:00:01.5"], || clock(random)),
        kind("uuid", ColumnType::Uuid, "uuid_out", &[], || {
            uuid::Uuid::from_u128(random.random()).to_string()
        }),
        kind("text", Text, "textout", &["", "\\N", "\\."], || text(random)),
        kind("varchar(40)", Text, "varcharout", &[""], || text(random)),
        kind("char(40)", Text, "bpcharout", &["", "a"], || text(random)),
        kind("name", Text, "nameout", &[""], || text(random).chars().take(15).collect()),
        kind("bytea", Binary, "byteaout", &["\\x", "\\x00ff"], || {
            format!("\\x{:02x}{:016x}", random.random::<u8>(), random.random::<u64>())
        }),
        kind("json", Json, "json_out", &["null", "{\"b\":  [1.0]}"], || numeric_json(random)),
        kind("jsonb", Json, "jsonb_out", &["null", "{\"b\":  [1.0, \"\\n\"]}"], || {
            numeric_json(random)
        }),
        kind("money", Decimal, "cash_out", &["-1.50", "92233720368547758.07"], || {
            format!("{}.{:02}", random.random_range(-1000..1000), random.random_range(0..100))
        }),
    ]
}

fn numeric_json(random: &mut StdRng) -> String {
    format!("{{\"n\": {}}}", random.random::<i32>())
}

#[tokio::test]
async fn every_value_is_printed_as_the_server_prints_it() {
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    within(World::postgres().await, async |world| {
        for (index, kind) in kinds(&mut random).into_iter().enumerate() {
            let Kind { sql, column_type, prints, values } = kind;
            let table = format!("kind_{index}");
            let rows: Vec<String> = values
                .iter()
                .enumerate()
                .map(|(id, value)| format!("({id}, '{}'::{sql})", value.replace('\'', "''")))
                .collect();
            world
                .run(&format!(
                    "CREATE TABLE {table} (id integer, v {sql}); \
                     INSERT INTO {table} VALUES {}, (-1, NULL)",
                    rows.join(", ")
                ))
                .await;
            for zone in [chrono_tz::UTC, chrono_tz::America::Sao_Paulo, chrono_tz::Asia::Kathmandu]
            {
                let columns = [("id", Integer), ("v", column_type)];
                let mut ours = ordered(selection(world.table(&table), &columns), "id");
                ours.time_zone = zone;
                let mut servers = query(
                    format!("SELECT id, textin({prints}(v)) AS v FROM {}", world.qualified(&table)),
                    &[("id", Integer), ("v", Text)],
                );
                servers.order = ours.order.clone();
                servers.time_zone = zone;
                let ours = read_texts(world, &ours).await;
                let servers = read_texts(world, &servers).await;
                assert_eq!(ours.len(), values.len() + 1);
                for (ours, servers) in ours.iter().zip(&servers) {
                    assert_eq!(ours, servers, "{sql} in {zone}, seed {seed}");
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_type_that_is_not_known_travels_as_text() {
    within(World::postgres().await, async |world| {
        world.run("CREATE TABLE odd (id integer, v inet, w int4range, x integer[])").await;
        world.run("INSERT INTO odd VALUES (1, '10.0.0.7', '[1,5)', '{1,NULL}'), (2, NULL, NULL, NULL)").await;
        let columns = [("id", Integer), ("v", Text), ("w", Text), ("x", Text)];
        let wanted = ordered(selection(world.table("odd"), &columns), "id");
        let rows = read(&world.source(), &wanted).await.expect("rows");
        let expected =
            [["1", "10.0.0.7", "[1,5)", "{1,NULL}"], ["2", "∅", "∅", "∅"]];
        assert_eq!(crate::world::texts(&rows), expected);
    })
    .await;
}
