//! Everything that one test has, and what it looks like as text.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

pub use super::mails::{message_id, text_of};
use outport_contract::sealed::is_sealed;
use outport_domain::crash::CrashPoint;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::{
    Api, Broker, PATIENCE, Process,
    broker::exchange::Message,
    database::{Postgres, State},
    process::{Env, Program, free_port, output},
    shop,
    storage::{opened, protection},
    until,
};

/// Orders of every world.
pub const ORDERS: u32 = 40;
/// The lease of every world: what is lost is taken over within two of them.
pub const LEASE: Duration = Duration::from_secs(2);
/// A master key, base64 of 32 bytes.
pub const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// Every table of the state; another one must get its line in [`World::describe`].
const TABLES: &str = "channel_events channel_revocations channels connections deliveries \
                      downloads epochs events handler_events handlers idempotency_keys jobs \
                      parts posted_events receipts requesters revocations runs stream_events \
                      stream_tickets tokens turns";

/// Everything that one test has. It goes when it is dropped.
pub struct World {
    /// Our own state; on PostgreSQL the schema `shop` beside it is the source.
    pub state: State,
    /// Where job events go; on PostgreSQL a worker needs one.
    pub broker: Option<Broker>,
    /// What processes are started with.
    pub env: Env,
    /// Who is written to.
    pub email: String,
    dir: TempDir,
    api_port: u16,
    token: OnceCell<String>,
}

impl World {
    /// A world on a fresh PostgreSQL database, with objects and mails in folders.
    pub async fn postgres() -> Self {
        let postgres = Postgres::create().await;
        shop::create(&postgres, ORDERS).await;
        let url = postgres.url();
        let mut world = Self::new(State::Postgres(postgres), "shop.orders");
        world.use_broker(Broker::create().await);
        world.set("OUTPORT_STATE_URL", &url);
        world.set("OUTPORT_CONNECTIONS_SHOP", &url);
        world.set("OUTPORT_STATE_MAX_CONNECTIONS", "4");
        world.declare("wide", "shop.wide", "\"code\"");
        world.declare("slow", "shop.slow", "");
        world
    }

    /// The embedded profile: everything in one folder.
    pub fn sqlite() -> Self {
        let mut world = Self::new(State::Sqlite(PathBuf::new()), "orders");
        let shop = world.path("shop.db");
        shop::create_file(&shop, ORDERS);
        world.state = State::Sqlite(world.path("data/outport.db"));
        world.set("OUTPORT_CONNECTIONS_SHOP", &format!("sqlite://{}", shop.display()));
        world
    }

    fn new(state: State, orders: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::tempdir().expect("a folder");
        let mut world = Self {
            state,
            broker: None,
            env: Env::new(),
            email: format!("ana+{number}@example.com"),
            dir,
            api_port: free_port(),
            token: OnceCell::new(),
        };
        std::fs::create_dir(world.path("resources")).expect("a folder");
        world.declare("order", orders, "\"code\"");
        let settings = [
            ("APP_ENC_KEY", KEY.to_owned()),
            ("OUTPORT_PROTECTION", protection()),
            ("OUTPORT_LISTEN", "127.0.0.1:0".to_owned()),
            ("OUTPORT_PUBLIC_URL", format!("http://127.0.0.1:{}", world.api_port)),
            ("OUTPORT_DATA_DIR", world.path("data").display().to_string()),
            ("OUTPORT_RESOURCES_DIR", world.path("resources").display().to_string()),
            ("OUTPORT_OBJECTS_DIR", world.path("objects").display().to_string()),
            ("OUTPORT_MAIL_URL", format!("file://{}", world.path("mail").display())),
            ("OUTPORT_LIMITS_LEASE_SECONDS", LEASE.as_secs().to_string()),
            ("OUTPORT_LIMITS_HEARTBEAT_MILLISECONDS", "500".to_owned()),
            ("OUTPORT_LIMITS_NO_PROGRESS_SECONDS", "3".to_owned()),
            ("OUTPORT_LIMITS_JOB_BACKOFF_MILLISECONDS", "100".to_owned()),
            ("OUTPORT_LIMITS_DELIVERY_BACKOFF_MILLISECONDS", "100".to_owned()),
            ("OUTPORT_LIMITS_SWEEP_EVERY_SECONDS", "1".to_owned()),
            ("OUTPORT_LIMITS_RECONCILE_EVERY_SECONDS", "1".to_owned()),
            ("OUTPORT_LIMITS_DRAIN_SECONDS", "1".to_owned()),
            ("OUTPORT_LIMITS_REQUESTS_PER_MINUTE", "0".to_owned()),
        ];
        for (name, value) in settings {
            world.set(name, &value);
        }
        world
    }

    /// Sets a variable of all processes that are started from now on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    /// Objects go to a store of another make.
    pub fn use_objects(&mut self, env: Env) {
        self.env.remove("OUTPORT_OBJECTS_DIR");
        self.env.extend(env);
    }

