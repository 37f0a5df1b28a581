//! Rule 10 with a source that does store bytes that are no text: a PostgreSQL database of
//! `SQL_ASCII`, exported from end to end.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use outport_domain::{
    failure::FailureCode, id::OrganizationId, job::JobStatus, resource::Resource, spec::Catalogue,
};
use outport_source::{SourceConfig, connect};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::world::World;

fn server() -> String {
    std::env::var("OUTPORT_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned())
}

async fn run(url: &str, sql: &str) {
    let mut client = PgConnection::connect(url).await.expect("the PostgreSQL server of the tests");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut client).await.expect(sql);
    client.close().await.expect("its end");
}

/// Runs a test with a database of no encoding, whose table holds a good, a bad and no text.
async fn with_database(organization: OrganizationId, test: impl AsyncFnOnce(&str)) {
    let name = format!("outport_pipeline_{}", Uuid::new_v4().simple());
    let server = server();
    let (front, _) = server.rsplit_once('/').expect("a URL with a database");
    let url = format!("{front}/{name}");
    let create = format!(
        "CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    );
    run(&server, &create).await;
    let outcome = AssertUnwindSafe(async {
        let fill = format!(
            "CREATE TABLE notes AS SELECT n AS id, '{organization}'::uuid AS organization_id, note \
             FROM (VALUES (1, 'café'), (2, E'caf\\xe9'), (3, NULL)) AS note(n, note)"
        );
        run(&url, &fill).await;
        test(&url).await;
    })
    .catch_unwind()
    .await;
    run(&server, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

fn catalogue(invalid_text: &str) -> Arc<Catalogue> {
    let resource = Resource::from_toml(&format!(
        r#"
        name = "note"
        connection = "notes"
        from = "notes"
        sort = ["id"]
        invalidText = "{invalid_text}"
        [scope]
        organization = "organization_id"
        [[columns]]
        key = "id"
        type = "integer"
        [[columns]]
        key = "note"
        type = "text"
        "#
    ));
    let resource = Arc::new(resource.expect("a resource"));
    Arc::new(Catalogue(BTreeMap::from([("note".to_owned(), resource)])))
}

#[tokio::test]
async fn bytes_that_are_no_text_are_replaced_and_counted_or_fail_by_the_columns_name() {
    let mut world = World::new().await;
    let organization = world.caller.organization;
    with_database(organization, async |url| {
        let config = SourceConfig::Postgres {
            url: url.to_owned(),
            connect_timeout: Duration::from_secs(10),
        };
        world.pipeline.sources = Arc::new(BTreeMap::from([("notes".to_owned(), connect(&config))]));
        world.body = json!({"resource": "note"});

        world.pipeline.catalogue = catalogue("replace");
        let (job, _) = world.export().await;
        let row = world.job(job).await;
        assert_eq!(row.status, JobStatus::Completed, "{:?}", row.failure);
        assert_eq!(row.file.map(|file| file.warnings.replaced_cells), Some(1));
        let text = String::from_utf8(world.stored(job).await).expect("UTF-8");
        assert_eq!(text, "id,note\n1,café\n2,caf\u{FFFD}\n3,\n");

        world.pipeline.catalogue = catalogue("fail");
        let (job, _) = world.export().await;
        let row = world.job(job).await;
        let (code, message) = row.failure.expect("a failure");
        assert_eq!((row.status, code), (JobStatus::Failed, FailureCode::ValueNotEncodable));
        assert!(message.contains("note"), "{message}");
        assert!(!message.contains("caf"), "{message}");
    })
    .await;
}
