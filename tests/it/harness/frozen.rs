//! A worker on a thread of its own that can be frozen like a stopped process at a crash point:
//! nothing of it runs any more, its heartbeat included.

use std::{sync::mpsc, thread::JoinHandle};

use outport::{
    config::{Config, Settings},
    process::Process,
};
use outport_domain::crash::{CrashPlan, CrashPoint, Gate};
use outport_store::jobs::{ClaimPolicy, Finished};
use tokio::{runtime::Handle, sync::oneshot};
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, World, until};

/// The configuration of a world's process, for running it in the test itself.
pub fn config(world: &World, crash: CrashPlan) -> Config {
    let mut settings = Settings::default();
    settings.read_environment(world.env.clone().into_iter());
    let config = Config::from_settings(settings).unwrap_or_else(|error| panic!("{error}"));
    Config { crash, ..config }
}

/// A worker that runs one job on a thread of its own.
pub struct Twin {
    gate: Gate,
    handle: Handle,
    thread: JoinHandle<Finished>,
}

/// A frozen [`Twin`].
pub struct Frozen {
    twin: Twin,
    thaw: mpsc::Sender<()>,
}

impl Twin {
    /// Starts one that will stand still at this point.
    pub async fn start(world: &World, point: CrashPoint) -> Self {
        let (plan, gate) = CrashPlan::pausing(point);
        let config = config(world, plan);
        let (started, handle) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            let passed_on = started.send(runtime.handle().clone());
            assert!(passed_on.is_ok(), "the test waits for the handle");
            runtime.block_on(run_one(config))
        });
        Self { gate, handle: handle.await.expect("the thread starts"), thread }
    }

    /// Waits until it stands at its point and stops its whole runtime there.
    pub async fn freeze(self) -> Frozen {
        self.gate.reached(PATIENCE).await;
        let (thaw, thawed) = mpsc::channel();
        let (stopping, stopped) = oneshot::channel();
        self.handle.spawn(async move {
            let told = stopping.send(());
            assert!(told.is_ok(), "the test waits for the frost");
            // Blocks the only thread of the runtime, on purpose.
            thawed.recv().expect("the test thaws it");
        });
        stopped.await.expect("it stops");
        Frozen { twin: self, thaw }
    }
}

impl Frozen {
    /// Lets it go on from its point, and says what it came to.
    pub async fn thaw(self) -> Finished {
        self.twin.gate.open();
        self.thaw.send(()).expect("it waits");
        let mut thread = Some(self.twin.thread);
        until("the thawed worker ends", PATIENCE, async || {
            thread.take_if(|thread| thread.is_finished())
        })
        .await
        .join()
        .expect("it does not panic")
    }
}

async fn run_one(config: Config) -> Finished {
    let worker = config.worker_name.clone();
    let process = Process::build(config).await.unwrap_or_else(|error| panic!("{error}"));
    let pipeline = process.pipeline();
    let policy = ClaimPolicy { worker, lease: pipeline.limits.lease, running_per_organization: 2 };
    let claim = until("there is a job to claim", PATIENCE, async || {
        pipeline.claim(&policy).await.expect("the state database answers")
    })
    .await;
    pipeline.run_one(claim, CancellationToken::new()).await
}
