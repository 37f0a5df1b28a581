//! Credentials: API tokens, JWTs, acting for others, revocation.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{TimeDelta, Utc};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use outport::auth::{
    jwks::KeySource,
    jwt::{ClaimNames, JwtConfig},
};
use outport_domain::id::UserId;
use outport_store::access;
use serde_json::{Value, json as j};
use uuid::Uuid;

use crate::api_world::{Options, World, json, on_both_stores};

on_both_stores!(
    every_bad_credential_is_refused_alike: asymmetric,
    a_good_jwt_is_its_user_and_the_rows_it_may_see: asymmetric,
    a_shared_secret_signs_hs256_alone: symmetric,
    ids_that_are_no_uuids_are_mapped_only_where_configured: mapped,
    a_revoked_token_or_user_is_out_within_two_seconds,
    a_right_that_is_missing_is_named,
    a_trusted_back_end_acts_for_a_user_of_its_organization,
    keys_at_a_url_are_read_once_and_unknown_ids_make_no_flood,
);

fn mapped() -> Options {
    let jwt = JwtConfig { id_namespace: Some(Uuid::NAMESPACE_DNS), ..config(secret()) };
    Options { jwt: Some(jwt), ..Options::default() }
}

/// The key pair of RFC 8037, appendix A.
const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

fn secret() -> KeySource {
    KeySource::Secret(SECRET.to_vec())
}

fn config(keys: KeySource) -> JwtConfig {
    JwtConfig {
        keys,
        issuer: Some("https://app.example".to_owned()),
        audience: Some("outport".to_owned()),
        claims: ClaimNames::default(),
        id_namespace: None,
    }
}

fn jwks(kid: &str) -> String {
    j!({"keys": [
        {"kty": "OKP", "crv": "Ed25519", "x": PUBLIC, "kid": kid, "use": "sig", "alg": "EdDSA"},
        {"kty": "XYZ", "kid": "from the future"},
    ]})
    .to_string()
}

fn asymmetric() -> Options {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), jwks("one")).expect("a JWKS");
    // Kept: the keys may be read again while the test runs.
    let (_, path) = file.keep().expect("a path");
    Options { jwt: Some(config(KeySource::File(path))), ..Options::default() }
}

fn symmetric() -> Options {
    Options { jwt: Some(config(secret())), ..Options::default() }
}

fn ed25519() -> EncodingKey {
    let seed = (0..SEED.len()).step_by(2).map(|at| u8::from_str_radix(&SEED[at..at + 2], 16));
    let mut der = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    der.extend(seed.map(|byte| byte.expect("hex")));
    EncodingKey::from_ed_der(&der)
}

fn claims(world: &World) -> Value {
    j!({
        "sub": world.user.to_string(), "org": world.organization.to_string(),
        "iss": "https://app.example", "aud": ["other", "outport"],
        "exp": Utc::now().timestamp() + 300, "email": "ana@example.com", "locale": "es-MX",
        "scope": "exports:read exports:write resources:read",
    })
}

fn with(mut claims: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().expect("an object").clone() {
        if value == j!("absent") {
            claims.as_object_mut().expect("an object").remove(&name);
        } else {
            claims[name] = value;
        }
    }
    claims
}

fn sign(kid: Option<&str>, claims: &Value) -> String {
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(Algorithm::EdDSA) };
    encode(&header, claims, &ed25519()).expect("a token")
}

fn hs256(claims: &Value, secret: &[u8]) -> String {
    encode(&Header::default(), claims, &EncodingKey::from_secret(secret).expect("a key"))
        .expect("a token")
}

async fn call(world: &World, credential: &str) -> (u16, Value, String) {
    let answer = world.client.get(world.url("/v1/exports")).bearer_auth(credential).send().await;
    let answer = answer.expect("an answer");
    let challenge = answer
        .headers()
        .get("www-authenticate")
        .map(|value| value.to_str().expect("text").to_owned())
        .unwrap_or_default();
    let (status, body) = json(answer).await;
    (status.as_u16(), body, challenge)
}

