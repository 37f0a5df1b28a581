//! What a run comes to, and what it leaves behind, for every way that it can go.

use std::time::Duration;

use outport_contract::digest::Sha256Digest;
use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    failure::FailureCode,
    id::Fence,
    job::JobStatus,
    limits::fixed,
};
use outport_objects::memory::{Fault, Step};
use outport_store::{
    jobs::{self, CancelOutcome, Finished},
    runs,
    telling::Account,
};
use tokio_util::sync::CancellationToken;

use crate::world::{Act, World};

const PATIENCE: Duration = Duration::from_secs(20);

/// The job has failed for good with this code: no file, one event, an empty store.
pub async fn assert_failed(world: &World, acts: &[Act], code: FailureCode) -> String {
    world.source.plays(acts.iter().cloned());
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Failed(_)), "{finished:?}");
    let job = world.job(job).await;
    let (reason, message) = job.failure.clone().expect("a failure");
    assert_eq!((job.status, reason), (JobStatus::Failed, code), "{message}");
    assert_eq!(job.file, None);
    assert_eq!(world.events(job.id).await, ["export.failed", "job.failed"]);
    world.assert_store_is_empty();
    message
}

/// One failure is all that a job has.
pub fn no_retries(limits: &mut outport_domain::limits::Limits) {
    limits.job_failures = 1;
}

#[tokio::test]
async fn a_small_export_is_one_object_that_the_job_describes() {
    let world = World::new().await;
    world.source.plays([Act::Rows(2), Act::Rows(1), Act::End(3)]);
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    let bytes = world.stored(job).await;
    assert_eq!(
        String::from_utf8_lossy(&bytes),
        "code,note\nORD-0,a note\nORD-1,a note\nORD-0,a note\n"
    );
    let file = world.job(job).await.file.expect("a file");
    assert_eq!((file.total_rows, file.size_bytes), (3, bytes.len() as u64));
    assert_eq!(file.sha256, Sha256Digest::of(&bytes).hex());
    assert_eq!(world.events(job).await, ["export.completed", "job.completed"]);
}

#[tokio::test]
async fn an_export_without_rows_is_a_header_and_completes() {
    let world = World::new().await;
    world.source.plays([Act::End(0)]);
    let (job, _) = world.export().await;
    assert_eq!(world.stored(job).await, b"code,note\n");
    assert_eq!(world.job(job).await.file.expect("a file").total_rows, 0);
}

#[tokio::test]
async fn a_large_export_is_uploaded_in_parts_and_whole() {
    let world = World::new().await;
    let wide = fixed::PART_BYTES / 3;
    let acts = std::iter::repeat_n(Act::Wide(wide), 10).chain([Act::End(10)]);
    world.source.plays(acts);
    let (job, _) = world.export().await;
    let bytes = world.stored(job).await;
    let file = world.job(job).await.file.expect("a file");
    assert_eq!(file.size_bytes, bytes.len() as u64);
    assert_eq!(bytes.len(), "code,note\n".len() + 10 * (wide + "wide,\n".len()));
    assert_eq!(file.sha256, Sha256Digest::of(&bytes).hex());
    assert!(world.memory.open_uploads().is_empty());
}

#[tokio::test]
async fn an_upload_whose_id_was_never_recorded_is_swept_by_its_key() {
    let world = World::with(CrashPlan::none(), no_retries).await;
    world.source.plays([Act::Wide(fixed::PART_BYTES), Act::Wide(100), Act::End(2)]);
    // The store has begun the upload and nobody hears of its id; then the run cannot clean up,
    // as when its process is killed there.
    world.memory.fail(Step::Begin, Fault::AnswerLost);
    world.memory.fail(Step::Abort, Fault::Unreachable);
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Failed(_)), "{finished:?}");
    assert_eq!(world.memory.open_uploads().len(), 1, "of job {job}");
    world.pipeline.sweep().await.expect("swept");
    assert_eq!(world.memory.open_uploads(), []);
}

#[tokio::test]
async fn a_file_of_exactly_one_part_and_one_byte_more_are_both_whole() {
    for over in [0, 1] {
        let world = World::new().await;
        let fixed_bytes = "code,note\n".len() + "wide,\n".len();
        world.source.plays([Act::Wide(fixed::PART_BYTES + over - fixed_bytes), Act::End(1)]);
        let (job, _) = world.export().await;
        assert_eq!(world.stored(job).await.len(), fixed::PART_BYTES + over);
    }
}

