//! Files of several parts in an S3 store: what a death in mid-upload leaves is found by its
//! recorded id and aborted.

use outport_contract::digest::Sha256Digest;
use outport_domain::crash::CrashPoint;

use crate::harness::{
    PATIENCE, World, for_each,
    servers::{Bucket, S3},
    shop, until,
};

/// Rows of a file of a little more than two parts of 11 MiB.
const ROWS: u32 = 60_000;

async fn dies_with_a_large_file(point: CrashPoint) {
    let mut world = World::postgres().await;
    shop::add_wide(world.state.postgres(), ROWS, 12).await;
    let sha256 = shop::wide_sha256(world.state.postgres()).await;
    let s3 = S3::moto().await;
    world.use_objects(s3.env());
    world.set("OUTPORT_LIMITS_NO_PROGRESS_SECONDS", "20");
    let api = world.api().await;
    let job = api.export("wide").await;
    world.worker_dying_at(point).death(PATIENCE).await;
    let left = s3.look().await;
    let (objects, uploads) = (left.objects.len(), left.uploads.len());
    let expected = match point {
        CrashPoint::MidRows => (0, 0),
        CrashPoint::MidUpload => (0, 1),
        _ => (1, 0),
    };
    assert_eq!((objects, uploads), expected, "objects and open uploads at {point}");

    let _worker = world.worker();
    let job = api.job_is(&job, "COMPLETED").await;
    assert!(job["sizeBytes"].as_u64().expect("a size") > 2 * 11 * 1024 * 1024, "three parts");
    assert_eq!(job["totalRows"], ROWS);
    assert_eq!(job["sha256"], sha256, "the file is what the database says");
    world.settled().await;
    let key = job["fileKey"].as_str().expect("a key").to_owned();
    let Bucket { objects, uploads } = s3.look().await;
    let keys: Vec<String> = objects.into_iter().map(|(key, _)| key).collect();
    assert_eq!((keys, uploads), (vec![key], vec![]), "after the death at {point}");
    let file = api.file(job["exportJobId"].as_str().expect("an id")).await;
    assert_eq!(Sha256Digest::of(&file).hex(), sha256, "and it is delivered");
}

#[tokio::test]
async fn a_large_file_is_whole_and_nothing_is_left_wherever_its_upload_died() {
    let points = [
        CrashPoint::MidRows,
        CrashPoint::MidUpload,
        CrashPoint::AfterUpload,
        CrashPoint::AfterVerify,
    ];
    for_each(points, dies_with_a_large_file).await;
}

#[tokio::test]
async fn a_file_in_an_s3_store_is_downloaded_through_the_api() {
    let s3 = S3::s3s_fs().await;
    let mut world = World::postgres().await;
    world.use_objects(s3.env());
    let api = world.api().await;
    let _worker = world.worker();
    let job = api.export("order").await;
    api.job_is(&job, "COMPLETED").await;
    let file = String::from_utf8(api.file(&job).await).expect("UTF-8");
    assert_eq!(file, shop::expected(crate::harness::world::ORDERS));
    until("the mail is there", PATIENCE, async || world.mails().pop()).await;
}
