//! Tokens, revocations, the audit of downloads.

use chrono::{DateTime, Utc};
use outport_domain::id::{Id, JobId, OrganizationId, TokenId, UserId};
use outport_store::access::{self, Download, Revoked, TokenRow};
use uuid::Uuid;

use crate::bench::{Bench, caller, first_page};

on_both_engines!(
    a_token_is_found_by_its_secret,
    a_secret_has_one_token,
    a_revoked_token_says_so,
    tokens_are_listed_newest_first,
    access_is_revoked_and_restored,
    downloads_are_audited_newest_first,
);

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp_millis(Utc::now().timestamp_millis()).expect("an instant")
}

fn token(organization: OrganizationId) -> TokenRow {
    let id = TokenId::new();
    let mut caller = caller(organization);
    caller.token = Some(id);
    TokenRow {
        id,
        name: "nightly".to_owned(),
        caller,
        created_at: now(),
        expires_at: Some(now() + chrono::Duration::days(1)),
        revoked_at: None,
    }
}

async fn create(bench: &Bench, token: &TokenRow, secret: u8) {
    let mut tx = bench.store.begin().await.expect("a transaction");
    access::create_token(&mut tx, token, &[secret; 32]).await.expect("a token");
    tx.commit().await.expect("a commit");
}

async fn a_token_is_found_by_its_secret(bench: Bench) {
    let token = token(OrganizationId::new());
    create(&bench, &token, 1).await;
    let found = access::find_token(&bench.store, &[1; 32]).await.expect("a look");
    assert_eq!(found, Some(token));
    assert_eq!(access::find_token(&bench.store, &[2; 32]).await.expect("a look"), None);
}

async fn a_secret_has_one_token(bench: Bench) {
    create(&bench, &token(OrganizationId::new()), 1).await;
    let mut tx = bench.store.begin().await.expect("a transaction");
    let error = access::create_token(&mut tx, &token(OrganizationId::new()), &[1; 32])
        .await
        .expect_err("a second token with the same secret");
    assert_eq!(error.to_string(), "the state database refused a statement");
}

async fn a_revoked_token_says_so(bench: Bench) {
    let organization = OrganizationId::new();
    let token = token(organization);
    create(&bench, &token, 1).await;
    let revoke = async |organization| {
        let mut tx = bench.store.begin().await.expect("a transaction");
        let revoked = access::revoke_token(&mut tx, organization, token.id).await;
        tx.commit().await.expect("a commit");
        revoked.expect("an answer")
    };
    assert!(!revoke(OrganizationId::new()).await, "another organization's");
    assert!(revoke(organization).await);
    let find = async || access::find_token(&bench.store, &[1; 32]).await.expect("a look");
    let revoked = find().await.expect("the token");
    assert!(revoked.revoked_at.is_some());
    assert!(revoke(organization).await, "idempotent");
    assert_eq!(find().await, Some(revoked), "the first instant stays");
}

async fn tokens_are_listed_newest_first(bench: Bench) {
    let organization = OrganizationId::new();
    let tokens = [token(organization), token(organization), token(organization)];
    for (token, secret) in tokens.iter().zip(1..) {
        create(&bench, token, secret).await;
    }
    create(&bench, &token(OrganizationId::new()), 9).await;
    let page = access::list_tokens(&bench.store, organization, first_page(2)).await;
    let page = page.expect("a page");
    assert_eq!(page.items, [tokens[2].clone(), tokens[1].clone()]);
    let mut request = first_page(2);
    request.after = page.next;
    let page = access::list_tokens(&bench.store, organization, request).await.expect("a page");
    assert_eq!((page.items, page.next), (vec![tokens[0].clone()], None));
}

async fn access_is_revoked_and_restored(bench: Bench) {
    let (organization, user) = (OrganizationId::new(), UserId::new());
    let is_revoked = async |organization, user| {
        access::is_revoked(&bench.store, organization, user).await.expect("an answer")
    };
    for what in [Revoked::User(organization, user), Revoked::Organization(organization)] {
        assert!(!is_revoked(organization, user).await);
        for _ in 0..2 {
            let mut tx = bench.store.begin().await.expect("a transaction");
            access::revoke(&mut tx, what).await.expect("revoked");
            tx.commit().await.expect("a commit");
        }
        assert!(is_revoked(organization, user).await, "{what:?}");
        assert!(!is_revoked(OrganizationId::new(), user).await, "elsewhere");
        let whole = matches!(what, Revoked::Organization(_));
        assert_eq!(is_revoked(organization, Id::new()).await, whole, "a colleague");
        let mut tx = bench.store.begin().await.expect("a transaction");
        access::restore(&mut tx, what).await.expect("restored");
        tx.commit().await.expect("a commit");
    }
    assert!(!is_revoked(organization, user).await);
}

async fn downloads_are_audited_newest_first(bench: Bench) {
    let (organization, job) = (OrganizationId::new(), JobId::new());
    let download = |via, user_agent: String| Download {
        id: Uuid::now_v7(),
        job,
        organization,
        user: Some(UserId::new()),
        via,
        part: None,
        address: Some("192.0.2.1".to_owned()),
        user_agent: Some(user_agent),
        at: now(),
    };
    let downloads = [
        download("API", "curl".to_owned()),
        download("LINK", "é".repeat(300)),
        download("LINK", String::new()),
    ];
    let mut tx = bench.store.begin().await.expect("a transaction");
    for download in &downloads {
        access::record_download(&mut tx, download).await.expect("recorded");
    }
    tx.commit().await.expect("a commit");
    let page = access::list_downloads(&bench.store, organization, job, first_page(2)).await;
    let page = page.expect("a page");
    let cut = Download { user_agent: Some("é".repeat(200)), ..downloads[1].clone() };
    assert_eq!(page.items, [downloads[2].clone(), cut]);
    let mut request = first_page(2);
    request.after = page.next;
    let page = access::list_downloads(&bench.store, organization, job, request).await;
    assert_eq!(page.expect("a page").items, [downloads[0].clone()]);
    let elsewhere =
        access::list_downloads(&bench.store, OrganizationId::new(), job, first_page(2)).await;
    assert!(elsewhere.expect("a page").items.is_empty());
}
