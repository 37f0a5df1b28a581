//! Downloads of sealed files: as those of any other, and nothing of what is not as it was.

use std::time::Duration;

use bytes::Bytes;
use chrono::Utc;
use outport_contract::{
    digest::Sha256Digest,
    job_event::Integrity,
    key::{MasterKey, STORAGE_ENCRYPTION},
    key_ring::KeyRing,
    sealed::{CHUNK_BYTES, HEADER_BYTES, Sealer},
};
use outport_domain::{
    job::{ExportJob, FinishedFile, Protection, Warnings},
    object_key::ObjectKey,
};
use outport_objects::ObjectStore as _;
use outport_store::jobs::RunEnd;
use reqwest::{Method, header};
use serde_json::Value;

use crate::{
    api_world::{Options, World, json, on_both_stores, storage_keys},
    log::Log,
};

on_both_stores!(
    a_sealed_file_is_downloaded_like_any_other,
    a_sealed_file_is_never_redirected_to: presigned,
    a_sealed_file_that_is_not_as_it_was_is_refused_before_it_begins_or_breaks_off,
    a_file_whose_form_is_not_the_one_that_the_job_says_is_refused,
    a_file_sealed_with_a_key_that_is_not_here_names_its_version,
);

fn presigned() -> Options {
    Options { presigned: true, ..Options::default() }
}

/// A file of two chunks and a rest.
fn plaintext() -> Vec<u8> {
    (0..2 * CHUNK_BYTES + 100).map(|at| (at * 7 % 251) as u8).collect()
}

fn sealed(ring: &KeyRing, key: &ObjectKey, plain: &[u8]) -> Vec<u8> {
    let (mut sealer, mut stored) = (Sealer::new(ring, key.as_str()), Vec::new());
    sealer.update(plain, &mut stored);
    sealer.finish(&mut stored);
    stored
}

/// A job whose file a worker has sealed with these keys.
async fn completed_with(world: &World, ring: &KeyRing, plain: &[u8]) -> (ExportJob, FinishedFile) {
    world.create().await;
    let claim = world.claim().await;
    let key = ObjectKey::of_export(claim.job.id, claim.job.run, "orders", "csv").expect("a key");
    let stored = sealed(ring, &key, plain);
    let file = FinishedFile {
        key,
        size_bytes: plain.len() as u64,
        stored_bytes: stored.len() as u64,
        total_rows: 2,
        sha256: Sha256Digest::of(plain).hex(),
        integrity: Some(Integrity::new("0".repeat(64), 7)),
        protection: Protection::Sealed,
        warnings: Warnings::default(),
        snapshot_at: Utc::now(),
    };
    replace(world, &file, stored).await;
    let job = world.finish(&claim, RunEnd::Completed(file.clone()), Duration::from_hours(1)).await;
    (job, file)
}

async fn completed(world: &World) -> (ExportJob, FinishedFile) {
    completed_with(world, &storage_keys(), &plaintext()).await
}

async fn replace(world: &World, file: &FinishedFile, stored: Vec<u8>) {
    world.objects.put(&file.key, "text/csv", Bytes::from(stored)).await.expect("an object");
}

fn stored(world: &World, file: &FinishedFile) -> Vec<u8> {
    world.objects.bytes(file.key.as_str()).expect("an object").to_vec()
}

fn path(job: &ExportJob) -> String {
    format!("/v1/exports/{}/file", job.id)
}

