//! What worlds export: orders whose file is known beforehand, wide rows for large files, and
//! rows that come slowly.

use std::fmt::Write as _;

use super::database::Postgres;

pub const ORGANIZATION: &str = "0197a801-1690-7590-b3cf-19599b9be3e4";
pub const USER: &str = "0197a805-0910-7eb2-bae7-90a13df2a9b2";
/// What the caller of a world may do.
pub const SCOPES: &str = "exports:read,exports:write,resources:read,deliveries:admin,\
                          fetcher:run,connections:admin,events:read,events:write,tokens:admin";

/// The notes of orders in turn, as stored and as the file shows them.
const NOTES: [(Option<&str>, &str); 4] = [
    (None, ""),
    (Some(""), "\"\""),
    (Some("a,\"b\""), "\"a,\"\"b\"\"\""),
    (Some("=1+1"), "\"'=1+1\""),
];

/// A resource file over a relation with these columns. Without an order, rows come as they are
/// found: a sort would keep the first slow row until the last.
pub fn resource(name: &str, from: &str, sort: &str) -> String {
    format!(
        "name = \"{name}\"\nconnection = \"shop\"\nfrom = \"{from}\"\nkeyStem = \"{name}s\"\n\
         sort = [{sort}]\n[scope]\norganization = \"organization_id\"\n\
         [[columns]]\nkey = \"code\"\ntype = \"text\"\n\
         [[columns]]\nkey = \"amount\"\ntype = \"decimal\"\n\
         [[columns]]\nkey = \"note\"\ntype = \"text\"\n"
    )
}

/// The columns that every relation of the shop has.
const COLUMNS: &str = "code text, amount numeric, note text, organization_id uuid";

/// Makes the schema and its orders in a PostgreSQL database.
pub async fn create(postgres: &Postgres, orders: u32) {
    let notes: Vec<String> = NOTES
        .iter()
        .enumerate()
        .map(|(index, (note, _))| {
            let note = note.map_or("NULL".to_owned(), |note| format!("'{note}'"));
            format!("WHEN {index} THEN {note}")
        })
        .collect();
    let sql = format!(
        "CREATE SCHEMA shop; CREATE TABLE shop.orders ({COLUMNS}); \
         INSERT INTO shop.orders SELECT 'ORD-' || lpad(i::text, 6, '0'), i * 0.25, \
           CASE i % {} {} END, '{ORGANIZATION}' FROM generate_series(1, {orders}) AS i; \
         INSERT INTO shop.orders VALUES ('OTHER', 1, NULL, gen_random_uuid());",
        NOTES.len(),
        notes.join(" ")
    );
    postgres.run(&sql).await;
}

/// The same orders in an SQLite file.
pub fn create_file(path: &std::path::Path, orders: u32) {
    let mut connection = rusqlite::Connection::open(path).expect("a file");
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; CREATE TABLE orders \
             (code TEXT, amount TEXT, note TEXT, organization_id TEXT);",
        )
        .expect("a table");
    let transaction = connection.transaction().expect("a transaction");
    for number in 1..=orders {
        let note = NOTES[number as usize % NOTES.len()].0;
        let insert = "INSERT INTO orders VALUES (?1, ?2, ?3, ?4)";
        transaction
            .execute(insert, (code(number), amount(number), note, ORGANIZATION))
            .expect("an order");
    }
    transaction.commit().expect("a commit");
}

/// The file that an export of so many orders must be.
pub fn expected(orders: u32) -> String {
    (1..=orders).fold("code,amount,note\n".to_owned(), |mut text, number| {
        let note = NOTES[number as usize % NOTES.len()].1;
        writeln!(text, "{},{},{note}", code(number), amount(number)).expect("a text grows");
        text
    })
}

fn code(number: u32) -> String {
    format!("ORD-{number:06}")
}

fn amount(number: u32) -> String {
    format!("{}.{:02}", number * 25 / 100, number * 25 % 100)
}

/// Adds `shop.wide`: rows whose notes have this many digests of 32 bytes.
pub async fn add_wide(postgres: &Postgres, rows: u32, digests: u32) {
    let sql = format!(
        "CREATE TABLE shop.wide ({COLUMNS}); \
         INSERT INTO shop.wide SELECT 'W' || lpad(i::text, 9, '0'), i, repeat(md5(i::text), {digests}), \
           '{ORGANIZATION}' FROM generate_series(1, {rows}) AS i;"
    );
    postgres.run(&sql).await;
}

/// The SHA-256 of the file that an export of `shop.wide` must be, as the server computes it.
pub async fn wide_sha256(postgres: &Postgres) -> String {
    let sql = "SELECT encode(sha256(convert_to('code,amount,note' || chr(10) || \
               string_agg(code || ',' || amount || ',' || note || chr(10), '' ORDER BY code), \
               'UTF8')), 'hex') FROM shop.wide";
    let mut connection = postgres.connect().await;
    sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a digest")
}

/// Bytes of a note in `shop.slow`: a batch is a few dozen rows.
const SLOW_NOTE: usize = 4_096;

/// Adds the view `shop.slow`: rows that take this long each.
pub async fn add_slow(postgres: &Postgres, rows: u32, milliseconds_each: u32) {
    let seconds = f64::from(milliseconds_each) / 1_000.0;
    let sql = format!(
        "CREATE VIEW shop.slow AS SELECT 'S' || lpad(i::text, 9, '0') AS code, \
           i::numeric AS amount, repeat('x', {SLOW_NOTE}) AS note, \
           '{ORGANIZATION}'::uuid AS organization_id \
         FROM generate_series(1, {rows}) AS i WHERE pg_sleep({seconds})::text IS NOT NULL;"
    );
    postgres.run(&sql).await;
}

/// The file that an export of `shop.slow` must be.
pub fn expected_slow(rows: u32) -> String {
    (1..=rows).fold("code,amount,note\n".to_owned(), |mut text, number| {
        let note = "x".repeat(SLOW_NOTE);
        writeln!(text, "S{number:09},{number},{note}").expect("a text grows");
        text
    })
}
