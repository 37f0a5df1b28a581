//! The files of a split export: listed, downloaded one by one, and linked to.

use std::time::Duration;

use bytes::Bytes;
use chrono::Utc;
use outport_contract::{digest::Sha256Digest, job_event::Integrity};
use outport_domain::{
    id::JobId,
    job::{ExportJob, FinishedFile, FinishedPart, Protection, Warnings},
    object_key::ObjectKey,
};
use outport_objects::ObjectStore as _;
use outport_store::{
    jobs::{self, RunEnd},
    parts,
};
use reqwest::{Method, header};
use serde_json::{Value, json as j};

use crate::api_world::{Options, World, json, on_both_stores};

on_both_stores!(
    a_split_export_lists_its_files_with_their_links,
    the_files_and_the_manifest_are_downloaded_like_any_other_and_audited_by_their_numbers,
    what_is_no_file_of_the_export_is_not_there,
    a_file_with_a_guarded_column_needs_the_columns_scope,
    the_page_of_a_link_lists_several_files_and_has_a_button_for_one,
    a_link_to_a_file_is_refused_and_ends_like_any_other,
    a_store_with_public_urls_is_redirected_to_by_each_files_name: presigned,
);

fn presigned() -> Options {
    Options { presigned: true, ..Options::default() }
}

const MANIFEST: &[u8] = b"{\"version\":1}";
const FILES: [&[u8]; 2] = [b"code\nA\n", b"code\nB\nC\n"];
const REQUEST: &str = r#"{"resource":"order","maxRowsPerFile":2,"fileName":"Mar\u00e7o.csv","locale":"pt-BR","columns":["code"]}"#;

