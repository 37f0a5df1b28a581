//! The plans of the hot queries on `PostgreSQL`, with long queues: no scan of a table that grows.

use std::{env, time::Duration};

use sea_orm::{ConnectionTrait as _, DbBackend, QueryTrait as _, Statement, Value};

use crate::{PageRequest, Store, StoreConfig, channels, deliveries, entity::job, jobs, paging};

const ORGANIZATIONS: u32 = 500;
const JOBS: u32 = 100_000;

/// A database with a hundred thousand queued jobs, dropped with `drop`.
struct Crowded {
    store: Store,
    admin: Store,
    name: String,
}

fn server() -> String {
    env::var("OUTPORT_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned())
}

async fn connect(url: String) -> Store {
    let acquire_timeout = Duration::from_secs(20);
    let config = StoreConfig { url, max_connections: 2, acquire_timeout };
    Store::connect(&config).await.expect("PostgreSQL is reachable")
}

impl Crowded {
    async fn make() -> Self {
        let admin = connect(server()).await;
        let name = format!("outport_plans_{}", uuid::Uuid::now_v7().simple());
        let create = format!("CREATE DATABASE {name}");
        admin.writer().execute_unprepared(&create).await.expect("a database");
        let server = server();
        let (before, _) = server.rsplit_once('/').expect("a URL with a database");
        let store = connect(format!("{before}/{name}")).await;
        store.migrate().await.expect("the schema");
        let crowd = Self { store, admin, name };
        crowd.fill().await;
        crowd
    }

    async fn fill(&self) {
        let organization = "lpad(to_hex(i % 500), 32, '0')::uuid";
        for sql in [
            format!(
                "INSERT INTO jobs (id, organization_id, scope_type, user_id, caller, resource, \
                 format, columns, filters, request, locale, file_name, status, due_at, \
                 created_at, updated_at) \
                 SELECT lpad(to_hex(i), 32, '0')::uuid, {organization}, 'ORGANIZATION', \
                 gen_random_uuid(), '{{}}', 'order', 'CSV', '[]', '{{}}', '{{}}', 'en', 'a.csv', \
                 'PENDING', i, i, i FROM generate_series(1, {JOBS}) i"
            ),
            format!(
                "INSERT INTO turns (organization_id, queued, running, last_turn_at) \
                 SELECT {organization}, {}, 0, i FROM generate_series(1, {ORGANIZATIONS}) i",
                JOBS / ORGANIZATIONS
            ),
            "INSERT INTO events (id, event_type, job_id, organization_id, body, created_at) \
                 SELECT id, 'export.completed', id, organization_id, '{}', created_at FROM jobs"
                .to_string(),
            "INSERT INTO deliveries (id, event_id, handler, target, job_id, organization_id, \
             status, due_at, created_at) \
             SELECT id, id, 'mail', '', job_id, organization_id, \
             CASE WHEN created_at % 10 = 0 THEN 'PENDING' ELSE 'DONE' END, created_at, created_at \
             FROM events"
                .to_owned(),
            "INSERT INTO channels (channel, organization_id, head) \
             SELECT 'job:' || id, organization_id, 1 FROM jobs"
                .to_owned(),
            "ANALYZE".to_owned(),
        ] {
            self.store.writer().execute_unprepared(&sql).await.expect("rows");
        }
    }

    /// The plan of a statement, as for any values: the one that a prepared statement is run with
    /// in the end.
    async fn plan(&self, statement: Statement) -> String {
        let tx = self.store.begin().await.expect("a transaction");
        let values: Vec<Value> = statement.values.map(|values| values.0).unwrap_or_default();
        let arguments = vec!["NULL"; values.len()].join(", ");
        let types = vec!["unknown"; values.len()].join(", ");
        tx.run("SET LOCAL plan_cache_mode = force_generic_plan", []).await.expect("set");
        let prepare = format!("PREPARE hot ({types}) AS {}", statement.sql);
        tx.connection().execute_unprepared(&prepare).await.expect("prepared");
        let explain = Statement::from_string(
            DbBackend::Postgres,
            format!("EXPLAIN EXECUTE hot ({arguments})"),
        );
        let rows = tx.connection().query_all_raw(explain).await.expect("a plan");
        let lines = rows.iter().map(|row| row.try_get_by_index::<String>(0).expect("a line"));
        let plan = lines.collect::<Vec<_>>().join("\n");
        tx.connection().execute_unprepared("DEALLOCATE hot").await.expect("forgotten");
        plan
    }

    async fn drop(self) {
        self.store.close().await;
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        self.admin.writer().execute_unprepared(&drop).await.expect("dropped");
        self.admin.close().await;
    }
}

#[tokio::test]
async fn no_hot_query_scans_a_table_that_grows() {
    let crowd = Crowded::make().await;
    let engine = crowd.store.engine();
    let nil = || Value::from(uuid::Uuid::nil());
    let turn = format!("{} FOR UPDATE OF t SKIP LOCKED", jobs::NEXT_TURN);
    let oldest = format!("{} FOR UPDATE", jobs::OLDEST_DUE);
    let organization = outport_domain::id::Id::from_uuid(uuid::Uuid::nil());
    let filter = jobs::JobFilter::default();
    let request = PageRequest { limit: 50, after: Some(uuid::Uuid::nil()) };
    let list = jobs::list_query(organization, &filter);
    let page = paging::rows(list, job::Column::Id, request).build(DbBackend::Postgres);
    let due = deliveries::due("mail", 0, 16).build(DbBackend::Postgres);
    let hot = [
        ("turn", engine.statement(turn, [1_i32.into(), 1_i64.into()]), "jobs_due"),
        ("oldest", engine.statement(oldest, [nil(), 1_i64.into()]), "jobs_due"),
        ("deliveries", due, "deliveries_due"),
        ("list", page, "jobs_list"),
        ("positions", channels::positions_query(engine, &["job:1", "job:2"]), "channels_pkey"),
    ];
    let mut wrong = Vec::new();
    for (what, statement, index) in hot {
        let plan = crowd.plan(statement).await;
        let scans = ["jobs", "deliveries", "events", "channels"]
            .iter()
            .any(|table| plan.contains(&format!("Seq Scan on {table}")));
        if scans || !plan.contains(index) {
            wrong.push(format!("{what}:\n{plan}"));
        }
    }
    crowd.drop().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