#[tokio::test]
async fn a_source_that_fails_ends_the_job_with_its_code() {
    let world = World::with(CrashPlan::none(), no_retries).await;
    let message = assert_failed(
        &world,
        &[Act::Rows(5), Act::Fail(FailureCode::SourceTruncated)],
        FailureCode::SourceTruncated,
    )
    .await;
    assert_eq!(message, "the source failed as planned");
}

#[tokio::test]
async fn a_count_that_does_not_fit_is_never_completed() {
    let world = World::with(CrashPlan::none(), no_retries).await;
    assert_failed(&world, &[Act::Rows(5), Act::End(6)], FailureCode::SourceTruncated).await;
}

#[tokio::test]
async fn a_stalled_source_is_caught_by_the_no_progress_timer_and_its_query_ended() {
    let world = World::with(CrashPlan::none(), |limits| {
        no_retries(limits);
        limits.no_progress = Duration::from_millis(300);
    })
    .await;
    assert_failed(&world, &[Act::Rows(5), Act::Hang], FailureCode::SourceStalled).await;
    assert_eq!(*world.source.canceled.lock().expect("not poisoned"), 1);
}

#[tokio::test]
async fn a_snapshot_may_not_grow_too_old() {
    let world = World::with(CrashPlan::none(), |limits| {
        no_retries(limits);
        limits.snapshot_age = Duration::ZERO;
    })
    .await;
    assert_failed(&world, &[Act::Rows(5), Act::End(5)], FailureCode::SnapshotTooOld).await;
}

#[tokio::test]
async fn limits_of_rows_and_bytes_leave_no_file() {
    let rows = World::with(CrashPlan::none(), |limits| limits.rows_per_export = 9).await;
    assert_failed(&rows, &[Act::Rows(10), Act::End(10)], FailureCode::LimitExceeded).await;
    let bytes = World::with(CrashPlan::none(), |limits| limits.bytes_per_export = 30_000_000).await;
    let acts = [Act::Wide(20_000_000), Act::Wide(20_000_000), Act::End(2)];
    assert_failed(&bytes, &acts, FailureCode::LimitExceeded).await;
}

#[tokio::test]
async fn a_panic_fails_one_job_and_nothing_else() {
    let world = World::with(CrashPlan::none(), no_retries).await;
    assert_failed(&world, &[Act::Rows(5), Act::Panic], FailureCode::Internal).await;
    world.source.plays([Act::Rows(1), Act::End(1)]);
    let (_, finished) = world.export().await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
}

#[tokio::test]
async fn every_refusal_of_the_store_fails_the_job_and_leaves_nothing() {
    let small = [Act::Rows(1), Act::End(1)];
    let large = [Act::Wide(2 * fixed::PART_BYTES), Act::End(1)];
    let cases = [
        (&small, Step::Put, Fault::Full, FailureCode::StoreWriteFailed),
        (&small, Step::Put, Fault::Unreachable, FailureCode::StoreWriteFailed),
        (&small, Step::Head, Fault::WrongSize, FailureCode::StoreMismatch),
        (&large, Step::Begin, Fault::Refused("AccessDenied"), FailureCode::StoreWriteFailed),
        (&large, Step::Part(1), Fault::Full, FailureCode::StoreWriteFailed),
        (&large, Step::Finish, Fault::Refused("InternalError"), FailureCode::StoreWriteFailed),
    ];
    for (acts, step, fault, code) in cases {
        let world = World::with(CrashPlan::none(), no_retries).await;
        world.memory.always_fail(step, fault);
        assert_failed(&world, acts, code).await;
    }
}

#[tokio::test]
async fn a_failed_run_is_tried_again_from_zero_under_another_key() {
    let world = World::with(CrashPlan::none(), |limits| limits.job_backoff = Duration::ZERO).await;
    world.source.plays([Act::Rows(2), Act::End(9)]);
    let (job, finished) = world.export().await;
    assert!(matches!(finished, Finished::Requeued(_)), "{finished:?}");
    assert_eq!(world.events(job).await, Vec::<String>::new());
    world.source.plays([Act::Rows(2), Act::End(2)]);
    let claim = world.claim().await;
    assert_eq!((claim.fence.job, claim.fence.run), (job, 2));
    world.pipeline.run_one(claim, CancellationToken::new()).await;
    let row = world.job(job).await;
    assert_eq!((row.status, row.run, row.failures), (JobStatus::Completed, 2, 1));
    assert!(row.file.expect("a file").key.as_str().ends_with("/orders.2.csv"));
}

