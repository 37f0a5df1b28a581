//! S3 against answers written by hand: what a small server never says, and big ones do.

use std::{net::Ipv4Addr, time::Duration};

use futures::StreamExt as _;
use outport_objects::{ObjectError, ObjectStore as _, s3::S3Store};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};

use crate::{
    conformance::{bytes, key},
    s3_server,
};

const CSV: &str = "text/csv";
const BEGUN: &str =
    "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>";

/// Answers each request with the next of the answers and tells the request lines.
struct Scripted {
    store: S3Store,
    requests: mpsc::UnboundedReceiver<String>,
    server: JoinHandle<()>,
}

impl Scripted {
    async fn start(answers: Vec<Answer>) -> Self {
        Self::start_with(answers, Duration::from_mins(1), 3).await
    }

    async fn start_with(answers: Vec<Answer>, attempt_timeout: Duration, attempts: u32) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let mut config = s3_server::config(listener.local_addr().expect("its address"));
        config.attempt_timeout = attempt_timeout;
        config.attempts = attempts;
        let (told, requests) = mpsc::unbounded_channel();
        let server = tokio::spawn(async move {
            let mut silent = Vec::new();
            for answer in answers {
                let (mut socket, _) = listener.accept().await.expect("a connection");
                told.send(read_request(&mut socket).await).expect("the test listens");
                match answer {
                    Answer::Text(text) => {
                        socket.write_all(text.as_bytes()).await.expect("it is sent");
                        socket.shutdown().await.expect("it is closed");
                    }
                    Answer::Silence => silent.push(socket),
                }
            }
            // Holds the connections that got no answer for as long as the test runs.
            std::future::pending::<()>().await;
            drop(silent);
        });
        Self { store: S3Store::connect(config).await, requests, server }
    }

    /// The request lines so far.
    fn requests(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).collect()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.server.abort();
    }
}

enum Answer {
    Text(String),
    Silence,
}

fn ok(headers: &str, body: &str) -> Answer {
    answer("200 OK", headers, body)
}

fn answer(status: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    Answer::Text(format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    ))
}

fn error(status: &str, code: &str) -> Answer {
    answer(status, "", &format!("<Error><Code>{code}</Code><Message>m</Message></Error>"))
}

/// Reads a request with its body and gives its first line.
async fn read_request(socket: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let head = loop {
        socket.read_buf(&mut request).await.expect("a request");
        let text = String::from_utf8_lossy(&request);
        if let Some(end) = text.find("\r\n\r\n") {
            break text[..end].to_ascii_lowercase() + "\r\n";
        }
    };
    let length = head
        .split("\r\n")
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().expect("a number"));
    while request.len() < head.len() + 2 + length {
        socket.read_buf(&mut request).await.expect("a body");
    }
    let text = String::from_utf8_lossy(&request);
    text.lines().next().expect("a request line").to_owned()
}

#[tokio::test]
async fn aborting_an_upload_the_store_no_longer_knows_is_fine() {
    let scripted = Scripted::start(vec![error("404 Not Found", "NoSuchUpload")]).await;
    scripted.store.abort(&key("a.csv"), "u1").await.expect("it is gone already");
}

#[tokio::test]
async fn an_abort_that_is_forbidden_is_not_taken_for_done() {
    let scripted = Scripted::start(vec![error("403 Forbidden", "AccessDenied")]).await;
    let aborted = scripted.store.abort(&key("a.csv"), "u1").await;
    assert!(
        matches!(&aborted, Err(ObjectError::Refused { code, .. }) if code == "AccessDenied"),
        "{aborted:?}"
    );
}

fn upload_listed(key: &str, id: &str) -> String {
    format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>")
}