/// Runs the oldest due job to a split export of these files, as a worker would.
async fn complete_next(world: &World, files: &[&'static [u8]], retention: Duration) -> ExportJob {
    let claim = world.claim().await;
    let (job, run) = (claim.job.id, claim.job.run);
    let manifest = ObjectKey::of_manifest(job, run, "orders").expect("a key");
    for (number, bytes) in (1..).zip(files) {
        let key = ObjectKey::of_part(job, run, "orders", number, "csv").expect("a key");
        jobs::record_part(&world.store, &claim.fence, &manifest, number, &key, None)
            .await
            .expect("recorded");
        let object = Bytes::from_static(bytes);
        world.objects.put(&key, "text/csv", object).await.expect("an object");
        let part = FinishedPart {
            number,
            key,
            rows: u64::from(number),
            size_bytes: bytes.len() as u64,
            stored_bytes: bytes.len() as u64,
            sha256: Sha256Digest::of(bytes).hex(),
            integrity: Some(Integrity::new("0".repeat(64), 1)),
        };
        parts::record_written(&world.store, &claim.fence, &part).await.expect("recorded");
    }
    let object = Bytes::from_static(MANIFEST);
    world.objects.put(&manifest, "application/json", object).await.expect("an object");
    let file = FinishedFile {
        key: manifest,
        size_bytes: files.iter().map(|bytes| bytes.len() as u64).sum(),
        stored_bytes: MANIFEST.len() as u64,
        total_rows: 3,
        sha256: Sha256Digest::of(MANIFEST).hex(),
        integrity: Some(Integrity::new("0".repeat(64), 1)),
        protection: Protection::None,
        warnings: Warnings::default(),
        snapshot_at: Utc::now(),
    };
    world.finish(&claim, RunEnd::Completed(file), retention).await
}

async fn completed(world: &World) -> ExportJob {
    world.create_with(&world.token, REQUEST).await;
    complete_next(world, &FILES, Duration::from_hours(1)).await
}

async fn get(world: &World, path: &str) -> (u16, Value) {
    let (status, body) = json(world.get(path).send().await.expect("an answer")).await;
    (status.as_u16(), body)
}

async fn a_split_export_lists_its_files_with_their_links(world: &World) {
    let waiting = world.create_with(&world.token, REQUEST).await;
    let (_, view) = get(world, &format!("/v1/exports/{waiting}")).await;
    assert_eq!((&view["files"], &view["links"]["file"]), (&Value::Null, &Value::Null));
    let job = complete_next(world, &FILES, Duration::from_hours(1)).await;
    let own = format!("/v1/exports/{}", job.id);
    let (_, view) = get(world, &own).await;
    let prefix = format!("data-transfer/exports/{}", job.id);
    let file = |number: u32, name: &str, bytes: &[u8]| {
        j!({
            "number": number,
            "name": name,
            "key": format!("{prefix}/orders-000{number}.csv"),
            "rows": number,
            "sizeBytes": bytes.len(),
            "sha256": Sha256Digest::of(bytes).hex(),
            "link": world.url(&format!("{own}/files/{number}")),
        })
    };
    assert_eq!(
        view["files"],
        j!([file(1, "Março-0001.csv", FILES[0]), file(2, "Março-0002.csv", FILES[1])])
    );
    assert_eq!(view["fileKey"], format!("{prefix}/orders.manifest.json"));
    assert_eq!(view["contentType"], "application/json");
    assert_eq!(view["fileName"], "Março.csv");
    assert_eq!(view["sha256"], Sha256Digest::of(MANIFEST).hex());
    assert_eq!(view["sizeBytes"], FILES[0].len() + FILES[1].len());
    let (_, page) = get(world, "/v1/exports").await;
    assert_eq!(page["items"][0]["files"], Value::Null, "lists stay short");
    let unsplit = world.completed().await;
    let (_, view) = get(world, &format!("/v1/exports/{}", unsplit.id)).await;
    assert_eq!(view["files"], Value::Null);

    let gone = world.request(Method::DELETE, &own).send().await.expect("an answer");
    assert_eq!(gone.status(), 200);
    let (_, view) = get(world, &own).await;
    assert_eq!(view["files"][1]["link"], Value::Null);
    assert_eq!(view["files"][1]["rows"], 2);
    let (status, problem) = get(world, &format!("{own}/files/1")).await;
    assert_eq!((status, &problem["code"]), (410, &j!("FILE_GONE")));
}

async fn the_files_and_the_manifest_are_downloaded_like_any_other_and_audited_by_their_numbers(
    world: &World,
) {
    let job = completed(world).await;
    let own = format!("/v1/exports/{}", job.id);
    for (path, bytes, name, content_type) in [
        ("file", MANIFEST, "Mar%C3%A7o.manifest.json", "application/json"),
        ("files/1", FILES[0], "Mar%C3%A7o-0001.csv", "text/csv; charset=utf-8"),
        ("files/2", FILES[1], "Mar%C3%A7o-0002.csv", "text/csv; charset=utf-8"),
    ] {
        let path = format!("{own}/{path}");
        for method in [Method::HEAD, Method::GET] {
            let answer = world.request(method.clone(), &path).send().await.expect("an answer");
            assert_eq!(answer.status(), 200, "{path}");
            let headers = answer.headers().clone();
            let etag = format!("\"{}\"", Sha256Digest::of(bytes).hex());
            assert_eq!(headers[header::ETAG], etag, "{path}");
            assert_eq!(headers[header::CONTENT_LENGTH], bytes.len().to_string());
            assert_eq!(headers[header::CONTENT_TYPE], content_type);
            let disposition = headers[header::CONTENT_DISPOSITION].to_str().expect("text");
            assert!(disposition.contains(name), "{disposition}");
            if method == Method::GET {
                assert_eq!(answer.bytes().await.expect("bytes"), bytes);
            }
        }
        let range = world.get(&path).header("range", "bytes=2-4").send().await.expect("an answer");
        assert_eq!(range.status(), 206, "{path}");
        let shown = range.headers()[header::CONTENT_RANGE].to_str().expect("text");
        assert_eq!(shown, format!("bytes 2-4/{}", bytes.len()));
        assert_eq!(range.bytes().await.expect("bytes"), bytes[2..5]);
        let outside = world.get(&path).header("range", "bytes=99-").send().await;
        assert_eq!(outside.expect("an answer").status(), 416);
    }
    let audited: Vec<_> = world.downloads(job.id).await.iter().map(|one| one.part).collect();
    assert_eq!(audited, [Some(2), Some(2), Some(1), Some(1), None, None], "newest first");
    let (_, page) = get(world, &format!("{own}/downloads")).await;
    assert_eq!(page["items"][0]["fileNumber"], 2);
    assert_eq!(page["items"][5]["fileNumber"], Value::Null);
}

async fn what_is_no_file_of_the_export_is_not_there(world: &World) {
    let split = completed(world).await;
    let unsplit = world.completed().await;
    for (id, number) in [
        (split.id, "0"),
        (split.id, "3"),
        (split.id, "01"),
        (split.id, "+1"),
        (split.id, "-1"),
        (split.id, "1.0"),
        (split.id, "x"),
        (split.id, "4294967297"),
        (unsplit.id, "1"),
        (JobId::new(), "1"),
    ] {
        let (status, problem) = get(world, &format!("/v1/exports/{id}/files/{number}")).await;
        assert_eq!((status, &problem["code"]), (404, &j!("NOT_FOUND")), "{number}");
    }
    assert!(world.downloads(split.id).await.is_empty());
    let waiting = world.create_with(&world.token, REQUEST).await;
    let (status, problem) = get(world, &format!("/v1/exports/{waiting}/files/1")).await;
    assert_eq!((status, &problem["code"]), (409, &j!("NOT_COMPLETED")));
}

async fn a_file_with_a_guarded_column_needs_the_columns_scope(world: &World) {
    let may = world.token_for(|caller| _ = caller.scopes.insert("orders:margin".into())).await;
    let body = r#"{"resource":"order","maxRowsPerFile":2,"columns":["code","margin"]}"#;
    let id = world.create_with(&may, body).await;
    complete_next(world, &FILES, Duration::from_hours(1)).await;
    let path = format!("/v1/exports/{id}/files/1");
    assert_eq!(get(world, &path).await.0, 403);
    let request = world.client.get(world.url(&path)).bearer_auth(&may);
    assert_eq!(request.send().await.expect("an answer").status(), 200);
}

async fn page(world: &World, method: Method, path: &str) -> (u16, String) {
    let answer = world.client.request(method, world.url(path)).send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a body"))
}

async fn the_page_of_a_link_lists_several_files_and_has_a_button_for_one(world: &World) {
    let job = completed(world).await;
    let token = world.link(&job, 600);
    let path = format!("/d/{token}");
    let (status, text) = page(world, Method::GET, &path).await;
    assert_eq!(status, 200);
    for (number, size) in [(1, "7 B"), (2, "9 B")] {
        let entry = format!(
            "<a href=\"{token}/files/{number}\" rel=\"nofollow\">Março-000{number}.csv</a> ({size})"
        );
        assert!(text.contains(&entry), "{entry}: {text}");
    }
    assert!(text.contains("<h2>Arquivos</h2>"), "{text}");
    assert!(!text.contains("class=\"button\""), "a manifest is for programs: {text}");
    assert!(world.downloads(job.id).await.is_empty(), "looking is no download");
    for (number, bytes) in (1..).zip(FILES) {
        let file = format!("{path}/files/{number}");
        assert_eq!(page(world, Method::HEAD, &file).await.0, 200);
        let (status, text) = page(world, Method::GET, &file).await;
        assert_eq!((status, text.as_bytes()), (200, bytes));
    }
    let downloads = world.downloads(job.id).await;
    let audited: Vec<_> = downloads.iter().map(|one| (one.via, one.user, one.part)).collect();
    assert_eq!(audited, [("LINK", Some(world.user), Some(2)), ("LINK", Some(world.user), Some(1))]);

    world.create_with(&world.token, REQUEST).await;
    let one = complete_next(world, &FILES[..1], Duration::from_hours(1)).await;
    let token = world.link(&one, 600);
    let (_, text) = page(world, Method::GET, &format!("/d/{token}")).await;
    let button = format!("<a class=\"button\" href=\"{token}/files/1\"");
    assert!(text.contains(&button), "{text}");
    assert!(!text.contains("Arquivos"), "{text}");
}

async fn a_link_to_a_file_is_refused_and_ends_like_any_other(world: &World) {
    let job = completed(world).await;
    let good = world.link(&job, 600);
    for (number, expected) in [("3", 404), ("01", 404), ("1", 200)] {
        let path = format!("/d/{good}/files/{number}");
        assert_eq!(page(world, Method::GET, &path).await.0, expected, "{number}");
    }
    let stranger = world.link_for(job.id, outport_domain::id::UserId::new(), 600);
    assert_eq!(page(world, Method::GET, &format!("/d/{stranger}/files/1")).await.0, 403);
    let late = world.link(&job, -1);
    let (status, text) = page(world, Method::GET, &format!("/d/{late}/files/1")).await;
    assert_eq!(status, 410);
    assert!(text.contains("/rerun\""), "{text}");
    world.create_with(&world.token, REQUEST).await;
    let expired = complete_next(world, &FILES, Duration::ZERO).await;
    let token = world.link(&expired, 600);
    let (status, text) = page(world, Method::GET, &format!("/d/{token}")).await;
    assert_eq!(status, 410);
    assert!(!text.contains("/files/"), "{text}");
    assert_eq!(page(world, Method::GET, &format!("/d/{token}/files/1")).await.0, 410);
}

async fn a_store_with_public_urls_is_redirected_to_by_each_files_name(world: &World) {
    let job = completed(world).await;
    for (path, key, name) in [
        ("file", "orders.manifest.json", "manifest.json"),
        ("files/2", "orders-0002.csv", "-0002.csv"),
    ] {
        let path = format!("/v1/exports/{}/{path}", job.id);
        let answer = world.get(&path).send().await.expect("an answer");
        assert_eq!(answer.status(), 302);
        let location = answer.headers()[header::LOCATION].to_str().expect("text");
        let (url, disposition) = location.split_once('?').expect("a query");
        assert!(url.ends_with(&format!("/{key}")), "{location}");
        assert!(disposition.contains(name), "{location}");
    }
}
