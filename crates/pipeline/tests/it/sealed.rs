//! Files that are sealed on their way: what is stored, what the job says of it, and that it opens
//! to what would have been stored unsealed.

use outport_contract::{
    digest::Sha256Digest,
    key_ring::KeyRing,
    manifest::Manifest,
    sealed::{CHUNK_BYTES, Opener, is_sealed, stored_bytes},
};
use outport_domain::{
    crash::CrashPlan,
    failure::FailureCode,
    id::JobId,
    job::{FinishedFile, Protection},
    limits::fixed,
};
use outport_objects::memory::{Fault, Step};
use outport_store::{jobs::Finished, parts};
use serde_json::json;

use crate::{
    runs::{assert_failed, no_retries},
    world::{Act, World},
};

async fn world() -> World {
    let mut world = World::with(CrashPlan::none(), no_retries).await;
    world.pipeline.protection = Protection::Sealed;
    world
}

fn opened(ring: &KeyRing, key: &str, plain_bytes: u64, stored: &[u8]) -> Vec<u8> {
    let (mut opener, mut plain) = (Opener::new(ring, key, plain_bytes), Vec::new());
    opener.update(stored, &mut plain).expect("sealed");
    opener.finish().expect("whole");
    plain
}

/// A completed export of one file: what it says of it, and its plaintext. All that must hold of
/// any is checked.
async fn completed(world: &World) -> (JobId, FinishedFile, Vec<u8>) {
    let (id, finished) = world.export().await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    let file = world.job(id).await.file.expect("a file");
    let stored = world.stored(id).await;
    assert_eq!(file.protection, Protection::Sealed);
    assert!(is_sealed(&stored));
    assert_eq!(file.stored_bytes, stored.len() as u64);
    assert_eq!(file.stored_bytes, stored_bytes(file.size_bytes));
    let plain = opened(&world.pipeline.storage, file.key.as_str(), file.size_bytes, &stored);
    assert_eq!(file.sha256, Sha256Digest::of(&plain).hex());
    assert!(world.memory.open_uploads().is_empty());
    (id, file, plain)
}

#[tokio::test]
async fn a_sealed_file_opens_to_what_the_unsealed_one_is() {
    let sealed = world().await;
    let unsealed = World::with(CrashPlan::none(), no_retries).await;
    let part = fixed::PART_BYTES;
    for (what, acts) in [
        ("nothing", vec![Act::End(0)]),
        ("rows", vec![Act::Rows(3), Act::End(3)]),
        ("less than a chunk", vec![Act::Wide(CHUNK_BYTES - 100), Act::End(1)]),
        ("some chunks", vec![Act::Wide(CHUNK_BYTES), Act::Wide(CHUNK_BYTES), Act::End(2)]),
        ("a part, and a part with what sealing adds", vec![Act::Wide(part - 100), Act::End(1)]),
        (
            "parts",
            vec![Act::Wide(part), Act::Rows(10), Act::Wide(part), Act::Wide(part), Act::End(13)],
        ),
    ] {
        sealed.source.plays(acts.clone());
        unsealed.source.plays(acts);
        let (_, file, plain) = completed(&sealed).await;
        let (id, finished) = unsealed.export().await;
        assert!(matches!(finished, Finished::Completed(_)), "{what}: {finished:?}");
        let other = unsealed.job(id).await.file.expect("a file");
        assert!(unsealed.stored(id).await == plain, "{what}");
        assert_eq!(other.protection, Protection::None);
        let said =
            |file: &FinishedFile| (file.size_bytes, file.sha256.clone(), file.integrity.clone());
        assert_eq!(said(&file), said(&other), "{what}: both say the same of what is delivered");
        assert_eq!(other.stored_bytes, other.size_bytes);
    }
}

#[tokio::test]
async fn a_resource_that_says_how_its_files_are_stored_is_heard() {
    for (deployment, resource, expected) in [
        (Protection::None, Protection::Sealed, true),
        (Protection::Sealed, Protection::None, false),
    ] {
        let mut world = World::with(CrashPlan::none(), no_retries).await;
        world.pipeline.protection = deployment;
        world.declare(|order| order.protection = Some(resource));
        world.source.plays([Act::Rows(3), Act::End(3)]);
        let (id, _) = world.export().await;
        assert_eq!(is_sealed(&world.stored(id).await), expected);
        assert_eq!(world.job(id).await.file.expect("a file").protection, resource);
    }
}

#[tokio::test]
async fn every_file_of_a_split_export_is_sealed_under_its_own_key_and_its_manifest_too() {
    let mut world = world().await;
    world.body = json!({"resource": "order", "maxRowsPerFile": 2, "format": "NDJSON"});
    world.source.plays([Act::Rows(5), Act::End(5)]);
    let (id, finished) = world.export().await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    let job = world.job(id).await;
    let file = job.file.clone().expect("a file");
    let stored = world.stored(id).await;
    assert_eq!(file.stored_bytes, stored.len() as u64);
    let ring = &world.pipeline.storage;
    let length = outport_contract::sealed::plain_bytes(file.stored_bytes).expect("a length");
    let text = opened(ring, file.key.as_str(), length, &stored);
    assert_eq!(file.sha256, Sha256Digest::of(&text).hex());
    let manifest: Manifest = serde_json::from_slice(&text).expect("a manifest");
    let parts = parts::of_file(&world.pipeline.store, &job).await.expect("read");
    assert_eq!((parts.len(), manifest.files.len()), (3, 3));
    let mut sum = 0;
    for (part, listed) in parts.iter().zip(&manifest.files) {
        let stored = world.memory.bytes(part.key.as_str()).expect("the file");
        assert_eq!(part.stored_bytes, stored.len() as u64);
        assert_eq!(part.stored_bytes, stored_bytes(part.size_bytes));
        let plain = opened(ring, part.key.as_str(), part.size_bytes, &stored);
        assert_eq!(listed.sha256, Sha256Digest::of(&plain).hex());
        assert_eq!(listed.size_bytes, plain.len() as u64);
        sum += plain.len() as u64;
    }
    assert_eq!((file.size_bytes, manifest.size_bytes), (sum, sum), "of what is delivered");
}

#[tokio::test]
async fn a_store_that_reports_another_length_than_the_sealed_one_fails_the_run() {
    let world = world().await;
    world.memory.always_fail(Step::Head, Fault::WrongSize);
    assert_failed(&world, &[Act::Rows(3), Act::End(3)], FailureCode::StoreMismatch).await;
}
