//! The worker's dispatcher: apalis runs it, and does not own it. The job row is the queue; this
//! is the one file that knows apalis.
//!
//! A feeder takes a permit, then claims, and moves the permit into the task, so that nothing is
//! claimed that cannot run at once. There is no retry layer and no stock storage: retries,
//! leases and back-off are the store's.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use apalis::prelude::{
    Backend, Identity, Monitor, Task, TaskBuilder, TaskId, WorkerBuilder, WorkerContext,
};
use apalis_core::backend::{BackendConfig, finalize::Ephemeral};
use outport_contract::redaction::told;
use outport_domain::id::Fence;
use outport_pipeline::Pipeline;
use outport_store::{
    hints::Topic,
    jobs::{self, Claim, ClaimPolicy, ExpiredLeases},
};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// How often the queue is looked at when no hint comes.
const POLL: Duration = Duration::from_secs(1);
/// What a stopping worker gets on top of the drain time, to hand its jobs back.
const HAND_BACK: Duration = Duration::from_secs(10);

/// A claimed job on its way to its run.
struct Claimed {
    claim: Claim,
    _permit: OwnedSemaphorePermit,
}

/// Runs jobs until `stop`; then claims no more, gives running jobs the drain time, and hands
/// the rest back.
pub async fn run(pipeline: Pipeline, name: String, stop: CancellationToken) {
    let hand_back = CancellationToken::new();
    let (claimed, queue) = mpsc::channel(1);
    let queue = Arc::new(Mutex::new(queue));
    let feeder = tokio::spawn(feed(pipeline.clone(), name.clone(), claimed, stop.clone()));
    let rescuer = tokio::spawn(rescue(pipeline.clone(), stop.clone()));
    let drained =
        tokio::spawn(end_of_drain(stop.clone(), hand_back.clone(), pipeline.limits.drain));

    let grace = pipeline.limits.drain + HAND_BACK;
    let runner = pipeline.clone();
    let monitor = Monitor::new()
        .with_terminator(async move { tokio::time::sleep(grace).await })
        .register(move |_restarts| {
            let (pipeline, hand_back) = (runner.clone(), hand_back.clone());
            let backend = ClaimQueue {
                pipeline: runner.clone(),
                queue: Arc::clone(&queue),
                next: None,
                closing: None,
            };
            WorkerBuilder::new(name.clone()).backend(backend).build(move |claimed: Claimed| {
                run_claimed(pipeline.clone(), claimed, hand_back.clone())
            })
        });
    let signal = stop.clone();
    // The monitor's future is large: keep it off the stack of whoever waits.
    let monitored = Box::pin(monitor.run_with_signal(async move {
        signal.cancelled().await;
        Ok(())
    }));
    if let Err(error) = monitored.await {
        tracing::error!(%error, "the dispatcher ended badly");
    }
    for task in [feeder, rescuer, drained] {
        task.abort();
    }
}

/// One task of its own for each run: whatever panics there ends that run alone, and a dropped
/// worker takes its runs with it.
async fn run_claimed(pipeline: Pipeline, claimed: Claimed, hand_back: CancellationToken) {
    let job = claimed.claim.fence.job;
    let run = tokio::spawn(async move {
        let Claimed { claim, _permit } = claimed;
        pipeline.run_one(claim, hand_back).await;
    });
    if let Err(error) = AbortOnDropHandle::new(run).await {
        tracing::error!(%job, %error, "a run ended unexpectedly; its lease will end and it is taken over");
    }
}

async fn end_of_drain(stop: CancellationToken, hand_back: CancellationToken, drain: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(drain).await;
    hand_back.cancel();
}

