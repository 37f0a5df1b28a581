//! How fast events are appended to channels on `PostgreSQL`: `cargo bench -p outport-store`.
//!
//!   cargo bench -p outport-store --bench append -- [SECONDS [TRANSACTIONS]] [URL]
//!
//! The URL is of a server whose user may create databases.
//!
//! Prints one line of JSON a case: `spread`, one event a transaction by sixteen writers on 64
//! channels, taking turns with as many writers of a plain table with an identity column; `hot`,
//! ten events a transaction on one channel; `random`, TRANSACTIONS (100,000) over three channels
//! in random order. Fails when a transaction fails, or when a channel has not all its numbers.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use outport_contract::stream::{self, Scope};
use outport_store::{Store, StoreConfig, channels::NewEvent};
use sea_orm::{
    ConnectOptions, ConnectionTrait as _, Database, DatabaseConnection, DbBackend, Statement,
    TransactionTrait as _,
};
use uuid::Uuid;

const WRITERS: usize = 16;
const CHANNELS: usize = 64;
const ROUNDS: usize = 5;
const DATA: &str = r#"{"stage":"generate","done":123456,"total":1000000,"totalIsEstimate":true}"#;

#[tokio::main]
async fn main() {
    let mut numbers = env::args().filter_map(|argument| argument.parse::<u64>().ok());
    let time = Duration::from_secs(numbers.next().unwrap_or(10));
    let transactions = numbers.next().unwrap_or(100_000);
    let server = env::args().find(|argument| argument.starts_with("postgres"));
    let server = server.unwrap_or_else(|| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
    let (before, _) = server.rsplit_once('/').expect("a URL with a database");
    let name = format!("outport_append_{}", Uuid::now_v7().simple());
    let admin = Database::connect(&server).await.expect("PostgreSQL is reachable");
    admin.execute_unprepared(&format!("CREATE DATABASE {name}")).await.expect("a database");
    let stage = Stage::make(format!("{before}/{name}")).await;
    let measured = tokio::spawn(measure(stage, time, transactions)).await;
    let drop = format!("DROP DATABASE {name} WITH (FORCE)");
    admin.execute_unprepared(&drop).await.expect("dropped");
    measured.expect("every case ends well");
}

async fn measure(stage: Stage, time: Duration, transactions: u64) {
    stage.spread(time / (2 * ROUNDS as u32)).await;
    stage.hot(time).await;
    stage.random(transactions).await;
    stage.assert_whole().await;
    stage.store.close().await;
}

/// A database with both kinds of tables.
struct Stage {
    store: Store,
    plain: DatabaseConnection,
    scopes: Arc<Vec<Scope>>,
}

impl Stage {
    async fn make(url: String) -> Self {
        let mut options = ConnectOptions::new(&url);
        options.min_connections(WRITERS as u32).max_connections(WRITERS as u32);
        options.test_before_acquire(false).sqlx_logging(false);
        let plain = Database::connect(options).await.expect("connections");
        let acquire_timeout = Duration::from_secs(30);
        // One more tells other processes.
        let config = StoreConfig { url, max_connections: WRITERS as u32 + 1, acquire_timeout };
        let store = Store::connect(&config).await.expect("the store connects");
        store.migrate().await.expect("the schema");
        let table = "CREATE TABLE plain (sequence BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
             id UUID NOT NULL, organization_id UUID NOT NULL, event_type TEXT NOT NULL, \
             scope TEXT NOT NULL, data TEXT NOT NULL, time BIGINT NOT NULL)";
        plain.execute_unprepared(table).await.expect("a table");
        let organization = Uuid::now_v7();
        let scope = |_| Scope::of_job(organization, "shop", Uuid::now_v7());
        Self { store, plain, scopes: Arc::new((0..CHANNELS).map(scope).collect()) }
    }

    /// Both kinds take turns; the medians are compared.
    async fn spread(&self, time: Duration) {
        let (mut appended, mut inserted) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            appended.push(self.append_for(time, WRITERS, CHANNELS, 1).await);
            inserted.push(self.insert_for(time).await);
        }
        let (appended, inserted) = (median(appended), median(inserted));
        let ratio = appended / inserted;
        println!(
            "{{\"case\":\"spread\",\"appended\":{appended:.0},\"plain\":{inserted:.0},\
             \"ratio\":{ratio:.2}}}"
        );
    }

    async fn hot(&self, time: Duration) {
        let events = self.append_for(time, WRITERS, 1, 10).await;
        println!("{{\"case\":\"hot\",\"events\":{events:.0}}}");
    }

    async fn random(&self, transactions: u64) {
        let (left, began) = (Arc::new(AtomicU64::new(transactions)), Instant::now());
        let writer = |_| {
            let (store, scopes, left) =
                (self.store.clone(), Arc::clone(&self.scopes), Arc::clone(&left));
            tokio::spawn(async move {
                let take = |left: u64| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    let mut chosen = [0, 1, 2];
                    chosen.swap(0, rand::random_range(0..3));
                    chosen.swap(1, rand::random_range(1..3));
                    let some = &chosen[..rand::random_range(1..=3)];
                    append(&store, some.iter().map(|at| &scopes[*at])).await;
                }
            })
        };
        join((0..WRITERS).map(writer).collect()).await;
        let rate = transactions as f64 / began.elapsed().as_secs_f64();
        println!("{{\"case\":\"random\",\"transactions\":{transactions},\"perSecond\":{rate:.0}}}");
    }

    /// Events a second.
    async fn append_for(
        &self,
        time: Duration,
        writers: usize,
        channels: usize,
        events: usize,
    ) -> f64 {
        let began = Instant::now();
        let writer = |_| {
            let (store, scopes) = (self.store.clone(), Arc::clone(&self.scopes));
            tokio::spawn(async move {
                let mut done = 0;
                while began.elapsed() < time {
                    let scope = &scopes[rand::random_range(0..channels)];
                    append(&store, std::iter::repeat_n(scope, events)).await;
                    done += events;
                }
                done
            })
        };
        let done = join((0..writers).map(writer).collect()).await;
        done.iter().sum::<usize>() as f64 / began.elapsed().as_secs_f64()
    }

    /// Rows a second of the plain table.
    async fn insert_for(&self, time: Duration) -> f64 {
        let began = Instant::now();
        let writer = |_| {
            let (plain, scopes) = (self.plain.clone(), Arc::clone(&self.scopes));
            tokio::spawn(async move {
                let mut done = 0;
                while began.elapsed() < time {
                    let scope = &scopes[rand::random_range(0..CHANNELS)];
                    insert(&plain, scope).await;
                    done += 1;
                }
                done
            })
        };
        let done = join((0..WRITERS).map(writer).collect()).await;
        done.iter().sum::<usize>() as f64 / began.elapsed().as_secs_f64()
    }

    async fn assert_whole(&self) {
        let wrong = "SELECT COUNT(*) AS wrong FROM channels c WHERE head <> \
             (SELECT COUNT(*) FROM channel_events p WHERE p.channel = c.channel) OR head <> \
             (SELECT MAX(sequence) FROM channel_events p WHERE p.channel = c.channel)";
        let statement = Statement::from_string(DbBackend::Postgres, wrong);
        let row = self.plain.query_one_raw(statement).await.expect("an answer").expect("a row");
        let wrong: i64 = row.try_get("", "wrong").expect("a number");
        assert_eq!(wrong, 0, "channels with gaps");
    }
}

