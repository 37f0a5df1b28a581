//! A place of its own for a test on each engine, and short words to ask for rows.

use std::{panic::AssertUnwindSafe, path::PathBuf, sync::Arc, time::Duration};

use futures::FutureExt;
use outport_domain::{
    column::ColumnType,
    selection::{ColumnRef, Order, Predicate, Relation, Selection},
};
use outport_source::{Batch, Next, RowStream, Source, SourceConfig, SourceError, connect};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};
use uuid::Uuid;

pub type Rows = Vec<Vec<Option<Vec<u8>>>>;

/// One engine with an empty schema, database or file.
pub enum World {
    Postgres { schema: String },
    MariaDb { database: String },
    Sqlite { folder: tempfile::TempDir },
}

/// Unencrypted unless the address says otherwise: a handshake for each of thousands of queries
/// takes minutes in a debug build.
pub fn postgres_url() -> String {
    let mut url = std::env::var("OUTPORT_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
    if !url.contains("sslmode=") {
        url.push_str(if url.contains('?') { "&sslmode=disable" } else { "?sslmode=disable" });
    }
    url
}

pub async fn postgres_client() -> PgConnection {
    PgConnection::connect(&postgres_url()).await.expect("the PostgreSQL server of the tests")
}

pub fn postgres_source(url: String) -> Arc<dyn Source> {
    connect(&SourceConfig::Postgres { url, connect_timeout: Duration::from_secs(10) })
}

pub fn mariadb_url() -> String {
    std::env::var("OUTPORT_TEST_MARIADB")
        .unwrap_or_else(|_| "mysql://root@127.0.0.1:3306/test".to_owned())
}

/// Understands the statements that the other engines do.
pub async fn mariadb_client() -> MySqlConnection {
    let mut client =
        MySqlConnection::connect(&mariadb_url()).await.expect("the MariaDB server of the tests");
    run_mariadb(&mut client, "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES'")
        .await;
    client
}

/// Whether the server of `OUTPORT_TEST_MARIADB` is MySQL itself.
pub async fn is_mysql() -> bool {
    let version = sqlx::query("SELECT VERSION()").fetch_one(&mut mariadb_client().await).await;
    !version.expect("a version").get::<String, _>(0).contains("MariaDB")
}

/// MariaDB's UUID, and what stands for it in MySQL.
pub const NATIVE_UUID: &str = "/*M!100700 uuid */ /*!80000 char(36) */";

/// The numbers from 1 on, as MariaDB and MySQL read them: `seq` of this relation.
pub fn numbers(rows: u32) -> String {
    format!(
        "(WITH RECURSIVE d (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM d WHERE n < 999) \
          SELECT 1000 * a.n + b.n + 1 AS seq FROM d AS a JOIN d AS b ON a.n <= {rows} DIV 1000 \
          WHERE 1000 * a.n + b.n < {rows}) AS numbers_from_one"
    )
}

pub fn mariadb_source(url: String) -> Arc<dyn Source> {
    connect(&SourceConfig::MySql { url, connect_timeout: Duration::from_secs(10) })
}

impl World {
    pub async fn postgres() -> Self {
        let schema = format!("outport_source_{}", Uuid::new_v4().simple());
        run(&mut postgres_client().await, &format!("CREATE SCHEMA {schema}")).await;
        Self::Postgres { schema }
    }

    pub async fn mariadb() -> Self {
        let database = format!("outport_source_{}", Uuid::new_v4().simple());
        let sql = format!("CREATE DATABASE {database} CHARACTER SET utf8mb4");
        run_mariadb(&mut mariadb_client().await, &sql).await;
        Self::MariaDb { database }
    }

    pub fn sqlite() -> Self {
        Self::Sqlite { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres { .. })
    }

    pub fn is_mariadb(&self) -> bool {
        matches!(self, Self::MariaDb { .. })
    }

    /// One text per engine.
    pub fn pick<'a>(&self, postgres: &'a str, mariadb: &'a str, sqlite: &'a str) -> &'a str {
        match self {
            Self::Postgres { .. } => postgres,
            Self::MariaDb { .. } => mariadb,
            Self::Sqlite { .. } => sqlite,
        }
    }

    pub fn path(&self) -> PathBuf {
        match self {
            Self::Postgres { .. } | Self::MariaDb { .. } => panic!("a server has no path"),
            Self::Sqlite { folder } => folder.path().join("source.db"),
        }
    }

    pub fn source(&self) -> Arc<dyn Source> {
        match self {
            Self::Postgres { .. } => postgres_source(postgres_url()),
            Self::MariaDb { .. } => mariadb_source(mariadb_url()),
            Self::Sqlite { .. } => connect(&SourceConfig::Sqlite { path: self.path() }),
        }
    }

    /// Runs statements that a test prepares its world with.
    pub async fn run(&self, sql: &str) {
        match self {
            Self::Postgres { schema } => {
                let mut client = postgres_client().await;
                run(&mut client, &format!("SET search_path = {schema}")).await;
                run(&mut client, sql).await;
            }
            Self::MariaDb { database } => {
                let mut client = mariadb_client().await;
                run_mariadb(&mut client, &format!("USE {database}")).await;
                run_mariadb(&mut client, sql).await;
            }
            Self::Sqlite { .. } => self.file().execute_batch(sql).expect(sql),
        }
    }

    pub fn file(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).expect("a file")
    }

    pub fn table(&self, name: &str) -> Relation {
        Relation::Table(match self {
            Self::Postgres { schema: owner } | Self::MariaDb { database: owner } => {
                vec![owner.clone(), name.to_owned()]
            }
            Self::Sqlite { .. } => vec![name.to_owned()],
        })
    }

    /// The table's name as SQL.
    pub fn qualified(&self, name: &str) -> String {
        match self {
            Self::Postgres { schema: owner } | Self::MariaDb { database: owner } => {
                format!("{owner}.{name}")
            }
            Self::Sqlite { .. } => name.to_owned(),
        }
    }

    async fn tear_down(self) {
        match &self {
            Self::Postgres { schema } => {
                run(&mut postgres_client().await, &format!("DROP SCHEMA {schema} CASCADE")).await;
            }
            Self::MariaDb { database } => {
                let sql = format!("DROP DATABASE {database}");
                run_mariadb(&mut mariadb_client().await, &sql).await;
            }
            Self::Sqlite { .. } => {}
        }
    }
}

