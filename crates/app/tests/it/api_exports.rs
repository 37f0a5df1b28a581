//! Requests, their repetition, lists, and what can be done with a job.

use std::collections::BTreeSet;

use outport_contract::export_event::ExportEventType;
use outport_domain::limits::Limits;
use reqwest::Method;
use serde_json::{Value, json as j};

use crate::api_world::{FILE, Options, World, id_of, json, on_both_stores};

on_both_stores!(
    a_request_is_answered_with_the_job_as_it_is_stored,
    a_repeated_key_gives_the_same_job_and_another_body_is_refused,
    a_hundred_requests_at_once_become_a_hundred_jobs,
    a_hundred_requests_with_one_key_become_one_job,
    a_full_queue_is_said_so: two_waiting,
    lists_page_through_everything_once_newest_first,
    a_waiting_job_is_canceled_at_once_and_a_running_one_is_asked,
    a_rerun_is_a_new_job_with_the_same_request,
    relative_dates_are_shown_as_sent_and_as_they_were_resolved,
    a_completed_job_shows_its_file_and_loses_it_on_request,
    a_failed_job_says_why,
);

fn two_waiting() -> Options {
    let limits = Limits { queued_per_organization: 2, ..Limits::default() };
    Options { limits, ..Options::default() }
}

async fn a_request_is_answered_with_the_job_as_it_is_stored(world: &World) {
    let body = r#"{"resource":"order","columns":["quantity",{"key":"code","label":"Código"}],
        "filters":{"quantity":{"operator":"GT","value":12345678901234567890}},
        "metadata":{"z":1.50,"a":[]}}"#;
    let answer = world
        .post("/v1/exports")
        .header("content-type", "application/json; charset=UTF-8")
        .header("accept-language", "pt")
        .body(body)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 202);
    assert_eq!(answer.headers()["retry-after"], "2");
    let location = answer.headers()["location"].to_str().expect("text").to_owned();
    let text = answer.text().await.expect("a body");
    assert!(text.contains(r#""value":12345678901234567890}"#), "digit for digit: {text}");
    assert!(text.contains(r#""metadata":{"z":1.50,"a":[]}"#), "as sent: {text}");
    let job: Value = serde_json::from_str(&text).expect("JSON");
    let id = id_of(&job);
    assert_eq!(location, world.url(&format!("/v1/exports/{id}")));
    assert_eq!(job["status"], "PENDING");
    assert_eq!(job["columns"], j!(["quantity", "code"]));
    assert_eq!(job["links"]["self"], location);
    assert_eq!(job["links"]["file"], Value::Null);
    assert_eq!(job["progress"]["percent"], Value::Null);
    let [stored] = world.jobs().await.try_into().expect("one job");
    assert_eq!(stored.locale.tag(), "pt-BR");
    assert_eq!(stored.caller.user, world.user);

    let (status, again) =
        json(world.get(&format!("/v1/exports/{id}")).send().await.expect("an answer")).await;
    assert_eq!((status.as_u16(), &again["queuePosition"]), (200, &j!(0)));

    let members: Vec<&String> = job.as_object().expect("an object").keys().collect();
    let event = serde_json::to_value(stored.event(ExportEventType::Completed)).expect("an event");
    let contract: Vec<&String> = event["data"].as_object().expect("an object").keys().collect();
    assert_eq!(members[..contract.len()], contract, "the contract's members come first, in order");
}

async fn create(world: &World, key: Option<&str>, body: &'static str) -> (u16, Value) {
    let mut request =
        world.post("/v1/exports").header("content-type", "application/json").body(body);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let (status, job) = json(request.send().await.expect("an answer")).await;
    (status.as_u16(), job)
}

const ORDER: &str = r#"{"resource":"order"}"#;

async fn a_repeated_key_gives_the_same_job_and_another_body_is_refused(world: &World) {
    let (first, job) = create(world, Some("k1"), ORDER).await;
    let (second, same) = create(world, Some("k1"), ORDER).await;
    assert_eq!((first, second), (202, 200));
    assert_eq!(job["exportJobId"], same["exportJobId"]);
    let (third, problem) = create(world, Some("k1"), r#"{"resource":"plan"}"#).await;
    assert_eq!((third, &problem["code"]), (422, &j!("IDEMPOTENCY_KEY_REUSED")));
    assert_eq!(world.jobs().await.len(), 1);

    let other = world.token_for(|caller| caller.user = outport_domain::id::Id::new()).await;
    let answer = world
        .client
        .post(world.url("/v1/exports"))
        .bearer_auth(other)
        .header("content-type", "application/json")
        .header("idempotency-key", "k1")
        .body(ORDER)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 202, "a key is its caller's own");
    assert_eq!(world.jobs().await.len(), 2);
}

async fn a_hundred_requests_at_once_become_a_hundred_jobs(world: &World) {
    let answers = futures::future::join_all((0..100).map(|_| create(world, None, ORDER))).await;
    let ids: BTreeSet<String> = answers
        .iter()
        .map(|(status, job)| {
            assert_eq!(*status, 202, "{job}");
            job["exportJobId"].to_string()
        })
        .collect();
    assert_eq!(ids.len(), 100);
    assert_eq!(world.jobs().await.len(), 100);
}

async fn a_hundred_requests_with_one_key_become_one_job(world: &World) {
    let answers =
        futures::future::join_all((0..100).map(|_| create(world, Some("one"), ORDER))).await;
    let ids: BTreeSet<String> =
        answers.iter().map(|(_, job)| job["exportJobId"].to_string()).collect();
    assert_eq!(ids.len(), 1);
    let fresh = answers.iter().filter(|(status, _)| *status == 202).count();
    let repeated = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!((fresh, repeated), (1, 99));
    assert_eq!(world.jobs().await.len(), 1);
}

async fn a_full_queue_is_said_so(world: &World) {
    world.create().await;
    world.create().await;
    let answer = world
        .post("/v1/exports")
        .header("content-type", "application/json")
        .body(ORDER)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.headers()["retry-after"], "30");
    let (status, problem) = json(answer).await;
    assert_eq!((status.as_u16(), &problem["code"]), (429, &j!("QUEUE_FULL")));
    assert_eq!(world.jobs().await.len(), 2);
}

async fn lists_page_through_everything_once_newest_first(world: &World) {
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(world.create().await.to_string());
    }
    world.complete_next(FILE).await;
    let mut seen = Vec::new();
    let mut path = "/v1/exports?limit=3".to_owned();
    loop {
        let (status, page) = json(world.get(&path).send().await.expect("an answer")).await;
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().expect("items");
        assert!(items.len() <= 3);
        seen.extend(items.iter().map(|job| id_of(job).to_string()));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/v1/exports?limit=3&cursor={cursor}");
    }
    made.reverse();
    assert_eq!(seen, made);

    for (query, expected) in [
        ("status=COMPLETED".to_owned(), 1),
        ("status=PENDING&resource=order".to_owned(), 6),
        ("resource=plan".to_owned(), 0),
        (format!("requestedBy={}", world.user), 7),
        (format!("scheduleId={}", world.user), 0),
    ] {
        let answer = world.get(&format!("/v1/exports?{query}")).send().await.expect("an answer");
        let (_, page) = json(answer).await;
        assert_eq!(page["items"].as_array().map(Vec::len), Some(expected), "{query}");
        assert_eq!(page["nextCursor"], Value::Null, "{query}");
    }
}

async fn a_waiting_job_is_canceled_at_once_and_a_running_one_is_asked(world: &World) {
    let cancel = async |id: &outport_domain::id::JobId| {
        let path = format!("/v1/exports/{id}/cancel");
        let (status, body) = json(world.post(&path).send().await.expect("an answer")).await;
        (status.as_u16(), body)
    };
    let waiting = world.create().await;
    let (status, job) = cancel(&waiting).await;
    assert_eq!((status, &job["status"]), (202, &j!("CANCELED")));
    assert_eq!(cancel(&waiting).await.0, 202, "again changes nothing");

    let running = world.create().await;
    world.claim().await;
    for _ in 0..2 {
        let (status, job) = cancel(&running).await;
        assert_eq!((status, &job["status"]), (202, &j!("CANCELING")));
    }

    let job = world.completed().await;
    let (status, problem) = cancel(&job.id).await;
    assert_eq!((status, &problem["code"]), (409, &j!("JOB_ENDED")));
}

async fn a_rerun_is_a_new_job_with_the_same_request(world: &World) {
    let job = world.completed().await;
    let path = format!("/v1/exports/{}/rerun", job.id);
    let rerun = async |key: &'static str| {
        let request = world.post(&path).header("idempotency-key", key);
        let (status, body) = json(request.send().await.expect("an answer")).await;
        (status.as_u16(), body)
    };
    let (status, again) = rerun("a").await;
    assert_eq!((status, &again["status"]), (202, &j!("PENDING")));
    assert_ne!(id_of(&again), job.id);
    let (status, same) = rerun("a").await;
    assert_eq!((status, id_of(&same)), (200, id_of(&again)));
    let jobs = world.jobs().await;
    assert_eq!(jobs.len(), 2);
    assert_eq!(jobs[0].request, jobs[1].request);

    // Today's rights, not yesterday's.
    let token = world.token_for(|caller| _ = caller.scopes.insert("orders:margin".into())).await;
    let guarded = world.create_with(&token, r#"{"resource":"order","columns":["margin"]}"#).await;
    let answer = world.post(&format!("/v1/exports/{guarded}/rerun")).send().await;
    let (status, problem) = json(answer.expect("an answer")).await;
    assert_eq!(status, 422);
    assert_eq!(problem["errors"][0]["code"], "FORBIDDEN_COLUMN");
    assert_eq!(world.jobs().await.len(), 3);
}

async fn relative_dates_are_shown_as_sent_and_as_they_were_resolved(world: &World) {
    let id = world
        .create_with(
            &world.token,
            r#"{"resource":"order","filters":{"createdAt":{"operator":"IN_PREVIOUS","value":{"unit":"year"}}}}"#,
        )
        .await;
    let of = async |id: &str| {
        json(world.get(&format!("/v1/exports/{id}")).send().await.expect("an answer")).await.1
    };
    let job = of(&id.to_string()).await;
    assert_eq!(job["filters"]["createdAt"]["operator"], "IN_PREVIOUS");
    let bounds = &job["resolvedFilters"]["createdAt"];
    assert_eq!((&bounds[0]["operator"], &bounds[1]["operator"]), (&j!("GTE"), &j!("LT")));
    // Years of the resource's zone, three hours behind UTC.
    for bound in [&bounds[0], &bounds[1]] {
        assert!(
            bound["value"].as_str().is_some_and(|at| at.ends_with("-01-01T03:00:00Z")),
            "{job}"
        );
    }
    // A rerun is resolved for itself.
    let again = world.post(&format!("/v1/exports/{id}/rerun")).send().await.expect("an answer");
    let again = json(again).await.1;
    assert_eq!(again["filters"], job["filters"]);
    assert_eq!(again["resolvedFilters"]["createdAt"][0]["operator"], "GTE");
    let absolute = of(&world.create().await.to_string()).await;
    assert_eq!(absolute["resolvedFilters"], Value::Null);
}

async fn a_completed_job_shows_its_file_and_loses_it_on_request(world: &World) {
    let waiting = world.create().await;
    let path = format!("/v1/exports/{waiting}");
    let early = world.request(Method::DELETE, &path).send().await.expect("an answer");
    let (status, problem) = json(early).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &j!("JOB_RUNNING")));

    let job = world.complete_next(FILE).await;
    let answer = world.get(&path).send().await.expect("an answer");
    assert!(!answer.headers().contains_key("retry-after"), "it has ended");
    let (_, view) = json(answer).await;
    assert_eq!(view["status"], "COMPLETED");
    assert_eq!(view["progress"]["percent"], 100);
    assert_eq!(view["sha256"], job.file.as_ref().map(|file| file.sha256.clone()).expect("a file"));
    assert_eq!(view["warnings"], j!({"replacedCells": 1, "guardedCells": 2}));
    assert_eq!(view["sizeBytes"], FILE.len());
    assert_eq!(view["links"]["file"], world.url(&format!("{path}/file")));
    assert!(view["snapshotAt"].as_str().is_some_and(|at| at.len() == 24 && at.ends_with('Z')));

    for _ in 0..2 {
        let answer = world.request(Method::DELETE, &path).send().await.expect("an answer");
        let (status, view) = json(answer).await;
        assert_eq!(status, 200);
        assert!(view["deletedAt"].is_string());
        assert_eq!(view["links"]["file"], Value::Null);
    }
    let gone = world.get(&format!("{path}/file")).send().await.expect("an answer");
    let (status, problem) = json(gone).await;
    assert_eq!((status.as_u16(), &problem["code"]), (410, &j!("FILE_GONE")));
}

async fn a_failed_job_says_why(world: &World) {
    let id = world.create().await;
    world.fail_next().await;
    let (_, view) =
        json(world.get(&format!("/v1/exports/{id}")).send().await.expect("an answer")).await;
    assert_eq!(view["failureReason"], "LIMIT_EXCEEDED");
    assert_eq!(view["failure"], j!({"code": "LIMIT_EXCEEDED", "message": "too many rows"}));
    let file = world.get(&format!("/v1/exports/{id}/file")).send().await.expect("an answer");
    let (status, problem) = json(file).await;
    assert_eq!((status.as_u16(), &problem["code"]), (409, &j!("NOT_COMPLETED")));
}
