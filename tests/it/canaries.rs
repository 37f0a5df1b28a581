//! Secrets and places are planted in every field that takes them, and in the words of the source.
//! They come out nowhere: in no answer, event, message, mail or line of a log.

use serde_json::{Value, json};

use crate::{
    harness::{Api, MariaDb, World, shop, world::text_of},
    stored_connections::{CONNECTIONS, ended, ledger, stored, world},
};

/// What is in each of them.
const CANARY: &str = "canary";
/// `canary-secret-key`, base64 as PEM has it.
const KEY: &str =
    "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5LXNlY3JldC1rZXk=\n-----END PRIVATE KEY-----\n";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

/// All that came out, and from where.
#[derive(Default)]
struct Overheard(Vec<(String, String)>);

impl Overheard {
    fn hear(&mut self, what: &str, text: &impl ToString) {
        self.0.push((what.to_owned(), text.to_string()));
    }

    /// Everything that a world has told of its jobs.
    async fn hear_all_of(&mut self, world: &World, api: &Api) {
        for (what, sql) in [
            ("an event", "SELECT body FROM events"),
            ("a failure", "SELECT failure_code, failure_message FROM jobs"),
            ("a run", "SELECT failure_code, failure_message FROM runs"),
            ("a delivery", "SELECT handler, last_error FROM deliveries"),
        ] {
            for row in world.state.rows(sql).await {
                self.hear(what, &row.join(" "));
            }
        }
        for message in world.messages().await {
            self.hear("a message", &format!("{:?}", message.headers));
            self.hear("a message", &String::from_utf8_lossy(&message.body));
        }
        for mail in world.mails() {
            self.hear("a mail", &text_of(&mail));
            self.hear("a mail as it is", &String::from_utf8_lossy(&mail));
        }
        self.hear("the log", &api.process.log());
        self.hear("standard output", &api.process.said());
    }

    fn holds_no_canary(&self) {
        assert!(!self.0.is_empty());
        for (what, text) in &self.0 {
            let clear = text.to_ascii_lowercase().contains(CANARY) || text.contains("Y2FuYXJ5");
            assert!(!clear, "{what}: {text}");
        }
    }
}

fn with(world: &World, change: &Value) -> Value {
    let mut connection = ledger(world);
    connection["password"] = json!("canary-secret-password");
    for (name, value) in change.as_object().expect("an object") {
        connection[name] = value.clone();
    }
    connection
}

#[tokio::test]
async fn a_request_that_is_refused_is_not_repeated_to_anybody() {
    let world = world().await;
    let api = world.all_in_one().await;
    let path = stored(&api, &ledger(&world)).await;
    let mut overheard = Overheard::default();
    for change in [
        json!({"password": ["canary-secret"]}),
        json!({"password": {"canary-secret": "canary-secret"}, "port": "canary-secret"}),
        json!({"password": "canary-secret".repeat(1_000)}),
        json!({"passwrd": "canary-secret"}),
        json!({"ssl": "canary-secret"}),
        json!({"ssl": {"mode": "require", "cert": CERTIFICATE, "key": "canary-secret"}}),
        json!({"ssl": {"mode": "require", "cert": CERTIFICATE, "key": [KEY]}}),
        json!({"ssl": {"mode": "require", "key": KEY}}),
    ] {
        let body = with(&world, &change);
        let (status, answer) = api.try_post(CONNECTIONS, &body).await.expect("an answer");
        assert_eq!(status, 400, "{answer}");
        overheard.hear("a refusal to store", &answer);
        let (status, answer) = api.patch(&path, &body).await;
        assert_eq!(status, 400, "{answer}");
        overheard.hear("a refusal to change", &answer);
    }
    for filters in [
        json!({"amount": {"eq": ["canary-secret"]}}),
        json!({"organization_id": {"in": ["canary-secret"]}}),
        json!({"code": {"eq": "canary-secret"}}),
        json!({"code": {"between": ["canary-secret"]}}),
    ] {
        let body = json!({"dataRequest": {"mappedFields": {"ledger": {"orders": ["*"]}},
                                          "filters": {"ledger": {"orders": filters}}},
                          "metadata": {"source": "payments"}});
        let (status, answer) = api.try_post("/v1/fetcher", &body).await.expect("an answer");
        assert_eq!(status, 400, "{answer}");
        overheard.hear("a refusal to run", &answer);
    }
    let (base, _) = api.access();
    let stranger = reqwest::Client::new().get(format!("{base}{CONNECTIONS}"));
    let answer = stranger.bearer_auth("canary-secret-token").send().await.expect("an answer");
    assert_eq!(answer.status(), 401);
    overheard.hear("a refusal of a token", &format!("{:?}", answer.headers()));
    overheard.hear("a refusal of a token", &answer.text().await.expect("a body"));
    overheard.hear_all_of(&world, &api).await;
    overheard.holds_no_canary();
}

