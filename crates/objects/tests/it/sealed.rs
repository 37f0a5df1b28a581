//! Sealed objects in every store: what comes back, what is read for it, and what is refused.

use std::ops::Range;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use outport_contract::{
    key::{MasterKey, STORAGE_ENCRYPTION},
    key_ring::{KeyRing, UnknownKey},
    sealed::{CHUNK_BYTES, HEADER_BYTES, NotOpened, Sealer, stored_bytes},
};
use outport_domain::object_key::ObjectKey;
use outport_objects::{
    ObjectError, ObjectStore,
    local::LocalFolder,
    memory::{Fault, MemoryStore, Step},
    s3::S3Store,
    sealed::{self, SealedObject},
};
use proptest::{prelude::*, test_runner::RngSeed};
use tempfile::TempDir;

use crate::{
    conformance::{bytes, key},
    s3_server::S3Server,
};

const SEALED_CHUNK: usize = CHUNK_BYTES + 16;
const KEY: &str = "exports/0197/orders.csv";

fn ring(version: u16, master: &MasterKey) -> KeyRing {
    KeyRing::new(version, master.clone()).derive(STORAGE_ENCRYPTION)
}

fn seal(ring: &KeyRing, object_key: &str, plain: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    let mut sealer = Sealer::new(ring, object_key);
    sealer.update(plain, &mut stored);
    sealer.finish(&mut stored);
    stored
}

async fn put(store: &impl ObjectStore, key: &ObjectKey, stored: Vec<u8>) {
    store.put(key, "text/csv", Bytes::from(stored)).await.expect("it is stored");
}

/// What is given out of the object at [`KEY`] whose job says that it has so many bytes, and how
/// that ends.
async fn read(
    store: &dyn ObjectStore,
    ring: &KeyRing,
    plain_bytes: usize,
    range: Option<Range<u64>>,
) -> (Vec<u8>, Result<(), ObjectError>) {
    let key = key(KEY);
    let plain_bytes = plain_bytes as u64;
    let stored_bytes = stored_bytes(plain_bytes);
    let object = SealedObject { key: &key, plain_bytes, stored_bytes };
    let mut given = Vec::new();
    let mut stream = match sealed::open(store, ring, object, range).await {
        Ok(stream) => stream,
        Err(error) => return (given, Err(error)),
    };
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(piece) => given.extend_from_slice(&piece),
            Err(error) => return (given, Err(error)),
        }
    }
    (given, Ok(()))
}

fn refusal(ended: Result<(), ObjectError>) -> NotOpened {
    match ended.expect_err("it must be refused") {
        ObjectError::NotOpened(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

async fn ranges_are_slices_of_the_plaintext(store: &impl ObjectStore) {
    let ring = ring(1, &MasterKey::generate());
    for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 7] {
        let plain = bytes(1, length);
        put(store, &key(KEY), seal(&ring, KEY, &plain)).await;
        let (given, ended) = read(store, &ring, length, None).await;
        ended.expect("it is whole");
        assert!(given == plain, "{length} bytes");
        let borders = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, length];
        for start in borders.into_iter().filter(|start| *start <= length) {
            for end in borders.into_iter().filter(|end| (start..=length).contains(end)) {
                let range = start as u64..end as u64;
                let (given, ended) = read(store, &ring, length, Some(range)).await;
                ended.expect("it is whole");
                assert!(given == plain[start..end], "{start}..{end} of {length}");
            }
        }
        let beyond = Some(0..length as u64 + 1);
        let (_, ended) = read(store, &ring, length, beyond).await;
        assert!(matches!(ended, Err(ObjectError::Refused { .. })), "{ended:?}");
    }
}

/// Where the length tells that an object was changed, nothing is given out; else nothing but what
/// is before the first chunk that is not as it was.
async fn what_was_changed_is_refused(store: &impl ObjectStore) {
    let ring = ring(1, &MasterKey::generate());
    let plain = bytes(1, 3 * CHUNK_BYTES + 5);
    for (what, stored, expected) in changes(&ring, &plain) {
        put(store, &key(KEY), stored).await;
        let (given, ended) = read(store, &ring, plain.len(), None).await;
        assert_eq!(refusal(ended), expected, "{what}");
        let intact = match expected {
            NotOpened::Forged { chunk } => chunk as usize * CHUNK_BYTES,
            _ => 0,
        };
        // What arrives together with a chunk that is refused is not given out either.
        assert!(plain[..intact].starts_with(&given), "{what}: {} bytes", given.len());
    }
}

/// Everything that can be done to an object of three chunks and a rest, and what is said of it.
fn changes(ring: &KeyRing, plain: &[u8]) -> Vec<(&'static str, Vec<u8>, NotOpened)> {
    let ours = seal(ring, KEY, plain);
    let chunk = |index: usize| {
        let start = HEADER_BYTES + index * SEALED_CHUNK;
        start..(start + SEALED_CHUNK).min(ours.len())
    };
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut stored = ours.clone();
        change(&mut stored);
        stored
    };
    let flipped = |at: usize| changed(&move |stored| stored[at] ^= 1);
    let earlier = seal(ring, KEY, plain);
    let forged = |chunk| NotOpened::Forged { chunk };
    let (expected, whole) = (ours.len() as u64, ours.len());
    let truncated = |found: usize| NotOpened::Truncated { expected, found: found as u64 };
    let trailing = NotOpened::TrailingData { expected };
    vec![
        ("another object", seal(ring, "exports/0197/others.csv", plain), forged(0)),
        (
            "an earlier run's header",
            changed(&|stored| stored[..HEADER_BYTES].copy_from_slice(&earlier[..HEADER_BYTES])),
            forged(0),
        ),
        (
            "an earlier run's chunk",
            changed(&|stored| stored[chunk(2)].copy_from_slice(&earlier[chunk(2)])),
            forged(2),
        ),
        ("a bit of the salt", flipped(20), forged(0)),
        ("a bit of a chunk", flipped(chunk(1).start + 1000), forged(1)),
        ("a bit of a tag", flipped(chunk(2).end - 1), forged(2)),
        ("the last bit", flipped(whole - 1), forged(3)),
        (
            "a removed chunk",
            changed(&|stored| drop(stored.drain(chunk(1)))),
            truncated(whole - SEALED_CHUNK),
        ),
        (
            "swapped chunks",
            changed(&|stored| {
                stored[chunk(1)].copy_from_slice(&ours[chunk(2)]);
                stored[chunk(2)].copy_from_slice(&ours[chunk(1)]);
            }),
            forged(1),
        ),
        (
            "a chunk in another's place",
            changed(&|stored| stored[chunk(2)].copy_from_slice(&ours[chunk(0)])),
            forged(2),
        ),
        (
            "a repeated chunk",
            changed(&|stored| stored.extend_from_slice(&ours[chunk(0)])),
            trailing,
        ),
        ("a cut end", ours[..whole - 1].to_vec(), truncated(whole - 1)),
        ("a cut at a chunk", ours[..chunk(3).start].to_vec(), truncated(chunk(3).start)),
        ("a header alone", ours[..HEADER_BYTES].to_vec(), truncated(HEADER_BYTES)),
        ("nothing", Vec::new(), truncated(0)),
        ("plain text", vec![b'a'; whole], NotOpened::NotSealed),
    ]
}

