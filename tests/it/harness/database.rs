//! Databases of a test's own: a fresh one on the PostgreSQL server, or an SQLite file.

use std::{path::PathBuf, str::FromStr as _};

use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _,
    postgres::PgConnectOptions,
};
use tokio::sync::Mutex;

/// The server that fresh databases are made on, by `OUTPORT_TEST_POSTGRES`.
fn server() -> PgConnectOptions {
    let url = std::env::var("OUTPORT_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
    PgConnectOptions::from_str(&url).expect("OUTPORT_TEST_POSTGRES is a URL")
}

/// A fresh database; dropped at the end.
pub struct Postgres {
    name: Name,
    connection: Mutex<PgConnection>,
}

/// The name of a database, which is dropped with it.
struct Name(String);

impl Postgres {
    /// Makes one.
    pub async fn create() -> Self {
        // Made first: a test may end while the database is being made.
        let name = Name(format!("outport_whole_{}", uuid::Uuid::now_v7().simple()));
        let mut admin = PgConnection::connect_with(&server()).await.unwrap_or_else(|error| {
            panic!(
                "no PostgreSQL at OUTPORT_TEST_POSTGRES ({error}); `tests/run` says how to get one"
            )
        });
        execute(&mut admin, &format!("CREATE DATABASE {}", name.0)).await;
        admin.close().await.expect("it closes");
        let connection = PgConnection::connect_with(&server().database(&name.0)).await;
        Self { name, connection: Mutex::new(connection.expect("a connection")) }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        server().database(&self.name.0).to_url_lossy().to_string()
    }

    /// A connection of its own.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect_with(&server().database(&self.name.0)).await.expect("a connection")
    }

    /// Runs statements.
    pub async fn run(&self, sql: &str) {
        execute(&mut *self.connection.lock().await, sql).await;
    }

    async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let mut connection = self.connection.lock().await;
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut *connection).await;
        let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let cell = |row: &sqlx::postgres::PgRow, index| {
            // Over the simple protocol every value comes as the server's own text.
            let text: Option<String> = row.try_get_unchecked(index).expect("a text");
            text.unwrap_or_else(|| "-".to_owned())
        };
        rows.iter().map(|row| (0..row.len()).map(|index| cell(row, index)).collect()).collect()
    }
}

async fn execute(connection: &mut PgConnection, sql: &str) {
    let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
    ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

impl Drop for Name {
    fn drop(&mut self) {
        let name = self.0.clone();
        // A destructor cannot wait on the runtime it runs in.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut admin = PgConnection::connect_with(&server()).await.expect("a connection");
                execute(&mut admin, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
            });
        });
        assert!(dropping.join().is_ok() || std::thread::panicking(), "{} stays", self.0);
    }
}

/// Where the state of a world lives.
pub enum State {
    Postgres(Postgres),
    Sqlite(PathBuf),
}

impl State {
    /// Rows as text: NULL is `-`, a UUID its hyphenated form.
    pub async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        match self {
            Self::Postgres(postgres) => postgres.rows(sql).await,
            Self::Sqlite(path) => sqlite_rows(path, sql),
        }
    }

    /// The one value of the one row.
    pub async fn value(&self, sql: &str) -> String {
        let rows = self.rows(sql).await;
        match rows.as_slice() {
            [row] if row.len() == 1 => row[0].clone(),
            _ => panic!("{sql}: {rows:?}"),
        }
    }

    /// The PostgreSQL database.
    pub fn postgres(&self) -> &Postgres {
        match self {
            Self::Postgres(postgres) => postgres,
            Self::Sqlite(_) => panic!("this world's state is an SQLite file"),
        }
    }
}

fn sqlite_rows(path: &std::path::Path, sql: &str) -> Vec<Vec<String>> {
    use rusqlite::types::ValueRef;

    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(path, flags).expect("the state file");
    connection.busy_timeout(super::PATIENCE).expect("a time limit");
    let mut statement = connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let columns = statement.column_count();
    let cell = |row: &rusqlite::Row<'_>, index| {
        Ok(match row.get_ref(index)? {
            ValueRef::Null => "-".to_owned(),
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Real(number) => number.to_string(),
            ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            ValueRef::Blob(bytes) => {
                uuid::Uuid::from_slice(bytes).map_or("?".to_owned(), |id| id.to_string())
            }
        })
    };
    let rows = statement
        .query_map([], |row| (0..columns).map(|index| cell(row, index)).collect())
        .and_then(Iterator::collect);
    rows.unwrap_or_else(|error: rusqlite::Error| panic!("{sql}: {error}"))
}