#[tokio::test]
async fn abandoning_a_key_aborts_every_upload_to_exactly_this_key() {
    let first = format!(
        "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>\
         <NextKeyMarker>a.csv</NextKeyMarker><NextUploadIdMarker>u1</NextUploadIdMarker>{}\
         </ListMultipartUploadsResult>",
        upload_listed("a.csv", "u1")
    );
    let second = format!(
        "<ListMultipartUploadsResult>{}{}</ListMultipartUploadsResult>",
        upload_listed("a.csv", "u2"),
        upload_listed("a.csv.gz", "u3")
    );
    let gone = || answer("204 No Content", "", "");
    let mut scripted = Scripted::start(vec![ok("", &first), ok("", &second), gone(), gone()]).await;
    scripted.store.abandon(&key("a.csv")).await.expect("it is abandoned");
    let requests = scripted.requests();
    let [one, two, rest @ ..] = requests.as_slice() else { panic!("{requests:?}") };
    assert!(one.starts_with("GET /exports") && one.contains("prefix=a.csv"), "{one}");
    assert!(two.contains("key-marker=a.csv") && two.contains("upload-id-marker=u1"), "{two}");
    let aborts = |id: &str| format!("uploadId={id}");
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert!(rest[0].starts_with("DELETE /exports/a.csv?") && rest[0].contains(&aborts("u1")));
    assert!(rest[1].starts_with("DELETE /exports/a.csv?") && rest[1].contains(&aborts("u2")));
}

#[tokio::test]
async fn a_store_that_lists_no_uploads_is_left_alone_and_a_busy_one_is_an_error() {
    for (status, code) in
        [("403 Forbidden", "AccessDenied"), ("501 Not Implemented", "NotImplemented")]
    {
        let scripted = Scripted::start(vec![error(status, code)]).await;
        scripted.store.abandon(&key("a.csv")).await.expect("there is nothing to do");
    }
    let busy = error("503 Slow Down", "SlowDown");
    let scripted = Scripted::start_with(vec![busy], Duration::from_mins(1), 1).await;
    let abandoned = scripted.store.abandon(&key("a.csv")).await;
    assert!(matches!(&abandoned, Err(ObjectError::Refused { code, .. }) if code == "SlowDown"));
}

#[tokio::test]
async fn finishing_survives_a_lost_answer_when_the_object_is_there() {
    let part = "etag: \"p\"\r\n";
    for (etag, size, is_ours) in
        [("\"x-1\"", 10, true), ("\"x-2\"", 10, false), ("\"x-1\"", 11, false)]
    {
        let head = || answer_to_head(&format!("etag: {etag}\r\n"), size);
        let mut scripted = Scripted::start(vec![
            ok("", BEGUN),
            ok(part, ""),
            // The answer to the first try is lost, the second hears that the upload is no more.
            Answer::Text(String::new()),
            error("404 Not Found", "NoSuchUpload"),
            head(),
            head(),
        ])
        .await;
        let upload = scripted.store.begin(&key("a.csv"), CSV).await.expect("an upload");
        upload.part(1, bytes(1, 10)).await.expect("a part");
        let finished = upload.finish().await;
        assert_eq!(finished.is_ok(), is_ours, "{etag} {size}: {finished:?}");
        let completions =
            scripted.requests().iter().filter(|line| line.contains("uploadId=u1")).count();
        assert_eq!(completions, 3, "one part and two tries to complete");
    }
}

#[tokio::test]
async fn an_error_in_an_answer_that_began_well_is_an_error() {
    // Completing sends its 200 early and may still fail.
    let late = "<Error><Code>InternalError</Code><Message>m</Message></Error>";
    let mut answers = vec![ok("", BEGUN), ok("etag: \"p\"\r\n", "")];
    answers.extend((0..3).map(|_| ok("", late)));
    let scripted = Scripted::start(answers).await;
    let upload = scripted.store.begin(&key("a.csv"), CSV).await.expect("an upload");
    upload.part(1, bytes(1, 10)).await.expect("a part");
    let finished = upload.finish().await;
    assert!(
        matches!(&finished, Err(ObjectError::Refused { code, .. }) if code == "InternalError"),
        "{finished:?}"
    );
}

#[tokio::test]
async fn a_busy_store_is_asked_again() {
    let mut scripted =
        Scripted::start(vec![error("503 Slow Down", "SlowDown"), answer("204 No Content", "", "")])
            .await;
    scripted.store.delete(&key("a.csv")).await.expect("the second try");
    assert_eq!(scripted.requests().len(), 2);
}

#[tokio::test]
async fn a_body_cut_short_ends_in_an_error() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this";
    let scripted = Scripted::start(vec![Answer::Text(cut.to_owned())]).await;
    let stream = scripted.store.get(&key("a.csv"), None).await.expect("a stream");
    let pieces: Vec<_> = stream.collect().await;
    assert!(matches!(pieces.last(), Some(Err(ObjectError::Unreachable(_)))), "{pieces:?}");
}

