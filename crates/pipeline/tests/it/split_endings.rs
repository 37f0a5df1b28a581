//! What a split export leaves behind, for every way that its run can go: nothing, or all of it.

use std::time::Duration;

use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    failure::FailureCode,
    id::JobId,
    job::JobStatus,
    limits::{Limits, fixed},
};
use outport_objects::memory::{Fault, Step};
use outport_store::jobs::{self, CancelOutcome, Finished};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    runs::{assert_failed, cancel, no_retries, take_lease},
    world::{Act, World},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// The crash points of a run that has begun to write; the first of them when files of it are
/// there and others are not.
const WRITING: [CrashPoint; 4] =
    [CrashPoint::MidRows, CrashPoint::MidUpload, CrashPoint::AfterUpload, CrashPoint::AfterVerify];

async fn world(crash: CrashPlan, limit: impl FnOnce(&mut Limits)) -> World {
    let mut world = World::with(crash, limit).await;
    world.body = json!({"resource": "order", "maxRowsPerFile": 2});
    world
}

/// Five rows in three files: small ones, or each uploaded in parts.
fn acts(large: bool) -> Vec<Act> {
    if large {
        std::iter::repeat_n(Act::Wide(fixed::PART_BYTES), 5).chain([Act::End(5)]).collect()
    } else {
        vec![Act::Rows(5), Act::End(5)]
    }
}

#[tokio::test]
async fn a_cancel_at_any_point_leaves_no_file() {
    for point in WRITING {
        let (plan, gate) = CrashPlan::pausing(point);
        let world = world(plan, |_| {}).await;
        world.source.plays(acts(false));
        let job = world.request().await;
        let (claim, pipeline) = (world.claim().await, world.pipeline.clone());
        let run =
            tokio::spawn(async move { pipeline.run_one(claim, CancellationToken::new()).await });
        gate.reached(PATIENCE).await;
        assert!(matches!(cancel(&world, job).await, CancelOutcome::Canceling(_)));
        gate.open();
        let finished = run.await.expect("the run ends");
        assert!(matches!(finished, Finished::Canceled(_)), "{point}: {finished:?}");
        world.assert_store_is_empty();
    }
}

#[tokio::test]
async fn what_a_dead_run_left_is_swept_file_by_file() {
    for (point, large, left) in [
        (CrashPoint::MidRows, false, 2),
        (CrashPoint::MidUpload, true, 0),
        (CrashPoint::AfterUpload, false, 4),
        (CrashPoint::AfterVerify, true, 4),
    ] {
        let (plan, gate) = CrashPlan::pausing(point);
        let world = world(plan, |_| {}).await;
        world.source.plays(acts(large));
        let job = world.request().await;
        let (claim, pipeline) = (world.claim().await, world.pipeline.clone());
        let fence = claim.fence;
        let run =
            tokio::spawn(async move { pipeline.run_one(claim, CancellationToken::new()).await });
        gate.reached(PATIENCE).await;
        run.abort();
        assert!(run.await.expect_err("dropped").is_cancelled());
        assert_eq!(world.memory.keys().len(), left, "{point}: {:?}", world.memory.keys());
        take_lease(&world, &fence).await;
        assert!(matches!(cancel(&world, job).await, CancelOutcome::Canceled(_)));
        world.pipeline.sweep().await.expect("swept");
        world.assert_store_is_empty();
    }
}

