//! What a slow object store does to a run: nothing, as long as memory and spool have room; then
//! the source waits.

use std::time::Duration;

use futures::FutureExt as _;
use outport_contract::digest::Sha256Digest;
use outport_domain::{
    crash::CrashPlan,
    failure::FailureCode,
    id::JobId,
    job::JobStatus,
    limits::{Limits, fixed},
};
use outport_objects::memory::{Hang, Step};
use outport_store::jobs::{CancelOutcome, Finished};
use tokio::{task::JoinHandle, time};
use tokio_util::sync::CancellationToken;

use crate::{
    log::Log,
    runs::{cancel, no_retries},
    world::{Act, World, until},
};

const PATIENCE: Duration = Duration::from_secs(30);
const PART: usize = fixed::PART_BYTES;

/// So many rows, and the file that they make.
fn wide(rows: u8, width: usize) -> (Vec<Act>, Vec<u8>) {
    let mut file = b"code,note\n".to_vec();
    for row in 0..rows {
        file.extend_from_slice(b"wide,");
        file.resize(file.len() + width, b'a' + row % 26);
        file.push(b'\n');
    }
    let acts = std::iter::repeat_n(Act::Wide(width), rows.into());
    (acts.chain([Act::End(rows.into())]).collect(), file)
}

async fn world_with_spool(parts: usize, limit: impl FnOnce(&mut Limits)) -> World {
    World::with(CrashPlan::none(), |limits| {
        no_retries(limits);
        limits.spool_bytes_per_export = (parts * PART) as u64;
        limit(limits);
    })
    .await
}

/// Holds the first so many parts.
fn hold(world: &World, parts: u32) -> Vec<Hang> {
    (1..=parts).map(|number| world.memory.hang(Step::Part(number))).collect()
}

/// As many as may be in flight.
fn hold_all_in_flight(world: &World) -> Vec<Hang> {
    hold(world, fixed::PARTS_IN_FLIGHT as u32 - 1)
}

async fn reached(hang: &Hang) {
    time::timeout(PATIENCE, hang.reached()).await.expect("a part on its way");
}

/// The sizes of the spool files that this process has open; none of them has a name.
fn spooled(world: &World) -> Vec<u64> {
    let folder = world.pipeline.spool_dir.canonicalize().expect("a folder");
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0, "a file with a name");
    let open = std::fs::read_dir("/proc/self/fd").expect("what this process has open");
    open.filter_map(|entry| {
        let entry = entry.ok()?.path();
        let is_spool = std::fs::read_link(&entry).ok()?.starts_with(&folder);
        is_spool.then(|| std::fs::metadata(&entry).ok().map(|file| file.len()))?
    })
    .collect()
}

/// Returns when every task waits: on a stopped clock time goes on only when nothing else can.
async fn settle() {
    time::pause();
    time::sleep(Duration::from_secs(5)).await;
    time::resume();
}

/// The clock of the whole process goes forward.
async fn pass(duration: Duration) {
    time::pause();
    time::advance(duration).await;
    time::resume();
}

async fn assert_completed(world: &World, job: JobId, run: JoinHandle<Finished>, file: &[u8]) {
    let finished = run.await.expect("no panic");
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    assert!(world.stored(job).await == file, "other bytes are stored");
    let described = world.job(job).await.file.expect("a file");
    assert_eq!(described.sha256, Sha256Digest::of(file).hex());
    assert!(spooled(world).is_empty(), "a spool is left");
}

#[tokio::test]
async fn a_source_is_read_to_its_end_while_the_store_takes_nothing() {
    let world = world_with_spool(4, |_| {}).await;
    let (acts, file) = wide(6, PART);
    world.source.plays(acts);
    let held = hold_all_in_flight(&world);
    let (job, run) = world.start().await;
    time::timeout(PATIENCE, world.source.ended.notified()).await.expect("the source's end");
    for hang in held {
        reached(&hang).await;
        hang.release();
    }
    assert_completed(&world, job, run, &file).await;
}

