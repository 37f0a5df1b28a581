//! Servers of other makes, one for each test that needs one: S3 (`s3s-fs`, moto) and SMTP.

use std::{
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use outport_objects::s3::{S3Config, S3Credentials, S3Store, SecretAccessKey};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    PATIENCE, broker,
    process::{self, Env, free_port, output},
    until,
};

/// The root of the repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The bucket of every S3 server.
const BUCKET: &str = "exports";
const ACCESS_KEY_ID: &str = "AKTESTACCESSKEYID";
const SECRET: &str = "the-secret-that-nobody-may-see";

/// A tool by its variable, else where `tests/run` puts it.
fn tool(variable: &str, installed: &str) -> PathBuf {
    let path = std::env::var_os(variable)
        .map_or_else(|| Path::new(ROOT).join("target/tools").join(installed), PathBuf::from);
    assert!(path.is_file(), "{} is missing: run `tests/run` once, it installs it", path.display());
    path
}

/// The Python that has moto, boto3 and aiosmtpd.
pub fn python() -> PathBuf {
    tool("OUTPORT_TEST_PYTHON", "venv/bin/python")
}

/// The packages of npm that `tests/consumers` locks.
pub fn node_modules() -> PathBuf {
    let modules = std::env::var_os("OUTPORT_TEST_NODE_MODULES")
        .map_or_else(|| Path::new(ROOT).join("target/tools/consumers/node_modules"), PathBuf::from);
    let found = modules.is_dir();
    assert!(found, "{} is missing: run `tests/run` once, it installs it", modules.display());
    modules
}

/// Runs a script of the harness and reads the JSON that it prints.
pub async fn script(name: &str, arguments: &[&str]) -> Value {
    let mut command = Command::new(python());
    command.arg(Path::new(ROOT).join("tests/it/harness").join(name)).args(arguments);
    serde_json::from_str(&output(command).await).expect("the script prints JSON")
}

/// A child that is killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.0.kill().ok();
        self.0.wait().expect("it has ended");
    }
}

async fn listening(what: &str, port: u16, server: &mut Server) {
    until(&format!("{what} listens"), PATIENCE, async || {
        assert!(server.0.try_wait().expect("a status").is_none(), "{what} ended at once");
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
    })
    .await;
}

/// A running S3 server with one bucket.
pub struct S3 {
    port: u16,
    server: Server,
    _folder: TempDir,
}

/// What is in a bucket.
#[derive(Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Key and SHA-256 of each object.
    pub objects: Vec<(String, String)>,
    /// Keys of uploads that are neither finished nor aborted.
    pub uploads: Vec<String>,
}

impl S3 {
    /// `s3s-fs`: knows its users.
    pub async fn s3s_fs() -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
        std::fs::create_dir(folder.path().join(BUCKET)).expect("a bucket");
        let mut command = Command::new(tool("OUTPORT_TEST_S3S_FS", "bin/s3s-fs"));
        command
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--access-key", ACCESS_KEY_ID, "--secret-key", SECRET])
            .arg(folder.path());
        Self::start("s3s-fs", command, folder, port).await
    }

    /// moto: lists uploads as AWS does.
    pub async fn moto() -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
        let mut command = Command::new(python());
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        let s3 = Self::start("moto", command, folder, port).await;
        script("s3_look.py", &["make", &s3.endpoint(), BUCKET]).await;
        s3
    }

    async fn start(what: &str, mut command: Command, folder: TempDir, port: u16) -> Self {
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = Server(child.unwrap_or_else(|error| panic!("{what}: {error}")));
        listening(what, port, &mut server).await;
        Self { port, server, _folder: folder }
    }

    /// Sends it a signal. While it is stopped (`STOP` to `CONT`) connections are accepted and
    /// nothing of them is read.
    pub fn signal(&self, signal: &str) {
        process::signal(self.server.0.id(), signal);
    }

    /// Where it answers.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its bucket, for who writes to it behind the back of the product.
    pub async fn store(&self) -> S3Store {
        let (access_key_id, secret) = (ACCESS_KEY_ID.to_owned(), SECRET.to_owned());
        let secret = SecretAccessKey::new(secret);
        let endpoint = self.endpoint().parse().expect("a URL");
        S3Store::connect(S3Config {
            endpoint: Some(endpoint),
            path_style: true,
            region: Some("us-east-1".to_owned()),
            credentials: S3Credentials::Static { access_key_id, secret },
            ..S3Config::new(BUCKET.to_owned())
        })
        .await
    }

    /// How a process is told to use it.
    pub fn env(&self) -> Env {
        [
            ("OUTPORT_S3_BUCKET", BUCKET),
            ("OUTPORT_S3_ENDPOINT", &self.endpoint()),
            ("OUTPORT_S3_PATH_STYLE", "true"),
            ("OUTPORT_S3_ACCESS_KEY_ID", ACCESS_KEY_ID),
            ("OUTPORT_S3_SECRET_ACCESS_KEY", SECRET),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// What is in the bucket, as an independent client sees it.
    pub async fn look(&self) -> Bucket {
        let seen = script("s3_look.py", &["look", &self.endpoint(), BUCKET]).await;
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let list = |name: &str| seen[name].as_array().expect("a list").clone();
        Bucket {
            objects: list("objects").iter().map(|o| (text(&o[0]), text(&o[1]))).collect(),
            uploads: list("uploads").iter().map(text).collect(),
        }
    }
}

/// A port that takes TLS and leads it, bare, to the broker of the tests; see `tls_proxy.py`.
pub struct TlsProxy {
    /// Where it listens.
    pub port: u16,
    folder: TempDir,
    _server: Server,
}

impl TlsProxy {
    /// Starts one with an authority and a certificate for `localhost` of its own.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(python());
        command
            .arg(Path::new(ROOT).join("tests/it/harness/tls_proxy.py"))
            .arg(folder.path())
            .arg(broker::port().to_string());
        let (port, server) = telling_its_port(command);
        Self { port, folder, _server: server }
    }

    /// The file of the authority that signed its certificate.
    pub fn authority(&self) -> String {
        self.folder.path().join("ca.pem").display().to_string()
    }
}

/// Starts a server of ours: its first line tells its port, and it ends when its pipe closes.
fn telling_its_port(mut command: Command) -> (u16, Server) {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("Python starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("the server's first line");
    let started: Value = serde_json::from_str(&line).expect("the server starts");
    let port = started["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    (port.expect("a port"), Server(child))
}

/// A running SMTP server; see `crates/relay/tests/it/smtp_server.py`.
pub struct Smtp {
    /// Where it listens.
    pub port: u16,
    folder: TempDir,
    _server: Server,
}

impl Smtp {
    /// Starts one that takes everything.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(python());
        command
            .arg(Path::new(ROOT).join("crates/relay/tests/it/smtp_server.py"))
            .arg("--folder")
            .arg(folder.path());
        let (port, server) = telling_its_port(command);
        Self { port, folder, _server: server }
    }

    /// Every message that it took for an address, oldest first.
    pub fn taken(&self, address: &str) -> Vec<Vec<u8>> {
        let file = |n: usize, extension: &str| self.folder.path().join(format!("{n}.{extension}"));
        (1..)
            .map_while(|n| {
                let raw = std::fs::read(file(n, "eml")).ok()?;
                let envelope = std::fs::read(file(n, "json")).expect("an envelope");
                let envelope: Value = serde_json::from_slice(&envelope).expect("an envelope");
                Some((envelope["to"] == serde_json::json!([address])).then_some(raw))
            })
            .flatten()
            .collect()
    }
}