async fn a_sealed_file_is_downloaded_like_any_other(world: &World) {
    let (job, file) = completed(world).await;
    let (path, plain) = (path(&job), plaintext());
    let length = plain.len();
    let head = world.request(Method::HEAD, &path).send().await.expect("an answer");
    assert_eq!(
        (head.status().as_u16(), head.headers()[header::CONTENT_LENGTH].clone()),
        (200, length.into())
    );
    let whole = world.get(&path).send().await.expect("an answer");
    assert_eq!(whole.status(), 200);
    assert_eq!(whole.headers()[header::ETAG], format!("\"{}\"", file.sha256));
    assert_eq!(whole.headers()[header::CONTENT_LENGTH], length.to_string());
    assert!(whole.bytes().await.expect("bytes") == plain);
    for (range, within) in [
        ("bytes=0-3".to_owned(), 0..4),
        (
            format!("bytes={}-{}", CHUNK_BYTES - 2, CHUNK_BYTES + 1),
            CHUNK_BYTES - 2..CHUNK_BYTES + 2,
        ),
        (format!("bytes={CHUNK_BYTES}-"), CHUNK_BYTES..length),
        ("bytes=-4".to_owned(), length - 4..length),
    ] {
        let answer = world.get(&path).header("range", &range).send().await.expect("an answer");
        assert_eq!(answer.status(), 206, "{range}");
        let shown = answer.headers()[header::CONTENT_RANGE].to_str().expect("text").to_owned();
        assert_eq!(shown, format!("bytes {}-{}/{length}", within.start, within.end - 1));
        assert!(answer.bytes().await.expect("bytes") == plain[within], "{range}");
    }
    let outside = world.get(&path).header("range", format!("bytes={length}-")).send().await;
    assert_eq!(outside.expect("an answer").status(), 416, "by its own length, not the store's");
    let link = world.link(&job, 60);
    let through_link = world.client.get(world.url(&format!("/d/{link}/file"))).send().await;
    assert!(through_link.expect("an answer").bytes().await.expect("bytes") == plain);
    let (empty, _) = completed_with(world, &storage_keys(), b"").await;
    let answer = world.get(&self::path(&empty)).send().await.expect("an answer");
    assert_eq!((answer.status().as_u16(), answer.bytes().await.expect("bytes").len()), (200, 0));
}

async fn a_sealed_file_is_never_redirected_to(world: &World) {
    let (job, _) = completed(world).await;
    let answer = world.get(&path(&job)).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert!(answer.bytes().await.expect("bytes") == plaintext());
}

async fn a_sealed_file_that_is_not_as_it_was_is_refused_before_it_begins_or_breaks_off(
    world: &World,
) {
    let (job, file) = completed(world).await;
    let ours = stored(world, &file);
    let (_, other) = completed(world).await;
    let another = stored(world, &other);
    let flipped = |at: usize| {
        let mut bytes = ours.clone();
        bytes[at] ^= 1;
        bytes
    };
    let longer = [&ours[..], b"x"].concat();
    for bytes in [another, flipped(100), ours[..ours.len() - 1].to_vec(), longer] {
        replace(world, &file, bytes).await;
        let (status, problem) = json(world.get(&path(&job)).send().await.expect("an answer")).await;
        assert_eq!((status.as_u16(), &problem["code"]), (500, &"FILE_DAMAGED".into()));
        let head = world.request(Method::HEAD, &path(&job)).send().await.expect("an answer");
        assert_eq!(head.status(), 500, "a HEAD says what a GET would");
    }
    assert!(world.downloads(job.id).await.is_empty(), "nothing was downloaded");
    replace(world, &file, flipped(ours.len() - 1)).await;
    let download = async {
        let answer = world.get(&path(&job)).send().await?;
        assert_eq!(answer.status(), 200);
        answer.bytes().await
    };
    assert!(download.await.is_err(), "the connection must break");
    replace(world, &file, flipped(HEADER_BYTES + CHUNK_BYTES + 16)).await;
    who_asks_for_the_rest_is_told(world, &job).await;
    world.assert_alive().await;
}