#[tokio::test]
async fn a_source_is_read_to_its_end_while_the_store_does_not_begin() {
    let world = world_with_spool(4, |_| {}).await;
    let (acts, file) = wide(6, PART);
    world.source.plays(acts);
    let held = world.memory.hang(Step::Begin);
    let (job, run) = world.start().await;
    time::timeout(PATIENCE, world.source.ended.notified()).await.expect("the source's end");
    held.release();
    assert_completed(&world, job, run, &file).await;
}

#[tokio::test]
async fn a_spool_keeps_its_bound_and_then_the_source_waits() {
    for parts in [0, 2] {
        let world = world_with_spool(parts, |_| {}).await;
        let (acts, file) = wide(40, PART / 4);
        world.source.plays(acts);
        let held = hold_all_in_flight(&world);
        let (job, run) = world.start().await;
        reached(&held[0]).await;
        settle().await;
        let bound = (parts * PART) as u64;
        assert_eq!(spooled(&world).iter().sum::<u64>(), bound);
        assert!(world.source.ended.notified().now_or_never().is_none(), "the source has ended");
        held.into_iter().for_each(Hang::release);
        assert_completed(&world, job, run, &file).await;
    }
}

#[tokio::test]
async fn a_store_that_keeps_up_costs_no_disk() {
    let log = Log::default();
    let _guard = log.listen();
    let mut world = world_with_spool(2, |_| {}).await;
    let (acts, file) = wide(6, PART);
    world.source.plays(acts);
    // Any try to use it would be told.
    let folder = std::mem::replace(&mut world.pipeline.spool_dir, "/nowhere".into());
    let (job, run) = world.start().await;
    world.pipeline.spool_dir = folder;
    assert_completed(&world, job, run, &file).await;
    assert!(!log.text().contains("spool"), "{}", log.text());
}

#[tokio::test]
async fn without_room_on_disk_the_source_waits_and_the_file_is_whole() {
    let log = Log::default();
    let _guard = log.listen();
    let mut world = world_with_spool(4, |_| {}).await;
    let (acts, file) = wide(12, PART / 2);
    world.source.plays(acts);
    let held = hold_all_in_flight(&world);
    let folder = std::mem::replace(&mut world.pipeline.spool_dir, "/nowhere".into());
    let (job, run) = world.start().await;
    world.pipeline.spool_dir = folder;
    reached(&held[0]).await;
    settle().await;
    assert!(world.source.ended.notified().now_or_never().is_none(), "the source has ended");
    held.into_iter().for_each(Hang::release);
    assert_completed(&world, job, run, &file).await;
    let told = log.text().matches("the spool cannot be written").count();
    assert_eq!(told, 1, "{}", log.text());
}

#[tokio::test]
async fn a_cancel_while_parts_wait_on_disk_leaves_none_of_them() {
    let world = world_with_spool(4, |_| {}).await;
    world.source.plays(wide(6, PART).0);
    let _held = hold_all_in_flight(&world);
    let (job, run) = world.start().await;
    time::timeout(PATIENCE, world.source.ended.notified()).await.expect("the source's end");
    until(PATIENCE, "parts wait", async || !spooled(&world).is_empty()).await;
    assert!(matches!(cancel(&world, job).await, CancelOutcome::Canceling(_)));
    let finished = run.await.expect("no panic");
    assert!(matches!(finished, Finished::Canceled(_)), "{finished:?}");
    world.assert_store_is_empty();
    until(PATIENCE, "the spool is gone", async || spooled(&world).is_empty()).await;
}

