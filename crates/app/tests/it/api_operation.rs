//! For those who run the service: health, metrics, documents, and what every answer carries.

use std::time::Duration;

use outport_objects::memory::{Fault, Step};
use reqwest::{Method, header};
use serde_json::{Value, json as j};

use crate::{
    api_world::{Options, World, json, on_both_stores},
    log::Log,
};

on_both_stores!(
    readiness_names_what_fails_and_tells_no_secret,
    metrics_count_routes_by_template_and_show_the_queue,
    every_answer_carries_an_id_and_the_security_headers,
    a_panic_is_a_problem_and_the_server_lives_on,
    every_route_is_in_the_document_and_every_document_route_is_there,
    the_reference_pages_show_every_code_and_route,
);

async fn text(world: &World, path: &str) -> (u16, String) {
    let answer = world.client.get(world.url(path)).send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a body"))
}

async fn ready(world: &World) -> (u16, Value) {
    let (status, body) = text(world, "/readyz").await;
    (status, serde_json::from_str(&body).expect("JSON"))
}

fn sicken(world: &World, part: Option<&'static str>) {
    *world.sick.lock().expect("no poison") = part;
}

/// Waits until the last answer is no longer given again.
async fn ready_after(world: &World, part: Option<&'static str>, expected: u16) -> Value {
    sicken(world, part);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let (status, view) = ready(world).await;
        if status == expected {
            return view;
        }
        assert!(tokio::time::Instant::now() < deadline, "{view}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn readiness_names_what_fails_and_tells_no_secret(world: &World) {
    assert_eq!(text(world, "/livez").await, (200, "ok\n".to_owned()));
    let (status, view) = ready(world).await;
    assert_eq!(status, 200);
    let all = j!({"mail": "ok", "objects": "ok", "source:shop": "ok", "store": "ok"});
    assert_eq!(view, j!({"status": "ok", "checks": all}));

    let view = ready_after(world, Some("source"), 503).await;
    assert_eq!(view["checks"]["source:shop"], "the source cannot be reached");
    assert_eq!(view["checks"]["mail"], "ok");
    assert!(!view.to_string().contains("secret"));
    ready_after(world, None, 200).await;
    let view = ready_after(world, Some("mail"), 503).await;
    assert_eq!(view["checks"]["mail"], "the mail server cannot be reached");
    ready_after(world, None, 200).await;
    let view = ready_after(world, Some("hang"), 503).await;
    assert_eq!(view["checks"]["mail"], "did not answer in time");
    assert_eq!(text(world, "/livez").await.0, 200);
}

async fn metrics_count_routes_by_template_and_show_the_queue(world: &World) {
    let job = world.create().await;
    world.get(&format!("/v1/exports/{job}")).send().await.expect("an answer");
    let link = world.link_for(job, world.user, 60);
    text(world, &format!("/d/{link}")).await;
    text(world, "/nothing/here").await;
    world.request(Method::PATCH, "/v1/resources").send().await.expect("an answer");
    let (status, page) = text(world, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        r#"outport_http_requests_total{method="POST",route="/v1/exports",status="202"} 1"#,
        r#"outport_http_requests_total{method="GET",route="/v1/exports/{id}",status="200"} 1"#,
        r#"outport_http_requests_total{method="GET",route="/d/{token}",status="200"} 1"#,
        r#"outport_http_requests_total{method="GET",route="unmatched",status="404"} 1"#,
        r#"outport_http_requests_total{method="PATCH",route="/v1/resources",status="405"} 1"#,
        r#"outport_downloads_broken_total{reason="damaged"} 0"#,
        r#"outport_http_request_seconds_count{route="/v1/exports"} 1"#,
        "outport_jobs_queued 1",
        "outport_jobs_running 0",
        "outport_store_up 1",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    assert!(!page.contains(&link) && !page.contains(&job.to_string()));
    assert!(page.ends_with("# EOF\n"));
}

async fn every_answer_carries_an_id_and_the_security_headers(world: &World) {
    for path in ["/livez", "/v1/exports", "/nothing", "/d/x", "/docs", "/openapi.json"] {
        let answer = world.client.get(world.url(path)).send().await.expect("an answer");
        let headers = answer.headers();
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
        assert_eq!(headers[header::X_FRAME_OPTIONS], "DENY", "{path}");
        assert_eq!(headers[header::REFERRER_POLICY], "no-referrer", "{path}");
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
        assert_eq!(headers["x-request-id"].len(), 36, "{path}");
        assert!(!headers.contains_key(header::STRICT_TRANSPORT_SECURITY), "not over https");
    }
    for (sent, kept) in [("abc-1", true), ("a b", false), (&"x".repeat(65), false)] {
        let request = world.client.get(world.url("/livez")).header("x-request-id", sent);
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.headers()["x-request-id"] == sent, kept, "{sent}");
    }
}

async fn a_panic_is_a_problem_and_the_server_lives_on(world: &World) {
    sicken(world, Some("panic"));
    let answer = world.client.get(world.url("/readyz")).send().await.expect("an answer");
    assert!(answer.headers().contains_key("x-request-id"));
    let (status, problem) = json(answer).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (500, Some("INTERNAL")));
    assert!(!problem.to_string().contains("panic"), "{problem}");
    sicken(world, None);
    world.assert_alive().await;
    assert_eq!(ready(world).await.0, 200, "no lock is left behind");
}