#[tokio::test]
async fn a_run_that_lost_its_lease_takes_its_files_away_and_none_of_the_other() {
    for point in WRITING {
        let (plan, gate) = CrashPlan::pausing(point);
        let world = world(plan, |limits| limits.job_backoff = Duration::ZERO).await;
        world.source.plays(acts(false));
        let job = world.request().await;
        let (late, pipeline) = (world.claim().await, world.pipeline.clone());
        let fence = late.fence;
        let run =
            tokio::spawn(async move { pipeline.run_one(late, CancellationToken::new()).await });
        gate.reached(PATIENCE).await;
        take_lease(&world, &fence).await;
        let mut other = world.pipeline.clone();
        other.crash = CrashPlan::none();
        let finished = other.run_one(world.claim().await, CancellationToken::new()).await;
        assert!(matches!(finished, Finished::Completed(_)), "{point}: {finished:?}");
        gate.open();
        assert_eq!(run.await.expect("the run ends"), Finished::Lost, "{point}");
        world.pipeline.sweep().await.expect("swept");
        assert_eq!(
            names(&world),
            [
                "orders-0001.2.csv",
                "orders-0002.2.csv",
                "orders-0003.2.csv",
                "orders.2.manifest.json"
            ],
            "{point}"
        );
        assert_eq!(world.job(job).await.status, JobStatus::Completed);
    }
}

fn names(world: &World) -> Vec<String> {
    let name = |key: &String| key.rsplit('/').next().map(str::to_owned).expect("a name");
    world.memory.keys().iter().map(name).collect()
}

#[tokio::test]
async fn a_refusal_of_the_store_in_the_middle_leaves_no_file() {
    let failed = FailureCode::StoreWriteFailed;
    for (large, step, times_before, fault, code) in [
        (false, Step::Put, 1, Fault::Full, failed),
        // The manifest.
        (false, Step::Put, 3, Fault::Unreachable, failed),
        (false, Step::Head, 1, Fault::WrongSize, FailureCode::StoreMismatch),
        (false, Step::Head, 3, Fault::WrongSize, FailureCode::StoreMismatch),
        (true, Step::Begin, 1, Fault::Refused("AccessDenied"), failed),
        (true, Step::Part(2), 1, Fault::Full, failed),
        (true, Step::Finish, 1, Fault::Refused("InternalError"), failed),
    ] {
        let world = world(CrashPlan::none(), no_retries).await;
        for _ in 0..times_before {
            // Nothing wrong yet: the answer to a HEAD, or to what has no answer, is as ever.
            world.memory.hang(step).release();
        }
        world.memory.fail(step, fault);
        assert_failed(&world, &acts(large), code).await;
    }
}

async fn completed(world: &World) -> JobId {
    world.source.plays(acts(false));
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    assert_eq!(world.memory.keys().len(), 4);
    world.pipeline.sweep().await.expect("swept");
    assert_eq!(world.memory.keys().len(), 4, "what is offered is not swept");
    job
}

#[tokio::test]
async fn a_deletion_takes_the_files_and_the_manifest_away() {
    let world = world(CrashPlan::none(), |_| {}).await;
    let job = completed(&world).await;
    let other = completed_beside(&world).await;
    let mut tx = world.pipeline.store.begin().await.expect("a transaction");
    jobs::delete_file(&mut tx, world.caller.organization, job).await.expect("deleted");
    tx.commit().await.expect("committed");
    world.pipeline.sweep().await.expect("swept");
    let left = world.memory.keys();
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(left.iter().all(|key| key.contains(&other.to_string())), "{left:?}");
}

async fn completed_beside(world: &World) -> JobId {
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    job
}

#[tokio::test]
async fn files_and_manifest_expire_and_the_job_is_forgotten_with_them() {
    let world = world(CrashPlan::none(), |limits| {
        limits.file_retention = Duration::ZERO;
        limits.job_retention = Duration::ZERO;
    })
    .await;
    world.source.plays(acts(false));
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    let swept = world.pipeline.sweep().await.expect("swept");
    assert_eq!((swept.expired, swept.leftovers), (1, 1));
    world.assert_store_is_empty();
    assert_eq!(world.job(job).await.status, JobStatus::Expired);
}

#[tokio::test]
async fn a_file_that_cannot_be_removed_is_tried_again_with_the_others() {
    let world = world(CrashPlan::none(), |limits| limits.file_retention = Duration::ZERO).await;
    world.source.plays(acts(false));
    world.export().await;
    world.memory.always_fail(Step::Delete, Fault::Refused("AccessDenied"));
    assert_eq!(world.pipeline.sweep().await.expect("swept").leftovers, 0);
    assert_eq!(world.memory.keys().len(), 4);
}