async fn append(store: &Store, scopes: impl Iterator<Item = &Scope>) {
    // Of its job's channel alone.
    let event_type = stream::find("stage.progress").expect("a type of the catalogue");
    let mut tx = store.begin().await.expect("a transaction");
    for scope in scopes {
        tx.append(NewEvent::new(event_type, scope.clone(), DATA.to_owned()));
    }
    tx.commit().await.expect("a commit");
}

async fn insert(plain: &DatabaseConnection, scope: &Scope) {
    let tx = plain.begin().await.expect("a transaction");
    let scope_text = serde_json::to_string(scope).expect("JSON");
    let statement = Statement::from_sql_and_values(
        DbBackend::Postgres,
        "INSERT INTO plain (id, organization_id, event_type, scope, data, time) \
         VALUES ($1, $2, $3, $4, $5, FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT)",
        [
            Uuid::now_v7().into(),
            scope.organization.into(),
            "stage.progress".into(),
            scope_text.into(),
            DATA.into(),
        ],
    );
    tx.execute_raw(statement).await.expect("a row");
    tx.commit().await.expect("a commit");
}

async fn join<T>(writers: Vec<tokio::task::JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::with_capacity(writers.len());
    for writer in writers {
        results.push(writer.await.expect("a writer ends well"));
    }
    results
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}
