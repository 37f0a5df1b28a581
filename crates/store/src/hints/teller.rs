//! Other processes are told of channels after the commit, by NOTIFY in a transaction of its own:
//! `PostgreSQL` lets transactions with a NOTIFY commit one after the other only, each with its own
//! write to the disk. What is lost on the way is found by who polls.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use sea_orm::{ConnectionTrait as _, DatabaseConnection};
use tokio::{sync::Notify, task::AbortHandle};

use super::STREAM;
use crate::{Engine, StoreError};

/// The channels that are still to be told of.
#[derive(Debug, Default)]
struct Waiting {
    channels: Mutex<BTreeSet<String>>,
    news: Notify,
}

/// Tells other processes where events were appended.
#[derive(Debug)]
pub(crate) struct Teller {
    waiting: Arc<Waiting>,
    task: AbortHandle,
}

impl Teller {
    /// Begins to tell, over this pool, until aborted.
    pub(crate) fn start(pool: DatabaseConnection) -> Self {
        let waiting = Arc::new(Waiting::default());
        let task = tokio::spawn(tell_all(pool, Arc::clone(&waiting))).abort_handle();
        Self { waiting, task }
    }

    /// Something was appended to these channels.
    pub(crate) fn tell(&self, channels: &[String]) {
        if !channels.is_empty() {
            self.waiting.lock().extend(channels.iter().cloned());
            self.waiting.news.notify_one();
        }
    }

    pub(crate) fn abort(&self) {
        self.task.abort();
    }
}

impl Waiting {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        // A set is whole at any time.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One statement at a time: what comes meanwhile is told by the next.
async fn tell_all(pool: DatabaseConnection, waiting: Arc<Waiting>) {
    loop {
        waiting.news.notified().await;
        let channels = std::mem::take(&mut *waiting.lock());
        if channels.is_empty() {
            continue;
        }
        let channels = serde_json::Value::from_iter(channels).to_string();
        let sql = "SELECT pg_notify($1, c) FROM json_array_elements_text($2::json) AS c";
        let statement = Engine::Postgres.statement(sql, [STREAM.into(), channels.into()]);
        if let Err(error) = pool.query_all_raw(statement).await {
            let error = StoreError::from(error);
            tracing::debug!(%error, "other processes find by themselves what was appended");
        }
    }
}