#[tokio::test]
async fn a_connection_that_does_not_work_is_told_without_its_place_and_its_secrets() {
    let world = world().await;
    let api = world.all_in_one().await;
    let mariadb = MariaDb::create().await;
    let at = url::Url::parse(&mariadb.url()).expect("a URL");
    let mut overheard = Overheard::default();
    for (number, change) in [
        json!({"host": "canary-host.invalid", "userName": "canary_user"}),
        json!({"port": 1, "databaseName": "canary_db", "userName": "canary_user"}),
        json!({"databaseName": "elsewhere"}),
        json!({"userName": "nobody_here"}),
        json!({"ssl": {"mode": "require", "cert": CERTIFICATE, "key": KEY}}),
        // It says who was refused, and from where.
        json!({"type": "MYSQL", "host": at.host_str(), "port": at.port().unwrap_or(3306),
               "userName": "canary_user", "databaseName": "canary_db", "schema": null}),
    ]
    .iter()
    .enumerate()
    {
        let mut connection = with(&world, change);
        let name = format!("broken-{number}");
        connection["configName"] = json!(name);
        let path = stored(&api, &connection).await;
        let (_, tested) = api.post(&format!("{path}/test")).await;
        assert_ne!(tested["status"], "success", "{tested}");
        overheard.hear("a test", &tested);
        let schema = api.answer(&format!("{path}/schema")).await;
        assert_eq!(schema.status(), 503);
        overheard.hear("a schema", &schema.text().await.expect("a body"));
        let fields = json!({name.as_str(): {"orders": ["*"]}});
        let validated = format!("{CONNECTIONS}/validate-schema");
        let asked = json!({"mappedFields": fields});
        let (status, answer) = api.try_post(&validated, &asked).await.expect("an answer");
        assert_eq!(status, 503, "{answer}");
        overheard.hear("a validation", &answer);
        let body = json!({"dataRequest": {"mappedFields": fields},
                          "metadata": {"source": "payments"}});
        let (status, answer) = api.try_post("/v1/fetcher", &body).await.expect("an answer");
        assert_eq!(status, 503, "{answer}");
        overheard.hear("a job that was not made", &answer);
        let view = api.get(&path).await;
        assert!(view.get("password").is_none() && view["ssl"].get("key").is_none(), "{view}");
    }
    overheard.hear_all_of(&world, &api).await;
    overheard.holds_no_canary();
}

/// A view whose rows cannot be read, for a reason that tells everything.
const BOOM: &str = "\
    CREATE FUNCTION shop.boom() RETURNS text LANGUAGE plpgsql AS $$ BEGIN \
      RAISE EXCEPTION 'canary-value at host=canary-host user=canary_user password=canary-secret, \
        postgres://canary_user:canary-secret@canary-host/canary_db' \
        USING DETAIL = 'Failing row contains (canary-value).', HINT = 'canary-value'; END $$; \
    CREATE VIEW shop.boom AS SELECT o.code, o.amount, shop.boom() AS note, o.organization_id \
      FROM shop.orders o;";

