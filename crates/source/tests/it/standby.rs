//! A hot standby as a source: it is read like its primary, and what it cancels for the sake of its
//! recovery is tried again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use outport_domain::{
    column::ColumnType::{Integer, Text},
    failure::{Disposition, FailureCode},
    selection::Relation,
};
use outport_source::{Batch, Next, SourceError};
use sqlx::{Connection, PgConnection, Row};

use crate::world::{postgres_source, read, run, selection, until};

const ROWS: usize = 60_000;

/// A PostgreSQL server of the test's own, reached by a socket in its folder; stopped when dropped.
struct Cluster {
    folder: PathBuf,
}

impl Cluster {
    fn create(folder: PathBuf) -> Self {
        let data = folder.join("data");
        program(
            "initdb",
            &["--username=postgres", "--auth=trust", "--locale=C.UTF-8", "--no-sync"],
        )
        .with_data(&data)
        .run();
        Self::start(folder, "")
    }

    /// A standby that lets nobody delay its recovery.
    fn standby_of(primary: &Self, folder: PathBuf) -> Self {
        let from = primary.folder.to_str().expect("a path");
        program(
            "pg_basebackup",
            &["-R", "-X", "stream", "-c", "fast", "--no-sync", "-U", "postgres", "-h", from],
        )
        .with_data(&folder.join("data"))
        .run();
        let settings = "-c max_standby_streaming_delay=0 -c hot_standby_feedback=off \
                        -c log_recovery_conflict_waits=on -c deadlock_timeout=1ms";
        Self::start(folder, settings)
    }

    fn start(folder: PathBuf, settings: &str) -> Self {
        let socket = folder.to_str().expect("a path");
        let options = format!("-c listen_addresses='' -k '{socket}' -c fsync=off {settings}");
        let log = folder.join("log");
        program(
            "pg_ctl",
            &[
                "start",
                "--wait",
                "--silent",
                "--log",
                log.to_str().expect("a path"),
                "-o",
                &options,
            ],
        )
        .with_data(&folder.join("data"))
        .run();
        Self { folder }
    }

    fn url(&self) -> String {
        let folder = self.folder.to_str().expect("a path").replace('/', "%2F");
        format!("postgres://postgres@{folder}:5432/postgres")
    }

    /// How often its recovery has waited for somebody, as its log says.
    fn waits(&self) -> usize {
        let log = fs::read_to_string(self.folder.join("log")).expect("the server's log");
        log.matches("recovery still waiting").count()
    }

    async fn client(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.expect("the test's own server")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        program("pg_ctl", &["stop", "--mode=immediate", "--silent"])
            .with_data(&self.folder.join("data"))
            .run();
    }
}

struct Program(Command);

/// One of PostgreSQL's programs, as somebody who is not root.
fn program(name: &str, arguments: &[&str]) -> Program {
    let path = programs().join(name);
    let mut command = if is_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(path);
        command
    } else {
        Command::new(path)
    };
    command.args(arguments).current_dir("/").stdin(Stdio::null());
    Program(command)
}

impl Program {
    fn with_data(mut self, data: &Path) -> Self {
        self.0.arg("-D").arg(data);
        self
    }

    fn run(mut self) {
        // Its output goes to a file of nobody: a server that it starts would keep a pipe open.
        let status = self.0.stdout(Stdio::null()).status().expect("a program of PostgreSQL");
        assert!(status.success(), "{:?}: {status}", self.0);
    }
}

/// Where PostgreSQL's programs are: the newest of Debian's, unless the environment says.
fn programs() -> PathBuf {
    if let Some(folder) = std::env::var_os("OUTPORT_TEST_POSTGRES_PROGRAMS") {
        return folder.into();
    }
    let version = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.parse::<u32>().unwrap_or_default()
    };
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL's programs");
    let newest = versions.flatten().map(|entry| entry.path()).max_by_key(version);
    newest.expect("a version of PostgreSQL").join("bin")
}

fn is_root() -> bool {
    let Output { stdout, .. } = Command::new("id").arg("-u").output().expect("the program id");
    stdout == b"0\n"
}

/// A folder that PostgreSQL's user may write to.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["primary", "standby"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    if is_root() {
        let status = Command::new("chown").arg("-R").arg("postgres").arg(folder.path()).status();
        assert!(status.expect("the program chown").success());
    }
    folder
}

async fn ending(mut stream: Box<dyn outport_source::RowStream>) -> SourceError {
    let mut batch = Batch::new(2);
    loop {
        match stream.next(&mut batch).await {
            Ok(Next::Rows) => {}
            Ok(Next::End { rows }) => panic!("an end after {rows} rows"),
            Err(error) => return error,
        }
    }
}

async fn replayed(primary: &mut PgConnection, standby: &mut PgConnection) {
    let sql = "SELECT pg_current_wal_lsn()::text";
    let at: String = sqlx::raw_sql(sql).fetch_one(primary).await.expect("a place").get(0);
    let standby = tokio::sync::Mutex::new(standby);
    until(Duration::from_secs(20), "the standby has it", async || {
        let mut standby = standby.lock().await;
        sqlx::query("SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn")
            .bind(&at)
            .fetch_one(&mut **standby)
            .await
            .expect("a place")
            .get(0)
    })
    .await;
}

#[tokio::test]
async fn what_stands_in_the_way_of_recovery_is_tried_again() {
    let folder = folder();
    let primary = Cluster::create(folder.path().join("primary"));
    let standby = Cluster::standby_of(&primary, folder.path().join("standby"));
    let mut writer = primary.client().await;
    run(
        &mut writer,
        &format!(
            "CREATE TABLE t AS SELECT n AS id, repeat('x', 380) AS pad \
             FROM generate_series(1, {ROWS}) AS n; DELETE FROM t WHERE id = {ROWS}"
        ),
    )
    .await;
    let mut reader = standby.client().await;
    replayed(&mut writer, &mut reader).await;

    let wanted = selection(Relation::Table(vec!["t".into()]), &[("id", Integer), ("pad", Text)]);
    for connections in [1, 2] {
        let source = postgres_source(format!("{}?connections={connections}", standby.url()));
        assert_eq!(read(&source, &wanted).await.expect("rows").len(), ROWS - connections);
        // The server waits for us in the middle of its rows.
        let mut stream = source.open(&wanted).await.expect("a stream");
        let mut batch = Batch::new(2);
        assert_eq!(stream.next(&mut batch).await.expect("rows"), Next::Rows);
        // What the snapshot still sees is removed at the primary.
        let gone = ROWS - connections;
        run(&mut writer, &format!("DELETE FROM t WHERE id = {gone}")).await;
        let waits = standby.waits();
        run(&mut writer, "VACUUM t").await;
        until(Duration::from_secs(20), "recovery waits for the stream", async || {
            standby.waits() > waits
        })
        .await;
        let error = ending(stream).await;
        assert_eq!(
            (error.code, error.disposition),
            (FailureCode::SourceQueryFailed, Disposition::Retry),
            "{error:?}"
        );
        assert!(error.message.contains("conflict with recovery"), "{error}");
        replayed(&mut writer, &mut reader).await;
    }
}
