//! Filters by relative dates: resolved once, at the request; a retry reads the same days whatever
//! the clock and the resource say by then.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use outport_domain::{
    crash::CrashPlan,
    id::{JobId, OrganizationId},
    job::JobStatus,
    resource::Resource,
    spec::Catalogue,
};
use outport_objects::memory::{Fault, Step};
use outport_source::{SourceConfig, connect};
use outport_store::jobs::Finished;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// Events whose requests are in this zone unless they say otherwise.
fn catalogue(zone: &str) -> Arc<Catalogue> {
    let resource = Resource::from_toml(&format!(
        r#"
        name = "event"
        connection = "events"
        from = "events"
        sort = ["at"]
        timeZone = "{zone}"
        [scope]
        organization = "organization_id"
        [[columns]]
        key = "code"
        type = "text"
        [[columns]]
        key = "at"
        type = "timestamp"
        "#
    ));
    let resource = Arc::new(resource.expect("a resource"));
    Arc::new(Catalogue(BTreeMap::from([("event".to_owned(), resource)])))
}

/// Events around the fifth of July in São Paulo, and in the week after.
fn fill(path: &Path, organization: OrganizationId) {
    let file = rusqlite::Connection::open(path).expect("a file");
    file.execute_batch("CREATE TABLE events (code TEXT, at TIMESTAMP, organization_id TEXT)")
        .expect("a table");
    for (code, at) in [
        ("before", "2020-07-05 02:59:59.999Z"),
        ("first", "2020-07-05 03:00:00Z"),
        ("last", "2020-07-06 02:59:59.999Z"),
        ("after", "2020-07-06 03:00:00Z"),
        ("later", "2020-07-12 12:00:00Z"),
    ] {
        let row = (code, at, organization.to_string());
        file.execute("INSERT INTO events VALUES (?1, ?2, ?3)", row).expect("a row");
    }
}

async fn world() -> World {
    let mut world =
        World::with(CrashPlan::none(), |limits| limits.job_backoff = Duration::ZERO).await;
    let path = world.folder.path().join("events.db");
    fill(&path, world.caller.organization);
    let source = connect(&SourceConfig::Sqlite { path });
    world.pipeline.sources = Arc::new(BTreeMap::from([("events".to_owned(), source)]));
    world.pipeline.catalogue = catalogue("America/Sao_Paulo");
    world.body = json!({
        "resource": "event",
        "columns": ["code"],
        "filters": {"at": {"operator": "IN_CURRENT", "value": {"unit": "day"}}},
    });
    world
}

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

async fn run_next(world: &World) -> Finished {
    world.pipeline.run_one(world.claim().await, CancellationToken::new()).await
}

async fn rows(world: &World, job: JobId) -> String {
    String::from_utf8(world.stored(job).await).expect("UTF-8").replace('\n', " ")
}

#[tokio::test]
async fn a_retry_on_another_day_reads_the_day_of_the_request() {
    let mut world = world().await;
    // The last tenth of a second of Sunday, the fifth, in São Paulo; Monday in UTC.
    let job = world.request_at(instant("2020-07-06T02:59:59.900Z")).await;
    let row = world.job(job).await;
    assert_eq!(row.filters, r#"{"at":{"operator":"IN_CURRENT","value":{"unit":"day"}}}"#);
    assert_eq!(
        row.resolved_filters.as_deref(),
        Some(
            r#"{"at":[{"operator":"GTE","value":"2020-07-05T03:00:00Z"},{"operator":"LT","value":"2020-07-06T03:00:00Z"}]}"#
        )
    );
    world.memory.fail(Step::Put, Fault::Unreachable);
    let finished = run_next(&world).await;
    assert!(matches!(finished, Finished::Requeued(_)), "{finished:?}");
    // The clock is years on, and the resource has been declared anew.
    world.pipeline.catalogue = catalogue("Asia/Tokyo");
    run_next(&world).await;
    let row = world.job(job).await;
    assert_eq!((row.status, row.run), (JobStatus::Completed, 2));
    assert_eq!(rows(&world, job).await, "code first last ");
}

#[tokio::test]
async fn the_same_request_made_again_is_of_its_own_day() {
    let world = world().await;
    for (asked, expected) in [
        ("2020-07-05T02:00:00Z", "code before "),
        ("2020-07-06T03:00:00Z", "code after "),
        ("2020-07-13T02:59:59.999Z", "code later "),
        ("2020-07-13T03:00:00Z", "code "),
    ] {
        let job = world.request_at(instant(asked)).await;
        run_next(&world).await;
        assert_eq!(rows(&world, job).await, expected, "{asked}");
    }
}

#[tokio::test]
async fn what_the_resolved_form_adds_is_not_held_against_a_request() {
    let mut world = world().await;
    // As many as a request may have; each becomes two.
    let conditions =
        vec![json!({"operator": "IN_LAST", "value": {"amount": 1, "unit": "week"}}); 50];
    world.body["filters"] = json!({"at": conditions});
    let job = world.request_at(instant("2020-07-13T12:00:00Z")).await;
    run_next(&world).await;
    assert_eq!(rows(&world, job).await, "code after later ");
}