#[tokio::test]
async fn a_store_that_never_answers_is_unreachable() {
    let scripted = Scripted::start_with(vec![Answer::Silence], Duration::from_millis(100), 1).await;
    let head = scripted.store.head(&key("a.csv")).await;
    assert!(matches!(head, Err(ObjectError::Unreachable(_))), "{head:?}");
}

#[tokio::test]
async fn a_store_without_room_is_full() {
    let full = || error("507 Insufficient Storage", "XMinioStorageFull");
    let scripted = Scripted::start_with(vec![full()], Duration::from_mins(1), 1).await;
    let put = scripted.store.put(&key("a.csv"), CSV, bytes(1, 10)).await;
    assert!(matches!(put, Err(ObjectError::Full(_))), "{put:?}");
}

/// MD5 of `abc`, which is in RFC 1321.
const OF_ABC: &str = "etag: \"900150983cd24fb0d6963f7d28e17f72\"\r\n";

/// What the store is asked about its etags, and the MD5 of that by `md5sum`.
const PUT_PROBE: &str = "PUT /exports/a.csv.etag";
const DELETE_PROBE: &str = "DELETE /exports/a.csv.etag";
const OF_PROBE: &str = "etag: \"3c9abee395a9d031a8f142a512d49391\"\r\n";

#[tokio::test]
async fn bytes_that_the_store_has_otherwise_than_sent_are_refused() {
    let managed = format!("{OF_ABC}x-amz-server-side-encryption: aws:kms\r\n");
    let own = format!("{OF_ABC}x-amz-server-side-encryption: AES256\r\n");
    let opaque = "etag: \"900150983cd24fb0-opaque\"\r\n";
    for (headers, sent, is_taken) in [
        (OF_ABC, "abc", true),
        (OF_ABC, "abd", false),
        (own.as_str(), "abc", true),
        (own.as_str(), "abd", false),
        (managed.as_str(), "abd", true),
        (opaque, "abd", true),
    ] {
        // What is asked in between: a store whose etags are digests.
        let probed = if is_taken { vec![] } else { vec![ok(OF_PROBE, ""), ok("", "")] };
        let after = if is_taken { vec![answer_to_head(headers, sent.len())] } else { vec![] };
        let put = [vec![ok(headers, "")], probed, after].into_iter().flatten().collect();
        let mut scripted = Scripted::start(put).await;
        let put = scripted.store.put(&key("a.csv"), CSV, sent.into()).await;
        assert_eq!(put.is_ok(), is_taken, "{headers} {sent}: {put:?}");
        if !is_taken {
            let requests = scripted.requests();
            assert_eq!(requests[1].split('?').next(), Some(PUT_PROBE), "{requests:?}");
            assert_eq!(requests[2].split('?').next(), Some(DELETE_PROBE), "{requests:?}");
        }

        let probed = if is_taken { vec![] } else { vec![ok(OF_PROBE, ""), ok("", "")] };
        let part = [vec![ok("", BEGUN), ok(headers, "")], probed].into_iter().flatten().collect();
        let scripted = Scripted::start(part).await;
        let upload = scripted.store.begin(&key("a.csv"), CSV).await.expect("an upload");
        let part = upload.part(1, sent.into()).await;
        assert_eq!(part.is_ok(), is_taken, "{headers} {sent}: {part:?}");
        if let Err(error) = part {
            assert!(
                matches!(&error, ObjectError::Refused { code, .. } if code == "BadDigest"),
                "{error:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_store_whose_etags_only_look_like_digests_is_asked_once_and_believed() {
    let zeros = "etag: \"00000000000000000000000000000000\"\r\n";
    let taken = || ok(zeros, "");
    let head = || answer_to_head(zeros, 3);
    let answers = vec![taken(), taken(), ok("", ""), head(), taken(), head()];
    let mut scripted = Scripted::start(answers).await;
    for _ in 0..2 {
        let put = scripted.store.put(&key("a.csv"), CSV, "abc".into()).await;
        put.expect("it is taken");
    }
    let requests = scripted.requests();
    let probes = requests.iter().filter(|line| line.contains(".etag"));
    assert_eq!((requests.len(), probes.count()), (6, 2), "{requests:?}");
}

fn answer_to_head(headers: &str, size: usize) -> Answer {
    Answer::Text(format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\n{headers}content-length: {size}\r\n\r\n"
    ))
}
