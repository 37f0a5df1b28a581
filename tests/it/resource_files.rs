//! `outport resource init` and `outport resource check`, as an operator runs them, on every
//! engine.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use outport_domain::{column::ColumnType, resource::Resource, selection::Relation};

use crate::harness::{
    MariaDb,
    database::Postgres,
    process::{Env, Program},
    shop::ORGANIZATION,
};

/// A folder with a configuration by environment variables.
pub struct Place {
    folder: tempfile::TempDir,
    pub env: Env,
}

/// What a command came to.
#[derive(Debug)]
pub struct Came {
    code: Option<i32>,
    pub said: String,
    complained: String,
}

impl Place {
    pub fn with(connection: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = [
            ("APP_ENC_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned()),
            ("OUTPORT_CONNECTIONS_SHOP", connection.to_owned()),
        ];
        let env = settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { folder, env }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn declare(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.path("resources")).expect("a folder");
        std::fs::write(self.path("resources").join(name), text).expect("a resource file");
    }

    fn declared(&self, name: &str) -> Resource {
        let path = self.path("resources").join(name);
        let text = std::fs::read_to_string(path).expect("the resource file");
        Resource::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(Program::Outport.path());
        command.args(arguments).current_dir(self.folder.path()).env_clear().envs(&self.env);
        command
    }

    pub async fn outport(&self, arguments: &[&str]) -> Came {
        let mut command = self.command(arguments);
        let ran = tokio::task::spawn_blocking(move || command.output()).await;
        let output = ran.expect("the thread ends").expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Came {
            code: output.status.code(),
            said: text(&output.stdout),
            complained: text(&output.stderr),
        }
    }

    pub async fn init(&self, table: &str, more: &[&str]) -> Came {
        let arguments = ["resource", "init", "--connection", "shop", "--table", table];
        self.outport(&[&arguments, more].concat()).await
    }
}

impl Came {
    #[track_caller]
    pub fn is(&self, code: i32, says: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        let said = self.said.contains(says) || self.complained.contains(says);
        assert!(said, "'{says}' is not in {self:?}");
    }
}

/// The columns that every engine takes: names that are hard to write, and a few types.
const AWKWARD: &str = r##"
  "id" integer NOT NULL,
  "Order ""No""" varchar(20),
  "select" integer,
  "UPPER" integer,
  "with space" integer,
  "with_space" integer,
  "größe_übrig" integer,
  "a.b" decimal(12,2) NOT NULL,
  "it's" date,
  "back\slash" integer,
  "#comment" integer,
  "--" integer,
  "password_hash" varchar(60),
  "api_key" varchar(60),
  "organization_id" {uuid} NOT NULL,
  "company_id" {uuid},
  "deleted_at" {instant},
  "{long}" integer{more},
  PRIMARY KEY ("id")"##;

fn create(table: &str, uuid: &str, instant: &str, more: &str) -> String {
    let columns = AWKWARD
        .replace("{uuid}", uuid)
        .replace("{instant}", instant)
        .replace("{long}", &"l".repeat(60))
        .replace("{more}", more);
    format!("CREATE TABLE {table} ({columns})")
}

/// What `init` writes of [`AWKWARD`] is accepted as it is, and declares all of it.
async fn is_written_and_accepted(place: &Place, table: &str, schema: &[&str]) {
    let more = [&["--name", "awkward"], schema].concat();
    place.init(table, &more).await.is(0, "awkward.toml");
    let checked = place.outport(&["resource", "check"]).await;
    checked.is(0, "ok    resource awkward");
    assert!(!checked.said.contains("FAIL"), "{}", checked.said);

    let resource = place.declared("awkward.toml");
    let column = |source: &str| {
        let mut columns = resource.columns.iter();
        columns.find(|column| *column.source == *source).unwrap_or_else(|| panic!("no {source}"))
    };
    for (source, key, column_type) in [
        ("id", "id", ColumnType::Integer),
        ("Order \"No\"", "orderNo", ColumnType::Text),
        ("select", "select", ColumnType::Integer),
        ("UPPER", "upper", ColumnType::Integer),
        ("with space", "withSpace", ColumnType::Integer),
        ("with_space", "withSpace2", ColumnType::Integer),
        ("größe_übrig", "größeÜbrig", ColumnType::Integer),
        ("a.b", "aB", ColumnType::Decimal),
        ("it's", "itS", ColumnType::Date),
        ("--", "column12", ColumnType::Integer),
    ] {
        let found = column(source);
        assert_eq!((found.key.as_str(), found.column_type), (key, column_type), "{source}");
    }
    let secret = |name: &str| resource.columns.iter().any(|column| *column.source == *name);
    assert!(!secret("password_hash") && !secret("api_key"), "secrets are left out");
    assert!(!column("organization_id").default && column("company_id").default);
    assert_eq!(&*resource.scope.organization.name, "organization_id");
    assert_eq!(&*resource.scope.company.as_ref().expect("a company").name, "company_id");
    assert_eq!(&*resource.scope.deleted_at.as_ref().expect("a mark").name, "deleted_at");
    let order: Vec<&str> = resource.order.iter().map(|order| &*order.column.name).collect();
    assert_eq!(order, ["id"]);
}

#[tokio::test]
async fn a_postgres_table_of_all_awkward_names_and_types_becomes_a_resource() {
    let postgres = Postgres::create().await;
    let more = ", \"interval\" interval, \"tags\" text[], \"where\" inet, \"doc\" jsonb, \"raw\" bytea, \
                \"mood\" \"Mood's\", \"price\" \"Price\", \"at\" timestamptz, \"local\" timestamp, \
                \"huge\" numeric(60,30), \"span\" tstzrange, \"money\" money, \"bits\" bit varying";
    postgres
        .run(&format!(
            "CREATE SCHEMA \"Odd.Schema\"; CREATE TYPE \"Mood's\" AS ENUM ('a''\n# b', 'c'); \
             CREATE DOMAIN \"Price\" AS numeric(8,2); {}; CREATE TABLE \"Odd.Schema\".\"t\" (id int, tenant_id uuid); \
             CREATE VIEW seen AS SELECT * FROM \"Weird \"\"T\"\"\"",
            create("\"Weird \"\"T\"\"\"", "uuid", "timestamptz", more)
        ))
        .await;
    let place = Place::with(&postgres.url());
    is_written_and_accepted(&place, "Weird \"T\"", &[]).await;
    let resource = place.declared("awkward.toml");
    let types: Vec<_> = resource.columns.iter().map(|column| column.column_type).collect();
    for wanted in [ColumnType::Json, ColumnType::Binary, ColumnType::Timestamp] {
        assert!(types.contains(&wanted), "{wanted:?}");
    }

    place.init("seen", &[]).await.is(0, "seen.toml");
    place.init("t", &["--schema", "Odd.Schema", "--name", "dotted"]).await.is(0, "dotted.toml");
    assert!(matches!(place.declared("dotted.toml").relation, Relation::Query(_)));
    place.outport(&["resource", "check"]).await.is(0, "ok    resource dotted");
}

#[tokio::test]
async fn a_mariadb_table_of_all_awkward_names_and_types_becomes_a_resource() {
    let mariadb = MariaDb::create().await;
    let more = ", \"u\" bigint unsigned, \"flag\" boolean, \"bits\" bit(9), \"doc\" json, \
                \"e\" enum('a''b', 'c#d'), \"s\" set('a','b'), \"y\" year, \"t\" time(6), \"b16\" binary(16), \
                \"p\" point, \"native\" /*M!100700 uuid */ /*!80000 char(36) */, \"huge\" decimal(60,30), \"local\" datetime";
    mariadb
        .run(&format!(
            "SET sql_mode = 'ANSI_QUOTES'; {}; CREATE VIEW seen AS SELECT * FROM \"Weird \"\"T`\"",
            create("\"Weird \"\"T`\"", "char(36)", "datetime", more)
        ))
        .await;
    let place = Place::with(&mariadb.url());
    is_written_and_accepted(&place, "Weird \"T`", &[]).await;
    place.init("seen", &[]).await.is(0, "seen.toml");
    place.outport(&["resource", "check"]).await.is(0, "ok    resource seen");
}

/// An SQLite file that a script made.
fn sqlite(folder: &Path, script: &str) -> String {
    let path = folder.join("shop.db");
    rusqlite::Connection::open(&path).expect("a file").execute_batch(script).expect(script);
    format!("sqlite://{}", path.display())
}

#[tokio::test]
async fn an_sqlite_table_of_all_awkward_names_and_types_becomes_a_resource() {
    let folder = tempfile::tempdir().expect("a folder");
    let very_long = "v".repeat(300);
    let more = format!(
        ", \"{very_long}\" , \"new\nline\" TEXT, \"\" TEXT, \"del\u{7f}\u{9b}\u{202e}\" \"odd\n\u{2028}type\", \"j\" JSON, \"blob\" BLOB"
    );
    let script = format!(
        "{}; CREATE VIEW seen AS SELECT * FROM \"Weird.T\"; \
         CREATE TABLE wide (tenant_id TEXT, {})",
        create("\"Weird.T\"", "TEXT", "TEXT", &more),
        (0..300).map(|n| format!("c{n}")).collect::<Vec<_>>().join(", ")
    );
    let place = Place::with(&sqlite(folder.path(), &script));
    is_written_and_accepted(&place, "Weird.T", &[]).await;
    place.init("seen", &[]).await.is(0, "seen.toml");
    let text = std::fs::read_to_string(place.path("resources/seen.toml")).expect("the file");
    let acted_on = |it: char| it.is_control() && it != '\n' || "\u{202e}\u{2028}".contains(it);
    assert!(!text.contains(acted_on), "it moves a terminal: {text:?}");
    place.init("wide", &[]).await.is(0, "wide.toml");
    let wide = place.declared("wide.toml");
    assert_eq!(wide.columns.iter().filter(|column| column.default).count(), 200);
    place.outport(&["resource", "check"]).await.is(0, "ok    resource wide");
}

#[tokio::test]
async fn init_says_what_is_wrong_and_never_overwrites_unasked() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "CREATE TABLE orders (id INTEGER PRIMARY KEY, org_id INTEGER, owner TEXT); \
                  CREATE TABLE customers (id INTEGER PRIMARY KEY, tenant_id TEXT); \
                  CREATE TABLE numbers (id INTEGER)";
    let place = Place::with(&sqlite(folder.path(), script));
    let unknown = ["resource", "init", "--connection", "shap", "--table", "orders"];
    place.outport(&unknown).await.is(2, "'shap' is not configured; configured: shop");
    place.init("ordres", &[]).await.is(1, "perhaps main.orders");
    place.init("zzz", &[]).await.is(1, "it has main.customers, main.numbers, main.orders");
    place
        .init("orders", &[])
        .await
        .is(1, "'org_id' of orders is INTEGER; name it with --organization: owner");
    place.init("numbers", &[]).await.is(1, "declare a query");
    place.init("orders", &["--organization", "nobody"]).await.is(1, "has no column 'nobody'");
    place.init("orders", &["--organization", "owner"]).await.is(0, "orders.toml");

