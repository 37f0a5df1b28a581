//! A table of every type that filters compare, with random rows that are hard to get right.

use chrono::{
    DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta, Utc,
};
use chrono_tz::Tz;
use outport_domain::column::ColumnType;
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use uuid::Uuid;

use crate::world::World;

/// A value of a row or of a filter.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    Integer(i128),
    /// Multiples of ten to the power of −[`SCALE`].
    Decimal(i128),
    Boolean(bool),
    Date(NaiveDate),
    Time(NaiveTime),
    Local(NaiveDateTime),
    Instant(DateTime<Utc>),
    Uuid(Uuid),
}

/// Digits after the point of decimals; a column has fewer, so that filters may have more.
pub const SCALE: u32 = 12;
const COLUMN_SCALE: u32 = 10;

pub struct Column {
    pub key: &'static str,
    pub kind: ColumnType,
    postgres: &'static str,
    mariadb: &'static str,
    sqlite: &'static str,
}

const fn column(
    key: &'static str,
    kind: ColumnType,
    [postgres, mariadb, sqlite]: [&'static str; 3],
) -> Column {
    Column { key, kind, postgres, mariadb, sqlite }
}

/// `title` is compared by equality and by parts, in whatever collation the engine has; `word`,
/// which every collation sorts alike, also by range. SQLite has no exact decimals but as texts,
/// and no type of its own for times.
pub const COLUMNS: [Column; 10] = [
    column("title", ColumnType::Text, ["text", "text", "TEXT"]),
    column("word", ColumnType::Text, ["varchar(20)", "varchar(20)", "VARCHAR(20)"]),
    column("number", ColumnType::Integer, ["bigint", "bigint", "INTEGER"]),
    column("amount", ColumnType::Decimal, ["numeric(30,10)", "decimal(30,10)", "TEXT"]),
    column("flag", ColumnType::Boolean, ["boolean", "boolean", "BOOLEAN"]),
    column("day", ColumnType::Date, ["date", "date", "DATE"]),
    column("moment", ColumnType::Time, ["time", "time(6)", "TEXT"]),
    column("local", ColumnType::LocalTimestamp, ["timestamp", "datetime(6)", "DATETIME"]),
    column("at", ColumnType::Timestamp, ["timestamptz", "datetime(6)", "TIMESTAMP"]),
    column("owner", ColumnType::Uuid, ["uuid", "char(36)", "TEXT"]),
];

pub type Row = Vec<Option<Cell>>;

/// Days of clock changes, of calendars' ends, and of nothing in particular.
const DAYS: [&str; 10] = [
    "0001-01-01",
    "1899-12-31",
    "1970-01-01",
    "2011-12-30",
    "2018-02-18",
    "2018-11-04",
    "2026-03-29",
    "2026-07-01",
    "2026-07-02",
    "9999-12-30",
];

const TIMES: [&str; 6] =
    ["00:00:00", "00:00:00.000001", "02:30:00", "12:00:00.5", "23:59:59.999999", "03:00:00"];

/// Pieces of texts: what LIKE, quoting and folding may stumble over.
const PIECES: [&str; 32] = [
    "a", "A", "b", "é", "É", "ñ", "ß", "ẞ", "ω", "Ω", "σ", "ς", "Σ", "я", "Я", "İ", "i", "ǅ", "𐐀",
    "%", "_", "\\", "'", "\"", "!", " ", "\t", "\n", "👍", "e\u{301}", "日本", "NULL",
];

pub fn day(random: &mut StdRng) -> NaiveDate {
    let day: NaiveDate = DAYS.choose(random).expect("days").parse().expect("a day");
    day.checked_add_signed(TimeDelta::days(random.random_range(0..2))).expect("a day")
}

pub fn time(random: &mut StdRng) -> NaiveTime {
    TIMES.choose(random).expect("times").parse().expect("a time")
}

pub fn text(random: &mut StdRng) -> String {
    (0..random.random_range(0..5)).map(|_| *PIECES.choose(random).expect("pieces")).collect()
}

fn word(random: &mut StdRng) -> String {
    (0..random.random_range(0..4)).map(|_| random.random_range('a'..='e')).collect()
}

/// A random value that a column of this type may hold.
pub fn cell(column: &Column, random: &mut StdRng) -> Cell {
    const EDGES: [i64; 9] =
        [i64::MIN, i64::MIN + 1, -1, 0, 1, 9, (1 << 53) + 1, i64::MAX - 1, i64::MAX];
    match column.kind {
        ColumnType::Text if column.key == "word" => Cell::Text(word(random)),
        ColumnType::Text => Cell::Text(text(random)),
        ColumnType::Integer => Cell::Integer((*EDGES.choose(random).expect("edges")).into()),
        ColumnType::Decimal => {
            let unit = 10_i128.pow(SCALE - COLUMN_SCALE);
            let most = 10_i128.pow(29);
            let digits = [0, 1, -1, 15_000_000_000, most, -most, most - 1];
            Cell::Decimal(digits.choose(random).expect("digits") * unit)
        }
        ColumnType::Boolean => Cell::Boolean(random.random()),
        ColumnType::Date => Cell::Date(day(random)),
        ColumnType::Time => Cell::Time(time(random)),
        ColumnType::LocalTimestamp => Cell::Local(day(random).and_time(time(random))),
        ColumnType::Timestamp => Cell::Instant(day(random).and_time(time(random)).and_utc()),
        ColumnType::Uuid => Cell::Uuid(Uuid::from_u128(random.random_range(0..6) << 64)),
        other => panic!("no column is of type {other:?}"),
    }
}

pub fn rows(random: &mut StdRng) -> Vec<Row> {
    let row = |random: &mut StdRng| {
        COLUMNS
            .iter()
            .map(|column| random.random_bool(0.85).then(|| cell(column, random)))
            .collect()
    };
    (0..40).map(|_| row(random)).collect()
}

/// A decimal's digits, without an exponent.
pub fn digits(scaled: i128) -> String {
    let one = 10_u128.pow(SCALE);
    let sign = if scaled < 0 { "-" } else { "" };
    let size = scaled.unsigned_abs();
    format!("{sign}{}.{:0width$}", size / one, size % one, width = SCALE as usize)
}

fn literal(world: &World, cell: &Cell, row: usize) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match cell {
        Cell::Text(text) => quoted(text),
        Cell::Integer(number) => number.to_string(),
        Cell::Decimal(scaled) => quoted(&digits(*scaled)),
        Cell::Boolean(flag) => flag.to_string(),
        Cell::Date(day) => quoted(&day.to_string()),
        Cell::Time(time) => quoted(&time.format("%H:%M:%S%.6f").to_string()),
        Cell::Local(local) => quoted(&local.format("%Y-%m-%d %H:%M:%S%.6f").to_string()),
        Cell::Instant(at) => {
            let utc = at.naive_utc().format("%Y-%m-%d %H:%M:%S%.6f").to_string();
            // SQLite's texts have many forms, one of them with an offset.
            quoted(&match world {
                World::MariaDb { .. } => utc,
                World::Postgres { .. } => utc + "Z",
                World::Sqlite { .. } if row.is_multiple_of(2) => utc,
                World::Sqlite { .. } => {
                    let east = chrono::FixedOffset::east_opt(3 * 3600).expect("an offset");
                    let shifted = at.with_timezone(&east);
                    if shifted.year() > 9999 {
                        utc + "Z"
                    } else {
                        shifted.to_rfc3339_opts(SecondsFormat::Micros, true)
                    }
                }
            })
        }
        Cell::Uuid(uuid) => quoted(&uuid.to_string()),
    }
}

/// Makes the table `things` with the rows, `id` being their number.
pub async fn fill(world: &World, rows: &[Row]) {
    let columns: Vec<String> = COLUMNS
        .iter()
        .map(|column| {
            let sql = world.pick(column.postgres, column.mariadb, column.sqlite);
            format!("\"{}\" {sql}", column.key)
        })
        .collect();
    let values: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(id, row)| {
            let cells: Vec<String> = row
                .iter()
                .map(|cell| match cell {
                    Some(cell) => literal(world, cell, id),
                    None => "NULL".to_owned(),
                })
                .collect();
            format!("({id}, {})", cells.join(", "))
        })
        .collect();
    world
        .run(&format!(
            "DROP TABLE IF EXISTS things; CREATE TABLE things (id integer, {}); \
             INSERT INTO things VALUES {}",
            columns.join(", "),
            values.join(", ")
        ))
        .await;
}

/// The day that a moment is on in a zone.
pub fn local_day(cell: &Cell, zone: Tz) -> Option<NaiveDate> {
    match cell {
        Cell::Date(day) => Some(*day),
        Cell::Local(local) => Some(local.date()),
        Cell::Instant(at) => Some(at.with_timezone(&zone).date_naive()),
        _ => None,
    }
}
