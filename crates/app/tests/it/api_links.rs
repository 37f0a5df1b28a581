//! The links in mails: what they show, whom they refuse, and that only a click on the button is
//! a download.

use outport_domain::id::{Id, UserId};
use reqwest::{Method, header};

use crate::api_world::{FILE, Options, World, on_both_stores};

on_both_stores!(
    looking_at_a_link_never_uses_it_up_and_only_the_file_is_audited,
    a_link_is_refused_once_its_holder_has_no_right,
    an_expired_link_says_so_and_offers_to_run_the_export_again,
    a_file_that_was_deleted_does_not_come_back_by_its_link,
    a_rerun_by_link_needs_the_rights_of_its_requester,
    a_link_redirects_to_a_store_with_public_urls: presigned,
);

fn presigned() -> Options {
    Options { presigned: true, ..Options::default() }
}

async fn call(world: &World, method: Method, path: &str) -> (u16, header::HeaderMap, String) {
    let request = world.client.request(method, world.url(path)).header("accept-language", "es");
    let answer = request.send().await.expect("an answer");
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    (status, headers, answer.text().await.expect("a body"))
}

async fn looking_at_a_link_never_uses_it_up_and_only_the_file_is_audited(world: &World) {
    let token = world.token_for(|_| {}).await;
    let body = r#"{"resource":"order","locale":"pt-BR","fileName":"relat\u00f3rio & cia.csv"}"#;
    world.create_with(&token, body).await;
    let waiting = world.jobs().await.remove(0);
    let early = format!("/d/{}", world.link(&waiting, 600));
    let (status, _, page) = call(world, Method::GET, &early).await;
    assert_eq!(status, 200);
    assert!(page.contains("ainda não terminou"), "{page}");
    let (status, _, _) = call(world, Method::GET, &format!("{early}/file")).await;
    assert_eq!(status, 409);

    let job = world.complete_next(FILE).await;
    let path = format!("/d/{}", world.link(&job, 600));
    for method in [Method::HEAD, Method::GET, Method::GET] {
        let (status, headers, _) = call(world, method, &path).await;
        assert_eq!(status, 200);
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
        assert_eq!(headers[header::CACHE_CONTROL], "no-store");
        assert!(headers["x-robots-tag"].to_str().expect("text").contains("noindex"));
    }
    let (_, _, page) = call(world, Method::GET, &path).await;
    assert!(page.contains("<html lang=\"pt-BR\">"));
    assert!(page.contains("relatório &amp; cia.csv"), "{page}");
    let button = format!("href=\"{}/file\"", path.trim_start_matches("/d/"));
    assert!(page.contains(&button), "{page}");
    assert!(!page.contains("src="), "nothing from elsewhere");
    let (status, _, _) = call(world, Method::HEAD, &format!("{path}/file")).await;
    assert_eq!(status, 200);
    assert!(world.downloads(job.id).await.is_empty(), "looking is no download");

    for _ in 0..2 {
        let (status, headers, bytes) = call(world, Method::GET, &format!("{path}/file")).await;
        assert_eq!((status, bytes.as_bytes()), (200, FILE));
        assert!(
            headers[header::CONTENT_DISPOSITION].to_str().expect("text").contains("relat%C3%B3rio")
        );
    }
    let downloads = world.downloads(job.id).await;
    assert_eq!(downloads.len(), 2);
    assert!(downloads.iter().all(|one| one.via == "LINK" && one.user == Some(world.user)));

    let part = world.client.get(world.url(&format!("{path}/file"))).header("range", "bytes=0-3");
    let part = part.send().await.expect("an answer");
    assert_eq!(part.status(), 206);
    assert_eq!(part.bytes().await.expect("bytes"), FILE[..4]);
}

