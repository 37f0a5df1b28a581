//! API tokens through the API: nobody makes more than it is.

use outport_domain::id::UserId;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json as j};

use crate::api_world::{World, id, json, on_both_stores};

on_both_stores!(
    a_new_token_works_is_listed_without_its_secret_and_ends_when_revoked,
    a_token_never_exceeds_its_maker,
    a_restricted_maker_makes_and_sees_restricted_tokens,
);

async fn call(
    world: &World,
    token: &str,
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    let request = world
        .client
        .request(method, world.url(path))
        .bearer_auth(token)
        .header("content-type", "application/json")
        .body(body.to_string());
    let answer = request.send().await.expect("an answer");
    if answer.status() == 204 {
        return (answer.status(), Value::Null);
    }
    json(answer).await
}

async fn a_new_token_works_is_listed_without_its_secret_and_ends_when_revoked(world: &World) {
    let body = j!({"name": "nightly", "scopes": ["exports:read"], "locale": "pt-BR",
        "expiresAt": "2099-01-01T00:00:00Z"});
    let (status, made) = call(world, &world.token, Method::POST, "/v1/tokens", body).await;
    assert_eq!(status, 201, "{made}");
    let secret = made["token"].as_str().expect("a secret").to_owned();
    assert_eq!(made["userId"], world.user.to_string());
    assert_eq!(made["email"], "ana@example.com");
    assert_eq!(made["expiresAt"], "2099-01-01T00:00:00.000Z");
    let get = async || {
        let answer = world.client.get(world.url("/v1/exports")).bearer_auth(&secret).send().await;
        answer.expect("an answer").status().as_u16()
    };
    assert_eq!(get().await, 200);

    let (_, page) = call(world, &world.token, Method::GET, "/v1/tokens", Value::Null).await;
    assert_eq!(page["items"][0]["name"], "nightly");
    assert!(!page.to_string().contains("opt_"), "no secret is shown again");

    let path = format!("/v1/tokens/{}", made["id"].as_str().expect("an id"));
    let (status, _) = call(world, &world.token, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, 204);
    assert_eq!(get().await, 401, "at once in the process that revoked it");
    let (_, page) = call(world, &world.token, Method::GET, "/v1/tokens", Value::Null).await;
    assert!(page["items"][0]["revokedAt"].is_string());
}

async fn a_token_never_exceeds_its_maker(world: &World) {
    let maker = world.token_for(|caller| _ = caller.scopes.remove("exports:act-for")).await;
    let cases = [
        (j!({}), "name", "REQUIRED"),
        (j!({"name": "", "scopes": ["exports:read"]}), "name", "INVALID_VALUE"),
        (j!({"name": "a\r\nb", "scopes": ["exports:read"]}), "name", "INVALID_VALUE"),
        (j!({"name": "x", "scopes": []}), "scopes", "INVALID_VALUE"),
        (j!({"name": "x", "scopes": ["root"]}), "scopes[0]", "NOT_ALLOWED"),
        (
            j!({"name": "x", "scopes": ["exports:read", "exports:act-for"]}),
            "scopes[1]",
            "NOT_ALLOWED",
        ),
        (
            j!({"name": "x", "scopes": ["exports:read"], "userId": UserId::new().to_string()}),
            "userId",
            "NOT_ALLOWED",
        ),
        (
            j!({"name": "x", "scopes": ["exports:read"], "userId": "root"}),
            "userId",
            "INVALID_VALUE",
        ),
        (
            j!({"name": "x", "scopes": ["exports:read"], "email": "eve@evil.example"}),
            "email",
            "NOT_ALLOWED",
        ),
        (
            j!({"name": "x", "scopes": ["exports:read"], "email": "a@b.c\r\nBcc: d@e.f"}),
            "email",
            "INVALID_VALUE",
        ),
        (
            j!({"name": "x", "scopes": ["exports:read"], "expiresAt": "2020-01-01T00:00:00Z"}),
            "expiresAt",
            "INVALID_VALUE",
        ),
        (
            j!({"name": "x", "scopes": ["exports:read"], "organizationId": "x"}),
            "organizationId",
            "UNKNOWN_MEMBER",
        ),
        (
            j!({"name": "x", "scopes": ["exports:read"], "companies": ["x"]}),
            "companies[0]",
            "INVALID_VALUE",
        ),
    ];
    for (body, field, code) in cases {
        let (status, problem) = call(world, &maker, Method::POST, "/v1/tokens", body.clone()).await;
        assert_eq!(status, 422, "{body}");
        assert_eq!(problem["errors"][0]["field"], field, "{body}: {problem}");
        assert_eq!(problem["errors"][0]["code"], code, "{body}: {problem}");
    }
    let (_, page) = call(world, &world.token, Method::GET, "/v1/tokens", Value::Null).await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2), "none was made");

    let user = UserId::new();
    let body = j!({"name": "x", "scopes": ["exports:read"], "userId": user.to_string(), "email": "bea@example.com"});
    let (status, made) = call(world, &world.token, Method::POST, "/v1/tokens", body).await;
    assert_eq!(
        (status.as_u16(), &made["userId"]),
        (201, &j!(user.to_string())),
        "may act for others"
    );
}

async fn a_restricted_maker_makes_and_sees_restricted_tokens(world: &World) {
    let (one, two) = (uuid::Uuid::from_u128(1).to_string(), uuid::Uuid::from_u128(2).to_string());
    let maker = world.token_for(|caller| caller.companies = Some(vec![id(1)])).await;
    let ask = async |more: Value| {
        let mut body = j!({"name": "x", "scopes": ["exports:read"]});
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        call(world, &maker, Method::POST, "/v1/tokens", body).await
    };
    let (status, made) = ask(j!({})).await;
    assert_eq!((status.as_u16(), &made["companies"]), (201, &j!([one.clone()])), "its own");
    let (status, made) = ask(j!({"companies": [one.clone()]})).await;
    assert_eq!((status.as_u16(), &made["companies"]), (201, &j!([one.clone()])));
    for more in [
        j!({"companies": [two.clone()]}),
        j!({"companies": [one.clone(), two.clone()]}),
        j!({"cooperatives": [two.clone()]}),
        j!({"companies": [one], "cooperatives": [two]}),
    ] {
        let (status, problem) = ask(more.clone()).await;
        assert_eq!(
            (status.as_u16(), problem["errors"][0]["code"].as_str()),
            (422, Some("NOT_FOUND")),
            "{more}"
        );
    }
    let (_, page) = call(world, &maker, Method::GET, "/v1/tokens", Value::Null).await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(3), "not the unrestricted one");
    let (_, whole) = world.make_token(world.caller(), None).await;
    let path = format!("/v1/tokens/{whole}");
    let (status, _) = call(world, &maker, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, 404);
}
