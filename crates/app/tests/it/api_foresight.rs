//! Exports that are refused because their rows are known to be too many for their file.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_domain::{limits::fixed, selection::Selection};
use outport_source::{Batch, Next, RowStream, Source, SourceError};
use serde_json::{Value, json as j};

use crate::api_world::{Options, World, id_of, json};

const XLSX: &str = r#"{"resource":"order","format":"XLSX"}"#;

/// A table of so many rows, which its planner knows.
#[derive(Clone)]
struct Table(Arc<AtomicU64>);

#[async_trait]
impl Source for Table {
    async fn open(&self, _: &Selection) -> Result<Box<dyn RowStream>, SourceError> {
        Ok(Box::new(Rows { left: self.0.load(Ordering::Relaxed), given: 0 }))
    }

    async fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn estimate(&self, _: &Selection) -> Result<Option<u64>, SourceError> {
        Ok(Some(self.0.load(Ordering::Relaxed)))
    }
}

struct Rows {
    left: u64,
    given: u64,
}

#[async_trait]
impl RowStream for Rows {
    fn snapshot_at(&self) -> DateTime<Utc> {
        Utc::now()
    }

    async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        batch.clear();
        let rows = self.left.min(100_000);
        (0..rows).for_each(|_| batch.push(b"x"));
        self.left -= rows;
        self.given += rows;
        Ok(if rows > 0 { Next::Rows } else { Next::End { rows: self.given } })
    }

    async fn cancel(self: Box<Self>) {}
}

fn with_rows(rows: u64) -> (Options, Arc<AtomicU64>) {
    let table = Table(Arc::new(AtomicU64::new(rows)));
    let rows = Arc::clone(&table.0);
    (Options { source: Some(Arc::new(table)), ..Options::default() }, rows)
}

async fn ask(world: &World, body: &'static str, key: Option<&str>) -> (u16, Value) {
    let mut request = world.post("/v1/exports").header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let (status, answer) = json(request.body(body).send().await.expect("an answer")).await;
    (status.as_u16(), answer)
}

#[tokio::test]
async fn a_sheet_that_would_overflow_is_refused_with_what_to_do_and_nothing_is_stored() {
    let (options, _) = with_rows(fixed::SHEET_ROWS + 1);
    World::on_sqlite(options, async |world| {
        let (status, problem) = ask(world, XLSX, None).await;
        assert_eq!(status, 422, "{problem}");
        assert_eq!(problem["errors"][0]["field"], "format");
        assert_eq!(problem["errors"][0]["code"], "LIMIT_EXCEEDED");
        let message = problem["errors"][0]["message"].as_str().expect("a message");
        assert!(message.contains("1048575") && message.contains("maxRowsPerFile"), "{message}");
        assert_eq!(world.jobs().await.len(), 0);

        for body in [
            r#"{"resource":"order","format":"XLSX","maxRowsPerFile":500000}"#,
            r#"{"resource":"order","format":"CSV"}"#,
        ] {
            let (status, answer) = ask(world, body, None).await;
            assert_eq!(status, 202, "{answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_key_stands_for_its_job_also_when_the_rows_have_become_too_many() {
    let (options, rows) = with_rows(fixed::SHEET_ROWS);
    World::on_sqlite(options, async |world| {
        let (status, job) = ask(world, XLSX, Some("monthly")).await;
        assert_eq!(status, 202, "{job}");
        rows.store(fixed::SHEET_ROWS * 2, Ordering::Relaxed);
        let (status, repeated) = ask(world, XLSX, Some("monthly")).await;
        assert_eq!((status, id_of(&repeated)), (200, id_of(&job)));
        let (status, other) = ask(world, XLSX, Some("another")).await;
        assert_eq!((status, other["code"].clone()), (422, j!("INVALID_REQUEST")));
    })
    .await;
}
