//! The test app is the product: real processes on a database, an object store and a mail server
//! of their own, all gone at the end.
//!
//! **Words.** A *world* is everything that one test has. *Settled* means that nothing is left to
//! do in it. A world is compared as text: jobs, runs, events, deliveries, objects, mails.
//!
//! **Invariants.** Waiting is looking until a deadline ([`wait`] is the only place that sleeps).
//! A missing tool fails the test and names the command that installs it.
//!
//! **Absent on purpose.** Anything that reaches into a running process: it is started with
//! environment variables, told signals, and asked over HTTP.

pub mod api;
pub mod broker;
pub mod channels;
pub mod database;
pub mod frozen;
pub mod mails;
pub mod mariadb;
pub mod process;
pub mod proxy;
pub mod servers;
pub mod shop;
pub mod storage;
pub mod wait;
pub mod world;

pub use api::Api;
pub use broker::Broker;
pub use mariadb::MariaDb;
pub use process::Process;
pub use wait::{PATIENCE, for_each, until};
pub use world::World;
