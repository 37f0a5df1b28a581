//! One conformance suite, run on both engines. `PostgreSQL` is found by
//! `OUTPORT_TEST_POSTGRES`; every test makes a database of its own and drops it.

mod bench;
mod stream;

/// Runs each of these functions on `SQLite` and on `PostgreSQL`.
macro_rules! on_both_engines {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::bench::run(outport_store::Engine::Sqlite, super::$name).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::bench::run(outport_store::Engine::Postgres, super::$name).await;
            })*
        }
    };
}

mod access;
mod broken_off;
mod canceling;
mod channel_retention;
mod channel_writers;
mod channels;
mod claiming;
mod connecting;
mod counters;
mod delivering;
mod ending;
mod epochs;
mod handlers;
mod hints;
mod job_events;
mod lists;
mod parts;
mod positions;
mod schema;
mod submitting;
mod sweeping;
mod telling;
mod waiting;
