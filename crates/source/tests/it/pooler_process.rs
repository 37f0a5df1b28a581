//! A pgbouncer of a test's own, before the PostgreSQL server of the tests.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::net::UnixStream;

use crate::world::{postgres_url, until};

/// Who pgbouncer runs as: it refuses to be root.
const USER: &str = "nobody";

/// A running pgbouncer; killed when dropped. Reached by a socket in a folder of its own.
pub struct Pooler {
    process: Child,
    folder: tempfile::TempDir,
}

impl Pooler {
    /// Starts one with further lines of its section `[pgbouncer]`.
    pub async fn start(settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("a mode");
        let path = folder.path().display();
        let server = url::Url::parse(&postgres_url()).expect("a URL");
        let password =
            server.password().map(|password| format!(" password={password}")).unwrap_or_default();
        let ini = format!(
            "[databases]\n* = host={} port={} user={}{password}\n\
             [pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {path}\n\
             auth_type = any\n{settings}\n",
            server.host_str().expect("a host"),
            server.port().unwrap_or(5432),
            server.username(),
        );
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, ini).expect("a file");
        let mut command = Command::new(program());
        if is_root() {
            command.args(["-u", USER]);
        }
        let process = command
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("log")).expect("a log"))
            .spawn()
            .expect("pgbouncer");
        let pooler = Self { process, folder };
        let socket = pooler.folder.path().join(".s.PGSQL.6432");
        until(Duration::from_secs(10), "pgbouncer listens", async || {
            UnixStream::connect(&socket).await.is_ok()
        })
        .await;
        pooler
    }

    /// The server of the tests by way of this one.
    pub fn url(&self) -> String {
        let server = url::Url::parse(&postgres_url()).expect("a URL");
        let folder = self.folder.path().to_str().expect("a path").replace('/', "%2F");
        format!("postgres://{}@{folder}:6432{}?sslmode=disable", server.username(), server.path())
    }
}

impl Drop for Pooler {
    #[expect(clippy::print_stderr, reason = "shown with the test that failed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("pgbouncer's log:\n{log}");
        }
        self.process.kill().expect("a running pgbouncer");
        self.process.wait().expect("its end");
    }
}

fn program() -> String {
    std::env::var("OUTPORT_TEST_PGBOUNCER").unwrap_or_else(|_| {
        // Debian's folder is not on everybody's path.
        let usual = "/usr/sbin/pgbouncer";
        if Path::new(usual).exists() { usual } else { "pgbouncer" }.to_owned()
    })
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("the program id");
    id.stdout == b"0\n"
}
