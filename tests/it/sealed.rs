//! Files that lie sealed in the store: they come out as they went in, for who may have them and
//! holds the keys; what was done to them in the store is found.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::TryStreamExt as _;
use outport_contract::{
    digest::Sha256Digest,
    key::MasterKey,
    sealed::{CHUNK_BYTES, HEADER_BYTES, is_sealed, stored_bytes},
};
use outport_domain::object_key::ObjectKey;
use outport_objects::{ObjectStore, local::LocalFolder};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    harness::{
        Api, PATIENCE, Process, World,
        servers::S3,
        shop::{self, expected},
        world::ORDERS,
    },
    telling::told,
};

/// Rows of a file of three chunks and a rest.
const ROWS: u32 = 10_000;
const SEALED_CHUNK: usize = CHUNK_BYTES + 16;

/// A world whose files are sealed, with the large resource `wide`.
async fn world() -> World {
    let mut world = World::postgres().await;
    shop::add_wide(world.state.postgres(), ROWS, 10).await;
    world.set("OUTPORT_PROTECTION", "sealed");
    world
}

/// An export that has come to its end.
async fn exported(api: &Api, resource: &str) -> Value {
    let job = api.export(resource).await;
    api.job_is(&job, "COMPLETED").await
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// The version of the key that an object is sealed with.
fn key_version(stored: &[u8]) -> u16 {
    u16::from_be_bytes([stored[10], stored[11]])
}

#[tokio::test]
async fn a_sealed_file_tells_nothing_in_the_store_and_all_to_who_may_have_it() {
    let world = world().await;
    let (api, _worker) = (world.api().await, world.worker());
    let job = exported(&api, "wide").await;
    let plain = api.file(text(&job["exportJobId"])).await;
    let sha256 = shop::wide_sha256(world.state.postgres()).await;
    assert_eq!(Sha256Digest::of(&plain).hex(), sha256);
    assert_eq!((&job["sha256"], &job["sizeBytes"]), (&sha256.into(), &plain.len().into()));
    assert!(plain.len() > 3 * CHUNK_BYTES, "three chunks and a rest: {}", plain.len());

    let stored = world.stored(text(&job["fileKey"]));
    assert!(is_sealed(&stored));
    assert_eq!(key_version(&stored), 1);
    assert_eq!(stored.len() as u64, stored_bytes(plain.len() as u64));
    let recorded = world.state.value("SELECT stored_bytes FROM jobs").await;
    assert_eq!(recorded, stored.len().to_string());
    assert!(!stored.windows(10).any(|bytes| bytes == b"W000000001"), "not a word of it");

    let event: Value = serde_json::from_str(&told(&world).await).expect("JSON");
    let protection =
        json!({"encrypted": true, "appliedBy": "adapter", "mode": "outport-sealed-v1"});
    assert_eq!(event["result"]["protection"], protection);
    assert_eq!(event["result"]["sizeBytes"], plain.len());
    assert_eq!(event["result"]["hmac"], job["hmac"]);

    let (id, length) = (text(&job["exportJobId"]), plain.len());
    for Range { start, end } in [
        0..1,
        0..CHUNK_BYTES,
        CHUNK_BYTES - 1..CHUNK_BYTES + 1,
        CHUNK_BYTES..2 * CHUNK_BYTES,
        2 * CHUNK_BYTES + 1..3 * CHUNK_BYTES + 1,
        length - 1..length,
    ] {
        let answer = api.range(id, &format!("bytes={start}-{}", end - 1)).await;
        assert_eq!(answer.status(), StatusCode::PARTIAL_CONTENT);
        let part = answer.bytes().await.expect("the part");
        assert!(part == plain[start..end], "{start}..{end}");
    }
}

#[tokio::test]
async fn a_split_export_is_sealed_file_by_file_and_its_manifest_too() {
    let mut world = World::sqlite();
    world.set("OUTPORT_PROTECTION", "sealed");
    let api = world.all_in_one().await;
    let job = api.export_as(&json!({"resource": "order", "maxRowsPerFile": 15})).await;
    let job = api.job_is(&job, "COMPLETED").await;
    let id = text(&job["exportJobId"]);
    let manifest: Value = serde_json::from_slice(&api.file(id).await).expect("a manifest");
    let files = manifest["files"].as_array().expect("files");
    assert_eq!(files.len(), 3);
    let mut rows = "code,amount,note\n".to_owned();
    for (number, file) in (1..).zip(files) {
        let bytes = api.bytes(&format!("/v1/exports/{id}/files/{number}")).await;
        assert_eq!(file["sha256"], Sha256Digest::of(&bytes).hex());
        assert_eq!(file["sizeBytes"], bytes.len());
        let stored = world.stored(text(&file["key"]));
        assert!(is_sealed(&stored));
        let recorded = format!("SELECT stored_bytes FROM parts WHERE number = {number}");
        assert_eq!(world.state.value(&recorded).await, stored.len().to_string());
        let text = String::from_utf8(bytes).expect("UTF-8");
        rows.push_str(text.strip_prefix("code,amount,note\n").expect("a header"));
    }
    assert_eq!(rows, expected(ORDERS));
    assert!(is_sealed(&world.stored(text(&job["fileKey"]))));
}

#[tokio::test]
async fn a_resource_says_how_its_files_are_stored_whatever_the_deployment_does() {
    let s3 = S3::s3s_fs().await;
    for (deployment, resource) in [("none", "sealed"), ("sealed", "none")] {
        let mut world = World::postgres().await;
        world.use_objects(s3.env());
        world.set("OUTPORT_PROTECTION", deployment);
        let declared = shop::resource("other", "shop.orders", "\"code\"");
        world.declare_file("other", &format!("protection = \"{resource}\"\n{declared}"));
        let (api, _worker) = (world.api().await, world.worker());
        for (name, protection) in [("order", deployment), ("other", resource)] {
            let job = exported(&api, name).await;
            let answer = api.download(text(&job["exportJobId"])).await;
            // A sealed file never leaves by a pre-signed URL.
            let by_the_store = answer.url().as_str().starts_with(&s3.endpoint());
            assert_eq!(by_the_store, protection == "none", "{name} in {deployment}");
            let file = answer.text().await.expect("a whole file");
            assert_eq!(file, expected(ORDERS), "{name} in {deployment}");
            let event: Value = serde_json::from_str(&told(&world).await).expect("JSON");
            assert_eq!(event["result"]["protection"]["encrypted"], protection == "sealed");
        }
    }
}

/// How a download ends that must not end well.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    /// With a problem instead of a file.
    AtOnce,
    /// By a reset of the connection, after no more than what was sealed.
    MidWay,
}