pub async fn run(client: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(client).await.expect(sql);
}

pub async fn run_mariadb(client: &mut MySqlConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(client).await.expect(sql);
}

/// Runs a test in a world that is taken down whatever happens.
pub async fn within(world: World, test: impl AsyncFnOnce(&World)) {
    let outcome = AssertUnwindSafe(test(&world)).catch_unwind().await;
    world.tear_down().await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

pub async fn on_every_engine(test: impl AsyncFn(&World)) {
    within(World::sqlite(), async |world| test(world).await).await;
    within(World::postgres().await, async |world| test(world).await).await;
    within(World::mariadb().await, async |world| test(world).await).await;
}

pub fn column(name: &str, column_type: ColumnType) -> ColumnRef {
    ColumnRef { name: name.into(), column_type }
}

/// All rows of a relation, columns of the given names and types.
pub fn selection(relation: Relation, columns: &[(&str, ColumnType)]) -> Selection {
    Selection {
        relation,
        columns: columns.iter().map(|(name, column_type)| column(name, *column_type)).collect(),
        predicate: Predicate::All(Vec::new()),
        order: Vec::new(),
        time_zone: chrono_tz::UTC,
    }
}

pub fn query(sql: impl Into<String>, columns: &[(&str, ColumnType)]) -> Selection {
    selection(Relation::Query(sql.into()), columns)
}

pub fn ordered(mut selection: Selection, name: &str) -> Selection {
    selection.order = vec![Order { column: column(name, ColumnType::Integer), descending: false }];
    selection
}

/// The rest of a stream. The count at its end must be right, or this panics.
pub async fn rest(mut stream: Box<dyn RowStream>) -> Result<Rows, SourceError> {
    let mut rows = Rows::new();
    let mut batch = Batch::new(1);
    loop {
        match stream.next(&mut batch).await? {
            Next::Rows => {
                assert!(batch.rows() > 0, "a batch without rows");
                let cells: Vec<_> = batch.cells().map(|cell| cell.map(<[u8]>::to_vec)).collect();
                rows.extend(cells.chunks(batch.columns()).map(<[_]>::to_vec));
            }
            Next::End { .. } => return Ok(rows),
        }
    }
}

/// Everything, with the count at the end checked.
pub async fn read(source: &Arc<dyn Source>, selection: &Selection) -> Result<Rows, SourceError> {
    let mut stream = source.open(selection).await?;
    let mut rows = Rows::new();
    let mut batch = Batch::new(selection.columns.len());
    loop {
        match stream.next(&mut batch).await? {
            Next::Rows => {
                assert!(batch.rows() > 0, "a batch without rows");
                let cells: Vec<_> = batch.cells().map(|cell| cell.map(<[u8]>::to_vec)).collect();
                rows.extend(cells.chunks(selection.columns.len()).map(<[_]>::to_vec));
            }
            Next::End { rows: counted } => {
                assert_eq!(counted, rows.len() as u64, "the reader's own count");
                return Ok(rows);
            }
        }
    }
}

/// Rows as texts, NULL as `∅`.
pub fn texts(rows: &Rows) -> Vec<Vec<String>> {
    let text = |cell: &Option<Vec<u8>>| {
        cell.as_ref().map_or_else(|| "∅".to_owned(), |cell| String::from_utf8_lossy(cell).into())
    };
    rows.iter().map(|row| row.iter().map(text).collect()).collect()
}

pub async fn read_texts(world: &World, selection: &Selection) -> Vec<Vec<String>> {
    texts(&read(&world.source(), selection).await.expect("rows"))
}

/// The first column of every row.
pub async fn read_first(world: &World, selection: &Selection) -> Vec<String> {
    read_texts(world, selection).await.into_iter().map(|mut row| row.remove(0)).collect()
}

/// Server processes of ours whose query holds a marker.
pub async fn backends(marker: &str) -> Vec<i32> {
    sqlx::query(
        "SELECT pid FROM pg_stat_activity \
         WHERE application_name LIKE 'outport %' AND query LIKE '%' || $1 || '%'",
    )
    .bind(marker)
    .fetch_all(&mut postgres_client().await)
    .await
    .expect("the server's activity")
    .iter()
    .map(|row| row.get(0))
    .collect()
}

/// Server threads of ours whose query holds a marker.
pub async fn threads(marker: &str) -> Vec<i64> {
    sqlx::query(
        "SELECT CAST(ID AS SIGNED) FROM information_schema.PROCESSLIST \
         WHERE ID <> CONNECTION_ID() AND INFO LIKE CONCAT('%', ?, '%')",
    )
    .bind(marker)
    .fetch_all(&mut mariadb_client().await)
    .await
    .expect("the server's threads")
    .iter()
    .map(|row| row.get(0))
    .collect()
}

/// Asks again and again until it is so; fails after the limit.
pub async fn until(limit: Duration, what: &str, ask: impl AsyncFn() -> bool) {
    let asked = async {
        while !ask().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(limit, asked).await.is_ok(), "not within {limit:?}: {what}");
}
