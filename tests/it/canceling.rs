//! A cancel ends a job as CANCELED or finds it COMPLETED, never both, and within two seconds.

use chrono::Utc;
use outport::process::{Roles, run};
use outport_domain::crash::{CrashPlan, CrashPoint, Gate};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::harness::{PATIENCE, World, for_each, frozen::config, until};

/// Milliseconds from the cancel, or from when the worker can hear of it, to the end.
pub const WITHIN: i64 = 2_000;

/// A whole worker in the test itself, whose tasks stand still at a crash point.
pub struct InProcess {
    pub gate: Gate,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl InProcess {
    pub async fn start(world: &World, point: CrashPoint) -> Self {
        let (plan, gate) = CrashPlan::pausing(point);
        let config = config(world, plan);
        let listener = TcpListener::bind(config.listen).await.expect("a port");
        let stop = CancellationToken::new();
        let told = stop.clone();
        let running = tokio::spawn(async move {
            let ran = Box::pin(run(config, Roles::WORKER, listener, told)).await;
            ran.unwrap_or_else(|error| panic!("{error}"));
        });
        Self { gate, stop, running }
    }

    pub async fn stop(self) {
        self.gate.open();
        self.stop.cancel();
        let stopped = tokio::time::timeout(PATIENCE, self.running).await;
        stopped.expect("it stops in time").expect("it does not panic");
    }
}

/// What a worker that stands at a point can do about a cancel.
enum Standing {
    /// Its heartbeat hears of it, wherever the run stands.
    Listening,
    /// It is about to start its run: it hears of it then.
    Starting,
    /// It holds the job's row: the cancel waits for it.
    HoldingTheRow,
    /// The job has ended.
    Ended,
}

fn standing(point: CrashPoint) -> Standing {
    use CrashPoint as P;
    match point {
        P::MidRows | P::MidUpload | P::AfterUpload | P::AfterVerify => Standing::Listening,
        P::AfterClaim => Standing::Starting,
        P::BeforeClaimCommit | P::BeforeCommit => Standing::HoldingTheRow,
        P::AfterCommit
        | P::BeforeDeliveryClaim
        | P::AfterDeliveryClaim
        | P::AfterSend
        | P::BeforeReceipt
        | P::AfterConfirm
        | P::DuringSweep => Standing::Ended,
    }
}

async fn canceled_at(point: CrashPoint) {
    let world = World::postgres().await;
    let api = world.api().await;
    let job = api.export("order").await;
    let worker = InProcess::start(&world, point).await;
    worker.gate.reached(PATIENCE).await;
    let cancel = format!("/v1/exports/{job}/cancel");
    let canceling = api.post(&cancel);
    let (since, status) = match standing(point) {
        Standing::Listening => {
            let since = now();
            (since, canceling.await.0)
        }
        Standing::Ended => (now(), canceling.await.0),
        Standing::Starting => {
            let status = canceling.await.0;
            worker.gate.open();
            (now(), status)
        }
        Standing::HoldingTheRow => {
            let open = async {
                waits_for_the_row(&world).await;
                worker.gate.open();
                now()
            };
            let ((status, _), since) = tokio::join!(canceling, open);
            (since, status)
        }
    };
    let completes =
        matches!(point, CrashPoint::BeforeCommit) || matches!(standing(point), Standing::Ended);
    let (end, answer) = if completes { ("COMPLETED", 409) } else { ("CANCELED", 202) };
    assert_eq!(status, answer, "the answer at {point}");
    let ended = api.job_is(&job, end).await;
    let took = finished_at(&world).await - since;
    assert!(completes || took <= WITHIN, "{took} ms at {point}");
    assert_eq!(ended["failureReason"].as_str(), (!completes).then_some("CANCELED"));

    worker.gate.open();
    world.settled().await;
    let text = world.describe().await;
    let events = if completes {
        "event: export.completed\nevent: job.completed\n"
    } else {
        "event: export.canceled\nevent: job.failed\n"
    };
    assert!(text.contains(events), "at {point}: {text}");
    assert_eq!(text.matches("event:").count(), 2, "one end at {point}: {text}");
    assert_eq!(world.objects().len(), usize::from(completes), "at {point}: {text}");
    assert_eq!(world.scratch(), [""; 0], "at {point}");
    assert!(text.contains("turn: queued 0, running 0"), "at {point}: {text}");
    worker.stop().await;
}

/// Milliseconds since 1970; the database is on the same machine.
fn now() -> i64 {
    Utc::now().timestamp_millis()
}

/// When the job ended. The test itself may look later.
async fn finished_at(world: &World) -> i64 {
    world.state.value("SELECT finished_at FROM jobs").await.parse().expect("milliseconds")
}

async fn waits_for_the_row(world: &World) {
    // The worker's renewal of its lease, an UPDATE, may wait as well.
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND wait_event_type = 'Lock' AND query LIKE 'SELECT%'";
    until("the cancel waits for the row", PATIENCE, async || {
        (world.state.value(waiting).await == "1").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_at_every_point_ends_the_job_once() {
    // Nothing is swept in these worlds before the job has ended.
    let points = CrashPoint::ALL.into_iter().filter(|point| *point != CrashPoint::DuringSweep);
    for_each(points, canceled_at).await;
}

#[tokio::test]
async fn a_waiting_job_is_canceled_at_once() {
    let world = World::postgres().await;
    let api = world.api().await;
    let job = api.export("order").await;
    let (status, body) = api.post(&format!("/v1/exports/{job}/cancel")).await;
    assert_eq!((status, &body["status"]), (202, &"CANCELED".into()));
    let expected = "job: CANCELED, run 0, failures 0, rows -, CANCELED\n\
                    event: export.canceled\n\
                    event: job.failed\n\
                    turn: queued 0, running 0";
    assert_eq!(world.describe().await, expected);
}