async fn refused(answer: Response, plain: &[u8]) -> Refused {
    if answer.status() == StatusCode::INTERNAL_SERVER_ERROR {
        let problem: Value = answer.json().await.expect("a problem");
        assert_eq!(problem["code"], "FILE_DAMAGED", "{problem}");
        return Refused::AtOnce;
    }
    assert_eq!(answer.status(), StatusCode::OK);
    let mut given = Vec::new();
    let mut pieces = answer.bytes_stream();
    let broken = loop {
        match pieces.try_next().await {
            Ok(Some(piece)) => given.extend_from_slice(&piece),
            Ok(None) => break false,
            Err(_reset) => break true,
        }
    };
    assert!(broken, "it ended cleanly after {} of {} bytes", given.len(), plain.len());
    assert!(plain.starts_with(&given), "something was given out that was not sealed");
    Refused::MidWay
}

/// Does everything to a sealed object that somebody can who writes to the store, and downloads.
async fn what_is_done_in_the_store_is_found(world: World, store: Arc<dyn ObjectStore>) {
    let (api, _worker) = (world.api().await, world.worker());
    let job = exported(&api, "wide").await;
    let other = exported(&api, "wide").await;
    let key = ObjectKey::parse(text(&job["fileKey"])).expect("a key");
    let id = text(&job["exportJobId"]);
    let plain = api.file(id).await;
    let stored = read(&*store, &key).await;
    let another = ObjectKey::parse(text(&other["fileKey"])).expect("a key");
    let another = read(&*store, &another).await;
    assert_eq!(stored.len(), another.len(), "nothing tells them apart by length");
    let chunk = |index: usize| {
        let start = HEADER_BYTES + index * SEALED_CHUNK;
        start..(start + SEALED_CHUNK).min(stored.len())
    };
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = stored.clone();
        change(&mut bytes);
        bytes
    };
    let cases = [
        ("another object copied over it", another.clone(), Refused::AtOnce),
        (
            "another object's header",
            changed(&|bytes| bytes[..HEADER_BYTES].copy_from_slice(&another[..HEADER_BYTES])),
            Refused::AtOnce,
        ),
        ("a flipped bit", changed(&|bytes| bytes[chunk(2).start + 7] ^= 4), Refused::MidWay),
        ("the last bit", changed(&|bytes| *bytes.last_mut().expect("one") ^= 1), Refused::MidWay),
        ("a removed chunk", changed(&|bytes| drop(bytes.drain(chunk(1)))), Refused::AtOnce),
        (
            "two swapped chunks",
            changed(&|bytes| {
                bytes[chunk(1)].copy_from_slice(&stored[chunk(2)]);
                bytes[chunk(2)].copy_from_slice(&stored[chunk(1)]);
            }),
            Refused::MidWay,
        ),
        (
            "a repeated chunk",
            changed(&|bytes| bytes[chunk(2)].copy_from_slice(&stored[chunk(1)])),
            Refused::MidWay,
        ),
        ("a cut end", stored[..stored.len() - 1].to_vec(), Refused::AtOnce),
        ("a cut at a chunk", stored[..chunk(3).start].to_vec(), Refused::AtOnce),
        ("the plaintext", plain.clone(), Refused::AtOnce),
    ];
    for (what, bytes, expected) in cases {
        store.put(&key, "text/csv", Bytes::from(bytes)).await.expect("it is replaced");
        assert_eq!(refused(api.download(id).await, &plain).await, expected, "{what}");
    }
    // A range is as safe as the whole, and knows nothing of the other chunks.
    let flipped = changed(&|bytes| bytes[chunk(2).start + 7] ^= 4);
    store.put(&key, "text/csv", Bytes::from(flipped)).await.expect("it is replaced");
    let within = api.range(id, &format!("bytes={}-{}", 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 9)).await;
    assert_eq!(within.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let before = api.range(id, &format!("bytes=0-{}", 2 * CHUNK_BYTES - 1)).await;
    assert!(before.bytes().await.expect("it is whole") == plain[..2 * CHUNK_BYTES]);
    store.put(&key, "text/csv", Bytes::from(stored)).await.expect("it is put back");
    assert!(api.file(id).await == plain);
}

