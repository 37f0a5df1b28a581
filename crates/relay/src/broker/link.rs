//! The way to the broker: one session at a time, rebuilt with full jitter.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use outport_contract::redaction::redact;
use tokio::time::Instant;

use super::{config::BrokerConfig, figures::Figures, session::Session};
use crate::pause::full_jitter;

/// The first ceiling of pauses between connections, and the highest.
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_mins(1);

pub(super) struct Link {
    config: Arc<BrokerConfig>,
    figures: Arc<Figures>,
    state: Mutex<State>,
}

enum State {
    /// Nobody is there. `failures` in a row, the next look not before `until`.
    Down {
        failures: u32,
        until: Instant,
    },
    Connecting,
    /// A session, `failures` after the last one that did anything.
    Up {
        failures: u32,
        session: Arc<Session>,
    },
}

impl Link {
    pub(super) fn new(config: Arc<BrokerConfig>, figures: Arc<Figures>) -> Self {
        let state = Mutex::new(State::Down { failures: 0, until: Instant::now() });
        Self { config, figures, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, so the state is whole whatever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether messages can be sent now. Where there is no session and it is time for one, it
    /// begins to connect.
    pub(super) fn is_ready(self: &Arc<Self>) -> bool {
        let mut state = self.state();
        if let State::Up { failures, session } = &*state {
            let (failures, is_up) = (*failures, session.is_up());
            if is_up && session.is_blocked() {
                return false;
            }
            if is_up && !session.is_stale() {
                return true;
            }
            if !is_up {
                tracing::warn!("the connection to the broker is gone: events wait");
            }
            self.figures.disconnected();
            // Lost in peace, it is sought again at once.
            *state = State::Down { failures, until: Instant::now() };
        }
        if let State::Down { failures, until } = *state
            && until <= Instant::now()
        {
            *state = State::Connecting;
            tokio::spawn(Arc::clone(self).connect(failures));
        }
        false
    }

    async fn connect(self: Arc<Self>, failures: u32) {
        let connected = Session::connect(&self.config, &self.figures).await;
        *self.state() = match connected {
            Ok(session) => {
                self.figures.connected();
                tracing::info!("connected to the broker");
                State::Up { failures, session: Arc::new(session) }
            }
            Err(trouble) => {
                let down = after(failures);
                let error = redact(&trouble.to_string());
                tracing::warn!(error, "no connection to the broker: events wait");
                down
            }
        };
    }

    pub(super) fn session(&self) -> Option<Arc<Session>> {
        match &*self.state() {
            State::Up { session, .. } => Some(Arc::clone(session)),
            State::Down { .. } | State::Connecting => None,
        }
    }

    /// Something was confirmed: the next trouble is a first one.
    pub(super) fn works(&self) {
        if let State::Up { failures, .. } = &mut *self.state() {
            *failures = 0;
        }
    }

    /// A session did not do its work: it is given up, but for one that the broker blocks, on
    /// which the same messages would only be sent again.
    pub(super) fn fails(&self, failed: &Arc<Session>) {
        let mut state = self.state();
        let State::Up { failures, session } = &*state else { return };
        if !Arc::ptr_eq(session, failed) {
            return;
        }
        if session.is_up() && session.is_blocked() {
            session.make_stale();
            return;
        }
        let down = after(*failures);
        self.figures.disconnected();
        *state = down;
    }
}

fn after(failures: u32) -> State {
    let failures = failures.saturating_add(1);
    State::Down { failures, until: Instant::now() + full_jitter(FIRST, MOST, failures) }
}