/// Claims jobs as long as there are permits, and waits for hints when there is nothing due.
async fn feed(
    pipeline: Pipeline,
    worker: String,
    claimed: mpsc::Sender<Claimed>,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(pipeline.limits.running_per_worker));
    let policy = ClaimPolicy {
        worker,
        lease: pipeline.limits.lease,
        running_per_organization: pipeline.limits.running_per_organization,
    };
    let mut hints = pipeline.store.subscribe(Topic::Jobs);
    // The permit of a look that found nothing, kept for the next one.
    let mut unused = None;
    loop {
        let permit = if let Some(permit) = unused.take() {
            permit
        } else {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                permit = Arc::clone(&permits).acquire_owned() => match permit {
                    Ok(permit) => permit,
                    Err(_closed) => return,
                },
            }
        };
        if stop.is_cancelled() {
            return;
        }
        hints.mark_unchanged();
        match pipeline.claim(&policy).await {
            Ok(Some(claim)) => {
                // The queue closes only after the last claim was taken out of it.
                if let Err(mpsc::error::SendError(lost)) =
                    claimed.send(Claimed { claim, _permit: permit }).await
                {
                    hand_back(&pipeline, lost.claim).await;
                    return;
                }
                continue;
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(error = told(&error), "the queue could not be looked at"),
        }
        unused = Some(permit);
        tokio::select! {
            () = stop.cancelled() => return,
            () = wait(&pipeline) => {}
            changed = hints.changed() => if changed.is_err() {
                tokio::time::sleep(POLL).await;
            },
        }
    }
}

/// Until the next job is due, but never longer than the polling period.
async fn wait(pipeline: &Pipeline) {
    let due = jobs::next_due(&pipeline.store).await.ok().flatten();
    let pause =
        due.and_then(|due| (due - chrono::Utc::now()).to_std().ok()).unwrap_or(POLL).min(POLL);
    // Never in a tight loop, whatever the clocks say.
    tokio::time::sleep(pause.max(Duration::from_millis(20))).await;
}

/// Looks for leases of lost workers, one heartbeat apart.
async fn rescue(pipeline: Pipeline, stop: CancellationToken) {
    let mut leases = ExpiredLeases::default();
    while !stop.is_cancelled() {
        if let Err(error) = pipeline.rescue(&mut leases).await {
            tracing::warn!(error = told(&error), "expired leases could not be looked at");
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(pipeline.limits.heartbeat) => {}
        }
    }
}

async fn hand_back(pipeline: &Pipeline, claim: Claim) {
    let stopping = CancellationToken::new();
    stopping.cancel();
    let fence: Fence = claim.fence;
    pipeline.run_one(claim, stopping).await;
    tracing::info!(job = %fence.job, "handed back before it ran");
}

/// Our own small backend: what the feeder has claimed, one by one.
struct ClaimQueue {
    pipeline: Pipeline,
    queue: Arc<Mutex<mpsc::Receiver<Claimed>>>,
    next: Option<Pin<Box<dyn Future<Output = Option<Claimed>> + Send>>>,
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Backend for ClaimQueue {
    type Task = Task<Claimed>;
    type Error = Infallible;

    fn poll_ready(
        &mut self,
        _cx: &mut Context<'_>,
        _worker: &WorkerContext,
    ) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _worker: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Infallible>>> {
        let queue = Arc::clone(&self.queue);
        let next = self
            .next
            .get_or_insert_with(|| Box::pin(async move { queue.lock().await.recv().await }));
        let Poll::Ready(claimed) = next.as_mut().poll(cx) else { return Poll::Pending };
        self.next = None;
        Poll::Ready(claimed.map(|claimed| {
            let id = claimed.claim.fence.job.uuid();
            let run = claimed.claim.fence.run as usize;
            let task = TaskBuilder::new(claimed);
            Ok(task.task_id(TaskId::from_uuid(id)).attempt(run).build())
        }))
    }

    fn poll_close(
        &mut self,
        cx: &mut Context<'_>,
        _worker: &WorkerContext,
    ) -> Poll<Result<(), Infallible>> {
        let (pipeline, queue) = (self.pipeline.clone(), Arc::clone(&self.queue));
        self.next = None;
        let closing = self.closing.get_or_insert_with(|| {
            Box::pin(async move {
                let mut queue = queue.lock().await;
                queue.close();
                while let Some(Claimed { claim, .. }) = queue.recv().await {
                    hand_back(&pipeline, claim).await;
                }
            })
        });
        closing.as_mut().poll(cx).map(Ok)
    }
}

impl BackendConfig for ClaimQueue {
    type Args = Claimed;
    type Id = uuid::Uuid;
    type Kind = Ephemeral;
    type Config = ();
    type Layer = Identity;

    fn config(&self) -> &() {
        &()
    }

    fn middleware(&mut self, _worker: &mut WorkerContext) -> Identity {
        Identity::new()
    }
}