async fn what_is_not_sealed_passes_and_what_is_does_not(store: &impl ObjectStore) {
    let plain = bytes(1, 100_000);
    let stored = seal(&ring(1, &MasterKey::generate()), KEY, &plain);
    let sealed_bytes = stored.len() as u64;
    let (plain_key, sealed_key) = (key("exports/plain.csv"), key(KEY));
    put(store, &plain_key, plain.to_vec()).await;
    put(store, &sealed_key, stored).await;
    for range in [None, Some(0..100_000), Some(0..3), Some(5..70_000)] {
        let passed = sealed::pass(store, &plain_key, 100_000, range.clone()).await;
        let passed = passed.expect("it passes");
        let pieces: Vec<Bytes> = passed.try_collect().await.expect("it is whole");
        let range = range.unwrap_or(0..100_000);
        assert!(pieces.concat() == plain[range.start as usize..range.end as usize], "{range:?}");
    }
    for range in [None, Some(0..100_000)] {
        let refused = sealed::pass(store, &sealed_key, sealed_bytes, range).await.map(drop);
        assert!(matches!(refused, Err(ObjectError::Sealed)), "{refused:?}");
    }
    for (is, was) in [(100_000, 99_999), (100_000, 100_001)] {
        for range in [None, Some(0..3), Some(was - 3..was)] {
            let refused = sealed::pass(store, &plain_key, was, range).await.map(drop);
            let expected = if is < was {
                NotOpened::Truncated { expected: was, found: is }
            } else {
                NotOpened::TrailingData { expected: was }
            };
            let said = matches!(&refused, Err(ObjectError::NotOpened(found)) if *found == expected);
            assert!(said, "{refused:?}");
        }
    }
    let nothing = sealed::pass(store, &key("exports/none.csv"), 5, None).await.map(drop);
    assert!(matches!(nothing, Err(ObjectError::NotFound)), "{nothing:?}");
}

async fn what_is_missing_is_said_to_be_missing(store: &impl ObjectStore) {
    let ring = ring(1, &MasterKey::generate());
    let (_, ended) = read(store, &ring, 5, None).await;
    assert!(matches!(ended, Err(ObjectError::NotFound)), "{ended:?}");
}

async fn in_memory() -> (MemoryStore, ()) {
    (MemoryStore::new(), ())
}

async fn in_a_folder() -> (LocalFolder, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalFolder::open(folder.path().join("objects")).await.expect("it opens");
    (store, folder)
}

async fn in_s3() -> (S3Store, S3Server) {
    let server = S3Server::start();
    (S3Store::connect(server.config()).await, server)
}