async fn read(store: &dyn ObjectStore, key: &ObjectKey) -> Vec<u8> {
    let pieces = store.get(key, None).await.expect("the object");
    pieces.try_collect::<Vec<Bytes>>().await.expect("the object").concat()
}

#[tokio::test]
async fn what_is_done_in_a_folder_is_found() {
    let world = world().await;
    let folder = LocalFolder::open(world.path("objects")).await.expect("it opens");
    what_is_done_in_the_store_is_found(world, Arc::new(folder)).await;
}

#[tokio::test]
async fn what_is_done_in_a_bucket_is_found() {
    let s3 = S3::s3s_fs().await;
    let mut world = world().await;
    world.use_objects(s3.env());
    what_is_done_in_the_store_is_found(world, Arc::new(s3.store().await)).await;
}

#[tokio::test]
async fn a_rotated_key_opens_old_files_and_links_and_seals_with_the_new_one() {
    let mut world = World::postgres().await;
    world.set("OUTPORT_PROTECTION", "sealed");
    let (api, worker) = (world.api().await, world.worker());
    let old = exported(&api, "order").await;
    let old_id = text(&old["exportJobId"]);
    let mail = world.mail().await;
    let start = mail.find("/d/").expect("a link");
    let link = mail[start..].split_whitespace().next().expect("a link").to_owned();
    stop(api.process).await;
    stop(worker).await;

    let old_key = world.env["APP_ENC_KEY"].clone();
    let new_key = MasterKey::generate().base64().to_string();
    world.set("APP_ENC_KEY", &new_key);
    world.set("APP_ENC_KEY_VERSION", "2");
    world.set("OUTPORT_OLD_ENC_KEYS", &format!("1:{old_key}"));
    let (api, _worker) = (world.api().await, world.worker());
    assert_eq!(String::from_utf8(api.file(old_id).await).expect("UTF-8"), expected(ORDERS));
    let through_link = api.bytes(&format!("{link}/file")).await;
    assert_eq!(String::from_utf8(through_link).expect("UTF-8"), expected(ORDERS));
    let new = exported(&api, "order").await;
    assert_eq!(key_version(&world.stored(text(&new["fileKey"]))), 2);
    let event: Value = serde_json::from_str(&told(&world).await).expect("JSON");
    assert_eq!(event["result"]["integrity"]["keyVersion"], 2);
    stop(api.process).await;

    // Too early: the old key is gone, and old files are still there.
    world.env.remove("OUTPORT_OLD_ENC_KEYS");
    let api = world.api().await;
    let answer = api.download(old_id).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let problem: Value = answer.json().await.expect("a problem");
    assert_eq!(problem["code"], "STORAGE_UNAVAILABLE");
    assert!(text(&problem["detail"]).contains("key 1"), "{problem}");
    let new = api.file(text(&new["exportJobId"])).await;
    assert_eq!(String::from_utf8(new).expect("UTF-8"), expected(ORDERS));
    let answer = api.answer(&format!("{link}/file")).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND, "a link that nobody can verify");
}

