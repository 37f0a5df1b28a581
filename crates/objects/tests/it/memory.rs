//! The store in memory: the suite, and its faults.

use bytes::Bytes;
use futures::StreamExt as _;
use outport_objects::{
    ObjectError, ObjectStore as _,
    memory::{Fault, MemoryStore, Step},
};

use crate::conformance::{bytes, expect_nothing, expect_object, key};

const CSV: &str = "text/csv";

fn open() -> std::future::Ready<(MemoryStore, ())> {
    std::future::ready((MemoryStore::new(), ()))
}

conformance_suite!(open);

#[tokio::test]
async fn a_planned_part_fails_once_and_the_open_upload_is_seen() {
    let store = MemoryStore::new();
    store.fail(Step::Part(2), Fault::Unreachable);
    let upload = store.begin(&key("a.csv"), CSV).await.expect("an upload");
    upload.part(1, bytes(1, 10)).await.expect("a part");
    let failed = upload.part(2, bytes(2, 10)).await;
    assert!(matches!(failed, Err(ObjectError::Unreachable(_))), "{failed:?}");
    assert_eq!(store.open_uploads(), [("a.csv".to_owned(), upload.id().to_owned())]);
    upload.part(2, bytes(2, 10)).await.expect("the second time");
    upload.finish().await.expect("it is finished");
    assert_eq!(store.open_uploads(), []);
    assert_eq!(store.keys(), ["a.csv"]);
}

#[tokio::test]
async fn aborting_twice_is_fine() {
    let store = MemoryStore::new();
    let upload = store.begin(&key("a.csv"), CSV).await.expect("an upload");
    for _ in 0..2 {
        store.abort(&key("a.csv"), upload.id()).await.expect("it is aborted");
    }
    upload.abort().await.expect("it is aborted");
    assert_eq!(store.open_uploads(), []);
}

#[tokio::test]
async fn an_upload_whose_id_was_lost_is_abandoned_by_its_key() {
    let store = MemoryStore::new();
    store.fail(Step::Begin, Fault::AnswerLost);
    assert!(store.begin(&key("a.csv"), CSV).await.is_err());
    let other = store.begin(&key("a.csv.gz"), CSV).await.expect("an upload");
    store.abandon(&key("a.csv")).await.expect("it is abandoned");
    assert_eq!(store.open_uploads(), [("a.csv.gz".to_owned(), other.id().to_owned())]);
}

#[tokio::test]
async fn a_standing_fault_stands_until_recovery() {
    let store = MemoryStore::new();
    store.always_fail(Step::Put, Fault::Full);
    for _ in 0..2 {
        let refused = store.put(&key("a.csv"), CSV, bytes(1, 10)).await;
        assert!(matches!(refused, Err(ObjectError::Full(_))), "{refused:?}");
    }
    store.recover();
    store.put(&key("a.csv"), CSV, bytes(1, 10)).await.expect("it is stored");
}

#[tokio::test]
async fn a_refusal_carries_its_code_and_changes_nothing() {
    let store = MemoryStore::new();
    store.fail(Step::Put, Fault::Refused("AccessDenied"));
    let refused = store.put(&key("a.csv"), CSV, bytes(1, 10)).await;
    assert!(
        matches!(&refused, Err(ObjectError::Refused { code, .. }) if code == "AccessDenied"),
        "{refused:?}"
    );
    expect_nothing(&store, &key("a.csv")).await;
}

#[tokio::test]
async fn a_lost_answer_leaves_the_effect() {
    let store = MemoryStore::new();
    store.fail(Step::Finish, Fault::AnswerLost);
    let upload = store.begin(&key("a.csv"), CSV).await.expect("an upload");
    upload.part(1, bytes(1, 10)).await.expect("a part");
    assert!(matches!(upload.finish().await, Err(ObjectError::Unreachable(_))));
    expect_object(&store, &key("a.csv"), &bytes(1, 10)).await;
}

#[tokio::test]
async fn a_wrong_size_is_reported_once() {
    let store = MemoryStore::new();
    store.put(&key("a.csv"), CSV, bytes(1, 10)).await.expect("it is stored");
    store.fail(Step::Head, Fault::WrongSize);
    for expected in [11, 10] {
        let meta = store.head(&key("a.csv")).await.expect("an answer").expect("the object");
        assert_eq!(meta.size, expected);
    }
}

#[tokio::test]
async fn a_download_breaks_in_the_middle_with_an_error() {
    let store = MemoryStore::new();
    store.put(&key("a.csv"), CSV, bytes(1, 200_000)).await.expect("it is stored");
    store.fail(Step::Get, Fault::BreakAfter(100_000));
    let stream = store.get(&key("a.csv"), None).await.expect("a stream");
    let pieces: Vec<Result<Bytes, _>> = stream.collect().await;
    let read: usize = pieces.iter().flatten().map(Bytes::len).sum();
    assert_eq!(read, 100_000);
    assert!(matches!(pieces.last(), Some(Err(ObjectError::Unreachable(_)))));
}

#[tokio::test]
async fn a_step_hangs_until_it_is_released() {
    let store = MemoryStore::new();
    let hang = store.hang(Step::Finish);
    let upload = store.begin(&key("a.csv"), CSV).await.expect("an upload");
    let finish = tokio::spawn(upload.finish());
    hang.reached().await;
    assert_eq!(store.keys(), Vec::<String>::new());
    assert!(!finish.is_finished());
    hang.release();
    finish.await.expect("no panic").expect("it is finished");
    assert_eq!(store.keys(), ["a.csv"]);
}

#[tokio::test]
async fn bytes_can_be_changed_behind_everybodys_back() {
    let store = MemoryStore::new();
    store.put(&key("a.csv"), CSV, bytes(1, 10)).await.expect("it is stored");
    store.tamper("a.csv", bytes(2, 10));
    expect_object(&store, &key("a.csv"), &bytes(2, 10)).await;
    assert_eq!(store.bytes("a.csv"), Some(bytes(2, 10)));
}
