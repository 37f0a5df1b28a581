//! The local folder: the suite, and what concerns files.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use bytes::Bytes;
use futures::StreamExt as _;
use outport_objects::{DownloadHeaders, ObjectError, ObjectStore as _, local::LocalFolder};
use tempfile::TempDir;

use crate::conformance::{bytes, expect_nothing, key};

const CSV: &str = "text/csv";

async fn open() -> (LocalFolder, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalFolder::open(folder.path().join("objects")).await.expect("it opens");
    (store, folder)
}

conformance_suite!(open);

/// Every file and folder below, as text.
fn listing(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        found.push(path.file_name().expect("a name").to_string_lossy().into_owned());
        if path.is_dir() {
            found.extend(listing(&path));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn nothing_is_left_of_what_is_finished_aborted_or_deleted() {
    let (store, folder) = open().await;
    let (a, b) = (key("exports/1/a.csv"), key("exports/2/b.csv"));
    store.put(&a, CSV, bytes(1, 10)).await.expect("it is stored");
    let upload = store.begin(&b, CSV).await.expect("an upload");
    for number in [2, 1] {
        upload.part(number, bytes(1, 10)).await.expect("a part");
    }
    upload.finish().await.expect("it is finished");
    for number in [1, 2] {
        let upload = store.begin(&a, CSV).await.expect("an upload");
        upload.part(number, bytes(1, 10)).await.expect("a part");
        upload.abort().await.expect("it is aborted");
    }
    let root = folder.path().join("objects");
    assert_eq!(listing(&root), [".uploads", "1", "2", "a.csv", "b.csv", "exports"]);

    store.delete(&a).await.expect("it is deleted");
    assert_eq!(listing(&root), [".uploads", "2", "b.csv", "exports"]);
    store.delete(&b).await.expect("it is deleted");
    assert_eq!(listing(&root), [".uploads"]);
    store.put(&a, CSV, bytes(1, 10)).await.expect("the folders come back");
}

/// The path below the folder and the mode of everything in it.
fn modes(folder: &Path) -> Vec<(std::path::PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let mode = fs::symlink_metadata(&path).expect("its mode").permissions().mode() & 0o777;
        if path.is_dir() {
            found.extend(modes(&path));
        }
        found.push((path, mode));
    }
    found
}

#[tokio::test]
async fn what_is_made_is_its_owners_alone_from_the_first_byte_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let top = folder.path().join("made/on/the/way");
    let store = LocalFolder::open(top).await.expect("it opens");
    store.put(&key("exports/1/a.csv"), CSV, bytes(1, 10)).await.expect("it is stored");
    let finished = store.begin(&key("exports/2/b.csv"), CSV).await.expect("an upload");
    for number in [2, 1] {
        finished.part(number, bytes(1, 10)).await.expect("a part");
    }
    finished.finish().await.expect("it is finished");
    let begun = store.begin(&key("exports/3/c.csv"), CSV).await.expect("an upload");
    for _ in 0..2 {
        begun.part(2, bytes(1, 10)).await.expect("a part that waits for the first");
    }
    let found = modes(folder.path());
    let files = found.iter().filter(|(path, _)| path.is_file()).count();
    assert_eq!(files, 4, "two objects, and an upload with a part that waits: {found:?}");
    for (path, mode) in found {
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

#[tokio::test]
async fn aborting_twice_is_fine() {
    let (store, _folder) = open().await;
    let key = key("a.csv");
    let upload = store.begin(&key, CSV).await.expect("an upload");
    for _ in 0..2 {
        store.abort(&key, upload.id()).await.expect("it is aborted");
    }
    upload.abort().await.expect("it is aborted");
}

#[tokio::test]
async fn an_upload_id_that_is_not_ours_leads_nowhere() {
    let (store, folder) = open().await;
    store.put(&key("exports/a.csv"), CSV, bytes(1, 10)).await.expect("it is stored");
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).expect("a folder");
    let simple = "0197f60449fe7b73bb81df2e93a7e47d";
    for id in ["", ".", "..", "../exports", "../../outside", "/tmp", "put-1", simple, "a\0b"] {
        let refused = store.abort(&key("exports/a.csv"), id).await;
        assert!(
            matches!(&refused, Err(ObjectError::Refused { code, .. }) if code == "InvalidUploadId"),
            "{id:?}: {refused:?}"
        );
    }
    assert!(outside.exists());
    assert!(folder.path().join("objects/exports/a.csv").exists());
}

#[tokio::test]
async fn an_upload_outlives_the_process_until_it_is_aborted() {
    let (store, folder) = open().await;
    let key = key("a.csv");
    let upload = store.begin(&key, CSV).await.expect("an upload");
    upload.part(1, bytes(1, 10)).await.expect("a part");
    let id = upload.id().to_owned();
    drop((upload, store));

    let root = folder.path().join("objects");
    let store = LocalFolder::open(root.clone()).await.expect("it opens again");
    assert!(listing(&root).contains(&id));
    store.abort(&key, &id).await.expect("it is aborted");
    assert_eq!(listing(&root), [".uploads"]);
}

/// Where the store keeps what was begun at the one key that something was begun at.
fn begun(root: &Path) -> std::path::PathBuf {
    let mut folders = fs::read_dir(root.join(".uploads")).expect("a folder");
    folders.next().expect("something was begun").expect("an entry").path()
}

#[tokio::test]
async fn what_a_killed_process_left_of_a_small_object_goes_with_its_key_alone() {
    let (store, folder) = open().await;
    let (root, left) = (folder.path().join("objects"), key("exports/1/a.csv"));
    // A put that was killed leaves what an upload leaves: a file in a folder of its key.
    drop(store.begin(&left, CSV).await.expect("an upload"));
    fs::write(begun(&root).join("rows"), "1,2,3").expect("a file");
    store.abandon(&key("exports/1/a.csv.gz")).await.expect("it is abandoned");
    assert_eq!(listing(&root).len(), 5, "of another key: {:?}", listing(&root));
    store.abandon(&left).await.expect("it is abandoned");
    assert_eq!(listing(&root), [".uploads"]);
}

#[tokio::test]
async fn a_put_that_fails_half_way_leaves_its_bytes_only_where_its_key_leads() {
    let (store, folder) = open().await;
    let root = folder.path().join("objects");
    // No rename replaces a folder.
    fs::create_dir_all(root.join("a.csv/b")).expect("a folder");
    assert!(store.put(&key("a.csv"), CSV, bytes(1, 10)).await.is_err());
    assert_eq!(listing(&root), [".uploads", "a.csv", "b"]);
}

#[tokio::test]
async fn a_late_put_to_an_abandoned_key_fails_and_makes_no_object() {
    let (store, folder) = open().await;
    let key = key("a.csv");
    let upload = store.begin(&key, CSV).await.expect("an upload");
    upload.part(1, bytes(1, 10)).await.expect("a part");
    store.abandon(&key).await.expect("it is abandoned");
    assert!(upload.finish().await.is_err());
    expect_nothing(&store, &key).await;
    assert_eq!(listing(&folder.path().join("objects")), [".uploads"]);
}

#[tokio::test]
async fn scratch_of_a_dead_process_goes_at_the_next_start_and_that_of_a_live_one_stays() {
    let (_store, folder) = open().await;
    let root = folder.path().join("objects");
    let (dead, live) = (root.join(".uploads/check-dead"), root.join(".uploads/check-live"));
    for scratch in [&dead, &live] {
        fs::create_dir(scratch).expect("a folder");
        fs::write(scratch.join("data"), "x").expect("a file");
    }
    let then = std::time::SystemTime::now() - Duration::from_hours(2);
    fs::File::open(&dead).and_then(|file| file.set_modified(then)).expect("its time is set");
    LocalFolder::open(root).await.expect("it opens again");
    assert!(!dead.exists());
    assert!(live.exists());
}

#[tokio::test]
async fn a_file_is_read_in_pieces_of_at_most_256_kib() {
    let (store, _folder) = open().await;
    store.put(&key("a.csv"), CSV, bytes(1, 1_000_000)).await.expect("it is stored");
    let stream = store.get(&key("a.csv"), None).await.expect("a stream");
    let pieces: Vec<_> = stream.map(|piece| piece.expect("a piece").len()).collect().await;
    assert!(pieces.iter().all(|&length| 0 < length && length <= 256 * 1024), "{pieces:?}");
    assert_eq!(pieces.iter().sum::<usize>(), 1_000_000);
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_read_ends_in_an_error() {
    let (store, folder) = open().await;
    store.put(&key("a.csv"), CSV, bytes(1, 1_000_000)).await.expect("it is stored");
    let mut stream = store.get(&key("a.csv"), None).await.expect("a stream");
    stream.next().await.expect("a piece").expect("it reads");
    let path = folder.path().join("objects/a.csv");
    let file = fs::OpenOptions::new().write(true).open(path).expect("the file");
    file.set_len(300_000).expect("it is cut");
    let rest: Vec<_> = stream.collect().await;
    assert!(matches!(rest.last(), Some(Err(ObjectError::Failed(_)))));
}

#[tokio::test]
async fn a_folder_is_not_an_object() {
    let (store, _folder) = open().await;
    store.put(&key("exports/1/a.csv"), CSV, bytes(1, 10)).await.expect("it is stored");
    for folder in ["exports", "exports/1", "exports/1/a.csv/b"] {
        expect_nothing(&store, &key(folder)).await;
        store.delete(&key(folder)).await.expect("nothing to delete");
    }
    assert!(store.head(&key("exports/1/a.csv")).await.expect("an answer").is_some());
}

#[tokio::test]
async fn a_folder_that_is_gone_fails_the_check() {
    let (store, folder) = open().await;
    fs::remove_dir_all(folder.path().join("objects")).expect("it is removed");
    assert!(store.check().await.is_err());
}

/// A mount that is away, or a file where the folder was: nothing is gone, and nothing is written.
#[tokio::test]
async fn a_root_that_is_no_folder_is_said_to_be_so_and_none_of_its_objects_to_be_gone() {
    let (store, folder) = open().await;
    let (root, key) = (folder.path().join("objects"), key("exports/1/a.csv"));
    store.put(&key, CSV, bytes(1, 10)).await.expect("it is stored");
    let upload = store.begin(&key, CSV).await.expect("an upload");
    let aside = folder.path().join("aside");
    fs::rename(&root, &aside).expect("it is moved");
    let away = store.head(&key).await;
    assert!(matches!(away, Err(ObjectError::Failed(_))), "{away:?}");
    fs::write(&root, "no folder").expect("a file");
    for written in [
        store.check().await,
        store.begin(&key, CSV).await.map(drop),
        store.put(&key, CSV, bytes(1, 10)).await.map(drop),
    ] {
        let error = written.expect_err("there is no folder");
        assert_eq!(error.to_string(), "the folder of the object store cannot be written");
    }
    for read in [
        store.head(&key).await.map(drop),
        store.get(&key, None).await.map(drop),
        store.delete(&key).await,
    ] {
        assert!(matches!(read, Err(ObjectError::Failed(_))), "{read:?}");
    }
    upload.part(1, bytes(1, 10)).await.expect("its file is open");
    assert!(matches!(upload.finish().await, Err(ObjectError::NotWritable(_))));
    fs::remove_file(&root).expect("it is removed");
    fs::rename(&aside, &root).expect("it is back");
    assert!(store.head(&key).await.expect("an answer").is_some(), "as it was");
}

#[tokio::test]
async fn a_local_file_has_no_url() {
    let (store, _folder) = open().await;
    store.put(&key("a.csv"), CSV, Bytes::new()).await.expect("it is stored");
    let headers =
        DownloadHeaders { content_disposition: "attachment".into(), content_type: CSV.into() };
    let url = store.presign_get(&key("a.csv"), &headers, Duration::from_mins(1)).await;
    assert_eq!(url.expect("an answer"), None);
}