/// Each of these for each store.
macro_rules! in_every_store {
    ($($case:ident),* $(,)?) => {
        in_every_store!(@ in_memory: $($case),*);
        in_every_store!(@ in_a_folder: $($case),*);
        in_every_store!(@ in_s3: $($case),*);
    };
    (@ $open:ident: $($case:ident),*) => {
        mod $open {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let (store, _guard) = super::$open().await;
                super::$case(&store).await;
            })*
        }
    };
}

in_every_store!(
    ranges_are_slices_of_the_plaintext,
    what_was_changed_is_refused,
    what_is_not_sealed_passes_and_what_is_does_not,
    what_is_missing_is_said_to_be_missing,
);

#[tokio::test]
async fn the_key_that_the_header_names_opens_and_without_it_the_version_is_named() {
    let (old, new) = (MasterKey::generate(), MasterKey::generate());
    let store = MemoryStore::new();
    put(&store, &key(KEY), seal(&ring(1, &old), KEY, b"rows")).await;
    let rotated = KeyRing::new(2, new.clone()).and(1, old).derive(STORAGE_ENCRYPTION);
    let (given, ended) = read(&store, &rotated, 4, None).await;
    ended.expect("the old key opens it");
    assert_eq!(given, b"rows");
    let (_, ended) = read(&store, &ring(2, &new), 4, None).await;
    assert_eq!(refusal(ended), NotOpened::UnknownKey(UnknownKey { version: 1 }));
    let (_, ended) = read(&store, &ring(1, &new), 4, None).await;
    assert_eq!(refusal(ended), NotOpened::Forged { chunk: 0 });
}

#[tokio::test]
async fn a_range_reads_its_chunks_and_no_more() {
    let ring = ring(1, &MasterKey::generate());
    let store = MemoryStore::new();
    let length = 4 * CHUNK_BYTES;
    let plain = bytes(1, length);
    let mut stored = seal(&ring, KEY, &plain);
    // All but the header and the third chunk is not as it was.
    let third = HEADER_BYTES + 2 * SEALED_CHUNK..HEADER_BYTES + 3 * SEALED_CHUNK;
    for at in (HEADER_BYTES..stored.len()).filter(|at| !third.contains(at)) {
        stored[at] ^= 0xff;
    }
    put(&store, &key(KEY), stored).await;
    let within = 2 * CHUNK_BYTES + 10..3 * CHUNK_BYTES;
    let range = within.start as u64..within.end as u64;
    let (given, ended) = read(&store, &ring, length, Some(range)).await;
    ended.expect("its chunk is as it was");
    assert!(given == plain[within]);
    let over = 3 * CHUNK_BYTES as u64 - 1..3 * CHUNK_BYTES as u64 + 1;
    let (given, ended) = read(&store, &ring, length, Some(over)).await;
    assert_eq!(refusal(ended), NotOpened::Forged { chunk: 3 });
    assert!(given == plain[3 * CHUNK_BYTES - 1..3 * CHUNK_BYTES]);
}

#[tokio::test]
async fn a_store_that_breaks_off_is_an_error_and_no_end() {
    let ring = ring(1, &MasterKey::generate());
    let length = 2 * CHUNK_BYTES;
    let plain = bytes(1, length);
    for after in [0, 1, SEALED_CHUNK - 1, SEALED_CHUNK, SEALED_CHUNK + 1, 2 * SEALED_CHUNK - 1] {
        let store = MemoryStore::new();
        put(&store, &key(KEY), seal(&ring, KEY, &plain)).await;
        // The first of the two reads, that of the header, has no fault: a read reports no size.
        store.fail(Step::Get, Fault::WrongSize);
        store.fail(Step::Get, Fault::BreakAfter(after));
        let (given, ended) = read(&store, &ring, length, None).await;
        assert!(matches!(ended, Err(ObjectError::Unreachable(_))), "{after}: {ended:?}");
        assert!(given == plain[..after / SEALED_CHUNK * CHUNK_BYTES], "{after}");
    }
    let store = MemoryStore::new();
    put(&store, &key(KEY), seal(&ring, KEY, &plain)).await;
    store.fail(Step::Get, Fault::BreakAfter(10));
    let (_, ended) = read(&store, &ring, length, None).await;
    assert!(matches!(ended, Err(ObjectError::Unreachable(_))), "{ended:?}");
}

/// Lengths near borders of chunks.
fn lengths() -> impl Strategy<Value = usize> {
    (0..4_usize, -20..20_isize)
        .prop_map(|(chunks, off)| (chunks * CHUNK_BYTES).saturating_add_signed(off))
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_range_is_a_slice_of_the_plaintext(
        length in lengths(),
        ends in (lengths(), lengths()),
    ) {
        let (start, end) = (ends.0.min(ends.1).min(length), ends.0.max(ends.1).min(length));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (given, plain) = runtime.block_on(async {
            let ring = ring(1, &MasterKey::generate());
            let store = MemoryStore::new();
            let plain = bytes(1, length);
            put(&store, &key(KEY), seal(&ring, KEY, &plain)).await;
            let (given, ended) = read(&store, &ring, length, Some(start as u64..end as u64)).await;
            ended.expect("it is whole");
            (given, plain)
        });
        prop_assert!(given == plain[start..end], "{}..{} of {}", start, end, length);
    }
}
