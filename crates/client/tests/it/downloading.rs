//! A file is given when it is whole and what was signed.

use outport_client::{Client, DownloadError, verify::ResultVerifier};
use outport_contract::{
    digest::Sha256Digest, job_event::Integrity, key::DerivedKey, key_ring::KeyRing,
    signature::ResultSigner,
};
use serde_json::json;
use uuid::Uuid;

use crate::server::Server;

const FILE: &str = "id,name\n1,Ana\n";

fn ring() -> KeyRing {
    KeyRing::new(1, DerivedKey::from_bytes([7; 32]))
}

fn signature(of: &str) -> Integrity {
    let mut signer = ResultSigner::new(&ring());
    signer.update(of.as_bytes());
    signer.finish()
}

/// Downloads from a server that says the digest of `FILE` and sends `sent`.
async fn download(sent: &'static str, signed: &str) -> (Result<u64, DownloadError>, Vec<u8>) {
    let mut server = Server::start().await;
    let client = Client::new(&server.url(), "opt_token").expect("a client");
    let serving = tokio::spawn(async move {
        let sha256 = Sha256Digest::of(FILE.as_bytes()).hex();
        server.request().await.answer(&json!({"sha256": sha256, "status": "COMPLETED"})).await;
        let asked = server.request().await;
        assert!(asked.path.ends_with("/file"));
        asked.refuse(200, "", sent).await;
    });
    let verifier = ResultVerifier::new(&ring(), &signature(signed)).expect("a verifier");
    let mut file = Vec::new();
    let answer = client.download(Uuid::from_u128(7), &mut file, Some(verifier)).await;
    serving.await.expect("it was asked as expected");
    (answer.map(|downloaded| downloaded.size_bytes), file)
}

#[tokio::test]
async fn a_file_that_is_what_was_signed_is_given() {
    let (answer, file) = download(FILE, FILE).await;
    assert_eq!(answer.expect("it is whole"), FILE.len() as u64);
    assert_eq!(file, FILE.as_bytes());
}

#[tokio::test]
async fn other_bytes_are_refused() {
    let (answer, _) = download("id,name\n1,Eve\n", FILE).await;
    assert!(matches!(answer, Err(DownloadError::Damaged)), "{answer:?}");
    let (answer, _) = download(FILE, "id,name\n1,Eve\n").await;
    assert!(matches!(answer, Err(DownloadError::Integrity(_))), "{answer:?}");
}

#[tokio::test]
async fn an_export_without_a_file_is_told() {
    let mut server = Server::start().await;
    let client = Client::new(&server.url(), "opt_token").expect("a client");
    let serving = tokio::spawn(async move {
        server.request().await.answer(&json!({"sha256": null, "status": "FAILED"})).await;
    });
    let answer = client.download(Uuid::from_u128(7), &mut Vec::new(), None).await;
    assert!(matches!(answer, Err(DownloadError::NoFile)), "{answer:?}");
    serving.await.expect("it was asked as expected");
}