/// All of them, sorted.
const ROUTES: &[&str] = &[
    "DELETE /v1/exports/{id}",
    "DELETE /v1/tokens/{id}",
    "GET /",
    "GET /console/{name}",
    "GET /d/{token}",
    "GET /d/{token}/file",
    "GET /d/{token}/files/{number}",
    "GET /docs",
    "GET /docs/errors",
    "GET /livez",
    "GET /metrics",
    "GET /openapi.json",
    "GET /readyz",
    "GET /v1/channels/{channel}/events",
    "GET /v1/channels/{channel}/snapshot",
    "GET /v1/channels/{channel}/stream",
    "GET /v1/deliveries",
    "GET /v1/deliveries/{id}",
    "GET /v1/exports",
    "GET /v1/exports/{id}",
    "GET /v1/exports/{id}/downloads",
    "GET /v1/exports/{id}/file",
    "GET /v1/exports/{id}/files/{number}",
    "GET /v1/resources",
    "GET /v1/resources/{name}",
    "GET /v1/stream",
    "GET /v1/tokens",
    "HEAD /d/{token}",
    "HEAD /d/{token}/file",
    "HEAD /d/{token}/files/{number}",
    "HEAD /v1/exports/{id}/file",
    "HEAD /v1/exports/{id}/files/{number}",
    "POST /d/{token}/rerun",
    "POST /v1/channels/events",
    "POST /v1/deliveries/{id}/retry",
    "POST /v1/exports",
    "POST /v1/exports/{id}/cancel",
    "POST /v1/exports/{id}/rerun",
    "POST /v1/handlers/{name}/backfill",
    "POST /v1/revocations",
    "POST /v1/stream/tickets",
    "POST /v1/tokens",
];

async fn every_route_is_in_the_document_and_every_document_route_is_there(world: &World) {
    let (status, body) = text(world, "/openapi.json").await;
    assert_eq!(status, 200);
    let document: Value = serde_json::from_str(&body).expect("JSON");
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            routes.push(format!("{} {path}", method.to_uppercase()));
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            let open = !path.starts_with("/v1/");
            assert_eq!(operation["security"].is_null(), open, "{method} {path}");
            let method: Method = method.to_uppercase().parse().expect("a method");
            let real =
                path.replace("{id}", "0197f604-49fe-7b73-bb81-df2e93a7e47d").replace("{name}", "x");
            let answer = world.client.request(method.clone(), world.url(&real)).send().await;
            let status = answer.expect("an answer").status().as_u16();
            assert_ne!(status, 405, "{method} {path}");
            if !open {
                assert_eq!(status, 401, "{method} {path}: nothing without a credential");
            }
        }
    }
    routes.sort_unstable();
    assert_eq!(routes, ROUTES);
    assert_valid(&document, &document, "#");
}

/// What `OpenAPI` 3.1 requires and a generator may forget: every response has a description, and
/// every reference leads somewhere.
fn assert_valid(document: &Value, part: &Value, path: &str) {
    if let Some(target) = part["$ref"].as_str() {
        let pointer = target.strip_prefix('#').unwrap_or_else(|| panic!("{path}: {target}"));
        assert!(document.pointer(pointer).is_some(), "{path}: {target} leads nowhere");
    }
    for (name, child) in part.as_object().into_iter().flatten() {
        let path = format!("{path}/{name}");
        if name == "responses" {
            for (status, response) in child.as_object().expect("responses") {
                let described = response["description"].as_str().is_some_and(|it| !it.is_empty());
                assert!(described, "{path}/{status} has no description");
            }
        }
        assert_valid(document, child, &path);
    }
    for (index, child) in part.as_array().into_iter().flatten().enumerate() {
        assert_valid(document, child, &format!("{path}/{index}"));
    }
}

async fn the_reference_pages_show_every_code_and_route(world: &World) {
    let (status, page) = text(world, "/docs").await;
    assert_eq!(status, 200);
    let page = page.replace("&#x2f;", "/");
    for word in ["POST /v1/exports", "exports:write", "schema-ExportJob", "totalIsEstimate"] {
        assert!(page.contains(word), "{word}");
    }
    assert!(!page.contains("<script"), "no scripts");
    let (status, page) = text(world, "/docs/errors").await;
    assert_eq!(status, 200);
    for code in outport::api::problem::ProblemCode::ALL {
        assert!(page.contains(&format!("id=\"{}\"", code.name())), "{}", code.name());
    }
    for code in outport_domain::json::FieldCode::ALL {
        assert!(page.contains(&format!("id=\"field-{}\"", code.name())));
    }
    for code in outport_domain::failure::FailureCode::ALL {
        assert!(page.contains(&format!("id=\"failure-{}\"", code.name())));
    }
}

// On one thread, so that the subscriber of this test hears all of its server and nothing else.
#[tokio::test]
async fn the_log_holds_no_credential_no_link_and_no_query() {
    let (log, writer) = Log::new();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(writer)
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    World::on_sqlite(Options::default(), async |world: &World| {
        let job = world.completed().await;
        let link = world.link(&job, 600);
        let unknown = outport::auth::token::mint().secret;
        world.objects.fail(Step::Get, Fault::Unreachable);
        text(world, &format!("/d/{link}/file")).await;
        text(world, &format!("/d/{link}?utm=secret-query")).await;
        world.get("/v1/exports?resource=secret-query").send().await.expect("an answer");
        let answer = world.client.get(world.url("/v1/exports")).bearer_auth(&unknown).send().await;
        assert_eq!(answer.expect("an answer").status(), 401);
        let text = log.text();
        let ours: Vec<&str> = text.lines().filter(|line| line.contains("outport::")).collect();
        assert!(ours.iter().any(|line| line.contains("the object store failed")), "{text}");
        assert!(ours.iter().any(|line| line.contains("/d/{token}")), "{text}");
        for secret in [&world.token, &unknown, &link, "secret-query", "ana@example.com"] {
            assert!(!ours.iter().any(|line| line.contains(secret)), "{secret} in\n{text}");
        }
    })
    .await;
}
