//! Whether a connection is alive: who waits for whom, and since when.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    BoxError, Router,
    body::{Body, HttpBody},
    extract::ConnectInfo,
    http::Request,
    response::Response,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;
use tower::Service;

/// What a connection is doing.
#[derive(Debug)]
pub struct Pulse(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Handlers and bodies that the client waits for.
    working: usize,
    /// Answers that are not wholly handed over.
    sending: usize,
    /// When something last began or ended.
    since: Instant,
}

impl Pulse {
    pub fn new() -> Self {
        Self(Mutex::new(State { working: 0, sending: 0, since: Instant::now() }))
    }

    /// Ends when the client has kept us waiting for too long: for a request, or, as long as an
    /// answer is not wholly taken, for room for its next piece. Our own work is never too long.
    pub async fn quiet(&self, request: Duration, room: Duration) {
        loop {
            let now = Instant::now();
            let until = {
                let state = self.state();
                let patience = if state.sending == 0 { request } else { room };
                // While we work, it is looked at again before either could be over.
                let until = if state.working == 0 {
                    state.since + patience
                } else {
                    now + request.min(room)
                };
                if until <= now {
                    return;
                }
                until
            };
            tokio::time::sleep_until(until).await;
        }
    }

    /// Notes that something was said to the client, so that its time starts anew.
    pub fn beat(&self) {
        self.change(|_| ());
    }

    /// Whether an answer is not wholly handed over.
    pub fn is_sending(&self) -> bool {
        self.state().sending > 0
    }

    /// Notes that the client waits for us, until the guard is dropped.
    pub fn work(self: &Arc<Self>) -> Working {
        self.change(|state| state.working += 1);
        Working(Arc::clone(self))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.since = Instant::now();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client waits for us.
#[derive(Debug)]
pub struct Working(Arc<Pulse>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.change(|state| state.working -= 1);
    }
}

/// A body that tells the pulse when its next piece is asked for, and when it is there.
#[derive(Debug)]
pub struct Watched {
    body: Body,
    pulse: Arc<Pulse>,
    working: Option<Working>,
}

impl Watched {
    pub fn new(body: Body, pulse: Arc<Pulse>) -> Self {
        pulse.change(|state| state.sending += 1);
        Self { body, pulse, working: None }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.pulse.change(|state| state.sending -= 1);
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.working.is_none() {
            self.working = Some(self.pulse.work());
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_ready() {
            self.working = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The router behind one connection, whose pulse it keeps.
#[derive(Clone)]
pub struct Felt {
    pub router: Router,
    pub address: SocketAddr,
    pub pulse: Arc<Pulse>,
}

impl<B> Service<Request<B>> for Felt
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<Watched>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Watched>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        <Router as Service<Request<B>>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(ConnectInfo(self.address));
        let working = self.pulse.work();
        let pulse = Arc::clone(&self.pulse);
        let answer = self.router.call(request);
        Box::pin(async move {
            let answer = answer.await?.map(|body| Watched::new(body, pulse));
            drop(working);
            Ok(answer)
        })
    }
}
