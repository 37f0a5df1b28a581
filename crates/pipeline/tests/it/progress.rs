//! How far a run says it is (rule 5).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use outport_domain::{
    job::{JobStatus, Progress, Stage},
    selection::Selection,
};
use outport_pipeline::Pipeline;
use outport_source::{Batch, Next, RowStream, Source, SourceError};
use outport_store::jobs;

use crate::world::{Act, Scripted, World, until};

/// A source that expects so many rows, whatever it gives.
struct Guessing(Scripted, Option<u64>);

#[async_trait]
impl Source for Guessing {
    async fn open(&self, selection: &Selection) -> Result<Box<dyn RowStream>, SourceError> {
        Ok(Box::new(GuessedRows(self.0.open(selection).await?, self.1)))
    }

    async fn check(&self) -> Result<(), SourceError> {
        self.0.check().await
    }
}

struct GuessedRows(Box<dyn RowStream>, Option<u64>);

#[async_trait]
impl RowStream for GuessedRows {
    fn snapshot_at(&self) -> DateTime<Utc> {
        self.0.snapshot_at()
    }

    fn estimated_rows(&self) -> Option<u64> {
        self.1
    }

    async fn next(&mut self, batch: &mut Batch) -> Result<Next, SourceError> {
        self.0.next(batch).await
    }

    async fn cancel(self: Box<Self>) {
        self.0.cancel().await;
    }
}

/// A world whose source expects so many rows.
async fn expecting(estimate: Option<u64>) -> World {
    let mut world = World::with(outport_domain::crash::CrashPlan::none(), |limits| {
        limits.heartbeat = Duration::from_millis(50);
    })
    .await;
    let source: Arc<dyn Source> = Arc::new(Guessing(world.source.clone(), estimate));
    let sources = Arc::new(BTreeMap::from([("shop".to_owned(), source)]));
    world.pipeline = Pipeline { sources, ..world.pipeline };
    world
}

/// The progress of a run that has given so many rows and goes on.
async fn half_way(world: &World, rows: u64) -> Progress {
    world.source.plays([Act::Rows(rows), Act::Hang]);
    let (job, run) = world.start().await;
    until(Duration::from_mins(1), "the rows are told", async || {
        world.job(job).await.progress.done == rows
    })
    .await;
    let progress = world.job(job).await.progress;
    let mut tx = world.pipeline.store.begin().await.expect("a transaction");
    jobs::request_cancel(&mut tx, world.caller.organization, job).await.expect("asked");
    tx.commit().await.expect("committed");
    run.await.expect("the run ends");
    progress
}

#[tokio::test]
async fn an_estimate_is_the_total_as_long_as_it_is_not_reached() {
    let world = expecting(Some(10)).await;
    let generate = Some(Stage::Generate);
    assert_eq!(
        half_way(&world, 4).await,
        Progress { stage: generate, done: 4, total: Some(10), total_is_estimate: true }
    );
    for reached in [10, 25] {
        assert_eq!(
            half_way(&world, reached).await,
            Progress { stage: generate, done: reached, total: None, total_is_estimate: false },
            "nobody knows how many more there are"
        );
    }
}

#[tokio::test]
async fn the_end_is_exact_whatever_was_expected() {
    for estimate in [None, Some(1), Some(4), Some(1_000)] {
        let world = expecting(estimate).await;
        world.source.plays([Act::Rows(3), Act::Rows(1), Act::End(4)]);
        let (job, _) = world.export().await;
        let job = world.job(job).await;
        assert_eq!(job.status, JobStatus::Completed);
        let Progress { done, total, total_is_estimate, .. } = job.progress;
        assert_eq!((done, total, total_is_estimate), (4, Some(4), false), "{estimate:?}");
    }
}