    place.init("main.customers", &["--name", "customer"]).await.is(0, "customer.toml");
    let parts = ["main", "customers"].map(str::to_owned).to_vec();
    assert_eq!(place.declared("customer.toml").relation, Relation::Table(parts));
    place.init("customers", &["--name", "no such name!"]).await.is(2, "name: must be");
    place.init("customers", &["--name", "orders"]).await.is(1, "declared already");
    place.init("customers", &["--output", "-"]).await.is(0, "organization = \"tenant_id\"");
    assert!(!place.path("resources/customers.toml").exists(), "it went to standard output");

    let kept = place.path("mine.toml");
    std::fs::write(&kept, "mine").expect("a file");
    place.init("customers", &["--output", "mine.toml"]).await.is(1, "--force overwrites it");
    assert_eq!(std::fs::read_to_string(&kept).expect("the file"), "mine");
    place.init("customers", &["--output", "mine.toml", "--force"]).await.is(0, "mine.toml");
    place.outport(&["resource", "check"]).await.is(0, "ok    resource orders");
}

#[tokio::test]
async fn check_tells_every_difference_of_every_resource_at_once() {
    let postgres = Postgres::create().await;
    postgres
        .run(
            "CREATE TABLE orders (code text, total numeric(12,4), at text, organization_id uuid NOT NULL, \
               deleted_at timestamptz NOT NULL); \
             CREATE TABLE plans (name text, organization_id uuid NOT NULL)",
        )
        .await;
    let mut place = Place::with(&postgres.url());
    let resource = |name: &str, connection: &str, from: &str, scope: &str, columns: &str| {
        format!(
            "name = \"{name}\"\nconnection = \"{connection}\"\nfrom = \"{from}\"\n\
             [scope]\norganization = \"organization_id\"\n{scope}\n{columns}"
        )
    };
    let column = |key: &str, more: &str| format!("[[columns]]\nkey = \"{key}\"\n{more}\n");
    let columns = [
        column("code", "type = \"text\""),
        column("totl", "type = \"decimal\""),
        column("total", "type = \"decimal\"\nprecision = 10\nscale = 2"),
        column("at", "type = \"timestamp\""),
    ];
    let order =
        resource("order", "shop", "orders", "deletedAt = \"deleted_at\"", &columns.concat());
    place.declare("order.toml", &order);
    let name = column("name", "type = \"text\"");
    place.declare("plan.toml", &resource("plan", "shop", "plns", "", &name));
    place.declare("report.toml", &resource("report", "dead", "plans", "", &name));
    place.env.insert("OUTPORT_CONNECTIONS_DEAD".to_owned(), "sqlite:///no/such/file".to_owned());

    let checked = place.outport(&["resource", "check"]).await;
    checked.is(1, "");
    let lines: Vec<String> = checked
        .said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let expected = [
        "FAIL resource order columns.totl there is no column 'totl'; perhaps 'total'",
        "hint resource order columns.total declares 10 digits, 2 of them after the point",
        "FAIL resource order columns.at is declared timestamp, and 'at' is text",
        "hint resource order scope.organization no index begins with 'organization_id'",
        "FAIL resource order scope.deletedAt 'deleted_at' is never NULL",
        "FAIL resource plan from there is no table or view 'plns'; perhaps public.plans",
        "FAIL resource report connection the source's file is not there",
    ];
    assert_eq!(lines.len(), expected.len(), "{}", checked.said);
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\ninstead of\n{expected}");
    }
    // `outport check` says the same among the rest.
    let all = place.outport(&["check"]).await;
    all.is(1, checked.said.trim_end());
    assert!(!all.said.contains("0 resource"), "{}", all.said);
}

