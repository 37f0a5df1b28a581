//! S3 against a real server: the suite, and what concerns links and failures.

use std::{
    fs,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use outport_objects::{
    DownloadHeaders, ObjectError, ObjectStore,
    disposition::content_disposition,
    s3::{ChecksumMode, S3Config, S3Credentials, S3Store, SecretAccessKey},
};
use tokio::net::TcpSocket;
use url::Url;

use crate::{
    conformance::{self, PART, bytes, key},
    s3_server::{self, ACCESS_KEY_ID, S3Server, SECRET},
};

const CSV: &str = "text/csv";

async fn open() -> (S3Store, S3Server) {
    let server = S3Server::start();
    (S3Store::connect(server.config()).await, server)
}

async fn open_with(change: impl FnOnce(&mut S3Config)) -> (S3Store, S3Server) {
    let server = S3Server::start();
    let mut config = server.config();
    change(&mut config);
    (S3Store::connect(config).await, server)
}

conformance_suite!(open);

fn headers() -> DownloadHeaders {
    DownloadHeaders {
        content_disposition: content_disposition("relação 7.csv"),
        content_type: "text/csv; charset=utf-8".to_owned(),
    }
}

/// The error and all its causes, as a log would print them.
fn chain(error: &ObjectError) -> String {
    let mut text = format!("{error:?} {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text} {error:?} {error}");
        cause = error.source();
    }
    text
}

#[tokio::test]
async fn the_suite_holds_below_a_prefix_and_with_checksums_everywhere() {
    let (store, server) = open_with(|config| {
        config.prefix = Some("/tenant/one/".to_owned());
        config.checksum = ChecksumMode::WhenSupported;
    })
    .await;
    conformance::a_small_object_comes_back(&store).await;
    conformance::parts_in_any_order_and_at_once_make_the_object(&store).await;
    conformance::deleting_twice_is_fine(&store).await;
    assert!(server.folder.path().join("exports/tenant/one/exports/0197/orders.csv").is_file());
}