async fn every_bad_credential_is_refused_alike(world: &World) {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
    let good = claims(world);
    let signed = sign(Some("one"), &good);
    assert_eq!(call(world, &signed).await.0, 200, "the good one is good");
    let part = |value: &Value| BASE64.encode(value.to_string());
    let none = format!("{}.{}.", part(&j!({"alg": "none", "typ": "JWT"})), part(&good));
    let none_signed = format!("{none}{}", signed.rsplit('.').next().expect("a signature"));
    let mut other_claims = signed.split('.').map(str::to_owned).collect::<Vec<_>>();
    other_claims[1] = part(&with(good.clone(), &j!({"org": Uuid::now_v7().to_string()})));
    let changed = |changes: Value| sign(Some("one"), &with(good.clone(), &changes));
    let now = Utc::now().timestamp();
    let (expired, _) = world.make_token(world.caller(), Some(TimeDelta::seconds(-1))).await;
    let cases = [
        ("empty", String::new()),
        ("words", "not a token".to_owned()),
        ("unknown API token", outport::auth::token::mint().secret),
        ("half an API token", world.token[..20].to_owned()),
        ("longer API token", format!("{}A", world.token)),
        ("expired API token", expired),
        ("alg none", none),
        ("alg none with a signature", none_signed),
        ("claims of another token", other_claims.join(".")),
        ("no signature", signed.rsplit_once('.').expect("parts").0.to_owned()),
        ("HS256 with the public key as text", hs256(&good, PUBLIC.as_bytes())),
        ("HS256 with the public key's bytes", hs256(&good, &BASE64.decode(PUBLIC).expect("bytes"))),
        ("HS256 with the JWKS as the secret", hs256(&good, jwks("one").as_bytes())),
        ("unknown key id", sign(Some("two"), &good)),
        ("expired", changed(j!({"exp": now - 60}))),
        ("no exp", changed(j!({"exp": "absent"}))),
        ("exp as text", changed(j!({"exp": "tomorrow"}))),
        ("not yet valid", changed(j!({"nbf": now + 120}))),
        ("wrong audience", changed(j!({"aud": "billing"}))),
        ("no audience", changed(j!({"aud": "absent"}))),
        ("wrong issuer", changed(j!({"iss": "https://evil.example"}))),
        ("no issuer", changed(j!({"iss": "absent"}))),
        ("no organization", changed(j!({"org": "absent"}))),
        ("organization that is no UUID", changed(j!({"org": "acme"}))),
        ("user that is no UUID", changed(j!({"sub": "ana"}))),
        ("user that is a number", changed(j!({"sub": 7}))),
        ("companies that are null", changed(j!({"companies": null}))),
        ("companies that are one text", changed(j!({"companies": Uuid::nil().to_string()}))),
        ("companies that are no UUIDs", changed(j!({"companies": ["acme"]}))),
        ("scopes that are a number", changed(j!({"scope": 1}))),
        ("a huge token", format!("{signed}{}", "A".repeat(20_000))),
    ];
    for (what, credential) in cases {
        let (status, problem, challenge) = call(world, &credential).await;
        assert_eq!((status, problem["code"].as_str()), (401, Some("UNAUTHENTICATED")), "{what}");
        assert!(challenge.starts_with("Bearer"), "{what}: {challenge}");
        if credential.len() > 8 {
            assert!(!problem.to_string().contains(&credential), "{what}: no echo");
        }
    }
    for header in ["", "Bearer", "Basic YTpi", "bearer"] {
        let answer = world.client.get(world.url("/v1/exports")).header("authorization", header);
        let (status, _) = json(answer.send().await.expect("an answer")).await;
        assert_eq!(status, 401, "{header:?}");
    }
    let answer = world.client.get(world.url("/v1/exports")).send().await.expect("an answer");
    assert_eq!(answer.headers()["www-authenticate"], "Bearer", "nothing was sent, so no error");
    world.assert_alive().await;
}