    /// Job events go to this broker.
    pub fn use_broker(&mut self, broker: Broker) {
        self.env.extend(broker.env());
        self.broker = Some(broker);
    }

    /// Every message that the broker has got since the last look.
    pub async fn messages(&self) -> Vec<Message> {
        self.broker.as_ref().expect("a broker").inbox.take().await
    }

    /// Mails go to a server on this port.
    pub fn use_smtp(&mut self, port: u16) {
        self.set("OUTPORT_MAIL_URL", &format!("smtp://localhost:{port}?tls=none"));
    }

    fn declare(&self, name: &str, from: &str, sort: &str) {
        self.declare_file(name, &shop::resource(name, from, sort));
    }

    /// Declares a resource by its whole file, for processes that are started from now on.
    pub fn declare_file(&self, name: &str, text: &str) {
        let file = self.path("resources").join(format!("{name}.toml"));
        std::fs::write(file, text).expect("a resource file");
    }

    /// A path in the world's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the API alone.
    pub async fn api(&self) -> Api {
        let token = self.token().await;
        let process = self.spawn(Program::Api, &[], &[self.listen()]);
        Api::new(process, self.base(), token).await
    }

    /// Starts one more API, at an address of its own.
    pub async fn another_api(&self) -> Api {
        let address = format!("127.0.0.1:{}", free_port());
        let listen = ("OUTPORT_LISTEN", address.clone());
        let process = self.spawn(Program::Api, &[], &[listen]);
        Api::new(process, format!("http://{address}"), self.token().await).await
    }

    /// Starts everything as one process.
    pub async fn all_in_one(&self) -> Api {
        let token = self.token().await;
        let process = self.spawn(Program::Outport, &["up"], &[self.listen()]);
        Api::new(process, self.base(), token).await
    }

    /// The same, to die at a crash point, or with another setting.
    pub async fn all_in_one_with(&self, setting: (&str, String)) -> Api {
        let token = self.token().await;
        let process = self.up_with(setting);
        Api::new(process, self.base(), token).await
    }

    /// The same, without waiting until it answers.
    pub fn up_with(&self, setting: (&str, String)) -> Process {
        self.spawn(Program::Outport, &["up"], &[self.listen(), setting])
    }

