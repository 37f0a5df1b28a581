//! The files of split exports: recorded before they are written, found when they are there,
//! swept and forgotten with their run.

use outport_domain::{
    id::{Fence, OrganizationId},
    job::{ExportJob, FinishedPart},
    object_key::ObjectKey,
};
use outport_store::{
    StoreError,
    jobs::{self, Claim, Finished, Hold, RunEnd},
    parts,
    runs::{self, Leftover, Written},
};

use crate::bench::{Bench, abandoned, file_of, integrity, new_job};

on_both_engines!(
    a_part_is_recorded_with_its_run_and_both_are_swept,
    a_part_that_is_recorded_again_is_the_later_one,
    a_lost_run_records_no_part,
    the_parts_of_a_completed_job_are_found_in_order,
    a_part_that_is_not_whole_is_no_file,
    parts_go_with_their_job,
);

fn manifest(claim: &Claim) -> ObjectKey {
    ObjectKey::of_manifest(claim.job.id, claim.fence.run, "orders").expect("a key")
}

fn key(fence: &Fence, number: u32) -> ObjectKey {
    ObjectKey::of_part(fence.job, fence.run, "orders", number, "csv").expect("a key")
}

fn part(fence: &Fence, number: u32) -> FinishedPart {
    FinishedPart {
        number,
        key: key(fence, number),
        rows: 10 + u64::from(number),
        size_bytes: 5_000_000_000 + u64::from(number),
        stored_bytes: 5_000_080_000 + u64::from(number),
        sha256: "cd".repeat(32),
        integrity: Some(integrity("ef")),
    }
}

async fn running(bench: &Bench) -> Claim {
    let mut job = new_job(OrganizationId::new());
    job.split = true;
    let job = bench.submit(&job).await;
    let claim = bench.claim().await.expect("a due job");
    assert_eq!(claim.job.id, job.id);
    assert!(claim.job.split);
    claim
}

async fn record(bench: &Bench, claim: &Claim, number: u32, upload_id: Option<&str>) -> Hold {
    let (manifest, key) = (manifest(claim), key(&claim.fence, number));
    jobs::record_part(&bench.store, &claim.fence, &manifest, number, &key, upload_id)
        .await
        .expect("an answer")
}

/// Two parts are there, and the job says so.
async fn completed(bench: &Bench) -> ExportJob {
    let claim = running(bench).await;
    for number in [2, 1] {
        assert_eq!(record(bench, &claim, number, None).await, Hold::Held);
        let part = part(&claim.fence, number);
        parts::record_written(&bench.store, &claim.fence, &part).await.expect("recorded");
    }
    let mut file = file_of(&claim);
    file.key = manifest(&claim);
    match bench.finish(&claim.fence, &RunEnd::Completed(file)).await {
        Finished::Completed(job) => job,
        other => panic!("not completed: {other:?}"),
    }
}

async fn leftovers(bench: &Bench) -> Vec<Leftover> {
    runs::leftovers(&bench.store, 100).await.expect("a look")
}

async fn a_part_is_recorded_with_its_run_and_both_are_swept(bench: Bench) {
    let claim = running(&bench).await;
    assert_eq!(record(&bench, &claim, 1, None).await, Hold::Held);
    assert_eq!(record(&bench, &claim, 2, Some("upload")).await, Hold::Held);
    assert_eq!(leftovers(&bench).await, [], "it runs");
    bench.finish(&claim.fence, &abandoned()).await;
    let [leftover] = leftovers(&bench).await.try_into().expect("one run");
    assert_eq!(leftover.key, manifest(&claim));
    let written = |key: ObjectKey, upload_id: Option<&str>| Written {
        key,
        upload_id: upload_id.map(str::to_owned),
    };
    assert_eq!(
        runs::objects(&bench.store, &leftover).await.expect("objects"),
        [
            written(manifest(&claim), None),
            written(key(&claim.fence, 1), None),
            written(key(&claim.fence, 2), Some("upload")),
        ]
    );
}