async fn a_good_jwt_is_its_user_and_the_rows_it_may_see(world: &World) {
    let company = Uuid::now_v7();
    let token = sign(Some("one"), &with(claims(world), &j!({"companies": [company.to_string()]})));
    world.create_with(&token, r#"{"resource":"order"}"#).await;
    let [job] = world.jobs().await.try_into().expect("one job");
    assert_eq!(job.caller.user, world.user);
    assert_eq!(job.caller.email.as_deref(), Some("ana@example.com"));
    assert_eq!(job.caller.companies.map(|ids| ids[0].uuid()), Some(company));
    assert_eq!(job.locale.tag(), "es");
    let without_kid = sign(None, &claims(world));
    assert_eq!(call(world, &without_kid).await.0, 200);
    let two_addresses = j!({"email": "a@b.c, v@x.y"});
    world
        .create_with(
            &sign(Some("one"), &with(claims(world), &two_addresses)),
            r#"{"resource":"order"}"#,
        )
        .await;
    let emails: Vec<_> = world.jobs().await.into_iter().map(|job| job.caller.email).collect();
    assert!(emails.len() == 2 && emails.contains(&None), "{emails:?}: no mail is due to a list");
}

async fn a_shared_secret_signs_hs256_alone(world: &World) {
    let good = claims(world);
    assert_eq!(call(world, &hs256(&good, SECRET)).await.0, 200);
    assert_eq!(call(world, &hs256(&good, b"another secret of at least thirty-two")).await.0, 401);
    let header = Header::new(Algorithm::HS512);
    let hs512 =
        encode(&header, &good, &EncodingKey::from_secret(SECRET).expect("a key")).expect("a token");
    assert_eq!(call(world, &hs512).await.0, 401);
    assert_eq!(call(world, &sign(None, &good)).await.0, 401);
    let array = with(good, &j!({"scope": ["exports:read"]}));
    assert_eq!(call(world, &hs256(&array, SECRET)).await.0, 200);
}

async fn ids_that_are_no_uuids_are_mapped_only_where_configured(world: &World) {
    let token = hs256(&with(claims(world), &j!({"sub": "ana"})), SECRET);
    world.create_with(&token, r#"{"resource":"order"}"#).await;
    let [job] = world.jobs().await.try_into().expect("one job");
    assert_eq!(job.caller.user.uuid(), Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"ana"));
    assert_eq!(job.scope.organization, world.organization, "a UUID stays what it is");
}

/// Asks until the answer is 401; the deadline is the promise.
async fn refused_within_two_seconds(world: &World, token: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(2);
    while call(world, token).await.0 != 401 {
        assert!(tokio::time::Instant::now() < deadline, "still let in after two seconds");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn a_revoked_token_or_user_is_out_within_two_seconds(world: &World) {
    let (token, id) = world.make_token(world.caller(), None).await;
    assert_eq!(call(world, &token).await.0, 200);
    // Revoked by another process: this one is not told.
    let mut tx = world.store.begin().await.expect("a transaction");
    assert!(access::revoke_token(&mut tx, world.organization, id).await.expect("a revocation"));
    tx.commit().await.expect("a commit");
    refused_within_two_seconds(world, &token).await;

    let user = UserId::new();
    let token = world.token_for(|caller| caller.user = user).await;
    assert_eq!(call(world, &token).await.0, 200);
    world.revoke_user(user).await;
    refused_within_two_seconds(world, &token).await;
    assert_eq!(call(world, &world.token).await.0, 200, "others stay");
}

async fn a_right_that_is_missing_is_named(world: &World) {
    let token = world.token_for(|caller| caller.scopes = ["exports:read".into()].into()).await;
    let request = world
        .client
        .post(world.url("/v1/exports"))
        .bearer_auth(&token)
        .header("content-type", "application/json")
        .body(r#"{"resource":"order"}"#);
    let answer = request.send().await.expect("an answer");
    assert_eq!(
        answer.headers()["www-authenticate"],
        "Bearer error=\"insufficient_scope\", scope=\"exports:write\""
    );
    let (status, problem) = json(answer).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (403, Some("MISSING_SCOPE")));
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("exports:write")));
    assert!(world.jobs().await.is_empty());

    let nothing = world.token_for(|caller| caller.scopes.clear()).await;
    for path in ["/v1/exports", "/v1/resources", "/v1/deliveries", "/v1/tokens"] {
        let answer = world.client.get(world.url(path)).bearer_auth(&nothing).send().await;
        assert_eq!(answer.expect("an answer").status(), 403, "{path}");
    }
}

async fn a_trusted_back_end_acts_for_a_user_of_its_organization(world: &World) {
    let user = UserId::new();
    let act = async |token: &str| {
        let request = world
            .client
            .post(world.url("/v1/exports"))
            .bearer_auth(token)
            .header("x-outport-user", user.to_string())
            .header("content-type", "application/json")
            .body(r#"{"resource":"order"}"#);
        json(request.send().await.expect("an answer")).await
    };
    let plain = world.token_for(|caller| _ = caller.scopes.remove("exports:act-for")).await;
    let (status, problem) = act(&plain).await;
    assert_eq!(status, 403);
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("exports:act-for")));

    let (status, job) = act(&world.token).await;
    assert_eq!((status.as_u16(), &job["requestedByUserId"]), (202, &j!(user.to_string())));
    let [job] = world.jobs().await.try_into().expect("one job");
    assert_eq!(job.caller.email, None, "the owner is not told about another's export");

    world.revoke_user(user).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(2);
    while act(&world.token).await.0 != 401 {
        assert!(tokio::time::Instant::now() < deadline, "nobody acts for a revoked user");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn keys_at_a_url_are_read_once_and_unknown_ids_make_no_flood(world: &World) {
    // The verifier alone, so that the read of the keys can be counted.
    let reads = Arc::new(Mutex::new(Vec::new()));
    let counted = Arc::clone(&reads);
    let app = axum::Router::new().route(
        "/jwks",
        axum::routing::get(move || {
            counted.lock().expect("no poison").push(());
            async { jwks("one") }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let url = format!("http://{address}/jwks").parse().expect("a URL");
    let verifier = outport::auth::jwt::JwtVerifier::new(config(KeySource::Url(url)));
    let verifier = verifier.expect("a configuration");
    let good = sign(Some("one"), &claims(world));
    for _ in 0..3 {
        assert_eq!(verifier.caller(&good).await.expect("a caller").user, world.user);
    }
    assert_eq!(reads.lock().expect("no poison").len(), 1, "known keys are kept");
    for number in 0..20 {
        let unknown = sign(Some(&format!("no-{number}")), &claims(world));
        assert!(verifier.caller(&unknown).await.is_err());
    }
    assert_eq!(reads.lock().expect("no poison").len(), 1, "unknown ids make no flood of reads");
    server.abort();

    let nowhere = "http://127.0.0.1:1/jwks".parse().expect("a URL");
    let verifier = outport::auth::jwt::JwtVerifier::new(config(KeySource::Url(nowhere)));
    let verdict = verifier.expect("a configuration").caller(&good).await;
    assert!(matches!(verdict, Err(outport::auth::AuthError::KeysUnavailable)));
}