#[tokio::test]
async fn a_run_that_is_handed_back_counts_no_failure() {
    let world = World::new().await;
    world.source.plays([Act::Rows(5), Act::Hang]);
    let job = world.request().await;
    let stopping = CancellationToken::new();
    stopping.cancel();
    let finished = world.pipeline.run_one(world.claim().await, stopping).await;
    assert!(matches!(finished, Finished::Requeued(_)), "{finished:?}");
    let row = world.job(job).await;
    assert_eq!((row.status, row.run, row.failures), (JobStatus::Pending, 1, 0));
    world.assert_store_is_empty();
}

/// The crash points that stand between a claim and its commit.
const IN_RUN: [CrashPoint; 6] = [
    CrashPoint::MidRows,
    CrashPoint::MidUpload,
    CrashPoint::AfterUpload,
    CrashPoint::AfterVerify,
    CrashPoint::BeforeCommit,
    CrashPoint::AfterCommit,
];

#[tokio::test]
async fn a_cancel_at_any_point_ends_canceled_or_completed_and_never_both() {
    for point in IN_RUN {
        let (plan, gate) = CrashPlan::pausing(point);
        let world = World::with(plan, |_| {}).await;
        world.source.plays([Act::Rows(5), Act::End(5)]);
        let job = world.request().await;
        let claim = world.claim().await;
        let pipeline = world.pipeline.clone();
        let run =
            tokio::spawn(async move { pipeline.run_one(claim, CancellationToken::new()).await });
        gate.reached(PATIENCE).await;
        // On SQLite a transaction that is about to commit keeps every other writer out.
        let canceling = (point != CrashPoint::BeforeCommit).then(|| cancel(&world, job));
        match canceling {
            Some(canceling) => drop(canceling.await),
            None => gate.open(),
        }
        gate.open();
        let finished = run.await.expect("the run ends");
        let row = world.job(job).await;
        let events = world.events(job).await;
        match row.status {
            JobStatus::Canceled => {
                assert_eq!(events, ["export.canceled", "job.failed"], "{point}: {finished:?}");
                world.assert_store_is_empty();
            }
            JobStatus::Completed => {
                assert_eq!(events, ["export.completed", "job.completed"], "{point}: {finished:?}");
                assert_eq!(world.memory.keys().len(), 1, "{point}");
            }
            other => panic!("{point}: {other:?}"),
        }
        let before_commit = !matches!(point, CrashPoint::AfterCommit | CrashPoint::BeforeCommit);
        assert_eq!(row.status == JobStatus::Canceled, before_commit, "{point}");
    }
}

pub async fn cancel(world: &World, job: outport_domain::id::JobId) -> CancelOutcome {
    let mut tx = world.pipeline.store.begin().await.expect("a transaction");
    let outcome =
        jobs::request_cancel(&mut tx, world.caller.organization, job).await.expect("asked");
    tx.commit().await.expect("committed");
    outcome
}

#[tokio::test]
async fn a_run_that_lost_its_lease_writes_nothing_whatever_it_was_doing() {
    for point in IN_RUN
        .into_iter()
        .filter(|point| !matches!(point, CrashPoint::AfterCommit | CrashPoint::BeforeCommit))
    {
        let (plan, gate) = CrashPlan::pausing(point);
        let world = World::with(plan, |limits| limits.job_backoff = Duration::ZERO).await;
        world.source.plays([Act::Rows(5), Act::End(5)]);
        let job = world.request().await;
        let late = world.claim().await;
        let fence = late.fence;
        let pipeline = world.pipeline.clone();
        let run =
            tokio::spawn(async move { pipeline.run_one(late, CancellationToken::new()).await });
        gate.reached(PATIENCE).await;

        // The lease is taken for lost, and another worker completes the job.
        take_lease(&world, &fence).await;
        let mut other = world.pipeline.clone();
        other.crash = CrashPlan::none();
        let claim = world.claim().await;
        assert_eq!(claim.fence.run, fence.run + 1);
        let finished = other.run_one(claim, CancellationToken::new()).await;
        assert!(matches!(finished, Finished::Completed(_)), "{point}: {finished:?}");
        let (committed, bytes) = (world.job(job).await, world.stored(job).await);

        gate.open();
        assert_eq!(run.await.expect("the run ends"), Finished::Lost, "{point}");
        assert_eq!(world.job(job).await, committed, "{point}");
        assert_eq!(world.stored(job).await, bytes, "{point}");
        assert_eq!(world.events(job).await, ["export.completed", "job.completed"], "{point}");
        world.pipeline.sweep().await.expect("swept");
        assert_eq!(world.memory.keys().len(), 1, "{point}: the late run left an object");
        assert!(world.memory.open_uploads().is_empty(), "{point}");
    }
}

