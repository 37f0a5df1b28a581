//! Real runs and what a broker is told of their ends.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use outport_contract::{
    job_event::{Integrity, JobCompleted, JobError, JobEvent, Protection},
    manifest::Manifest,
    signature::ResultVerifier,
};
use outport_domain::{
    crash::CrashPlan,
    failure::FailureCode,
    id::JobId,
    limits::{Limits, fixed},
    spec::Catalogue,
};
use outport_objects::memory::{Fault, Step};
use outport_store::{
    events,
    jobs::{self, ExpiredLeases, Finished},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    runs::{cancel, no_retries},
    world::{Act, World, external},
};

/// The one `job.*` event of a job.
async fn told(world: &World, job: JobId) -> JobEvent {
    let stored = events::of_job(&world.pipeline.store, world.caller.organization, job).await;
    let mut stored = stored.expect("events");
    stored.retain(|event| event.event_type.starts_with("job."));
    let [event] = stored.try_into().expect("one event");
    JobEvent::parse(event.body.as_bytes()).expect("a body that reads")
}

async fn completed(world: &World) -> (JobId, JobCompleted) {
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    match told(world, job).await {
        JobEvent::Completed(event) => (job, *event),
        JobEvent::Failed(event) => panic!("failed: {:?}", event.error()),
    }
}

/// Whoever has the external key verifies these bytes.
fn verify(integrity: &Integrity, bytes: &[u8]) {
    let verifier = || ResultVerifier::new(&external(), integrity).expect("a signature");
    let mut whole = verifier();
    whole.update(bytes);
    assert_eq!(whole.finish(), Ok(()));
    let mut more = verifier();
    more.update(bytes);
    more.update(b"\n");
    more.finish().expect_err("one byte more");
}

#[tokio::test]
async fn a_result_is_signed_as_it_is_delivered() {
    let small = [Act::Rows(3), Act::End(3)];
    let large = [Act::Wide(fixed::PART_BYTES), Act::Wide(fixed::PART_BYTES), Act::End(2)];
    let bodies = [
        json!({"resource": "order"}),
        json!({"resource": "order", "format": "JSON", "compression": "gzip"}),
        json!({"resource": "order", "format": "XLSX"}),
        json!({"resource": "order", "format": "PARQUET"}),
    ];
    for (acts, bodies) in [(&small[..], &bodies[..]), (&large[..], &bodies[..1])] {
        for body in bodies {
            let mut world = World::new().await;
            world.body = body.clone();
            world.source.plays(acts.iter().cloned());
            let (job, event) = completed(&world).await;
            let stored = world.stored(job).await;
            let row = world.job(job).await;
            let file = row.file.expect("a file");
            verify(&event.result.integrity, &stored);
            assert_eq!(event.result.hmac, event.result.integrity.signature);
            assert_eq!(file.integrity, Some(event.result.integrity), "kept with the job");
            assert_eq!(event.result.path, file.key.as_str());
            assert_eq!(event.result.size_bytes, stored.len() as u64);
            assert_eq!(event.result.format, row.format.name().to_lowercase());
            assert_eq!(event.result.protection, Protection::NONE);
        }
    }
}

#[tokio::test]
async fn an_export_without_rows_says_so_and_is_signed() {
    let world = World::new().await;
    world.source.plays([Act::End(0)]);
    let (job, event) = completed(&world).await;
    let stored = world.stored(job).await;
    assert_eq!((event.result.row_count, event.result.size_bytes), (0, stored.len() as u64));
    verify(&event.result.integrity, &stored);
}

#[tokio::test]
async fn a_split_export_is_signed_file_by_file_and_as_its_manifest() {
    let mut world = World::new().await;
    world.body = json!({"resource": "order", "maxRowsPerFile": 2});
    world.source.plays([Act::Rows(5), Act::End(5)]);
    let (job, event) = completed(&world).await;
    let text = world.stored(job).await;
    verify(&event.result.integrity, &text);
    let manifest: Manifest = serde_json::from_slice(&text).expect("a manifest");
    assert_eq!(event.result.path, world.job(job).await.file.expect("a file").key.as_str());
    assert_eq!((event.result.size_bytes, event.result.row_count), (manifest.size_bytes, 5));
    assert_eq!(manifest.files.len(), 3);
    for file in manifest.files {
        let bytes = world.memory.bytes(&file.key).expect("the file");
        verify(&Integrity::new(file.hmac.expect("a signature"), 1), &bytes);
    }
}