/// The second chunk is damaged: what is left of the first arrives, though little of it, and after
/// that the answer says why there is no more.
async fn who_asks_for_the_rest_is_told(world: &World, job: &ExportJob) {
    let from = |start: usize| {
        world.get(&path(job)).header(header::RANGE, format!("bytes={start}-")).send()
    };
    let start = CHUNK_BYTES - 10;
    let mut answer = from(start).await.expect("an answer");
    assert_eq!(answer.status(), 206);
    let mut given = Vec::new();
    while let Ok(bytes) = answer.chunk().await {
        given.extend_from_slice(&bytes.expect("it must break off before its end"));
    }
    assert_eq!(given, plaintext()[start..CHUNK_BYTES]);
    let (status, problem) = json(from(CHUNK_BYTES).await.expect("an answer")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (500, &"FILE_DAMAGED".into()));
}

async fn a_file_whose_form_is_not_the_one_that_the_job_says_is_refused(world: &World) {
    let (sealed_job, file) = completed(world).await;
    replace(world, &file, vec![b'a'; file.stored_bytes as usize]).await;
    let plain_job = world.completed().await;
    let plain_file = plain_job.file.clone().expect("a file");
    replace(world, &plain_file, sealed(&storage_keys(), &plain_file.key, b"rows")).await;
    for job in [sealed_job, plain_job] {
        let (status, problem) = json(world.get(&path(&job)).send().await.expect("an answer")).await;
        assert_eq!((status.as_u16(), &problem["code"]), (500, &"FILE_DAMAGED".into()));
    }
}

async fn a_file_sealed_with_a_key_that_is_not_here_names_its_version(world: &World) {
    let ring = KeyRing::new(3, MasterKey::generate()).derive(STORAGE_ENCRYPTION);
    let (job, _) = completed_with(world, &ring, b"rows").await;
    let (status, problem) = json(world.get(&path(&job)).send().await.expect("an answer")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (503, &"STORAGE_UNAVAILABLE".into()));
    assert_eq!(problem["detail"], "The file is sealed with key 3, which this service lacks.");
}

// On one thread, so that the subscriber of this test hears all of its server and nothing else.
#[tokio::test]
async fn the_log_tells_which_object_of_which_job_is_damaged_where_and_who_asked_for_it() {
    let (log, writer) = Log::new();
    let subscriber = tracing_subscriber::fmt()
        .json()
        // As limited as a log can be.
        .with_max_level(tracing::Level::ERROR)
        .with_writer(writer)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    World::on_sqlite(Options::default(), async |world: &World| {
        let (job, file) = completed(world).await;
        let ours = stored(world, &file);
        for (at, id) in [(100, "at-once"), (ours.len() - 1, "midway")] {
            let mut bytes = ours.clone();
            bytes[at] ^= 1;
            replace(world, &file, bytes).await;
            let asked = world.get(&path(&job)).header("x-request-id", id).send().await;
            // Refused, or broken off.
            asked.expect("an answer").bytes().await.ok();
        }
        let head = world.request(Method::HEAD, &path(&job)).send().await.expect("an answer");
        assert_eq!(head.status(), 200, "as a GET of it begins");
        let text = log.text();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let told: Vec<_> = lines
            .map(|line| {
                let fields = &line["fields"];
                assert_eq!(fields["job"], job.id.to_string(), "{line}");
                assert_eq!(fields["object"], file.key.as_str(), "{line}");
                [&fields["message"], &fields["error"], &line["span"]["id"]].map(Clone::clone)
            })
            .collect();
        let chunk = |chunk| {
            format!(
                "the stored object cannot be opened: chunk {chunk} of the object was changed, \
                 moved, or is another object's"
            )
        };
        let expected = [
            ("the object store failed", chunk(0), "at-once"),
            ("a download broke off", chunk(2), "midway"),
        ];
        let expected = expected.map(|(message, error, id)| {
            [Value::from(message), Value::from(error), Value::from(id)]
        });
        assert_eq!(told, expected);
        let page = world.client.get(world.url("/metrics")).send().await.expect("an answer");
        let page = page.text().await.expect("a page");
        let line = r#"outport_downloads_broken_total{reason="damaged"} 2"#;
        assert!(page.contains(line), "{page}");
    })
    .await;
}
