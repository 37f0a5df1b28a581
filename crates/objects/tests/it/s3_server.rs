//! A real S3 server as a child process, one for each test: `s3s-fs`.

use std::{
    env,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use outport_objects::s3::{S3Config, S3Credentials, SecretAccessKey};
use tempfile::TempDir;
use url::Url;

pub const BUCKET: &str = "exports";
pub const ACCESS_KEY_ID: &str = "AKTESTACCESSKEYID";
pub const SECRET: &str = "the-secret-that-nobody-may-see";

/// A running server with one bucket. Stopped and removed when dropped.
pub struct S3Server {
    child: Child,
    pub address: SocketAddr,
    pub folder: TempDir,
}

impl S3Server {
    /// Starts one and waits until it accepts connections.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(BUCKET)).expect("a bucket");
        // Between finding a free port and using it somebody else may take it.
        for _ in 0..5 {
            let address = free_address();
            let mut child = spawn(address, folder.path());
            if is_ready(&mut child, address) {
                return Self { child, address, folder };
            }
            stop(&mut child);
        }
        panic!("s3s-fs did not start on any of five ports");
    }

    pub fn config(&self) -> S3Config {
        config(self.address)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// How the tests reach a server at this address.
pub fn config(address: SocketAddr) -> S3Config {
    S3Config {
        endpoint: Some(Url::parse(&format!("http://{address}")).expect("a URL")),
        path_style: true,
        region: Some("us-east-1".to_owned()),
        credentials: S3Credentials::Static {
            access_key_id: ACCESS_KEY_ID.to_owned(),
            secret: SecretAccessKey::new(SECRET),
        },
        ..S3Config::new(BUCKET)
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address")
}

fn spawn(address: SocketAddr, folder: &Path) -> Child {
    Command::new(binary())
        .args(["--host", &address.ip().to_string(), "--port", &address.port().to_string()])
        .args(["--access-key", ACCESS_KEY_ID, "--secret-key", SECRET])
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("s3s-fs starts")
}

fn is_ready(child: &mut Child, address: SocketAddr) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline && child.try_wait().expect("a status").is_none() {
        if TcpStream::connect(address).is_ok() {
            // If it was another that answered, ours could not bind and is gone.
            return child.try_wait().expect("a status").is_none();
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

fn stop(child: &mut Child) {
    // It may have ended by itself.
    child.kill().ok();
    child.wait().expect("it has ended");
}

/// `OUTPORT_TEST_S3S_FS`, else the one `tests/run` installs, else the one on `PATH`.
fn binary() -> PathBuf {
    if let Some(path) = env::var_os("OUTPORT_TEST_S3S_FS") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "OUTPORT_TEST_S3S_FS names no file: {}", path.display());
        return path;
    }
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/s3s-fs");
    let on_path = env::var_os("PATH").unwrap_or_default();
    let candidates = env::split_paths(&on_path).map(|folder| folder.join("s3s-fs"));
    std::iter::once(installed).chain(candidates).find(|path| path.is_file()).expect(
        "the test server s3s-fs is missing: `tests/run` installs it, or run `cargo install \
         s3s-fs --version 0.14.1 --locked --features binary --root target/tools`",
    )
}