#[tokio::test]
async fn an_aborted_upload_leaves_no_part_behind() {
    let (store, server) = open().await;
    let parts = || {
        let entries = fs::read_dir(server.folder.path()).expect("the server's folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names.filter(|name| name.to_string_lossy().contains("upload")).count()
    };
    let upload = store.begin(&key("a.csv"), CSV).await.expect("an upload");
    upload.part(1, bytes(1, PART)).await.expect("a part");
    assert_ne!(parts(), 0, "the test looks in the right place");
    upload.abort().await.expect("it is aborted");
    assert_eq!(parts(), 0);
}

#[tokio::test]
async fn a_presigned_link_downloads_with_nothing_else() {
    let (store, _server) = open().await;
    store.put(&key("exports/a.csv"), CSV, bytes(1, 1_000)).await.expect("it is stored");
    let url = store.presign_get(&key("exports/a.csv"), &headers(), Duration::from_mins(15)).await;
    let url = url.expect("it is signed").expect("S3 has links");
    assert!(!url.as_str().contains(SECRET));
    let answer = reqwest::get(url.clone()).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-disposition"], headers().content_disposition);
    assert_eq!(answer.headers()["content-type"], headers().content_type);
    assert_eq!(answer.bytes().await.expect("a body"), bytes(1, 1_000));

    let forged = url.as_str().replace("7.csv", "8.csv");
    assert_ne!(forged, url.as_str());
    assert_eq!(reqwest::get(forged).await.expect("an answer").status(), 403);
}

#[tokio::test]
async fn a_presigned_link_ends() {
    let (store, _server) = open().await;
    store.put(&key("a.csv"), CSV, bytes(1, 10)).await.expect("it is stored");
    let url = store.presign_get(&key("a.csv"), &headers(), Duration::from_secs(1)).await;
    let url = url.expect("it is signed").expect("S3 has links");
    let deadline = Instant::now() + Duration::from_secs(20);
    while reqwest::get(url.clone()).await.expect("an answer").status() != 403 {
        assert!(Instant::now() < deadline, "the link outlives its second");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_presigned_link_names_the_public_endpoint_and_its_own_expiry() {
    let (store, _server) = open_with(|config| {
        config.public_endpoint = Url::parse("https://files.example.com").ok();
        config.path_style = false;
        config.checksum = ChecksumMode::WhenSupported;
    })
    .await;
    let url = store.presign_get(&key("exports/a.csv"), &headers(), Duration::from_mins(15)).await;
    let url = url.expect("it is signed").expect("S3 has links");
    assert_eq!(url.scheme(), "https");
    assert_eq!(url.host_str(), Some("exports.files.example.com"));
    assert_eq!(url.path(), "/exports/a.csv");
    let query = |name: &str| {
        url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    assert_eq!(query("X-Amz-Expires").as_deref(), Some("900"));
    assert_eq!(query("X-Amz-SignedHeaders").as_deref(), Some("host"), "a browser sends no other");
    assert_eq!(query("response-content-disposition"), Some(headers().content_disposition));
}

#[tokio::test]
async fn a_link_for_longer_than_a_week_is_not_signed() {
    let (store, _server) = open().await;
    let week = Duration::from_hours(7 * 24);
    let within = store.presign_get(&key("a.csv"), &headers(), week).await;
    assert!(within.is_ok(), "{within:?}");
    let beyond = store.presign_get(&key("a.csv"), &headers(), week + Duration::from_secs(1)).await;
    assert!(matches!(beyond, Err(ObjectError::Failed(_))), "{beyond:?}");
}

#[tokio::test]
async fn wrong_credentials_are_refused_with_a_code_and_never_shown() {
    for (id, secret, code) in [
        // The codes are this server's words; AWS says `InvalidAccessKeyId` to the second.
        (ACCESS_KEY_ID, "another-secret-of-ours", "SignatureDoesNotMatch"),
        ("AKNOBODY", SECRET, "NotSignedUp"),
    ] {
        let (store, _server) = open_with(|config| {
            config.credentials = S3Credentials::Static {
                access_key_id: id.to_owned(),
                secret: SecretAccessKey::new(secret),
            };
        })
        .await;
        let error = store.put(&key("a.csv"), CSV, bytes(1, 10)).await.expect_err("refused");
        assert!(
            matches!(&error, ObjectError::Refused { code: found, .. } if found == code),
            "{error:?}"
        );
        assert!(!chain(&error).contains(secret), "{}", chain(&error));
        assert!(error.to_string().contains(code));
        let error = store.head(&key("a.csv")).await.expect_err("refused");
        assert!(matches!(&error, ObjectError::Refused { .. }), "{error:?}");
        let error = store.check().await.expect_err("refused");
        assert!(matches!(&error, ObjectError::Refused { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_missing_bucket_is_refused_and_never_an_empty_store() {
    let (store, _server) = open_with(|config| config.bucket = "no-such-bucket".to_owned()).await;
    let checked = store.check().await;
    assert!(
        matches!(&checked, Err(ObjectError::Refused { code, .. }) if code == "NoSuchBucket"),
        "{checked:?}"
    );
    let deleted = store.delete(&key("a.csv")).await;
    assert!(
        matches!(&deleted, Err(ObjectError::Refused { code, .. }) if code == "NoSuchBucket"),
        "{deleted:?}"
    );
}

#[tokio::test]
async fn a_store_that_is_down_is_unreachable_and_its_address_stays_inside() {
    // Bound, so that nobody else listens there, and not listening itself.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
    let address = socket.local_addr().expect("its address");
    let mut config = s3_server::config(address);
    config.attempts = 1;
    let store = S3Store::connect(config).await;
    let error = store.put(&key("a.csv"), CSV, bytes(1, 10)).await.expect_err("nobody listens");
    assert!(matches!(error, ObjectError::Unreachable(_)), "{error:?}");
    assert!(!error.to_string().contains(&address.port().to_string()), "{error}");
    assert!(!chain(&error).contains(SECRET));
    assert!(matches!(store.check().await, Err(ObjectError::Unreachable(_))));
}