#[tokio::test]
async fn what_a_source_says_of_its_rows_and_places_stays_inside() {
    let world = world().await;
    world.state.postgres().run(BOOM).await;
    let boom = shop::resource("boom", "shop.boom", "").replace("\"shop\"", "\"ledger\"");
    world.declare_file("boom", &boom);
    let api = world.all_in_one().await;
    stored(&api, &with(&world, &json!({}))).await;
    let mut overheard = Overheard::default();
    let export = api.export("boom").await;
    overheard.hear("an export", &api.job_is(&export, "FAILED").await);
    let body = json!({
        "dataRequest": {
            "mappedFields": {"ledger": {"boom": ["note"]}},
            "filters": {"ledger": {"boom": {"code": {"ne": ["canary-value"]}}}},
        },
        "metadata": {"source": "payments"},
    });
    let (status, answer) = api.try_post("/v1/fetcher", &body).await.expect("an answer");
    assert_eq!(status, 202, "{answer}");
    let mut job = ended(&api, answer["jobId"].as_str().expect("an id"), "failed").await;
    assert_eq!(job["filters"]["ledger"]["boom"]["code"]["ne"][0], "canary-value");
    // To who sent them, they come back as sent.
    job["filters"] = Value::Null;
    overheard.hear("a job of the facade", &job);
    world.settled().await;
    overheard.hear("deliveries", &api.get("/v1/deliveries").await);
    assert_eq!(world.mails().len(), 1, "the export's");
    overheard.hear_all_of(&world, &api).await;
    let messages = overheard.0.iter().filter(|(what, _)| what == "a message").count();
    assert_eq!(messages, 4, "headers and body of both");
    overheard.holds_no_canary();
}

#[tokio::test]
async fn what_a_url_gives_to_a_parameter_that_nobody_knows_is_not_logged() {
    let mut world = World::postgres().await;
    for name in ["OUTPORT_CONNECTIONS_SHOP", "OUTPORT_STATE_URL"] {
        let mut url = url::Url::parse(&world.env[name]).expect("a URL");
        url.query_pairs_mut().append_pair("pasword", "canary-secret");
        world.set(name, url.as_str());
    }
    world.set("OUTPORT_LOG_FILTER", "debug");
    let api = world.all_in_one().await;
    let export = api.export("order").await;
    api.job_is(&export, "COMPLETED").await;
    world.settled().await;
    let mut overheard = Overheard::default();
    overheard.hear_all_of(&world, &api).await;
    overheard.holds_no_canary();
}

#[tokio::test]
async fn a_job_whose_connection_was_moved_away_tells_of_no_place() {
    let world = world().await;
    let api = world.api().await;
    stored(&api, &with(&world, &json!({}))).await;
    let export = api.export("entry").await;
    let body = json!({"dataRequest": {"mappedFields": {"ledger": {"orders": ["*"]}}},
                      "metadata": {"source": "payments"}});
    let (status, answer) = api.try_post("/v1/fetcher", &body).await.expect("an answer");
    assert_eq!(status, 202, "{answer}");
    let asked = answer["jobId"].as_str().expect("an id").to_owned();
    // Behind the API's back: it leads no connection elsewhere while a job reads it.
    let moved = "UPDATE connections SET host = 'canary-host.invalid', username = 'canary_user', \
                 database = 'canary_db'";
    world.state.postgres().run(moved).await;
    let worker = world.worker();
    let mut overheard = Overheard::default();
    overheard.hear("an export", &api.job_is(&export, "FAILED").await);
    let job = ended(&api, &asked, "failed").await;
    assert_eq!(job["metadata"]["error"]["code"], "SOURCE_UNREACHABLE", "{job}");
    overheard.hear("a job of the facade", &job);
    world.settled().await;
    overheard.hear_all_of(&world, &api).await;
    overheard.hear("the worker's log", &worker.log());
    overheard.holds_no_canary();
}
