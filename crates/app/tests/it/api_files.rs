//! The bytes: whole, in parts, redirected; and the audit.

use std::time::Duration;

use outport_domain::limits::Limits;
use reqwest::{Method, header};

use crate::api_world::{FILE, Options, World, json, on_both_stores};

on_both_stores!(
    a_file_is_streamed_whole_or_in_one_part_and_every_download_is_audited,
    a_store_with_public_urls_is_redirected_to: presigned,
    the_address_behind_our_own_proxy_is_the_one_it_wrote: behind_a_proxy,
    a_file_that_the_store_lost_is_gone_and_one_it_cannot_read_is_unavailable,
    a_file_whose_length_changed_in_the_store_is_damaged,
    nobody_is_redirected_to_a_file_that_is_not_the_one_that_was_written: presigned,
    a_download_that_breaks_off_never_ends_cleanly,
    a_file_at_its_end_is_gone_whether_or_not_the_row_says_so,
);

fn presigned() -> Options {
    let limits = Limits { presigned_url: Duration::from_mins(2), ..Limits::default() };
    Options { presigned: true, limits, ..Options::default() }
}

fn behind_a_proxy() -> Options {
    Options { behind_proxy: true, ..Options::default() }
}

async fn a_file_is_streamed_whole_or_in_one_part_and_every_download_is_audited(world: &World) {
    let job = world.completed().await;
    let sha256 = job.file.as_ref().map(|file| file.sha256.clone()).expect("a file");
    let path = format!("/v1/exports/{}/file", job.id);
    let length = FILE.len();

    let head = world.request(Method::HEAD, &path).send().await.expect("an answer");
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()[header::CONTENT_LENGTH], length.to_string());
    assert!(world.downloads(job.id).await.is_empty(), "a HEAD is no download");

    let whole = world
        .get(&path)
        .header("user-agent", "curl/8")
        .header("x-forwarded-for", "203.0.113.9")
        .send()
        .await
        .expect("an answer");
    assert_eq!(whole.status(), 200);
    let headers = whole.headers().clone();
    assert_eq!(headers[header::ETAG], format!("\"{sha256}\""));
    assert_eq!(headers[header::ACCEPT_RANGES], "bytes");
    assert_eq!(headers[header::CONTENT_TYPE], "text/csv; charset=utf-8");
    assert!(
        headers[header::CONTENT_DISPOSITION]
            .to_str()
            .expect("text")
            .starts_with("attachment; filename=\"orders-")
    );
    assert_eq!(headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(whole.bytes().await.expect("bytes"), FILE);
    let [download] = world.downloads(job.id).await.try_into().expect("one download");
    assert_eq!(download.via, "API");
    assert_eq!(download.user, Some(world.user));
    assert_eq!(download.address.as_deref(), Some("127.0.0.1"), "no proxy of ours, so not believed");
    assert_eq!(download.user_agent.as_deref(), Some("curl/8"));

    for (range, status, bytes) in [
        ("bytes=0-3", 206, &FILE[0..4]),
        ("bytes=5-", 206, &FILE[5..]),
        ("bytes=-4", 206, &FILE[length - 4..]),
        ("bytes=0-1,3-4", 200, FILE),
        ("bytes=9-2", 200, FILE),
        ("items=1-2", 200, FILE),
    ] {
        let answer = world.get(&path).header("range", range).send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{range}");
        assert_eq!(answer.headers()[header::CONTENT_LENGTH], bytes.len().to_string());
        if status == 206 {
            let shown = answer.headers()[header::CONTENT_RANGE].to_str().expect("text");
            assert!(shown.ends_with(&format!("/{length}")), "{shown}");
        }
        assert_eq!(answer.bytes().await.expect("bytes"), bytes, "{range}");
    }
    let stale = world
        .get(&path)
        .header("range", "bytes=0-3")
        .header("if-range", "\"other\"")
        .send()
        .await
        .expect("an answer");
    assert_eq!(stale.status(), 200, "another file's part is not wanted");

    let before = world.downloads(job.id).await.len();
    let outside = world.get(&path).header("range", "bytes=999-").send().await.expect("an answer");
    assert_eq!(outside.headers()[header::CONTENT_RANGE], format!("bytes */{length}"));
    let (status, problem) = json(outside).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (416, Some("RANGE_NOT_SATISFIABLE")));
    assert_eq!(world.downloads(job.id).await.len(), before);

    let answer = world.get(&format!("/v1/exports/{}/downloads?limit=2", job.id)).send().await;
    let (status, page) = json(answer.expect("an answer")).await;
    assert_eq!(status, 200);
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(page["items"][0]["userId"], world.user.to_string());
    assert!(page["nextCursor"].is_string());
}

async fn a_store_with_public_urls_is_redirected_to(world: &World) {
    let job = world.completed().await;
    let path = format!("/v1/exports/{}/file", job.id);
    let answer = world.get(&path).send().await.expect("an answer");
    assert_eq!(answer.status(), 302);
    let location = answer.headers()[header::LOCATION].to_str().expect("text");
    assert!(location.starts_with("https://store.example/data-transfer/exports/"), "{location}");
    assert!(location.ends_with("expires=120"), "{location}");
    assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
    assert_eq!(world.downloads(job.id).await.len(), 1);
    // A page's script could not follow it.
    let request = world.get(&path).header("x-outport-redirect", "never");
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert!(!answer.bytes().await.expect("the file").is_empty());
    assert_eq!(world.downloads(job.id).await.len(), 2);
    let head = world.request(Method::HEAD, &path).send().await.expect("an answer");
    assert_eq!(head.status(), 200);
    assert_eq!(world.downloads(job.id).await.len(), 2);
}

