//! A database of a test's own in MariaDB, or in MySQL where the tests are told to use it.

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};

/// The server that fresh databases are made on, by `OUTPORT_TEST_MARIADB`.
fn server() -> String {
    std::env::var("OUTPORT_TEST_MARIADB")
        .unwrap_or_else(|_| "mysql://root@127.0.0.1:3306/test".to_owned())
}

/// The numbers from 1 on, as MariaDB and MySQL read them: `seq` of this relation.
pub fn numbers(rows: u64) -> String {
    format!(
        "(WITH RECURSIVE d (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM d WHERE n < 999) \
          SELECT 1000 * a.n + b.n + 1 AS seq FROM d AS a JOIN d AS b ON a.n <= {rows} DIV 1000 \
          WHERE 1000 * a.n + b.n < {rows}) AS numbers_from_one"
    )
}

/// A fresh database; dropped at the end.
pub struct MariaDb {
    name: String,
}

impl MariaDb {
    /// Makes one.
    pub async fn create() -> Self {
        // Made first: a test may end while the database is being made.
        let made = Self { name: format!("outport_whole_{}", uuid::Uuid::now_v7().simple()) };
        execute(&server(), &format!("CREATE DATABASE {} CHARACTER SET utf8mb4", made.name)).await;
        made
    }

    /// Its URL.
    pub fn url(&self) -> String {
        let mut url = url::Url::parse(&server()).expect("OUTPORT_TEST_MARIADB is a URL");
        url.set_path(&self.name);
        url.into()
    }

    /// Whether the server is MySQL itself.
    pub async fn is_mysql(&self) -> bool {
        let mut connection = MySqlConnection::connect(&server()).await.expect("a connection");
        let version = sqlx::query_scalar::<_, String>("SELECT VERSION()");
        !version.fetch_one(&mut connection).await.expect("a version").contains("MariaDB")
    }

    /// Runs statements.
    pub async fn run(&self, sql: &str) {
        execute(&self.url(), sql).await;
    }

    /// How many queries on it say a word.
    pub async fn queries(&self, word: &str) -> i64 {
        let mut connection = MySqlConnection::connect(&server()).await.expect("a connection");
        sqlx::query_scalar(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
             WHERE DB = ? AND INFO LIKE CONCAT('%', ?, '%')",
        )
        .bind(&self.name)
        .bind(word)
        .fetch_one(&mut connection)
        .await
        .expect("the server's threads")
    }
}

async fn execute(url: &str, sql: &str) {
    let mut connection = MySqlConnection::connect(url).await.unwrap_or_else(|error| {
        panic!("no MariaDB at OUTPORT_TEST_MARIADB ({error}); `tests/run` says how to get one")
    });
    let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await;
    ran.unwrap_or_else(|error| panic!("{sql:.2000}: {error}"));
    connection.close().await.expect("it closes");
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let sql = format!("DROP DATABASE IF EXISTS {}", self.name);
        // A destructor cannot wait on the runtime it runs in.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(execute(&server(), &sql));
        });
        assert!(dropping.join().is_ok() || std::thread::panicking(), "{} stays", self.name);
    }
}
