//! The process: configuration, roles, HTTP API and command line.
//!
//! **Words.** A *role* is a part of the product that a process runs. A *process* is one or both.
//!
//! **Invariants.** One module reads the environment ([`config`]), one file knows apalis
//! ([`worker`]), one file knows HTTP status codes ([`api::problem`]). Everything that runs is a
//! library function that a test can call: [`process::run`].
//!
//! **Absent on purpose.** Rules of exports, SQL, and what a handler does: the other crates have
//! those.

pub mod api;
pub mod auth;
pub mod command;
pub mod config;
mod demo;
#[cfg(test)]
mod docs;
pub mod http;
pub mod process;
pub mod worker;
