//! A handle on `smtp_server.py`.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde::Deserialize;

/// A running SMTP server; it ends with the value.
pub struct SmtpServer {
    child: Child,
    folder: tempfile::TempDir,
    started: Started,
}

#[derive(Deserialize)]
struct Started {
    port: u16,
    ca: PathBuf,
}

/// A message as the server took it.
pub struct Taken {
    pub raw: Vec<u8>,
    pub about: About,
}

/// What the server knew of a message's session.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct About {
    pub from: String,
    pub to: Vec<String>,
    pub tls: bool,
    pub login: bool,
}

impl SmtpServer {
    /// Starts a server that behaves as these arguments of the script say.
    pub fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let python = python();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/smtp_server.py");
        let mut child = Command::new(&python)
            .arg(script)
            .arg("--folder")
            .arg(folder.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", python.display()));
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("the server's first line");
        let started = serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!(
                "the SMTP server did not start; has {} aiosmtpd and cryptography?",
                python.display()
            )
        });
        Self { child, folder, started }
    }

    /// A URL of this server with this user information and query.
    pub fn url(&self, scheme: &str, user: &str, query: &str) -> String {
        let at = if user.is_empty() { "" } else { "@" };
        format!("{scheme}://{user}{at}localhost:{}?{query}", self.started.port)
    }

    /// The query part that names the server's certificate authority.
    pub fn authority(&self) -> String {
        format!("ca={}", self.started.ca.display())
    }

    /// The messages taken so far, oldest first.
    pub fn taken(&self) -> Vec<Taken> {
        let file = |n: usize, extension| self.folder.path().join(format!("{n}.{extension}"));
        (1..)
            .map_while(|n| {
                let raw = std::fs::read(file(n, "eml")).ok()?;
                let about = std::fs::read(file(n, "json")).expect("an envelope");
                Some(Taken { raw, about: serde_json::from_slice(&about).expect("an envelope") })
            })
            .collect()
    }
}

impl Drop for SmtpServer {
    fn drop(&mut self) {
        self.child.kill().expect("the server is ours to end");
        self.child.wait().expect("the server ends");
    }
}

impl Taken {
    /// The message, parsed.
    pub fn message(&self) -> mail_parser::Message<'_> {
        mail_parser::MessageParser::default().parse(&self.raw).expect("a message")
    }

    /// Its Message-ID, without angle brackets.
    pub fn id(&self) -> String {
        self.message().message_id().expect("a Message-ID").to_owned()
    }
}

pub fn python() -> PathBuf {
    let python = std::env::var_os("OUTPORT_TEST_PYTHON").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/venv/bin/python"),
        PathBuf::from,
    );
    assert!(
        python.exists(),
        "these tests need a Python with aiosmtpd and cryptography: make one with \
         `python3 -m venv target/tools/venv && target/tools/venv/bin/pip install aiosmtpd cryptography` \
         or name one in OUTPORT_TEST_PYTHON (looked for {})",
        python.display()
    );
    python
}
