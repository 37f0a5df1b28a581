//! Wires that are cut and files that are torn, wherever it may be: reading fails or gives all
//! rows, never fewer. The long form (`tests/run --soak`) cuts more often.

use std::sync::Arc;

use outport_domain::{
    column::ColumnType::{Integer, Text},
    failure::{Disposition, FailureCode},
    selection::Selection,
};
use outport_source::{Source, SourceConfig, SourceError, connect};
use rand::{Rng, SeedableRng, rngs::StdRng};
use sqlx::{mysql::MySqlConnectOptions, postgres::PgConnectOptions};

use crate::{
    proxy::Proxy,
    world::{
        Rows, World, mariadb_source, mariadb_url, numbers, postgres_source, postgres_url, query,
        read, rest, selection, within,
    },
};

/// So close to the end a wrong reader would be satisfied.
const LATE_BYTES: u64 = 200;

fn cuts() -> u32 {
    if std::env::var_os("OUTPORT_TEST_SOAK").is_some() { 200 } else { 25 }
}

/// What a read came to, and how many bytes there were.
type Outcome = (Result<Rows, SourceError>, u64);

/// Reads again and again, each time only the first so many bytes: any number, and every other
/// time almost all.
#[expect(clippy::print_stdout, reason = "how often it was cut is worth a look")]
async fn cut_often(
    what: &str,
    is_right: impl Fn(&SourceError) -> bool,
    read_first: impl AsyncFn(u64) -> Outcome,
) {
    let (whole, total) = read_first(u64::MAX).await;
    let whole = whole.expect("all rows");
    let seed: u64 = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let mut noticed = 0;
    for cut in 0..cuts() {
        let most = if cut % 2 == 0 {
            random.random_range(0..total)
        } else {
            total - random.random_range(1..=LATE_BYTES)
        };
        let what = format!("{what}, seed {seed}, cut {cut}: {most} of {total} bytes");
        match read_first(most).await.0 {
            Ok(rows) => {
                assert!(rows == whole, "{what}: other rows, {} of {}", rows.len(), whole.len());
            }
            Err(error) => {
                assert!(is_right(&error), "{what}: {error:?}");
                noticed += 1;
            }
        }
    }
    println!("{what}, seed {seed}: {noticed} of {} cuts were errors, the rest was whole", cuts());
    // Those that are not late.
    assert!(noticed >= cuts() / 3, "{what}, seed {seed}: {noticed} cuts were noticed");
}

/// A lost connection that is worth another try.
fn is_lost(error: &SourceError) -> bool {
    matches!(error.code, FailureCode::SourceTruncated | FailureCode::SourceUnreachable)
        && error.disposition == Disposition::Retry
}

pub fn at_port(url: &str, port: u16) -> String {
    let mut url = url::Url::parse(url).expect("a URL");
    url.set_host(Some("127.0.0.1")).expect("a host");
    url.set_port(Some(port)).expect("a port");
    url.into()
}

async fn read_all(source: Arc<dyn Source>, wanted: &Selection, proxy: &Proxy) -> Outcome {
    (read(&source, wanted).await, proxy.forwarded())
}

fn postgres_server() -> String {
    let options: PgConnectOptions = postgres_url().parse().expect("a URL");
    format!("{}:{}", options.get_host(), options.get_port())
}

pub fn mariadb_server() -> String {
    let options: MySqlConnectOptions = mariadb_url().parse().expect("a URL");
    format!("{}:{}", options.get_host(), options.get_port())
}

