//! The executable kit: checks from outside whether a server keeps the rules of the live stream.
//!
//! **Words.** A *case* checks one thing that a rule says. A *stage* is where a case plays: a
//! server, who asks it, and whom its events are about. Cases use an application of their own, with
//! a name that nobody else has, so what else happens does not disturb them; those of types that
//! only a job or the organization has look for their own events alone.
//!
//! **Absent on purpose.** What cannot be driven from outside, such as killing a writer between its
//! number and its commit: [`FROM_WITHIN`] says what else must be tested where it can be.

mod access;
mod catalogue;
mod ear;
mod envelope;
mod flow;
mod live;
mod sequence;
mod sizes;
mod sse;
mod stage;
mod transport;

use std::time::{Duration, Instant};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use serde::Serialize;
use uuid::Uuid;

use crate::Client;
use stage::Stage;

/// What is checked, and how.
#[derive(Clone, Debug)]
pub struct KitConfig {
    /// The server, by one address of each of its processes.
    pub clients: Vec<Client>,
    /// The caller's organization; the server tells it when it is left out.
    pub organization: Option<Uuid>,
    /// A job of the caller, for the types that only a job has.
    pub job: Option<Uuid>,
    /// Bytes of a message, at most, as the server is configured.
    pub message_bytes: usize,
    /// How often the server says where a channel is, at least.
    pub heartbeat: Duration,
    /// Only the cases whose rule or name has this text.
    pub only: Option<String>,
}

impl KitConfig {
    /// The protocol's defaults.
    pub fn new(clients: Vec<Client>) -> Self {
        Self {
            clients,
            organization: None,
            job: None,
            message_bytes: 64 * 1024,
            heartbeat: Duration::from_secs(15),
            only: None,
        }
    }
}

/// What a case came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "why", rename_all = "camelCase")]
pub enum Verdict {
    /// The server keeps it.
    Pass,
    /// The server does not; what was seen.
    Fail(String),
    /// It cannot be told here; why.
    NotApplicable(String),
}

/// A case that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The contract's rules and decisions, such as `S4 D6`.
    pub rule: &'static str,
    /// What must be so.
    pub case: &'static str,
    /// Whether it is.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long that took, in milliseconds.
    pub millis: u128,
}

/// Why a case did not pass.
#[derive(Debug)]
pub(crate) enum Flaw {
    Failed(String),
    NotApplicable(String),
}

impl<E: std::error::Error> From<E> for Flaw {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A case's answer.
pub(crate) type Checked = Result<(), Flaw>;

/// Fails unless it is so.
pub(crate) fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if is_so { Ok(()) } else { Err(Flaw::Failed(otherwise())) }
}

/// It cannot be told here.
pub(crate) fn not_here<T>(why: &str) -> Result<T, Flaw> {
    Err(Flaw::NotApplicable(why.to_owned()))
}

/// A case.
pub(crate) struct Case {
    rule: &'static str,
    name: &'static str,
    run: for<'a> fn(&'a Stage) -> BoxFuture<'a, Checked>,
}

impl Case {
    pub(crate) const fn new(
        rule: &'static str,
        name: &'static str,
        run: for<'a> fn(&'a Stage) -> BoxFuture<'a, Checked>,
    ) -> Self {
        Self { rule, name, run }
    }
}

/// What the kit cannot drive from outside, and must be tested within a server.
pub const FROM_WITHIN: &[(&str, &str, &str)] = &[
    (
        "S4 D6",
        "numbers follow the order of commits, not of starts",
        "transactions are not in reach",
    ),
    ("S4", "a rollback leaves no hole", "transactions are not in reach"),
    ("S4 D6", "a writer killed between numbering and commit leaves no hole", "needs a kill"),
    ("S18 D4", "what waited too long becomes one `stale` pointer a channel", "needs an outage"),
    (
        "S20 S21 D13 D14",
        "a consumer replays gaps once and ignores what it has",
        "is the consumer's",
    ),
    ("S22 D21", "a kill between commit, send and bookkeeping loses nothing", "needs a kill"),
    ("D7 D23", "a purge raises the floor, and numbers go on after it", "needs a purge"),
    ("D20", "at capacity new connections are refused and old ones stay", "needs all its room"),
];

/// Every case. The one that takes longest, as it waits for heartbeats, comes first.
fn cases() -> impl Iterator<Item = &'static Case> {
    [
        transport::HEARTBEATS,
        envelope::CASES,
        sequence::CASES,
        live::CASES,
        flow::CASES,
        sizes::CASES,
        catalogue::CASES,
        access::CASES,
        transport::CASES,
    ]
    .into_iter()
    .flatten()
}

/// Runs the kit. Each outcome is told as it is found; all of them are returned in order.
pub async fn run(config: KitConfig, mut tell: impl FnMut(&Outcome)) -> Vec<Outcome> {
    let only = config.only.clone();
    let wanted = move |rule: &str, name: &str| {
        only.as_ref().is_none_or(|text| rule.contains(text) || name.contains(text))
    };
    let stage = &match Stage::set(config).await {
        Ok(stage) => stage,
        Err(flaw) => {
            let outcome = outcome("D24", "events can be appended", Err(flaw), Duration::ZERO);
            tell(&outcome);
            return vec![outcome];
        }
    };
    let chosen = cases().enumerate().filter(|(_, case)| wanted(case.rule, case.name));
    // Two at a time: while one waits for heartbeats, the others go on one after the other.
    let mut running = futures::stream::iter(chosen)
        .map(|(place, case)| {
            async move {
                let began = Instant::now();
                let checked = (case.run)(stage).await;
                (place, outcome(case.rule, case.name, checked, began.elapsed()))
            }
            .boxed()
        })
        .buffer_unordered(2);
    let mut outcomes = Vec::new();
    while let Some((place, outcome)) = running.next().await {
        tell(&outcome);
        outcomes.push((place, outcome));
    }
    outcomes.sort_by_key(|(place, _)| *place);
    let within = FROM_WITHIN.iter().filter(|(rule, name, _)| wanted(rule, name));
    let within = within.map(|(rule, name, why)| {
        outcome(rule, name, Err(Flaw::NotApplicable((*why).to_owned())), Duration::ZERO)
    });
    let within: Vec<_> = within.inspect(|outcome| tell(outcome)).collect();
    outcomes.into_iter().map(|(_, outcome)| outcome).chain(within).collect()
}

fn outcome(rule: &'static str, case: &'static str, checked: Checked, took: Duration) -> Outcome {
    let verdict = match checked {
        Ok(()) => Verdict::Pass,
        Err(Flaw::Failed(why)) => Verdict::Fail(why),
        Err(Flaw::NotApplicable(why)) => Verdict::NotApplicable(why),
    };
    Outcome { rule, case, verdict, millis: took.as_millis() }
}
