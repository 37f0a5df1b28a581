//! What was restored, or took over, has an epoch of its own.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use outport_contract::stream::{self, Channel, Scope};
use outport_store::{
    Engine, Store, StoreConfig,
    channels::{self, NewEvent, Replayed},
};
use uuid::Uuid;

use crate::bench;

async fn append(store: &Store, job: Uuid) {
    let event_type = stream::find("turn.started").expect("a type of the catalogue");
    let mut tx = store.begin().await.expect("a transaction");
    let scope = Scope::of_job(Uuid::nil(), "shop", job);
    tx.append(NewEvent::new(event_type, scope, "{}".to_owned()));
    tx.commit().await.expect("a commit");
}

/// A program of PostgreSQL: of the folder that the environment says, or else of the path.
fn program(name: &str) -> Command {
    let folder = std::env::var_os("OUTPORT_TEST_POSTGRES_PROGRAMS").map(PathBuf::from);
    Command::new(folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name)))
}

fn run(command: &mut Command) {
    let output = command.output().expect("a program of PostgreSQL");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn dump(from: &StoreConfig, what: &str, file: &Path) {
    run(program("pg_dump").args(["--no-owner", what, "--file"]).arg(file).arg(&from.url));
}

fn restore(file: &Path, to: &StoreConfig) {
    let quiet = ["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--file"];
    run(program("psql").args(quiet).arg(file).arg(&to.url));
}

/// Copies a database as people do who restore a backup.
fn dump_and_restore(from: &StoreConfig, to: &StoreConfig) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dump.sql");
    dump(from, "--format=plain", &file);
    restore(&file, to);
}

#[tokio::test]
async fn a_database_that_was_restored_from_a_dump_has_its_own_epoch() {
    let (config, _) = bench::fresh(Engine::Postgres).await;
    let (copy, _) = bench::fresh(Engine::Postgres).await;
    let store = Store::connect(&config).await.expect("the store connects");
    store.migrate().await.expect("the schema");
    let job = Uuid::now_v7();
    append(&store, job).await;
    let before = channels::epoch(&store).await.expect("an epoch");
    dump_and_restore(&config, &copy);
    // What came after the backup.
    append(&store, job).await;
    store.close().await;

    let store = Store::connect(&copy).await.expect("the store connects");
    store.migrate().await.expect("the schema");
    append(&store, job).await;
    let asked = channels::replay(&store, &Channel::Job(job), 1, Some(&before), 10).await;
    let after = channels::epoch(&store).await.expect("an epoch");
    store.close().await;
    bench::remove(Engine::Postgres, &copy).await;
    bench::remove(Engine::Postgres, &config).await;
    assert_ne!(after, before);
    // It would have got another second event than the one that it may have seen.
    assert!(matches!(asked, Ok(Replayed::Resync(page)) if page.epoch == after && page.head == 2));
}

/// The tables stay the same ones; nothing but who wrote the row tells of the restore.
#[tokio::test]
async fn a_database_whose_data_alone_was_put_back_has_its_own_epoch() {
    bench::run(Engine::Postgres, async |bench| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("data.sql");
        let job = Uuid::now_v7();
        append(&bench.store, job).await;
        let before = channels::epoch(&bench.store).await.expect("an epoch");
        bench.force("VACUUM (FULL, FREEZE) epochs").await;
        bench.store.migrate().await.expect("a restart");
        assert_eq!(channels::epoch(&bench.store).await.expect("an epoch"), before, "the same row");
        dump(&bench.config, "--data-only", &file);
        append(&bench.store, job).await;
        let empty = "DO $$ BEGIN EXECUTE (SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ') \
             FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace); END $$";
        bench.force(empty).await;
        restore(&file, &bench.config);
        bench.store.migrate().await.expect("a restart");
        let asked = channels::replay(&bench.store, &Channel::Job(job), 1, Some(&before), 10).await;
        assert!(matches!(asked, Ok(Replayed::Resync(page)) if page.epoch != before));
    })
    .await;
}

/// Behind a running process another server takes over: it is told by what the epoch is bound to.
#[tokio::test]
async fn who_is_connected_anew_looks_at_the_epoch_again() {
    bench::run(Engine::Postgres, async |bench| {
        let before = channels::epoch(&bench.store).await.expect("an epoch");
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND query LIKE 'LISTEN%'";
        let mut hints = bench.store.subscribe_to_channels();
        bench.force(cut).await;
        // It is heard of when the connection is there again.
        hints.recv().await.expect("a hint");
        assert_eq!(channels::epoch(&bench.store).await.expect("an epoch"), before, "the same");
        bench.force("UPDATE epochs SET bound_to = 'another server'").await;
        bench.force(cut).await;
        let renewed = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                hints.recv().await.expect("a hint");
                let now = channels::epoch(&bench.store).await.expect("an epoch");
                if now != before {
                    return now;
                }
            }
        });
        let after = renewed.await.expect("in time");
        assert_ne!(after, before);
        bench.store.migrate().await.expect("a restart");
        assert_eq!(channels::epoch(&bench.store).await.expect("an epoch"), after);
    })
    .await;
}