#[tokio::test]
async fn a_wrong_resource_file_is_a_wrong_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = Place::with(&sqlite(folder.path(), "CREATE TABLE t (id INTEGER)"));
    let empty = place.outport(&["resource", "check"]).await;
    empty.is(1, "there is no resource file in resources; `outport resource init` writes one");
    let wrong = "name = \"1\"\nconnection = \"shop\"\nfrom = \"t\"\n[scope]\norganization = \"o\"\n\
                 [[columns]]\nkey = \"id\"\ntype = \"instant\"";
    place.declare("wrong.toml", wrong);
    place.declare("other.toml", &wrong.replace("\"1\"", "\"a\"").replace("instant", "text"));
    place.declare(
        "third.toml",
        &wrong.replace("shop", "shap").replace("\"1\"", "\"b\"").replace("instant", "text"),
    );
    for arguments in [&["resource", "check"][..], &["check"], &["up"]] {
        let came = place.outport(arguments).await;
        came.is(2, "wrong.toml: name: must be");
        came.is(2, "'instant' is none of");
        came.is(2, "third.toml: the connection 'shap' is not configured");
    }
}

#[tokio::test]
async fn check_tries_everything_whatever_it_found_broken() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut place = Place::with(&sqlite(folder.path(), "CREATE TABLE t (id INTEGER)"));
    let sound = "name = \"t\"\nconnection = \"shop\"\nfrom = \"t\"\n[scope]\n\
                 organization = \"id\"\n[[columns]]\nkey = \"id\"\ntype = \"integer\"";
    place.declare("t.toml", sound);
    place.declare("lost.toml", &sound.replace("\"t\"\nc", "\"lost\"\nc").replace("shop", "shap"));
    // Nobody listens there.
    let state = "postgres://outport:hunter2@127.0.0.1:1/outport".to_owned();
    place.env.insert("OUTPORT_STATE_URL".to_owned(), state);
    let all = place.outport(&["check"]).await;
    for line in [
        "ok    configuration",
        "FAIL  state database, migrated: state.url: ",
        "ok    object store",
        "ok    mail",
        "ok    connection 'shop'",
        "FAIL  resources: resources/lost.toml: the connection 'shap' is not configured",
    ] {
        all.is(2, line);
    }
    assert!(!format!("{all:?}").contains("hunter2"), "{all:?}");
    std::fs::remove_file(place.path("resources/lost.toml")).expect("it is there");
    let all = place.outport(&["check"]).await;
    all.is(1, "FAIL  state database, migrated: state.url: ");
    all.is(1, "ok    connection 'shop'");
}

#[tokio::test]
async fn a_right_that_is_missing_is_told_by_the_database_itself() {
    let postgres = Postgres::create().await;
    let user = format!("outport_reader_{}", uuid::Uuid::now_v7().simple());
    postgres
        .run(&format!(
            "CREATE TABLE orders (code text, organization_id uuid); \
             INSERT INTO orders VALUES ('a', '{ORGANIZATION}'); CREATE ROLE {user} LOGIN"
        ))
        .await;
    let mut url = url::Url::parse(&postgres.url()).expect("a URL");
    url.set_username(&user).expect("a user");
    let place = Place::with(url.as_str());
    place.init("orders", &[]).await.is(0, "orders.toml");
    let checked = place.outport(&["resource", "check"]).await;
    postgres.run(&format!("DROP ROLE {user}")).await;
    checked.is(1, "permission denied for table orders");
}