    fn listen(&self) -> (&'static str, String) {
        ("OUTPORT_LISTEN", format!("127.0.0.1:{}", self.api_port))
    }

    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.api_port)
    }

    /// The world's one token, made over the command line: another one would be another caller.
    async fn token(&self) -> String {
        let mut command = Command::new(Program::Outport.path());
        command
            .args(["token", "create", "--name", "test"])
            .args(["--organization", shop::ORGANIZATION, "--user", shop::USER])
            .args(["--email", &self.email, "--locale", "en", "--scopes"])
            .arg(shop::SCOPES)
            .current_dir(self.dir.path())
            .env_clear()
            .envs(&self.env);
        let made = self.token.get_or_init(|| output(command));
        made.await.trim().to_owned()
    }

    /// Starts a worker.
    pub fn worker(&self) -> Process {
        self.spawn(Program::Worker, &[], &[])
    }

    /// Starts a worker with another setting.
    pub fn worker_with(&self, setting: (&str, String)) -> Process {
        self.spawn(Program::Worker, &[], &[setting])
    }

    /// Starts a worker that will die at a crash point.
    pub fn worker_dying_at(&self, point: CrashPoint) -> Process {
        self.worker_with(dying_at(point))
    }

    /// Starts a worker by a command that ends in `exec`.
    pub fn worker_by(&self, command: Command) -> Process {
        Process::spawn_command(command, "worker", self.dir.path(), &self.env)
    }

    fn spawn(&self, program: Program, arguments: &[&str], env: &[(&str, String)]) -> Process {
        let mut all = self.env.clone();
        all.extend(env.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Process::spawn(program, arguments, self.dir.path(), &all)
    }

    /// Waits until nothing is left to do.
    pub async fn settled(&self) {
        let left = "SELECT (SELECT count(*) FROM jobs \
                      WHERE status IN ('PENDING', 'PROCESSING', 'CANCELING')) \
                  + (SELECT count(*) FROM deliveries WHERE status IN ('PENDING', 'RUNNING')) \
                  + (SELECT count(*) FROM runs WHERE object_key IS NOT NULL \
                      AND swept_at IS NULL AND sweep_due_at IS NOT NULL)";
        self.is_zero("nothing is left to do", left).await;
    }

    /// Waits until everybody was told, whatever is left in the object store.
    pub async fn told(&self) {
        let left = "SELECT count(*) FROM deliveries WHERE status IN ('PENDING', 'RUNNING')";
        self.is_zero("everybody is told", left).await;
    }

    async fn is_zero(&self, what: &str, sql: &str) {
        until(what, PATIENCE, async || (self.state.value(sql).await == "0").then_some(())).await;
    }

    /// The one job of the world.
    pub async fn only_job(&self) -> String {
        self.state.value("SELECT id FROM jobs").await
    }

    /// The whole world but for clocks and ids, a line for each thing. What goes to a broker goes
    /// beside the mails, in no order with them; it is looked at by itself.
    pub async fn describe(&self) -> String {
        self.know_all_tables().await;
        let mut lines = Vec::new();
        for (what, sql) in [
            (
                "job",
                "SELECT status, 'run ' || run, 'failures ' || failures, \
                   'rows ' || COALESCE(CAST(total_rows AS TEXT), '-'), \
                   COALESCE(failure_code, 'ok') FROM jobs ORDER BY id",
            ),
            (
                "run",
                "SELECT 'run ' || run, COALESCE(outcome, 'running'), \
                   CASE WHEN object_key IS NULL THEN 'wrote nothing' \
                        WHEN swept_at IS NULL THEN 'wrote' ELSE 'swept' END \
                 FROM runs ORDER BY job_id, run",
            ),
            (
                "part",
                "SELECT 'run ' || run, number, CASE WHEN sha256 IS NULL THEN 'open' \
                   ELSE 'whole' END FROM parts ORDER BY job_id, run, number",
            ),
            ("event", "SELECT event_type FROM events ORDER BY created_at, id"),
            (
                "delivery",
                "SELECT handler, CASE WHEN status IN ('PENDING', 'RUNNING') THEN 'open' \
                   ELSE status END FROM deliveries \
                 WHERE handler <> 'publish-job-event' ORDER BY handler, id",
            ),
            ("receipt", "SELECT handler FROM receipts ORDER BY handler"),
            ("turn", "SELECT 'queued ' || queued, 'running ' || running FROM turns"),
            ("connection", "SELECT name FROM connections ORDER BY name"),
            ("requester", "SELECT count(*) FROM requesters HAVING count(*) <> 1"),
        ] {
            let rows = self.state.rows(sql).await;
            lines.extend(rows.iter().map(|row| format!("{what}: {}", row.join(", "))));
        }
        lines.extend(self.objects().iter().map(|key| format!("object: {}", file_name(key))));
        lines.extend(self.scratch().iter().map(|name| format!("scratch: {name}")));
        lines.extend(self.mails().iter().map(|_| "mail".to_owned()));
        lines.join("\n")
    }

    async fn know_all_tables(&self) {
        let sql = match self.state {
            State::Postgres(_) => {
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' \
                 AND table_name <> 'seaql_migrations' ORDER BY table_name"
            }
            State::Sqlite(_) => {
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
                 AND name <> 'seaql_migrations' ORDER BY name"
            }
        };
        let tables: Vec<String> = self.state.rows(sql).await.into_iter().flatten().collect();
        assert_eq!(tables.join(" "), TABLES, "say in `describe` what the new table holds");
    }

    /// The keys in the object folder, sorted.
    pub fn objects(&self) -> Vec<String> {
        let root = self.path("objects");
        let mut keys = Vec::new();
        files(&root, &mut keys);
        let key = |path: PathBuf| path.strip_prefix(&root).expect("below").display().to_string();
        let mut keys: Vec<String> = keys.into_iter().map(key).collect();
        keys.retain(|key| !key.starts_with(".uploads"));
        keys.sort();
        keys
    }

    /// What is not finished in the object folder.
    pub fn scratch(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("objects/.uploads")).into_iter().flatten();
        entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// The bytes of an object in the folder as they are stored.
    pub fn stored(&self, key: &str) -> Vec<u8> {
        std::fs::read(self.path("objects").join(key)).expect("the object")
    }

    /// The bytes of an object in the folder as they are delivered.
    pub fn object(&self, key: &str) -> Vec<u8> {
        let stored = self.stored(key);
        if is_sealed(&stored) { opened(key, &stored) } else { stored }
    }

    /// The mails in the folder.
    pub fn mails(&self) -> Vec<Vec<u8>> {
        let mut paths = Vec::new();
        files(&self.path("mail"), &mut paths);
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "eml"));
        paths.iter().map(|path| std::fs::read(path).expect("a mail")).collect()
    }

    /// The mails in the folder, once there is one.
    pub async fn mail(&self) -> String {
        until("there is a mail", PATIENCE, async || self.mails().pop().map(|mail| text_of(&mail)))
            .await
    }
}

/// The setting of a process that dies at a crash point.
pub fn dying_at(point: CrashPoint) -> (&'static str, String) {
    ("OUTPORT_CRASH_POINT", point.to_string())
}

/// The setting of a process that sweeps at its start and never again.
pub fn sweeping_once() -> (&'static str, String) {
    ("OUTPORT_LIMITS_SWEEP_EVERY_SECONDS", "3600".to_owned())
}

fn file_name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    // A folder may not be there yet, or go while it is looked at.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}