async fn a_part_that_is_recorded_again_is_the_later_one(bench: Bench) {
    let claim = running(&bench).await;
    record(&bench, &claim, 1, Some("first")).await;
    record(&bench, &claim, 1, Some("second")).await;
    bench.finish(&claim.fence, &abandoned()).await;
    let leftover = leftovers(&bench).await.remove(0);
    let objects = runs::objects(&bench.store, &leftover).await.expect("objects");
    let uploads: Vec<_> = objects.iter().map(|one| one.upload_id.as_deref()).collect();
    assert_eq!(uploads, [None, Some("second")]);
}

async fn a_lost_run_records_no_part(bench: Bench) {
    let claim = running(&bench).await;
    bench.finish(&claim.fence, &RunEnd::HandedBack).await;
    assert_eq!(record(&bench, &claim, 1, None).await, Hold::Lost);
    let other = bench.claim().await.expect("the second run");
    assert_eq!(record(&bench, &claim, 1, None).await, Hold::Lost);
    assert_eq!(record(&bench, &other, 1, None).await, Hold::Held);
    assert_eq!(bench.count("SELECT COUNT(*) FROM parts").await, 1);
    assert_eq!(bench.count("SELECT COUNT(*) FROM runs WHERE object_key IS NOT NULL").await, 1);
}

async fn the_parts_of_a_completed_job_are_found_in_order(bench: Bench) {
    let job = completed(&bench).await;
    let fence = Fence { job: job.id, run: job.run, lease_token: uuid::Uuid::nil() };
    let all = parts::of_file(&bench.store, &job).await.expect("parts");
    assert_eq!(all, [part(&fence, 1), part(&fence, 2)]);
    let find = async |number| parts::find(&bench.store, &job, number).await.expect("an answer");
    assert_eq!(find(2).await, Some(part(&fence, 2)));
    for number in [0, 3, u32::MAX] {
        assert_eq!(find(number).await, None);
    }
    assert_eq!(leftovers(&bench).await, [], "they are the job's file");
    bench.force("UPDATE runs SET sweep_due_at = 1").await;
    assert_eq!(leftovers(&bench).await, [], "even if the note that it is due were wrong");
    let unsplit = bench.completed(OrganizationId::new()).await;
    assert_eq!(parts::of_file(&bench.store, &unsplit).await.expect("parts"), []);
    assert_eq!(parts::find(&bench.store, &unsplit, 1).await.expect("an answer"), None);
}

async fn a_part_that_is_not_whole_is_no_file(bench: Bench) {
    let claim = running(&bench).await;
    record(&bench, &claim, 1, None).await;
    let job = bench.find(&claim.job).await;
    assert_eq!(parts::of_file(&bench.store, &job).await.expect("parts"), [], "not completed");
    assert_eq!(parts::find(&bench.store, &job, 1).await.expect("an answer"), None);
    let mut file = file_of(&claim);
    file.key = manifest(&claim);
    bench.finish(&claim.fence, &RunEnd::Completed(file)).await;
    let job = bench.find(&claim.job).await;
    let read = parts::of_file(&bench.store, &job).await;
    assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
}

async fn parts_go_with_their_job(bench: Bench) {
    let job = completed(&bench).await;
    let kept = completed(&bench).await;
    let mut tx = bench.store.begin().await.expect("a transaction");
    jobs::delete_file(&mut tx, job.scope.organization, job.id).await.expect("an answer");
    tx.commit().await.expect("a commit");
    let [leftover] = leftovers(&bench).await.try_into().expect("one run");
    assert_eq!(runs::objects(&bench.store, &leftover).await.expect("objects").len(), 3);
    let mut tx = bench.store.begin().await.expect("a transaction");
    runs::record_swept(&mut tx, &leftover).await.expect("recorded");
    tx.commit().await.expect("a commit");
    bench.force("UPDATE runs SET sweep_due_at = NULL").await;
    bench.force("UPDATE jobs SET status = 'EXPIRED' WHERE deleted_at IS NOT NULL").await;
    let mut tx = bench.store.begin().await.expect("a transaction");
    let purged = jobs::purge(&mut tx, std::time::Duration::ZERO, 100).await.expect("purged");
    tx.commit().await.expect("a commit");
    assert_eq!(purged, 1);
    assert_eq!(bench.count("SELECT COUNT(*) FROM parts").await, 2);
    assert_eq!(parts::of_file(&bench.store, &kept).await.expect("parts").len(), 2);
}