/// Requests an export and ends it with this code, by what really leads to it.
async fn fail(code: FailureCode) -> (World, JobId) {
    let limit = |limits: &mut Limits| {
        no_retries(limits);
        match code {
            FailureCode::SourceStalled => limits.no_progress = Duration::from_millis(300),
            FailureCode::SnapshotTooOld => limits.snapshot_age = Duration::ZERO,
            FailureCode::LimitExceeded => limits.rows_per_export = 1,
            FailureCode::WorkerLost => limits.lease = Duration::ZERO,
            _ => {}
        }
    };
    let mut world = World::with(CrashPlan::none(), limit).await;
    let broken = match code {
        FailureCode::SourceQueryFailed => Act::Fail(code),
        FailureCode::SourceStalled => Act::Hang,
        FailureCode::SourceTruncated => Act::End(3),
        FailureCode::ValueNotEncodable => Act::Wide(40_000),
        FailureCode::Internal => Act::Panic,
        _ => Act::End(2),
    };
    world.source.plays([Act::Rows(2), broken]);
    match code {
        FailureCode::ValueNotEncodable => {
            world.body = json!({"resource": "order", "format": "XLSX"});
        }
        FailureCode::StoreWriteFailed => world.memory.always_fail(Step::Put, Fault::Full),
        FailureCode::StoreMismatch => world.memory.always_fail(Step::Head, Fault::WrongSize),
        _ => {}
    }
    let job = world.request().await;
    match code {
        // What was configured at the request is gone when it runs.
        FailureCode::SourceUnreachable => world.pipeline.sources = Arc::default(),
        FailureCode::SchemaMismatch => {
            world.pipeline.catalogue = Arc::new(Catalogue(BTreeMap::new()));
        }
        _ => {}
    }
    let claim = world.claim().await;
    match code {
        FailureCode::WorkerLost => {
            let mut leases = ExpiredLeases::default();
            assert_eq!(world.pipeline.rescue(&mut leases).await.expect("seen once"), []);
            assert_eq!(world.pipeline.rescue(&mut leases).await.expect("seen twice").len(), 1);
        }
        FailureCode::Canceled => {
            cancel(&world, job).await;
            world.pipeline.run_one(claim, CancellationToken::new()).await;
        }
        _ => drop(world.pipeline.run_one(claim, CancellationToken::new()).await),
    }
    (world, job)
}

#[tokio::test]
async fn every_way_that_a_run_can_fail_is_told_once_with_its_code() {
    for code in FailureCode::ALL {
        let (world, job) = fail(code).await;
        let JobEvent::Failed(event) = told(&world, job).await else { panic!("{code}: completed") };
        let (failed_with, message) = world.job(job).await.failure.expect("a failure");
        assert_eq!(failed_with, code, "{message}");
        assert_eq!(event.error(), Some(JobError::new(code.name(), &message)));
        let canceled = code == FailureCode::Canceled;
        let export = if canceled { "export.canceled" } else { "export.failed" };
        assert_eq!(world.events(job).await, [export, "job.failed"]);
        world.assert_store_is_empty();
    }
}

#[tokio::test]
async fn a_run_that_is_canceled_at_the_very_end_is_told_as_canceled() {
    let world = World::new().await;
    world.source.plays([Act::Rows(2), Act::End(2)]);
    let job = world.request().await;
    let claim = world.claim().await;
    let (hang, pipeline) = (world.memory.hang(Step::Head), world.pipeline.clone());
    let run = tokio::spawn(async move { pipeline.run_one(claim, CancellationToken::new()).await });
    hang.reached().await;
    assert!(matches!(cancel(&world, job).await, jobs::CancelOutcome::Canceling(_)));
    hang.release();
    let finished = run.await.expect("the run ends");
    assert!(matches!(finished, Finished::Canceled(_)), "{finished:?}");
    let JobEvent::Failed(event) = told(&world, job).await else { panic!("completed") };
    assert_eq!(event.error().and_then(|error| error.code).as_deref(), Some("CANCELED"));
    world.assert_store_is_empty();
}
