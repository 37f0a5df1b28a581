//! Exports that are refused because their file could not hold their rows, and those that are not.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_domain::{
    failure::{Disposition, FailureCode},
    limits::fixed,
    locale::Locale,
    selection::Selection,
    spec::{self, ExportSpec, RequestContext},
};
use outport_pipeline::foresight::Foresight;
use outport_source::{Batch, Next, RowStream, Source, SourceError};
use serde_json::{Value, json};

use crate::world::World;

/// Longer than any test takes.
const LONG: Duration = Duration::from_mins(10);
const SHORT: Duration = Duration::from_millis(50);

/// What comes behind the rows.
#[derive(Clone, Copy)]
enum Then {
    End,
    Fail,
    Hang,
}

/// A source that expects so many rows, has so many, and notes what it is asked.
#[derive(Clone)]
struct Guessing {
    estimate: Option<u64>,
    rows: u64,
    then: Then,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Guessing {
    fn new(estimate: impl Into<Option<u64>>, rows: u64, then: Then) -> Self {
        Self { estimate: estimate.into(), rows, then, asked: Arc::default() }
    }

    fn note(&self, what: &str) {
        self.asked.lock().expect("not poisoned").push(what.to_owned());
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

#[async_trait]
impl Source for Guessing {
    async fn open(&self, selection: &Selection) -> Result<Box<dyn RowStream>, SourceError> {
        assert!(selection.order.is_empty(), "nothing has to be sorted");
        let names: Vec<&str> = selection.columns.iter().map(|column| &*column.name).collect();
        self.note(&format!("rows of {}", names.join(", ")));
        Ok(Box::new(Cells { source: self.clone(), left: self.rows }))
    }

    async fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn estimate(&self, _: &Selection) -> Result<Option<u64>, SourceError> {
        self.note("estimate");
        Ok(self.estimate)
    }
}

/// Rows of one cell.
struct Cells {
    source: Guessing,
    left: u64,
}

#[async_trait]
impl RowStream for Cells {
    fn snapshot_at(&self) -> DateTime<Utc> {
        Utc::now()
    }

    async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        batch.clear();
        let rows = self.left.min(300_000);
        self.left -= rows;
        (0..rows).for_each(|_| batch.push(b"x"));
        match self.source.then {
            _ if rows > 0 => Ok(Next::Rows),
            Then::End => Ok(Next::End { rows: self.source.rows }),
            Then::Fail => Err(broken()),
            Then::Hang => std::future::pending().await,
        }
    }

    async fn cancel(self: Box<Self>) {
        self.source.note("cancel");
    }
}

fn broken() -> SourceError {
    SourceError {
        code: FailureCode::SourceUnreachable,
        message: "as planned".to_owned(),
        disposition: Disposition::Retry,
        cause: None,
    }
}

async fn spec(body: Value) -> ExportSpec {
    let world = World::new().await;
    let context = RequestContext {
        caller: &world.caller,
        locale: Locale::En,
        requested_at: Utc::now(),
        resolved_filters: None,
    };
    spec::parse(&body.to_string(), &world.pipeline.catalogue, context).expect("a valid request")
}

async fn xlsx() -> ExportSpec {
    spec(json!({"resource": "order", "format": "XLSX", "sort": ["code"]})).await
}

const MOST: u64 = fixed::SHEET_ROWS;

#[tokio::test]
async fn what_was_expected_and_seen_to_be_too_much_is_foreseen() {
    let source = Guessing::new(3 * MOST, MOST + 1, Then::Hang);
    let foresight = Foresight::within(LONG, LONG);
    assert_eq!(foresight.overflow(&source, &xlsx().await).await, Some(MOST));
    assert_eq!(source.asked(), ["estimate", "rows of organization_id", "cancel"]);
}

#[tokio::test]
async fn an_estimate_alone_proves_nothing() {
    let source = Guessing::new(3 * MOST, MOST, Then::End);
    assert_eq!(Foresight::within(LONG, LONG).overflow(&source, &xlsx().await).await, None);
    assert_eq!(source.asked(), ["estimate", "rows of organization_id"]);
}

#[tokio::test]
async fn what_is_expected_to_fit_is_not_read() {
    for estimate in [Some(MOST), Some(0), None] {
        let source = Guessing::new(estimate, 3 * MOST, Then::End);
        let foresight = Foresight::within(LONG, LONG);
        assert_eq!(foresight.overflow(&source, &xlsx().await).await, None);
        assert_eq!(source.asked(), ["estimate"]);
    }
}

#[tokio::test]
async fn formats_without_a_limit_and_split_files_are_not_asked_about() {
    for body in [
        json!({"resource": "order", "format": "CSV"}),
        json!({"resource": "order", "format": "PARQUET"}),
        json!({"resource": "order", "format": "XLSX", "maxRowsPerFile": 1000}),
    ] {
        let source = Guessing::new(3 * MOST, 3 * MOST, Then::End);
        let spec = spec(body).await;
        assert_eq!(Foresight::within(LONG, LONG).overflow(&source, &spec).await, None);
        assert_eq!(source.asked(), [""; 0]);
    }
}

#[tokio::test]
async fn a_source_that_is_slow_or_broken_is_no_reason_to_refuse() {
    let spec = xlsx().await;
    for then in [Then::Hang, Then::Fail] {
        let source = Guessing::new(3 * MOST, 10, then);
        assert_eq!(Foresight::within(LONG, SHORT).overflow(&source, &spec).await, None);
        assert_eq!(source.asked().len(), 2);
    }
    assert_eq!(Foresight::within(SHORT, LONG).overflow(&Silent, &spec).await, None);
}

/// A source that never answers.
struct Silent;

#[async_trait]
impl Source for Silent {
    async fn open(&self, _: &Selection) -> Result<Box<dyn RowStream>, SourceError> {
        std::future::pending().await
    }

    async fn check(&self) -> Result<(), SourceError> {
        std::future::pending().await
    }

    async fn estimate(&self, _: &Selection) -> Result<Option<u64>, SourceError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn one_at_a_time_looks_ahead_and_the_others_go_on() {
    let foresight = Foresight::within(LONG, LONG);
    let spec = xlsx().await;
    let source = Guessing::new(3 * MOST, MOST + 1, Then::Hang);
    tokio::select! {
        biased;
        _ = foresight.overflow(&Silent, &spec) => panic!("it waits for ever"),
        passed = foresight.overflow(&source, &spec) => assert_eq!(passed, None),
    }
    assert_eq!(source.asked(), [""; 0]);
    // The first has given up, and its turn with it.
    assert_eq!(foresight.overflow(&source, &spec).await, Some(MOST));
}
