//! What every store promises. One function for each promise, run for each store.

use std::ops::Range;

use bytes::Bytes;
use futures::{StreamExt as _, future};
use outport_domain::object_key::ObjectKey;
use outport_objects::{ObjectError, ObjectStore, Upload};

/// The smallest part S3 takes, but for the last.
pub const PART: usize = 5 * 1024 * 1024;
const TAIL: usize = 1234;
const CSV: &str = "text/csv";

/// Names the whole suite once: `conformance_suite!(open)` runs it on stores that `open().await`
/// gives, each time with a guard to keep until the end.
macro_rules! conformance_suite {
    ($open:path) => {
        conformance_suite!($open:
            the_store_answers,
            a_small_object_comes_back,
            an_object_is_replaced_whole,
            an_empty_object_is_an_object,
            ranges_are_cut_to_the_byte,
            a_range_beyond_the_object_is_refused,
            what_is_missing_is_said_to_be_missing,
            deleting_twice_is_fine,
            parts_in_any_order_and_at_once_make_the_object,
            parts_in_reverse_make_the_object,
            an_upload_without_parts_makes_an_empty_object,
            a_part_sent_again_counts_once,
            a_gap_between_parts_is_refused,
            parts_of_unequal_size_are_refused,
            an_unfinished_upload_is_invisible,
            an_aborted_upload_can_do_no_more,
            an_upload_is_aborted_by_its_id_alone,
            two_uploads_to_one_key_do_not_mix,
            abandoning_a_key_leaves_its_object_and_other_keys_alone,
        );
    };
    ($open:path: $($case:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let (store, _guard) = $open().await;
            $crate::conformance::$case(&store).await;
        }
    )*};
}

pub fn key(text: &str) -> ObjectKey {
    ObjectKey::parse(text).expect("an object key")
}

