//! A handler that does what a test says and remembers what it was asked.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use outport_domain::id::JobId;
use outport_relay::{Delivery, Done, Handler, HandlerError};
use tokio::sync::Notify;

/// What a probe does when it is asked.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    Succeed,
    /// Records a receipt for its effect.
    Once,
    Fail,
    GiveUp,
    Panic,
    Hang,
}

type Script = dyn Fn(JobId, u32) -> Deed + Send + Sync;

/// A handler under a test's control; its clones share what they remember.
#[derive(Clone)]
pub struct Probe {
    name: &'static str,
    script: Arc<Script>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    calls: Mutex<Vec<(JobId, u32)>>,
    effects: AtomicUsize,
    dropped: AtomicUsize,
    called: Notify,
    let_go: Notify,
}

impl Probe {
    /// Does what the script says for (job, attempt).
    pub fn scripted(
        name: &'static str,
        script: impl Fn(JobId, u32) -> Deed + Send + Sync + 'static,
    ) -> Self {
        Self { name, script: Arc::new(script), seen: Arc::default() }
    }

    /// Always does the same.
    pub fn always(name: &'static str, deed: Deed) -> Self {
        Self::scripted(name, move |_, _| deed)
    }

    /// All calls so far: (job, attempt).
    pub fn calls(&self) -> Vec<(JobId, u32)> {
        self.seen.calls.lock().expect("no panic holds it").clone()
    }

    /// How often the effect of [`Deed::Once`] happened.
    pub fn effects(&self) -> usize {
        self.seen.effects.load(Ordering::SeqCst)
    }

    /// How many hanging calls were dropped.
    pub fn dropped(&self) -> usize {
        self.seen.dropped.load(Ordering::SeqCst)
    }

    /// Waits for a call.
    pub async fn called(&self) {
        tokio::time::timeout(crate::world::PATIENCE, self.seen.called.notified())
            .await
            .expect("the handler is called in time");
    }

    /// Waits until a hanging call is dropped.
    pub async fn let_go(&self) {
        tokio::time::timeout(crate::world::PATIENCE, self.seen.let_go.notified())
            .await
            .expect("the handler is dropped in time");
    }
}

struct OnDrop<'a>(&'a Seen);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
        self.0.let_go.notify_one();
    }
}

#[async_trait]
impl Handler for Probe {
    fn name(&self) -> &'static str {
        self.name
    }

    fn event_types(&self) -> &'static [&'static str] {
        &["export.completed"]
    }

    async fn handle(&self, delivery: &Delivery<'_>) -> Result<Done, HandlerError> {
        let job = delivery.stored.job;
        self.seen.calls.lock().expect("no panic holds it").push((job, delivery.attempt));
        self.seen.called.notify_one();
        match (self.script)(job, delivery.attempt) {
            Deed::Succeed => Ok(Done::Now),
            Deed::Once => {
                delivery
                    .once("somebody", async {
                        self.seen.effects.fetch_add(1, Ordering::SeqCst);
                        Ok("told".to_owned())
                    })
                    .await
            }
            Deed::Fail => Err(HandlerError::retry("no answer from 10.0.0.7:80")),
            Deed::GiveUp => Err(HandlerError::dead("nobody is there")),
            Deed::Panic => panic!("a test's panic"),
            Deed::Hang => {
                let _on_drop = OnDrop(&self.seen);
                std::future::pending().await
            }
        }
    }
}
