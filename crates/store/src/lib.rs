//! Outport's own state, on `SQLite` or `PostgreSQL`: jobs, runs, turns, events, deliveries,
//! tokens, receipts, the audit of downloads, and the live stream's channels.
//!
//! **Words.** A *claim* gives one worker one run of a job under a *lease*. A *fence* is what
//! every write of that run must match. An *event* is a committed fact with a frozen body; a
//! *delivery* is the duty of one handler towards one event; a *receipt* says that it was done.
//!
//! **Invariants.** What must commit together takes a [`Tx`]; there is no overload for a pool.
//! Locks are taken in one order: connection, turn, job, events, channels. Leases are measured by
//! the database's clock. An event row and its deliveries are of the same commit as the change they
//! tell of. Finders that enforce tenancy have the short name.
//!
//! **Absent on purpose.** Handlers, object stores and sources: the store knows what is to be
//! done, never how.

pub mod access;
mod caller_text;
pub mod channels;
mod connect;
pub mod connections;
pub mod credentials;
pub mod deliveries;
mod entity;
mod error;
pub mod events;
pub mod fetcher;
pub mod hints;
mod instant;
mod job_row;
pub mod jobs;
mod outbox;
mod paging;
pub mod parts;
#[cfg(test)]
mod plans;
pub mod runs;
pub mod submit;
pub mod telling;
mod turns;
mod tx;

pub use tx::{Engine, Store, StoreConfig, Tx};

/// What went wrong in the store. `Display` never prints addresses, statements or values.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, or the connection broke.
    #[error("the state database cannot be reached")]
    Unreachable(#[source] Cause),
    /// Two transactions stood in each other's way; trying again helps.
    #[error("the state database asks to try again")]
    Conflict(#[source] Cause),
    /// A row holds what no version of this program writes.
    #[error("the state database holds an unreadable row: {0}")]
    Corrupt(String),
    /// Anything else the database refused.
    #[error("the state database refused a statement")]
    Refused(#[source] Cause),
}

/// The cause of a [`StoreError`].
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A page of a list, newest first.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest {
    /// Rows at most.
    pub limit: u32,
    /// The id of the last row of the page before.
    pub after: Option<uuid::Uuid>,
}

/// A page and whether more follows.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// The `after` of the next page, when there is one.
    pub next: Option<uuid::Uuid>,
}