/// Bytes that differ from place to place and from seed to seed.
pub fn bytes(seed: u64, length: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// All bytes of an object, or of a range of it.
pub async fn read(
    store: &impl ObjectStore,
    key: &ObjectKey,
    range: Option<Range<u64>>,
) -> Result<Vec<u8>, ObjectError> {
    let mut stream = store.get(key, range).await?;
    let mut read = Vec::new();
    while let Some(piece) = stream.next().await {
        read.extend_from_slice(&piece?);
    }
    Ok(read)
}

pub async fn expect_object(store: &impl ObjectStore, key: &ObjectKey, expected: &[u8]) {
    let found = read(store, key, None).await.expect("the object reads");
    assert!(found == expected, "{} bytes came back, {} were sent", found.len(), expected.len());
    let meta = store.head(key).await.expect("the store answers").expect("the object is there");
    assert_eq!(meta.size, expected.len() as u64);
}

pub async fn expect_nothing(store: &impl ObjectStore, key: &ObjectKey) {
    assert_eq!(store.head(key).await.expect("the store answers"), None);
    let read = read(store, key, None).await;
    assert!(matches!(read, Err(ObjectError::NotFound)), "{read:?}");
}

async fn begin(store: &impl ObjectStore, key: &ObjectKey) -> Box<dyn Upload> {
    let upload = store.begin(key, CSV).await.expect("an upload");
    assert!(!upload.id().is_empty());
    upload
}

fn expect_refused<T: std::fmt::Debug>(result: Result<T, ObjectError>, code: &str) {
    match result {
        Err(ObjectError::Refused { code: found, .. }) => assert_eq!(found, code),
        other => panic!("{code} was expected, not {other:?}"),
    }
}

pub async fn the_store_answers(store: &impl ObjectStore) {
    store.check().await.expect("the store is there");
}

pub async fn a_small_object_comes_back(store: &impl ObjectStore) {
    let (key, content) = (key("exports/0197/orders.csv"), bytes(1, 100_000));
    let meta = store.put(&key, CSV, content.clone()).await.expect("it is stored");
    assert_eq!(meta.size, 100_000);
    expect_object(store, &key, &content).await;
}

pub async fn an_object_is_replaced_whole(store: &impl ObjectStore) {
    let key = key("exports/a.csv");
    for (seed, length) in [(1, 5_000), (2, 300), (3, 7_000)] {
        let content = bytes(seed, length);
        store.put(&key, CSV, content.clone()).await.expect("it is stored");
        expect_object(store, &key, &content).await;
    }
}

pub async fn an_empty_object_is_an_object(store: &impl ObjectStore) {
    let key = key("exports/empty.csv");
    let meta = store.put(&key, CSV, Bytes::new()).await.expect("it is stored");
    assert_eq!(meta.size, 0);
    expect_object(store, &key, b"").await;
    assert_eq!(read(store, &key, Some(0..0)).await.expect("an empty range"), b"");
}

pub async fn ranges_are_cut_to_the_byte(store: &impl ObjectStore) {
    let (key, content) = (key("exports/a.csv"), bytes(1, 600_000));
    store.put(&key, CSV, content.clone()).await.expect("it is stored");
    for range in [0..1, 599_999..600_000, 1..2, 262_143..262_145, 100..500_100, 0..600_000, 5..5] {
        let found = read(store, &key, Some(range.clone())).await.expect("a range");
        assert!(found == content[range.start as usize..range.end as usize], "{range:?}");
    }
}

pub async fn a_range_beyond_the_object_is_refused(store: &impl ObjectStore) {
    let key = key("exports/a.csv");
    store.put(&key, CSV, bytes(1, 10)).await.expect("it is stored");
    expect_refused(read(store, &key, Some(10..11)).await, "InvalidRange");
    expect_refused(read(store, &key, Some(11..11)).await, "InvalidRange");
}

pub async fn what_is_missing_is_said_to_be_missing(store: &impl ObjectStore) {
    let key = key("exports/none.csv");
    expect_nothing(store, &key).await;
    let range = read(store, &key, Some(0..0)).await;
    assert!(matches!(range, Err(ObjectError::NotFound)), "{range:?}");
}

pub async fn deleting_twice_is_fine(store: &impl ObjectStore) {
    let (gone, stays) = (key("exports/1/a.csv"), key("exports/2/a.csv"));
    for key in [&gone, &stays] {
        store.put(key, CSV, bytes(1, 10)).await.expect("it is stored");
    }
    for _ in 0..2 {
        store.delete(&gone).await.expect("it is deleted");
        expect_nothing(store, &gone).await;
    }
    expect_object(store, &stays, &bytes(1, 10)).await;
}

pub async fn parts_in_any_order_and_at_once_make_the_object(store: &impl ObjectStore) {
    let (key, content) = (key("exports/big.csv"), bytes(1, 3 * PART + TAIL));
    let upload = begin(store, &key).await;
    let upload_ref = &upload;
    let parts = [3, 4, 1, 2].map(|number| {
        let part = part_of(&content, number);
        async move { upload_ref.part(number, part).await }
    });
    for sent in future::join_all(parts).await {
        sent.expect("the part is taken");
    }
    let meta = upload.finish().await.expect("it is finished");
    assert_eq!(meta.size, content.len() as u64);
    expect_object(store, &key, &content).await;
    let edge = PART as u64 - 10..2 * PART as u64 + 10;
    let found = read(store, &key, Some(edge.clone())).await.expect("a range");
    assert!(found == content[edge.start as usize..edge.end as usize]);
}

pub async fn parts_in_reverse_make_the_object(store: &impl ObjectStore) {
    let (key, content) = (key("exports/big.csv"), bytes(2, 3 * PART + TAIL));
    let upload = begin(store, &key).await;
    for number in [4, 3, 2, 1] {
        upload.part(number, part_of(&content, number)).await.expect("the part is taken");
    }
    upload.finish().await.expect("it is finished");
    expect_object(store, &key, &content).await;
}

pub async fn an_upload_without_parts_makes_an_empty_object(store: &impl ObjectStore) {
    let key = key("exports/empty.csv");
    let meta = begin(store, &key).await.finish().await.expect("it is finished");
    assert_eq!(meta.size, 0);
    expect_object(store, &key, b"").await;
}

pub async fn a_part_sent_again_counts_once(store: &impl ObjectStore) {
    let (key, content) = (key("exports/a.csv"), bytes(1, PART + TAIL));
    let upload = begin(store, &key).await;
    // Before and after the first part, and once longer than it will be.
    upload.part(2, bytes(9, TAIL + 1)).await.expect("a part");
    upload.part(1, part_of(&content, 1)).await.expect("a part");
    upload.part(2, bytes(8, TAIL + 2)).await.expect("a part");
    upload.part(2, part_of(&content, 2)).await.expect("a part");
    upload.part(1, part_of(&content, 1)).await.expect("a part");
    upload.finish().await.expect("it is finished");
    expect_object(store, &key, &content).await;
}

pub async fn a_gap_between_parts_is_refused(store: &impl ObjectStore) {
    let key = key("exports/a.csv");
    for present in [&[1, 3][..], &[2], &[2, 3]] {
        let upload = begin(store, &key).await;
        for &number in present {
            upload.part(number, bytes(1, PART)).await.expect("a part");
        }
        expect_refused(upload.finish().await, "InvalidPart");
        expect_nothing(store, &key).await;
    }
}

/// Some stores refuse the part, some the end.
pub async fn parts_of_unequal_size_are_refused(store: &impl ObjectStore) {
    let key = key("exports/a.csv");
    for sizes in [[PART, PART + 1], [PART + 1, PART + 2]] {
        let upload = begin(store, &key).await;
        upload.part(1, bytes(1, sizes[0])).await.expect("a part");
        let larger = upload.part(2, bytes(2, sizes[1])).await;
        if larger.is_err() {
            expect_refused(larger, "InvalidPart");
            upload.abort().await.expect("it is aborted");
        } else {
            expect_refused(upload.finish().await, "InvalidPart");
        }
        expect_nothing(store, &key).await;
    }
}

pub async fn an_unfinished_upload_is_invisible(store: &impl ObjectStore) {
    let (fresh, taken) = (key("exports/new.csv"), key("exports/old.csv"));
    store.put(&taken, CSV, bytes(1, 10)).await.expect("it is stored");
    let uploads = [begin(store, &fresh).await, begin(store, &taken).await];
    for upload in &uploads {
        upload.part(1, bytes(2, PART)).await.expect("a part");
    }
    expect_nothing(store, &fresh).await;
    expect_object(store, &taken, &bytes(1, 10)).await;
    for upload in uploads {
        upload.finish().await.expect("it is finished");
    }
    expect_object(store, &fresh, &bytes(2, PART)).await;
    expect_object(store, &taken, &bytes(2, PART)).await;
}

pub async fn an_aborted_upload_can_do_no_more(store: &impl ObjectStore) {
    let key = key("exports/a.csv");
    let upload = begin(store, &key).await;
    upload.part(1, bytes(1, PART)).await.expect("a part");
    store.abort(&key, upload.id()).await.expect("it is aborted");
    let part = upload.part(2, bytes(1, 10)).await;
    let finish = upload.finish().await;
    assert!(part.is_err() || finish.is_err(), "{part:?} {finish:?}");
    assert!(finish.is_err(), "{finish:?}");
    expect_nothing(store, &key).await;
}

pub async fn an_upload_is_aborted_by_its_id_alone(store: &impl ObjectStore) {
    let key = key("exports/a.csv");
    let upload = begin(store, &key).await;
    upload.part(1, bytes(1, PART)).await.expect("a part");
    let id = upload.id().to_owned();
    // As after a crash: nobody holds the upload any more.
    drop(upload);
    store.abort(&key, &id).await.expect("it is aborted");
    expect_nothing(store, &key).await;
}

pub async fn two_uploads_to_one_key_do_not_mix(store: &impl ObjectStore) {
    let key = key("exports/a.csv");
    let (one, two) = (begin(store, &key).await, begin(store, &key).await);
    assert_ne!(one.id(), two.id());
    one.part(1, bytes(1, PART)).await.expect("a part");
    two.part(1, bytes(2, PART)).await.expect("a part");
    one.part(2, bytes(3, 10)).await.expect("a part");
    one.finish().await.expect("it is finished");
    two.finish().await.expect("it is finished");
    expect_object(store, &key, &bytes(2, PART)).await;
}

pub async fn abandoning_a_key_leaves_its_object_and_other_keys_alone(store: &impl ObjectStore) {
    let (key, longer) = (key("exports/a.csv"), key("exports/a.csv.gz"));
    store.put(&key, CSV, bytes(1, 10)).await.expect("it is stored");
    let other = begin(store, &longer).await;
    other.part(1, bytes(2, 10)).await.expect("a part");
    for _ in 0..2 {
        store.abandon(&key).await.expect("it is abandoned");
    }
    expect_object(store, &key, &bytes(1, 10)).await;
    other.finish().await.expect("it is finished");
    expect_object(store, &longer, &bytes(2, 10)).await;
}

fn part_of(content: &Bytes, number: u32) -> Bytes {
    let start = (number as usize - 1) * PART;
    content.slice(start..content.len().min(start + PART))
}
