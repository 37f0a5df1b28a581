//! Migrations and connections.

use std::sync::Arc;

use outport_store::{Engine, Store, StoreError};
use tokio::sync::Barrier;

use crate::bench::{Bench, fresh, remove};

on_both_engines!(
    migrating_twice_changes_nothing,
    a_store_says_whether_it_is_migrated,
    four_processes_migrate_at_once,
    a_closed_store_is_unreachable,
    errors_show_neither_addresses_nor_values,
);

async fn migrating_twice_changes_nothing(bench: Bench) {
    let before = bench.count("SELECT COUNT(*) FROM seaql_migrations").await;
    bench.store.migrate().await.expect("nothing to do");
    assert_eq!(bench.count("SELECT COUNT(*) FROM seaql_migrations").await, before);
    bench.store.check().await.expect("it answers");
}

async fn a_store_says_whether_it_is_migrated(bench: Bench) {
    assert!(bench.store.is_migrated().await.expect("an answer"));
    bench.force("DELETE FROM seaql_migrations WHERE version LIKE 'm0003%'").await;
    assert!(!bench.store.is_migrated().await.expect("an answer"));
    bench.force("DROP TABLE seaql_migrations").await;
    assert!(!bench.store.is_migrated().await.expect("an answer"), "never migrated");
}

async fn four_processes_migrate_at_once(bench: Bench) {
    let engine = bench.store.engine();
    let (config, _folder) = fresh(engine).await;
    let stores = (0..4).map(|_| {
        let config = config.clone();
        tokio::spawn(async move {
            let store = Store::connect(&config).await.expect("the store connects");
            store.migrate().await.expect("the schema is made or there");
            assert!(store.is_migrated().await.expect("an answer"));
            store.close().await;
        })
    });
    for store in stores.collect::<Vec<_>>() {
        store.await.expect("no panic");
    }
    remove(engine, &config).await;
}

/// `SQLite` itself waits for nobody who turns a file into WAL at the same moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_file_is_connected_to_by_four_at_once() {
    for _ in 0..50 {
        let (config, _folder) = fresh(Engine::Sqlite).await;
        let at_once = Arc::new(Barrier::new(4));
        let stores = (0..4).map(|_| {
            let (config, at_once) = (config.clone(), Arc::clone(&at_once));
            tokio::spawn(async move {
                at_once.wait().await;
                Store::connect(&config).await.expect("the store connects").close().await;
            })
        });
        for store in stores.collect::<Vec<_>>() {
            store.await.expect("no panic");
        }
    }
}

async fn a_closed_store_is_unreachable(bench: Bench) {
    let store = Store::connect(&bench.config).await.expect("the store connects");
    store.close().await;
    assert!(matches!(store.check().await, Err(StoreError::Unreachable(_))));
    assert!(matches!(store.begin().await, Err(StoreError::Unreachable(_))));
}

async fn errors_show_neither_addresses_nor_values(bench: Bench) {
    let mut config = bench.config.clone();
    config.acquire_timeout = std::time::Duration::from_secs(2);
    config.url = match bench.store.engine() {
        Engine::Sqlite => "sqlite:///proc/no-such-folder/state.db".to_owned(),
        Engine::Postgres => "postgres://ana:secret@127.0.0.1:1/db".to_owned(),
    };
    let Err(error) = Store::connect(&config).await else { panic!("connected to nothing") };
    assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
    assert_eq!(error.to_string(), "the state database cannot be reached");
    "mysql://ana:secret@db/x".clone_into(&mut config.url);
    let Err(error) = Store::connect(&config).await else { panic!("connected to nothing") };
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}