/// Hands the job back in its worker's name, as a rescuer would after the lease has ended.
pub async fn take_lease(world: &World, fence: &Fence) {
    let mut tx = world.pipeline.store.begin().await.expect("a transaction");
    let end = jobs::RunEnd::HandedBack;
    let (policy, account) = (world.pipeline.finish_policy(), Account::default());
    jobs::finish(&mut tx, fence, &end, &policy, &account).await.expect("taken");
    tx.commit().await.expect("committed");
}

#[tokio::test]
async fn an_answer_lost_after_the_commit_keeps_the_file() {
    let (plan, gate) = CrashPlan::pausing(CrashPoint::AfterCommit);
    let world = World::with(plan, |_| {}).await;
    world.source.plays([Act::Rows(5), Act::End(5)]);
    let job = world.request().await;
    let claim = world.claim().await;
    let pipeline = world.pipeline.clone();
    let run = tokio::spawn(async move { pipeline.run_one(claim, CancellationToken::new()).await });
    gate.reached(PATIENCE).await;
    run.abort();
    assert!(run.await.expect_err("dropped").is_cancelled());
    world.pipeline.sweep().await.expect("swept");
    assert_eq!(world.job(job).await.status, JobStatus::Completed);
    assert_eq!(world.stored(job).await.len(), "code,note\n".len() + 5 * "ORD-0,a note\n".len());
}

#[tokio::test]
async fn what_a_dead_run_left_is_swept_by_its_record() {
    let large = [Act::Wide(2 * fixed::PART_BYTES), Act::End(1)];
    let small = [Act::Rows(1), Act::End(1)];
    for (point, acts) in [
        (CrashPoint::MidUpload, &large),
        (CrashPoint::AfterUpload, &large),
        (CrashPoint::AfterUpload, &small),
        (CrashPoint::AfterVerify, &small),
    ] {
        let (plan, gate) = CrashPlan::pausing(point);
        let world = World::with(plan, |_| {}).await;
        world.source.plays(acts.iter().cloned());
        let job = world.request().await;
        let claim = world.claim().await;
        let fence = claim.fence;
        let pipeline = world.pipeline.clone();
        let run =
            tokio::spawn(async move { pipeline.run_one(claim, CancellationToken::new()).await });
        gate.reached(PATIENCE).await;
        run.abort();
        assert!(run.await.expect_err("dropped").is_cancelled());
        take_lease(&world, &fence).await;
        assert!(matches!(cancel(&world, job).await, CancelOutcome::Canceled(_)));
        world.pipeline.sweep().await.expect("swept");
        world.assert_store_is_empty();
    }
}

#[tokio::test]
async fn a_leftover_that_cannot_be_removed_goes_behind_the_others() {
    let world = World::with(CrashPlan::none(), no_retries).await;
    world.memory.always_fail(Step::Delete, Fault::Refused("AccessDenied"));
    world.memory.always_fail(Step::Head, Fault::WrongSize);
    world.source.plays([Act::Rows(1), Act::End(1)]);
    world.export().await;
    assert_eq!(world.memory.keys().len(), 1, "the run could not clean up");
    let due = runs::leftovers(&world.pipeline.store, 100).await.expect("a look");
    assert_eq!(due.len(), 1);
    assert_eq!(world.pipeline.sweep().await.expect("swept").leftovers, 0);
    let due = runs::leftovers(&world.pipeline.store, 100).await.expect("a look");
    assert_eq!(due, [], "it would be first in line for ever");
}
