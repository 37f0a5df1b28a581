//! Bad input, one row each: what the answer is, that no job exists afterwards, and that the
//! server lives.

use outport_domain::limits::Limits;
use reqwest::Method;

use crate::api_world::{Options, World, json, on_both_stores};

on_both_stores!(
    every_bad_body_is_refused_by_field_and_leaves_nothing: small,
    everything_wrong_with_a_body_is_told_at_once,
    bad_bytes_and_headers_are_refused_and_leave_nothing: small,
    bad_parameters_are_refused_by_name,
    what_is_not_there_or_not_offered_is_a_problem_too,
    a_credential_that_asks_too_often_is_told_to_wait: five_a_minute,
);

fn five_a_minute() -> Options {
    let limits = Limits { requests_per_minute: 5, ..Limits::default() };
    Options { limits, ..Options::default() }
}

fn small() -> Options {
    let limits = Limits { request_body_bytes: 64 * 1024, ..Limits::default() };
    Options { limits, ..Options::default() }
}

/// What is wrong, the body, the field, the field's code.
const BODIES: [(&str, &str, &str, &str); 62] = [
    ("no resource", r"{}", "resource", "REQUIRED"),
    ("no object", r"[]", "", "INVALID_TYPE"),
    ("a null", r"null", "", "INVALID_TYPE"),
    ("a number", r"1e400", "", "INVALID_TYPE"),
    ("unknown resource", r#"{"resource":"invoice"}"#, "resource", "NOT_FOUND"),
    ("resource of another type", r#"{"resource":7}"#, "resource", "INVALID_TYPE"),
    ("unknown member", r#"{"resource":"order","colums":[]}"#, "colums", "UNKNOWN_MEMBER"),
    (
        "member that reaches for the prototype",
        r#"{"resource":"order","__proto__":{}}"#,
        "__proto__",
        "UNKNOWN_MEMBER",
    ),
    (
        "organization in the body",
        r#"{"resource":"order","organizationId":"0197f604-49fe-7b73-bb81-df2e93a7e47d"}"#,
        "organizationId",
        "UNKNOWN_MEMBER",
    ),
    ("a member twice", r#"{"resource":"order","resource":"plan"}"#, "resource", "DUPLICATE"),
    (
        "unknown column",
        r#"{"resource":"order","columns":["code","total"]}"#,
        "columns[1]",
        "UNKNOWN_COLUMN",
    ),
    (
        "SQL as a column",
        r#"{"resource":"order","columns":["code\"; DROP TABLE jobs; --"]}"#,
        "columns[0]",
        "UNKNOWN_COLUMN",
    ),
    (
        "guarded column",
        r#"{"resource":"order","columns":["margin"]}"#,
        "columns[0]",
        "FORBIDDEN_COLUMN",
    ),
    (
        "a column twice",
        r#"{"resource":"order","columns":["code","code"]}"#,
        "columns[1]",
        "DUPLICATE",
    ),
    ("no columns", r#"{"resource":"order","columns":[]}"#, "columns", "INVALID_VALUE"),
    (
        "columns of another type",
        r#"{"resource":"order","columns":"code"}"#,
        "columns",
        "INVALID_TYPE",
    ),
    (
        "column of another type",
        r#"{"resource":"order","columns":[1]}"#,
        "columns[0]",
        "INVALID_TYPE",
    ),
    (
        "label with a line break",
        r#"{"resource":"order","columns":[{"key":"code","label":"a\r\nb"}]}"#,
        "columns[0].label",
        "INVALID_VALUE",
    ),
    (
        "label with NUL",
        r#"{"resource":"order","columns":[{"key":"code","label":"a\u0000"}]}"#,
        "columns[0].label",
        "INVALID_VALUE",
    ),
    (
        "column without a key",
        r#"{"resource":"order","columns":[{"label":"x"}]}"#,
        "columns[0].key",
        "REQUIRED",
    ),
    (
        "filter on an unknown column",
        r#"{"resource":"order","filters":{"total":{"operator":"EQ","value":1}}}"#,
        "filters.total",
        "UNKNOWN_COLUMN",
    ),
    (
        "filter on a guarded column",
        r#"{"resource":"order","filters":{"margin":{"operator":"EQ","value":1}}}"#,
        "filters.margin",
        "FORBIDDEN_COLUMN",
    ),
    (
        "unknown operator",
        r#"{"resource":"order","filters":{"code":{"operator":"LIKE","value":"x"}}}"#,
        "filters.code.operator",
        "UNKNOWN_OPERATOR",
    ),
    (
        "operator of another type of column",
        r#"{"resource":"order","filters":{"quantity":{"operator":"CONTAINS","value":"1"}}}"#,
        "filters.quantity.operator",
        "UNKNOWN_OPERATOR",
    ),
    (
        "value of another type",
        r#"{"resource":"order","filters":{"quantity":{"operator":"EQ","value":true}}}"#,
        "filters.quantity.value",
        "INVALID_TYPE",
    ),
    (
        "fraction for a whole number",
        r#"{"resource":"order","filters":{"quantity":{"operator":"EQ","value":1.5}}}"#,
        "filters.quantity.value",
        "INVALID_VALUE",
    ),
    (
        "huge exponent",
        r#"{"resource":"order","filters":{"quantity":{"operator":"EQ","value":1e999999999}}}"#,
        "filters.quantity.value",
        "INVALID_VALUE",
    ),
    (
        "null in a list",
        r#"{"resource":"order","filters":{"code":{"operator":"IN","value":["a",null]}}}"#,
        "filters.code.value[1]",
        "INVALID_VALUE",
    ),
    (
        "empty list",
        r#"{"resource":"order","filters":{"code":{"operator":"IN","value":[]}}}"#,
        "filters.code.value",
        "INVALID_VALUE",
    ),
    (
        "empty text to contain",
        r#"{"resource":"order","filters":{"code":{"operator":"CONTAINS","value":""}}}"#,
        "filters.code.value",
        "INVALID_VALUE",
    ),
    (
        "NUL in a value",
        r#"{"resource":"order","filters":{"code":{"operator":"EQ","value":"a\u0000b"}}}"#,
        "filters.code.value",
        "INVALID_VALUE",
    ),
    (
        "a day that is none",
        r#"{"resource":"order","filters":{"createdAt":{"operator":"GTE","value":"2026-02-30"}}}"#,
        "filters.createdAt.value",
        "INVALID_VALUE",
    ),
    (
        "an instant without a zone",
        r#"{"resource":"order","filters":{"createdAt":{"operator":"GTE","value":"2026-07-01T10:00:00"}}}"#,
        "filters.createdAt.value",
        "INVALID_VALUE",
    ),
    (
        "sort by an unknown column",
        r#"{"resource":"order","sort":["-total"]}"#,
        "sort[0]",
        "UNKNOWN_COLUMN",
    ),
    (
        "unknown scope type",
        r#"{"resource":"order","scopeType":"GALAXY"}"#,
        "scopeType",
        "INVALID_VALUE",
    ),
    (
        "company scope without a company",
        r#"{"resource":"order","scopeType":"COMPANY"}"#,
        "companyId",
        "REQUIRED",
    ),
    (
        "company id that is none",
        r#"{"resource":"order","companyId":"1 OR 1=1"}"#,
        "companyId",
        "INVALID_VALUE",
    ),
    (
        "scope that the resource has not",
        r#"{"resource":"plan","companyId":"0197f604-49fe-7b73-bb81-df2e93a7e47d"}"#,
        "scopeType",
        "NOT_SUPPORTED",
    ),
    ("unknown format", r#"{"resource":"order","format":"PDF"}"#, "format", "INVALID_VALUE"),
    (
        "CSV options of another format",
        r#"{"resource":"order","format":"NDJSON","csv":{"bom":true}}"#,
        "csv",
        "NOT_SUPPORTED",
    ),
    (
        "compression of what is compressed within",
        r#"{"resource":"order","format":"XLSX","compression":"gzip"}"#,
        "compression",
        "NOT_SUPPORTED",
    ),
    (
        "unknown compression",
        r#"{"resource":"order","compression":"brotli"}"#,
        "compression",
        "INVALID_VALUE",
    ),
    (
        "no rows in a file",
        r#"{"resource":"order","maxRowsPerFile":0}"#,
        "maxRowsPerFile",
        "INVALID_VALUE",
    ),
    (
        "rows in a file below zero",
        r#"{"resource":"order","maxRowsPerFile":-1}"#,
        "maxRowsPerFile",
        "INVALID_VALUE",
    ),
    (
        "half a row in a file",
        r#"{"resource":"order","maxRowsPerFile":0.5}"#,
        "maxRowsPerFile",
        "INVALID_VALUE",
    ),
    (
        "rows in a file as a text",
        r#"{"resource":"order","maxRowsPerFile":"10"}"#,
        "maxRowsPerFile",
        "INVALID_TYPE",
    ),
    (
        "rows in a file beyond all numbers",
        r#"{"resource":"order","maxRowsPerFile":99999999999999999999}"#,
        "maxRowsPerFile",
        "INVALID_VALUE",
    ),
    (
        "more rows in a workbook than its sheet holds",
        r#"{"resource":"order","format":"XLSX","maxRowsPerFile":1048576}"#,
        "maxRowsPerFile",
        "INVALID_VALUE",
    ),
    (
        "fewer bytes in a file than make sense",
        r#"{"resource":"order","maxBytesPerFile":1048575}"#,
        "maxBytesPerFile",
        "INVALID_VALUE",
    ),
    (
        "bytes in a file with an exponent",
        r#"{"resource":"order","maxBytesPerFile":1e9}"#,
        "maxBytesPerFile",
        "INVALID_VALUE",
    ),
    (
        "bytes in a file as a list",
        r#"{"resource":"order","maxBytesPerFile":[1048576]}"#,
        "maxBytesPerFile",
        "INVALID_TYPE",
    ),
    (
        "delimiter of two characters",
        r#"{"resource":"order","csv":{"delimiter":",,"}}"#,
        "csv.delimiter",
        "INVALID_VALUE",
    ),
    (
        "unknown member of csv",
        r#"{"resource":"order","csv":{"sep":","}}"#,
        "csv.sep",
        "UNKNOWN_MEMBER",
    ),
    (
        "null text that is a formula",
        r#"{"resource":"order","csv":{"nullText":"=1"}}"#,
        "csv.nullText",
        "INVALID_VALUE",
    ),
    (
        "unknown zone",
        r#"{"resource":"order","timeZone":"Mars/Olympus"}"#,
        "timeZone",
        "INVALID_VALUE",
    ),
    (
        "zone that is a path",
        r#"{"resource":"order","timeZone":"../../etc/passwd"}"#,
        "timeZone",
        "INVALID_VALUE",
    ),
    ("unknown language", r#"{"resource":"order","locale":"xx"}"#, "locale", "INVALID_VALUE"),
    (
        "file name that is a path",
        r#"{"resource":"order","fileName":"../../etc/passwd"}"#,
        "fileName",
        "INVALID_VALUE",
    ),
    (
        "file name with a header",
        r#"{"resource":"order","fileName":"a.csv\r\nSet-Cookie: x=1"}"#,
        "fileName",
        "INVALID_VALUE",
    ),
    (
        "somebody else's address",
        r#"{"resource":"order","notify":{"email":"eve@evil.example"}}"#,
        "notify.email",
        "NOT_ALLOWED",
    ),
    (
        "address with a header",
        r#"{"resource":"order","notify":{"email":"a@partner.example\r\nBcc: b@c.example"}}"#,
        "notify.email",
        "INVALID_VALUE",
    ),
    (
        "reserved metadata",
        r#"{"resource":"order","metadata":{"error":1}}"#,
        "metadata.error",
        "NOT_ALLOWED",
    ),
];

async fn post(world: &World, body: impl Into<reqwest::Body>) -> (u16, serde_json::Value) {
    let request =
        world.post("/v1/exports").header("content-type", "application/json").body(body.into());
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let (status, problem) = json(answer).await;
    (status.as_u16(), problem)
}

async fn every_bad_body_is_refused_by_field_and_leaves_nothing(world: &World) {
    let mut wrong = Vec::new();
    for (what, body, field, code) in BODIES {
        let (status, problem) = post(world, body).await;
        let first = (problem["errors"][0]["field"].as_str(), problem["errors"][0]["code"].as_str());
        if (status, first) != (422, (Some(field), Some(code))) {
            wrong.push(format!("{what}: {status} {problem}"));
        }
        assert_eq!(problem["code"], "INVALID_REQUEST", "{what}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let many = |text: &str, times| vec![text; times].join(",");
    let generated = [
        ("deep arrays", nested(10_000), "", "LIMIT_EXCEEDED"),
        (
            "deep metadata",
            format!(r#"{{"resource":"order","metadata":{{"a":{}}}}}"#, nested(5_000)),
            "",
            "LIMIT_EXCEEDED",
        ),
        (
            "large metadata",
            format!(r#"{{"resource":"order","metadata":{{"a":"{}"}}}}"#, "x".repeat(17_000)),
            "metadata",
            "LIMIT_EXCEEDED",
        ),
        (
            "too many columns",
            format!(r#"{{"resource":"order","columns":[{}]}}"#, many("\"code\"", 201)),
            "columns",
            "LIMIT_EXCEEDED",
        ),
        (
            "too many values",
            format!(
                r#"{{"resource":"order","filters":{{"code":{{"operator":"IN","value":[{}]}}}}}}"#,
                many("\"a\"", 1_001)
            ),
            "filters.code.value",
            "LIMIT_EXCEEDED",
        ),
        (
            "too many conditions",
            format!(
                r#"{{"resource":"order","filters":{{"code":[{}]}}}}"#,
                many(r#"{"operator":"EQ","value":"a"}"#, 51)
            ),
            "filters",
            "LIMIT_EXCEEDED",
        ),
        (
            "a number of too many digits",
            format!(
                r#"{{"resource":"order","filters":{{"quantity":{{"operator":"EQ","value":{}}}}}}}"#,
                "9".repeat(5_000)
            ),
            "filters.quantity.value",
            "INVALID_VALUE",
        ),
        (
            "a long label",
            format!(
                r#"{{"resource":"order","columns":[{{"key":"code","label":"{}"}}]}}"#,
                "x".repeat(201)
            ),
            "columns[0].label",
            "LIMIT_EXCEEDED",
        ),
    ];
    for (what, body, field, code) in generated {
        let (status, problem) = post(world, body).await;
        assert_eq!(status, 422, "{what}: {problem}");
        assert_eq!(problem["errors"][0]["field"], field, "{what}: {problem}");
        assert_eq!(problem["errors"][0]["code"], code, "{what}: {problem}");
    }

    // A caller of one company: another company is as good as not there.
    let token =
        world.token_for(|caller| caller.companies = Some(vec![crate::api_world::id(1)])).await;
    let body = format!(r#"{{"resource":"order","companyId":"{}"}}"#, uuid::Uuid::from_u128(2));
    for (body, field, code) in [
        (body, "companyId", "NOT_FOUND"),
        (r#"{"resource":"plan"}"#.to_owned(), "resource", "NOT_ALLOWED"),
    ] {
        let request = world.client.post(world.url("/v1/exports")).bearer_auth(&token);
        let request = request.header("content-type", "application/json").body(body);
        let (status, problem) = json(request.send().await.expect("an answer")).await;
        assert_eq!(status, 422);
        assert_eq!(problem["errors"][0]["field"], field);
        assert_eq!(problem["errors"][0]["code"], code);
    }
    assert!(world.jobs().await.is_empty());
    world.assert_alive().await;
}

async fn everything_wrong_with_a_body_is_told_at_once(world: &World) {
    let body = r#"{"resource":"order","columns":["x","code"],"timeZone":"Nowhere","colour":1,
        "filters":{"quantity":{"operator":"EQ","value":"a"}},"fileName":"a/b"}"#;
    let (status, problem) = post(world, body).await;
    assert_eq!(status, 422);
    let mut fields: Vec<&str> = problem["errors"]
        .as_array()
        .expect("errors")
        .iter()
        .filter_map(|error| error["field"].as_str())
        .collect();
    fields.sort_unstable();
    assert_eq!(fields, ["colour", "columns[0]", "fileName", "filters.quantity.value", "timeZone"]);
    assert_eq!(problem["type"], "/docs/errors#INVALID_REQUEST");
    assert_eq!(problem["status"], 422);
}

const JSON: (&str, &str) = ("content-type", "application/json");
const GOOD: &[u8] = br#"{"resource":"order"}"#;

/// What is wrong, the headers, the body, the answer's status and code.
type Bytes =
    (&'static str, &'static [(&'static str, &'static str)], &'static [u8], u16, &'static str);

const BYTES: [Bytes; 20] = [
    ("no JSON", &[JSON], b"{resource:order}", 400, "MALFORMED_REQUEST"),
    ("no body", &[JSON], b"", 400, "MALFORMED_REQUEST"),
    ("cut JSON", &[JSON], br#"{"resource":"ord"#, 400, "MALFORMED_REQUEST"),
    ("two values", &[JSON], b"{} {}", 400, "MALFORMED_REQUEST"),
    ("half a surrogate", &[JSON], br#"{"resource":"\ud800"}"#, 422, "INVALID_REQUEST"),
    ("invalid UTF-8", &[JSON], b"{\"resource\":\"\xff\"}", 400, "MALFORMED_REQUEST"),
    ("NUL bytes", &[JSON], &[0; 100], 400, "MALFORMED_REQUEST"),
    ("a byte order mark", &[JSON], b"\xef\xbb\xbf{}", 400, "MALFORMED_REQUEST"),
    ("open arrays, deep", &[JSON], &[b'['; 10_000], 400, "MALFORMED_REQUEST"),
    ("no type", &[], GOOD, 415, "UNSUPPORTED_MEDIA_TYPE"),
    (
        "a form",
        &[("content-type", "application/x-www-form-urlencoded")],
        GOOD,
        415,
        "UNSUPPORTED_MEDIA_TYPE",
    ),
    (
        "another charset",
        &[("content-type", "application/json; charset=latin1")],
        GOOD,
        415,
        "UNSUPPORTED_MEDIA_TYPE",
    ),
    (
        "a compressed body",
        &[JSON, ("content-encoding", "gzip")],
        GOOD,
        415,
        "UNSUPPORTED_MEDIA_TYPE",
    ),
    ("one byte too many", &[JSON], &[b' '; 64 * 1024 + 1], 413, "BODY_TOO_LARGE"),
    ("far too many bytes", &[JSON], &[b'x'; 3 * 1024 * 1024], 413, "BODY_TOO_LARGE"),
    ("an empty key", &[JSON, ("idempotency-key", "")], GOOD, 400, "INVALID_PARAMETER"),
    ("a key with a space", &[JSON, ("idempotency-key", "a b")], GOOD, 400, "INVALID_PARAMETER"),
    ("a key beyond ASCII", &[JSON, ("idempotency-key", "ä")], GOOD, 400, "INVALID_PARAMETER"),
    (
        "two keys",
        &[JSON, ("idempotency-key", "a"), ("idempotency-key", "b")],
        GOOD,
        400,
        "INVALID_PARAMETER",
    ),
    ("acting for nobody", &[JSON, ("x-outport-user", "root")], GOOD, 400, "INVALID_PARAMETER"),
];

async fn bad_bytes_and_headers_are_refused_and_leave_nothing(world: &World) {
    for (what, headers, body, status, code) in BYTES {
        let mut request = world.post("/v1/exports").body(body);
        for (name, value) in headers {
            request = request.header(*name, value.as_bytes());
        }
        let (found, problem) = json(request.send().await.expect(what)).await;
        let found = (found.as_u16(), problem["code"].as_str());
        assert_eq!(found, (status, Some(code)), "{what}: {problem}");
    }
    let post = || world.post("/v1/exports").header(JSON.0, JSON.1);
    let long = post().header("idempotency-key", "k".repeat(256)).body(GOOD);
    assert_eq!(long.send().await.expect("an answer").status(), 400);

    // A stream of unknown length, larger than allowed.
    let chunks = futures::stream::iter((0..40).map(|_| Ok::<_, std::io::Error>(vec![b' '; 4096])));
    let streamed = post().body(reqwest::Body::wrap_stream(chunks)).send().await;
    assert_eq!(streamed.expect("an answer").status(), 413);
    let largest = post().body(vec![b' '; 64 * 1024]).send().await;
    assert_eq!(largest.expect("an answer").status(), 400, "the largest body is read");
    assert!(world.jobs().await.is_empty());
    world.assert_alive().await;
}

async fn bad_parameters_are_refused_by_name(world: &World) {
    for (query, field, code) in [
        ("status=DONE", "status", "INVALID_VALUE"),
        ("status=", "status", "INVALID_VALUE"),
        ("requestedBy=me", "requestedBy", "INVALID_VALUE"),
        ("scheduleId=1", "scheduleId", "INVALID_VALUE"),
        ("limit=0", "limit", "INVALID_VALUE"),
        ("limit=201", "limit", "INVALID_VALUE"),
        ("limit=-1", "limit", "INVALID_VALUE"),
        ("limit=1e2", "limit", "INVALID_VALUE"),
        ("cursor=x", "cursor", "INVALID_VALUE"),
        ("cursor=%00", "cursor", "INVALID_VALUE"),
        ("cursor=0197f604-49fe-7b73-bb81-df2e93a7e47d", "cursor", "INVALID_VALUE"),
        ("resource=a%00b", "resource", "INVALID_VALUE"),
        ("stauts=PENDING", "stauts", "UNKNOWN_MEMBER"),
        ("limit=1&limit=2", "limit", "DUPLICATE"),
    ] {
        let answer = world.get(&format!("/v1/exports?{query}")).send().await.expect("an answer");
        let (status, problem) = json(answer).await;
        assert_eq!(
            (status.as_u16(), &problem["code"]),
            (400, &"INVALID_PARAMETER".into()),
            "{query}"
        );
        assert_eq!(problem["errors"][0]["field"], field, "{query}");
        assert_eq!(problem["errors"][0]["code"], code, "{query}");
    }
    let (_, both) =
        json(world.get("/v1/exports?limit=0&status=x").send().await.expect("an answer")).await;
    assert_eq!(both["errors"].as_array().map(Vec::len), Some(2), "all at once");
}

async fn what_is_not_there_or_not_offered_is_a_problem_too(world: &World) {
    for path in [
        "/v1/exports/1",
        "/v1/exports/0197f60449fe7b73bb81df2e93a7e47d",
        "/v1/exports/%ff",
        "/v1/exports/..%2f..%2fetc",
        "/v1/resources/invoice",
        "/v2/exports",
        "/v1/exports/",
        "/d/x/y/z",
    ] {
        let answer = world.get(path).send().await.expect("an answer");
        let (status, problem) = json(answer).await;
        assert_eq!((status.as_u16(), problem["code"].as_str()), (404, Some("NOT_FOUND")), "{path}");
    }
    for (method, path) in [
        (Method::PUT, "/v1/exports"),
        (Method::PATCH, "/v1/exports/0197f604-49fe-7b73-bb81-df2e93a7e47d"),
        (Method::DELETE, "/livez"),
        (Method::TRACE, "/v1/exports"),
    ] {
        let answer = world.request(method.clone(), path).send().await.expect("an answer");
        assert!(answer.headers().contains_key("allow"), "{method} {path}");
        let (status, problem) = json(answer).await;
        assert_eq!((status.as_u16(), problem["code"].as_str()), (405, Some("METHOD_NOT_ALLOWED")));
    }
}

async fn a_credential_that_asks_too_often_is_told_to_wait(world: &World) {
    for _ in 0..5 {
        assert_eq!(world.get("/v1/exports").send().await.expect("an answer").status(), 200);
    }
    let answer = world.get("/v1/exports").send().await.expect("an answer");
    let pause: u64 =
        answer.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=12).contains(&pause));
    let (status, problem) = json(answer).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (429, Some("RATE_LIMITED")));

    let other = world.token_for(|_| {}).await;
    let answer = world.client.get(world.url("/v1/exports")).bearer_auth(other).send().await;
    assert_eq!(answer.expect("an answer").status(), 200, "another credential has its own budget");
}