async fn stop(mut process: Process) {
    process.signal("TERM");
    process.end(PATIENCE).await;
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the measured numbers are worth a look")]
async fn sealing_and_opening_a_large_file_takes_little_memory() {
    /// On top of the idle process, in kibibytes.
    const WRITING: u64 = 64 * 1024;
    const READING: u64 = 32 * 1024;
    const MANY: u32 = 300_000;
    let s3 = S3::s3s_fs().await;
    let mut world = World::postgres().await;
    world.use_objects(s3.env());
    world.set("OUTPORT_PROTECTION", "sealed");
    world.set("OUTPORT_LIMITS_LEASE_SECONDS", "30");
    world.set("OUTPORT_LIMITS_NO_PROGRESS_SECONDS", "60");
    shop::add_wide(world.state.postgres(), MANY, 5).await;
    let (api, worker) = (world.api().await, world.worker());
    let small = exported(&api, "order").await;
    api.file(text(&small["exportJobId"])).await;
    let idle = (worker.kibibytes("VmRSS"), api.process.kibibytes("VmRSS"));

    let job = api.export("wide").await;
    let job = api.job_is_within(&job, "COMPLETED", PATIENCE * 3).await;
    let mut pieces = api.download(text(&job["exportJobId"])).await.bytes_stream();
    let mut length = 0;
    while let Some(piece) = pieces.try_next().await.expect("a whole file") {
        length += piece.len();
    }
    assert_eq!(job["sizeBytes"], length);
    assert!(length > 4 * 11 * 1024 * 1024, "larger than what may be in flight: {length}");
    let writing = worker.kibibytes("VmHWM") - idle.0;
    let reading = api.process.kibibytes("VmHWM") - idle.1;
    println!("{length} bytes: {writing} KiB to seal them, {reading} KiB to open them");
    assert!(writing <= WRITING, "{writing} KiB");
    assert!(reading <= READING, "{reading} KiB");
}
