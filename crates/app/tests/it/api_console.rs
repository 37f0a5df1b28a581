//! The console's files: open to all, small, never from elsewhere, and sent once.

use std::io::Read as _;

use flate2::read::GzDecoder;
use reqwest::{StatusCode, header};

use crate::api_world::{Options, World};

const FILES: [(&str, &str); 3] = [
    ("/", "text/html; charset=utf-8"),
    ("/console/console.js", "text/javascript; charset=utf-8"),
    ("/console/icon.svg", "image/svg+xml"),
];

#[tokio::test]
async fn the_console_is_sent_once_and_may_load_nothing_from_elsewhere() {
    World::on_sqlite(Options::default(), async |world: &World| {
        for (path, content_type) in FILES {
            let answer = world.client.get(world.url(path)).send().await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            let headers = answer.headers().clone();
            assert_eq!(headers[header::CONTENT_TYPE], content_type, "{path}");
            assert_eq!(headers[header::CACHE_CONTROL], "no-cache", "{path}");
            let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
            assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
            assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
            assert_eq!(headers[header::VARY], "accept-encoding", "{path}");
            assert!(!headers.contains_key(header::CONTENT_ENCODING), "{path}");
            let text = answer.text().await.expect("a text");
            assert!(!text.is_empty());

            let request = world.client.get(world.url(path)).header(header::ACCEPT_ENCODING, "gzip");
            let answer = request.send().await.expect("an answer");
            assert_eq!(answer.headers()[header::CONTENT_ENCODING], "gzip", "{path}");
            assert_eq!(answer.headers()[header::ETAG], headers[header::ETAG], "{path}");
            let mut unpacked = String::new();
            let packed = answer.bytes().await.expect("a body");
            GzDecoder::new(&*packed).read_to_string(&mut unpacked).expect("gzip");
            assert_eq!(unpacked, text, "{path}");

            let tag = headers[header::ETAG].to_str().expect("text");
            for (known, status) in [
                (tag.to_owned(), StatusCode::NOT_MODIFIED),
                (format!("\"other\", {tag}"), StatusCode::NOT_MODIFIED),
                (tag.replace("W/", ""), StatusCode::NOT_MODIFIED),
                ("*".to_owned(), StatusCode::NOT_MODIFIED),
                ("\"other\"".to_owned(), StatusCode::OK),
            ] {
                let request = world.client.get(world.url(path));
                let request = request.header(header::IF_NONE_MATCH, &known);
                let answer = request.send().await.expect("an answer");
                assert_eq!(answer.status(), status, "{path}: {known}");
                assert_eq!(answer.headers()[header::ETAG], tag, "{path}: {known}");
            }
        }
        for path in ["/console/", "/console/nothing.js", "/console/..%2findex.html"] {
            let answer = world.client.get(world.url(path)).send().await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        }
    })
    .await;
}