async fn the_address_behind_our_own_proxy_is_the_one_it_wrote(world: &World) {
    let job = world.completed().await;
    let request = world
        .get(&format!("/v1/exports/{}/file", job.id))
        .header("x-forwarded-for", "6.6.6.6, 203.0.113.9")
        .header("user-agent", "x".repeat(500));
    assert_eq!(request.send().await.expect("an answer").status(), 200);
    let [download] = world.downloads(job.id).await.try_into().expect("one download");
    assert_eq!(download.address.as_deref(), Some("203.0.113.9"));
    assert_eq!(download.user_agent.map(|agent| agent.len()), Some(200));
}

async fn a_file_that_the_store_lost_is_gone_and_one_it_cannot_read_is_unavailable(world: &World) {
    use outport_objects::ObjectStore as _;
    let job = world.completed().await;
    let path = format!("/v1/exports/{}/file", job.id);
    let key = job.file.as_ref().map(|file| file.key.clone()).expect("a file");
    world.objects.delete(&key).await.expect("a deletion");
    let (status, problem) = json(world.get(&path).send().await.expect("an answer")).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (410, Some("FILE_GONE")));
    assert_eq!(head(world, &path).await, 410);

    let other = world.completed().await;
    world.objects.always_fail(
        outport_objects::memory::Step::Get,
        outport_objects::memory::Fault::Unreachable,
    );
    let answer = world.get(&format!("/v1/exports/{}/file", other.id)).send().await;
    let answer = answer.expect("an answer");
    assert!(answer.headers().contains_key(header::RETRY_AFTER));
    let (status, problem) = json(answer).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (503, Some("STORAGE_UNAVAILABLE")));
    assert_eq!(head(world, &format!("/v1/exports/{}/file", other.id)).await, 503);
    assert!(world.downloads(other.id).await.is_empty(), "nothing was downloaded");
}

async fn head(world: &World, path: &str) -> u16 {
    world.request(Method::HEAD, path).send().await.expect("an answer").status().as_u16()
}

async fn a_file_whose_length_changed_in_the_store_is_damaged(world: &World) {
    use outport_objects::ObjectStore as _;
    let job = world.completed().await;
    let path = format!("/v1/exports/{}/file", job.id);
    let key = job.file.as_ref().map(|file| file.key.clone()).expect("a file");
    let longer = [FILE, b"C,3\n"].concat();
    for stored in [&FILE[..FILE.len() - 1], &longer, b""] {
        let bytes = bytes::Bytes::copy_from_slice(stored);
        world.objects.put(&key, "text/csv", bytes).await.expect("an object");
        for range in ["bytes=0-", "bytes=-4", "bytes=0-3", "rows=1-2"] {
            let answer = world.get(&path).header("range", range).send().await.expect("an answer");
            let (status, problem) = json(answer).await;
            let told = (status.as_u16(), problem["code"].as_str());
            assert_eq!(told, (500, Some("FILE_DAMAGED")), "{range} of {} bytes", stored.len());
        }
        assert_eq!(head(world, &path).await, 500);
    }
    assert!(world.downloads(job.id).await.is_empty(), "nothing was downloaded");
}

async fn nobody_is_redirected_to_a_file_that_is_not_the_one_that_was_written(world: &World) {
    use outport_objects::ObjectStore as _;
    let job = world.completed().await;
    let path = format!("/v1/exports/{}/file", job.id);
    let key = job.file.as_ref().map(|file| file.key.clone()).expect("a file");
    let bytes = bytes::Bytes::from_static(b"code");
    world.objects.put(&key, "text/csv", bytes).await.expect("an object");
    let (status, problem) = json(world.get(&path).send().await.expect("an answer")).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (500, Some("FILE_DAMAGED")));
    assert_eq!(head(world, &path).await, 500);
    world.objects.delete(&key).await.expect("a deletion");
    let (status, problem) = json(world.get(&path).send().await.expect("an answer")).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (410, Some("FILE_GONE")));
    assert_eq!(head(world, &path).await, 410);
    assert!(world.downloads(job.id).await.is_empty(), "nobody was led anywhere");
}

async fn a_download_that_breaks_off_never_ends_cleanly(world: &World) {
    use outport_objects::memory::{Fault, Step};
    let job = world.completed().await;
    world.objects.fail(Step::Get, Fault::BreakAfter(5));
    let download = async {
        let answer = world.get(&format!("/v1/exports/{}/file", job.id)).send().await?;
        answer.bytes().await
    };
    assert!(download.await.is_err(), "the connection must break, before or after the head");
    world.assert_alive().await;
}

async fn a_file_at_its_end_is_gone_whether_or_not_the_row_says_so(world: &World) {
    for swept in [false, true] {
        let job = world.expired(swept).await;
        let path = format!("/v1/exports/{}", job.id);
        let file = world.get(&format!("{path}/file")).send().await.expect("an answer");
        let (status, problem) = json(file).await;
        assert_eq!((status.as_u16(), problem["code"].as_str()), (410, Some("FILE_GONE")));
        let (_, view) = json(world.get(&path).send().await.expect("an answer")).await;
        assert_eq!(view["links"]["file"], serde_json::Value::Null);
        assert!(world.downloads(job.id).await.is_empty());
    }
}