#[tokio::test]
async fn neither_a_cancel_nor_a_hand_back_waits_for_a_store_that_stands_still() {
    for canceled in [true, false] {
        // No other limit would end the wait for the store.
        let world =
            world_with_spool(4, |limits| limits.source_connect = Duration::from_hours(1)).await;
        world.source.plays(wide(6, PART).0);
        let held = hold_all_in_flight(&world);
        let _aborting = world.memory.hang(Step::Abort);
        let (job, claim) = (world.request().await, world.claim().await);
        let (stopping, pipeline) = (CancellationToken::new(), world.pipeline.clone());
        let hand_back = stopping.clone();
        let run = tokio::spawn(async move { pipeline.run_one(claim, hand_back).await });
        reached(&held[0]).await;
        if canceled {
            assert!(matches!(cancel(&world, job).await, CancelOutcome::Canceling(_)));
        } else {
            stopping.cancel();
        }
        let finished = time::timeout(PATIENCE, run).await.expect("it ends").expect("no panic");
        let expected = if canceled { JobStatus::Canceled } else { JobStatus::Pending };
        assert_eq!(world.job(job).await.status, expected, "{finished:?}");
        assert_eq!(world.memory.open_uploads().len(), 1, "nobody could abort it");
        assert_eq!(world.pipeline.sweep().await.expect("swept").leftovers, 1);
        world.assert_store_is_empty();
    }
}

/// When the job's lease ends, as its row says.
fn lease_end(world: &World) -> i64 {
    let path = world.folder.path().join("state.db");
    let state = rusqlite::Connection::open(path).expect("the state");
    state.query_row("SELECT lease_expires_at FROM jobs", [], |row| row.get(0)).expect("a lease")
}

#[tokio::test]
async fn a_store_that_stands_still_for_a_minute_costs_neither_job_nor_lease() {
    let heartbeat = |limits: &mut Limits| limits.heartbeat = Duration::from_millis(100);
    let world = world_with_spool(2, heartbeat).await;
    let (acts, file) = wide(40, PART / 4);
    world.source.plays(acts);
    let held = hold_all_in_flight(&world);
    let (job, run) = world.start().await;
    reached(&held[0]).await;
    settle().await;
    pass(Duration::from_mins(1)).await;
    let lease = lease_end(&world);
    until(PATIENCE, "the lease is renewed", async || lease_end(&world) > lease).await;
    held.into_iter().for_each(Hang::release);
    assert_completed(&world, job, run, &file).await;
}

#[tokio::test]
async fn a_store_that_takes_a_part_now_and_then_is_waited_for() {
    let world = world_with_spool(2, |_| {}).await;
    let (acts, file) = wide(3, 3 * PART);
    world.source.plays(acts);
    let held = hold(&world, 10);
    let (job, run) = world.start().await;
    for hang in held {
        reached(&hang).await;
        // Two are in flight, so each takes 100 seconds, and the source waits for 300 of them.
        pass(Duration::from_secs(50)).await;
        hang.release();
    }
    assert_completed(&world, job, run, &file).await;
}

#[tokio::test]
async fn a_store_that_stands_still_for_too_long_fails_the_job() {
    // While the source waits, and when it has come to its end.
    for (rows, spool) in [(40, 2), (20, 4)] {
        let world = world_with_spool(spool, |_| {}).await;
        world.source.plays(wide(rows, PART / 4).0);
        let held = hold_all_in_flight(&world);
        let (job, run) = world.start().await;
        reached(&held[0]).await;
        settle().await;
        pass(world.pipeline.limits.no_progress + Duration::from_secs(1)).await;
        let finished = run.await.expect("no panic");
        assert!(matches!(finished, Finished::Failed(_)), "{finished:?}");
        let row = world.job(job).await;
        let (code, message) = row.failure.expect("a failure");
        assert_eq!((row.status, code), (JobStatus::Failed, FailureCode::StoreWriteFailed));
        assert_eq!(message, "the object store made no progress in time");
        world.assert_store_is_empty();
        until(PATIENCE, "the spool is gone", async || spooled(&world).is_empty()).await;
    }
}