#[tokio::test]
async fn a_cut_wire_of_postgres_is_no_end() {
    // The first travels as bytes, the second, whose type is not known, as text.
    for (what, cell) in [("bytes", "'text of row ' || n"), ("text", "'10.0.0.1'::inet + n")] {
        let sql = format!("SELECT n, {cell} AS t FROM generate_series(1, 5000) AS n");
        let wanted = query(sql, &[("n", Integer), ("t", Text)]);
        cut_often(&format!("PostgreSQL, {what}"), is_lost, async |most| {
            let proxy = Proxy::to(postgres_server(), most).await;
            let source = postgres_source(at_port(&postgres_url(), proxy.port));
            read_all(source, &wanted, &proxy).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_cut_wire_of_any_of_several_connections_is_no_end() {
    within(World::postgres().await, async |world| {
        // Large enough to be read over several.
        world
            .run(
                "CREATE TABLE many (id integer, pad text); \
                 INSERT INTO many SELECT n, repeat('x', 380) FROM generate_series(1, 60000) AS n",
            )
            .await;
        let wanted = selection(world.table("many"), &[("id", Integer), ("pad", Text)]);
        cut_often("PostgreSQL, 3 connections", is_lost, async |most| {
            let proxy = Proxy::of_all(postgres_server(), most).await;
            let url = format!("{}&connections=3", at_port(&postgres_url(), proxy.port));
            read_all(postgres_source(url), &wanted, &proxy).await
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_cut_wire_of_mariadb_is_no_end() {
    within(World::mariadb().await, async |world| {
        world
            .run(&format!(
                "CREATE TABLE numbers (n integer PRIMARY KEY); \
                 INSERT INTO numbers SELECT seq FROM {}",
                numbers(5_000)
            ))
            .await;
        let server = mariadb_server();
        let numbers = world.qualified("numbers");
        let sql = format!("SELECT n, CONCAT('text of row ', n) AS t FROM {numbers}");
        let wanted = query(sql, &[("n", Integer), ("t", Text)]);
        cut_often("MariaDB", is_lost, async |most| {
            let proxy = Proxy::to(server.clone(), most).await;
            let source = mariadb_source(at_port(&mariadb_url(), proxy.port));
            read_all(source, &wanted, &proxy).await
        })
        .await;
    })
    .await;
}

/// A file with these rows, and what asks for them.
async fn sqlite_file(world: &World, rows: u32) -> (Vec<u8>, Selection) {
    world
        .run(&format!(
            "CREATE TABLE numbers (n integer, t text); \
             WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows}) \
             INSERT INTO numbers SELECT n, 'the text of row ' || n FROM s"
        ))
        .await;
    let wanted = selection(world.table("numbers"), &[("n", Integer), ("t", Text)]);
    (std::fs::read(world.path()).expect("a file"), wanted)
}

#[tokio::test]
async fn a_torn_sqlite_file_is_no_end() {
    within(World::sqlite(), async |world| {
        let (file, wanted) = sqlite_file(world, 5_000).await;
        let torn = world.path().with_extension("torn");
        // Whatever is said of such a file.
        cut_often(
            "SQLite",
            |_| true,
            async |most| {
                let kept = file.len().min(usize::try_from(most).unwrap_or(usize::MAX));
                std::fs::write(&torn, &file[..kept]).expect("written");
                let source = connect(&SourceConfig::Sqlite { path: torn.clone() });
                (read(&source, &wanted).await, file.len() as u64)
            },
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn an_sqlite_file_that_is_torn_while_it_is_read_is_no_end() {
    within(World::sqlite(), async |world| {
        // More than may wait between reader and consumer.
        let (file, wanted) = sqlite_file(world, 100_000).await;
        let torn = world.path().with_extension("torn");
        cut_often(
            "SQLite, while it is read",
            |_| true,
            async |most| {
                std::fs::write(&torn, &file).expect("written");
                let source = connect(&SourceConfig::Sqlite { path: torn.clone() });
                let stream = source.open(&wanted).await.expect("a stream");
                let handle = std::fs::File::options().write(true).open(&torn).expect("a file");
                handle.set_len(most.min(file.len() as u64)).expect("torn");
                (rest(stream).await, file.len() as u64)
            },
        )
        .await;
    })
    .await;
}