async fn a_link_is_refused_once_its_holder_has_no_right(world: &World) {
    let job = world.completed().await;
    let good = world.link(&job, 600);
    let mut tampered = good.clone().into_bytes();
    tampered[40] = if tampered[40] == b'A' { b'B' } else { b'A' };
    let tampered = String::from_utf8(tampered).expect("text");
    let stranger = world.link_for(job.id, UserId::new(), 600);
    let nowhere = world.link_for(Id::new(), world.user, 600);
    for (what, token, expected, word) in [
        ("cut", &good[..80], 404, "no es válido"),
        ("tampered", tampered.as_str(), 404, "no es válido"),
        ("no token", "robots.txt", 404, "no es válido"),
        ("bad bytes", "%ff", 404, ""),
        ("no such job", nowhere.as_str(), 404, "no es válido"),
        ("not a requester", stranger.as_str(), 403, "ya no da acceso"),
    ] {
        for (method, end) in [(Method::GET, ""), (Method::GET, "/file"), (Method::POST, "/rerun")] {
            let (status, _, page) = call(world, method, &format!("/d/{token}{end}")).await;
            assert_eq!(status, expected, "{what}{end}");
            assert!(page.contains(word), "{what}{end}: {page}");
        }
    }
    assert_eq!(call(world, Method::GET, &format!("/d/{good}")).await.0, 200);
    world.revoke_user(world.user).await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(2);
    while call(world, Method::GET, &format!("/d/{good}")).await.0 != 403 {
        assert!(tokio::time::Instant::now() < deadline, "a revocation acts within two seconds");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(call(world, Method::GET, &format!("/d/{good}/file")).await.0, 403);
    assert_eq!(call(world, Method::POST, &format!("/d/{good}/rerun")).await.0, 403);
    assert!(world.downloads(job.id).await.is_empty());
    assert_eq!(world.jobs().await.len(), 1);
}

async fn an_expired_link_says_so_and_offers_to_run_the_export_again(world: &World) {
    let fresh = world.completed().await;
    let unswept = world.expired(false).await;
    let swept = world.expired(true).await;
    for (what, token) in [
        ("the link's own end", world.link(&fresh, -1)),
        ("the file's end, not yet swept", world.link(&unswept, 600)),
        ("the file's end, swept", world.link(&swept, 600)),
    ] {
        let (status, _, page) = call(world, Method::GET, &format!("/d/{token}")).await;
        assert_eq!(status, 410, "{what}");
        assert!(page.contains(&format!("action=\"{token}/rerun\"")), "{what}: {page}");
        assert!(!page.contains("/file\""), "{what}");
        let (status, _, _) = call(world, Method::GET, &format!("/d/{token}/file")).await;
        assert_eq!(status, 410, "{what}");
    }
    assert!(world.downloads(fresh.id).await.is_empty());

    let path = format!("/d/{}/rerun", world.link(&swept, 600));
    assert_eq!(call(world, Method::GET, &path).await.0, 405, "a link scanner starts nothing");
    for _ in 0..3 {
        let (status, _, page) = call(world, Method::POST, &path).await;
        assert_eq!(status, 202, "{page}");
    }
    let jobs = world.jobs().await;
    assert_eq!(jobs.len(), 4, "once, however often it is asked");
    assert_eq!(jobs[0].caller, swept.caller);
    assert_eq!(jobs[0].request, swept.request);
}

async fn a_rerun_by_link_needs_the_rights_of_its_requester(world: &World) {
    let (token, id) = world.make_token(world.caller(), None).await;
    world.create_with(&token, r#"{"resource":"order"}"#).await;
    let job = world.complete_next_for(FILE, std::time::Duration::ZERO).await;
    let mut tx = world.store.begin().await.expect("a transaction");
    outport_store::access::revoke_token(&mut tx, world.organization, id)
        .await
        .expect("a revocation");
    tx.commit().await.expect("a commit");
    let path = format!("/d/{}/rerun", world.link(&job, 600));
    let (status, _, page) = call(world, Method::POST, &path).await;
    assert_eq!(status, 403, "{page}");
    assert_eq!(world.jobs().await.len(), 1);
}

async fn a_file_that_was_deleted_does_not_come_back_by_its_link(world: &World) {
    let job = world.completed().await;
    let mut tx = world.store.begin().await.expect("a transaction");
    let deleted = outport_store::jobs::delete_file(&mut tx, world.organization, job.id).await;
    assert!(deleted.expect("a deletion").is_some());
    tx.commit().await.expect("a commit");
    let token = world.link(&job, 600);
    let (status, _, page) = call(world, Method::GET, &format!("/d/{token}")).await;
    assert_eq!(status, 410);
    assert!(!page.contains("/rerun"), "{page}");
    let (status, _, page) = call(world, Method::POST, &format!("/d/{token}/rerun")).await;
    assert_eq!(status, 403, "{page}");
    assert_eq!(world.jobs().await.len(), 1);
}

async fn a_link_redirects_to_a_store_with_public_urls(world: &World) {
    let job = world.completed().await;
    let path = format!("/d/{}/file", world.link(&job, 600));
    let (status, headers, _) = call(world, Method::GET, &path).await;
    assert_eq!(status, 302);
    let location = headers[header::LOCATION].to_str().expect("text");
    assert!(location.starts_with("https://store.example/"), "{location}");
    assert!(location.ends_with("expires=900"), "{location}");
    assert_eq!(world.downloads(job.id).await.len(), 1);
}
