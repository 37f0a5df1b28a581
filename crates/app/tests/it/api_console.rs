//! The console's files: open to all, small, never from elsewhere, and sent once.

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
            assert!(!answer.bytes().await.expect("a body").is_empty());

            let tag = headers[header::ETAG].to_str().expect("text");
            for (known, status) in [
                (tag.to_owned(), StatusCode::NOT_MODIFIED),
                (format!("\"other\", W/{tag}"), StatusCode::NOT_MODIFIED),
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
