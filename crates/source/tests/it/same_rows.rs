//! The same filters give the same rows on every engine: random tables, random filters as requests
//! write them, and a naive reading of what they mean.

mod filters;
mod table;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use outport_domain::{
    column::ColumnType,
    filter::{FilterContext, parse},
    json::FieldErrors,
    resource::Resource,
    selection::Predicate,
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::value::RawValue;

use crate::world::{World, ordered, read, selection, texts, within};
use filters::Filters;
use table::{COLUMNS, Row};

/// Tables of one test, and filters for each.
const TABLES: u64 = 15;
const FILTERS: usize = 15;

/// Zones whose clocks change at all hours, midnight among them, or have lost a day.
const ZONES: [Tz; 7] = [
    Tz::UTC,
    Tz::America__Sao_Paulo,
    Tz::Asia__Kathmandu,
    Tz::Europe__Berlin,
    Tz::America__Havana,
    Tz::Pacific__Apia,
    Tz::Africa__Monrovia,
];

fn resource() -> Resource {
    let columns: String = COLUMNS.iter().map(table::Column::declared).collect();
    Resource::from_toml(&format!(
        "name = \"thing\"\nconnection = \"c\"\nfrom = \"things\"\n\
         [scope]\norganization = \"organization\"\n{columns}"
    ))
    .expect("a resource")
}

fn predicate(filters: &Filters, resource: &Resource, now: DateTime<Utc>, zone: Tz) -> Predicate {
    let json = filters.json().to_string();
    let raw = RawValue::from_string(json).expect("JSON");
    let mut errors = FieldErrors::default();
    let context = FilterContext { visible: &|_| true, zone, now, resolved: false };
    let predicate = parse(&raw, resource, context, &mut errors);
    assert!(errors.is_empty(), "{raw}: {:?}", errors.into_vec());
    predicate
}

async fn rows_of(world: &World, predicate: Predicate) -> Result<Vec<String>, String> {
    let mut wanted =
        ordered(selection(world.table("things"), &[("id", ColumnType::Integer)]), "id");
    wanted.predicate = predicate;
    let rows = read(&world.source(), &wanted).await.map_err(|error| format!("{error:?}"))?;
    Ok(texts(&rows).into_iter().map(|mut row| row.remove(0)).collect())
}

/// What a filter gives on an engine and what it should, where they differ.
async fn difference(
    world: &World,
    filters: &Filters,
    rows: &[Row],
    (resource, now, zone): (&Resource, DateTime<Utc>, Tz),
) -> Option<String> {
    let expected: Vec<String> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| filters.pass(row, now, zone))
        .map(|(id, _)| id.to_string())
        .collect();
    let found = rows_of(world, predicate(filters, resource, now, zone)).await;
    (found.as_ref() != Ok(&expected)).then(|| {
        let engine = world.pick("PostgreSQL", "MariaDB", "SQLite");
        format!("{engine} in {zone}: {}\nexpected {expected:?}\nfound    {found:?}", filters.json())
    })
}

async fn a_table(worlds: &[&World], seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let rows = table::rows(&mut random);
    for world in worlds {
        table::fill(world, &rows).await;
    }
    let resource = resource();
    for _ in 0..FILTERS {
        let zone = *ZONES.choose(&mut random).expect("zones");
        let now = table::day(&mut random).max("1000-01-01".parse().expect("a day"));
        let now = now.min("9900-01-01".parse().expect("a day"));
        let now = now.and_time(table::time(&mut random)).and_utc();
        let filters = Filters::random(&rows, &mut random);
        for world in worlds {
            let context = (&resource, now, zone);
            let Some(whole) = difference(world, &filters, &rows, context).await else { continue };
            for part in filters.parts() {
                if let Some(part) = difference(world, &part, &rows, context).await {
                    panic!("seed {seed}, now {now}\n{part}\n{}\n", shown(&rows));
                }
            }
            panic!("seed {seed}, now {now}\n{whole}");
        }
    }
}

fn shown(rows: &[Row]) -> String {
    let lines = rows.iter().enumerate().map(|(id, row)| format!("{id} {row:?}"));
    lines.collect::<Vec<_>>().join("\n")
}

async fn tables(seeds: impl Iterator<Item = u64>) {
    within(World::sqlite(), async |sqlite| {
        within(World::postgres().await, async |postgres| {
            within(World::mariadb().await, async |mariadb| {
                for seed in seeds {
                    a_table(&[sqlite, postgres, mariadb], seed).await;
                }
            })
            .await;
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn every_engine_gives_the_rows_that_the_filters_mean() {
    // With --soak, for as many tables as a night has, and others each night.
    let (first, count) = if std::env::var_os("OUTPORT_TEST_SOAK").is_some() {
        (rand::rng().random(), 40 * TABLES)
    } else {
        (1, TABLES)
    };
    tables((0..count).map(|more| u64::wrapping_add(first, more))).await;
}
