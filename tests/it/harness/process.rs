//! A real process of the product: started with environment variables, told signals, its log
//! printed when the test fails.

use std::{
    collections::BTreeMap,
    fs::File,
    net::{Ipv4Addr, TcpListener},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use super::wait::until;

/// The variables that a process is started with; nothing else is passed on but `PATH`.
pub type Env = BTreeMap<String, String>;

/// Lines of a log that a failed test shows.
const LOG_LINES: usize = 40;

/// An executable of the product.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    Outport,
    Api,
    Worker,
}

impl Program {
    pub fn path(self) -> &'static str {
        match self {
            Self::Outport => env!("CARGO_BIN_EXE_outport"),
            Self::Api => env!("CARGO_BIN_EXE_outport-api"),
            Self::Worker => env!("CARGO_BIN_EXE_outport-worker"),
        }
    }
}

/// A running process; it is killed when dropped.
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts one in a folder.
    pub fn spawn(program: Program, arguments: &[&str], dir: &Path, env: &Env) -> Self {
        let mut command = Command::new(program.path());
        command.args(arguments);
        Self::spawn_command(command, &format!("{program:?}"), dir, env)
    }

    /// Starts a command that ends up as a process of the product.
    pub fn spawn_command(mut command: Command, name: &str, dir: &Path, env: &Env) -> Self {
        static NUMBER: AtomicU16 = AtomicU16::new(0);
        let name = format!("{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let log = dir.join(format!("{name}.log"));
        let child = command
            .current_dir(dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(env)
            .stdin(Stdio::null())
            .stdout(File::create(log.with_extension("out")).expect("a file"))
            .stderr(File::create(&log).expect("a log file"))
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Self { child, name, log }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What it has said on standard output so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log.with_extension("out")).unwrap_or_default()
    }

    /// A number of kibibytes from its status, such as `VmRSS` or `VmHWM`.
    pub fn kibibytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        let status = status.expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.unwrap_or_else(|| panic!("no {name} in {status}"))
    }

    /// Sends it a signal: `TERM`, `STOP`, `CONT`, `KILL`.
    pub fn signal(&self, signal: &str) {
        self::signal(self.id(), signal);
    }

    /// Its end, if it has come.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("its status")
    }

    /// Waits for its end.
    pub async fn end(&mut self, patience: Duration) -> ExitStatus {
        let what = format!("{} ends", self.name);
        until(&what, patience, async || self.ended()).await
    }

    /// Waits for its death by `abort`, which is how it dies at a crash point.
    pub async fn death(&mut self, patience: Duration) {
        const SIGABRT: i32 = 6;
        let status = self.end(patience).await;
        let log = self.log();
        assert_eq!(status.signal(), Some(SIGABRT), "{} ended as {status}:\n{log}", self.name);
        assert!(!log.contains("panicked"), "{} aborted by a panic:\n{log}", self.name);
    }

    /// Kills it as an operating system would.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().expect("it has ended");
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "shown with the test that failed")]
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            eprintln!("--- last lines of the log of {} ---\n{last}", self.name);
        }
    }
}

/// Sends a process a signal.
pub fn signal(id: u32, signal: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -s {signal} {id}")]).status();
    assert!(sent.expect("a shell").success(), "{signal} could not be sent to {id}");
}

/// Runs a program to its end and returns what it said; panics when it fails.
pub async fn output(mut command: Command) -> String {
    let name = format!("{command:?}");
    let running = tokio::task::spawn_blocking(move || command.stdin(Stdio::null()).output());
    let output = running.await.expect("the thread ends");
    let output = output.unwrap_or_else(|error| panic!("{name} does not start: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{said}\n{complained}", output.status);
    said
}

/// A port that nobody listens on and that no outgoing connection is given.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the range of outgoing connections, and spread: a test runner may start one process
    // for each test, with neighbouring ids.
    let base = 15_000 + (std::process::id() * 61 % 170) as u16 * 100;
    (0..100)
        .map(|_| base + NEXT.fetch_add(1, Ordering::Relaxed) % 100)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a free port")
}
